//! The stand-in's functions. C functions carry no state, so it is static, and tests take turns.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cuda::driver::Driver;
use crate::cuda::raw::constants::{ERROR_NOT_READY, FUNC_LOCAL_SIZE_BYTES, LIMIT_STACK_SIZE, SUCCESS};
use crate::cuda::raw::{
    Api, CUdevice, CUdeviceptr, CUresult, ContextHandle, FunctionHandle, ModuleHandle, StreamHandle,
};
use crate::cuda::{Cuda, DriverVersion};

mod late;
mod sharing;

pub(super) use sharing::GRANULARITY;

use late::{export, flush, link_add_data, link_complete, link_create, link_destroy};

pub(super) const BLOCKS_PER_SM: u32 = 2;

thread_local! {
    /// Whether this test holds the turn already: a test may make several drivers.
    static MINE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}
static TURN: Mutex<()> = Mutex::new(());
static EVENTS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
static BUSY_STREAMS: Mutex<Option<HashSet<usize>>> = Mutex::new(None);
static NEXT_HANDLE: AtomicUsize = AtomicUsize::new(1);
/// The device attribute that is 0 instead of 8.
static LACKING: AtomicI32 = AtomicI32::new(NOTHING);
const NOTHING: c_int = -1;
static FAULT: AtomicU32 = AtomicU32::new(SUCCESS);

/// Stack of a thread: what each has from the start, and what all kernels but `deep` need.
const STACK_BYTES: c_int = 1024;
static STACK_LIMIT: AtomicUsize = AtomicUsize::new(STACK_BYTES as usize);
/// The kernel `deep`, of every module, which needs a larger stack.
const DEEP: FunctionHandle = FunctionHandle(std::ptr::without_provenance_mut(usize::MAX));
const DEEP_BYTES: c_int = 3000;

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stand-in, for one test at a time.
pub(super) struct Fake {
    cuda: Cuda,
    turn: Option<MutexGuard<'static, ()>>,
}

impl Fake {
    pub(super) fn new() -> Self {
        Self::of_version(DriverVersion::new(12, 8))
    }

    pub(super) fn of_version(version: DriverVersion) -> Self {
        Self::over(api(), version)
    }

    /// One that cannot say which kernels a module has.
    pub(super) fn before_12_4() -> Self {
        let api = Api { module_get_function_count: None, module_enumerate_functions: None, ..api() };
        Self::over(api, DriverVersion::new(12, 3))
    }

    fn over(api: Api, version: DriverVersion) -> Self {
        let turn = (!MINE.replace(true)).then(|| lock(&TURN));
        if turn.is_some() {
            lock(&EVENTS).clear();
            lock(&BUSY_STREAMS).take();
            FAULT.store(SUCCESS, Ordering::SeqCst);
            STACK_LIMIT.store(STACK_BYTES as usize, Ordering::SeqCst);
            LACKING.store(NOTHING, Ordering::SeqCst);
            sharing::fail(None);
            sharing::import_other_memory(false);
        }
        Self { cuda: Cuda::over(Driver::new(api), version), turn }
    }

    pub(super) fn cuda(&self) -> &Cuda {
        &self.cuda
    }

    pub(super) fn events(&self) -> Vec<&'static str> {
        lock(&EVENTS).clone()
    }

    pub(super) fn end_kernels(&self) {
        lock(&BUSY_STREAMS).take();
    }

    /// Lets every kernel end by a fault that breaks the context.
    pub(super) fn fault(&self, code: CUresult) {
        FAULT.store(code, Ordering::SeqCst);
    }

    /// Takes a property away from the device.
    pub(super) fn lack(&self, attribute: c_int) {
        LACKING.store(attribute, Ordering::SeqCst);
    }

    /// Makes one of the calls for shared memory fail, named by its event; `None` heals all.
    pub(super) fn fail(&self, step: Option<&'static str>) {
        sharing::fail(step);
    }

    /// Lets imported descriptors stand for something else than memory of a GPU.
    pub(super) fn import_other_memory(&self) {
        sharing::import_other_memory(true);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if self.turn.is_some() {
            MINE.set(false);
        }
    }
}

