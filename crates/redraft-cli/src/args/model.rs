//! Which model, and how it is run.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use redraft::LoadOptions;
use redraft::compute::cpu::MAX_THREADS;
use redraft::compute::{BACKENDS, KvType, Numerics, Precision};
use redraft::placement::Wanted;

use super::{Given, left_out};

/// Options of commands that compute with a model.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    // First, since the others take what they read.
    #[command(flatten)]
    pub(crate) given: Given,

    /// Model file (GGUF); without it the demo model inside this program.
    #[arg(short, long, value_name = "FILE", env = "REDRAFT_MODEL")]
    pub(crate) model: Option<PathBuf>,

    /// What computes; auto takes the fastest way of this processor.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = backends(), env = "REDRAFT_BACKEND")]
    pub(crate) backend: String,

    /// Device of the backend, by the number that `redraft devices` gives it [default: the first].
    #[arg(long, value_name = "N", env = "REDRAFT_DEVICE")]
    pub(crate) device: Option<String>,

    /// The last so many layers are computed on the device, the others by the processor; -ngl is the same [default: what has
    /// room].
    #[arg(long, value_name = "N", env = "REDRAFT_GPU_LAYERS")]
    pub(crate) gpu_layers: Option<usize>,

    /// The experts of the first so many layers are computed by the processor [default: as many as have no room on the
    /// device].
    #[arg(long, value_name = "N", env = "REDRAFT_N_CPU_MOE")]
    pub(crate) n_cpu_moe: Option<usize>,

    /// Memory of the device that may be taken, in MiB [default: nine tenths of it].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..1 << 40), env = "REDRAFT_GPU_MEMORY")]
    pub(crate) gpu_memory: Option<u64>,

    /// Threads; without it as many as the machine has. Results do not depend on it.
    #[arg(short, long, value_name = "N", value_parser = threads, allow_negative_numbers = true, env = "REDRAFT_THREADS")]
    pub(crate) threads: Option<usize>,

    /// How products with weights are computed, exact or fast; each mode gives the same bits on every machine. exact:
    /// with activations in f32. fast: with activations in the precision of the weights. The default is fast for
    /// quantized and 16-bit models; exact for F32 models, of which fast changes the least
    /// probable tokens of a soft embedding only.
    #[arg(long, value_name = "MODE", value_parser = numerics, env = "REDRAFT_NUMERICS")]
    pub(crate) numerics: Option<Numerics>,

    /// Number type of keys and values in the cache: f32, f16 (half the memory) or i8 (somewhat more than a quarter);
    /// each gives the same bits on every machine [default: f32].
    #[arg(long, value_name = "TYPE", value_parser = kv_type, env = "REDRAFT_KV_TYPE")]
    pub(crate) kv_type: Option<KvType>,

    /// Read the whole file into memory instead of mapping it.
    #[arg(long, env = "REDRAFT_NO_MMAP", value_parser = clap::builder::FalseyValueParser::new())]
    pub(crate) no_mmap: bool,
}

impl ModelArgs {
    /// For the library, but for the type of the KV cache, which depends on the model. The second value are notes on what
    /// of the environment does not apply.
    pub(crate) fn load_options(&self, precision: Precision) -> (LoadOptions, Vec<String>) {
        let mut options = LoadOptions {
            backend: self.backend.clone(),
            precision,
            numerics: self.numerics,
            threads: self.threads,
            device: self.device.clone(),
            placement: Wanted { device_layers: self.gpu_layers, host_experts: self.n_cpu_moe },
            device_memory: self.gpu_memory.map(|m| m << 20),
            cache: cache_folder(),
            mmap: !self.no_mmap,
            ..LoadOptions::default()
        };
        let mut notes = Vec::new();
        let listed = BACKENDS.iter().find(|b| b.name == self.backend);
        if listed.is_some_and(|b| !b.precisions.contains(&precision)) && self.given.by_environment("backend")
        {
            let because = format!("it does not compute in {}", precision.name());
            notes.push(left_out("backend", &self.backend, because));
            options.backend = "auto".into();
        }
        if let Some(n) = self.numerics
            && let Err(e) = n.check(precision)
            && self.given.by_environment("numerics")
        {
            notes.push(left_out("numerics", n.name(), e));
            options.numerics = None;
        }
        (options, notes)
    }

    /// The same with what a recording says.
    pub(crate) fn as_recorded(&self, numerics: Numerics, kv_type: KvType) -> ModelArgs {
        let mut how = ModelArgs { numerics: Some(numerics), kv_type: Some(kv_type), ..self.clone() };
        how.given.forget("numerics");
        how.given.forget("kv_type");
        how
    }
}

/// Where the program keeps what it can find out again.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let of = |variable: &str| std::env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
    let home =
        || of("HOME").map(|h| h.join(if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" }));
    of("REDRAFT_CACHE").or_else(|| {
        of("XDG_CACHE_HOME").or_else(|| of("LOCALAPPDATA")).or_else(home).map(|c| c.join("redraft"))
    })
}

pub(crate) fn backends() -> PossibleValuesParser {
    let auto = PossibleValue::new("auto").help("the fastest");
    let listed = BACKENDS.iter().map(|b| PossibleValue::new(b.name).help(b.about));
    PossibleValuesParser::new(std::iter::once(auto).chain(listed))
}

pub(crate) fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=MAX_THREADS) => Ok(n),
        _ => Err(format!("expected a whole number in 1..={MAX_THREADS}")),
    }
}

/// A whole number that is not zero.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number of at least 1".into()),
        Ok(n) => Ok(n),
    }
}

fn numerics(text: &str) -> Result<Numerics, String> {
    Numerics::from_name(text).ok_or_else(|| expected(Numerics::ALL.iter().map(|n| n.name())))
}

fn kv_type(text: &str) -> Result<KvType, String> {
    KvType::from_name(text).ok_or_else(|| expected(KvType::ALL.iter().map(|t| t.name())))
}

fn expected<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|n| format!("`{n}`")).collect();
    format!("expected {}", names.join(" or "))
}
