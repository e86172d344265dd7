//! A GPU, its context and its agent.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use super::agent::Agent;
use super::context::{Context, Origin};
use super::error::CudaError;
use super::library::Cuda;
use super::raw::{CUdevice, ContextHandle, constants};

/// A GPU with a context, and the handle through which everything on it is made.
///
/// Clones share the context and the agent thread. When the last of them and of its children (buffers, registrations,
/// modules, launches) drops, that drop blocks until the device's kernels have ended, for at most 10 seconds, and gives everything
/// back; what a kernel still uses after that is leaked, with an error in the log.
///
/// # Examples
/// ```no_run
/// use gpu_usermap::cuda::Cuda;
///
/// let gpu = Cuda::load()?.device(0)?;
/// let buffer = gpu.alloc(4096)?;
/// gpu.write(&buffer, 0, b"hello")?;
/// println!("{}: the buffer is at {:#x}", gpu.name(), buffer.ptr());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Device {
    inner: Arc<DeviceInner>,
}

pub(super) struct DeviceInner {
    cuda: Cuda,
    agent: Agent,
    device: CUdevice,
    context: ContextHandle,
    name: String,
    uuid: [u8; 16],
    compute_capability: (u32, u32),
    multiprocessors: u32,
}

impl Cuda {
    /// Opens GPU `ordinal`: retains its primary context and starts its agent thread.
    ///
    /// While a handle to that GPU lives, further calls return the same device with the same agent, so that every part of a
    /// program agrees on which launches are running. Open devices before any kernel waits for the host.
    ///
    /// # Errors
    /// [`CudaError`] of the failed call: no such device, no memory for a context, a device in exclusive use.
    pub fn device(&self, ordinal: u32) -> Result<Device, CudaError> {
        let device = self.driver().device_get(ordinal)?;
        let mut registry = self.registry();
        if let Some(inner) = registry.find(device) {
            return Ok(Device { inner });
        }
        let opened = Device::open(self, Origin::Primary(device))?;
        registry.add(Some(device), opened.inner.context, &opened.inner);
        Ok(opened)
    }
}

