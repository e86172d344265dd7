//! Kernels on the CPU whose blocks have threads, for gpunet_cpu.h.
//!
//! The calls of gpunet.h are gpunet-posix's, as in the PTX. `token` makes them under the token to
//! which their first argument belongs, and `team` under the team.

mod block;

use crate::failure::{Failure, done};
use gpu_usermap::threads::BlockedSignals;
use gpunet_device::cpu;
use gpunet_device::{Group, Kernel};
use gpunet_posix::capi;
use std::ffi::{c_int, c_void};

/// A function that is one thread of a block on the CPU. No C++ exception may leave it.
pub type gpunet_host_thread_fn = Option<unsafe extern "C" fn(argument: *mut c_void)>;

/// Called on the system's thread of a block with the number of the block's thread that runs from
/// now on.
pub type gpunet_host_turn_fn = Option<unsafe extern "C" fn(thread: u32)>;

/// A C function whose threads form blocks.
#[derive(Clone, Copy)]
struct Threads {
    threads: u32,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
    on_turn: gpunet_host_turn_fn,
}

// SAFETY: `gpunet_host_run_blocks` says that the argument goes to other threads.
unsafe impl Send for Threads {}

impl Kernel for Threads {
    const ENTRY: &'static str = "c_threads";

    fn run<G: Group>(self, group: &G) {
        // SAFETY: the caller of `gpunet_host_run_blocks` promises a function of this type, which
        // takes the argument on any thread.
        let body = || unsafe { (self.function)(self.argument) };
        let ran = block::run(group.index(), group.count(), self.threads, self.on_turn, &body);
        // A launch without some of its blocks would wait for them.
        assert!(ran.is_ok(), "there is no memory for the stacks of a block's threads");
    }
}

/// Runs a function on the CPU in `blocks` thread blocks of `threads` threads, and returns when all
/// have ended. A block is one thread of the system, on which its threads take turns. Each thread
/// has a stack of 256 KiB. It runs until it comes to a barrier or to a collective call, waits in a
/// call, calls gpunet_host_take_turns, or ends. The calls of gpunet.h and gpunet_team.h know the
/// threads' block and warp. gpunet_cpu.h launches kernels in CUDA C++ by it.
///
/// Every thread gets `argument`. `on_turn` may be NULL. If threads wait for each other and none can
/// continue (a barrier to which not all come), the program ends with a message. Errors: -EINVAL
/// without a function or a block, or with a number of threads that is not 1 to 1,024; the system's,
/// when it refuses a thread: those that were started may still run then; -ENOTRECOVERABLE when
/// there is no memory for stacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_run_blocks(
    blocks: u32,
    threads: u32,
    function: gpunet_host_thread_fn,
    argument: *mut c_void,
    on_turn: gpunet_host_turn_fn,
) -> c_int {
    done(|| {
        let (Some(function), 1.., 1..=1024) = (function, blocks, threads) else {
            let text = "a launch needs a function, at least one block, and 1 to 1,024 threads";
            return Err(Failure::new(libc::EINVAL, text));
        };
        let inherited = BlockedSignals::new();
        let launch = cpu::launch(blocks, 1, Threads { threads, function, argument, on_turn });
        drop(inherited);
        let launch = launch.map_err(|error| Failure::no_thread(&error))?;
        launch.wait().map_err(|panicked| Failure::new(libc::ENOTRECOVERABLE, panicked.to_string()))
    })
}

/// Returns the number of the calling thread's block, from 0. A thread that runs no kernel is the
/// only one of block 0.
#[unsafe(no_mangle)]
pub extern "C" fn gpunet_host_block() -> u32 {
    capi::block().index()
}

/// Waits for all threads of the calling thread's block, and returns the sum of their values. What
/// each has written before is visible to all afterwards. Threads that have ended are not waited
/// for.
#[unsafe(no_mangle)]
pub extern "C" fn gpunet_host_sync_block(value: u32) -> u32 {
    capi::block().sum(value)
}

/// Waits for all threads of the calling thread's warp, as gpunet_host_sync_block.
#[unsafe(no_mangle)]
pub extern "C" fn gpunet_host_sync_warp(value: u32) -> u32 {
    capi::warp().sum(value)
}

/// Lets other threads of the calling thread's block run. A loop that waits for one of them calls
/// it. Returns 1 if there were any, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn gpunet_host_take_turns() -> c_int {
    c_int::from(block::pass_on())
}
