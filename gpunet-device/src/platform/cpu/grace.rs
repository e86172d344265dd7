//! When addresses of memory that is out of use may become those of other memory.
//!
//! The agent of an attachment takes an arena out of the device's table and puts plain memory in its
//! place. A thread that was inside a call by then may still store there: another block has closed
//! the stream meanwhile, or a poller takes itself out of a bell. So the addresses are used again
//! only after a *grace period*: once every thread that was inside such a call has left it. This is
//! the scheme of RCU and of epoch-based reclamation.
//!
//! A thread that is about to use an arena's memory enters ([`CallGuard`]) before it looks at the
//! table or at a handle's state, and leaves when it holds no address any more. It says which
//! address it uses, so that a call that waits on one stream for hours holds up no other arena. A
//! [`GracePeriod`] begins after the memory is out of use, and notes who is inside.
//!
//! Entering and leaving are plain stores. Their order against the loads that follow is the business
//! of the grace period, which has the kernel pass a barrier on all threads of the process
//! (membarrier, Linux 4.14). Without it no grace period is ever over, and addresses are not used
//! again.

use super::turns;
use crate::Net;
use gpunet_abi::Word;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Stands for all addresses of a device's arenas.
const ANY: u64 = u64::MAX;

/// Who may be inside a call: a thread, or a poller that is registered at bells. Each has cache
/// lines of its own, since it writes in every call.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Participant {
    /// Counts entries and exits: odd while it is inside.
    crossings: AtomicU64,
    /// The device whose memory it uses, by the address of the device's own memory.
    device: AtomicU64,
    /// The address that it uses, or [`ANY`].
    address: AtomicU64,
}

impl Participant {
    fn enter(&self, net: Net, address: u64) {
        // A call without an attachment uses no memory, and fails soon.
        let device = if net.is_attached() { net.context().device } else { 0 };
        // Ordering: Relaxed; made visible by the count.
        self.device.store(device, Ordering::Relaxed);
        self.address.store(address, Ordering::Relaxed);
        self.cross();
    }

    /// Enters or leaves. Its owner alone counts.
    fn cross(&self) {
        // Ordering: Relaxed; only the owner writes it.
        let crossings = self.crossings.load(Ordering::Relaxed);
        // Ordering: Release, pairs with the Acquire loads in `GracePeriod`: who sees that the call
        // is over sees all that it stored. On the way in it orders the two stores of `enter`; that
        // the loads of the call come later is `membarrier`'s part.
        self.crossings.store(crossings + 1, Ordering::Release);
    }

    /// How often it has entered and left, if it is inside and may use one of these addresses of
    /// that device.
    fn uses(&self, device: u64, addresses: &[Range<u64>]) -> Option<u64> {
        // Ordering: Acquire, as in `cross`.
        let crossings = self.crossings.load(Ordering::Acquire);
        // They are those of this call or of a later one, and then this call is over. Ordering:
        // Acquire, pairs with the Release stores of the address: who sees that a call uses one
        // stream sees what it stored into others before.
        let (of, address) = (self.device.load(Ordering::Relaxed), self.address.load(Ordering::Acquire));
        let is_meant = of == device && address == ANY || addresses.iter().any(|part| part.contains(&address));
        (crossings % 2 == 1 && is_meant).then_some(crossings)
    }
}

static PARTICIPANTS: Mutex<Vec<Arc<Participant>>> = Mutex::new(Vec::new());

fn participants() -> MutexGuard<'static, Vec<Arc<Participant>>> {
    // Nothing that is called under the lock panics.
    PARTICIPANTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A participant in the list of all, until it is dropped.
#[derive(Debug)]
struct Listed(Arc<Participant>);

impl Listed {
    fn new() -> Self {
        let participant = Arc::new(Participant::default());
        participants().push(participant.clone());
        Self(participant)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        participants().retain(|other| !Arc::ptr_eq(other, &self.0));
        // A grace period that waits for it ends.
        if self.0.crossings.load(Ordering::Relaxed) % 2 == 1 {
            self.0.cross();
        }
    }
}

/// A thread of this process.
struct CallingThread {
    listed: Listed,
    /// Calls that it is inside of: calls make calls.
    depth: Cell<u32>,
}

thread_local! {
    static THREAD: CallingThread = CallingThread { listed: Listed::new(), depth: Cell::new(0) };
}

