//! The stand-in's functions for memory that is shared: each is an event, and can be made to fail.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_uint, c_ulonglong, c_void};
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::sync::Mutex;

use super::{event, handle, lock, memory, put};
use crate::driver::raw::constants::{ERROR_INVALID_VALUE, SUCCESS};
use crate::driver::raw::{
    AccessDescriptor, AllocationProperties, Api, CUdevice, CUdeviceptr, CUresult, MemoryHandle,
};

/// What exported descriptors are open on, in place of the driver's control device.
pub(super) const EXPORTED: &CStr = c"/dev/null";

/// What sizes are a multiple of here.
pub(in crate::fake) const GRANULARITY: usize = 2 << 20;

/// The event at which the driver refuses, if any.
static FAILING: Mutex<Option<&'static str>> = Mutex::new(None);
/// Whether imported handles stand for something else than memory of a GPU.
static FOREIGN: Mutex<bool> = Mutex::new(false);
/// The length of what was created last, which is that of what is imported.
static LEN: Mutex<usize> = Mutex::new(0);
static SPACE: Mutex<Space> =
    Mutex::new(Space { handles: BTreeMap::new(), reserved: BTreeMap::new(), mapped: BTreeMap::new() });

/// Which handles there are, and their lengths; which addresses are reserved, and which have memory.
struct Space {
    handles: BTreeMap<u64, usize>,
    reserved: BTreeMap<CUdeviceptr, usize>,
    mapped: BTreeMap<CUdeviceptr, usize>,
}

/// The run that an address lies in, and its end.
fn run(runs: &BTreeMap<CUdeviceptr, usize>, address: CUdeviceptr) -> Option<(CUdeviceptr, CUdeviceptr)> {
    let (&start, &len) = runs.range(..=address).next_back()?;
    let end = start + len as CUdeviceptr;
    (address < end).then_some((start, end))
}

impl Space {
    /// Returns whether the whole range is inside one reservation, and nothing is mapped there.
    fn is_free(&self, address: CUdeviceptr, len: usize) -> bool {
        let end = address + len as CUdeviceptr;
        let is_reserved = run(&self.reserved, address).is_some_and(|(_, last)| end <= last);
        is_reserved
            && run(&self.mapped, address).is_none()
            && self.mapped.range(address..end).next().is_none()
    }
}

/// Returns whether a range can be accessed: all of it has memory, or none of it was reserved.
pub(super) fn is_accessible(address: CUdeviceptr, len: usize) -> bool {
    let (space, end) = (lock(&SPACE), address + len as CUdeviceptr);
    if run(&space.reserved, address).is_none() && space.reserved.range(address..end).next().is_none() {
        return true;
    }
    let mut at = address;
    while at < end {
        let Some((_, mapped)) = run(&space.mapped, at) else { return false };
        at = mapped;
    }
    true
}

/// Makes the call of that event fail from now on; `None` heals all.
pub(super) fn fail(step: Option<&'static str>) {
    *lock(&FAILING) = step;
}

pub(super) fn import_other_memory(other: bool) {
    *lock(&FOREIGN) = other;
}

pub(super) fn api() -> Api {
    Api {
        mem_create: Some(create),
        mem_release: Some(release),
        mem_address_reserve: Some(reserve),
        mem_address_free: Some(address_free),
        mem_map: Some(map),
        mem_unmap: Some(unmap),
        mem_set_access: Some(set_access),
        mem_export: Some(export),
        mem_import: Some(import),
        mem_granularity: Some(granularity),
        mem_properties: Some(properties),
        ..Api::refusing()
    }
}

fn step(name: &'static str) -> CUresult {
    if *lock(&FAILING) == Some(name) { ERROR_INVALID_VALUE } else { event(name) }
}

/// Takes a step whose result is `value`.
fn make<T>(name: &'static str, to: *mut T, value: T) -> CUresult {
    match step(name) {
        SUCCESS => put(to, value),
        refused => refused,
    }
}

pub(super) unsafe extern "C" fn uuid(to: *mut [u8; 16], device: CUdevice) -> CUresult {
    put(to, [device as u8 + 1; 16])
}

