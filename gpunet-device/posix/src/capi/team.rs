//! Teams and symmetric memory: each call with the team as its first argument, and for the team of the module.

use super::callers::{block, thread, warp};
use crate::team::{self as calls, Symmetric};
use gpunet_abi::team::TeamState;
use gpunet_abi::{Error, Result};
use gpunet_device::team::{SymmetricPtr, TeamHandle};

/// The team of the module, for the functions that are not given one. A kernel of one thread, or the host, stores it before
/// the kernels that use it. Zeros: none, and these calls return -ENETDOWN.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static mut gpunet_team: TeamHandle = TeamHandle::NONE;

/// Symmetric memory in which kernels find their own by addresses (`gpunet_nvshmem.h`). Set as [`gpunet_team`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static mut gpunet_heap: Symmetric = SymmetricPtr::NONE;

/// The module's team.
#[inline(always)]
fn of_module() -> TeamHandle {
    // SAFETY: nobody writes the variable while kernels use it.
    unsafe { (&raw const gpunet_team).read_volatile() }
}

/// Runs a call with a team, if it is one.
///
/// # Safety
/// The team's state is 0, or lies at an address that lives as long as the team, or of 64 bytes of other memory.
#[inline(always)]
unsafe fn call(team: TeamHandle, body: impl FnOnce(TeamHandle) -> Result<i64>) -> i64 {
    crate::returned(if is_team(team) { body(team) } else { Err(Error::NetworkDown) })
}

/// Returns whether a team of this version stands behind the value. A load from an address that is not aligned would end the kernel.
#[inline(always)]
fn is_team(team: TeamHandle) -> bool {
    (team.raw_state() as *const TeamState).is_aligned() && team.is_joined()
}

/// Exports calls twice: `fn explicit | implicit(group = who(), team, argument: type, ...) -> type { body }`.
macro_rules! team_exports {
    ($(fn $explicit:ident | $implicit:ident(
        $g:ident = $caller:expr, $team:ident $(, $argument:ident: $kind:ty)* $(,)?
    ) -> $returned:ty $body:block)*) => {$(
        /// See `include/gpunet_team.h`.
        ///
        /// # Safety
        /// The team is zeros or was made by the host, and each pointer points to what the header says.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub unsafe extern "C" fn $explicit($team: TeamHandle $(, $argument: $kind)*) -> $returned {
            let $g = &$caller;
            let body = |$team: TeamHandle| $body;
            // SAFETY: the caller's contract.
            (unsafe { call($team, body) }) as $returned
        }

        team_implicit! { $explicit | $implicit($($argument: $kind),*) -> $returned }
    )*};
}

/// Exports the second name of a call: it calls the first one with the team of the module.
macro_rules! team_implicit {
    ($explicit:ident | $implicit:ident($($argument:ident: $kind:ty),*) -> $returned:ty) => {
        /// See `include/gpunet_team.h`.
        ///
        /// # Safety
        /// Each pointer points to what the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $implicit($($argument: $kind),*) -> $returned {
            // SAFETY: the host made what is in the variable, if there is anything; the pointers are as the caller promises.
            unsafe { $explicit(of_module() $(, $argument)*) }
        }
    };
}

macro_rules! team_calls {
    ($(
        by $caller:expr;
        $put:ident | $gput:ident, $put_nbi:ident | $gput_nbi:ident, $get:ident | $gget:ident,
        $put_signal:ident | $gput_signal:ident, $signal:ident | $gsignal_set:ident, $signal_add:ident | $gsignal_add:ident,
        $signal_wait:ident | $gsignal_wait:ident, $signal_test:ident | $gsignal_test:ident,
        $word_set:ident | $gword_set:ident, $word_wait:ident | $gword_wait:ident,
        $fence:ident | $gfence:ident, $quiet:ident | $gquiet:ident, $barrier:ident | $gbarrier:ident,
        $all_gather:ident | $gall_gather:ident, $broadcast:ident | $gbroadcast:ident, $all_to_all:ident | $gall_to_all:ident;
    )*) => {team_exports! {$(
        fn $put | $gput(g = $caller, team, to: Symmetric, data: *const u8, len: u64, member: u32) -> i32 {
            // SAFETY: `data` is readable for `len` bytes, by the caller's contract.
            unsafe { calls::put(g, team, to, data, len, member) }
        }

        fn $put_nbi | $gput_nbi(g = $caller, team, to: Symmetric, data: *const u8, len: u64, member: u32) -> i32 {
            // SAFETY: as above.
            unsafe { calls::put_nbi(g, team, to, data, len, member) }
        }

        fn $get | $gget(g = $caller, team, data: *mut u8, from: Symmetric, len: u64, member: u32) -> i32 {
            // SAFETY: `data` is writable for `len` bytes, by the caller's contract.
            unsafe { calls::get(g, team, data, from, len, member) }
        }

        fn $put_signal | $gput_signal(
            g = $caller, team, to: Symmetric, data: *const u8, len: u64, signal: u32, value: u64, member: u32,
        ) -> i32 {
            // SAFETY: `data` is readable for `len` bytes, by the caller's contract.
            unsafe { calls::put_signal(g, team, to, data, len, signal, value, member) }
        }

        fn $signal | $gsignal_set(g = $caller, team, signal: u32, value: u64, member: u32) -> i32 {
            calls::signal(g, team, signal, value, member)
        }

        fn $signal_add | $gsignal_add(g = $caller, team, signal: u32, value: u64, member: u32) -> i32 {
            calls::signal_add(g, team, signal, value, member)
        }

        fn $signal_wait | $gsignal_wait(
            g = $caller, team, signal: u32, source: u32, value: u64, timeout_ns: i64,
        ) -> i64 {
            calls::signal_wait(g, team, signal, source, value, timeout_ns)
        }

        fn $signal_test | $gsignal_test(g = $caller, team, signal: u32, source: u32, value: u64) -> i32 {
            calls::signal_test(g, team, signal, source, value)
        }

        fn $word_set | $gword_set(g = $caller, team, to: Symmetric, value: u64, member: u32) -> i32 {
            calls::word_set(g, team, to, value, member)
        }

        fn $word_wait | $gword_wait(g = $caller, team, word: Symmetric, value: u64, timeout_ns: i64) -> i64 {
            calls::word_wait(g, team, word, value, timeout_ns)
        }

        fn $fence | $gfence(g = $caller, team) -> i32 {
            calls::fence(g, team)
        }

        fn $quiet | $gquiet(g = $caller, team) -> i32 {
            calls::quiet(g, team)
        }

        fn $barrier | $gbarrier(g = $caller, team) -> i32 {
            calls::barrier(g, team)
        }

        fn $all_gather | $gall_gather(g = $caller, team, to: Symmetric, data: *const u8, len: u64) -> i32 {
            // SAFETY: `data` is readable for `len` bytes, by the caller's contract.
            unsafe { calls::all_gather(g, team, to, data, len) }
        }

        fn $broadcast | $gbroadcast(g = $caller, team, to: Symmetric, data: *const u8, len: u64, root: u32) -> i32 {
            // SAFETY: as above, at the root.
            unsafe { calls::broadcast(g, team, to, data, len, root) }
        }

        fn $all_to_all | $gall_to_all(g = $caller, team, to: Symmetric, data: *const u8, len: u64) -> i32 {
            // SAFETY: `data` is readable for so many bytes for each member, by the caller's contract.
            unsafe { calls::all_to_all(g, team, to, data, len) }
        }
    )*}};
}

