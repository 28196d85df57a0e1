//! Drivers that take modules, addresses and arguments: what CUDA and HIP share.
//!
//! All that is asked of a device goes to one stream, in order, so that nothing here waits but for results.

#![allow(unsafe_code, reason = "addresses on a device mean nothing to the compiler")]

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use super::device::{Device, Dispatch, Limits, PARAMETERS, View, device_number, no_device};
use super::kernels::{KERNELS, Kernel};
use super::module::Module;
use crate::ComputeError;
use crate::backend::{Backend, BackendOptions, Check};
use crate::weight::WeightTable;

/// What a driver could not do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no memory left.
    Full,
    /// In its own words.
    Other(String),
}

/// One device of a driver. Its functions may be called from any thread.
pub(crate) trait Driver: Send + Sync + Sized + 'static {
    /// Name of the backend.
    const BACKEND: &'static str;
    /// In the order of the kernels.
    const MODULES: &'static [Module];

    /// The device of that number; what is said otherwise tells what there is.
    fn open(number: usize) -> Result<Self, String>;

    /// Device and driver, for reports.
    fn name(&self) -> &str;

    /// Makes the device that of this thread. Everything below is asked after it.
    fn enter(&self) -> Result<(), Failure>;

    /// Waits for all that was asked.
    fn wait(&self) -> Result<(), Failure>;

    /// The address of new memory.
    fn alloc(&self, bytes: usize) -> Result<u64, Failure>;

    /// A kernel that is ready to run.
    fn load(&self, module: &'static Module, function: &CString) -> Result<usize, Failure>;

    /// # Safety
    /// The address is one of [`alloc`](Self::alloc), and nothing that was asked and is not done uses it.
    unsafe fn free(&self, at: u64) -> Result<(), Failure>;

    /// # Safety
    /// There are so many bytes from `at` on, as in all that follows.
    unsafe fn zero(&self, at: u64, bytes: usize) -> Result<(), Failure>;

    /// # Safety
    /// See [`zero`](Self::zero). The bytes are taken before it returns.
    unsafe fn upload(&self, to: u64, bytes: &[u8]) -> Result<(), Failure>;

    /// # Safety
    /// See [`zero`](Self::zero). Waits for all that was asked before.
    unsafe fn download(&self, from: u64, bytes: &mut [u8]) -> Result<(), Failure>;

    /// # Safety
    /// See [`zero`](Self::zero).
    unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), Failure>;

    /// # Safety
    /// The function is one of [`load`](Self::load); there is a pointer to each of its arguments, and it stays within the memory
    /// that they name. The arguments are taken before it returns.
    unsafe fn launch(
        &self,
        function: usize,
        groups: [u32; 3],
        workgroup: [u32; 3],
        arguments: &mut [*mut c_void],
    ) -> Result<(), Failure>;
}

/// A device that is open, with its kernels; shared by all backends on it.
pub(crate) struct Shared<D> {
    driver: D,
    functions: Mutex<BTreeMap<Kernel, usize>>,
}

/// The devices of a driver that were opened, by their number.
pub(crate) type Opened<D> = Mutex<BTreeMap<usize, Arc<Shared<D>>>>;

/// A device as the ops use it.
pub(crate) struct DriverDevice<D: Driver> {
    shared: Arc<Shared<D>>,
}

/// Memory on a device.
pub(crate) struct Memory<D: Driver> {
    shared: Arc<Shared<D>>,
    at: u64,
    bytes: u64,
}

impl<D: Driver> Memory<D> {
    /// The address of a part.
    fn part(&self, at: u64, bytes: u64) -> u64 {
        let end = at.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "ops stay within their buffers");
        self.at + at
    }
}

impl<D: Driver> Drop for Memory<D> {
    fn drop(&mut self) {
        let driver = &self.shared.driver;
        // A device that fails here has failed for all that is asked of it, and says so there.
        if driver.enter().is_ok() && driver.wait().is_ok() {
            // SAFETY: this handle was the last one, and nothing is at work.
            let _ = unsafe { driver.free(self.at) };
        }
    }
}

impl<D: Driver> Shared<D> {
    fn failed(&self, failure: Failure) -> ComputeError {
        let why = match failure {
            Failure::Full => "it has no memory left".into(),
            Failure::Other(why) => why,
        };
        ComputeError::Device { device: self.driver.name().into(), why }
    }

    fn function(&self, kernel: Kernel) -> Result<usize, Failure> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&function) = functions.get(&kernel) {
            return Ok(function);
        }
        let module = &D::MODULES[kernel as usize];
        let name = CString::new(format!("redraft_{}", module.name)).expect("names of kernels are words");
        let function = self.driver.load(module, &name).map_err(|e| match e {
            Failure::Full => Failure::Full,
            Failure::Other(why) => Failure::Other(format!("kernel {}: {why}", module.name)),
        })?;
        functions.insert(kernel, function);
        Ok(function)
    }
}

impl<D: Driver> DriverDevice<D> {
    /// The device of that number; none is the first.
    pub(crate) fn open(opened: &Opened<D>, number: Option<&str>) -> Result<DriverDevice<D>, ComputeError> {
        let number = device_number(number)?;
        let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = opened.get(&number) {
            return Ok(DriverDevice { shared: Arc::clone(shared) });
        }
        let driver = D::open(number).map_err(|there| no_device(&number.to_string(), there))?;
        let shared = Arc::new(Shared { driver, functions: Mutex::default() });
        opened.insert(number, Arc::clone(&shared));
        Ok(DriverDevice { shared })
    }

