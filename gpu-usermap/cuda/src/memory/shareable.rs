//! GPU memory that other processes and other GPUs can map.

#![allow(unsafe_code, reason = "exports a live handle, and owns the descriptor")]

use std::os::fd::OwnedFd;

use super::buffer::GpuBuffer;
use super::dmabuf::owned;
use crate::agent::{PhysicalMemory, Release};
use crate::device::{Device, DeviceAttribute};
use crate::driver::raw::{AllocationProperties, CUdevice, MemoryHandle};
use crate::driver::{CudaError, Driver, DriverVersion};

/// GPU memory that can be exported as a file descriptor.
///
/// An importer of the descriptor ([`Device::import`]) maps the same physical memory, in this
/// process or another, on this GPU or another of the machine. That memory lives until its last
/// mapping, its last handle and its last descriptor are gone: neither the drop of this buffer nor
/// the end of this process takes it away from an importer.
///
/// Clones share it. The last drop returns at once; the memory is unmapped here when no launch of
/// the device runs.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::Cuda;
///
/// let cuda = Cuda::load()?;
/// let (owner, reader) = (cuda.device(0)?, cuda.device(1)?);
/// let shared = owner.alloc_shareable(2 << 20)?;
/// // Here or, with the descriptor and the length sent over a Unix socket, in another process:
/// let imported = reader.import(shared.export()?, shared.len())?;
/// println!("{:#x} on one GPU is {:#x} on the other", shared.ptr(), imported.ptr());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ShareableBuffer {
    buffer: GpuBuffer,
    /// Lives as long as `buffer`, whose release gives it back.
    handle: MemoryHandle,
}

/// Why a GPU's memory cannot be shared.
///
/// # Examples
/// ```no_run
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// if let Err(why) = gpu.can_share() {
///     println!("{}: {why}", gpu.name());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotShareable {
    /// The driver library lacks a call.
    #[error("the CUDA driver {found} has no {call}")]
    MissingCall {
        /// The driver's version.
        found: DriverVersion,
        /// The missing call.
        call: &'static str,
    },
    /// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED` is 0.
    #[error("the GPU has no virtual memory management (cuMemCreate, cuMemMap)")]
    NoVirtualMemory,
    /// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED` is 0, e.g. in a virtual
    /// machine with a part of a GPU (vGPU).
    #[error("the GPU's memory cannot be exported as a file descriptor")]
    NoFileDescriptors,
    /// The driver refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl Device {
    /// Checks that [`alloc_shareable`](Self::alloc_shareable) and [`import`](Self::import) work on
    /// this GPU. Makes no context call, so it may be used at any time.
    ///
    /// Whether one GPU reaches another's memory depends on both: [`import`](Self::import) finds
    /// out.
    ///
    /// # Errors
    /// [`NotShareable`] says why they do not.
    pub fn can_share(&self) -> Result<(), NotShareable> {
        if let Some(call) = self.cuda().driver().missing_virtual_memory_call() {
            return Err(NotShareable::MissingCall { found: self.cuda().driver_version(), call });
        }
        if self.attribute(DeviceAttribute::VirtualMemoryManagement)? == 0 {
            return Err(NotShareable::NoVirtualMemory);
        }
        if self.attribute(DeviceAttribute::HandleTypePosixFileDescriptor)? == 0 {
            return Err(NotShareable::NoFileDescriptors);
        }
        Ok(())
    }

    /// Allocates at least `len` bytes of GPU memory that can be exported, all zero.
    ///
    /// `len` is rounded up to whole pages of the GPU, 2 MiB each at the time of writing. Network
    /// cards can reach the memory where the GPU supports that.
    ///
    /// # Errors
    /// [`CudaError`]: out of memory, a length of 0, a GPU that cannot share
    /// ([`can_share`](Self::can_share)), or a context that a kernel broke.
    pub fn alloc_shareable(&self, len: usize) -> Result<ShareableBuffer, CudaError> {
        let rdma = self.shareable_is_for_network_cards();
        let (memory, address, len) = self.agent().run(move |context| {
            let (driver, device) = (context.driver(), context.device());
            let granularity = driver.memory_granularity(&AllocationProperties::shareable(device, rdma))?;
            // Beyond usize there is no memory either; the driver says so.
            let len = len.checked_next_multiple_of(granularity).unwrap_or(usize::MAX);
            let (memory, address) = create(driver, device, len, rdma)?.map(driver, device)?;
            Ok::<_, CudaError>((memory, address, len))
        })??;
        let handle = memory.handle();
        // Owned before it is zeroed: a failure gives it back.
        let buffer = GpuBuffer::own(self.clone(), address, len, Release::PhysicalMemory(memory));
        // The driver does not promise that the last owner's bytes are gone.
        buffer.zero()?;
        Ok(ShareableBuffer { buffer, handle })
    }

    /// Returns whether memory that is made to be shared is also made for network cards.
    pub(super) fn shareable_is_for_network_cards(&self) -> bool {
        self.attribute(DeviceAttribute::GpuDirectRdmaWithCudaVmm).is_ok_and(|value| value != 0)
    }
}

/// Makes memory that can be exported, which has no address yet.
pub(super) fn create(
    driver: &Driver,
    device: CUdevice,
    len: usize,
    rdma: bool,
) -> Result<PhysicalMemory, CudaError> {
    let handle = driver.memory_create(len, &AllocationProperties::shareable(device, rdma))?;
    Ok(PhysicalMemory::of(handle, len))
}

impl ShareableBuffer {
    /// Makes a descriptor of the memory, for [`Device::import`]; send it to another process over a
    /// Unix socket.
    ///
    /// Any process that holds it can read and write all of the memory, for as long as it holds it
    /// or a mapping. It is closed on exec.
    ///
    /// # Errors
    /// [`CudaError`]: no descriptor is free, or the context is broken.
    pub fn export(&self) -> Result<OwnedFd, CudaError> {
        let handle = self.handle;
        // SAFETY: `self` holds the buffer, and with it the handle, until the job is done.
        self.device()
            .agent()
            .run(move |context| unsafe { context.driver().memory_export(handle) })?
            .map(owned)
    }

    /// Returns the memory as a buffer, for [`Device::read`] and [`Device::write`]. A clone of it
    /// keeps the memory.
    pub fn buffer(&self) -> &GpuBuffer {
        &self.buffer
    }

    /// Returns the GPU's address of the first byte.
    pub fn ptr(&self) -> u64 {
        self.buffer.ptr()
    }

    /// Returns the length in bytes: what was asked for, rounded up. It is what an importer must be
    /// told.
    #[allow(clippy::len_without_is_empty, reason = "the driver allocates no empty buffer")]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the device that the memory is on.
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }
}
