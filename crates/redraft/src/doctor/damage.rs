//! Errors of reading and loading, as findings.

use redraft_compute::ComputeError;
use redraft_gguf::GgufError;

use super::tensors::gap;
use super::{Finding, Verdict, key};
use crate::Error;

/// A file that is none.
pub(super) fn of_file(error: &GgufError) -> Finding {
    let damaged = |id, place: String, what: String| Finding::error(id, Verdict::Damaged, place, what);
    match error {
        GgufError::Shard { path, source } => {
            let inner = of_file(source);
            Finding { place: format!("{}: {}", path.display(), inner.place), ..inner }
        }
        GgufError::Truncated { offset, expected, found, .. } => damaged(
            "truncated",
            at(*offset),
            format!(
                "{error}: the download is not complete; expected at least {} bytes in all, found {}",
                offset.saturating_add(*expected),
                offset.saturating_add(*found)
            ),
        ),
        GgufError::TensorOutOfFile { offset, n_bytes, expected, .. } => damaged(
            "truncated",
            at(*offset),
            format!(
                "{error}: the download is not complete; expected at least {} bytes in all, found {expected}",
                offset.saturating_add(*n_bytes)
            ),
        ),
        GgufError::ShardMissing { path, .. } => {
            let what = format!("{error}: put all files of the model into one folder");
            damaged("split-missing", path.display().to_string(), what)
        }
        GgufError::ShardName { path, .. } | GgufError::ShardMismatch { path, .. } => {
            damaged("split-mismatch", path.display().to_string(), error.to_string())
        }
        GgufError::ShardTensors { path, .. } => {
            damaged("split-mismatch", path.display().to_string(), error.to_string())
        }
        GgufError::ShardTensor { second, .. } => {
            damaged("split-mismatch", second.display().to_string(), error.to_string())
        }
        e => damaged("broken", place(e), e.to_string()),
    }
}

/// Where an error of the format is.
fn place(error: &GgufError) -> String {
    match error {
        GgufError::BadMagic { .. } => at(0),
        GgufError::UnsupportedVersion { .. } | GgufError::BigEndian { .. } => at(4),
        GgufError::Limit { offset, .. }
        | GgufError::NotUtf8 { offset, .. }
        | GgufError::UnknownValueType { offset, .. }
        | GgufError::BadBool { offset, .. } => at(*offset),
        GgufError::TensorOverlap { found, .. } => at(*found),
        GgufError::DuplicateKey { key } => key.clone(),
        GgufError::BadAlignment { .. } => "general.alignment".into(),
        GgufError::DuplicateTensor { tensor }
        | GgufError::ShapeOverflow { tensor, .. }
        | GgufError::RowNotBlocks { tensor, .. }
        | GgufError::Misaligned { tensor, .. } => tensor.clone(),
        GgufError::MissingKey { key, .. }
        | GgufError::WrongType { key, .. }
        | GgufError::OutOfRange { key, .. } => key.clone(),
        _ => String::new(),
    }
}

fn at(offset: u64) -> String {
    format!("offset {offset}")
}

/// A file of a known architecture that cannot be loaded.
pub(super) fn of_model(error: &Error) -> Finding {
    let unsupported =
        |id, place: &str| Finding::error(id, Verdict::LoadsButDecodeUnsupported, place, error.to_string());
    match error {
        Error::Gguf(e @ (GgufError::MissingKey { .. } | GgufError::WrongType { .. })) => {
            unsupported("hyper-parameter", &place(e))
        }
        Error::Gguf(e @ GgufError::OutOfRange { .. }) => unsupported("hyper-parameter", &place(e)),
        Error::Gguf(e) => of_file(e),
        Error::Hyper { key, .. } if key == key::MASK => unsupported("mask-token", key),
        Error::Hyper { key, .. } => unsupported("hyper-parameter", key),
        Error::Tokenizer(_) => unsupported("tokenizer", "tokenizer.ggml"),
        Error::Compute(ComputeError::UnsupportedType { weight, dtype }) => gap(weight, dtype),
        Error::Weights { problems } => {
            let factors = problems.iter().any(|p| p.starts_with("rope_freqs.weight: missing"));
            let (id, advice) = match factors {
                true => (
                    "rope-freqs",
                    "; without these factors all full layers read positions wrongly: convert again",
                ),
                false => ("tensors", "; the file is incomplete or its sizes are another model's"),
            };
            Finding::error(id, Verdict::Damaged, first_word(problems), format!("{error}{advice}"))
        }
        _ => unsupported("load", ""),
    }
}

/// The tensor of the first problem.
fn first_word(problems: &[String]) -> &str {
    problems.first().and_then(|p| p.split_once(':')).map_or("", |(name, _)| name)
}
