//! The CUDA driver, opened at run time, with one thread per device that talks to it.
//!
//! `gpu-usermap` shows this crate to programs as `gpu_usermap::cuda`.
//!
//! # Map
//! | module | what it is |
//! |---|---|
//! | [`ptx`] | PTX text without the functions that nobody calls |
//! | `driver` | the library: symbols, types and constants (`raw`), one method per call, with a result (`calls`), errors, [`Cuda`] |
//! | `agent` | the thread that makes calls for a device, and what lives on it |
//! | `device` | [`Device`] and its attributes |
//! | `memory` | buffers, registrations, memory that others map, what network cards need |
//! | `code` | modules, kernels, and how PTX becomes one |
//! | `launch` | launches, and whether they fit on the GPU together |
//! | `stream` | [`CudaStream`] |
//! | `fake` | a driver without a GPU, for tests |
//!
//! The types are cheap clones of an `Arc`. A child holds its parent ([`Function`] → [`Module`] →
//! [`Device`] → [`Cuda`]; [`GpuBuffer`], [`Registration`] and [`Launch`] → [`Device`]), so nothing
//! is released under a user, in whatever order handles drop.
//!
//! The bindings are this crate's own 80 declarations and not cudarc's: cudarc's dynamic loading
//! panics where the library or a symbol is missing, and its result type is a Rust `enum`, for which
//! an error code of a newer driver is undefined behaviour. A unit test compares every constant with
//! cudarc's.
//!
//! # Under a running kernel
//! A gpunet kernel runs until the host tells it to stop, and waits for the host meanwhile. A CUDA
//! call that waits for that kernel then never returns. So every call that needs a context runs on
//! the device's **agent thread** (`gpunet-cuda-agent`), which no kernel and no network peer waits
//! for. A method that makes such a call blocks until the agent has made it. Calls on a
//! [`CudaStream`] are the exception: see [below](#streams). The calls are divided:
//!
//! | call | under a running kernel | why |
//! |---|---|---|
//! | `cuStreamQuery` | yes | reads a completion word; never waits |
//! | `cuMemcpy{HtoD,DtoH}Async`: [`Device::write`], [`Device::read`], zeroing | yes | own non-blocking stream (no order with the null stream), pinned staging memory (no hidden wait), copy engine (no SM needed), completion by query |
//! | `cuMemAlloc`: [`Device::alloc`] | yes, (t) | page tables only; zeroed by copies and not by `cuMemset`, which is a kernel and finds no SM where a persistent grid fills the GPU |
//! | `cuMemHostRegister`: [`Device::register`] | yes, (t) | pins and maps; no dependence on work in flight |
//! | `cuMemCreate`, `cuMemAddressReserve`, `cuMemMap`, `cuMemSetAccess`: [`Device::alloc_shareable`], [`Device::reserve`], [`GrowingBuffer::append`] | yes, (t) | as `cuMemAlloc` |
//! | `cuMemExportToShareableHandle`: [`ShareableBuffer::export`] | yes, (t) | a kernel-mode object for existing pages |
//! | `cuMemImportFromShareableHandle`, and the mapping: [`Device::import`], [`GrowingBuffer::append_imported`] | yes, (t) | page tables only, on either GPU |
//! | undoing a refused import, [`GrowingBuffer::truncate`]: `cuMemUnmap`, `cuMemAddressFree`, `cuMemRelease` | yes, (t) | no one else knows the address yet, or that there is memory; so a peer's refused offers leave nothing behind |
//! | `cuMemGetHandleForAddressRange`: [`GpuBuffer::export_dmabuf`] | yes, (t) | a kernel-mode object for existing pages |
//! | `cuPointerSetAttribute`: [`GpuBuffer::sync_memops`] | yes, (t) | a flag in the driver's table of allocations |
//! | `cuFlushGPUDirectRDMAWrites`: [`Device::flush_gpudirect_rdma_writes`] | yes, (t) | orders writes of the bus; waits for no stream |
//! | `cuLaunchKernel`: [`Device::launch`] | yes, (t) | its code was loaded, and its local memory set aside, with its module; else [`LaunchError::LocalMemory`] |
//! | `cuMemGetAddressRange`, `cuPointerGetAttribute`, `cuIpcGetMemHandle`, `cuMemRetainAllocationHandle`: [`Device::allocations`], [`Device::ipc_handle`], [`Device::export_allocation`] | yes, (i) | by the caller's thread; the driver's tables only |
//! | `cuIpcOpenMemHandle`: [`Device::open_ipc`] | yes, (i) | by the caller's thread; 1 ms, and 20 to 40 ms beside kernels that fill the GPU |
//! | `cuMemcpyAsync` from a GPU to itself | **no**: (i), it waits for kernels that fill the GPU, and not for one block | [`Device::is_busy`] says whether a launch runs |
//! | `cuMemcpyAsync` from another GPU | yes, (i); 11 ms beside kernels that fill the GPU | on a stream |
//! | `cuIpcCloseMemHandle` | **deferred** | as `cuMemUnmap` of shared memory |
//! | `cuMemFree`, `cuMemHostUnregister`, `cuModuleUnload` | **deferred** | wait for all work of the context (the first two do on an H200); dropped handles are queued until no launch made through this device runs |
//! | `cuMemUnmap` of shared memory | **deferred** | does not wait (5 ms on an H200), and so would take the memory from under a kernel that uses it |
//! | `cuModuleLoadDataEx`, `cuLink*`, [`Cuda::device`] | **no: before the launch** | may wait for the context to be idle (the first does on an H200); they hold up only the agent, never the data path |
//! | `cuFuncLoad`, `cuCtxSetLimit` of the stack: part of [`Device::load_module`] | **no: before the launch** | the driver waits for running kernels to load code or to set local memory aside |
//! | enqueueing on a [`CudaStream`] | yes, (s) | by the caller's thread; waits only for room in that stream |
//! | `cuStreamCreateWithPriority`, `cuEventCreate`: [`Device::create_stream`], [`Device::borrow_stream`] | yes, (s) | by the caller's thread; no dependence on work in flight |
//! | `cuEventRecord`, `cuStreamWaitEvent`, `cuEventQuery`: [`CudaStream::record`], [`CudaStream::wait_for`], [`CudaEvent::has_passed`] | yes, (s) | by the caller's thread; never waits |
//! | `cuStreamSynchronize`: [`CudaStream::synchronize`] | yes | by the caller's thread, which asked for it; waits for that stream |
//! | any other synchronize | never called | |
//!
//! (t): `tests/cuda.rs` checks it (the two calls for network cards: `tests/mapping.rs` of
//! `gpu-usermap`), by making the call while a kernel occupies the whole GPU and waits for a host
//! word. Two H200s with driver 580.159.04 pass; `shareable_busy` prints a table. No call waits
//! there. A kernel of one waiting block makes none of them slower (an import takes 0.7 ms, a
//! registration of 16 MiB 13 ms). 528 blocks that all poll a word in host memory do: an import
//! takes 50 ms then, mostly for closing the descriptor, a registration 120 ms, and zeroing 64 MiB
//! 350 ms.
//!
//! (i): `calls_about_another_processs_memory_return_while_kernels_fill_the_gpus_and_wait` of
//! `tests/cuda.rs` measures it, and copies between allocations, on two H100s with driver
//! 580.159.04.
//!
//! (s): `tests/cuda/streams.rs` checks it.
//!
//! Module loading is made eager (see [`LazyLoading`]), and where that is not possible all kernels
//! of a module are loaded with it, so that no first launch loads code behind a waiting kernel. Nor
//! does a first launch set local memory aside there: the stack limit of the context is raised to
//! the largest stack of a module's kernels when it is loaded (0.3 ms). A context has 1 KiB per
//! thread from the start; each KiB more takes 264 MiB of an H200, whose multiprocessors hold
//! 270,336 threads, as it would at the first launch.
//!
//! The agent sees the launches made through its own [`Device`]. Kernels that a program launches in
//! the same context by other means (cudarc, the runtime API) are invisible to it: the program
//! announces them ([`Device::announce_launches`]). Otherwise a deferred release may hold the agent
//! until they end, or take imported memory from under them.
//!
//! # Streams
//! A [`CudaStream`] orders waits for words, writes of words, copies and calls of the host: the
//! program's own stream, or one made here. Ask [`Device::stream_memory_operations`] first; it names
//! what an old driver lacks, and the settings of the environment under which a wait would stall the
//! program. Calls are made by the thread that enqueues, because the way to the agent takes longer
//! than the call, and because a full stream holds up its caller. A stream with work on it counts as
//! a running launch: while it waits, nothing is given back, and what the table says of a running
//! kernel holds for it.
//!
//! Who enqueues a wait must be able to end it: nothing else does, and the stream cannot be
//! cancelled. A store of the CPU to pinned memory always can; so can a write on a stream of
//! [`StreamPriority::Highest`] that never waits itself.

