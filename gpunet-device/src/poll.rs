//! Waiting for one of many sockets.
//!
//! | file | holds |
//! |---|---|
//! | `set` | the sockets of a poll, and what it asks and finds of each |
//! | `cache` | what a poll knows of its set from the last one |
//! | `readiness` | what is true of one socket |
//! | `relay` | one group of a GPU polls the epoch for the others |

mod cache;
pub(crate) mod readiness;
pub(crate) mod relay;
mod set;

use crate::group::Lane;
use crate::group::outcome::by_leader_once;
use crate::socket::half::announce_consumed;
use crate::socket::unpublished::publish_deferred;
use crate::table::slots;
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Group, Net, WakeWords, platform};
pub use cache::PollCache;
use gpunet_abi::atomic::{Ordering, fence};
use gpunet_abi::entry::Kind;
use gpunet_abi::epoch::{Changes, Epoch};
use gpunet_abi::waiting::{Awaited, Call};
use gpunet_abi::{Error, Handle, Result, Timeout, Word};
use readiness::examine;
use relay::Relay;
pub use set::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDHUP, PollFd, PollSet};

/// Waits until a socket of the set is ready; returns how many are.
///
/// If no socket is ready, it announces what the calling group has received from these sockets, and
/// publishes what calls by handle have left unpublished (MSG_MORE), as a receive does before it
/// waits. A handle that another group closes ends the wait: POLLNVAL.
///
/// Only what was asked for, an error, a hang-up or a stale handle ends the wait. Each entry's
/// `revents` receives what was found.
///
/// # Cooperation
/// All lanes call it with the same set; they share the work of examining it.
///
/// # Errors
/// Canceled; NetworkDown. A timeout is `Ok(0)`.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Listener, Net, PollFd, PollSet, Result, poll, poll::POLLIN, Timeout};
/// # fn example<G: Group>(g: &G, net: Net, listener: Listener, set: PollSet) -> Result<()> {
/// if g.is_leader() {
///     set.set(0, PollFd { handle: listener.handle().raw(), events: POLLIN, revents: 0 });
/// }
/// g.sync();
/// if poll(g, net, set, Timeout::ms(1))? > 0 && set.get(0).revents & POLLIN != 0 {
///     listener.accept(g)?.close(g)?;
/// }
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub fn poll<G: Group>(g: &G, net: Net, set: PollSet, timeout: Timeout) -> Result<usize> {
    poll_until(g, net, set, timeout, || false)
}

/// As [`poll`], and ends as after a timeout once `is_over` is true: for work that comes from
/// elsewhere than from sockets.
///
/// One lane asks it between two looks at the sockets, on a GPU each microsecond or so: it is a load
/// of a word of the device's memory and a comparison. A block of the CPU device sleeps while no
/// socket changes; then it asks after `timeout`.
///
/// # Cooperation
/// As [`poll`].
///
/// # Errors
/// As [`poll`].
///
/// # Examples
///
/// ```
/// # use core::sync::atomic::{AtomicU32, Ordering};
/// # use gpunet_device::{Group, Net, PollSet, Result, poll_until, Timeout};
/// # fn example<G: Group>(g: &G, net: Net, set: PollSet, tasks: &AtomicU32) -> Result<()> {
/// let seen = g.broadcast(tasks.load(Ordering::Relaxed) as u64) as u32;
/// if poll_until(g, net, set, Timeout::ms(1), || tasks.load(Ordering::Relaxed) != seen)? == 0 {
///     // No socket is ready: there is a new task, or a millisecond has passed.
/// }
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub fn poll_until<G: Group>(
    g: &G,
    net: Net,
    set: PollSet,
    timeout: Timeout,
    is_over: impl Fn() -> bool,
) -> Result<usize> {
    poll_until_woken(g, net, set, timeout, None, is_over)
}

