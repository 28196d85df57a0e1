//! One device of `wgpu`.

#![allow(unsafe_code, reason = "shaders that were compiled and checked before go to the driver as they are")]

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use crate::ComputeError;
use crate::backend::{DeviceInfo, DeviceKind};
use crate::gpu::device::{
    Device, Dispatch, KernelSpec, Limits, PARAMETERS, View, device_number, digest, no_device,
};
use crate::gpu::kernels::{KERNELS, Kernel};

/// Bytes of the parameters of a dispatch: what any device can begin a binding at.
const SLOT: u64 = 256;

/// Dispatches that go to the device at once, at most.
const BATCH: usize = 256;

/// Operations that go to the device at once: a small fraction of a second for the slowest.
const COST: u64 = 8 << 30;

/// Submissions that the device has before we wait for the oldest.
const AHEAD: usize = 3;

/// How long a thread may take to tell another that its results are there.
const TOLD: Duration = Duration::from_secs(60);

/// How kernels reach the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// SPIR-V of ours; products of bytes by an instruction or not.
    Spirv { dot: bool },
    /// Metal's language, from us.
    Msl,
    /// WGSL, which the driver's compiler sees as it likes; results are hidden from it.
    Text,
}

/// A device that is open, with its pipelines; shared by all backends on it.
struct Shared {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: wgpu::AdapterInfo,
    route: Route,
    limits: Limits,
    pipelines: Mutex<BTreeMap<Kernel, (wgpu::ComputePipeline, wgpu::BindGroupLayout)>>,
    /// What `wgpu` said went wrong, the first of it.
    failed: Arc<Mutex<Option<String>>>,
}

/// The devices of this machine that were opened, by their number.
static OPEN: OnceLock<Mutex<BTreeMap<usize, Arc<Shared>>>> = OnceLock::new();

/// Adapters in the order of their numbers: real ones first. They are looked for once, since drivers take their time and have
/// their say on stderr.
fn adapters() -> &'static [wgpu::Adapter] {
    static ADAPTERS: OnceLock<Vec<wgpu::Adapter>> = OnceLock::new();
    ADAPTERS.get_or_init(find_adapters)
}

fn find_adapters() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12,
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let mut list = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    list.sort_by_key(|a| match kind(&a.get_info()) {
        DeviceKind::Discrete => 0,
        DeviceKind::Integrated => 1,
        DeviceKind::Virtual => 2,
        DeviceKind::Other | DeviceKind::Cpu => 3,
        DeviceKind::Software => 4,
    });
    list
}

fn kind(info: &wgpu::AdapterInfo) -> DeviceKind {
    match info.device_type {
        wgpu::DeviceType::DiscreteGpu => DeviceKind::Discrete,
        wgpu::DeviceType::IntegratedGpu => DeviceKind::Integrated,
        wgpu::DeviceType::VirtualGpu => DeviceKind::Virtual,
        wgpu::DeviceType::Cpu => DeviceKind::Software,
        wgpu::DeviceType::Other => DeviceKind::Other,
    }
}

fn driver(info: &wgpu::AdapterInfo) -> String {
    format!("{} {} {}", info.backend, info.driver, info.driver_info)
}

/// All devices by their numbers.
pub(super) fn list() -> Vec<DeviceInfo> {
    let info = |(i, a): (usize, &wgpu::Adapter)| {
        let (info, limits) = (a.get_info(), a.limits());
        DeviceInfo {
            id: i.to_string(),
            name: info.name.clone(),
            kind: kind(&info),
            driver: driver(&info),
            memory: vulkan(a).map(|v| v.memory),
            limits: vec![
                ("bytes of a buffer", limits.max_buffer_size),
                ("bytes that a kernel sees of a buffer", limits.max_storage_buffer_binding_size),
                ("bytes of shared memory", u64::from(limits.max_compute_workgroup_storage_size)),
                ("invocations of a workgroup", u64::from(limits.max_compute_invocations_per_workgroup)),
            ],
            kernels: digest(KERNELS),
        }
    };
    adapters().iter().enumerate().map(info).collect()
}

/// What only Vulkan says.
struct Vulkan {
    /// Bytes of the largest heap of the device's own memory.
    memory: u64,
    /// Products of bytes by an instruction: part of version 1.3.
    dot: bool,
}

