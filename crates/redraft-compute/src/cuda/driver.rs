//! What is asked of the driver.

#![allow(unsafe_code, reason = "functions of a driver in C")]

use std::ffi::{CString, c_int, c_void};
use std::ptr;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::modules::MODULES;
use crate::backend::{DeviceInfo, DeviceKind};
use crate::gpu::driver::{Driver, Failure};
use crate::gpu::kernels::KERNELS;
use crate::gpu::module::{self, Module};

const _: () = assert!(
    module::complete(MODULES, KERNELS),
    "modules are of other kernels; `cargo xtask cuda` makes them again"
);

/// Least compute capability, ten times.
const BASE: u32 = 75;

/// A device.
pub(super) struct Cuda {
    name: String,
    /// Compute capability, ten times.
    capability: u32,
    /// The primary context, which lives as long as the process.
    context: usize,
}

/// A device that the driver shows.
struct Shown {
    handle: sys::CUdevice,
    name: String,
    capability: u32,
    memory: u64,
    integrated: bool,
}

fn said(e: DriverError) -> String {
    let text = |t: Result<&std::ffi::CStr, DriverError>| t.map(|t| t.to_string_lossy().into_owned());
    match (text(e.error_name()), text(e.error_string())) {
        (Ok(name), Ok(why)) => format!("{name}: {why}"),
        _ => format!("error {} of CUDA", e.0 as u32),
    }
}

fn failure(e: DriverError) -> Failure {
    match e.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Failure::Full,
        _ => Failure::Other(said(e)),
    }
}

/// All devices and the version of the driver, or why there are none.
fn shown() -> Result<(Vec<Shown>, String), String> {
    // SAFETY: the library is NVIDIA's, whose loading does nothing that we could be in the way of.
    if !unsafe { sys::is_culib_present() } {
        return Err("none: no driver of NVIDIA's GPUs (libcuda) was found".into());
    }
    let failed = |e| format!("none: {}", said(e));
    result::init().map_err(failed)?;
    let mut version: c_int = 0;
    // SAFETY: the driver writes one number.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().map_err(failed)?;
    let mut list = Vec::new();
    for i in 0..result::device::get_count().map_err(failed)? {
        let handle = result::device::get(i).map_err(failed)?;
        let attribute = |a| {
            // SAFETY: the handle is one of the driver's.
            unsafe { result::device::get_attribute(handle, a) }.map_err(failed)
        };
        let major = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        // SAFETY: as above.
        let memory = unsafe { result::device::total_mem(handle) }.map_err(failed)?;
        list.push(Shown {
            handle,
            name: result::device::get_name(handle).map_err(failed)?,
            capability: (10 * major + minor) as u32,
            memory: memory as u64,
            integrated: attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
        });
    }
    Ok((list, format!("CUDA {}.{}", version / 1000, version % 1000 / 10)))
}

/// The devices that are there.
pub(super) fn list() -> Vec<DeviceInfo> {
    let Ok((devices, version)) = shown() else { return Vec::new() };
    let info = |(i, d): (usize, Shown)| DeviceInfo {
        id: i.to_string(),
        name: d.name,
        kind: if d.integrated { DeviceKind::Integrated } else { DeviceKind::Discrete },
        driver: format!("{version}, sm_{}", d.capability),
        memory: Some(d.memory),
        limits: Vec::new(),
        kernels: module::digest(MODULES),
    };
    devices.into_iter().enumerate().map(info).collect()
}

impl Driver for Cuda {
    const BACKEND: &'static str = "cuda";
    const MODULES: &'static [Module] = MODULES;

    fn open(number: usize) -> Result<Cuda, String> {
        let (devices, version) = shown()?;
        let Some(device) = devices.get(number) else {
            let names = devices.iter().enumerate().map(|(i, d)| format!("{i}: {}", d.name));
            return Err(names.collect::<Vec<_>>().join(", "));
        };
        if device.capability < BASE {
            return Err(format!("devices from sm_{BASE} on, {} is of sm_{}", device.name, device.capability));
        }
        // SAFETY: the handle is one of the driver's.
        let context = unsafe { result::primary_ctx::retain(device.handle) }
            .map_err(|e| format!("not {}: {}", device.name, said(e)))?;
        Ok(Cuda {
            name: format!("{} ({version}, sm_{})", device.name, device.capability),
            capability: device.capability,
            context: context as usize,
        })
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn enter(&self) -> Result<(), Failure> {
        // SAFETY: the context was retained and is never released.
        unsafe { result::ctx::set_current(self.context as sys::CUcontext) }.map_err(failure)
    }

    fn wait(&self) -> Result<(), Failure> {
        result::ctx::synchronize().map_err(failure)
    }

    fn alloc(&self, bytes: usize) -> Result<u64, Failure> {
        // SAFETY: the context is that of this thread.
        unsafe { result::malloc_sync(bytes) }.map_err(failure)
    }

    fn load(&self, module: &'static Module, function: &CString) -> Result<usize, Failure> {
        let fits = |device: &str| device.parse().is_ok_and(|least: u32| least <= self.capability);
        let form = module.forms.iter().rfind(|f| fits(f.device));
        let mut ptx =
            form.ok_or_else(|| Failure::Other(format!("no form for sm_{}", self.capability)))?.unpack();
        ptx.push(0);
        // SAFETY: a text that ends with a zero. The module stays loaded, so that its functions stay valid.
        unsafe {
            let module = result::module::load_data(ptx.as_ptr().cast()).map_err(failure)?;
            let function = result::module::get_function(module, function.clone()).map_err(failure)?;
            Ok(function as usize)
        }
    }

    unsafe fn free(&self, at: u64) -> Result<(), Failure> {
        // SAFETY: as the caller has it.
        unsafe { result::free_sync(at) }.map_err(failure)
    }

    unsafe fn zero(&self, at: u64, bytes: usize) -> Result<(), Failure> {
        // SAFETY: as the caller has it.
        unsafe { result::memset_d8_sync(at, 0, bytes) }.map_err(failure)
    }

    unsafe fn upload(&self, to: u64, bytes: &[u8]) -> Result<(), Failure> {
        // SAFETY: as the caller has it. The stream of this copy is that of the kernels.
        unsafe { result::memcpy_htod_sync(to, bytes) }.map_err(failure)
    }

    unsafe fn download(&self, from: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        // SAFETY: as the caller has it.
        unsafe { result::memcpy_dtoh_sync(bytes, from) }.map_err(failure)
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), Failure> {
        // SAFETY: as the caller has it.
        unsafe { result::memcpy_dtod_sync(to, from, bytes) }.map_err(failure)
    }

    unsafe fn launch(
        &self,
        function: usize,
        [x, y, z]: [u32; 3],
        [wx, wy, wz]: [u32; 3],
        arguments: &mut [*mut c_void],
    ) -> Result<(), Failure> {
        // SAFETY: as the caller has it. No stream is the one that everything of a context goes to.
        unsafe {
            let function = function as sys::CUfunction;
            result::launch_kernel(function, (x, y, z), (wx, wy, wz), 0, ptr::null_mut(), arguments)
        }
        .map_err(failure)
    }
}