/// As [`poll_until`], and ends as after a timeout once one of `words` differs from what the group
/// has seen: a block of the CPU device sleeps on them, too, and a GPU's group loads them together
/// with the epoch. Who has changed one of them calls [`WakeWords::wake`]. Words that differ already
/// end the wait at once, so no wake-up is lost.
///
/// # Cooperation
/// As [`poll`].
///
/// # Errors
/// As [`poll`].
#[inline(always)]
pub fn poll_until_woken<G: Group>(
    g: &G,
    net: Net,
    set: PollSet,
    timeout: Timeout,
    words: Option<WakeWords>,
    is_over: impl Fn() -> bool,
) -> Result<usize> {
    let mut cache = PollCache::EMPTY;
    poll_again(g, net, set, &mut cache, timeout, words, is_over)
}

/// As [`poll_until_woken`], for a group that polls one set again and again: on a GPU it examines
/// only the sockets that have changed since the last poll, by the epoch, and those whose entry has
/// `revents`. So the caller leaves `revents` as the last poll has set it, and sets
/// [`PollFd::EXAMINE`] in an entry that it changes.
///
/// # Cooperation
/// As [`poll`]; the cache is equal on all lanes.
///
/// # Errors
/// As [`poll`].
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Handle, Net, PollCache, PollFd, PollSet, Result, Timeout};
/// # use gpunet_device::{poll::POLLIN, poll_again};
/// # fn example<G: Group>(g: &G, net: Net, set: PollSet, new: Handle) -> Result<()> {
/// if g.is_leader() {
///     set.set(0, PollFd { handle: new.raw(), events: POLLIN, revents: PollFd::EXAMINE });
/// }
/// let mut cache = PollCache::EMPTY;
/// loop {
///     g.sync();
///     poll_again(g, net, set, &mut cache, Timeout::NEVER, None, || false)?;
///     // Receives from the sockets whose entries have `revents`.
/// }
/// # }
/// ```
#[inline(never)]
pub fn poll_again<G: Group>(
    g: &G,
    net: Net,
    set: PollSet,
    cache: &mut PollCache,
    timeout: Timeout,
    words: Option<WakeWords>,
    is_over: impl Fn() -> bool,
) -> Result<usize> {
    if !net.is_attached() {
        return Err(Error::NetworkDown);
    }
    g.sync();
    let mut pause = PollWait::new(net, timeout, Relay::of_epoch(net), Awaited::new(Call::Poll));
    pause.words = words.map(|words| (words, !set.is_empty()));
    pause.word_relay = words.and_then(|words| words.relayed_word()).map(Relay::of_word);
    let result = wait(g, net, set, cache, timeout.is_non_blocking(), &mut pause, is_over);
    if g.is_leader() {
        pause.end();
    }
    result
}

impl WakeWords {
    /// Wakes the CPU block that sleeps by the flag `sleeping`, after `word` was changed, which is
    /// one of its words. The change was a read-modify-write or a store by the word's only writer.
    ///
    /// # Safety
    /// As [`WakeWords::new`], for both.
    #[inline(always)]
    pub unsafe fn wake(sleeping: *mut u32, word: Word) {
        platform::wake_sleeper(sleeping, word);
    }
}