#![deny(unsafe_code)]
#![deny(clippy::multiple_unsafe_ops_per_block)]
#![cfg(target_os = "linux")]

mod agent;
mod code;
mod device;
mod driver;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod launch;
mod memory;
pub mod ptx;
mod stream;

pub use code::{Function, FunctionAttributes, LoadModuleError, Module};
pub use device::{Device, DeviceAttribute, DeviceQuery};
pub use driver::{
    CopyError, Cuda, CudaError, DriverVersion, IpcHandle, LazyLoading, SymbolError, SymbolKind, Unavailable,
};
pub use launch::{
    CoResidencyError, ForeignLaunches, KernelDemand, Launch, LaunchError, LaunchSpec, NotCoResident,
    fit_together, param,
};
pub use memory::{
    DmaBuf, DmabufError, DmabufRoute, ExportCheck, FlushOptions, FlushScope, GpuBuffer, GrowingBuffer,
    ImportError, ImportedBuffer, NotShareable, RdmaAttributes, RdmaCallError, RegisterError, Registration,
    ShareableBuffer, WritesOrdering,
};
pub use stream::{
    Allocation, AllocationKind, CudaEvent, CudaStream, IpcBuffer, MemOp, NoStreamMemoryOperations,
    StreamError, StreamPriority,
};
