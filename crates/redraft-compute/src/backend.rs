//! What a backend must do, and the list of backends.

use std::sync::Arc;

use crate::program::Observer;
use crate::weight::{Weight, WeightTable};
use crate::{ComputeError, KvType, Program};

/// Handle of a sequence: its KV cache and its kept values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u32);

/// Widths of the KV cache of a sequence: for each layer the number of elements of one key row (and of one
/// value row). Empty for models without a cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KvLayout {
    /// `n_kv_heads * head_dim` for each layer.
    pub widths: Vec<usize>,
}

impl KvLayout {
    /// Bytes of keys and values of `tokens` tokens in all layers.
    ///
    /// ```
    /// use redraft_compute::{KvLayout, KvType};
    ///
    /// let layout = KvLayout { widths: vec![2048, 1024] };
    /// assert_eq!(layout.bytes(KvType::F16, 10), 2 * 2 * 10 * 3072);
    /// ```
    pub fn bytes(&self, kv_type: KvType, tokens: usize) -> usize {
        let row = self.widths.iter().fold(0usize, |sum, &w| sum.saturating_add(kv_type.row_bytes(w)));
        row.saturating_mul(2).saturating_mul(tokens)
    }
}

/// Elements of one program input, row-major.
#[derive(Debug, Clone, Copy)]
pub enum InputData<'a> {
    /// Ids.
    Int(&'a [i32]),
    /// Reals in f32.
    F32(&'a [f32]),
    /// Reals in f64; a backend in f32 rounds each once.
    F64(&'a [f64]),
}

impl InputData<'_> {
    pub(crate) fn describe(&self) -> String {
        match self {
            InputData::Int(x) => format!("{} Int", x.len()),
            InputData::F32(x) => format!("{} Real (f32)", x.len()),
            InputData::F64(x) => format!("{} Real (f64)", x.len()),
        }
    }
}

/// What a backend is and can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Name in [`BACKENDS`].
    pub backend: &'static str,
    /// Number type: `f32`, `f64` or `bf16`.
    pub precision: Precision,
    /// Instruction set or device, for reports.
    pub level: String,
    /// Threads that compute.
    pub threads: usize,
    /// Whether the results are meant to be the canonical bits; whether a device keeps to them its probe says.
    pub bit_exact: bool,
}

/// Number type of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Canonical f32: the contract of `docs/numerics.md`.
    #[default]
    F32,
    /// The truth: every op in f64 on the same weights.
    F64,
    /// f32 arithmetic, rounded to bf16 where PyTorch rounds in bfloat16.
    Bf16,
}

impl Precision {
    /// `f32`, `f64`, `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F64 => "f64",
            Precision::Bf16 => "bf16",
        }
    }
}

/// How to create a backend.
#[derive(Debug, Clone, Default)]
pub struct BackendOptions {
    /// Number type. Only `reference` has more than `f32`.
    pub precision: Precision,
    /// Threads; none takes what the machine has (and its cgroup allows).
    pub threads: Option<usize>,
    /// CPU level by name; none takes the best.
    pub level: Option<String>,
    /// Device by the number that [`BackendSpec::devices`] gives it; none takes the first.
    pub device: Option<String>,
    /// What of a program the processor computes beside a device.
    pub placement: Placement,
    /// Bytes that may be taken of the memory of a device; none takes what there is.
    pub device_memory: Option<u64>,
}

/// What of a program the processor computes beside a device; nothing by default. No bit depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Placement {
    /// The first so many layers, and what comes before them.
    pub host_layers: usize,
    /// The experts of the first so many layers.
    pub host_experts: usize,
}

impl Placement {
    /// Whether the processor computes an op.
    #[cfg(feature = "gpu")]
    pub(crate) fn on_host(self, program: &Program, index: usize) -> bool {
        let layer = match program.layer_of(index) {
            Some(layer) => layer,
            // Before the first layer, or behind the last.
            None if program.ops[..index].iter().any(|op| matches!(op, crate::Op::Attention(_))) => {
                return false;
            }
            None => 0,
        };
        layer < self.host_layers
            || (layer < self.host_experts && matches!(program.ops[index], crate::Op::MoeExperts(_)))
    }

    /// Whether it computes anything.
    pub fn splits(self) -> bool {
        self != Placement::default()
    }
}

/// What kind of thing computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// The processor, by instructions of ours.
    Cpu,
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the memory of the processor.
    Integrated,
    /// A GPU of a virtual machine.
    Virtual,
    /// A driver that computes on the processor.
    Software,
    /// Something else.
    Other,
}

impl DeviceKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Discrete => "discrete GPU",
            DeviceKind::Integrated => "integrated GPU",
            DeviceKind::Virtual => "virtual GPU",
            DeviceKind::Software => "software",
            DeviceKind::Other => "other",
        }
    }
}

/// A device that a backend can compute on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What [`BackendOptions::device`] takes.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Interface, driver and version.
    pub driver: String,
    /// Bytes of its own memory, where the driver says.
    pub memory: Option<u64>,
    /// Limits that matter, by name.
    pub limits: Vec<(&'static str, u64)>,
    /// A number for the kernels that would run on it: another build may have others.
    pub kernels: u64,
}