fn vulkan(adapter: &wgpu::Adapter) -> Option<Vulkan> {
    // SAFETY: the guard lives as long as what is taken from it, and nothing of it is destroyed.
    let adapter = unsafe { adapter.as_hal::<wgpu::hal::vulkan::Api>() }?;
    let (instance, device) = (adapter.shared_instance().raw_instance(), adapter.raw_physical_device());
    // SAFETY: both are alive, and the functions have no further conditions.
    let (heaps, version) = unsafe {
        let memory = instance.get_physical_device_memory_properties(device);
        (memory, instance.get_physical_device_properties(device).api_version)
    };
    let own = |size: u64, flags: u32| if flags & DEVICE_LOCAL != 0 { size } else { 0 };
    let memory = heaps.memory_heaps_as_slice().iter().map(|h| own(h.size, h.flags.as_raw())).max();
    Some(Vulkan { memory: memory.unwrap_or(0), dot: version >= VERSION_1_3 })
}

/// `VK_MEMORY_HEAP_DEVICE_LOCAL_BIT`.
const DEVICE_LOCAL: u32 = 1;
/// Version 1.3 as Vulkan writes it.
const VERSION_1_3: u32 = (1 << 22) | (3 << 12);

/// The best route to a device.
fn route(adapter: &wgpu::Adapter) -> Route {
    let passthrough = adapter.features().contains(wgpu::Features::PASSTHROUGH_SHADERS);
    match adapter.get_info().backend {
        wgpu::Backend::Vulkan if passthrough => Route::Spirv { dot: vulkan(adapter).is_some_and(|v| v.dot) },
        wgpu::Backend::Metal if passthrough => Route::Msl,
        _ => Route::Text,
    }
}

impl Shared {
    fn open(number: usize) -> Result<Arc<Shared>, ComputeError> {
        let open = OPEN.get_or_init(Mutex::default);
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = open.get(&number) {
            return Ok(Arc::clone(shared));
        }
        let adapters = adapters();
        let Some(adapter) = adapters.get(number) else {
            let names: Vec<String> =
                adapters.iter().enumerate().map(|(i, a)| format!("{i}: {}", a.get_info().name)).collect();
            return Err(no_device(
                &number.to_string(),
                if names.is_empty() {
                    "none: no driver for Vulkan, Metal or DX12 was found".into()
                } else {
                    names.join(", ")
                },
            ));
        };
        let shared = Arc::new(Shared::from(adapter, route(adapter))?);
        open.insert(number, Arc::clone(&shared));
        Ok(shared)
    }

    fn from(adapter: &wgpu::Adapter, route: Route) -> Result<Shared, ComputeError> {
        let info = adapter.get_info();
        let passthrough = adapter.features() & wgpu::Features::PASSTHROUGH_SHADERS;
        let limits = adapter.limits();
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("redraft"),
            required_features: passthrough,
            required_limits: limits.clone(),
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|e| no_device(&info.name, format!("not this one: {e}")))?;
        let failed = Arc::new(Mutex::new(None));
        let note = |failed: &Arc<Mutex<Option<String>>>, text: String| {
            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
        };
        let on_error = Arc::clone(&failed);
        device.on_uncaptured_error(Arc::new(move |e: wgpu::Error| note(&on_error, e.to_string())));
        let on_loss = Arc::clone(&failed);
        device.set_device_lost_callback(move |why, text| {
            note(&on_loss, format!("device lost ({why:?}): {text}"))
        });
        let align = u64::from(limits.min_storage_buffer_offset_alignment).max(SLOT);
        let binding = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        Ok(Shared {
            device,
            queue,
            info,
            route,
            limits: Limits {
                binding: binding / align * align,
                align,
                groups: limits.max_compute_workgroups_per_dimension,
            },
            pipelines: Mutex::default(),
            failed,
        })
    }

    /// What went wrong on the device, if anything did.
    fn check(&self) -> Result<(), ComputeError> {
        match &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(why) => Err(ComputeError::Device { device: self.info.name.clone(), why: why.clone() }),
        }
    }

    fn lost(&self, why: impl std::fmt::Display) -> ComputeError {
        ComputeError::Device { device: self.info.name.clone(), why: why.to_string() }
    }

    fn module(&self, spec: &'static KernelSpec) -> wgpu::ShaderModule {
        let label = Some(spec.name);
        let ready = |spirv: Option<&'static [u8]>, msl: Option<&'static str>| {
            let entry = wgpu::PassthroughShaderEntryPoint {
                name: Cow::Borrowed(if msl.is_some() { "main_" } else { "main" }),
                workgroup_size: (spec.workgroup[0], spec.workgroup[1], spec.workgroup[2]),
            };
            let descriptor = wgpu::ShaderModuleDescriptorPassthrough {
                label,
                entry_points: Cow::Owned(vec![entry]),
                spirv: spirv.map(wgpu::util::make_spirv_raw),
                msl: msl.map(Cow::Borrowed),
                ..Default::default()
            };
            // Every index in a kernel is below the length of its binding for the parameters that the ops give.
            // SAFETY: the shader is one of ours, made from a text that naga validated.
            unsafe { self.device.create_shader_module_passthrough(descriptor) }
        };
        match self.route {
            Route::Spirv { dot } => ready(Some(spec.spirv_dot.filter(|_| dot).unwrap_or(spec.spirv)), None),
            Route::Msl => ready(None, Some(spec.msl)),
            Route::Text => self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label,
                source: wgpu::ShaderSource::Wgsl(Cow::Owned(spec.wgsl.concat())),
            }),
        }
    }

    fn pipeline(&self, kernel: Kernel) -> (wgpu::ComputePipeline, wgpu::BindGroupLayout) {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((pipeline, layout)) = pipelines.get(&kernel) {
            return (pipeline.clone(), layout.clone());
        }
        let spec = &KERNELS[kernel as usize];
        let entry = |(i, kind): (usize, char)| wgpu::BindGroupLayoutEntry {
            binding: i as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: match kind {
                    'u' => wgpu::BufferBindingType::Uniform,
                    kind => wgpu::BufferBindingType::Storage { read_only: kind == 'r' },
                },
                has_dynamic_offset: kind == 'u',
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<_> = spec.access.chars().enumerate().map(entry).collect();
        let layout = self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some(spec.name),
            entries: &entries,
        });
        let of_pipeline = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(spec.name),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let module = self.module(spec);
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(spec.name),
            layout: Some(&of_pipeline),
            module: &module,
            entry_point: Some(if self.route == Route::Msl { "main_" } else { "main" }),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        pipelines.insert(kernel, (pipeline.clone(), layout.clone()));
        (pipeline, layout)
    }
}

