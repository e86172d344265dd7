//! The device's own memory: GPU memory, or the heap for the CPU device.

pub use crate::model::error::AllocError;

use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{CopyError, Device, GpuBuffer};
use gpu_usermap::region::check_room;
use gpunet_abi::Word;
use gpunet_abi::region::Region;
use gpunet_device::Buffer;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Memory that kernels of one device use.
#[derive(Debug)]
pub(crate) enum DeviceMemory {
    Heap(Heap),
    /// Of the CPU device, where network cards are to reach it as they would a GPU's.
    Region(Arc<PinnedRegion>),
    Gpu(Arc<GpuBuffer>),
}

/// Page-aligned, zeroed heap memory.
#[derive(Debug)]
pub(crate) struct Heap {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory; the rules of the rings and words in it settle which agent writes where.
unsafe impl Send for Heap {}
// SAFETY: as above: no method reads or writes through `&self` but `Heap::copy_*`, whose callers own
// the bytes they name.
unsafe impl Sync for Heap {}

impl Heap {
    /// `None` if the machine does not have the memory, or this process may not have it.
    fn new(len: usize) -> Option<Self> {
        // The system gives addresses freely, and ends the process that writes to more of them than
        // there is memory.
        check_room(len).ok()?;
        // Not empty: an allocation has at least a byte.
        let layout = Layout::from_size_align(len.max(1), 4096).ok()?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { base, layout })
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl DeviceMemory {
    pub(crate) fn heap(len: usize) -> Result<Self, AllocError> {
        Heap::new(len).map(Self::Heap).ok_or(AllocError::Host { len })
    }

    pub(crate) fn gpu(device: &Device, len: usize) -> Result<Arc<GpuBuffer>, AllocError> {
        device.alloc(len).map(Arc::new).map_err(|source| AllocError::Cuda { len, source })
    }

    /// Zeroed memory of the device: `None` is the CPU.
    pub(crate) fn of(device: Option<&Device>, len: usize) -> Result<Self, AllocError> {
        Ok(match device {
            Some(device) => Self::Gpu(Self::gpu(device, len)?),
            None => Self::heap(len)?,
        })
    }

    /// The address in the device's address space.
    pub(crate) fn address(&self) -> u64 {
        match self {
            Self::Heap(heap) => heap.base.as_ptr() as u64,
            Self::Region(region) => region.base().as_ptr() as u64,
            Self::Gpu(buffer) => buffer.ptr(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Heap(heap) => heap.layout.size(),
            Self::Region(region) => region.len(),
            Self::Gpu(buffer) => buffer.len(),
        }
    }

    /// Checks that a range is inside this memory.
    fn check(&self, offset: usize, len: usize) -> Result<(), CopyError> {
        let size = self.len();
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(CopyError::OutOfBounds { offset, len, size }),
        }
    }

    /// Copies `bytes` to `offset`.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), CopyError> {
        if let Self::Gpu(buffer) = self {
            return buffer.device().write(buffer, offset, bytes);
        }
        self.check(offset, bytes.len())?;
        let to = (self.address() as *mut u8).wrapping_add(offset);
        // SAFETY: the range lies inside the allocation or mapping (checked), and a caller writes
        // only where no kernel works at that time; `bytes` is the caller's and cannot overlap it.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies from `offset` into `bytes`.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), CopyError> {
        if let Self::Gpu(buffer) = self {
            return buffer.device().read(buffer, offset, bytes);
        }
        self.check(offset, bytes.len())?;
        let from = (self.address() as *const u8).wrapping_add(offset);
        // SAFETY: as in `write`; a caller reads only where no kernel works at that time.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }
}

impl DeviceMemory {
    /// Enters a region in the device's table, at `offset`. Kernels may be looking at the table.
    pub(crate) fn enter_region(&self, offset: usize, region: &Region) -> Result<(), CopyError> {
        self.check(offset, size_of::<Region>())?;
        if let Self::Gpu(_) = self {
            // The copy engine may write the entry in any order: no kernel reads it before the proxy
            // names the region, which is after this call.
            return self.write(offset, bytes_of(region));
        }
        let entry = (self.address() as *mut u8).wrapping_add(offset).cast::<Region>();
        // SAFETY: three words inside the allocation (checked), aligned by the layout; everybody
        // accesses them atomically.
        let (base, len, flags) = unsafe {
            (
                Word::from_ptr(&raw mut (*entry).base),
                Word::from_ptr(&raw mut (*entry).len),
                Word::from_ptr(&raw mut (*entry).flags),
            )
        };
        // A thread that has seen the flags of an entry before its removal loads the base next: so
        // the base stays unchanged.
        if region.flags & Region::VALID != 0 {
            base.set(region.base);
            len.set(region.len);
        }
        // Pairs with the device's observe of the flags.
        flags.publish(region.flags);
        Ok(())
    }
}

/// A word of the device's table, which kernels access atomically while the host does.
pub(crate) trait TableWord: Copy {
    /// Its bytes, one after another, are the words of a table.
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;
    /// Loads the word at `from` in this process's memory.
    ///
    /// # Safety
    /// `from` is aligned and mapped, and everybody accesses it atomically.
    unsafe fn load(from: *mut Self) -> Self;
    /// Stores a word at `to`.
    ///
    /// # Safety
    /// As [`TableWord::load`].
    unsafe fn store(to: *mut Self, value: Self);
}

macro_rules! table_word {
    ($word:ty, $atomic:ty) => {
        impl TableWord for $word {
            fn from_bytes(bytes: &[u8]) -> Vec<Self> {
                let words = bytes.chunks_exact(size_of::<Self>());
                words
                    .map(|word| word.iter().rev().fold(0, |value, &byte| value << 8 | Self::from(byte)))
                    .collect()
            }
            unsafe fn load(from: *mut Self) -> Self {
                // SAFETY: the caller's contract. Ordering: SeqCst, with the fence in `store`: pairs
                // with the fence of a thread that notes itself as a user and looks at the state
                // again.
                unsafe { <$atomic>::from_ptr(from) }.load(Ordering::SeqCst)
            }
            unsafe fn store(to: *mut Self, value: Self) {
                // SAFETY: the caller's contract. Ordering: SeqCst, as in `load`.
                unsafe { <$atomic>::from_ptr(to) }.store(value, Ordering::SeqCst);
                fence(Ordering::SeqCst);
            }
        }
    };
}
table_word!(u32, AtomicU32);
table_word!(u64, AtomicU64);

impl DeviceMemory {
    /// Loads `count` words of a table at `offset`. Kernels may be changing them.
    pub(crate) fn load_words<T: TableWord>(&self, offset: usize, count: usize) -> Result<Vec<T>, CopyError> {
        let len = count * size_of::<T>();
        if let Self::Gpu(_) = self {
            let mut bytes = vec![0; len];
            self.read(offset, &mut bytes)?;
            return Ok(T::from_bytes(&bytes));
        }
        self.check(offset, len)?;
        let first = (self.address() as *mut u8).wrapping_add(offset).cast::<T>();
        // SAFETY: words inside the allocation (checked), aligned by the layout; kernels access the
        // tables that the host reads atomically.
        Ok((0..count).map(|at| unsafe { T::load(first.wrapping_add(at)) }).collect())
    }