/// The calling thread is inside a call that uses the memory of a stream, until this is dropped.
#[derive(Debug)]
pub struct CallGuard {
    /// Inside a call that uses other memory: its address, which counts again when this call is
    /// over.
    outer: Option<u64>,
    /// It stays on its thread.
    _thread: PhantomData<*const ()>,
}

impl CallGuard {
    /// Whether calls are counted.
    pub const IS_COUNTED: bool = true;

    /// Enters a call that uses the stream with that word.
    #[inline]
    pub(crate) fn enter(net: Net, word: Word) -> Self {
        Self::enter_at(net, word.as_ptr() as u64)
    }

    /// Enters a call that is about to look which memory it uses.
    #[inline]
    pub fn enter_any(net: Net) -> Self {
        Self::enter_at(net, ANY)
    }

    #[inline]
    fn enter_at(net: Net, address: u64) -> Self {
        // Calls of threads that take turns begin and end in any order: none of them says more than
        // that it is inside.
        let address = if turns::are_taken() { ANY } else { address };
        let entered = THREAD.try_with(|thread| {
            let (depth, participant) = (thread.depth.get(), &thread.listed.0);
            thread.depth.set(depth + 1);
            if depth == 0 {
                participant.enter(net, address);
                return None;
            }
            // Ordering: Relaxed, both. The owner alone writes it; as for the entry of the outer
            // call, a grace period that sees the older value after its barrier began before this
            // call looks for its memory.
            let outer = participant.address.load(Ordering::Relaxed);
            let differs = outer != address && outer != ANY;
            if differs {
                participant.address.store(ANY, Ordering::Relaxed);
            }
            differs.then_some(outer)
        });
        // A thread that ends, so that its own are dropped already, makes no calls.
        Self { outer: entered.unwrap_or_default(), _thread: PhantomData }
    }

    /// Says that the call uses no other stream than that with this word.
    #[inline]
    pub fn narrow(&self, word: Word) {
        let _ = THREAD.try_with(|thread| {
            if thread.depth.get() == 1 && !turns::are_taken() {
                // Ordering: Release, pairs with the Acquire in `uses`.
                thread.listed.0.address.store(word.as_ptr() as u64, Ordering::Release);
            }
        });
    }
}

impl Drop for CallGuard {
    #[inline]
    fn drop(&mut self) {
        let _ = THREAD.try_with(|thread| {
            let depth = thread.depth.get() - 1;
            thread.depth.set(depth);
            if depth == 0 {
                thread.listed.0.cross();
            } else if let Some(outer) = self.outer {
                // Ordering: Release, pairs with the Acquire in `uses`.
                thread.listed.0.address.store(outer, Ordering::Release);
            }
        });
    }
}

/// A poller that keeps addresses of bells from one call to another, on whatever thread.
#[derive(Debug)]
pub(crate) struct Keeper(Listed);

impl Keeper {
    /// It may have addresses of that device's arenas from now on.
    pub(crate) fn enter(net: Net) -> Self {
        let listed = Listed::new();
        listed.0.enter(net, ANY);
        Self(listed)
    }

    /// It has none at this moment, and continues to look for those that are in use now.
    pub(crate) fn renew(&self) {
        self.0.0.cross();
        self.0.0.cross();
    }
}

/// The time until no call can use memory any more that was put out of use.
///
/// # Examples
/// ```
/// use gpunet_device::cpu::GracePeriod;
///
/// // That memory is in no table any more, and no thread is inside a call that may use it.
/// let mut grace = GracePeriod::begin(0x1000, &[0x2000..0x3000]);
/// assert_eq!(grace.is_over(), GracePeriod::can_end());
/// ```
#[derive(Debug)]
pub struct GracePeriod {
    /// Who was inside when it began, and how often each had entered and left by then.
    inside: Vec<(Arc<Participant>, u64)>,
    can_end: bool,
}

impl GracePeriod {
    /// Begins one for `addresses` of arenas of the device whose own memory lies at `device`. They
    /// are in no table any more, and the streams there are closed.
    #[must_use]
    pub fn begin(device: u64, addresses: &[Range<u64>]) -> Self {
        if !pass_barrier() {
            return Self { inside: Vec::new(), can_end: false };
        }
        let inside = |participant: &Arc<Participant>| {
            participant.uses(device, addresses).map(|crossings| (participant.clone(), crossings))
        };
        Self { inside: participants().iter().filter_map(inside).collect(), can_end: true }
    }

