//! What a network card's writes to GPU memory need from the driver.
//!
//! # When a flush is needed
//! A card writes data, then tells the CPU (a completion), which tells the kernel (a word). All
//! three travel on different paths, and a GPU may make the word visible to a running kernel before
//! the data. Whether it does is a property of the GPU ([`WritesOrdering`]): from
//! [`WritesOrdering::Owner`] on, a kernel that has observed the word reads the data, and
//! [`Device::flush_gpudirect_rdma_writes`] does nothing. That is so on an H200. With
//! [`WritesOrdering::Nobody`], the host calls the flush after the completion and before the word.
//! With `Owner`, another GPU that reads the memory over NVLink needs a flush with
//! [`FlushScope::AllDevices`].
//!
//! The CPU's own writes through a `gpu_usermap::mapping::Mapping` take the same path as a card's
//! and follow the same rule.
//!
//! Two paths of a coherent machine (PCIe and the coherent link) are not ordered with each other by
//! anything here: a buffer is exported over one [`DmabufRoute`](crate::DmabufRoute) only.

use std::fmt;

use super::buffer::GpuBuffer;
use crate::device::{Device, DeviceAttribute, DeviceQuery};
use crate::driver::raw::constants;
use crate::driver::{CudaError, DriverVersion};

/// For whom a network card's writes to GPU memory arrive in order without a flush.
///
/// # Examples
/// ```
/// use gpunet_cuda::WritesOrdering;
///
/// assert!(WritesOrdering::Owner.ordered_for_owner());
/// assert!(!WritesOrdering::Nobody.ordered_for_owner());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritesOrdering {
    /// Nobody: a flush is needed before data may be read.
    Nobody,
    /// The GPU that owns the memory.
    Owner,
    /// Every GPU.
    AllDevices,
    /// A value that this crate does not know.
    Unknown(i32),
}

impl WritesOrdering {
    /// Reads `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING`.
    pub(crate) fn from_driver(value: i32) -> Self {
        match value {
            0 => Self::Nobody,
            100 => Self::Owner,
            200 => Self::AllDevices,
            other => Self::Unknown(other),
        }
    }

    /// Returns whether the GPU that owns the memory sees the writes in order without a flush.
    pub fn ordered_for_owner(self) -> bool {
        matches!(self, Self::Owner | Self::AllDevices)
    }
}

impl fmt::Display for WritesOrdering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("nobody"),
            Self::Owner => f.write_str("the GPU itself"),
            Self::AllDevices => f.write_str("every GPU"),
            Self::Unknown(value) => write!(f, "unknown value {value}"),
        }
    }
}

/// How a network card's writes can be flushed: the driver's bit set.
///
/// # Examples
/// ```
/// use gpunet_cuda::FlushOptions;
///
/// assert!(FlushOptions(1).from_host() && !FlushOptions(1).by_stream_operation());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushOptions(pub i32);

impl FlushOptions {
    /// Returns whether `cuFlushGPUDirectRDMAWrites` works.
    pub fn from_host(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns whether a stream memory operation can flush.
    pub fn by_stream_operation(self) -> bool {
        self.0 & 2 != 0
    }
}

impl fmt::Display for FlushOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.from_host(), self.by_stream_operation()) {
            (true, true) => "from the host and by stream operations",
            (true, false) => "from the host",
            (false, true) => "by stream operations",
            (false, false) => "in no way",
        })
    }
}

/// What a GPU offers to network cards. `None` means that the driver is older than the question.
///
/// # Examples
/// ```no_run
/// let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// if gpu.rdma_attributes().gpu_direct != Some(true) {
///     println!("network cards do not reach {}", gpu.name());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RdmaAttributes {
    /// Whether a network card can reach memory of `cuMemAlloc`.
    pub gpu_direct: Option<bool>,
    /// Whether a network card can reach memory of `cuMemCreate`.
    pub gpu_direct_with_vmm: Option<bool>,
    /// Whether GPU memory can be exported as a dma-buf.
    pub dma_buf: Option<bool>,
    /// Who sees a network card's writes in order.
    pub writes_ordering: Option<WritesOrdering>,
    /// How a network card's writes can be flushed.
    pub flush_options: Option<FlushOptions>,
}

