//! Opens models for commands: progress, notes, times.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redraft::compute::Precision;
use redraft::gguf::{DType, Gguf, OpenOptions, Shown};
use redraft::receipt::ModelDigests;
use redraft::{Error, LoadOptions, Model};
use serde::Serialize;

use crate::args::model::ModelArgs;
use crate::out::Out;
use crate::ui::progress::{Bytes, human_bytes};

/// A model, and how long it took to load.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    pub(crate) load: Duration,
}

/// Opens the model of `args`, reads a large file ahead with a progress bar, prints its notes as warnings.
///
/// # Errors
/// Those of the library, with the file's name; [`Error::Interrupted`] when `stop` is set meanwhile.
pub(crate) fn open(
    args: &ModelArgs,
    precision: Precision,
    stop: &AtomicBool,
    out: Out,
) -> anyhow::Result<Loaded> {
    let start = Instant::now();
    let options = args.load_options(precision);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(n) = args.threads.filter(|&n| n > cores) {
        out.warn(&format!("{n} threads on {cores} cores wait for each other: slower than -t {cores}"));
    }
    let model = match &args.model {
        None => embedded(&options)?,
        Some(path) => {
            let what = path.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned());
            refuse_special(path, "a GGUF file")?;
            let model = Model::open(path, &options).map_err(|e| about_file(e, path))?;
            note_refused_maps(model.gguf(), out);
            let size = mapped_bytes(model.gguf());
            if size > 1 << 30 || (size > 0 && out.verbose > 0) {
                read_ahead(&model, &what, size, stop, out)?;
            }
            model
        }
    };
    for note in model.notes() {
        out.warn(note);
    }
    if !model.unused_tensors().is_empty() {
        let unused: Vec<String> = model.unused_tensors().iter().map(|t| Shown(t).to_string()).collect();
        out.note(&format!("not used by {}: {}", model.arch().name, unused.join(", ")));
    }
    let load = start.elapsed();
    let c = model.backend().capabilities();
    out.note(&format!(
        "model {} ({}, {}, {} of weights), backend {} ({}, {} threads), loaded in {:.2} s",
        Shown(model.name()),
        model.arch().name,
        file_type(model.gguf()),
        human_bytes(model.weights_bytes()),
        c.backend,
        c.level,
        c.threads,
        load.as_secs_f64()
    ));
    Ok(Loaded { model, load })
}

/// Bytes of the files that are mapped.
fn mapped_bytes(gguf: &Gguf) -> u64 {
    gguf.files().iter().filter(|f| f.bytes.is_mapped()).map(|f| f.bytes.len() as u64).sum()
}

/// Says which files had to be read because they could not be mapped.
fn note_refused_maps(gguf: &Gguf, out: Out) {
    for file in gguf.files() {
        if let (Some(why), Some(path)) = (file.bytes.map_refused(), &file.path) {
            let size = human_bytes(file.bytes.len() as u64);
            out.note(&format!("{} cannot be mapped ({why}): read into memory, {size}", path.display()));
        }
    }
}

/// Reads all pages of the files, so that the first pass does not wait for the disk.
fn read_ahead(model: &Model, what: &str, size: u64, stop: &AtomicBool, out: Out) -> anyhow::Result<()> {
    with_bar(&format!("reading {what}"), size, stop, out, |progress| model.warm_up(progress))
}

/// The digests of a model's files for a receipt, with a progress bar where that takes a while.
///
/// # Errors
/// [`Error::Interrupted`] when `stop` is set meanwhile.
pub(crate) fn digests(model: &Model, stop: &AtomicBool, out: Out) -> anyhow::Result<ModelDigests> {
    let size = model.file_bytes();
    with_bar("hashing the model", size, stop, out, |progress| ModelDigests::of(model, progress))
}

/// Runs something that goes through `size` bytes, under a progress bar.
fn with_bar<T>(
    what: &str,
    size: u64,
    stop: &AtomicBool,
    out: Out,
    work: impl FnOnce(&mut dyn FnMut(u64, u64) -> bool) -> Result<T, Error>,
) -> anyhow::Result<T> {
    let bar = Bytes::new(what, size, out.shows_progress(size));
    let done = work(&mut |done, total| {
        bar.set(done, total);
        !stop.load(Ordering::Relaxed)
    });
    let took = bar.finish().as_secs_f64();
    let done = done?;
    let rate = human_bytes((size as f64 / took.max(1e-9)) as u64);
    out.note(&format!("{what}: {} in {took:.2} s, {rate}/s", human_bytes(size)));
    Ok(done)
}

/// The demo model inside this program.
fn embedded(options: &LoadOptions) -> anyhow::Result<Model> {
    Ok(Model::embedded(options)?)
}

/// The demo model for commands that do not compute.
///
/// # Errors
/// As for any model.
pub(crate) fn embedded_model() -> anyhow::Result<Model> {
    embedded(&LoadOptions { threads: Some(1), ..LoadOptions::default() })
}

