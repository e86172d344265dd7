//! The stand-in's functions for streams, events and current contexts.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;
use std::thread;

use super::{
    CONTEXTS, ERROR_INVALID_CONTEXT, ERROR_INVALID_HANDLE, Event, Operation, POLL, STATE, create_in, current,
    enqueue, idle, with,
};
use crate::driver::raw::constants::{
    ERROR_INVALID_VALUE, ERROR_NOT_READY, MEMORY_OPERATION_WAIT_VALUE_64, MEMORY_OPERATION_WRITE_VALUE_64,
    STREAM_WAIT_VALUE_GEQ, STREAM_WRITE_VALUE_DEFAULT, SUCCESS,
};
use crate::driver::raw::{
    CUdeviceptr, CUresult, ContextHandle, EventHandle, MemoryOperation, StreamCalls, StreamHandle,
};
use crate::fake::driver::sharing::is_accessible;
use crate::fake::driver::{event, fault, handle, lock, put, unless_refused};

pub(in super::super) const CALLS: StreamCalls = StreamCalls {
    wait_value,
    write_value,
    write_value_32,
    batch,
    copy: memcpy_async,
    pointer_attribute: super::super::memory::pointer_attribute,
    host_function,
    synchronize,
    is_capturing,
    exchange_capture_mode,
    get_context,
    push_context,
    pop_context,
    event_create,
    event_record,
    event_query,
    event_destroy,
    wait_event,
};

pub(in super::super) unsafe extern "C" fn stream_create(
    stream: *mut StreamHandle,
    _: c_uint,
    _: c_int,
) -> CUresult {
    match current() {
        Some(context) => put(stream, create_in(ContextHandle(std::ptr::without_provenance_mut(context)))),
        None => ERROR_INVALID_CONTEXT,
    }
}

pub(in super::super) unsafe extern "C" fn stream_destroy(stream: StreamHandle) -> CUresult {
    match lock(&STATE).streams.remove(&stream.0.addr()) {
        Some(stream) if stream.is_idle() => SUCCESS,
        Some(_) => event("destroy a busy stream"),
        None => ERROR_INVALID_HANDLE,
    }
}

pub(in super::super) unsafe extern "C" fn stream_query(stream: StreamHandle) -> CUresult {
    idle(stream)
}

unsafe extern "C" fn synchronize(stream: StreamHandle) -> CUresult {
    loop {
        match idle(stream) {
            ERROR_NOT_READY => thread::sleep(POLL),
            code => return code,
        }
    }
}

pub(in super::super) unsafe extern "C" fn memcpy_htod_async(
    to: CUdeviceptr,
    from: *const c_void,
    len: usize,
    stream: StreamHandle,
) -> CUresult {
    // SAFETY: the caller's promise to the driver.
    unsafe { memcpy_async(to, from.expose_provenance() as CUdeviceptr, len, stream) }
}

pub(in super::super) unsafe extern "C" fn memcpy_dtoh_async(
    to: *mut c_void,
    from: CUdeviceptr,
    len: usize,
    stream: StreamHandle,
) -> CUresult {
    // SAFETY: the caller's promise to the driver.
    unsafe { memcpy_async(to.expose_provenance() as CUdeviceptr, from, len, stream) }
}

pub(in super::super) unsafe extern "C" fn memcpy_async(
    to: CUdeviceptr,
    from: CUdeviceptr,
    len: usize,
    stream: StreamHandle,
) -> CUresult {
    if ![to, from].into_iter().all(|end| is_accessible(end, len)) {
        return ERROR_INVALID_VALUE;
    }
    unless_refused(|| enqueue(stream, [Operation::Copy { to, from, len }]))
}

unsafe extern "C" fn wait_value(
    stream: StreamHandle,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
) -> CUresult {
    let mut operation = MemoryOperation::wait_geq(address, value);
    operation.flags = flags;
    memory_operations(stream, &[operation])
}

unsafe extern "C" fn write_value(
    stream: StreamHandle,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
) -> CUresult {
    let mut operation = MemoryOperation::write(address, value);
    operation.flags = flags;
    memory_operations(stream, &[operation])
}

unsafe extern "C" fn write_value_32(
    stream: StreamHandle,
    address: CUdeviceptr,
    value: u32,
    flags: c_uint,
) -> CUresult {
    if !address.is_multiple_of(4) || flags != STREAM_WRITE_VALUE_DEFAULT {
        return ERROR_INVALID_VALUE;
    }
    unless_refused(|| enqueue(stream, [Operation::Write32 { address, value }]))
}

unsafe extern "C" fn batch(
    stream: StreamHandle,
    count: c_uint,
    operations: *mut MemoryOperation,
    flags: c_uint,
) -> CUresult {
    if count >= 256 || flags != 0 {
        return ERROR_INVALID_VALUE;
    }
    event("batch");
    // SAFETY: `driver` passes as many operations as it says.
    memory_operations(stream, unsafe { std::slice::from_raw_parts(operations, count as usize) })
}