fn wait<G: Group>(
    g: &G,
    net: Net,
    set: PollSet,
    cache: &mut PollCache,
    no_wait: bool,
    pause: &mut PollWait,
    is_over: impl Fn() -> bool,
) -> Result<usize> {
    // Without a cache no epoch is known before the first scan: often something is ready already,
    // and the second scan, which examines all sockets again, finds what the first one missed.
    let (mut seen, mut now) = (cache.take(), None);
    // Of all lanes, by the last scan that examined all sockets.
    let mut waits_for = WaitsFor::default();
    let mut announced = false;
    let lane = Lane::of(g);
    let mut is_first = seen.is_some();
    if is_first {
        now = Some(Epoch(by_leader_once::<G, 1>(g, lane, || Ok(pause.relay.poll().0))?));
    }
    loop {
        // One word changes whenever a proxy-driven socket does, and says which; it was read before
        // the sockets are, so a change during the scan leads to another. Sockets of direct streams
        // have their words in this device's memory, where a load is cheap, and are read every time,
        // as are the states of all handles.
        let changes = match (seen, now) {
            (Some(seen), Some(now)) if !platform::may_sleep() => Epoch::changes_since(now, seen),
            _ => Changes::Any,
        };
        seen = now;
        let scan = scan(g, net, set, changes);
        if changes == Changes::Any || is_first {
            waits_for = WaitsFor::unpacked(g.sum(scan.waits_for.packed()));
        }
        if core::mem::take(&mut is_first) && (waits_for.space || waits_for.direct) {
            // The fence of who waits for space comes before the epoch that it knows.
            (seen, now) = (None, None);
        }
        if scan.deferred > 0 {
            // The epoch need not tell that the other group has ended its turn.
            seen = None;
        }
        if !waits_for.space && !waits_for.direct {
            cache.keep(seen);
        }
        if scan.ready > 0 {
            return Ok(scan.ready as usize);
        }
        // One lane waits for all; its result is broadcast.
        let woke = by_leader_once::<G, 1>(g, lane, || {
            if now.is_none() && waits_for.space && !platform::may_sleep() {
                fence_before_wait();
            }
            pause.until_due(|| watched(set), seen, || waits_for.direct, no_wait, !announced, &is_over)
        });
        // Announcing costs a microsecond in which something may come: a poll that soon finds a
        // socket ready does without. One that finds none has announced when it returns, whatever
        // has ended it.
        let may_announce = match woke {
            Ok(word) => word & MAY_ANNOUNCE != 0,
            Err(error) => error == Error::TimedOut,
        };
        if may_announce && !announced {
            announced = true;
            announce(g, net, set);
        }
        match woke {
            Ok(word) => now = Some(Epoch(word & !MAY_ANNOUNCE)),
            Err(error) => {
                g.sync();
                return if error == Error::TimedOut { Ok(0) } else { Err(error) };
            }
        }
    }
}

/// In a leader's answer: the wait is long enough to announce something. Epochs use 56 bits.
pub(crate) const MAY_ANNOUNCE: u64 = 1 << 62;

/// The result of a scan of a set.
struct Scan {
    /// Ready sockets, of all lanes.
    ready: u32,
    /// What the sockets of this lane wait for.
    waits_for: WaitsFor,
    /// Listeners at which another group has the turn to accept, of all lanes.
    deferred: u32,
}

/// What sockets wait for, as far as a wait depends on it.
#[derive(Clone, Copy, Default)]
struct WaitsFor {
    /// Some are direct streams, whose changes do not move the epoch on a GPU.
    direct: bool,
    /// Some are other streams, for space in the ring.
    space: bool,
}

impl WaitsFor {
    /// In two parts of a word, so that those of all lanes can be added up.
    fn packed(self) -> u32 {
        u32::from(self.direct) | u32::from(self.space) << 16
    }

    fn unpacked(sum: u32) -> Self {
        Self { direct: sum & 0xffff != 0, space: sum >> 16 != 0 }
    }
}

/// Orders what this device has published before the loads by which a GPU's group decides to wait
/// for space: a data thread tells only of rings that it saw full. A CPU's poller passes the same
/// fence when it registers. By one lane, between barriers of the group.
fn fence_before_wait() {
    // Ordering: SeqCst, pairs with the fence in the proxy's `DrivenStream::release`: either the
    // scan that follows finds the new `released`, or the data thread finds this end's `published`,
    // and moves the epoch on, which is loaded after this fence.
    fence(Ordering::SeqCst);
}

/// The sum of a scan counts ready sockets in the bits below this one, and deferred listeners from
/// it on. A device has 65,536 sockets at most.
const DEFERRED_SHIFT: u32 = 20;