fn api() -> Api {
    Api {
        device_get,
        device_get_name,
        device_get_attribute,
        device_get_uuid: sharing::uuid,
        primary_ctx_retain,
        primary_ctx_release,
        ctx_set_current,
        ctx_get_device,
        ctx_get_stream_priority_range,
        mem_alloc,
        mem_free,
        mem_host_alloc,
        mem_free_host,
        mem_host_register,
        mem_host_unregister,
        mem_host_get_device_pointer,
        memcpy_htod_async,
        memcpy_dtoh_async,
        stream_create,
        stream_destroy,
        stream_query,
        module_load_data,
        module_unload,
        module_get_function,
        module_get_global,
        func_get_module: Some(func_get_module),
        module_get_function_count: Some(module_get_function_count),
        module_enumerate_functions: Some(module_enumerate_functions),
        func_get_attribute,
        ctx_get_limit,
        ctx_set_limit,
        occupancy,
        launch_kernel,
        link_create,
        link_add_data,
        link_complete,
        link_destroy,
        mem_get_handle_for_address_range: Some(export),
        flush_gpu_direct_rdma_writes: Some(flush),
        ..sharing::api()
    }
}

fn event(name: &'static str) -> CUresult {
    lock(&EVENTS).push(name);
    SUCCESS
}

fn handle() -> *mut c_void {
    std::ptr::without_provenance_mut(NEXT_HANDLE.fetch_add(1, Ordering::SeqCst))
}

/// Writes an output parameter.
fn put<T>(to: *mut T, value: T) -> CUresult {
    // SAFETY: `driver` passes pointers to its own variables of that type.
    unsafe { to.write(value) };
    SUCCESS
}

unsafe extern "C" fn device_get(device: *mut CUdevice, ordinal: c_int) -> CUresult {
    put(device, ordinal)
}

unsafe extern "C" fn device_get_name(_: *mut c_char, _: c_int, _: CUdevice) -> CUresult {
    SUCCESS
}

unsafe extern "C" fn device_get_attribute(value: *mut c_int, attribute: c_int, _: CUdevice) -> CUresult {
    put(value, if attribute == LACKING.load(Ordering::SeqCst) { 0 } else { 8 })
}

unsafe extern "C" fn primary_ctx_retain(context: *mut ContextHandle, _: CUdevice) -> CUresult {
    put(context, ContextHandle(handle()))
}

unsafe extern "C" fn primary_ctx_release(_: CUdevice) -> CUresult {
    event("release context")
}

unsafe extern "C" fn ctx_set_current(_: ContextHandle) -> CUresult {
    SUCCESS
}

unsafe extern "C" fn ctx_get_device(device: *mut CUdevice) -> CUresult {
    put(device, 0)
}

unsafe extern "C" fn ctx_get_stream_priority_range(least: *mut c_int, greatest: *mut c_int) -> CUresult {
    put(least, 0);
    put(greatest, -5)
}

unsafe extern "C" fn mem_alloc(address: *mut CUdeviceptr, _: usize) -> CUresult {
    put(address, handle() as u64)
}

unsafe extern "C" fn mem_free(_: CUdeviceptr) -> CUresult {
    event("free")
}

unsafe extern "C" fn mem_host_alloc(memory: *mut *mut c_void, len: usize, _: c_uint) -> CUresult {
    // Leaked: a few MiB in a test process.
    put(memory, Box::leak(vec![0_u8; len].into_boxed_slice()).as_mut_ptr().cast())
}

unsafe extern "C" fn mem_free_host(_: *mut c_void) -> CUresult {
    SUCCESS
}

unsafe extern "C" fn mem_host_register(_: *mut c_void, _: usize, _: c_uint) -> CUresult {
    SUCCESS
}

unsafe extern "C" fn mem_host_unregister(_: *mut c_void) -> CUresult {
    event("unregister")
}

unsafe extern "C" fn mem_host_get_device_pointer(
    address: *mut CUdeviceptr,
    base: *mut c_void,
    _: c_uint,
) -> CUresult {
    put(address, base as u64)
}

unsafe extern "C" fn memcpy_htod_async(
    _: CUdeviceptr,
    _: *const c_void,
    _: usize,
    _: StreamHandle,
) -> CUresult {
    SUCCESS
}

