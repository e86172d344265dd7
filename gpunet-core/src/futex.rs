//! Waking who sleeps on a shared flag.

use gpunet_abi::park::{ParkFlag, SharedFlag, must_wake};

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
