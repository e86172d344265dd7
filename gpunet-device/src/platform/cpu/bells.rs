//! What the pollers of a CPU device sleep on: the attachment's epoch, and one bell for each arena.
//!
//! The proxy and the device's own blocks move the epoch on. A device of another attachment cannot:
//! it shares nothing but its arena with this one, so it rings the bell in this device's part of it.
//! A poller sleeps on all of them at once (futex_waitv, Linux 5.16).
//!
//! The pattern is that of `gpunet_abi::park` with counts for flags: register, fence, load the
//! change counts, scan, sleep while the counts are the same.

use super::futex::{futex_wait_for, longest_sleep, monotonic_after};
use super::grace::Keeper;
use super::turns;
use crate::Net;
use crate::platform::WakeWords;
use gpunet_abi::arena::PartHeader;
use gpunet_abi::atomic::{AtomicU32, Ordering};
use gpunet_abi::park::{ParkFlag, SharedFlag, park};
use gpunet_abi::region::Region;
use std::time::Duration;

/// Bells that one call can sleep on, beside the epoch and a sleeper's own words (the kernel takes
/// 128 addresses).
const MOST: usize = 125;
/// Sleep of a poller that some word's writer does not wake: a GPU, or an arena beyond [`MOST`].
const NAP: Duration = Duration::from_micros(200);

/// The part of an arena that this device polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bell(*mut PartHeader);

// SAFETY: an address whose every use is atomic; the attachment's agent keeps it mapped, by the
// arena or by plain memory in its place, as long as the attachment lives, and by no other arena
// while a `Keeper` is there.
unsafe impl Send for Bell {}