/// Opens a file for commands that do not compute.
///
/// # Errors
/// Those of the reader, with the file's name.
pub(crate) fn open_file(path: &Path, out: Out) -> anyhow::Result<Gguf> {
    refuse_special(path, "a GGUF file")?;
    let gguf = Gguf::open(path, &OpenOptions::default()).map_err(|e| about_file(e, path))?;
    note_refused_maps(&gguf, out);
    Ok(gguf)
}

/// What a system says about a folder that is mapped as a file helps nobody, and a device may never end.
///
/// # Errors
/// The path is no regular file, where `expected` would do.
pub(crate) fn refuse_special(path: &Path, expected: &str) -> anyhow::Result<()> {
    let Ok(meta) = std::fs::metadata(path) else { return Ok(()) };
    anyhow::ensure!(!meta.is_dir(), "{} is a folder: expected {expected}", path.display());
    anyhow::ensure!(meta.is_file(), "{} is no regular file: expected {expected}", path.display());
    Ok(())
}

/// An output that is also an input would be lost before anybody noticed, and so would one of two outputs.
///
/// # Errors
/// When `output` is one of the `others`, by whatever path.
pub(crate) fn refuse_overwriting(output: &Path, others: &[Option<&Path>]) -> anyhow::Result<()> {
    if std::fs::metadata(output).is_ok_and(|m| !m.is_file()) {
        return Ok(()); // a device loses nothing
    }
    let target = place(output);
    for other in others.iter().flatten() {
        anyhow::ensure!(
            place(other) != target,
            "{} is also an input or another output of this command: write to another file",
            output.display()
        );
    }
    Ok(())
}

/// Where a file is, or where it would be.
fn place(path: &Path) -> PathBuf {
    if let Ok(place) = path.canonicalize() {
        return place;
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_path_buf(),
    }
}

/// What cannot be written is better said before the work than after it.
///
/// # Errors
/// `output` is a folder, or is to be in one that is not there.
pub(crate) fn refuse_no_place(output: &Path) -> anyhow::Result<()> {
    let name = output.display();
    anyhow::ensure!(!output.is_dir(), "cannot write {name}: it is a folder, expected the name of a file");
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    anyhow::ensure!(folder.is_dir(), "cannot write {name}: there is no folder {}", folder.display());
    Ok(())
}

/// An error about the content of a file, with the file's name unless it says it itself.
pub(crate) fn about_file<E: std::error::Error + Send + Sync + 'static>(
    error: E,
    path: &Path,
) -> anyhow::Error {
    let name = path.display().to_string();
    let named = error.to_string().contains(&name);
    let error = anyhow::Error::new(error);
    if named { error } else { error.context(name) }
}

/// What identifies a model in reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ModelReport {
    /// `general.name`, or the architecture's.
    pub(crate) name: String,
    /// `general.architecture`.
    pub(crate) architecture: &'static str,
    /// Name of the quantization.
    pub(crate) file_type: String,
    /// SHA-256 of everything before the tensor data.
    pub(crate) sha256_header: String,
}

impl ModelReport {
    pub(crate) fn of(model: &Model) -> ModelReport {
        ModelReport {
            name: model.name().to_string(),
            architecture: model.arch().name,
            file_type: file_type(model.gguf()),
            sha256_header: model.sha256_header(),
        }
    }
}

/// Names of `general.file_type`, as llama.cpp numbers them.
const FILE_TYPES: &[(u64, &str)] = &[
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (19, "IQ2_XXS"),
    (20, "IQ2_XS"),
    (21, "Q2_K_S"),
    (22, "IQ3_XS"),
    (23, "IQ3_XXS"),
    (24, "IQ1_S"),
    (25, "IQ4_NL"),
    (26, "IQ3_S"),
    (27, "IQ3_M"),
    (28, "IQ2_S"),
    (29, "IQ2_M"),
    (30, "IQ4_XS"),
    (31, "IQ1_M"),
    (32, "BF16"),
    (36, "TQ1_0"),
    (37, "TQ2_0"),
    (38, "MXFP4"),
];

/// The quantization that `general.file_type` names; without it the type that most bytes have.
pub(crate) fn file_type(gguf: &Gguf) -> String {
    let stated = gguf.metadata().opt_u64("general.file_type").ok().flatten();
    if let Some((_, name)) = FILE_TYPES.iter().find(|(n, _)| Some(*n) == stated) {
        return (*name).to_string();
    }
    let mut sums: std::collections::BTreeMap<DType, u64> = std::collections::BTreeMap::new();
    for t in gguf.tensors() {
        *sums.entry(t.dtype).or_default() += t.n_bytes;
    }
    let most = sums.iter().max_by_key(|(_, bytes)| **bytes);
    most.map_or_else(|| "none".into(), |(dtype, _)| format!("mostly {dtype}"))
}