/// Examines the sockets of a set that may have changed, or whose entries have `revents`, lanes side
/// by side.
fn scan<G: Group>(g: &G, net: Net, set: PollSet, changes: Changes) -> Scan {
    let mut scan = Scan { ready: 0, waits_for: WaitsFor::default(), deferred: 0 };
    let mut index = g.rank() as usize;
    while index < set.len() {
        let mut fd = set.get(index);
        // What the last poll has found may be so no more, whatever the epoch tells.
        let changes = if fd.revents == 0 { changes } else { Changes::Any };
        if let Some(found) = examine(net, fd, changes) {
            scan.ready += u32::from(found.revents != 0);
            scan.waits_for.direct |= found.is_direct;
            scan.waits_for.space |= found.waits_for_space;
            scan.deferred += u32::from(found.is_deferred);
            if changes == Changes::Any || found.revents != 0 {
                fd.revents = found.revents;
                set.set(index, fd);
            }
        }
        index += g.size() as usize;
    }
    let sum = g.sum_once(scan.ready + (scan.deferred << DEFERRED_SHIFT));
    Scan { ready: sum & ((1 << DEFERRED_SHIFT) - 1), deferred: sum >> DEFERRED_SHIFT, ..scan }
}

/// Which changes wake a CPU block that polls this set: see [`Epoch::wakes`].
fn watched(set: PollSet) -> u32 {
    let bits =
        |index| Handle::from_raw(set.get(index).handle).map_or(0, |handle| Epoch::wakes(Some(handle.slot())));
    // The kernel takes no empty set.
    match (0..set.len()).map(bits).fold(0, |all, bits| all | bits) {
        0 => Epoch::wakes(None),
        bits => bits,
    }
}

/// Announces what the calling group has received from the sockets of a set, and publishes what
/// calls by handle have left; lanes side by side.
#[inline(never)]
fn announce<G: Group>(g: &G, net: Net, set: PollSet) {
    let mut index = g.rank() as usize;
    while index < set.len() {
        if let Some(handle) = Handle::from_raw(set.get(index).handle)
            && slots::kind_of(net, handle) == Ok(Kind::Stream)
        {
            announce_consumed(net, handle, slots::Caller::of(g).id(net));
            publish_deferred(net, handle);
        }
        index += g.size() as usize;
    }
}

/// How the leader waits between two scans.
pub(crate) struct PollWait {
    net: Net,
    guard: WaitGuard,
    registration: platform::PollerRegistration,
    /// The change counts before the last scan, once this thread is registered.
    counts: Option<platform::ChangeCounts>,
    /// For how long a CPU poller looks at the counts before it sleeps.
    spinning: platform::PollSpin,
    /// What else ends the wait of a CPU block, and whether it has sockets, too.
    words: Option<(WakeWords, bool)>,
    /// On a GPU, by which it learns of the host's word.
    word_relay: Option<Relay>,
    relay: Relay,
}

/// Rounds that a GPU's wait takes before it announces what was received: about 15 us.
const ROUNDS_BEFORE_ANNOUNCING: u32 = 8;
/// Rounds after which the relay naps between two loads of the epoch: about 0.1 ms.
const ROUNDS_BEFORE_NAPS: u32 = 64;

impl PollWait {
    pub(crate) fn new(net: Net, timeout: Timeout, relay: Relay, awaited: Awaited) -> Self {
        let deadline = Deadline::of(timeout);
        let guard = WaitGuard::new(net, deadline).waiting_for(awaited);
        let registration = platform::PollerRegistration::new(net);
        let spinning = platform::PollSpin::new();
        Self { net, guard, registration, counts: None, spinning, words: None, word_relay: None, relay }
    }

