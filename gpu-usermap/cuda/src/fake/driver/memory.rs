//! The stand-in's device memory: zeroed memory of the host.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{event, lock, put, unless_refused};
use crate::driver::raw::constants::{
    ERROR_INVALID_VALUE, POINTER_ATTRIBUTE_BUFFER_ID, POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    POINTER_ATTRIBUTE_IS_LEGACY_IPC_CAPABLE, SUCCESS,
};
use crate::driver::raw::{CUdeviceptr, CUresult, IpcHandle};

/// How the driver aligns small allocations.
const ALIGNMENT: usize = 256;

static ALLOCATIONS: Mutex<BTreeMap<CUdeviceptr, Allocation>> = Mutex::new(BTreeMap::new());

/// Numbers of allocations, none of which is given twice.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The number of the GPU on which memory is allocated.
static LOCATION: AtomicU32 = AtomicU32::new(0);

/// What is mapped of other processes: the address, and the number of the allocation.
static OPENED: Mutex<Vec<(CUdeviceptr, u64)>> = Mutex::new(Vec::new());

/// `CUDA_ERROR_ALREADY_MAPPED`
const ERROR_ALREADY_MAPPED: CUresult = 208;

#[derive(Clone, Copy)]
struct Allocation {
    layout: Layout,
    id: u64,
    location: u32,
}

/// Allocates zeroed bytes; `None` where there are not so many, or none were asked for.
pub(super) fn allocate(len: usize, alignment: usize) -> Option<CUdeviceptr> {
    let layout = Layout::from_size_align(len, alignment).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the size is not 0.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return None;
    }
    let address = memory.expose_provenance() as CUdeviceptr;
    let id = NEXT_ID.fetch_add(1, Ordering::SeqCst);
    let location = LOCATION.load(Ordering::SeqCst);
    lock(&ALLOCATIONS).insert(address, Allocation { layout, id, location });
    Some(address)
}

/// Says on which GPU memory is allocated from now on.
pub(super) fn locate(ordinal: u32) {
    LOCATION.store(ordinal, Ordering::SeqCst);
}

/// Frees what was allocated at `address`.
pub(super) fn free(address: CUdeviceptr) {
    let freed = lock(&ALLOCATIONS).remove(&address).expect("memory that was allocated and not freed");
    // SAFETY: of `allocate`, and no longer in the table.
    unsafe { dealloc(pointer(address), freed.layout) };
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
    value: *mut c_void,
    attribute: c_uint,
    address: CUdeviceptr,
) -> CUresult {
    let Some((_, found)) = find(address) else { return ERROR_INVALID_VALUE };
    match attribute {
        POINTER_ATTRIBUTE_BUFFER_ID => put(value.cast(), found.id),
        POINTER_ATTRIBUTE_IS_LEGACY_IPC_CAPABLE => put(value.cast(), 1 as c_uint),
        POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(value.cast(), found.location),
        _ => put(value.cast(), 2 as c_uint),
    }
}

/// The allocation in which an address lies, and where it begins.
fn find(address: CUdeviceptr) -> Option<(CUdeviceptr, Allocation)> {
    let allocations = lock(&ALLOCATIONS);
    let (&base, &found) = allocations.range(..=address).next_back()?;
    (address - base < found.layout.size() as CUdeviceptr).then_some((base, found))
}

pub(super) unsafe extern "C" fn address_range(
    base: *mut CUdeviceptr,
    len: *mut usize,
    address: CUdeviceptr,
) -> CUresult {
    let Some((begin, found)) = find(address) else { return ERROR_INVALID_VALUE };
    put(len, found.layout.size());
    put(base, begin)
}

/// A handle is the address and the number, and is of use in this process: what is called another
/// one is a test's other half.
pub(super) unsafe extern "C" fn ipc_get_handle(handle: *mut IpcHandle, address: CUdeviceptr) -> CUresult {
    let Some((base, found)) = find(address) else { return ERROR_INVALID_VALUE };
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&base.to_ne_bytes());
    bytes[8..16].copy_from_slice(&found.id.to_ne_bytes());
    put(handle, IpcHandle(bytes))
}

pub(super) unsafe extern "C" fn ipc_open_handle(
    address: *mut CUdeviceptr,
    handle: IpcHandle,
    _: c_uint,
) -> CUresult {
    let number = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| handle.0[at + byte]));
    let (base, id) = (number(0), number(8));
    if find(base).is_none_or(|(begin, found)| (begin, found.id) != (base, id)) {
        return ERROR_INVALID_VALUE;
    }
    let mut opened = lock(&OPENED);
    if opened.contains(&(base, id)) {
        return ERROR_ALREADY_MAPPED;
    }
    opened.push((base, id));
    event("open ipc");
    put(address, base)
}

pub(super) unsafe extern "C" fn ipc_close_handle(address: CUdeviceptr) -> CUresult {
    let mut opened = lock(&OPENED);
    match opened.iter().position(|&(base, _)| base == address) {
        Some(at) => {
            opened.remove(at);
            event("close ipc")
        }
        None => ERROR_INVALID_VALUE,
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
