//! Allocations that somebody else in this program has made (the runtime API, a framework's
//! allocator), named for other processes; and such allocations of other processes.

#![allow(unsafe_code, reason = "contexts, and a handle that it has retained")]

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{CudaStream, StreamError};
use crate::agent::Release;
use crate::device::Device;
use crate::driver::raw::IpcHandle;
use crate::driver::raw::constants::{
    ERROR_INVALID_VALUE, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
    POINTER_ATTRIBUTE_BUFFER_ID, POINTER_ATTRIBUTE_DEVICE_ORDINAL, POINTER_ATTRIBUTE_IS_LEGACY_IPC_CAPABLE,
};
use crate::driver::{CudaError, log};
use crate::memory::{GpuBuffer, owned};

/// One allocation of the driver in this process.
///
/// # Examples
/// ```no_run
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// # let (address, len) = (0, 0);
/// for allocation in gpu.allocations(address, len)? {
///     println!("{:#x}, {} bytes, number {}", allocation.base, allocation.len, allocation.id);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// The device address of its first byte.
    pub base: u64,
    /// Its length in bytes.
    pub len: usize,
    /// The driver's number of it (`CU_POINTER_ATTRIBUTE_BUFFER_ID`), which no other allocation of
    /// this process has or will have.
    pub id: u64,
    /// How other processes can get at it.
    pub kind: AllocationKind,
}

/// How other processes can get at an allocation.
///
/// # Examples
/// ```
/// use gpunet_cuda::AllocationKind;
///
/// assert_ne!(AllocationKind::Plain, AllocationKind::Private);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocationKind {
    /// By a handle of 64 bytes: memory of `cuMemAlloc`.
    Plain,
    /// By a file descriptor: memory of `cuMemCreate` that was made to be exported.
    Virtual,
    /// Not at all.
    Private,
}

/// A mapping of an allocation of another process ([`Device::open_ipc`]).
///
/// Clones share it. The last drop returns at once; the mapping is closed when no launch of the
/// device runs. It keeps the memory allocated, also after its owner has freed it.
///
/// # Examples
/// ```no_run
/// # fn example(gpu: &gpunet_cuda::Device, handle: gpunet_cuda::IpcHandle) -> Result<(), Box<dyn std::error::Error>> {
/// let mapped = gpu.open_ipc(handle, 1 << 20)?;
/// println!("here it lies at {:#x}", mapped.ptr());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct IpcBuffer(Arc<Mapped>);

#[derive(Debug)]
struct Mapped {
    buffer: GpuBuffer,
    handle: IpcHandle,
}

/// What is mapped now: a context can open a handle only once.
static OPEN: Mutex<Vec<Weak<Mapped>>> = Mutex::new(Vec::new());

impl Device {
    /// Returns the allocations over which a range of device memory lies, from its begin to its end.
    ///
    /// Any part of the program may have made them. The calls are made on the calling thread and do
    /// not wait for kernels.
    ///
    /// # Errors
    /// [`StreamError::DriverTooOld`]; [`StreamError::Cuda`]: at some address of the range there is
    /// no memory of CUDA, or the driver lacks a call.
    pub fn allocations(&self, address: u64, len: usize) -> Result<Vec<Allocation>, StreamError> {
        let (streams, driver) = (self.stream_calls()?, self.cuda().driver());
        // SAFETY: the device holds its context.
        let _current = unsafe { streams.enter(self.context()) }?;
        let end = address.saturating_add(len as u64);
        let (mut found, mut at) = (Vec::new(), address);
        while at < end {
            let (base, len) = driver.address_range(at)?;
            let number = |attribute| streams.pointer_number(attribute, at);
            let kind = if number(POINTER_ATTRIBUTE_IS_LEGACY_IPC_CAPABLE)? as u32 != 0 {
                AllocationKind::Plain
            } else if number(POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES)? as u32
                & HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                != 0
            {
                AllocationKind::Virtual
            } else {
                AllocationKind::Private
            };
            found.push(Allocation { base, len, id: number(POINTER_ATTRIBUTE_BUFFER_ID)?, kind });
            let next = base.saturating_add(len as u64);
            if next <= at {
                // A fault of the driver; the walk would never end.
                return Err(driver.error("cuMemGetAddressRange", 0).into());
            }
            at = next;
        }
        Ok(found)
    }

