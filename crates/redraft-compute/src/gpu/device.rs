//! What a GPU must do. Everything else (which kernels an op takes, where weights and caches are) is written once.

use super::kernels::Kernel;
use crate::ComputeError;

/// One kernel in the forms that drivers take.
#[cfg_attr(not(feature = "wgpu"), expect(dead_code, reason = "forms that only `wgpu` takes"))]
pub(crate) struct KernelSpec {
    /// For messages.
    pub(crate) name: &'static str,
    /// What each binding is: `u`niform (the first, parameters), `r`ead, `w`ritten.
    pub(crate) access: &'static str,
    /// Invocations of a workgroup.
    pub(crate) workgroup: [u32; 3],
    pub(crate) spirv: &'static [u8],
    /// With products of bytes by an instruction, where it has any.
    pub(crate) spirv_dot: Option<&'static [u8]>,
    pub(crate) msl: &'static str,
    /// For drivers that take neither.
    pub(crate) wgsl: &'static [&'static str],
}

/// A number for the texts of kernels.
#[cfg(feature = "wgpu")]
pub(crate) fn digest(kernels: &[KernelSpec]) -> u64 {
    fnv(kernels.iter().flat_map(|k| k.wgsl).flat_map(|text| text.bytes()))
}

/// FNV-1a, 64 bits.
pub(crate) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3))
}

/// A device that cannot be had.
pub(crate) fn no_device(name: &str, available: String) -> ComputeError {
    ComputeError::Unavailable { what: "device", name: name.into(), available }
}

/// The number of a device that options name; none is the first.
pub(crate) fn device_number(name: Option<&str>) -> Result<usize, ComputeError> {
    let wrong = |n: &str| no_device(n, "a number, as `redraft devices` lists them".into());
    name.map_or(Ok(0), |n| n.parse().map_err(|_| wrong(n)))
}

/// What a device can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes that a kernel sees of a buffer, a multiple of `align`.
    pub(crate) binding: u64,
    /// Where a kernel's view of a buffer may begin.
    pub(crate) align: u64,
    /// Workgroups in one dimension.
    pub(crate) groups: u32,
}

/// Part of a buffer that a kernel sees.
pub(crate) struct View<'a, B> {
    pub(crate) buffer: &'a B,
    /// A multiple of [`Limits::align`].
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

impl<B> Clone for View<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for View<'_, B> {}

/// Words of parameters at most.
pub(crate) const PARAMETERS: usize = 32;

/// Work for a kernel.
#[cfg_attr(not(feature = "wgpu"), expect(dead_code, reason = "other drivers do not end what takes long"))]
pub(crate) struct Dispatch<'a, B> {
    pub(crate) kernel: Kernel,
    /// As [`KernelSpec::access`] has them, without parameters and status.
    pub(crate) views: &'a [View<'a, B>],
    /// At most [`PARAMETERS`].
    pub(crate) parameters: &'a [u32],
    pub(crate) groups: [u32; 3],
    /// About how many operations it takes. Devices are given no more than some at once, since drivers end what takes seconds.
    pub(crate) cost: u64,
}

/// A GPU. What is asked of it happens in order.
pub(crate) trait Device: Send {
    /// A handle of memory, which is freed with the last one.
    type Buffer: Clone + Send + Sync;

    fn limits(&self) -> Limits;

    /// Memory of zeros.
    fn alloc(&mut self, what: &str, bytes: u64) -> Result<Self::Buffer, ComputeError>;

    /// Writes to a buffer, after all that was asked for before.
    fn write(&mut self, to: &Self::Buffer, at: u64, bytes: &[u8]) -> Result<(), ComputeError>;

    /// Copies between buffers.
    fn copy(
        &mut self,
        from: (&Self::Buffer, u64),
        to: (&Self::Buffer, u64),
        bytes: u64,
    ) -> Result<(), ComputeError>;

    /// Runs a kernel. `status` is its second binding.
    fn dispatch(
        &mut self,
        status: &Self::Buffer,
        work: &Dispatch<'_, Self::Buffer>,
    ) -> Result<(), ComputeError>;

    /// Waits for everything and returns these bytes, one part after the other.
    fn read(&mut self, parts: &[View<'_, Self::Buffer>]) -> Result<Vec<u8>, ComputeError>;
}