/// A device as the ops use it.
pub(super) struct WgpuDevice {
    shared: Arc<Shared>,
    encoder: Option<wgpu::CommandEncoder>,
    /// Parameters of the dispatches in the encoder, and their buffer.
    parameters: Vec<u8>,
    slots: wgpu::Buffer,
    cost: u64,
    submitted: VecDeque<wgpu::SubmissionIndex>,
}

impl WgpuDevice {
    /// The device of that number; none is the first.
    pub(super) fn open(number: Option<&str>) -> Result<WgpuDevice, ComputeError> {
        Ok(WgpuDevice::on(Shared::open(device_number(number)?)?))
    }

    fn on(shared: Arc<Shared>) -> WgpuDevice {
        let slots = parameter_buffer(&shared.device);
        WgpuDevice {
            shared,
            encoder: None,
            parameters: Vec::new(),
            slots,
            cost: 0,
            submitted: VecDeque::new(),
        }
    }

    /// Name and driver.
    pub(super) fn name(&self) -> String {
        let i = &self.shared.info;
        format!("{} ({})", i.name, driver(i))
    }

    fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        let device = &self.shared.device;
        self.encoder.get_or_insert_with(|| device.create_command_encoder(&Default::default()))
    }

    fn submit(&mut self) -> Result<(), ComputeError> {
        let Some(encoder) = self.encoder.take() else { return self.shared.check() };
        self.shared.queue.write_buffer(&self.slots, 0, &self.parameters);
        self.parameters.clear();
        self.cost = 0;
        self.submitted.push_back(self.shared.queue.submit([encoder.finish()]));
        while self.submitted.len() > AHEAD
            && let Some(oldest) = self.submitted.pop_front()
        {
            self.wait(Some(oldest))?;
        }
        self.shared.check()
    }

    fn wait(&self, for_: Option<wgpu::SubmissionIndex>) -> Result<(), ComputeError> {
        let poll = wgpu::PollType::Wait { submission_index: for_, timeout: None };
        self.shared.device.poll(poll).map_err(|e| self.shared.lost(e))?;
        self.shared.check()
    }
}

fn binding<'a>(v: &View<'a, wgpu::Buffer>) -> wgpu::BufferBinding<'a> {
    wgpu::BufferBinding {
        buffer: v.buffer,
        offset: v.at,
        size: wgpu::BufferSize::new(v.bytes.next_multiple_of(4)),
    }
}

