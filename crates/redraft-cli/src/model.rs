//! Opens models for commands: progress, notes, times.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use redraft::arch::Reading;
use redraft::compute::{KvType, Precision};
use redraft::gguf::{Gguf, OpenOptions, Shown, available_memory, is_cached};
use redraft::receipt::ModelDigests;
use redraft::tokenizer::Tokenizer;
use redraft::{Error, Model, file_type_name};
use serde::Serialize;

use crate::args::left_out;
use crate::args::model::ModelArgs;
use crate::files::{about_file, refuse_special};
use crate::out::Out;
use crate::ui::progress::{Bytes, counted, human_bytes, human_time};

/// A model, and how long it took to load.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    pub(crate) load: Duration,
}

/// Opens a model whose canvases are denoised.
///
/// # Errors
/// As [`open_any`]; [`Error::Autoregressive`] for a model without a canvas.
pub(crate) fn open(
    args: &ModelArgs,
    precision: Precision,
    stop: &AtomicBool,
    out: Out,
) -> anyhow::Result<Loaded> {
    open_checked(args, precision, |model| model.sampler().map(|_| ()), stop, out)
}

/// Opens the model of `args`, reads a large file ahead with a progress bar, prints its notes as warnings.
///
/// # Errors
/// Those of the library, with the file's name; [`Error::Interrupted`] when `stop` is set meanwhile.
pub(crate) fn open_any(
    args: &ModelArgs,
    precision: Precision,
    stop: &AtomicBool,
    out: Out,
) -> anyhow::Result<Loaded> {
    open_checked(args, precision, |_| Ok(()), stop, out)
}

/// Opens a model that passes a check, which comes before its file is read ahead.
fn open_checked(
    args: &ModelArgs,
    precision: Precision,
    check: impl Fn(&Model) -> Result<(), Error>,
    stop: &AtomicBool,
    out: Out,
) -> anyhow::Result<Loaded> {
    let start = Instant::now();
    let (options, left_out) = args.load_options(precision);
    left_out.iter().for_each(|note| out.note(note));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(n) = args.threads.filter(|&n| n > cores) {
        out.warn(&format!("{n} threads on {cores} cores wait for each other: slower than -t {cores}"));
    }
    let model = match &args.model {
        None => {
            let mut model = Model::embedded(&options)?;
            set_kv_type(&mut model, args, out)?;
            model
        }
        Some(path) => {
            let what = path.file_name().map_or_else(|| "model".into(), |n| n.to_string_lossy().into_owned());
            refuse_special(path, "a GGUF file")?;
            let mut model = Model::open(path, &options).map_err(|e| about_file(e, path))?;
            check(&model).map_err(|e| about_file(e, path))?;
            set_kv_type(&mut model, args, out)?;
            note_refused_maps(model.gguf(), out);
            let size = mapped_bytes(model.gguf());
            let free = available_memory().unwrap_or(u64::MAX);
            if size > free {
                // To read it ahead would throw its own beginning out again.
                out.warn(&format!(
                    "{what} has {}, and {} of memory are free: its weights come from the disk again in every pass",
                    human_bytes(size),
                    human_bytes(free)
                ));
            } else if (size > 1 << 30 || (size > 0 && out.verbose > 0)) && !in_memory(model.gguf()) {
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
    if let Some(n) = args.threads.filter(|&n| n > c.threads) {
        out.warn(&format!("the backend {} computes in {} of {n} threads", c.backend, c.threads));
    }
    out.note(&format!(
        "model {} ({}, {}, {} of weights), backend {} ({}, {}), numerics {}, loaded in {}",
        Shown(model.name()),
        model.arch().name,
        file_type_name(model.gguf()),
        human_bytes(model.weights_bytes()),
        c.backend,
        c.level,
        counted(c.threads, "thread"),
        model.numerics().name(),
        human_time(load)
    ));
    Ok(Loaded { model, load })
}

/// Sets the number type of keys and values that is asked for.
///
/// # Errors
/// It does not go with the model or its precision, and a flag asks for it.
fn set_kv_type(model: &mut Model, args: &ModelArgs, out: Out) -> anyhow::Result<()> {
    let Some(kv_type) = args.kv_type else { return Ok(()) };
    let whole = model.shape().reading == Reading::Whole && kv_type != KvType::F32;
    if whole && args.given.by_environment("kv_type") {
        let because = "models that read prompt and answer in one pass have a cache only with --cache, beside which \
                       --kv-type says it";
        out.note(&left_out("kv_type", kv_type.name(), because));
        return Ok(());
    }
    match model.set_kv_type(kv_type) {
        Err(e) if args.given.by_environment("kv_type") => {
            out.note(&left_out("kv_type", kv_type.name(), e));
            Ok(())
        }
        done => done.context("--kv-type"),
    }
}

/// Bytes of the files that are mapped.
fn mapped_bytes(gguf: &Gguf) -> u64 {
    gguf.files().iter().filter(|f| f.bytes.is_mapped()).map(|f| f.bytes.len() as u64).sum()
}

/// Whether all mapped files are in the system's page cache: a first pass over them waits for no disk, and going
/// through all pages of 17 GB would take seconds.
fn in_memory(gguf: &Gguf) -> bool {
    let mut mapped = gguf.files().iter().filter(|f| f.bytes.is_mapped());
    mapped.all(|f| f.path.as_deref().and_then(is_cached) == Some(true))
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
    let took = bar.finish();
    let done = done?;
    let rate = human_bytes((size as f64 / took.as_secs_f64().max(1e-9)) as u64);
    out.note(&format!("{what}: {} in {}, {rate}/s", human_bytes(size), human_time(took)));
    Ok(done)
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

/// The file of a model whose vocabulary alone is wanted, and the vocabulary; warns of what had to be assumed. Without
/// a path the demo model's.
///
/// # Errors
/// Those of the reader and the tokenizer, with the file's name.
pub(crate) fn open_vocabulary(path: Option<&Path>, out: Out) -> anyhow::Result<(Gguf, Tokenizer)> {
    let Some(path) = path else {
        let gguf = Model::embedded_file()?;
        let tokenizer = Tokenizer::from_gguf(gguf.metadata())?;
        return Ok((gguf, tokenizer));
    };
    let gguf = open_file(path, out)?;
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).map_err(|e| about_file(e, path))?;
    tokenizer.notes().iter().for_each(|note| out.warn(note));
    Ok((gguf, tokenizer))
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
            file_type: file_type_name(model.gguf()),
            sha256_header: model.sha256_header(),
        }
    }
}
