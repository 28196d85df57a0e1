//! AMD's GPUs through the HIP runtime, which is looked for when a device is asked for. Nobody of us has run it on hardware.

mod api;
mod driver;
mod modules;

use self::driver::Hip;
use crate::backend::{BackendSpec, Precision};
use crate::gpu::driver::{self as shared, Opened};

/// Devices that were opened.
static OPENED: Opened<Hip> = Opened::new(std::collections::BTreeMap::new());

/// Entry in [`BACKENDS`](crate::BACKENDS).
pub(crate) const SPEC: BackendSpec = BackendSpec {
    name: "hip",
    about: "AMD GPUs gfx90a, gfx942 and gfx1100 through HIP; experimental, not run on hardware by us",
    precisions: &[Precision::F32],
    on_device: true,
    devices: driver::list,
    weight_bytes: crate::gpu::stored_bytes,
    probe: |options| shared::probe(&OPENED, options),
    create: |options, weights| shared::create(&OPENED, options, weights),
};
