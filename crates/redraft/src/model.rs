//! A model file, ready to run: hyper-parameters, weights, tokenizer, template, backend.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redraft_compute::{
    Backend, BackendOptions, ComputeError, KvType, Numerics, Precision, WeightTable, backend, fastest,
};
use redraft_gguf::{Bytes, Gguf, OpenOptions};
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::arch::{Arch, ArchSpec, Shape, arch_of};
use crate::device::prepare;
use crate::diagnose::{Applied, Elsewhere};
use crate::engine::Session;
use crate::importance::ImportanceCollector;
use crate::placement::Wanted;
use crate::sampler::{EDIT, Params, SamplerSpec, names_commands};
use crate::tokenizer::Tokenizer;
use crate::weights::WeightLoader;

/// Bytes of a KV cache up to which sliding layers keep all tokens: with it a model of 26 billion parameters stays below
/// 2 GiB beside its file at a context of 4,096 tokens.
const KV_BUDGET: usize = 1 << 30;

/// How to open a model.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Name in the list of backends; `auto` takes the fastest that computes in the asked precision.
    pub backend: String,
    /// Number type.
    pub precision: Precision,
    /// How products with weights are computed; `fast` is defined for [`Precision::F32`] only. None takes `fast` there
    /// where a weight is quantized or of 16 bits, and `exact` elsewhere; [`Model::numerics`] says which it is.
    pub numerics: Option<Numerics>,
    /// Number type of keys and values in the cache; others than f32 are defined for [`Precision::F32`] only. Passes that
    /// use no cache refuse them.
    pub kv_type: KvType,
    /// Bytes of a KV cache up to which sliding layers keep all tokens; beyond, they keep one and a half windows. No
    /// result depends on it.
    pub kv_budget: usize,
    /// Threads; none takes what the machine has.
    pub threads: Option<usize>,
    /// CPU level by name; none takes the best of this machine.
    pub cpu_level: Option<String>,
    /// Device of the backend by its number; none takes the first.
    pub device: Option<String>,
    /// What of the model goes to the device; what is not said is found by what has room there.
    pub placement: Wanted,
    /// Bytes that may be taken of the memory of the device; none takes nine tenths of it.
    pub device_memory: Option<u64>,
    /// Folder in which is kept what devices were found to be; none probes them each time.
    pub cache: Option<PathBuf>,
    /// Map the file instead of reading it into memory.
    pub mmap: bool,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions {
            backend: "auto".into(),
            precision: Precision::F32,
            numerics: None,
            kv_type: KvType::F32,
            kv_budget: KV_BUDGET,
            threads: None,
            cpu_level: None,
            device: None,
            placement: Wanted::default(),
            device_memory: None,
            cache: None,
            mmap: true,
        }
    }
}

/// A loaded model.
pub struct Model {
    gguf: Gguf,
    spec: &'static ArchSpec,
    pub(crate) arch: Box<dyn Arch>,
    pub(crate) weights: Arc<WeightTable>,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) numerics: Numerics,
    /// How other programs round in passes, where that is being told.
    pub(crate) rounding: Elsewhere,
    /// A mistake that is tried out.
    pub(crate) mistake: Option<Arc<Applied>>,
    /// What looks at the products of every pass.
    pub(crate) collector: Option<ImportanceCollector>,
    kv_type: KvType,
    pub(crate) kv_budget: usize,
    tokenizer: Arc<Tokenizer>,
    notes: Vec<String>,
    unused: Vec<String>,
}

impl Model {
    /// Opens a GGUF file.
    ///
    /// # Errors
    /// Whatever is wrong with the file, its hyper-parameters, its tensors or its tokenizer, by name.
    pub fn open(path: &Path, options: &LoadOptions) -> Result<Model, Error> {
        let gguf = Gguf::open(path, &OpenOptions { mmap: options.mmap })?;
        Model::from_gguf(gguf, options)
    }