    /// Returns on which GPU the memory at an address is, by its number
    /// ([`ordinal`](Self::ordinal)).
    ///
    /// # Errors
    /// As [`allocations`](Self::allocations).
    pub fn location_of(&self, address: u64) -> Result<u32, StreamError> {
        let streams = self.stream_calls()?;
        // SAFETY: the device holds its context.
        let _current = unsafe { streams.enter(self.context()) }?;
        Ok(streams.pointer_number(POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)? as u32)
    }

    /// Returns the name of an allocation of [`AllocationKind::Plain`] for other processes of this
    /// user. Whoever has it can read and write all of the allocation.
    ///
    /// # Errors
    /// As [`allocations`](Self::allocations).
    pub fn ipc_handle(&self, allocation: &Allocation) -> Result<IpcHandle, StreamError> {
        let (streams, driver) = (self.stream_calls()?, self.cuda().driver());
        // SAFETY: the device holds its context.
        let _current = unsafe { streams.enter(self.context()) }?;
        Ok(driver.ipc_handle(allocation.base)?)
    }

    /// Makes a descriptor of an allocation of [`AllocationKind::Virtual`], for
    /// [`import`](Self::import).
    ///
    /// # Errors
    /// As [`allocations`](Self::allocations).
    pub fn export_allocation(&self, allocation: &Allocation) -> Result<OwnedFd, StreamError> {
        let (streams, driver) = (self.stream_calls()?, self.cuda().driver());
        // SAFETY: the device holds its context.
        let _current = unsafe { streams.enter(self.context()) }?;
        let handle = driver.memory_retain(allocation.base)?;
        // SAFETY: retained above.
        let exported = unsafe { driver.memory_export(handle) };
        // SAFETY: as above, and not used afterwards; the memory stays, as its owner has it.
        log(unsafe { driver.memory_release(handle) });
        Ok(exported.map(owned)?)
    }

    /// Maps an allocation of another process, of `len` bytes, by its name there.
    ///
    /// The call is made whether a launch runs or not. One handle is mapped once: a further call
    /// returns the same mapping.
    ///
    /// # Errors
    /// [`CudaError`]: the handle is of this process, is invalid, or its owner is gone; the
    /// allocation is shorter than `len`.
    pub fn open_ipc(&self, handle: IpcHandle, len: usize) -> Result<IpcBuffer, CudaError> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|mapped| mapped.strong_count() > 0);
        let same = |mapped: &Arc<Mapped>| mapped.handle == handle && self.is(mapped.buffer.device());
        if let Some(mapped) = open.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(IpcBuffer(mapped));
        }
        let address = self.agent().run(move |context| {
            let driver = context.driver();
            let address = driver.ipc_open(handle)?;
            // A driver that does not tell refuses the copies that are too long.
            let is_short = driver
                .address_range(address)
                .is_ok_and(|(base, found)| base.checked_add(found as u64) < address.checked_add(len as u64));
            if is_short {
                // SAFETY: opened above, and nobody knows the address.
                log(unsafe { driver.ipc_close(address) });
                return Err(driver.error("cuIpcOpenMemHandle of a shorter allocation", ERROR_INVALID_VALUE));
            }
            Ok(address)
        })??;
        let buffer = GpuBuffer::own(self.clone(), address, len, Release::Foreign(address));
        let mapped = Arc::new(Mapped { buffer, handle });
        open.push(Arc::downgrade(&mapped));
        Ok(IpcBuffer(mapped))
    }

    /// Returns whether kernels that were launched on this device run now, or work is on one of its
    /// streams.
    ///
    /// # Errors
    /// [`CudaError`]: the agent has ended.
    pub fn is_busy(&self) -> Result<bool, CudaError> {
        self.has_more_than(0)
    }

    /// Whether something runs beside `own` streams with work on them.
    fn has_more_than(&self, own: usize) -> Result<bool, CudaError> {
        if self.busy_streams().is_quiet(own) {
            return Ok(false);
        }
        self.agent().run(move |context| context.is_busy(own))
    }
}

impl CudaStream {
    /// As [`Device::is_busy`], but the work on this stream does not count.
    ///
    /// # Errors
    /// As for [`Device::is_busy`].
    pub fn is_device_busy_otherwise(&self) -> Result<bool, CudaError> {
        let own = usize::from(self.inner.activity.is_counted());
        self.device().has_more_than(own)
    }
}

impl IpcBuffer {
    /// Returns this GPU's address of the first byte.
    #[must_use]
    pub fn ptr(&self) -> u64 {
        self.0.buffer.ptr()
    }

    /// Returns the length in bytes that was said when it was opened.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "the driver allocates no empty buffer")]
    pub fn len(&self) -> usize {
        self.0.buffer.len()
    }
}
