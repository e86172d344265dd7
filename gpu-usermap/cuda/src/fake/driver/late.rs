//! The stand-in's functions for export, flush and linking.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd};

use super::{event, handle, put};
use crate::driver::raw::constants::{
    ERROR_NOT_SUPPORTED, FLUSH_TARGET_CURRENT_CONTEXT, FLUSH_TO_OWNER, JIT_THREADS_PER_BLOCK, SUCCESS,
};
use crate::driver::raw::{CUdeviceptr, CUresult, LinkHandle};

/// Exports a memfd in place of a dma-buf.
pub(super) unsafe extern "C" fn export(
    fd: *mut c_void,
    address: CUdeviceptr,
    len: usize,
    _: c_uint,
    flags: c_ulonglong,
) -> CUresult {
    if flags != 0 {
        return ERROR_NOT_SUPPORTED;
    }
    assert!(address.is_multiple_of(4096) && len.is_multiple_of(4096));
    let file = memfd(len);
    event("export");
    put(fd.cast::<c_int>(), file.into_raw_fd())
}

fn memfd(len: usize) -> File {
    // SAFETY: a plain system call with a NUL-terminated name.
    let fd = unsafe { libc::memfd_create(c"fake-dma-buf".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: just made, and nobody else knows it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len as u64).expect("a length");
    file
}

pub(super) unsafe extern "C" fn flush(target: c_uint, scope: c_uint) -> CUresult {
    assert_eq!(target, FLUSH_TARGET_CURRENT_CONTEXT);
    event(if scope == FLUSH_TO_OWNER { "flush to owner" } else { "flush to all" })
}

pub(super) unsafe extern "C" fn link_create(
    count: c_uint,
    names: *mut c_uint,
    values: *mut *mut c_void,
    link: *mut LinkHandle,
) -> CUresult {
    if count == 3 {
        // SAFETY: `driver` passes as many names as it says.
        assert_eq!(unsafe { names.wrapping_add(2).read() }, JIT_THREADS_PER_BLOCK);
        // SAFETY: and as many values.
        let threads = unsafe { values.wrapping_add(2).read() }.addr();
        event(if threads == 1024 { "link for 1024 threads" } else { "link for others" });
    }
    put(link, LinkHandle(handle()))
}

pub(super) unsafe extern "C" fn link_add_data(
    _: LinkHandle,
    _: c_uint,
    _: *mut c_void,
    _: usize,
    _: *const c_char,
    _: c_uint,
    _: *mut c_uint,
    _: *mut *mut c_void,
) -> CUresult {
    SUCCESS
}

pub(super) unsafe extern "C" fn link_complete(
    _: LinkHandle,
    image: *mut *mut c_void,
    len: *mut usize,
) -> CUresult {
    put(len, 8);
    put(image, handle())
}

pub(super) unsafe extern "C" fn link_destroy(_: LinkHandle) -> CUresult {
    SUCCESS
}