    /// Waits until another scan is due; returns the epoch now, and [`MAY_ANNOUNCE`] once it has
    /// waited long enough. `watched` says which changes wake a CPU block; `epoch` is its value
    /// before the last scan, `None` if the next one is due soon whatever it tells; `direct`:
    /// sockets are watched whose changes do not move the epoch (on a GPU); `announces`: the caller
    /// may have something to announce. `is_over` ends the wait as a timeout does.
    ///
    /// # Errors
    /// TimedOut; Canceled; NetworkDown.
    pub(crate) fn until_due(
        &mut self,
        watched: impl Fn() -> u32,
        epoch: Option<Epoch>,
        direct: impl Fn() -> bool,
        no_wait: bool,
        announces: bool,
        is_over: impl Fn() -> bool,
    ) -> Result<u64> {
        if no_wait {
            // A caller that polls in a loop must learn of cancel too.
            return self.guard.check().and(Err(Error::TimedOut));
        }
        loop {
            if is_over() {
                return Err(Error::TimedOut);
            }
            let due = self.guard.is_due();
            let rounds = self.guard.rounds();
            if due {
                self.guard.check()?;
            }
            if platform::may_sleep() {
                if self.words.as_ref().is_some_and(|(words, _)| words.have_changed()) {
                    return Err(Error::TimedOut);
                }
                if let Some(counts) = &self.counts {
                    // The scan that has just ended began after this thread registered.
                    let own = self.words.as_ref().map(|(words, watches)| (words, *watches));
                    if !counts.have_changed(own) {
                        if self.spinning.spin() {
                            continue;
                        }
                        let limit = self.guard.remaining_ns();
                        match own {
                            Some((words, watches)) => counts.sleep_until_woken(limit, watches, words),
                            None => counts.sleep(limit, watched()),
                        }
                    }
                } else if rounds <= platform::looks_before_sleep() {
                    return Ok(0);
                }
                self.registration.enter();
                // Each scan of a CPU block examines everything, whatever the epoch tells.
                self.counts = Some(platform::ChangeCounts::load(self.net));
                return Ok(MAY_ANNOUNCE);
            }
            if epoch.is_none() && rounds > 1 && platform::nap_unless(|| self.is_woken_here()) {
                return Err(Error::TimedOut);
            }
            // All are loaded before one of them is looked at: their round trips overlap.
            let words = self.load_words();
            let now = self.relay.poll();
            if self.are_woken(words) {
                return Err(Error::TimedOut);
            }
            let may_announce = announces && rounds >= ROUNDS_BEFORE_ANNOUNCING;
            // The epoch does not move when another group closes a handle: the states are read now
            // and then.
            if direct() || due || may_announce || epoch.is_none_or(|epoch| now.is_after(epoch)) {
                return Ok(now.0 | if may_announce { MAY_ANNOUNCE } else { 0 });
            }
            // The checks are up to a millisecond apart, and who sends at a rhythm waits by this.
            if self.guard.is_late() {
                return Err(Error::TimedOut);
            }
            if rounds > ROUNDS_BEFORE_NAPS && self.loads_from_host() {
                if platform::nap_unless(|| self.is_woken_here()) {
                    return Err(Error::TimedOut);
                }
            } else {
                platform::yield_core();
            }
        }
    }

    fn loads_from_host(&self) -> bool {
        self.relay.is_ours() || self.word_relay.as_ref().is_some_and(Relay::is_ours)
    }

    /// On a GPU, loads what wakes this group beside sockets: its first word, and the second one or
    /// what is relayed of it, with its copy.
    #[inline(always)]
    fn load_words(&mut self) -> Option<[u64; 3]> {
        let (words, _) = self.words.as_ref()?;
        let [(first, _), (second, _)] = words.words();
        let first = first.peek();
        let [second, copy] = match &mut self.word_relay {
            Some(relay) => relay.load(),
            None => [second.peek(), 0],
        };
        Some([first, second, copy])
    }

    /// Relays what was loaded; returns whether the group has not seen it.
    #[inline(always)]
    fn are_woken(&self, loaded: Option<[u64; 3]>) -> bool {
        let (Some((words, _)), Some([first, second, copy])) = (&self.words, loaded) else { return false };
        let [(_, seen_first), (_, seen_second)] = words.words();
        let seen_second = words.relayed_word().map_or(seen_second, |relayed| relayed.seen);
        if let Some(relay) = &self.word_relay {
            relay.settle([second, copy]);
        }
        first != seen_first || second != seen_second
    }

    /// Returns whether the word of this device says so.
    #[inline(always)]
    fn is_woken_here(&self) -> bool {
        self.words.as_ref().is_some_and(|(words, _)| {
            let [(first, seen), _] = words.words();
            first.peek() != seen
        })
    }

    pub(crate) fn end(&mut self) {
        self.relay.end();
        if let Some(relay) = &self.word_relay {
            relay.end();
        }
        if self.counts.is_some() {
            self.spinning.end();
        }
        self.registration.leave();
    }
}