impl Bell {
    fn count(self, enter: bool) {
        // SAFETY: see the `Send` impl; aligned by the structure.
        let count = unsafe { AtomicU32::from_ptr(&raw mut (*self.0).pollers) };
        // Ordering: SeqCst, as in `count_poller`.
        if enter {
            count.fetch_add(1, Ordering::SeqCst);
        } else {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn flag(self) -> *mut u32 {
        // SAFETY: see the `Send` impl.
        unsafe { &raw mut (*self.0).bell }
    }

    // Ordering: Acquire, pairs with the Release in `super::ring_bell` by the other device.
    fn observe(self) -> u32 {
        // SAFETY: see the `Send` impl.
        unsafe { AtomicU32::from_ptr(self.flag()) }.load(Ordering::Acquire)
    }
}

/// Calls `found` for each arena of the attachment: its bell, and whether the other device must be
/// polled.
fn bells(net: Net, mut found: impl FnMut(Bell, bool)) {
    for (base, flags) in net.arenas() {
        if flags & Region::OWN != 0 {
            found(Bell(base as *mut PartHeader), flags & Region::POLLED != 0);
        }
    }
}

/// Where a poller is counted. Dropping it does not take the poller out: the memory may be gone by
/// then.
#[derive(Debug)]
pub(crate) struct PollerRegistration {
    net: Net,
    epoch: bool,
    bells: Vec<Bell>,
    /// Keeps the bells' addresses from being used for other memory, while there are any.
    keeper: Option<Keeper>,
}

impl PollerRegistration {
    /// PollerRegistration nowhere yet.
    pub(crate) const fn new(net: Net) -> Self {
        Self { net, epoch: false, bells: Vec::new(), keeper: None }
    }

    /// Counts the poller in, wherever it is not yet; before it loads the counts that it will sleep
    /// on.
    pub(crate) fn enter(&mut self) {
        if !std::mem::replace(&mut self.epoch, true) {
            count_poller(self.net.pollers(), true);
        }
        self.leave_vacated();
        if self.keeper.is_none() {
            let mut is_any = false;
            bells(self.net, |_, _| is_any = true);
            if !is_any {
                return;
            }
            // Before the look that finds the bells to be counted.
            self.keeper = Some(Keeper::enter(self.net));
        }
        let counted = &mut self.bells;
        let before = counted.len();
        bells(self.net, |bell, _| {
            if !counted.contains(&bell) {
                bell.count(true);
                counted.push(bell);
            }
        });
        if counted.len() != before {
            SharedFlag::fence();
        }
    }

    /// Leaves all bells if one of them is in the table no more: its addresses wait for that. The
    /// caller counts in again.
    fn leave_vacated(&mut self) {
        let mut left = self.bells.len();
        bells(self.net, |bell, _| left = left.saturating_sub(self.bells.contains(&bell).into()));
        if left > 0 {
            self.bells.drain(..).for_each(|bell| bell.count(false));
            if let Some(keeper) = &self.keeper {
                keeper.renew();
            }
        }
    }

    /// Takes the poller out everywhere.
    pub(crate) fn leave(&mut self) {
        if std::mem::take(&mut self.epoch) {
            count_poller(self.net.pollers(), false);
        }
        self.bells.drain(..).for_each(|bell| bell.count(false));
        self.keeper = None;
    }
}

/// Counts this thread among the sleeping pollers (`true`) or takes it out.
fn count_poller(pollers: *mut u32, enter: bool) {
    // SAFETY: a counter of the attachment's shared region, which stays mapped for as long as
    // kernels may use it; only CPU blocks of this process change it.
    let count = unsafe { AtomicU32::from_ptr(pollers) };
    // Ordering: SeqCst, with a fence before the poller loads words: pairs with the fence in
    // `wake_pollers` and the proxy's `bump_epoch`: one of poller and publisher sees the other.
    if enter {
        count.fetch_add(1, Ordering::SeqCst);
        SharedFlag::fence();
    } else {
        count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The change counts of an attachment: its epoch and the bells of its arenas, as they were before a
/// scan.
#[derive(Debug)]
pub(crate) struct ChangeCounts {
    net: Net,
    epoch: u64,
    bells: Vec<(Bell, u32)>,
    /// Some writer wakes nobody, so sleeps are short.
    nap: bool,
}

impl ChangeCounts {
    /// Loads the counts.
    pub(crate) fn load(net: Net) -> Self {
        let mut counts = Self { net, epoch: net.epoch().observe(), bells: Vec::new(), nap: false };
        bells(net, |bell, polled| {
            counts.nap |= polled || counts.bells.len() == MOST;
            if counts.bells.len() < MOST {
                counts.bells.push((bell, bell.observe()));
            }
        });
        counts
    }

    /// Returns whether a count differs, or one of the sleeper's own words; without the flag beside
    /// them, only these words count.
    pub(crate) fn have_changed(&self, own: Option<(&WakeWords, bool)>) -> bool {
        let (own_changed, watches) =
            own.map_or((false, true), |(own, watches)| (own.have_changed(), watches));
        own_changed
            || watches
                && (self.net.epoch().observe() != self.epoch
                    || self.bells.iter().any(|&(bell, value)| bell.observe() != value))
    }

    /// Sleeps until a count differs, at most for `limit_ns`. May return early, and sleep on while
    /// the epoch tells of sockets without one of the bits `watched`
    /// ([`gpunet_abi::epoch::Epoch::wakes`]).
    pub(crate) fn sleep(&self, limit_ns: u64, watched: u32) {
        if turns::pass_on() {
            return;
        }
        let limit = self.limit(limit_ns);
        let (epoch, seen) = self.epoch();
        if self.bells.is_empty() {
            // SAFETY: the epoch's low half (little-endian), mapped while the attachment lives.
            let flag = unsafe { SharedFlag::from_ptr(epoch) };
            return futex_wait_for(flag, seen, watched, limit);
        }
        sleep_on(std::iter::once((epoch, seen)).chain(self.bells()), limit);
    }

    /// As [`ChangeCounts::sleep`], and until one of the sleeper's own words differs. With
    /// `watches` the sleep ends with a change of any socket, because the kernel has no bits for a
    /// sleep on several addresses; without, only with one of these words.
    pub(crate) fn sleep_until_woken(&self, limit_ns: u64, watches: bool, own: &WakeWords) {
        if turns::pass_on() {
            return;
        }
        let limit = self.limit(limit_ns);
        let own_words = own.words().map(|(word, seen)| (word.as_ptr().cast::<u32>(), seen as u32));
        park(
            &own.sleeping(),
            || own.have_changed(),
            || {
                if watches {
                    sleep_on(own_words.into_iter().chain([self.epoch()]).chain(self.bells()), limit);
                } else {
                    sleep_on(own_words.into_iter(), limit);
                }
            },
        );
    }

    fn limit(&self, limit_ns: u64) -> Duration {
        Duration::from_nanos(limit_ns).min(if self.nap { NAP } else { longest_sleep() })
    }

    /// The epoch's futex, and its value.
    fn epoch(&self) -> (*mut u32, u32) {
        (self.net.epoch().as_ptr().cast(), self.epoch as u32)
    }

    /// The futexes of the bells, and their values.
    fn bells(&self) -> impl Iterator<Item = (*mut u32, u32)> {
        self.bells.iter().map(|&(bell, value)| (bell.flag(), value))
    }
}

/// Sleeps until one of these futexes has not this value, or is woken, or for `limit`.
fn sleep_on(futexes: impl Iterator<Item = (*mut u32, u32)>, limit: Duration) {
    let waiter = |(address, value): (*mut u32, u32)| Waiter {
        value: u64::from(value),
        address: address as u64,
        flags: SIZE_U32,
        reserved: 0,
    };
    let waiters: Vec<Waiter> = futexes.map(waiter).collect();
    // A seccomp profile that does not know the call may answer EPERM.
    if matches!(wait_any(&waiters, limit), Err(libc::ENOSYS | libc::EPERM)) {
        std::thread::sleep(limit.min(NAP));
    }
}

/// The kernel's `struct futex_waitv`.
#[repr(C)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// FUTEX2_SIZE_U32, shared between processes.
const SIZE_U32: u32 = 2;

fn wait_any(waiters: &[Waiter], limit: Duration) -> Result<(), i32> {
    let until = monotonic_after(limit);
    // SAFETY: the kernel reads the waiters and the timespec on this stack; the addresses are
    // futexes that stay mapped while the attachment lives.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            waiters.len(),
            0,
            &raw const until,
            libc::CLOCK_MONOTONIC,
        )
    };
    // Woken, timed out, or a value that differs: the caller scans again in any case.
    if woken >= 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
}