impl RdmaAttributes {
    fn read(value: impl Fn(DeviceAttribute) -> Option<i32>) -> Self {
        let flag = |attribute| value(attribute).map(|value| value != 0);
        Self {
            gpu_direct: flag(DeviceAttribute::GpuDirectRdma),
            gpu_direct_with_vmm: flag(DeviceAttribute::GpuDirectRdmaWithCudaVmm),
            dma_buf: flag(DeviceAttribute::DmaBuf),
            writes_ordering: value(DeviceAttribute::GpuDirectRdmaWritesOrdering)
                .map(WritesOrdering::from_driver),
            flush_options: value(DeviceAttribute::GpuDirectRdmaFlushOptions).map(FlushOptions),
        }
    }
}

impl DeviceQuery<'_> {
    /// Returns what the GPU offers to network cards.
    pub fn rdma_attributes(&self) -> RdmaAttributes {
        RdmaAttributes::read(|attribute| self.attribute(attribute).ok())
    }
}

/// Who sees the flushed writes.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::FlushScope;
///
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// gpu.flush_gpudirect_rdma_writes(FlushScope::AllDevices)?; // another GPU reads the memory over NVLink
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushScope {
    /// The GPU that owns the memory.
    Owner,
    /// Every GPU.
    AllDevices,
}

/// Why a driver call for network cards failed.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::RdmaCallError;
///
/// # let buffer = gpunet_cuda::Cuda::load()?.device(0)?.alloc(4096)?;
/// if let Err(RdmaCallError::DriverTooOld { found, call }) = buffer.sync_memops() {
///     println!("CUDA {found} has no {call}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RdmaCallError {
    /// The driver does not have the call.
    #[error("the CUDA driver {found} has no {call}")]
    DriverTooOld {
        /// The driver's version.
        found: DriverVersion,
        /// The missing call.
        call: &'static str,
    },
    /// The driver refused; `CUDA_ERROR_NOT_SUPPORTED` where [`FlushOptions::from_host`] says no.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl Device {
    /// Returns what the GPU offers to network cards. Makes no context call, so it may be used at
    /// any time.
    pub fn rdma_attributes(&self) -> RdmaAttributes {
        RdmaAttributes::read(|attribute| self.attribute(attribute).ok())
    }

    /// Waits until what network cards (and the CPU, through a mapping) have written to this
    /// device's memory is visible in `scope`.
    ///
    /// Needed after the completion of such a write and before the word that tells a kernel of it,
    /// if [`RdmaAttributes::writes_ordering`] does not cover `scope`; otherwise the driver returns
    /// at once, and the trip to the agent thread is better saved. It does not wait for kernels or
    /// streams.
    ///
    /// # Errors
    /// [`RdmaCallError`]: a driver before 11.3, or a device that cannot be flushed from the host.
    ///
    /// # Examples
    /// ```no_run
    /// use gpunet_cuda::{FlushScope, WritesOrdering};
    ///
    /// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
    /// let ordering = gpu.rdma_attributes().writes_ordering;
    /// if !ordering.is_some_and(WritesOrdering::ordered_for_owner) {
    ///     gpu.flush_gpudirect_rdma_writes(FlushScope::Owner)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flush_gpudirect_rdma_writes(&self, scope: FlushScope) -> Result<(), RdmaCallError> {
        let scope = match scope {
            FlushScope::Owner => constants::FLUSH_TO_OWNER,
            FlushScope::AllDevices => constants::FLUSH_TO_ALL_DEVICES,
        };
        let flushed = self.agent().run(move |context| context.driver().flush_rdma_writes(scope))?;
        self.known("cuFlushGPUDirectRDMAWrites", flushed)
    }

    fn known(&self, call: &'static str, result: Option<Result<(), CudaError>>) -> Result<(), RdmaCallError> {
        let found = self.cuda().driver_version();
        Ok(result.ok_or(RdmaCallError::DriverTooOld { found, call })??)
    }
}

impl GpuBuffer {
    /// Sets `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`: from now on, synchronous CUDA copies to or from
    /// this memory are complete when they return.
    ///
    /// Without it the driver may return from a "synchronous" copy of GPU memory before the bytes
    /// are there, since other CUDA work could not tell; a network card that is told to send them
    /// could. [`Device::write`] waits for its copies in any case, so it needs this only where other
    /// code (cudarc, the runtime API) copies to memory that is registered with a card. Set it
    /// before the registration.
    ///
    /// # Errors
    /// [`RdmaCallError`]: the driver lacks the call, or refuses.
    pub fn sync_memops(&self) -> Result<(), RdmaCallError> {
        let address = self.ptr();
        let set = self.device().agent().run(move |context| context.driver().sync_memops(address))?;
        self.device().known("cuPointerSetAttribute", set)
    }
}
