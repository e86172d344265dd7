//! A GPU, its context and its agent.

mod attribute;
mod query;

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use crate::agent::{Agent, BusyStreams, Context, Origin};
use crate::driver::raw::{CUdevice, ContextHandle, constants};
use crate::driver::{Cuda, CudaError};

pub use attribute::DeviceAttribute;
pub use query::DeviceQuery;

/// A GPU with a context, and the handle through which everything on it is made.
///
/// Clones share the context and the agent thread. When the last of them and of its children
/// (buffers, registrations, modules, launches) drops, that drop blocks until the device's kernels
/// have ended, for at most 10 seconds, and gives everything back; what a kernel still uses after
/// that is leaked, with an error in the log.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::Cuda;
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

struct DeviceInner {
    cuda: Cuda,
    agent: Agent,
    busy_streams: Arc<BusyStreams>,
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
    /// While a handle to that GPU lives, further calls return the same device with the same agent,
    /// so that every part of a program agrees on which launches are running. Open devices before
    /// any kernel waits for the host.
    ///
    /// # Errors
    /// [`CudaError`] of the failed call: no such device, no memory for a context, a device in
    /// exclusive use.
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
        let (device, context, busy_streams) = agent
            .run(|context| (context.device(), context.handle(), context.launches.busy_streams().clone()))?;
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
            busy_streams,
            device,
            context,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Uses a context that the caller made (with cudarc, cust, the runtime API or C) instead of the
    /// primary one.
    ///
    /// The context is neither retained nor released. While a device lives that was opened in this
    /// context, by this call or as the primary one ([`Cuda::device`]), further calls return it, so
    /// that every part of a program agrees on which launches are running. Launches by other means
    /// are announced: [`Device::announce_launches`].
    ///
    /// # Errors
    /// [`CudaError`] of the failed call: not a context, or no memory for streams and staging
    /// buffers in it.
    ///
    /// # Safety
    /// `context` is a live `CUcontext` of this process. It stays live until the device and all its
    /// children are dropped.
    ///
    /// # Examples
    /// ```no_run
    /// use gpunet_cuda::{Cuda, Device};
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

    /// Returns the GPU's UUID: 16 bytes that name it in every process, whatever number
    /// `CUDA_VISIBLE_DEVICES` gives it.
    pub fn uuid(&self) -> [u8; 16] {
        self.inner.uuid
    }

    /// Returns the number under which [`Cuda::device`] opens this GPU.
    pub fn ordinal(&self) -> u32 {
        // A CUdevice is the ordinal: cuda.h defines it as an int, and cuDeviceGet returns its
        // argument.
        self.inner.device.unsigned_abs()
    }

    /// Returns major and minor compute capability, e.g. `(9, 0)`.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.inner.compute_capability
    }

    /// Returns the name by which assemblers know this GPU's machine code, e.g. `sm_90`.
    pub fn architecture(&self) -> String {
        let (major, minor) = self.compute_capability();
        format!("sm_{major}{minor}")
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
    /// use gpunet_cuda::{Cuda, DeviceAttribute};
    ///
    /// let gpu = Cuda::load()?.device(0)?;
    /// assert!(gpu.attribute(DeviceAttribute::MaxThreadsPerBlock)? >= 1024);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attribute(&self, attribute: DeviceAttribute) -> Result<i32, CudaError> {
        self.inner.cuda.driver().device_attribute(self.inner.device, attribute.number())
    }

    /// Returns whether both use one context of the driver, so that an address of one is that of the
    /// other.
    pub fn shares_context(&self, other: &Self) -> bool {
        self.inner.context == other.inner.context
    }

    pub(crate) fn context(&self) -> ContextHandle {
        self.inner.context
    }

    pub(crate) fn agent(&self) -> &Agent {
        &self.inner.agent
    }

    /// Returns the count of streams with work on them.
    pub(crate) fn busy_streams(&self) -> &Arc<BusyStreams> {
        &self.inner.busy_streams
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
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
