//! The stand-in's device memory: zeroed memory of the host.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::sync::Mutex;

use super::{event, lock, put, unless_refused};
use crate::driver::raw::constants::{ERROR_INVALID_VALUE, SUCCESS};
use crate::driver::raw::{CUdeviceptr, CUresult};

/// How the driver aligns small allocations.
const ALIGNMENT: usize = 256;

static ALLOCATIONS: Mutex<BTreeMap<CUdeviceptr, Layout>> = Mutex::new(BTreeMap::new());

/// Allocates zeroed bytes; `None` where there are not so many, or none were asked for.
pub(super) fn allocate(len: usize, alignment: usize) -> Option<CUdeviceptr> {
    let layout = Layout::from_size_align(len, alignment).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the size is not 0.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return None;
    }
    let address = memory.expose_provenance() as CUdeviceptr;
    lock(&ALLOCATIONS).insert(address, layout);
    Some(address)
}

/// Frees what was allocated at `address`.
pub(super) fn free(address: CUdeviceptr) {
    let layout = lock(&ALLOCATIONS).remove(&address).expect("memory that was allocated and not freed");
    // SAFETY: of `allocate`, and no longer in the table.
    unsafe { dealloc(pointer(address), layout) };
}

/// Returns the host's pointer to device memory or registered memory.
pub(super) fn pointer<T>(address: CUdeviceptr) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

pub(super) unsafe extern "C" fn mem_alloc(address: *mut CUdeviceptr, len: usize) -> CUresult {
    unless_refused(|| allocate(len, ALIGNMENT).map_or(ERROR_INVALID_VALUE, |memory| put(address, memory)))
}

/// The driver knows what was allocated; registered memory of the host is left out here.
pub(super) unsafe extern "C" fn pointer_attribute(
    kind: *mut c_void,
    _: c_uint,
    address: CUdeviceptr,
) -> CUresult {
    let allocations = lock(&ALLOCATIONS);
    let before = allocations.range(..=address).next_back();
    if before.is_some_and(|(base, layout)| address - base < layout.size() as CUdeviceptr) {
        put(kind.cast(), 2 as c_uint)
    } else {
        ERROR_INVALID_VALUE
    }
}

pub(super) unsafe extern "C" fn mem_free(address: CUdeviceptr) -> CUresult {
    free(address);
    event("free")
}

/// Registered memory has one address everywhere.
pub(super) unsafe extern "C" fn mem_host_get_device_pointer(
    address: *mut CUdeviceptr,
    base: *mut c_void,
    _: u32,
) -> CUresult {
    put(address, base.expose_provenance() as CUdeviceptr)
}

pub(super) unsafe extern "C" fn mem_host_alloc(memory: *mut *mut c_void, len: usize, _: u32) -> CUresult {
    unless_refused(|| match allocate(len, ALIGNMENT) {
        Some(address) => put(memory, pointer(address)),
        None => ERROR_INVALID_VALUE,
    })
}

pub(super) unsafe extern "C" fn mem_free_host(memory: *mut c_void) -> CUresult {
    free(memory.addr() as CUdeviceptr);
    SUCCESS
}