fn parameter_buffer(device: &wgpu::Device) -> wgpu::Buffer {
    device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("parameters"),
        size: SLOT * BATCH as u64,
        usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

impl Device for WgpuDevice {
    type Buffer = wgpu::Buffer;

    fn limits(&self) -> Limits {
        self.shared.limits
    }

    fn alloc(&mut self, what: &str, bytes: u64) -> Result<wgpu::Buffer, ComputeError> {
        let full = || ComputeError::OutOfMemory {
            what: format!("{what} on {}", self.shared.info.name),
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        let device = &self.shared.device;
        if bytes > device.limits().max_buffer_size {
            return Err(full());
        }
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes.max(4).next_multiple_of(4),
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        match pollster::block_on(memory.pop()) {
            None => Ok(buffer),
            Some(_) => Err(full()),
        }
    }

    fn write(&mut self, to: &wgpu::Buffer, at: u64, bytes: &[u8]) -> Result<(), ComputeError> {
        // Writes go before what is submitted after them.
        self.submit()?;
        if !bytes.is_empty() {
            self.shared.queue.write_buffer(to, at, bytes);
        }
        self.shared.check()
    }

    fn copy(
        &mut self,
        from: (&wgpu::Buffer, u64),
        to: (&wgpu::Buffer, u64),
        bytes: u64,
    ) -> Result<(), ComputeError> {
        if bytes > 0 {
            self.encoder().copy_buffer_to_buffer(from.0, from.1, to.0, to.1, bytes);
        }
        self.shared.check()
    }

    fn dispatch(
        &mut self,
        status: &wgpu::Buffer,
        work: &Dispatch<'_, wgpu::Buffer>,
    ) -> Result<(), ComputeError> {
        if self.parameters.len() as u64 >= SLOT * BATCH as u64 || self.cost.saturating_add(work.cost) > COST {
            self.submit()?;
        }
        let (pipeline, layout) = self.shared.pipeline(work.kernel);
        let offset = self.parameters.len();
        debug_assert!(work.parameters.len() <= PARAMETERS);
        self.parameters.extend(work.parameters.iter().flat_map(|w| w.to_le_bytes()));
        self.parameters.resize(offset + SLOT as usize, 0);
        self.cost += work.cost;
        let slots = wgpu::BufferBinding { buffer: &self.slots, offset: 0, size: wgpu::BufferSize::new(SLOT) };
        let bindings =
            [slots, status.as_entire_buffer_binding()].into_iter().chain(work.views.iter().map(binding));
        let entries: Vec<_> = bindings
            .enumerate()
            .map(|(i, b)| wgpu::BindGroupEntry {
                binding: i as u32,
                resource: wgpu::BindingResource::Buffer(b),
            })
            .collect();
        let group = self.shared.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout,
            entries: &entries,
        });
        let mut pass = self.encoder().begin_compute_pass(&Default::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[offset as u32]);
        let [x, y, z] = work.groups;
        pass.dispatch_workgroups(x, y, z);
        drop(pass);
        self.shared.check()
    }

    fn read(&mut self, parts: &[View<'_, wgpu::Buffer>]) -> Result<Vec<u8>, ComputeError> {
        let total: u64 = parts.iter().map(|p| p.bytes).sum();
        if total == 0 {
            self.submit()?;
            self.submitted.clear();
            self.wait(None)?;
            return Ok(Vec::new());
        }
        let staging = self.shared.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("results"),
            size: total,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut at = 0;
        for p in parts.iter().filter(|p| p.bytes > 0) {
            self.encoder().copy_buffer_to_buffer(p.buffer, p.at, &staging, at, p.bytes);
            at += p.bytes;
        }
        self.submit()?;
        self.submitted.clear();
        let (done, mapped) = mpsc::channel();
        staging.slice(..).map_async(wgpu::MapMode::Read, move |r| {
            // Nobody listens any more where the wait failed.
            let _ = done.send(r);
        });
        self.wait(None)?;
        // Another thread that waits for the same device may be the one that is told.
        match mapped.recv_timeout(TOLD) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(self.shared.lost(e)),
            Err(_) => return Err(self.shared.lost("the results did not come back")),
        }
        let bytes = staging.slice(..).get_mapped_range().map_err(|e| self.shared.lost(e))?.to_vec();
        staging.unmap();
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::probe::probe;

    /// Whatever a driver makes of a text, results that are hidden from it are those of the contract.
    #[test]
    fn every_route_keeps_to_the_contract() {
        let Some(adapter) = adapters().first() else {
            assert!(std::env::var_os("REDRAFT_CI").is_none(), "no device for wgpu");
            return;
        };
        let best = route(adapter);
        let mut routes = vec![best, Route::Text];
        if let Route::Spirv { .. } = best {
            routes.push(Route::Spirv { dot: false });
        }
        for route in routes {
            let mut device = WgpuDevice::on(Arc::new(Shared::from(adapter, route).unwrap()));
            let wrong: Vec<_> = probe(&mut device).unwrap().into_iter().filter(|c| !c.passed).collect();
            assert!(wrong.is_empty(), "{route:?}: {wrong:#?}");
        }
    }
}
