//! Vulkan, Metal and DX12 through `wgpu`.

mod device;

use std::sync::Arc;

use crate::ComputeError;
use crate::backend::{Backend, BackendOptions, BackendSpec, Precision};
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
    crate::gpu::create(SPEC.name, options, weights, || {
        let device = device::WgpuDevice::open(options.device.as_deref())?;
        let name = device.name();
        Ok((device, name))
    })
}
