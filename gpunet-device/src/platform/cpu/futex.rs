//! Sleeping on a 32-bit flag in shared memory.

use gpunet_abi::park::SharedFlag;
use std::time::Duration;

/// Longest sleep: cancel and heartbeat are checked this often even if no wake-up comes.
pub(super) const MAX_SLEEP: Duration = Duration::from_millis(200);

/// Sleeps until woken, at most for `limit`, if the flag is `expected`.
pub(super) fn futex_wait(flag: SharedFlag, expected: u32, limit: Duration) {
    let limit = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: FUTEX_WAIT reads the mapped flag and the timespec on this stack.
    unsafe { libc::syscall(libc::SYS_futex, flag.as_ptr(), libc::FUTEX_WAIT, expected, &raw const limit) };
}

/// Wakes all that sleep on the flag.
pub(super) fn futex_wake(flag: SharedFlag) {
    // SAFETY: FUTEX_WAKE dereferences nothing.
    unsafe { libc::syscall(libc::SYS_futex, flag.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
