//! Writes a checkpoint of `transformers` as a model file.
//!
//! Shards are mapped and tensors written one after another in pieces, so that memory does not grow with the model.
//! The header and the vectors are written first and read back by the reader of model files, as it would read them to
//! run the model: what does not fit is found before the matrices are written. The file has its name when all of it is
//! there.

use std::io::{BufWriter, ErrorKind, Seek as _, SeekFrom, Write};
use std::path::Path;

use redraft_gguf::{DType, Gguf, GgufError, GgufWriter, OpenOptions};

use super::folder::{Checkpoint, Folder, unusable};
use super::plan::Plan;
use super::rows::{Planned, WriteError};
use crate::Error;
use crate::partial::Partial;
use crate::tokenizer::Tokenizer;
use crate::weights::WeightLoader;

/// Bytes that are collected before they are written.
const BUFFER: usize = 1 << 20;

/// What a caller may say about a conversion.
#[derive(Debug, Clone, Default)]
pub struct ConvertOptions {
    /// Type of the matrices; None keeps what each has. Vectors and routers are F32 in any case.
    pub dtype: Option<DType>,
    /// The architecture, where `config.json` says another or none.
    pub arch: Option<String>,
    /// Tokens of a block, where `config.json` says another number or none.
    pub block_len: Option<u32>,
    /// Name of the pre-tokenizer, where `tokenizer.json` splits text in a way that has no name here.
    pub pre: Option<String>,
    /// `general.name`; None takes the folder's.
    pub name: Option<String>,
    /// Replace a file that is there.
    pub overwrite: bool,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// The architecture.
    pub arch: &'static str,
    /// Length of the file.
    pub n_bytes: u64,
    /// Number of weights.
    pub n_weights: u64,
    /// Tensors by type, in the order of first use.
    pub types: Vec<(DType, usize)>,
    /// Tensors of the checkpoint that are left out: images, repetitions.
    pub left_out: usize,
    /// What had to be assumed, one sentence each.
    pub notes: Vec<String>,
}