unsafe extern "C" fn memcpy_dtoh_async(
    _: *mut c_void,
    _: CUdeviceptr,
    _: usize,
    _: StreamHandle,
) -> CUresult {
    SUCCESS
}

unsafe extern "C" fn stream_create(stream: *mut StreamHandle, _: c_uint, _: c_int) -> CUresult {
    put(stream, StreamHandle(handle()))
}

unsafe extern "C" fn stream_destroy(_: StreamHandle) -> CUresult {
    SUCCESS
}

unsafe extern "C" fn stream_query(stream: StreamHandle) -> CUresult {
    match FAULT.load(Ordering::SeqCst) {
        SUCCESS if lock(&BUSY_STREAMS).as_ref().is_some_and(|busy| busy.contains(&stream.0.addr())) => {
            ERROR_NOT_READY
        }
        code => code,
    }
}

unsafe extern "C" fn module_load_data(
    module: *mut ModuleHandle,
    _: *const c_void,
    _: c_uint,
    _: *mut c_uint,
    _: *mut *mut c_void,
) -> CUresult {
    put(module, ModuleHandle(handle()))
}

unsafe extern "C" fn module_unload(_: ModuleHandle) -> CUresult {
    event("unload")
}

unsafe extern "C" fn func_get_module(module: *mut ModuleHandle, _: FunctionHandle) -> CUresult {
    put(module, ModuleHandle(handle()))
}

unsafe extern "C" fn module_get_global(
    address: *mut CUdeviceptr,
    len: *mut usize,
    _: ModuleHandle,
    _: *const c_char,
) -> CUresult {
    put(len, 8);
    put(address, handle() as u64)
}

unsafe extern "C" fn module_get_function(
    function: *mut FunctionHandle,
    _: ModuleHandle,
    name: *const c_char,
) -> CUresult {
    // SAFETY: `driver` passes a NUL-terminated name.
    let deep = unsafe { CStr::from_ptr(name) } == c"deep";
    put(function, if deep { DEEP } else { FunctionHandle(handle()) })
}

unsafe extern "C" fn module_get_function_count(count: *mut c_uint, _: ModuleHandle) -> CUresult {
    put(count, 2)
}

unsafe extern "C" fn module_enumerate_functions(
    functions: *mut FunctionHandle,
    room: c_uint,
    _: ModuleHandle,
) -> CUresult {
    assert_eq!(room, 2);
    put(functions, FunctionHandle(handle()));
    // SAFETY: there is room for two (checked).
    put(unsafe { functions.add(1) }, DEEP)
}

unsafe extern "C" fn func_get_attribute(
    value: *mut c_int,
    attribute: c_uint,
    function: FunctionHandle,
) -> CUresult {
    let deep = attribute == FUNC_LOCAL_SIZE_BYTES && function == DEEP;
    put(value, if deep { DEEP_BYTES } else { STACK_BYTES })
}

unsafe extern "C" fn ctx_get_limit(bytes: *mut usize, limit: c_uint) -> CUresult {
    assert_eq!(limit, LIMIT_STACK_SIZE);
    put(bytes, STACK_LIMIT.load(Ordering::SeqCst))
}

unsafe extern "C" fn ctx_set_limit(limit: c_uint, bytes: usize) -> CUresult {
    assert_eq!(limit, LIMIT_STACK_SIZE);
    STACK_LIMIT.store(bytes, Ordering::SeqCst);
    if lock(&BUSY_STREAMS).is_some() { event("wait for kernels") } else { SUCCESS }
}

unsafe extern "C" fn occupancy(blocks: *mut c_int, _: FunctionHandle, _: c_int, _: usize) -> CUresult {
    put(blocks, BLOCKS_PER_SM.cast_signed())
}

unsafe extern "C" fn launch_kernel(
    function: FunctionHandle,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    stream: StreamHandle,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    if function == DEEP {
        let before = STACK_LIMIT.fetch_max(DEEP_BYTES as usize, Ordering::SeqCst);
        if before < DEEP_BYTES as usize && lock(&BUSY_STREAMS).is_some() {
            event("wait for kernels");
        }
    }
    lock(&BUSY_STREAMS).get_or_insert_default().insert(stream.0.addr());
    SUCCESS
}