impl Device {
    fn open(cuda: &Cuda, origin: Origin) -> Result<Self, CudaError> {
        let agent = Agent::spawn({
            let cuda = cuda.clone();
            move || Context::open(cuda, origin)
        })?;
        let (device, context) = agent.run(|context| (context.device(), context.handle()))?;
        let driver = cuda.driver();
        let attribute = |number| driver.device_attribute(device, number).map(i32::unsigned_abs);
        let inner = DeviceInner {
            name: driver.device_name(device)?,
            uuid: driver.device_uuid(device)?,
            compute_capability: (
                attribute(constants::DEVICE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(constants::DEVICE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: attribute(constants::DEVICE_MULTIPROCESSOR_COUNT)?,
            cuda: cuda.clone(),
            agent,
            device,
            context,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Uses a context that the caller made (with cudarc, cust, the runtime API or C) instead of the primary one.
    ///
    /// The context is neither retained nor released. While a device lives that was opened in this context, by this call or as
    /// the primary one ([`Cuda::device`]), further calls return it, so that every part of a program agrees on which launches are
    /// running. Launches by other means are announced: [`Device::announce_launches`].
    ///
    /// # Errors
    /// [`CudaError`] of the failed call: not a context, or no memory for streams and staging buffers in it.
    ///
    /// # Safety
    /// `context` is a live `CUcontext` of this process. It stays live until the device and all its children are dropped.
    ///
    /// # Examples
    /// ```no_run
    /// use gpu_usermap::cuda::{Cuda, Device};
    ///
    /// let context = cudarc::driver::CudaContext::new(0)?;
    /// // SAFETY: `context` outlives the device and everything made from it.
    /// let gpu = unsafe { Device::from_raw_context(&Cuda::load()?, context.cu_ctx().cast()) }?;
    /// # drop(gpu);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(unsafe_code, reason = "the caller vouches for the context")]
    pub unsafe fn from_raw_context(cuda: &Cuda, context: *mut c_void) -> Result<Self, CudaError> {
        let context = ContextHandle(context);
        let mut registry = cuda.registry();
        if let Some(inner) = registry.find_in(context) {
            return Ok(Self { inner });
        }
        let opened = Self::open(cuda, Origin::Borrowed(context))?;
        registry.add(None, context, &opened.inner);
        Ok(opened)
    }

    /// Returns the driver that this device belongs to.
    pub fn cuda(&self) -> &Cuda {
        &self.inner.cuda
    }

    /// Returns the product name, e.g. `NVIDIA H200`.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the GPU's UUID: 16 bytes that name it in every process, whatever number `CUDA_VISIBLE_DEVICES` gives it.
    pub fn uuid(&self) -> [u8; 16] {
        self.inner.uuid
    }

    /// Returns the number under which [`Cuda::device`] opens this GPU.
    pub fn ordinal(&self) -> u32 {
        // A CUdevice is the ordinal: cuda.h defines it as an int, and cuDeviceGet returns its argument.
        self.inner.device.unsigned_abs()
    }

    /// Returns major and minor compute capability, e.g. `(9, 0)`.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.inner.compute_capability
    }

    /// Returns the number of multiprocessors (SMs).
    pub fn multiprocessors(&self) -> u32 {
        self.inner.multiprocessors
    }

    /// Returns a device attribute. Makes no context call, so it may be used at any time.
    ///
    /// # Errors
    /// [`CudaError`] with `CUDA_ERROR_INVALID_VALUE` where the driver is older than the attribute.
    ///
    /// # Examples
    /// ```no_run
    /// use gpu_usermap::cuda::{Cuda, DeviceAttribute};
    ///
    /// let gpu = Cuda::load()?.device(0)?;
    /// assert!(gpu.attribute(DeviceAttribute::MaxThreadsPerBlock)? >= 1024);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attribute(&self, attribute: DeviceAttribute) -> Result<i32, CudaError> {
        self.inner.cuda.driver().device_attribute(self.inner.device, attribute.number())
    }

    /// Returns whether both use one context of the driver, so that an address of one is that of the other.
    pub fn shares_context(&self, other: &Self) -> bool {
        self.inner.context == other.inner.context
    }

    pub(super) fn context(&self) -> ContextHandle {
        self.inner.context
    }

    pub(super) fn agent(&self) -> &Agent {
        &self.inner.agent
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("ordinal", &self.ordinal())
            .field("name", &self.inner.name)
            .finish_non_exhaustive()
    }
}

/// A property that [`Device::attribute`] can ask for. Yes-or-no properties are 1 or 0.
///
/// # Examples
/// ```no_run
/// use gpu_usermap::cuda::{Cuda, DeviceAttribute};
///
/// let gpu = Cuda::load()?.device(0)?;
/// let exports = gpu.attribute(DeviceAttribute::DmaBuf)? != 0;
/// # drop(exports);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceAttribute {
    /// The largest number of threads in a block.
    MaxThreadsPerBlock,
    /// The number of multiprocessors.
    Multiprocessors,
    /// Who may use the GPU: 0 any number of processes, 2 none, 3 one.
    ComputeMode,
    /// The PCI domain.
    PciDomain,
    /// The PCI bus.
    PciBus,
    /// The device on its PCI bus.
    PciDevice,
    /// Whether GPU and CPU can do atomic operations on each other's memory.
    HostNativeAtomic,
    /// Whether registered host memory has the same address on the GPU.
    CanUseHostPointerForRegisteredMem,
    /// Whether `cuMemHostRegister` works.
    HostRegister,
    /// Whether the GPU uses the CPU's page tables: CPU and GPU share a coherent link.
    PageableMemoryAccessUsesHostPageTables,
    /// Whether the virtual memory calls (`cuMemCreate`, `cuMemMap`) work.
    VirtualMemoryManagement,
    /// Whether memory of `cuMemCreate` can be exported as a file descriptor.
    HandleTypePosixFileDescriptor,
    /// Whether memory of `cuMemCreate` can be used for GPUDirect RDMA.
    GpuDirectRdmaWithCudaVmm,
    /// Whether memory of `cuMemAlloc` can be used for GPUDirect RDMA.
    GpuDirectRdma,
    /// How writes of a network card can be flushed: bit 0 from the host, bit 1 by stream memory operations.
    GpuDirectRdmaFlushOptions,
    /// Who sees writes of a network card in order without a flush: 0 nobody, 100 this GPU, 200 every GPU.
    GpuDirectRdmaWritesOrdering,
    /// Whether streams can wait for and write 64-bit words.
    StreamMemoryOperations,
    /// Whether GPU memory can be exported as a dma-buf.
    DmaBuf,
    /// Another `CUdevice_attribute`, by its number in `cuda.h`.
    Other(i32),
}

impl DeviceAttribute {
    pub(super) fn number(self) -> i32 {
        match self {
            Self::MaxThreadsPerBlock => constants::DEVICE_MAX_THREADS_PER_BLOCK,
            Self::Multiprocessors => constants::DEVICE_MULTIPROCESSOR_COUNT,
            Self::ComputeMode => constants::DEVICE_COMPUTE_MODE,
            Self::PciDomain => constants::DEVICE_PCI_DOMAIN_ID,
            Self::PciBus => constants::DEVICE_PCI_BUS_ID,
            Self::PciDevice => constants::DEVICE_PCI_DEVICE_ID,
            Self::HostNativeAtomic => constants::DEVICE_HOST_NATIVE_ATOMIC_SUPPORTED,
            Self::CanUseHostPointerForRegisteredMem => {
                constants::DEVICE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
            }
            Self::HostRegister => constants::DEVICE_HOST_REGISTER_SUPPORTED,
            Self::PageableMemoryAccessUsesHostPageTables => {
                constants::DEVICE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
            }
            Self::VirtualMemoryManagement => constants::DEVICE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            Self::HandleTypePosixFileDescriptor => {
                constants::DEVICE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
            }
            Self::GpuDirectRdmaWithCudaVmm => constants::DEVICE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
            Self::GpuDirectRdma => constants::DEVICE_GPU_DIRECT_RDMA_SUPPORTED,
            Self::GpuDirectRdmaFlushOptions => constants::DEVICE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
            Self::GpuDirectRdmaWritesOrdering => constants::DEVICE_GPU_DIRECT_RDMA_WRITES_ORDERING,
            Self::StreamMemoryOperations => constants::DEVICE_CAN_USE_64_BIT_STREAM_MEM_OPS,
            Self::DmaBuf => constants::DEVICE_DMA_BUF_SUPPORTED,
            Self::Other(number) => number,
        }
    }
}

/// Reads facts of a GPU before any context exists; for the probe.
pub(crate) struct DeviceQuery<'a> {
    cuda: &'a Cuda,
    device: CUdevice,
}

impl<'a> DeviceQuery<'a> {
    pub(crate) fn new(cuda: &'a Cuda, ordinal: u32) -> Result<Self, CudaError> {
        Ok(Self { cuda, device: cuda.driver().device_get(ordinal)? })
    }

    pub(crate) fn name(&self) -> Result<String, CudaError> {
        self.cuda.driver().device_name(self.device)
    }

    pub(crate) fn total_memory(&self) -> Result<usize, CudaError> {
        self.cuda.driver().device_total_memory(self.device)
    }

    pub(crate) fn attribute(&self, attribute: DeviceAttribute) -> Result<i32, CudaError> {
        self.cuda.driver().device_attribute(self.device, attribute.number())
    }

    pub(crate) fn compute_capability(&self) -> Result<(u32, u32), CudaError> {
        let part = |number| self.attribute(DeviceAttribute::Other(number)).map(i32::unsigned_abs);
        Ok((
            part(constants::DEVICE_COMPUTE_CAPABILITY_MAJOR)?,
            part(constants::DEVICE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }
}
