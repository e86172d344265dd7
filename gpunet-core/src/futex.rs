//! Sleeping on a shared flag, and waking who sleeps there.

use gpunet_abi::park::{ParkFlag, SharedFlag, must_wake};
use std::time::Duration;

/// Wakes the waiter that sleeps on `flag`, if there is one. Called after the word was published.
pub fn wake_if_parked(flag: SharedFlag) {
    if must_wake(&flag) {
        flag.store(false);
        wake_all(flag);
    }
}

/// Wakes everyone who sleeps on `flag`, whatever its value.
pub fn wake_all(flag: SharedFlag) {
    // SAFETY: FUTEX_WAKE reads no user memory; the address only names the wait queue, and
    // `SharedFlag`'s contract keeps it mapped.
    unsafe { libc::syscall(libc::SYS_futex, flag.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Sleeps while the 32 bits at `flag` equal `expected`, at most `limit`. May return early.
pub fn wait(flag: SharedFlag, expected: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos() as libc::c_long,
    };
    // SAFETY: the flag is mapped by `SharedFlag`'s contract, and the timespec outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, flag.as_ptr(), libc::FUTEX_WAIT, expected, &raw const limit) };
}
