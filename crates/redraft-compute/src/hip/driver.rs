//! What is asked of the HIP runtime.

#![allow(unsafe_code, reason = "functions of a library in C")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;

use super::api::{Api, NO_DEVICE, OUT_OF_MEMORY, Status};
use super::modules::MODULES;
use crate::backend::{DeviceInfo, DeviceKind};
use crate::gpu::driver::{Driver, Failure};
use crate::gpu::kernels::KERNELS;
use crate::gpu::module::{self, Module};

const _: () = assert!(
    module::complete(MODULES, KERNELS),
    "modules are of other kernels; `cargo xtask hip` makes them again"
);

/// A device.
pub(super) struct Hip {
    api: &'static Api,
    number: c_int,
    name: String,
}

/// A device that the runtime shows.
struct Shown {
    name: String,
    memory: u64,
}

/// The runtime, its devices and its version, or why there are none.
fn shown() -> Result<(&'static Api, Vec<Shown>, String), String> {
    let api = Api::get()?;
    let check = |status: Status| match status {
        0 => Ok(()),
        NO_DEVICE => Err("none: the HIP runtime finds no device".to_owned()),
        other => Err(format!("none: {}", api.said(other))),
    };
    let (mut version, mut count): (c_int, c_int) = (0, 0);
    // SAFETY: each writes one number.
    unsafe {
        check((api.hipRuntimeGetVersion)(&raw mut version))?;
        check((api.hipGetDeviceCount)(&raw mut count))?;
    }
    let mut list = Vec::new();
    for i in 0..count {
        let (mut name, mut memory) = ([0u8; 256], 0usize);
        // SAFETY: the length of the name is said, one byte less, so that a zero stays at its end.
        unsafe {
            check((api.hipDeviceGetName)(name.as_mut_ptr().cast(), name.len() as c_int - 1, i))?;
            check((api.hipDeviceTotalMem)(&raw mut memory, i))?;
        }
        let name = CStr::from_bytes_until_nul(&name).map(|n| n.to_string_lossy().into_owned());
        list.push(Shown { name: name.unwrap_or_default(), memory: memory as u64 });
    }
    Ok((api, list, format!("HIP {}.{}", version / 10_000_000, version / 100_000 % 100)))
}

/// The devices that are there.
pub(super) fn list() -> Vec<DeviceInfo> {
    let Ok((_, devices, version)) = shown() else { return Vec::new() };
    let info = |(i, d): (usize, Shown)| DeviceInfo {
        id: i.to_string(),
        name: d.name,
        kind: DeviceKind::Discrete,
        driver: format!("{version}; not run on hardware by us"),
        memory: Some(d.memory),
        limits: Vec::new(),
        kernels: module::digest(MODULES),
    };
    devices.into_iter().enumerate().map(info).collect()
}

/// An address as the runtime has it.
fn pointer(at: u64) -> *mut c_void {
    at as usize as *mut c_void
}

impl Hip {
    fn check(&self, status: Status) -> Result<(), Failure> {
        match status {
            0 => Ok(()),
            OUT_OF_MEMORY => Err(Failure::Full),
            other => Err(Failure::Other(self.api.said(other))),
        }
    }
}

impl Driver for Hip {
    const BACKEND: &'static str = "hip";
    const MODULES: &'static [Module] = MODULES;

    fn open(number: usize) -> Result<Hip, String> {
        let (api, devices, version) = shown()?;
        match devices.get(number) {
            Some(d) => Ok(Hip { api, number: number as c_int, name: format!("{} ({version})", d.name) }),
            None => {
                let names = devices.iter().enumerate().map(|(i, d)| format!("{i}: {}", d.name));
                Err(names.collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn enter(&self) -> Result<(), Failure> {
        // SAFETY: the number is one of the runtime's.
        self.check(unsafe { (self.api.hipSetDevice)(self.number) })
    }

    fn wait(&self) -> Result<(), Failure> {
        // SAFETY: takes nothing.
        self.check(unsafe { (self.api.hipDeviceSynchronize)() })
    }

    fn alloc(&self, bytes: usize) -> Result<u64, Failure> {
        let mut at = ptr::null_mut();
        // SAFETY: writes one address.
        self.check(unsafe { (self.api.hipMalloc)(&raw mut at, bytes) })?;
        Ok(at as u64)
    }

    /// The form that the runtime takes is that of the device: it refuses those of others.
    fn load(&self, module: &'static Module, function: &CString) -> Result<usize, Failure> {
        let mut refused = Vec::new();
        for form in module.forms {
            let image = form.unpack();
            let (mut loaded, mut found) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: an image as the runtime's own compiler makes them; it is copied.
            match self.check(unsafe { (self.api.hipModuleLoadData)(&raw mut loaded, image.as_ptr().cast()) })
            {
                Ok(()) => {
                    let (get, name) = (self.api.hipModuleGetFunction, function.as_ptr());
                    // SAFETY: the module was just loaded and stays so; the name ends with a zero.
                    let status = unsafe { get(&raw mut found, loaded, name) };
                    return self.check(status).map(|()| found as usize);
                }
                Err(Failure::Full) => return Err(Failure::Full),
                Err(Failure::Other(why)) => refused.push(format!("{}: {why}", form.device)),
            }
        }
        Err(Failure::Other(format!(
            "the device takes none of the forms that there are: {}",
            refused.join("; ")
        )))
    }

    unsafe fn free(&self, at: u64) -> Result<(), Failure> {
        // SAFETY: as the caller has it.
        self.check(unsafe { (self.api.hipFree)(pointer(at)) })
    }

    unsafe fn zero(&self, at: u64, bytes: usize) -> Result<(), Failure> {
        // SAFETY: as the caller has it.
        self.check(unsafe { (self.api.hipMemset)(pointer(at), 0, bytes) })
    }

    unsafe fn upload(&self, to: u64, bytes: &[u8]) -> Result<(), Failure> {
        let from = bytes.as_ptr().cast_mut().cast();
        // SAFETY: as the caller has it; the runtime only reads the bytes.
        self.check(unsafe { (self.api.hipMemcpyHtoD)(pointer(to), from, bytes.len()) })
    }

    unsafe fn download(&self, from: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: as the caller has it.
        self.check(unsafe { (self.api.hipMemcpyDtoH)(to, pointer(from), bytes.len()) })
    }

    unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), Failure> {
        // SAFETY: as the caller has it.
        self.check(unsafe { (self.api.hipMemcpyDtoD)(pointer(to), pointer(from), bytes) })
    }

    unsafe fn launch(
        &self,
        function: usize,
        [x, y, z]: [u32; 3],
        [wx, wy, wz]: [u32; 3],
        arguments: &mut [*mut c_void],
    ) -> Result<(), Failure> {
        let function = function as *mut c_void;
        let arguments = arguments.as_mut_ptr();
        // SAFETY: as the caller has it. No stream is the one that everything of a device goes to.
        let status = unsafe {
            (self.api.hipModuleLaunchKernel)(
                function,
                x,
                y,
                z,
                wx,
                wy,
                wz,
                0,
                ptr::null_mut(),
                arguments,
                ptr::null_mut(),
            )
        };
        self.check(status)
    }
}
