//! Memory for kernels.

use crate::attachment::gpunet_host_attachment_t;
use crate::failure::{Failure, done};
use crate::handle::handles;
use crate::memory::{self, Out};
use gpunet_proxy::DeviceBuffer;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, PoisonError, RwLock};

/// A piece of a device's memory. Any thread may use it.
pub struct gpunet_host_buffer_t(());

handles! { gpunet_host_buffer_t, BUFFERS: BufferObject, 4, "buffer" }

pub(crate) struct BufferObject {
    buffer: RwLock<DeviceBuffer>,
}

fn within(buffer: &DeviceBuffer, offset: usize, len: usize) -> Result<(), Failure> {
    let end = offset.checked_add(len).filter(|&end| end <= buffer.len());
    let text = || format!("{len} bytes at {offset} are not inside the buffer of {} bytes", buffer.len());
    end.map(drop).ok_or_else(|| Failure::new(libc::EINVAL, text()))
}

/// Allocates `len` bytes of zeroed memory for kernels of the attachment's device: GPU memory, or
/// for the CPU device the heap. A program may as well use memory of its own (cudaMalloc, malloc).
///
/// On success `*buffer` is a handle that gpunet_host_buffer_free ends.
/// Errors: -EBADF; -ENOMEM; on a GPU also for 0 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_alloc(
    attachment: *const gpunet_host_attachment_t,
    len: usize,
    buffer: *mut *mut gpunet_host_buffer_t,
) -> c_int {
    done(|| {
        let out = Out::new(buffer, "buffer")?;
        let allocated =
            gpunet_host_attachment_t::of(attachment)?.with(|attachment| Ok(attachment.alloc(len)?))?;
        out.put(gpunet_host_buffer_t::new(Arc::new(BufferObject { buffer: RwLock::new(allocated) }))?);
        Ok(())
    })
}

/// Stores the buffer's address on its device, which a kernel takes as a pointer, and its length.
/// Either pointer may be NULL. The address is valid until gpunet_host_buffer_free.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_buffer_address(
    buffer: *const gpunet_host_buffer_t,
    address: *mut u64,
    len: *mut usize,
) -> c_int {
    done(|| {
        let object = gpunet_host_buffer_t::of(buffer)?;
        let buffer = object.buffer.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: only the address is taken; the caller promises what its kernels do with it.
        let place = unsafe { buffer.buffer() };
        memory::put_if_wanted(address, place.as_ptr() as u64);
        memory::put_if_wanted(len, place.len());
        Ok(())
    })
}

/// Copies `len` bytes from `data` to `offset` in the buffer. No kernel may be using these bytes.
/// `data` is read during the call only.
///
/// Errors: -EBADF; -EFAULT; -EINVAL when the range is not inside the buffer; -EIO with CUDA's
/// error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_buffer_write(
    buffer: *const gpunet_host_buffer_t,
    offset: usize,
    data: *const c_void,
    len: usize,
) -> c_int {
    done(|| {
        let object = gpunet_host_buffer_t::of(buffer)?;
        let bytes = memory::bytes(data, len)?;
        let mut buffer = object.buffer.write().unwrap_or_else(PoisonError::into_inner);
        within(&buffer, offset, len)?;
        Ok(buffer.write(offset, bytes)?)
    })
}

/// Copies `len` bytes at `offset` in the buffer to `data`. No kernel may be writing these bytes.
/// `data` is written during the call only.
///
/// Errors: as gpunet_host_buffer_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_buffer_read(
    buffer: *const gpunet_host_buffer_t,
    offset: usize,
    data: *mut c_void,
    len: usize,
) -> c_int {
    done(|| {
        let object = gpunet_host_buffer_t::of(buffer)?;
        let room = memory::room(data, len)?;
        let buffer = object.buffer.read().unwrap_or_else(PoisonError::into_inner);
        within(&buffer, offset, len)?;
        room.fill(MaybeUninit::new(0));
        // SAFETY: every byte was just written.
        let bytes = unsafe { &mut *(std::ptr::from_mut(room) as *mut [u8]) };
        Ok(buffer.read(offset, bytes)?)
    })
}

/// Frees the buffer. No kernel uses it any more.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_buffer_free(buffer: *mut gpunet_host_buffer_t) -> c_int {
    done(|| gpunet_host_buffer_t::take(buffer).map(drop))
}
