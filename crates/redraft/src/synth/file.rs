//! Writes a planned file as a stream.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use redraft_gguf::{DType, GgufError, GgufWriter};

use super::blocks::Filler;
use super::{FileType, Plan};
use crate::partial::{Partial, free_bytes};

/// About how many bytes are made, written and reported at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Collects small tensors; chunks pass by it.
const BUFFER_BYTES: usize = 1 << 18;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Length of the file.
    pub n_bytes: u64,
    /// Number of weights.
    pub n_weights: u64,
    /// Block types and how many tensors have each, in the order of their first tensor.
    pub dtypes: Vec<(DType, usize)>,
}

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// No file type has that name.
    #[error("unknown file type `{found}`: expected one of {known}")]
    UnknownType {
        /// The name that was given.
        found: String,
        /// The names that exist.
        known: String,
    },
    /// The disk has not enough room.
    #[error(
        "not enough room for {path}: {needed} bytes ({:.1} GB) are needed, {free} bytes ({:.1} GB) are free",
        *needed as f64 / 1e9, *free as f64 / 1e9
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Bytes of the whole file.
        needed: u64,
        /// Bytes that are free where it would be.
        free: u64,
    },
    /// The file cannot be created or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The plan is none of a valid file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The plan asks for values that a block type cannot have.
    #[error("tensor \"{tensor}\" of type {dtype} cannot be filled with {fill}")]
    Fill {
        /// The tensor.
        tensor: String,
        /// Its block type.
        dtype: DType,
        /// The values.
        fill: String,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Writes the file of a plan to `path`, with `replace` in place of one that is there. `progress` gets bytes written and
/// bytes in all, and stops the writing by returning `false`. The file appears under its name when it is
/// complete; until then it is called `path` with `.partial` added, and that file is removed whatever goes
/// wrong.
///
/// # Errors
/// [`SynthError::NoSpace`] before anything is written, or when the disk fills up meanwhile;
/// [`SynthError::Interrupted`]; those of the file system.
pub fn write(
    plan: &Plan,
    file_type: &FileType,
    seed: u64,
    path: &Path,
    replace: bool,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Summary, SynthError> {
    let writer = plan.writer(file_type)?;
    let total = measure(plan, writer.clone(), file_type)?;
    let no_space = |free| SynthError::NoSpace { path: path.to_owned(), needed: total, free };
    let io = |e: std::io::Error| match e.kind() {
        ErrorKind::StorageFull => no_space(free_bytes(path).unwrap_or(0)),
        _ => SynthError::Io { path: path.to_owned(), source: e },
    };
    let partial = Partial::create(path, replace, total).map_err(io)?;
    let out = BufWriter::with_capacity(BUFFER_BYTES, &partial.file);
    let written = stream(plan, writer, file_type, seed, out, total, progress);
    written.and_then(|()| partial.finish().map_err(io)).map_err(|e| match e {
        SynthError::Gguf(GgufError::Write { source }) => io(source),
        e => e,
    })?;

    let mut dtypes: Vec<(DType, usize)> = Vec::new();
    for dtype in plan.tensors.iter().map(|t| file_type.dtype(t)) {
        match dtypes.iter_mut().find(|(t, _)| *t == dtype) {
            Some((_, n)) => *n += 1,
            None => dtypes.push((dtype, 1)),
        }
    }
    Ok(Summary { n_bytes: total, n_weights: plan.n_weights(), dtypes })
}

/// Writes header and tensors to `out`.
fn stream<W: Write>(
    plan: &Plan,
    writer: GgufWriter,
    file_type: &FileType,
    seed: u64,
    out: W,
    total: u64,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<(), SynthError> {
    let mut w = writer.begin(out)?;
    let mut chunk = Vec::new();
    let mut done = total - data_bytes(plan, file_type);
    for (index, t) in plan.tensors.iter().enumerate() {
        let dtype = file_type.dtype(t);
        let filler = Filler::new(seed, index, t, dtype).ok_or_else(|| SynthError::Fill {
            tensor: t.name.clone(),
            dtype,
            fill: format!("{:?}", t.fill),
        })?;
        let block_bytes = dtype.info().map_or(1, |i| i.block_bytes);
        // Pieces start at a multiple of four blocks.
        let chunk_bytes = CHUNK_BYTES / block_bytes / 4 * 4 * block_bytes;
        let n_bytes = t.n_bytes(dtype).unwrap_or(0);
        w.start_tensor(&t.name)?;
        let mut at = 0;
        while at < n_bytes {
            chunk.resize(usize::try_from(n_bytes - at).unwrap_or(usize::MAX).min(chunk_bytes), 0);
            filler.fill(at / block_bytes as u64, &mut chunk);
            w.write(&chunk)?;
            at += chunk.len() as u64;
            if !progress(done + at, total) {
                return Err(SynthError::Interrupted);
            }
        }
        w.end_tensor()?;
        done += padded(n_bytes);
    }
    w.finish()?;
    Ok(())
}

/// Bytes of all tensors with their padding.
fn data_bytes(plan: &Plan, file_type: &FileType) -> u64 {
    plan.tensors.iter().map(|t| padded(t.n_bytes(file_type.dtype(t)).unwrap_or(0))).sum()
}

fn padded(n_bytes: u64) -> u64 {
    n_bytes.next_multiple_of(redraft_gguf::limits::DEFAULT_ALIGNMENT)
}

/// Length of the file that `writer` would write.
pub(super) fn measure(plan: &Plan, writer: GgufWriter, file_type: &FileType) -> Result<u64, GgufError> {
    let mut header = Counter(0);
    writer.begin(&mut header)?;
    Ok(header.0 + data_bytes(plan, file_type))
}

/// Counts what is written to it.
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
