//! The functions of the HIP runtime that we need, found in its library.

#![allow(unsafe_code, reason = "functions of a library in C")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// What a function says: 0 is success.
pub(super) type Status = c_int;

/// `hipErrorOutOfMemory`.
pub(super) const OUT_OF_MEMORY: Status = 2;
/// `hipErrorNoDevice`.
pub(super) const NO_DEVICE: Status = 100;

macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// The table of functions, by their names in the library.
        #[allow(non_snake_case, reason = "names of the library")]
        pub(super) struct Api {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Api {
            /// Finds all of them, or says which is missing.
            ///
            /// # Safety
            /// The library is the HIP runtime.
            unsafe fn find(library: &'static Library) -> Result<Api, String> {
                Ok(Api {
                    $($name: {
                        // SAFETY: the type is the one that the runtime's header has under this name.
                        let function = unsafe { library.get(concat!(stringify!($name), "\0")) };
                        *function.map_err(|_| format!("none: the HIP runtime has no {}", stringify!($name)))?
                    },)*
                })
            }
        }
    };
}

functions! {
    hipInit(c_uint) -> Status;
    hipRuntimeGetVersion(*mut c_int) -> Status;
    hipGetDeviceCount(*mut c_int) -> Status;
    hipDeviceGetName(*mut c_char, c_int, c_int) -> Status;
    hipDeviceTotalMem(*mut usize, c_int) -> Status;
    hipSetDevice(c_int) -> Status;
    hipDeviceSynchronize() -> Status;
    hipMalloc(*mut *mut c_void, usize) -> Status;
    hipFree(*mut c_void) -> Status;
    hipMemset(*mut c_void, c_int, usize) -> Status;
    hipMemcpyHtoD(*mut c_void, *mut c_void, usize) -> Status;
    hipMemcpyDtoH(*mut c_void, *mut c_void, usize) -> Status;
    hipMemcpyDtoD(*mut c_void, *mut c_void, usize) -> Status;
    hipModuleLoadData(*mut *mut c_void, *const c_void) -> Status;
    hipModuleGetFunction(*mut *mut c_void, *mut c_void, *const c_char) -> Status;
    hipModuleLaunchKernel(
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void,
        *mut *mut c_void, *mut *mut c_void
    ) -> Status;
    hipGetErrorString(Status) -> *const c_char;
}

/// Names of the library: without a version where tools for developers are, with one where only the runtime is.
const NAMES: &[&str] = if cfg!(windows) {
    &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
} else {
    &["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"]
};

impl Api {
    /// The runtime, or why there is none. It stays loaded.
    pub(super) fn get() -> Result<&'static Api, String> {
        static API: OnceLock<Result<Api, String>> = OnceLock::new();
        let api = API.get_or_init(|| {
            // SAFETY: the library is AMD's, whose loading does nothing that we could be in the way of.
            let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
            let library = library.ok_or("none: no HIP runtime (libamdhip64) was found")?;
            // SAFETY: a library of that name is the HIP runtime.
            let api = unsafe { Api::find(Box::leak(Box::new(library))) }?;
            // SAFETY: takes no memory of ours.
            let status = unsafe { (api.hipInit)(0) };
            if status == 0 { Ok(api) } else { Err(format!("none: {}", api.said(status))) }
        });
        api.as_ref().map_err(Clone::clone)
    }

    /// A status in words.
    pub(super) fn said(&self, status: Status) -> String {
        // SAFETY: the runtime gives a text that stays, for any number.
        let text = unsafe { (self.hipGetErrorString)(status) };
        if text.is_null() {
            return format!("error {status} of HIP");
        }
        // SAFETY: not null, as was seen, and it ends with a zero.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} (error {status} of HIP)", text.to_string_lossy())
    }
}
