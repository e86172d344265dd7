//! The stand-in's functions. C functions carry no state, so it is static, and tests take turns.
//!
//! | file | holds |
//! |---|---|
//! | `memory`, `sharing` | device memory; memory that is shared |
//! | `streams` | streams, and what they are told |
//! | `late` | functions for export, flush and linking |

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::Device;
use crate::driver::raw::constants::{FUNC_LOCAL_SIZE_BYTES, LIMIT_STACK_SIZE, SUCCESS};
use crate::driver::raw::{
    Api, CUdevice, CUdeviceptr, CUresult, ContextHandle, FunctionHandle, ModuleHandle, StreamHandle,
};
use crate::driver::{Cuda, Driver, DriverVersion, StreamSettings};

mod late;
mod memory;
mod sharing;
mod streams;

#[cfg(test)]
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
/// Which call that enqueues or takes memory is refused, from now on; 0: none.
static REFUSE: AtomicU32 = AtomicU32::new(0);
/// `CUDA_ERROR_OUT_OF_MEMORY`: how it is refused.
const NO_MEMORY: CUresult = 2;
/// Whether the next module is refused.
static OTHER_CODE: AtomicBool = AtomicBool::new(false);
/// `CUDA_ERROR_NO_BINARY_FOR_GPU`: how it is refused.
const NO_BINARY_FOR_GPU: CUresult = 209;

/// Stack of a thread: what each has from the start, and what all kernels but `deep` need.
const STACK_BYTES: c_int = 1024;
static STACK_LIMIT: AtomicUsize = AtomicUsize::new(STACK_BYTES as usize);
/// The kernel `deep`, of every module, which needs a larger stack.
const DEEP: FunctionHandle = FunctionHandle(std::ptr::without_provenance_mut(usize::MAX));
const DEEP_BYTES: c_int = 3000;

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver without a GPU, for one test at a time: another thread that makes one waits until this
/// has dropped.
///
/// # Examples
/// ```
/// use gpunet_cuda::fake::Fake;
///
/// let fake = Fake::new();
/// let gpu = fake.cuda().device(0)?;
/// drop(gpu.alloc(64)?);
/// drop(gpu);
/// assert!(fake.events().contains(&"free"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Fake {
    cuda: Cuda,
    turn: Option<MutexGuard<'static, ()>>,
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

impl Fake {
    /// Makes a driver of CUDA 12.8.
    pub fn new() -> Self {
        Self::of_version(DriverVersion::new(12, 8))
    }

    /// Makes a driver of another version.
    pub fn of_version(version: DriverVersion) -> Self {
        Self::over(api(), version, StreamSettings { connections: 32, ..StreamSettings::default() })
    }

    /// Makes a driver that cannot say which kernels a module has.
    pub fn before_12_4() -> Self {
        let api = Api { module_get_function_count: None, module_enumerate_functions: None, ..api() };
        Self::over(
            api,
            DriverVersion::new(12, 3),
            StreamSettings { connections: 32, ..StreamSettings::default() },
        )
    }

    /// Makes a driver without memory operations of streams.
    pub fn before_11_7() -> Self {
        let api = Api { streams: Err("cuStreamWaitValue64_v2"), ..api() };
        Self::over(
            api,
            DriverVersion::new(11, 6),
            StreamSettings { connections: 32, ..StreamSettings::default() },
        )
    }

    /// Makes a driver that was loaded with `CUDA_DEVICE_MAX_CONNECTIONS=1`, with
    /// `CUDA_LAUNCH_BLOCKING=1`, or with both.
    pub fn in_environment(one_connection: bool, launch_blocking: bool) -> Self {
        let connections = if one_connection { 1 } else { 32 };
        let settings = StreamSettings { connections, launch_blocking };
        Self::over(api(), DriverVersion::new(12, 8), settings)
    }

    fn over(api: Api, version: DriverVersion, settings: StreamSettings) -> Self {
        let turn = (!MINE.replace(true)).then(|| lock(&TURN));
        if turn.is_some() {
            lock(&EVENTS).clear();
            lock(&BUSY_STREAMS).take();
            FAULT.store(SUCCESS, Ordering::SeqCst);
            REFUSE.store(0, Ordering::SeqCst);
            OTHER_CODE.store(false, Ordering::SeqCst);
            STACK_LIMIT.store(STACK_BYTES as usize, Ordering::SeqCst);
            LACKING.store(NOTHING, Ordering::SeqCst);
            streams::reset();
            sharing::fail(None);
            sharing::import_other_memory(false);
            memory::locate(0);
        }
        Self { cuda: Cuda::over(Driver::new(api), version, settings), turn }
    }

    /// Returns the handle through which the driver is used.
    pub fn cuda(&self) -> &Cuda {
        &self.cuda
    }