    /// Stores words of a table at `offset`. Kernels may be looking at them.
    ///
    /// A later load returns a value from after the store: the copy engine works in order, and the
    /// CPU executes a fence.
    pub(crate) fn store_words<T: TableWord>(&self, offset: usize, words: &[T]) -> Result<(), CopyError> {
        let len = size_of_val(words);
        if let Self::Gpu(_) = self {
            // SAFETY: integers have no padding.
            let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), len) };
            return self.write(offset, bytes);
        }
        self.check(offset, len)?;
        let first = (self.address() as *mut u8).wrapping_add(offset).cast::<T>();
        for (at, &word) in words.iter().enumerate() {
            // SAFETY: as in `load_words`.
            unsafe { T::store(first.wrapping_add(at), word) };
        }
        Ok(())
    }
}

/// The bytes of a plain structure for the device.
pub(crate) fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: any `T: Copy` can be viewed as bytes for a copy to the device; this is used for
    // `#[repr(C)]` structures without padding that is read.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Memory for kernels to work in: message buffers, results. Zeroed.
///
/// # Examples
/// ```
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let mut buffer = attachment.alloc(8)?;
/// buffer.write(4, b"ring")?;
/// let mut bytes = [1; 8];
/// buffer.read(0, &mut bytes)?;
/// assert_eq!(&bytes, b"\0\0\0\0ring");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DeviceBuffer {
    memory: DeviceMemory,
}

impl DeviceBuffer {
    pub(crate) fn new(device: Option<&Device>, len: usize) -> Result<Self, AllocError> {
        Ok(Self { memory: DeviceMemory::of(device, len)? })
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the buffer as kernels take it.
    ///
    /// # Safety
    /// The kernels that are given it end before this value is dropped, and no two groups use the
    /// same bytes at a time unless both only send them.
    #[must_use]
    pub unsafe fn buffer(&self) -> Buffer {
        // SAFETY: the memory is mapped in the device's address space while `self` lives; the rest
        // is the caller's promise.
        unsafe { Buffer::from_raw_parts(self.memory.address() as *mut u8, self.len()) }
    }

    /// Copies `bytes` to `offset`. No kernel may be using these bytes.
    ///
    /// # Errors
    /// [`CopyError::OutOfBounds`], if the range is not inside the buffer; others, when CUDA fails.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), CopyError> {
        self.memory.write(offset, bytes)
    }

    /// Copies from `offset` into `bytes`. No kernel may be writing these bytes.
    ///
    /// # Errors
    /// [`CopyError::OutOfBounds`], if the range is not inside the buffer; others, when CUDA fails.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), CopyError> {
        self.memory.read(offset, bytes)
    }
}
