//! Sleeping on a 32-bit flag in shared memory.

use super::spin_yield::are_cores_few;
use gpunet_abi::hand_off;
use gpunet_abi::park::SharedFlag;
use std::time::Duration;

/// Returns the longest sleep: cancel and heartbeat are checked this often even if no wake-up comes.
/// A test can make it an hour.
pub(super) fn longest_sleep() -> Duration {
    if hand_off::sleeps_are_endless() { Duration::from_secs(3600) } else { Duration::from_millis(200) }
}

/// Sleeps until woken, at most for `limit`, if the flag is `expected`.
pub(super) fn futex_wait(flag: SharedFlag, expected: u32, limit: Duration) {
    let limit = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: FUTEX_WAIT reads the mapped flag and the timespec on this stack.
    unsafe { libc::syscall(libc::SYS_futex, flag.as_ptr(), libc::FUTEX_WAIT, expected, &raw const limit) };
}

/// As [`futex_wait`], woken for these bits only: at least one.
pub(super) fn futex_wait_for(flag: SharedFlag, expected: u32, bits: u32, limit: Duration) {
    let until = monotonic_after(limit);
    let unused = std::ptr::null::<u32>();
    // SAFETY: FUTEX_WAIT_BITSET reads the mapped flag and the timespec on this stack.
    unsafe {
        let (call, op, flag) = (libc::SYS_futex, libc::FUTEX_WAIT_BITSET, flag.as_ptr());
        libc::syscall(call, flag, op, expected, &raw const until, unused, bits)
    };
}

/// Wakes all that sleep on the flag.
pub(super) fn futex_wake(flag: SharedFlag) {
    futex_wake_for(flag, u32::MAX);
}

/// Wakes those that sleep on the flag for one of these bits, or for any; returns how many. Where
/// cores are few they have the caller's core first: blocks take it from nobody
/// ([`super::scheduling`]), and the caller may have much to do.
pub(super) fn futex_wake_for(flag: SharedFlag, bits: u32) -> usize {
    let unused = std::ptr::null::<u32>();
    // SAFETY: FUTEX_WAKE_BITSET dereferences nothing.
    let woken = unsafe {
        let (call, op, flag) = (libc::SYS_futex, libc::FUTEX_WAKE_BITSET, flag.as_ptr());
        libc::syscall(call, flag, op, i32::MAX, unused, unused, bits)
    };
    if woken > 0 && are_cores_few() {
        std::thread::yield_now();
    }
    usize::try_from(woken).unwrap_or(0)
}

/// The time so long from now, as the kernel counts it for calls that wait until a time.
pub(super) fn monotonic_after(limit: Duration) -> libc::timespec {
    let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the timespec on this stack.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut until) };
    let nanos = until.tv_nsec + i64::from(limit.subsec_nanos());
    until.tv_sec += limit.as_secs() as i64 + nanos / 1_000_000_000;
    until.tv_nsec = nanos % 1_000_000_000;
    until
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_abi::epoch::Epoch;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_sleeper_is_woken_for_its_own_sockets_only() {
        let word = AtomicU32::new(0);
        // SAFETY: an aligned word that outlives all who use it, atomically.
        let flag = || unsafe { SharedFlag::from_ptr(word.as_ptr()) };
        std::thread::scope(|scope| {
            let own = Epoch::wakes(Some(3)) | Epoch::wakes(Some(9));
            let sleeper = scope.spawn(move || futex_wait_for(flag(), 0, own, Duration::from_secs(60)));
            let mut woken = 0;
            while woken == 0 {
                assert_eq!(futex_wake_for(flag(), Epoch::wakes(Some(4))), 0, "another's");
                std::thread::yield_now();
                woken = futex_wake_for(flag(), Epoch::wakes(Some(9)));
            }
            assert!(sleeper.join().is_ok());
        });
    }
}
