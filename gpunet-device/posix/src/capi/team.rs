//! Teams and symmetric memory: each call with the team as its first argument.

use super::callers::{block, thread, warp, with_team};
use crate::team::{self as calls, Symmetric};
use gpunet_device::team::TeamHandle;

/// The team of the module, for the calls of `gpunet_team.h` that are not given one. A kernel of one
/// thread, or the host, stores it before the kernels that use it. Zeros: none, and these calls
/// return -ENETDOWN. On the CPU the header has the variable.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static mut gpunet_team: TeamHandle = TeamHandle::NONE;

/// Symmetric memory in which kernels find their own by addresses (`gpunet_nvshmem.h`). Set as
/// [`gpunet_team`].
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static mut gpunet_heap: Symmetric = gpunet_device::team::SymmetricPtr::NONE;

/// Exports calls: `fn name(group = who(), team, argument: type, ...) -> type { body }`.
macro_rules! team_exports {
    ($(fn $name:ident(
        $g:ident = $caller:expr, $team:ident $(, $argument:ident: $kind:ty)* $(,)?
    ) -> $returned:ty $body:block)*) => {$(
        /// See `include/gpunet_team.h`.
        ///
        /// # Safety
        /// The team is zeros or was made by the host, and each pointer points to what the header
        /// says.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub unsafe extern "C" fn $name($team: TeamHandle $(, $argument: $kind)*) -> $returned {
            let $g = &$caller;
            with_team($team, |$team: TeamHandle| $body) as $returned
        }
    )*};
}

macro_rules! team_calls {
    ($(
        by $caller:expr;
        $put:ident, $put_nbi:ident, $get:ident,
        $put_signal:ident, $signal:ident, $signal_add:ident,
        $signal_wait:ident, $signal_test:ident,
        $word_set:ident, $word_wait:ident,
        $fence:ident, $quiet:ident, $barrier:ident,
        $all_gather:ident, $broadcast:ident, $all_to_all:ident;
    )*) => {team_exports! {$(
        fn $put(g = $caller, team, to: Symmetric, data: *const u8, len: u64, member: u32) -> i32 {
            // SAFETY: `data` is readable for `len` bytes, by the caller's contract.
            unsafe { calls::put(g, team, to, data, len, member) }
        }

        fn $put_nbi(g = $caller, team, to: Symmetric, data: *const u8, len: u64, member: u32) -> i32 {
            // SAFETY: as above.
            unsafe { calls::put_nbi(g, team, to, data, len, member) }
        }

        fn $get(g = $caller, team, data: *mut u8, from: Symmetric, len: u64, member: u32) -> i32 {
            // SAFETY: `data` is writable for `len` bytes, by the caller's contract.
            unsafe { calls::get(g, team, data, from, len, member) }
        }

        fn $put_signal(
            g = $caller, team, to: Symmetric, data: *const u8, len: u64, signal: u32, value: u64, member: u32,
        ) -> i32 {
            // SAFETY: `data` is readable for `len` bytes, by the caller's contract.
            unsafe { calls::put_signal(g, team, to, data, len, signal, value, member) }
        }

        fn $signal(g = $caller, team, signal: u32, value: u64, member: u32) -> i32 {
            calls::signal(g, team, signal, value, member)
        }

        fn $signal_add(g = $caller, team, signal: u32, value: u64, member: u32) -> i32 {
            calls::signal_add(g, team, signal, value, member)
        }

        fn $signal_wait(
            g = $caller, team, signal: u32, source: u32, value: u64, timeout_ns: i64,
        ) -> i64 {
            calls::signal_wait(g, team, signal, source, value, timeout_ns)
        }

        fn $signal_test(g = $caller, team, signal: u32, source: u32, value: u64) -> i32 {
            calls::signal_test(g, team, signal, source, value)
        }

        fn $word_set(g = $caller, team, to: Symmetric, value: u64, member: u32) -> i32 {
            calls::word_set(g, team, to, value, member)
        }

        fn $word_wait(g = $caller, team, word: Symmetric, value: u64, timeout_ns: i64) -> i64 {
            calls::word_wait(g, team, word, value, timeout_ns)
        }

        fn $fence(g = $caller, team) -> i32 {
            calls::fence(g, team)
        }

        fn $quiet(g = $caller, team) -> i32 {
            calls::quiet(g, team)
        }

        fn $barrier(g = $caller, team) -> i32 {
            calls::barrier(g, team)
        }

        fn $all_gather(g = $caller, team, to: Symmetric, data: *const u8, len: u64) -> i32 {
            // SAFETY: `data` is readable for `len` bytes, by the caller's contract.
            unsafe { calls::all_gather(g, team, to, data, len) }
        }

        fn $broadcast(g = $caller, team, to: Symmetric, data: *const u8, len: u64, root: u32) -> i32 {
            // SAFETY: as above, at the root.
            unsafe { calls::broadcast(g, team, to, data, len, root) }
        }

        fn $all_to_all(g = $caller, team, to: Symmetric, data: *const u8, len: u64) -> i32 {
            // SAFETY: `data` is readable for this many bytes for each member, by the caller's
            // contract.
            unsafe { calls::all_to_all(g, team, to, data, len) }
        }
    )*}};
}

team_calls! {
    by block();
    gpunet_put, gpunet_put_nbi, gpunet_get,
    gpunet_put_signal, gpunet_signal_set, gpunet_signal_add,
    gpunet_signal_wait, gpunet_signal_test,
    gpunet_word_set, gpunet_word_wait,
    gpunet_fence, gpunet_quiet, gpunet_barrier,
    gpunet_all_gather, gpunet_broadcast, gpunet_all_to_all;

    by warp();
    gpunet_put_warp, gpunet_put_nbi_warp, gpunet_get_warp,
    gpunet_put_signal_warp, gpunet_signal_set_warp, gpunet_signal_add_warp,
    gpunet_signal_wait_warp, gpunet_signal_test_warp,
    gpunet_word_set_warp, gpunet_word_wait_warp,
    gpunet_fence_warp, gpunet_quiet_warp, gpunet_barrier_warp,
    gpunet_all_gather_warp, gpunet_broadcast_warp,
    gpunet_all_to_all_warp;

    by thread();
    gpunet_put_thread, gpunet_put_nbi_thread, gpunet_get_thread,
    gpunet_put_signal_thread, gpunet_signal_set_thread,
    gpunet_signal_add_thread,
    gpunet_signal_wait_thread, gpunet_signal_test_thread,
    gpunet_word_set_thread, gpunet_word_wait_thread,
    gpunet_fence_thread, gpunet_quiet_thread, gpunet_barrier_thread,
    gpunet_all_gather_thread, gpunet_broadcast_thread,
    gpunet_all_to_all_thread;
}

team_exports! {
    fn gpunet_reduce(g = block(), team, kind: i32, operation: i32, to: Symmetric, from: Symmetric) -> i32 {
        calls::reduce(g, team, kind, operation, to, from)
    }

    // By any thread.
    fn gpunet_team_rank(_g = thread(), team) -> i32 {
        Ok(i64::from(team.rank().0))
    }

    fn gpunet_team_size(_g = thread(), team) -> i32 {
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
    let mut found = core::ptr::null_mut();
    let out = &mut found;
    with_team(team, |team| {
        *out = calls::ptr(team, at, member);
        Ok(0)
    });
    found
}
