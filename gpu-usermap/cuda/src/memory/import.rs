//! Memory that another process, or another GPU of this process, has exported.

#![allow(unsafe_code, reason = "asks what a descriptor is, and what a handle is")]

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::buffer::GpuBuffer;
use crate::agent::{Context, PhysicalMemory, Release};
use crate::device::Device;
use crate::driver::raw::{AllocationProperties, CUdeviceptr, MemoryHandle};
use crate::driver::{CudaError, Driver};

/// The largest length that an import accepts, in bytes: more than any GPU has.
const LONGEST: usize = 1 << 40;

/// A mapping of memory that was exported
/// ([`ShareableBuffer::export`](crate::ShareableBuffer::export)).
///
/// The memory stays, and kernels of this device may use it, even after the exporter's process was
/// killed. Its contents are the exporter's to change at any time.
///
/// Clones share it. The last drop returns at once; the memory is unmapped when no launch of the
/// device runs.
///
/// # Examples
/// ```no_run
/// # fn import(gpu: &gpunet_cuda::Device, fd: std::os::fd::OwnedFd, len: usize) -> Result<(), Box<dyn std::error::Error>> {
/// // The descriptor and the length come from the exporter.
/// let imported = gpu.import(fd, len)?;
/// println!("memory of GPU {:?}, for kernels at {:#x}", imported.location(), imported.ptr());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ImportedBuffer {
    buffer: GpuBuffer,
    location: Option<u32>,
}

/// Why memory could not be imported.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::ImportError;
///
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// let file = std::fs::File::open("/etc/hostname")?;
/// let refused = gpu.import(file.into(), 2 << 20);
/// assert!(matches!(refused, Err(ImportError::NotExported { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The length cannot be that of exported memory.
    #[error(
        "{len} bytes are not the length of exported memory: a multiple of {granularity}, at most {LONGEST}"
    )]
    Length {
        /// The length that was given.
        len: usize,
        /// What it must be a multiple of.
        granularity: usize,
    },
    /// The descriptor is none of the NVIDIA driver's. It was not given to the driver.
    #[error("the descriptor is {found}, and not exported GPU memory")]
    NotExported {
        /// What it is.
        found: String,
    },
    /// The descriptor is of the driver, and what it stands for is not memory of a GPU.
    #[error(
        "the descriptor stands for memory of type {kind} at a location of type {location}, and not for GPU memory"
    )]
    OtherMemory {
        /// The `CUmemAllocationType`.
        kind: u32,
        /// The `CUmemLocationType`.
        location: u32,
    },
    /// The driver refused. `cuMemMap`: the length is not the memory's. `cuMemSetAccess`: this GPU
    /// cannot reach the memory. `cuMemImportFromShareableHandle`: nothing, or no memory, was
    /// exported to the descriptor.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Tells descriptors of memory that a GPU's driver has exported from all others. It keeps no