unsafe extern "C" fn granularity(to: *mut usize, _: *const AllocationProperties, _: c_uint) -> CUresult {
    put(to, GRANULARITY)
}

unsafe extern "C" fn create(
    to: *mut MemoryHandle,
    len: usize,
    properties: *const AllocationProperties,
    _: c_ulonglong,
) -> CUresult {
    // SAFETY: `driver` passes a structure of its own.
    assert!(unsafe { properties.read() }.is_device_memory());
    if len == 0 || !len.is_multiple_of(GRANULARITY) {
        return ERROR_INVALID_VALUE;
    }
    *lock(&LEN) = len;
    make("create", to, made_of(len))
}

/// A handle of so much memory.
fn made_of(len: usize) -> MemoryHandle {
    let made = handle() as u64;
    lock(&SPACE).handles.insert(made, len);
    MemoryHandle(made)
}

unsafe extern "C" fn release(released: MemoryHandle) -> CUresult {
    match lock(&SPACE).handles.remove(&released.0) {
        Some(_) => event("release"),
        None => ERROR_INVALID_VALUE,
    }
}

unsafe extern "C" fn reserve(
    to: *mut CUdeviceptr,
    len: usize,
    _: usize,
    _: CUdeviceptr,
    _: c_ulonglong,
) -> CUresult {
    match step("reserve") {
        SUCCESS => memory::allocate(len, 4096).map_or(ERROR_INVALID_VALUE, |address| {
            lock(&SPACE).reserved.insert(address, len);
            put(to, address)
        }),
        refused => refused,
    }
}

unsafe extern "C" fn address_free(address: CUdeviceptr, len: usize) -> CUresult {
    let mut space = lock(&SPACE);
    if space.reserved.get(&address) != Some(&len) || !space.is_free(address, len) {
        return ERROR_INVALID_VALUE;
    }
    space.reserved.remove(&address);
    memory::free(address);
    event("free addresses")
}

unsafe extern "C" fn map(
    address: CUdeviceptr,
    len: usize,
    offset: usize,
    memory: MemoryHandle,
    _: c_ulonglong,
) -> CUresult {
    let mut space = lock(&SPACE);
    if offset != 0 || space.handles.get(&memory.0) != Some(&len) || !space.is_free(address, len) {
        return ERROR_INVALID_VALUE;
    }
    let mapped = step("map");
    if mapped == SUCCESS {
        space.mapped.insert(address, len);
    }
    mapped
}

unsafe extern "C" fn unmap(address: CUdeviceptr, len: usize) -> CUresult {
    let mut space = lock(&SPACE);
    if space.mapped.get(&address) != Some(&len) {
        return ERROR_INVALID_VALUE;
    }
    space.mapped.remove(&address);
    event("unmap")
}

unsafe extern "C" fn set_access(
    address: CUdeviceptr,
    len: usize,
    _: *const AccessDescriptor,
    count: usize,
) -> CUresult {
    let is_mapped = lock(&SPACE).mapped.get(&address) == Some(&len);
    if count == 1 && is_mapped { step("set access") } else { ERROR_INVALID_VALUE }
}

/// Exports an open `/dev/null` in place of the driver's control device.
unsafe extern "C" fn export(fd: *mut c_void, _: MemoryHandle, _: c_uint, _: c_ulonglong) -> CUresult {
    let device = File::open("/dev/null").expect("every Linux has it");
    make("export", fd.cast::<c_int>(), device.into_raw_fd())
}

unsafe extern "C" fn import(to: *mut MemoryHandle, fd: *mut c_void, _: c_uint) -> CUresult {
    let open = std::path::Path::new(&format!("/proc/self/fd/{}", fd.addr())).exists();
    assert!(open, "the descriptor was closed before it was imported");
    let len = *lock(&LEN);
    make("import", to, made_of(len))
}

unsafe extern "C" fn properties(to: *mut AllocationProperties, _: MemoryHandle) -> CUresult {
    let mut found = AllocationProperties::shareable(0, false);
    if *lock(&FOREIGN) {
        found.location.kind = 2;
    }
    make("properties", to, found)
}