    /// Returns whether all that were inside have left.
    pub fn is_over(&mut self) -> bool {
        // Ordering: Acquire, pairs with the Release in `Participant::cross`.
        self.inside.retain(|(participant, then)| participant.crossings.load(Ordering::Acquire) == *then);
        self.can_end && self.inside.is_empty()
    }

    /// Returns whether grace periods end on this system.
    #[must_use]
    pub fn can_end() -> bool {
        pass_barrier()
    }
}

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the command that registers a process for it
/// (linux/membarrier.h).
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: a system call without pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Has all threads of this process pass a full barrier; returns whether the kernel can.
fn pass_barrier() -> bool {
    static REGISTERED: LazyLock<bool> = LazyLock::new(|| membarrier(REGISTER_PRIVATE_EXPEDITED));
    *REGISTERED && membarrier(PRIVATE_EXPEDITED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_device::with_device;
    use std::io::Write;

    /// The addresses of an arena; `words` stands for one part of it.
    fn arena(words: &[u64]) -> Range<u64> {
        let at = words.as_ptr() as u64;
        at..at + size_of_val(words) as u64
    }

    /// Returns whether grace periods end here, and says so loudly if not.
    fn can_end() -> bool {
        let can_end = GracePeriod::can_end();
        if !can_end {
            // Not by `eprintln!`: the harness keeps what a passing test prints.
            let _ = std::io::stderr().write_all(b"NOT RUN: grace periods, which need membarrier(2)\n");
        }
        can_end
    }

    fn word(words: &mut [u64]) -> Word {
        // SAFETY: an aligned word of the caller's memory.
        unsafe { Word::from_ptr(words.as_mut_ptr()) }
    }

    #[test]
    fn a_grace_period_lasts_until_the_calls_in_that_arena_are_left() {
        with_device(|net| {
            let (mut words, mut others) = ([0u64; 8], [0u64; 8]);
            let device = net.context().device;
            let begin = |words: &[u64]| GracePeriod::begin(device, &[arena(words)]);
            if !can_end() {
                return;
            }
            assert!(begin(&words).is_over());
            let call = CallGuard::enter(net, word(&mut words));
            let (mut grace, mut other) = (begin(&words), begin(&others));
            assert!(!grace.is_over());
            assert!(other.is_over(), "an arena that the call does not use");
            // A call within the call.
            let inner = CallGuard::enter(net, word(&mut others));
            assert!(!begin(&words).is_over() && !begin(&others).is_over());
            drop(inner);
            assert!(!grace.is_over() && begin(&others).is_over());
            drop(call);
            assert!(grace.is_over());
            // The next call is none of those that were inside.
            let next = CallGuard::enter(net, word(&mut words));
            assert!(grace.is_over() && !begin(&words).is_over());
            drop(next);
        });
    }

    #[test]
    fn a_call_that_looks_for_its_stream_may_use_any_arena_of_its_device() {
        with_device(|net| {
            let (mut words, others) = ([0u64; 8], [0u64; 8]);
            let device = net.context().device;
            if !can_end() {
                return;
            }
            let call = CallGuard::enter_any(net);
            assert!(!GracePeriod::begin(device, &[arena(&others)]).is_over());
            assert!(GracePeriod::begin(device + 8, &[arena(&others)]).is_over(), "another device");
            call.narrow(word(&mut words));
            assert!(GracePeriod::begin(device, &[arena(&others)]).is_over());
            assert!(!GracePeriod::begin(device, &[arena(&words)]).is_over());
        });
    }

    #[test]
    fn a_thread_that_ends_and_a_keeper_that_renews_hold_nothing_up() {
        with_device(|net| {
            let words = [0u64; 8];
            let device = net.context().device;
            if !can_end() {
                return;
            }
            let keeper = Keeper::enter(net);
            let mut grace = GracePeriod::begin(device, &[arena(&words)]);
            assert!(!grace.is_over());
            keeper.renew();
            assert!(grace.is_over());
            let mut grace = GracePeriod::begin(device, &[arena(&words)]);
            drop(keeper);
            assert!(grace.is_over());
            let panicked = std::thread::scope(|scope| {
                let call = || {
                    let _call = CallGuard::enter_any(net);
                    panic!("as a block may");
                };
                scope.spawn(call).join()
            });
            assert!(panicked.is_err());
            assert!(GracePeriod::begin(device, &[arena(&words)]).is_over());
        });
    }
}
