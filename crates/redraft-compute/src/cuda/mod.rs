//! NVIDIA's GPUs through the driver's own interface, which is looked for when a device is asked for.

mod driver;
mod modules;

use self::driver::Cuda;
use crate::backend::{BackendSpec, Precision};
use crate::gpu::driver::{self as shared, Opened};

/// Devices that were opened.
static OPENED: Opened<Cuda> = Opened::new(std::collections::BTreeMap::new());

/// Entry in [`BACKENDS`](crate::BACKENDS).
pub(crate) const SPEC: BackendSpec = BackendSpec {
    name: "cuda",
    about: "NVIDIA GPUs from compute capability 7.5 on, through their driver",
    precisions: &[Precision::F32],
    on_device: true,
    devices: driver::list,
    weight_bytes: crate::gpu::stored_bytes,
    probe: |options| shared::probe(&OPENED, options),
    create: |options, weights| shared::create(&OPENED, options, weights),
};