/// One operation of a device against the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was asked.
    pub name: &'static str,
    /// Whether the bits are those of the contract.
    pub passed: bool,
    /// What was found, where they are not.
    pub said: String,
}

/// Runs programs over the weights it was created with.
pub trait Backend: Send {
    /// What it is.
    fn capabilities(&self) -> Capabilities;

    /// A new, empty sequence, whose keys and values are of a type.
    fn seq_create(&mut self, layout: &KvLayout, kv_type: KvType) -> Result<SeqId, ComputeError>;

    /// Tokens in the KV cache of a sequence.
    fn seq_len(&self, seq: SeqId) -> Result<usize, ComputeError>;

    /// Forgets all cached tokens from position `len` on, and all kept values.
    fn seq_truncate(&mut self, seq: SeqId, len: usize) -> Result<(), ComputeError>;

    /// Allows the backend to free the cached keys and values of a layer before token `before`. A pass that would see
    /// them is an error then.
    fn seq_forget(&mut self, seq: SeqId, layer: usize, before: usize) -> Result<(), ComputeError>;

    /// Frees a sequence.
    fn seq_free(&mut self, seq: SeqId);

    /// Bytes of KV cache that a sequence holds.
    fn seq_bytes(&self, seq: SeqId) -> Result<usize, ComputeError>;

    /// Runs a program over as many sequences as it has, which are different ones where it extends caches or keeps values:
    /// host inputs in the order of declaration, taps and
    /// outputs through the observer. After a failure the sequences hold what they held before.
    fn run(
        &mut self,
        program: &Program,
        seqs: &[SeqId],
        inputs: &[InputData<'_>],
        observer: &mut dyn Observer,
    ) -> Result<(), ComputeError>;
}

/// Creates a backend over a model's weights.
pub type CreateBackend = fn(&BackendOptions, Arc<WeightTable>) -> Result<Box<dyn Backend>, ComputeError>;

/// One entry of [`BACKENDS`].
pub struct BackendSpec {
    /// Name on the command line and in reports.
    pub name: &'static str,
    /// One line for listings.
    pub about: &'static str,
    /// Number types that it computes in.
    pub precisions: &'static [Precision],
    /// Whether it computes elsewhere than on the processor.
    pub on_device: bool,
    /// The devices that are there.
    pub devices: fn() -> Vec<DeviceInfo>,
    /// Bytes that a weight takes on a device.
    pub weight_bytes: fn(&Weight) -> u64,
    /// Compares the operations of a device with those of the host. Nothing where ours are the host's.
    pub probe: fn(&BackendOptions) -> Result<Vec<Check>, ComputeError>,
    /// Creates the backend over a model's weights.
    pub create: CreateBackend,
}

/// Checks that options ask for f32, the one number type of fast backends.
pub(crate) fn only_f32(options: &BackendOptions) -> Result<(), ComputeError> {
    if options.precision == Precision::F32 {
        return Ok(());
    }
    Err(ComputeError::Unavailable {
        what: "precision",
        name: options.precision.name().into(),
        available: Precision::F32.name().into(),
    })
}

/// The processor, as a device.
pub(crate) fn this_processor(level: String) -> Vec<DeviceInfo> {
    vec![DeviceInfo {
        id: "0".into(),
        name: "this processor".into(),
        kind: DeviceKind::Cpu,
        driver: level,
        memory: None,
        limits: Vec::new(),
        kernels: 0,
    }]
}

/// All backends that this build has, from the plainest on.
pub static BACKENDS: &[BackendSpec] = &[
    crate::reference::SPEC,
    crate::cpu::SPEC,
    #[cfg(feature = "hip")]
    crate::hip::SPEC,
    #[cfg(feature = "wgpu")]
    crate::wgpu::SPEC,
    #[cfg(feature = "cuda")]
    crate::cuda::SPEC,
];

/// The backend of that name.
///
/// # Errors
/// [`ComputeError::Unavailable`] with the names that exist.
pub fn backend(name: &str) -> Result<&'static BackendSpec, ComputeError> {
    BACKENDS.iter().find(|b| b.name == name).ok_or_else(|| ComputeError::Unavailable {
        what: "backend",
        name: name.into(),
        available: BACKENDS.iter().map(|b| b.name).collect::<Vec<_>>().join(", "),
    })
}

/// The fastest backend on the processor that computes in a number type. GPUs are taken where somebody names them.
///
/// # Errors
/// [`ComputeError::Unavailable`] when none does.
pub fn fastest(precision: Precision) -> Result<&'static BackendSpec, ComputeError> {
    let host = |b: &&BackendSpec| b.precisions.contains(&precision) && !b.on_device;
    BACKENDS.iter().rfind(host).ok_or_else(|| ComputeError::Unavailable {
        what: "precision",
        name: precision.name().into(),
        available: Precision::default().name().into(),
    })
}