/// Converts the checkpoint in `folder` to the file `out`. `progress` gets bytes written and bytes in all, and stops the
/// writing by returning `false`.
///
/// # Errors
/// [`Error::Checkpoint`] with everything that is wrong with it, before anything is written; [`Error::Io`] where the
/// file cannot be written or is there already; [`Error::Gguf`] where a shard is cut short meanwhile;
/// [`Error::Interrupted`].
pub fn convert(
    folder: &Path,
    out: &Path,
    options: &ConvertOptions,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Converted, Error> {
    let io = |source| Error::Io { path: out.to_path_buf(), source };
    let checkpoint = Checkpoint::Folder(folder);
    let (files, tokenizer) = Folder::open(checkpoint)?;
    let name = folder.canonicalize().ok().and_then(|f| Some(f.file_name()?.to_string_lossy().into_owned()));
    let mut plan = Plan::new(&files, tokenizer, name.as_deref().unwrap_or("model"), options)
        .map_err(|problems| unusable(checkpoint, problems))?;
    let header = header(&plan)?;
    let total = plan.tensors.iter().map(n_bytes).fold(header.len() as u64, u64::saturating_add);
    let mut partial = Partial::create(out, options.overwrite, total).map_err(io)?;
    let written = |e| write_error(e, out);
    prepare(&plan, &header, total, &mut partial).map_err(written)?;
    drop(header);
    // The file is mapped only until it is judged: it changes after that.
    let gguf = Gguf::open(partial.path(), &OpenOptions::default())?;
    judge(&mut plan, &gguf).map_err(|problems| unusable(checkpoint, problems))?;
    drop(gguf);
    partial.file.seek(SeekFrom::Start(0)).map_err(io)?;
    let buffered = BufWriter::with_capacity(BUFFER, &partial.file);
    stream(&mut plan, buffered, total, &mut |done| progress(done, total)).map_err(written)?;
    // What was read from a file that became shorter is not what it says.
    files.check()?;
    partial.finish().map_err(io)?;
    Ok(report(plan, total))
}

/// As [`convert`], from and to memory.
///
/// # Errors
/// As for [`convert`].
pub fn convert_to_memory(
    checkpoint: Checkpoint<'_>,
    options: &ConvertOptions,
) -> Result<(Vec<u8>, Converted), Error> {
    let (files, tokenizer) = Folder::open(checkpoint)?;
    let mut plan =
        Plan::new(&files, tokenizer, "model", options).map_err(|problems| unusable(checkpoint, problems))?;
    let mut out = Vec::new();
    stream(&mut plan, &mut out, 0, &mut |_| true).map_err(|e| write_error(e, &checkpoint.path()))?;
    files.check()?;
    let gguf = Gguf::from_bytes(out.into())?;
    judge(&mut plan, &gguf).map_err(|problems| unusable(checkpoint, problems))?;
    let bytes = gguf.bytes().to_vec();
    let n_bytes = bytes.len() as u64;
    Ok((bytes, report(plan, n_bytes)))
}

fn report(plan: Plan<'_>, n_bytes: u64) -> Converted {
    let mut types: Vec<(DType, usize)> = Vec::new();
    for t in &plan.tensors {
        match types.iter_mut().find(|(d, _)| *d == t.dtype) {
            Some((_, n)) => *n += 1,
            None => types.push((t.dtype, 1)),
        }
    }
    let n_weights = plan.tensors.iter().filter_map(Planned::elements).sum();
    Converted { arch: plan.arch.name, n_bytes, n_weights, types, left_out: plan.left_out, notes: plan.notes }
}

/// Bytes of a tensor with its padding.
fn n_bytes(t: &Planned<'_>) -> u64 {
    let (row, rows) = t.dims.split_first().map_or((0, &[][..]), |(row, rest)| (*row, rest));
    let bytes = rows.iter().try_fold(t.dtype.row_bytes(row).unwrap_or(0), |n, &d| n.checked_mul(d));
    bytes
        .and_then(|n| n.checked_next_multiple_of(redraft_gguf::limits::DEFAULT_ALIGNMENT))
        .unwrap_or(u64::MAX)
}

fn writer(plan: &Plan<'_>) -> Result<GgufWriter, GgufError> {
    let mut writer = GgufWriter::with_metadata(plan.metadata.clone());
    plan.tensors.iter().try_for_each(|t| writer.add_tensor(&t.name, &t.dims, t.dtype))?;
    Ok(writer)
}

/// Everything before the tensors' data.
fn header(plan: &Plan<'_>) -> Result<Vec<u8>, GgufError> {
    let mut header = Vec::new();
    writer(plan)?.begin(&mut header)?;
    Ok(header)
}

/// Writes header and vectors of a file that is as long as it will be.
fn prepare(plan: &Plan<'_>, header: &[u8], total: u64, partial: &mut Partial) -> Result<(), WriteError> {
    let io = |source| WriteError::Gguf(GgufError::Write { source });
    partial.file.write_all(header).map_err(io)?;
    partial.file.set_len(total).map_err(io)?;
    let mut at = header.len() as u64;
    for t in &plan.tensors {
        if t.dims.len() == 1 {
            partial.file.seek(SeekFrom::Start(at)).map_err(io)?;
            t.write(&mut |bytes| Ok(partial.file.write_all(bytes)?)).map_err(|e| e.of(t))?;
        }
        at = at.saturating_add(n_bytes(t));
    }
    Ok(())
}

/// Reads the file as one reads it to run the model.
fn judge(plan: &mut Plan<'_>, gguf: &Gguf) -> Result<(), Vec<String>> {
    let mut notes = Vec::new();
    let mut loader = WeightLoader::new(gguf);
    let line = |e: Error| vec![format!("the file would not be usable: {e}")];
    let lines = |e: Error| match e {
        Error::Weights { problems } => problems.iter().map(|p| plan.explain(p)).collect(),
        e => line(e),
    };
    (plan.arch.load)(gguf, &mut loader, &mut notes).map_err(lines)?;
    let (_, unused) = loader.finish().map_err(lines)?;
    let unused: Vec<String> = unused.iter().map(|name| plan.explain(name)).collect();
    if !unused.is_empty() {
        return Err(unused.into_iter().map(|u| format!("nothing uses {u}")).collect());
    }
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).map_err(|e| line(e.into()))?;
    notes.extend_from_slice(tokenizer.notes());
    plan.notes.extend(notes);
    Ok(())
}

/// Writes the whole file.
fn stream<W: Write>(
    plan: &mut Plan<'_>,
    out: W,
    total: u64,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<(), WriteError> {
    let mut out = writer(plan)?.begin(out)?;
    let data = plan.tensors.iter().map(n_bytes).fold(0, u64::saturating_add);
    let mut done = total.saturating_sub(data);
    for t in &plan.tensors {
        out.start_tensor(&t.name)?;
        let mut stopped = false;
        let written = t.write(&mut |bytes| {
            out.write(bytes)?;
            done = done.saturating_add(bytes.len() as u64);
            stopped = stopped || !progress(done);
            match stopped {
                true => Err(GgufError::Write { source: ErrorKind::Interrupted.into() }),
                false => Ok(()),
            }
        });
        if stopped {
            return Err(WriteError::Interrupted);
        }
        written.map_err(|e| e.of(t))?;
        out.end_tensor()?;
    }
    out.finish()?;
    Ok(())
}

fn write_error(e: WriteError, out: &Path) -> Error {
    match e {
        WriteError::Interrupted => Error::Interrupted,
        WriteError::Gguf(GgufError::Write { source }) => Error::Io { path: out.to_path_buf(), source },
        WriteError::Gguf(e) => e.into(),
        WriteError::Tensor(problem) => Error::Weights { problems: vec![problem] },
    }
}