    /// Takes a parsed file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_gguf(gguf: Gguf, options: &LoadOptions) -> Result<Model, Error> {
        Model::with_weights(gguf, options, &mut |_| Ok(()))
    }

    /// As [`from_gguf`](Self::from_gguf); `more` may add weights before the backend takes them.
    pub(crate) fn with_weights(
        gguf: Gguf,
        options: &LoadOptions,
        more: &mut dyn FnMut(&mut WeightTable) -> Result<(), ComputeError>,
    ) -> Result<Model, Error> {
        if let Some(asked) = options.numerics {
            asked.check(options.precision)?;
        }
        let mut notes = Vec::new();
        let spec = arch_of(gguf.metadata())?;
        let mut loader = WeightLoader::new(&gguf);
        let arch = (spec.load)(&gguf, &mut loader, &mut notes)?;
        options.kv_type.check(options.precision)?;
        let (mut table, unused) = loader.finish()?;
        more(&mut table)?;
        let weights = Arc::new(table);
        let tokenizer = Arc::new(Tokenizer::from_gguf(gguf.metadata())?);
        notes.extend_from_slice(tokenizer.notes());
        let rows = arch.shape().vocab_len;
        if tokenizer.vocab_len() > rows {
            return Err(Error::Hyper {
                key: "tokenizer.ggml.tokens".into(),
                expected: format!("at most {rows} tokens, the rows of token_embd.weight"),
                found: tokenizer.vocab_len().to_string(),
            });
        }
        let fast_differs = weights.iter().any(|w| Numerics::Fast.changes(w.dtype));
        if options.numerics == Some(Numerics::Fast) && !fast_differs {
            let only = "no weight is quantized or of 16 bits: `fast` differs from `exact` in the least probable \
                        tokens of a soft embedding only";
            notes.push(only.into());
        }
        let numerics =
            options.numerics.unwrap_or(match fast_differs && options.precision == Precision::F32 {
                true => Numerics::Fast,
                false => Numerics::Exact,
            });
        let engine = match options.backend.as_str() {
            "auto" => fastest(options.precision)?,
            name => backend(name)?,
        };
        let mut backend_options = BackendOptions {
            precision: options.precision,
            threads: options.threads,
            level: options.cpu_level.clone(),
            device: options.device.clone(),
            ..Default::default()
        };
        if engine.on_device {
            notes.extend(prepare(engine, &mut backend_options, options, numerics, &weights)?);
        }
        let backend = (engine.create)(&backend_options, Arc::clone(&weights))?;
        let LoadOptions { kv_type, kv_budget, .. } = *options;
        Ok(Model {
            gguf,
            spec,
            arch,
            weights,
            backend,
            numerics,
            rounding: Elsewhere::default(),
            mistake: None,
            collector: None,
            kv_type,
            kv_budget,
            tokenizer,
            notes,
            unused,
        })
    }

    /// The file.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// The architecture's entry in the registry.
    pub fn arch(&self) -> &'static ArchSpec {
        self.spec
    }

    /// The sampler where nobody asks for another: the architecture's, or `edit` where the file says which tokens delete and
    /// insert. The latter moves tokens, so that it fills no gaps in a text.
    ///
    /// # Errors
    /// [`Error::Autoregressive`] for a model that has no canvas to denoise.
    pub fn sampler(&self) -> Result<&'static SamplerSpec, Error> {
        let own = self.spec.sampler.ok_or(Error::Autoregressive { arch: self.spec.name })?;
        Ok(if own.masks && names_commands(self.gguf.metadata()) { &EDIT } else { own })
    }

    /// Parameters of a sampler for this model: those of the sampler, of the model's makers where it is theirs, of the file,
    /// and `overrides`, the later ones winning.
    ///
    /// # Errors
    /// Those of [`SamplerSpec::params`]; a command of the sampler that is no token of this model.
    pub fn params(&self, sampler: &SamplerSpec, overrides: &[(String, f64)]) -> Result<Params, Error> {
        let theirs =
            if self.spec.sampler.is_some_and(|s| s.name == sampler.name) { self.spec.defaults } else { &[] };
        let mut all: Vec<(String, f64)> = theirs.iter().map(|(n, x)| (n.to_string(), *x)).collect();
        all.extend_from_slice(overrides);
        let params = sampler.params(self.gguf.metadata(), &all)?;
        crate::engine::commands(&params, self.shape())?;
        Ok(params)
    }

    /// Sizes.
    pub fn shape(&self) -> &Shape {
        self.arch.shape()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// How products with weights are computed.
    pub fn numerics(&self) -> Numerics {
        self.numerics
    }

    /// Number type of keys and values in the cache.
    pub fn kv_type(&self) -> KvType {
        self.kv_type
    }

    /// Changes the number type of keys and values, for sessions to come.
    ///
    /// # Errors
    /// As for [`LoadOptions::kv_type`]: [`Error::Compute`] where the precision has no such type.
    pub fn set_kv_type(&mut self, kv_type: KvType) -> Result<(), Error> {
        kv_type.check(self.backend.capabilities().precision)?;
        self.kv_type = kv_type;
        Ok(())
    }

    /// `general.name`, or the architecture's.
    pub fn name(&self) -> &str {
        self.gguf.metadata().opt_str("general.name").ok().flatten().unwrap_or(self.spec.name)
    }

    /// What was assumed while loading, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Tensors that the architecture does not use.
    pub fn unused_tensors(&self) -> &[String] {
        &self.unused
    }

    /// As [`sha256_header`].
    pub fn sha256_header(&self) -> String {
        sha256_header(&self.gguf)
    }

    /// SHA-256 of the whole file, in hexadecimal; of a split model, of all files, one after another. `progress`
    /// gets bytes done and bytes in all, and stops the reading by returning `false`.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when `progress` says so, [`Error::Gguf`] when a file is cut short meanwhile.
    pub fn sha256_file(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<String, Error> {
        let mut hash = Sha256::new();
        self.read_all(|_| true, &mut |chunk| hash.update(chunk), progress)?;
        Ok(hex(&hash.finalize()))
    }

    /// Bytes of all files of the model.
    pub fn file_bytes(&self) -> u64 {
        self.gguf.files().iter().map(|f| f.bytes.len() as u64).sum()
    }

    /// Bytes of tensor data.
    pub fn weights_bytes(&self) -> u64 {
        self.weights.iter().map(|w| w.bytes.len() as u64).sum()
    }

    /// Reads every page of the mapped files once, so that the first pass does not wait for the disk. `progress`
    /// gets bytes done and bytes in all, and stops the reading by returning `false`.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when `progress` says so, [`Error::Gguf`] when a file is cut short meanwhile.
    pub fn warm_up(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), Error> {
        let touch = |chunk: &[u8]| chunk.iter().step_by(4096).fold(0u8, |a, &b| a ^ b);
        self.read_all(Bytes::is_mapped, &mut |chunk| _ = std::hint::black_box(touch(chunk)), progress)
    }

    /// Shows those files that are `wanted` to `look`, piece by piece.
    fn read_all(
        &self,
        wanted: impl Fn(&Bytes) -> bool,
        look: &mut dyn FnMut(&[u8]),
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(), Error> {
        const CHUNK: usize = 64 << 20;
        let files = || self.gguf.files().iter().map(|f| &f.bytes).filter(|b| wanted(b));
        let total = files().map(|b| b.len() as u64).sum();
        let mut done = 0u64;
        for bytes in files() {
            for chunk in bytes.chunks(CHUNK) {
                look(chunk);
                bytes.check()?;
                done += chunk.len() as u64;
                if !progress(done, total) {
                    return Err(Error::Interrupted);
                }
            }
        }
        Ok(())
    }

    /// Collects importance data from every pass that follows, from nothing.
    pub fn collect_importance(&mut self) {
        self.collector = Some(ImportanceCollector::default());
    }

    /// What collects; none where nothing is to be collected.
    pub fn importance(&mut self) -> Option<&mut ImportanceCollector> {
        self.collector.as_mut()
    }

    /// What was collected so far, and ends it; none where nothing was to be collected.
    pub fn take_importance(&mut self) -> Option<ImportanceCollector> {
        self.collector.take()
    }

    /// A new, empty sequence.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn session(&mut self) -> Result<Session, Error> {
        Ok(Session::new(self.backend.seq_create(&self.arch.shape().kv, self.kv_type)?))
    }

    /// Frees a sequence.
    pub fn close(&mut self, session: Session) {
        self.backend.seq_free(session.seq());
    }
}

/// SHA-256 of everything before the tensor data, in hexadecimal; of a split model, of that part of all files, one
/// after another.
pub fn sha256_header(gguf: &Gguf) -> String {
    let mut sha = Sha256::new();
    for file in gguf.files() {
        let end = usize::try_from(file.data_offset).unwrap_or(usize::MAX).min(file.bytes.len());
        sha.update(&file.bytes[..end]);
    }
    hex(&sha.finalize())
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
