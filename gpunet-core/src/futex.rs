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
    wake_some(flag, u32::MAX);
}

/// Wakes those who sleep on `flag` for one of these bits, or for any.
pub fn wake_some(flag: SharedFlag, bits: u32) {
    // SAFETY: FUTEX_WAKE_BITSET reads no user memory; the address only names the wait queue, and
    // `SharedFlag`'s contract keeps it mapped. Time and second address are not used.
    unsafe {
        let (all, unused) = (i32::MAX, std::ptr::null::<u32>());
        libc::syscall(libc::SYS_futex, flag.as_ptr(), libc::FUTEX_WAKE_BITSET, all, unused, unused, bits)
    };
}