fn memory_operations(stream: StreamHandle, operations: &[MemoryOperation]) -> CUresult {
    let decoded: Option<Vec<Operation>> = operations.iter().map(decode).collect();
    decoded.map_or(ERROR_INVALID_VALUE, |decoded| unless_refused(|| enqueue(stream, decoded)))
}

fn decode(operation: &MemoryOperation) -> Option<Operation> {
    let MemoryOperation { address, value, .. } = *operation;
    if !address.is_multiple_of(8) {
        return None;
    }
    match (operation.operation, operation.flags) {
        (MEMORY_OPERATION_WAIT_VALUE_64, STREAM_WAIT_VALUE_GEQ) => {
            Some(Operation::WaitGeq { address, value })
        }
        (MEMORY_OPERATION_WRITE_VALUE_64, STREAM_WRITE_VALUE_DEFAULT) => {
            Some(Operation::Write { address, value })
        }
        _ => None,
    }
}

unsafe extern "C" fn host_function(
    stream: StreamHandle,
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
) -> CUresult {
    unless_refused(|| enqueue(stream, [Operation::Call { function, data: data.expose_provenance() }]))
}

unsafe extern "C" fn is_capturing(stream: StreamHandle, status: *mut c_uint) -> CUresult {
    with(stream, |stream| put(status, c_uint::from(stream.capturing)))
}

unsafe extern "C" fn exchange_capture_mode(mode: *mut c_uint) -> CUresult {
    thread_local!(static MODE: Cell<c_uint> = const { Cell::new(0) });
    // SAFETY: `driver` passes a variable of its own.
    let new = unsafe { mode.read() };
    put(mode, MODE.replace(new))
}

unsafe extern "C" fn get_context(stream: StreamHandle, context: *mut ContextHandle) -> CUresult {
    match lock(&STATE).streams.get(&stream.0.addr()) {
        Some(stream) => put(context, ContextHandle(std::ptr::without_provenance_mut(stream.context))),
        None => ERROR_INVALID_HANDLE,
    }
}

pub(in super::super) unsafe extern "C" fn set_context(context: ContextHandle) -> CUresult {
    CONTEXTS.with_borrow_mut(|contexts| {
        contexts.pop();
        contexts.push(context.0.addr());
    });
    SUCCESS
}

unsafe extern "C" fn push_context(context: ContextHandle) -> CUresult {
    CONTEXTS.with_borrow_mut(|contexts| contexts.push(context.0.addr()));
    SUCCESS
}

unsafe extern "C" fn pop_context(context: *mut ContextHandle) -> CUresult {
    match CONTEXTS.with_borrow_mut(Vec::pop) {
        Some(popped) => put(context, ContextHandle(std::ptr::without_provenance_mut(popped))),
        None => ERROR_INVALID_CONTEXT,
    }
}

unsafe extern "C" fn event_create(event: *mut EventHandle, _: c_uint) -> CUresult {
    let new = handle();
    lock(&STATE).events.insert(new.addr(), Event::default());
    put(event, EventHandle(new))
}

unsafe extern "C" fn event_record(event: EventHandle, stream: StreamHandle) -> CUresult {
    if let code @ 1.. = fault() {
        return code;
    }
    unless_refused(|| {
        let passed = match lock(&STATE).events.get_mut(&event.0.addr()) {
            Some(found) => {
                found.recorded += 1;
                found.passed.clone()
            }
            None => return ERROR_INVALID_HANDLE,
        };
        enqueue(stream, [Operation::Record { passed }])
    })
}

unsafe extern "C" fn wait_event(stream: StreamHandle, event: EventHandle, _: c_uint) -> CUresult {
    unless_refused(|| {
        let (passed, records) = match lock(&STATE).events.get(&event.0.addr()) {
            Some(found) => (found.passed.clone(), found.recorded),
            None => return ERROR_INVALID_HANDLE,
        };
        enqueue(stream, [Operation::WaitEvent { passed, records }])
    })
}

unsafe extern "C" fn event_query(event: EventHandle) -> CUresult {
    if let code @ 1.. = fault() {
        return code;
    }
    match lock(&STATE).events.get(&event.0.addr()) {
        Some(event) if event.passed.load(Ordering::SeqCst) == event.recorded => SUCCESS,
        Some(_) => ERROR_NOT_READY,
        None => ERROR_INVALID_HANDLE,
    }
}

unsafe extern "C" fn event_destroy(event: EventHandle) -> CUresult {
    match lock(&STATE).events.remove(&event.0.addr()) {
        Some(_) => SUCCESS,
        None => ERROR_INVALID_HANDLE,
    }
}