    /// Asks the device something.
    fn ask<T>(&self, what: impl FnOnce(&D) -> Result<T, Failure>) -> Result<T, ComputeError> {
        let driver = &self.shared.driver;
        driver.enter().and_then(|()| what(driver)).map_err(|e| self.shared.failed(e))
    }
}

/// A backend on a device.
pub(crate) fn create<D: Driver>(
    opened: &Opened<D>,
    options: &BackendOptions,
    weights: Arc<WeightTable>,
) -> Result<Box<dyn Backend>, ComputeError> {
    super::create(D::BACKEND, options, weights, || {
        let device = DriverDevice::open(opened, options.device.as_deref())?;
        let name = device.shared.driver.name().into();
        Ok((device, name))
    })
}

/// Compares the operations of a device with those of the host.
pub(crate) fn probe<D: Driver>(
    opened: &Opened<D>,
    options: &BackendOptions,
) -> Result<Vec<Check>, ComputeError> {
    super::probe::probe(&mut DriverDevice::open(opened, options.device.as_deref())?)
}

impl<D: Driver> Device for DriverDevice<D> {
    type Buffer = Arc<Memory<D>>;

    /// Kernels count words of a view in 32 bits, and invocations, of which the last workgroups have some too many.
    fn limits(&self) -> Limits {
        Limits { binding: 1 << 32, align: 16, groups: 65_535 }
    }

    fn alloc(&mut self, what: &str, bytes: u64) -> Result<Self::Buffer, ComputeError> {
        let bytes = bytes.max(4).next_multiple_of(4);
        let full = || ComputeError::OutOfMemory {
            what: format!("{what} on {}", self.shared.driver.name()),
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        let size = usize::try_from(bytes).map_err(|_| full())?;
        let driver = &self.shared.driver;
        let at = driver.enter().and_then(|()| driver.alloc(size)).map_err(|e| match e {
            Failure::Full => full(),
            other => self.shared.failed(other),
        })?;
        let memory = Memory { shared: Arc::clone(&self.shared), at, bytes };
        // SAFETY: it was allocated with that size.
        self.ask(|driver| unsafe { driver.zero(at, size) })?;
        Ok(Arc::new(memory))
    }

    fn write(&mut self, to: &Self::Buffer, at: u64, bytes: &[u8]) -> Result<(), ComputeError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let to = to.part(at, bytes.len() as u64);
        // SAFETY: `part` saw that the bytes are there.
        self.ask(|driver| unsafe { driver.upload(to, bytes) })
    }

    fn copy(
        &mut self,
        from: (&Self::Buffer, u64),
        to: (&Self::Buffer, u64),
        bytes: u64,
    ) -> Result<(), ComputeError> {
        if bytes == 0 {
            return Ok(());
        }
        let (from, to) = (from.0.part(from.1, bytes), to.0.part(to.1, bytes));
        // SAFETY: `part` saw that the bytes are there.
        self.ask(|driver| unsafe { driver.copy(from, to, bytes as usize) })
    }

    fn dispatch(
        &mut self,
        status: &Self::Buffer,
        work: &Dispatch<'_, Self::Buffer>,
    ) -> Result<(), ComputeError> {
        if work.groups.contains(&0) {
            return Ok(());
        }
        let spec = &KERNELS[work.kernel as usize];
        assert_eq!(work.views.len() + 2, spec.access.len(), "each binding has a view");
        // As long as the longest; a kernel takes of it what it knows.
        let mut parameters = [0u32; PARAMETERS];
        parameters[..work.parameters.len()].copy_from_slice(work.parameters);
        let mut addresses = vec![status.at];
        addresses.extend(work.views.iter().map(|v| v.buffer.part(v.at, v.bytes)));
        let mut arguments: Vec<*mut c_void> = vec![parameters.as_mut_ptr().cast()];
        arguments.extend(addresses.iter_mut().map(|a| std::ptr::from_mut(a).cast::<c_void>()));
        let shared = &self.shared;
        self.ask(|driver| {
            let function = shared.function(work.kernel)?;
            // Every index in a kernel is below the length of its view for the parameters that the ops give.
            // SAFETY: arguments are as the kernel declares them; buffers live until the device is done: freeing waits.
            unsafe { driver.launch(function, work.groups, spec.workgroup, &mut arguments) }
        })
    }

    fn read(&mut self, parts: &[View<'_, Self::Buffer>]) -> Result<Vec<u8>, ComputeError> {
        let total: u64 = parts.iter().map(|p| p.bytes).sum();
        let mut bytes = vec![0; total as usize];
        self.ask(D::wait)?;
        let mut rest = &mut bytes[..];
        for p in parts.iter().filter(|p| p.bytes > 0) {
            let (here, after) = rest.split_at_mut(p.bytes as usize);
            let from = p.buffer.part(p.at, p.bytes);
            // SAFETY: `part` saw that the bytes are there.
            self.ask(|driver| unsafe { driver.download(from, here) })?;
            rest = after;
        }
        Ok(bytes)
    }
}
