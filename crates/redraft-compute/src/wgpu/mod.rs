//! Vulkan, Metal and DX12 through `wgpu`.

mod device;

use std::sync::Arc;

use crate::ComputeError;
use crate::backend::{Backend, BackendOptions, BackendSpec, Capabilities, Precision};
use crate::gpu::GpuBackend;
use crate::weight::WeightTable;

/// Entry in [`BACKENDS`](crate::BACKENDS).
pub(crate) const SPEC: BackendSpec = BackendSpec {
    name: "wgpu",
    about: "GPUs by Vulkan, Metal or DX12; the canonical f32 bits where the driver keeps to them",
    precisions: &[Precision::F32],
    on_device: true,
    devices: device::list,
    weight_bytes: crate::gpu::stored_bytes,
    probe: |options| crate::gpu::probe::probe(&mut device::WgpuDevice::open(options.device.as_deref())?),
    create,
};

fn create(options: &BackendOptions, weights: Arc<WeightTable>) -> Result<Box<dyn Backend>, ComputeError> {
    if options.precision != Precision::F32 {
        return Err(ComputeError::Unavailable {
            what: "precision",
            name: options.precision.name().into(),
            available: Precision::F32.name().into(),
        });
    }
    let device = device::WgpuDevice::open(options.device.as_deref())?;
    let capabilities = Capabilities {
        backend: SPEC.name,
        precision: Precision::F32,
        level: device.name(),
        threads: 1,
        bit_exact: true,
    };
    Ok(Box::new(GpuBackend::new(device, capabilities, options, weights)?))
}
