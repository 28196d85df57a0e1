//! What can go wrong between a file and an answer.

use std::path::PathBuf;

use redraft_compute::{ComputeError, Numerics};
use redraft_gguf::{GgufError, Shown};

use crate::chat::ChatError;
use crate::constrain::ConstrainError;
use crate::engine::MemoryEstimate;
use crate::fill::FillError;
use crate::tokenizer::TokenizerError;

/// Errors of the library. Each says what, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model file cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// An op failed.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// The tokenizer cannot be built or a text cannot be tokenized.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A chat template failed.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// A language that replies cannot be held to.
    #[error(transparent)]
    Constrain(#[from] ConstrainError),
    /// A text with gaps that says something else.
    #[error(transparent)]
    Fill(#[from] FillError),
    /// A file that cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file's architecture has no implementation here.
    #[error(
        "architecture `{}` is not supported; supported: {known} (`redraft inspect` still shows the file)",
        Shown(found)
    )]
    UnknownArch {
        /// `general.architecture`.
        found: String,
        /// Names in the registry.
        known: String,
    },
    /// The file holds something other than a language model.
    #[error(
        "this file is {what}, not a language model; images are not supported: give the model file itself"
    )]
    NotText {
        /// What it is.
        what: String,
    },
    /// A hyper-parameter that makes no sense.
    #[error("metadata key {key}: expected {expected}, found {}", Shown(found))]
    Hyper {
        /// Key with prefix.
        key: String,
        /// What the architecture needs.
        expected: String,
        /// What the file says.
        found: String,
    },
    /// Tensors that are missing or have another shape, all at once.
    #[error("{} tensor{} cannot be used:\n  {}", problems.len(), if problems.len() == 1 { "" } else { "s" }, problems.join("\n  "))]
    Weights {
        /// One line per tensor.
        problems: Vec<String>,
    },
    /// A checkpoint that cannot be converted, with everything that is wrong with it.
    #[error("{} cannot be converted:\n  {}", folder.display(), problems.join("\n  "))]
    Checkpoint {
        /// Where it is.
        folder: PathBuf,
        /// One line each.
        problems: Vec<String>,
    },
    /// A request that cannot be served as asked.
    #[error("{what}: expected {expected}, found {}", Shown(found))]
    Request {
        /// Field.
        what: String,
        /// What would do.
        expected: String,
        /// What was asked.
        found: String,
    },
    /// Prompt and answer do not fit into the context.
    #[error(
        "the prompt has {prompt} tokens and the answer up to {answer}, together more than the \
         context of {context}: shorten the prompt, lower --max-tokens (where \
         canvases have a fixed length one is the least) or raise --ctx"
    )]
    ContextOverflow {
        /// Prompt tokens.
        prompt: usize,
        /// Canvas tokens.
        answer: usize,
        /// Context length.
        context: usize,
    },
    /// Keys, values and intermediate results do not fit into the memory of this machine.
    #[error(
        "not enough memory: the KV cache of {tokens} tokens in {kv_type} takes {} and the passes take {}, but only {} \
         is free: shorten the prompt or lower --max-tokens{}",
        gigabytes(need.kv_bytes), gigabytes(need.buffer_bytes), gigabytes(*available), or_types(smaller)
    )]
    Memory {
        /// What it takes.
        need: MemoryEstimate,
        /// Type of the KV cache.
        kv_type: &'static str,
        /// Tokens of prompt and answer.
        tokens: usize,
        /// Bytes that are free.
        available: u64,
        /// Types of the KV cache that take less, and how many bytes.
        smaller: Vec<(&'static str, u64)>,
    },
    /// A device whose results are not those of a numerics mode.
    #[error(
        "{backend}: this device does not give the bits of `{}` ({class}): {reason}; leave --numerics out to take its results \
         for what they are, or compute with --backend cpu",
        numerics.name()
    )]
    Approximate {
        /// The backend.
        backend: &'static str,
        /// What may be said of the results.
        class: &'static str,
        /// The mode that was asked for.
        numerics: Numerics,
        /// The first thing that is wrong.
        reason: String,
    },
    /// A golden or trace file that does not hold what is needed.
    #[error("{file}: {problem}")]
    Golden {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A receipt that cannot be read or run again.
    #[error("receipt: {problem}")]
    Receipt {
        /// What is wrong with it.
        problem: String,
    },
    /// A model that writes one token after another.
    #[error("{arch} is autoregressive: there is no canvas to denoise; `redraft bench` measures its passes")]
    Autoregressive {
        /// Its architecture.
        arch: &'static str,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

/// The advice to take a smaller KV cache.
fn or_types(smaller: &[(&'static str, u64)]) -> String {
    smaller.iter().map(|&(name, bytes)| format!(", or use --kv-type {name} ({})", gigabytes(bytes))).collect()
}