    /// Returns what has happened so far: releases, and some other calls.
    pub fn events(&self) -> Vec<&'static str> {
        lock(&EVENTS).clone()
    }

    /// Lets every kernel end.
    pub fn end_kernels(&self) {
        lock(&BUSY_STREAMS).take();
    }

    /// Lets every kernel end by a fault that breaks the context.
    pub fn fault(&self, code: u32) {
        FAULT.store(code, Ordering::SeqCst);
    }

    /// Takes a property away from the device.
    pub fn lack(&self, attribute: i32) {
        LACKING.store(attribute, Ordering::SeqCst);
    }

    /// Makes one of the calls for shared memory fail, named by its event; `None` heals all.
    pub fn fail(&self, step: Option<&'static str>) {
        sharing::fail(step);
    }

    /// Refuses one of the calls that enqueue something on a stream or take memory: the `nth` from
    /// now on. 0: none.
    pub fn refuse(&self, nth: u32) {
        REFUSE.store(nth, Ordering::SeqCst);
    }

    /// Refuses the next module, as code for other GPUs.
    pub fn refuse_code(&self) {
        OTHER_CODE.store(true, Ordering::SeqCst);
    }

    /// Returns whether the call of [`Fake::refuse`] is still to come.
    pub fn has_to_refuse(&self) -> bool {
        REFUSE.load(Ordering::SeqCst) != 0
    }

    /// Lets imported descriptors stand for something else than memory of a GPU.
    pub fn import_other_memory(&self) {
        sharing::import_other_memory(true);
    }

    /// Says on which GPU memory is allocated from now on; 0 at first.
    pub fn locate(&self, ordinal: u32) {
        memory::locate(ordinal);
    }

    /// Makes a stream as the program would, a `CUstream` in the device's context.
    pub fn stream_of(&self, device: &Device) -> *mut c_void {
        streams::create_in(device.context()).0
    }

    /// Makes a stream in a context of its own.
    pub fn stream_elsewhere(&self) -> *mut c_void {
        streams::create_in(ContextHandle(handle())).0
    }

    /// Begins or ends the capture of a stream.
    pub fn capture(&self, stream: *mut c_void, capturing: bool) {
        streams::capture(stream.addr(), capturing);
    }

    /// Returns how many streams and events there are.
    pub fn streams_and_events(&self) -> (usize, usize) {
        streams::count()
    }

    /// Returns the context that is current on this thread, as a number.
    pub fn current_context(&self) -> Option<usize> {
        streams::current()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if self.turn.is_some() {
            // What a failed test left behind waits for words that are no longer there.
            streams::reset();
            MINE.set(false);
        }
    }
}

fn api() -> Api {
    Api {
        exported: sharing::EXPORTED,
        device_get,
        device_get_name,
        device_get_attribute,
        device_get_uuid: sharing::uuid,
        primary_ctx_retain,
        primary_ctx_release,
        ctx_set_current: streams::set_context,
        ctx_get_device,
        ctx_get_stream_priority_range,
        mem_alloc: memory::mem_alloc,
        mem_free: memory::mem_free,
        mem_host_alloc: memory::mem_host_alloc,
        mem_free_host: memory::mem_free_host,
        mem_host_register,
        mem_host_unregister,
        mem_host_get_device_pointer: memory::mem_host_get_device_pointer,
        memcpy_htod_async: streams::memcpy_htod_async,
        memcpy_dtoh_async: streams::memcpy_dtoh_async,
        stream_create: streams::stream_create,
        stream_destroy: streams::stream_destroy,
        stream_query: streams::stream_query,
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
        mem_address_range: Some(memory::address_range),
        ipc_get_handle: Some(memory::ipc_get_handle),
        ipc_open_handle: Some(memory::ipc_open_handle),
        ipc_close_handle: Some(memory::ipc_close_handle),
        mem_get_handle_for_address_range: Some(export),
        flush_gpu_direct_rdma_writes: Some(flush),
        streams: Ok(streams::CALLS),
        ..sharing::api()
    }
}

/// Returns the code with which kernels have ended, or 0.
fn fault() -> CUresult {
    FAULT.load(Ordering::SeqCst)
}

/// Does what a call does, unless it is the one to be refused.
fn unless_refused(call: impl FnOnce() -> CUresult) -> CUresult {
    let counted = REFUSE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if counted == Ok(1) { NO_MEMORY } else { call() }
}

/// Returns whether a kernel runs on a stream.
fn has_kernel(stream: StreamHandle) -> bool {
    lock(&BUSY_STREAMS).as_ref().is_some_and(|busy| busy.contains(&stream.0.addr()))
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

unsafe extern "C" fn ctx_get_device(device: *mut CUdevice) -> CUresult {
    put(device, 0)
}

unsafe extern "C" fn ctx_get_stream_priority_range(least: *mut c_int, greatest: *mut c_int) -> CUresult {
    put(least, 0);
    put(greatest, -5)
}

unsafe extern "C" fn mem_host_register(_: *mut c_void, _: usize, _: c_uint) -> CUresult {
    unless_refused(|| SUCCESS)
}

unsafe extern "C" fn mem_host_unregister(_: *mut c_void) -> CUresult {
    event("unregister")
}

unsafe extern "C" fn module_load_data(
    module: *mut ModuleHandle,
    _: *const c_void,
    _: c_uint,
    _: *mut c_uint,
    _: *mut *mut c_void,
) -> CUresult {
    if OTHER_CODE.swap(false, Ordering::SeqCst) {
        return NO_BINARY_FOR_GPU;
    }
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
    // Leaked: no module knows its variables here.
    put(address, memory::allocate(8, 8).expect("8 bytes"))
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
    unless_refused(|| {
        lock(&BUSY_STREAMS).get_or_insert_default().insert(stream.0.addr());
        SUCCESS
    })
}