team_calls! {
    by block();
    gpunet_put | gput, gpunet_put_nbi | gput_nbi, gpunet_get | gget,
    gpunet_put_signal | gput_signal, gpunet_signal_set | gsignal_set, gpunet_signal_add | gsignal_add,
    gpunet_signal_wait | gsignal_wait, gpunet_signal_test | gsignal_test,
    gpunet_word_set | gword_set, gpunet_word_wait | gword_wait,
    gpunet_fence | gfence, gpunet_quiet | gquiet, gpunet_barrier | gbarrier,
    gpunet_all_gather | gall_gather, gpunet_broadcast | gbroadcast, gpunet_all_to_all | gall_to_all;

    by warp();
    gpunet_put_warp | gput_warp, gpunet_put_nbi_warp | gput_nbi_warp, gpunet_get_warp | gget_warp,
    gpunet_put_signal_warp | gput_signal_warp, gpunet_signal_set_warp | gsignal_set_warp, gpunet_signal_add_warp | gsignal_add_warp,
    gpunet_signal_wait_warp | gsignal_wait_warp, gpunet_signal_test_warp | gsignal_test_warp,
    gpunet_word_set_warp | gword_set_warp, gpunet_word_wait_warp | gword_wait_warp,
    gpunet_fence_warp | gfence_warp, gpunet_quiet_warp | gquiet_warp, gpunet_barrier_warp | gbarrier_warp,
    gpunet_all_gather_warp | gall_gather_warp, gpunet_broadcast_warp | gbroadcast_warp,
    gpunet_all_to_all_warp | gall_to_all_warp;

    by thread();
    gpunet_put_thread | gput_thread, gpunet_put_nbi_thread | gput_nbi_thread, gpunet_get_thread | gget_thread,
    gpunet_put_signal_thread | gput_signal_thread, gpunet_signal_set_thread | gsignal_set_thread,
    gpunet_signal_add_thread | gsignal_add_thread,
    gpunet_signal_wait_thread | gsignal_wait_thread, gpunet_signal_test_thread | gsignal_test_thread,
    gpunet_word_set_thread | gword_set_thread, gpunet_word_wait_thread | gword_wait_thread,
    gpunet_fence_thread | gfence_thread, gpunet_quiet_thread | gquiet_thread, gpunet_barrier_thread | gbarrier_thread,
    gpunet_all_gather_thread | gall_gather_thread, gpunet_broadcast_thread | gbroadcast_thread,
    gpunet_all_to_all_thread | gall_to_all_thread;
}

team_exports! {
    fn gpunet_reduce | greduce(g = block(), team, kind: i32, operation: i32, to: Symmetric, from: Symmetric) -> i32 {
        calls::reduce(g, team, kind, operation, to, from)
    }

    // By any thread.
    fn gpunet_team_rank | gteam_rank(_g = thread(), team) -> i32 {
        Ok(i64::from(team.rank().0))
    }

    fn gpunet_team_size | gteam_size(_g = thread(), team) -> i32 {
        Ok(i64::from(team.size()))
    }
}

/// See `include/gpunet_team.h`.
///
/// # Safety
/// As the other calls.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn gpunet_ptr(team: TeamHandle, at: Symmetric, member: u32) -> *mut u8 {
    if is_team(team) { calls::ptr(team, at, member) } else { core::ptr::null_mut() }
}

team_implicit! { gpunet_ptr | gptr(at: Symmetric, member: u32) -> *mut u8 }