/// device.
///
/// # Examples
/// ```no_run
/// # fn example(gpu: &gpunet_cuda::Device, fd: std::os::fd::BorrowedFd<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// gpu.export_check().check(fd)?; // it can be passed on: its close cannot block as that of a socket can
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ExportCheck(&'static CStr);

impl ExportCheck {
    /// Checks that a descriptor is one that the driver exports. Does not wait for whoever serves
    /// the file.
    ///
    /// # Errors
    /// [`ImportError::NotExported`].
    pub fn check(self, fd: BorrowedFd<'_>) -> Result<(), ImportError> {
        check_descriptor(fd, self.0)
    }
}

impl Device {
    /// Returns the check by which [`import`](Self::import) knows descriptors of exported memory.
    #[must_use]
    pub fn export_check(&self) -> ExportCheck {
        ExportCheck(self.cuda().driver().exported())
    }

    /// Maps memory that was exported, so that this device's kernels can use it. `len` is what the
    /// exporter says its length is.
    ///
    /// Neither the descriptor nor the length needs to be trusted: a descriptor of anything else is
    /// refused, and so is a length that is not the memory's; the driver refuses longer and shorter
    /// ones alike. The memory's contents are not to be trusted either.
    ///
    /// It may be memory of another GPU: this device's accesses then go over NVLink or PCIe, without
    /// any further call. Both ends synchronise at system scope.
    ///
    /// # Errors
    /// [`ImportError`] says which of the two is wrong, or what the driver refused. Nothing of it
    /// stays mapped.
    pub fn import(&self, fd: OwnedFd, len: usize) -> Result<ImportedBuffer, ImportError> {
        self.export_check().check(fd.as_fd())?;
        // The descriptor comes back, to be closed here: that takes 40 ms while a kernel that fills
        // the owner's GPU polls the host, and the agent has other things to do.
        let (_fd, imported) = self.agent().run(move |context| {
            let imported = import(context, fd.as_fd(), len);
            (fd, imported)
        })?;
        let Imported { memory, address, location } = imported?;
        let buffer = GpuBuffer::own(self.clone(), address, len, Release::PhysicalMemory(memory));
        Ok(ImportedBuffer { buffer, location })
    }
}

/// What the agent made of a descriptor.
struct Imported {
    memory: PhysicalMemory,
    address: CUdeviceptr,
    location: Option<u32>,
}

fn import(context: &Context, fd: BorrowedFd<'_>, len: usize) -> Result<Imported, ImportError> {
    let (memory, location) = take(context, fd, len)?;
    let (memory, address) = memory.map(context.driver(), context.device())?;
    Ok(Imported { memory, address, location })
}

/// Takes the memory of a descriptor of the driver, and the number of the GPU on which it is, if
/// that has one in this process. It has no address yet.
pub(super) fn take(
    context: &Context,
    fd: BorrowedFd<'_>,
    len: usize,
) -> Result<(PhysicalMemory, Option<u32>), ImportError> {
    let driver = context.driver();
    let properties = AllocationProperties::shareable(context.device(), false);
    check_len(len, driver.memory_granularity(&properties)?)?;
    let handle = driver.memory_import(fd)?;
    let memory = PhysicalMemory::of(handle, len);
    match locate(driver, handle) {
        Ok(location) => Ok((memory, location)),
        Err(error) => {
            memory.undo(driver);
            Err(error)
        }
    }
}

/// Checks that it is memory of a GPU, and returns the GPU's number, if it has one in this process.
fn locate(driver: &Driver, handle: MemoryHandle) -> Result<Option<u32>, ImportError> {
    // SAFETY: just imported.
    let properties = unsafe { driver.memory_properties(handle) }?;
    if !properties.is_device_memory() {
        return Err(ImportError::OtherMemory { kind: properties.kind, location: properties.location.kind });
    }
    Ok(u32::try_from(properties.location.id).ok())
}

fn check_len(len: usize, granularity: usize) -> Result<(), ImportError> {
    if len == 0 || len > LONGEST || !len.is_multiple_of(granularity) {
        return Err(ImportError::Length { len, granularity });
    }
    Ok(())
}

/// Checks that the descriptor is one that the driver exports: an open file of its control device.
fn check_descriptor(fd: BorrowedFd<'_>, exported: &CStr) -> Result<(), ImportError> {
    let describe =
        |error: io::Error| ImportError::NotExported { found: format!("not to be examined ({error})") };
    let found = identify(fd, c"").map_err(describe)?;
    // SAFETY: AT_FDCWD is no descriptor that could be closed; it stands for the working directory
    // forever.
    let here = unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) };
    let exported = identify(here, exported).map_err(describe)?;
    if found == exported {
        return Ok(());
    }
    Err(ImportError::NotExported { found: name(found, fd) })
}

/// What kind of file it is, and for a device which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    kind: u32,
    device: (u32, u32),
}

/// Examines the file at `path`, or the one that `fd` is open on if the path is empty.
///
/// It takes what the kernel knows (`AT_STATX_DONT_SYNC`): a peer may have sent a file of a file
/// system that it serves itself (FUSE), and would let a plain `fstat` wait forever.
fn identify(fd: BorrowedFd<'_>, path: &CStr) -> io::Result<Identity> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is NUL-terminated, and the kernel fills in the structure.
    let code =
        unsafe { libc::statx(fd.as_raw_fd(), path.as_ptr(), flags, libc::STATX_TYPE, found.as_mut_ptr()) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, which is valid for its integers, and filled in.
    let found = unsafe { found.assume_init() };
    let kind = u32::from(found.stx_mode) & libc::S_IFMT;
    Ok(Identity { kind, device: (found.stx_rdev_major, found.stx_rdev_minor) })
}

fn name(found: Identity, fd: BorrowedFd<'_>) -> String {
    let (major, minor) = found.device;
    let kind = match found.kind {
        libc::S_IFREG => "a file".to_owned(),
        libc::S_IFDIR => "a directory".to_owned(),
        libc::S_IFIFO => "a pipe".to_owned(),
        libc::S_IFSOCK => "a socket".to_owned(),
        libc::S_IFCHR => format!("the character device {major}:{minor}"),
        libc::S_IFBLK => format!("the block device {major}:{minor}"),
        _ => "an object without a type".to_owned(),
    };
    // The link is for people only: a peer can call its file what it likes.
    match std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())) {
        Ok(link) => format!("{kind} ({link:?})"),
        Err(_) => kind,
    }
}

impl ImportedBuffer {
    /// Returns the memory as a buffer, for [`Device::read`] and [`Device::write`]. A clone of it
    /// keeps the mapping.
    pub fn buffer(&self) -> &GpuBuffer {
        &self.buffer
    }

    /// Returns the address of the first byte for kernels of [`device`](Self::device).
    pub fn ptr(&self) -> u64 {
        self.buffer.ptr()
    }

    /// Returns the length in bytes, as it was given.
    #[allow(clippy::len_without_is_empty, reason = "an empty import is refused")]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the device whose kernels may use it.
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// Returns the number ([`Device::ordinal`]) of the GPU whose memory it is; `None` if this
    /// process does not see that GPU (`CUDA_VISIBLE_DEVICES`), which the mapping does not need.
    pub fn location(&self) -> Option<u32> {
        self.location
    }
}
