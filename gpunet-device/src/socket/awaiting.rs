//! Waiting for the other end's word: what the leader checks beside it.

use crate::group::Front;
use crate::socket::half::{remote_park, show};
use crate::socket::next_units::NextUnits;
use crate::socket::unpublished::publish_deferred;
use crate::table::{entry, slots};
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Net, platform};
use gpunet_abi::atomic::{Ordering, fence};
use gpunet_abi::entry::Entry;
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::RingEnd;
use gpunet_abi::units::COMPILED;
use gpunet_abi::waiting::{Awaited, Call};
use gpunet_abi::{Direction, Error, Handle, Result, Status, Timeout};

/// Waits until the other end's word of a half differs from `seen` ([`is_news`]), or the half ends;
/// returns what [`awaited`] unpacks after a broadcast. By one lane.
///
/// The polls, and what comes between the first one and the next, are the caller's own code. A
/// called function saves registers in local memory and restores them after its last poll, whose
/// acquire has emptied the cache of just that memory: of a message of 64 bytes between two blocks
/// of an H200, 2.24 us, that was 0.13 us. After many polls that found nothing, a function is
/// called: time does not matter there, and kernels stay small enough for 1,024 threads.
#[inline(always)]
pub(crate) fn await_word(
    (net, entry): (Net, *mut Entry),
    handle: Handle,
    half: Direction,
    end: RingEnd,
    (seen, ahead): (StreamWord, u64),
    timeout: Timeout,
) -> u64 {
    let mut word = end.observe();
    if is_news(word, seen, ahead) {
        return word.0;
    }
    let wait = Wait { net, handle, half, end, seen, ahead, units: None };
    let timeout = entry::resolve_timeout(entry, timeout, half);
    if timeout.is_non_blocking() {
        return look_once(wait);
    }
    let mut patience = Patience::new(&wait, Deadline::of(timeout));
    loop {
        let mut polls = 0;
        while polls < platform::slow_check_every() {
            word = end.observe();
            if is_news(word, seen, ahead) {
                return word.0;
            }
            // An end is looked at closely, and at once.
            polls = if word.end() { platform::slow_check_every() } else { polls + 1 };
        }
        let found = go_on(wait, &mut patience);
        if found != NOTHING_YET {
            return found;
        }
    }
}

/// As [`await_word`], for a receiving half whose ring has lines, by the front of a group. `look`
/// looks at the line of the next message as well as at the word, and returns what all lanes of the
/// front are to know: [`NOTHING_YET`], [`GO_ON`], a word, or what it has taken by [`taken`]. `late`
/// is called once, by one lane, when nothing has come for a while.
#[inline(always)]
pub(crate) fn await_line<F: Front>(
    front: &F,
    entry: *mut Entry,
    wait: Wait,
    timeout: Timeout,
    mut look: impl FnMut() -> u64,
    mut late: impl FnMut(),
) -> u64 {
    // Before the first look is over, all that follows may turn out to be needless. What is seldom
    // needed is called: a waiter's code is fetched anew when its message is there.
    // These loads are under way while the first look's are.
    let timeout = if front.is_first() { entry::resolve_timeout(entry, timeout, wait.half) } else { timeout };
    let mut patience = None;
    let (mut polls, mut limit, mut is_first, mut is_late) = (0, 1, true, false);
    loop {
        let found = look();
        if found < GO_ON {
            return found;
        }
        polls += 1;
        if polls < limit && found != GO_ON {
            continue;
        }
        (polls, limit) = (0, platform::slow_check_every());
        let is_first_look = core::mem::replace(&mut is_first, false);
        if is_first_look && found != GO_ON && front.all(!front.is_first() || !timeout.is_non_blocking()) {
            continue;
        }
        let found = if front.is_first() {
            if !is_late {
                late();
                is_late = true;
            }
            go_on_or_not(wait, timeout, &mut patience)
        } else {
            0
        };
        let found = front.first_of(found);
        if found != NOTHING_YET {
            return found;
        }
    }
}

/// As [`await_word`], for a receiving half with units. It also returns [`UNITS`]. By one lane.
#[inline(never)]
pub(crate) fn await_units(wait: Wait, entry: *mut Entry, timeout: Timeout) -> u64 {
    if let Some(found) = wait.poll() {
        return found;
    }
    let timeout = entry::resolve_timeout(entry, timeout, wait.half);
    if timeout.is_non_blocking() {
        return look_once(wait);
    }
    let mut patience = Patience::new(&wait, Deadline::of(timeout));
    loop {
        for _ in 0..platform::slow_check_every() {
            if let Some(found) = wait.poll() {
                return found;
            }
        }
        let found = go_on(wait, &mut patience);
        if found != NOTHING_YET {
            return found;
        }
    }
}

/// How long the rest of a message has been waited for.
pub(crate) struct Unfinished {
    guard: WaitGuard,
    is_over: bool,
}

/// Checks whether to wait for the rest of a message whose first slot is there: returns
/// [`NOTHING_YET`], or why it is given up. By one lane, after a look at all of the message.
///
/// A message of which a sender that is gone has stored a part was never sent: its `send` did not
/// return.
#[inline(never)]
pub(crate) fn await_rest(
    wait: Wait,
    entry: *mut Entry,
    timeout: Timeout,
    state: &mut Option<Unfinished>,
) -> u64 {
    let timeout = entry::resolve_timeout(entry, timeout, wait.half);
    if timeout.is_non_blocking() {
        return failed(Error::WouldBlock);
    }
    let state = state.get_or_insert_with(|| Unfinished {
        guard: WaitGuard::new(wait.net, Deadline::of(timeout)),
        is_over: false,
    });
    if state.is_over {
        return wait.end_status().map_or(NO_WORD, |status| wait.ends_by(status));
    }
    state.guard.count(platform::slow_check_every());
    if let Err(error) = slots::kind_of(wait.net, wait.handle).and_then(|_| state.guard.check()) {
        return failed(error);
    }
    // Ordering: Acquire, pairs with the proxy's publish of the status: what was stored before it is
    // visible to the next look.
    fence(Ordering::Acquire);
    state.is_over = wait.end_status().is_some();
    platform::back_off();
    NOTHING_YET
}

/// As [`go_on`], with the patience of a wait that may not have any yet; of a call that does not
/// wait, [`look_once`]. By one lane.
#[inline(never)]
fn go_on_or_not(wait: Wait, timeout: Timeout, patience: &mut Option<Patience>) -> u64 {
    if timeout.is_non_blocking() {
        return look_once(wait);
    }
    go_on(wait, patience.get_or_insert_with(|| Patience::new(&wait, Deadline::of(timeout))))
}

/// Returns whether a word says that data or space has come, and nothing else. A receiver that is
/// `ahead` of what it has seen, by bytes that it took from lines, is not interested in a word that
/// says no more than that.
#[inline(always)]
pub(crate) fn is_news(word: StreamWord, seen: StreamWord, ahead: u64) -> bool {
    differs(word, seen, ahead) && !word.end()
}

/// Returns whether a word says more than what is known, or something impossible.
#[inline(always)]
pub(crate) fn differs(word: StreamWord, seen: StreamWord, ahead: u64) -> bool {
    word.0.wrapping_sub(seen.0) > ahead
}

/// What a call finds that does not wait.
#[inline(never)]
fn look_once(wait: Wait) -> u64 {
    wait.publish_left();
    wait.poll().or_else(|| wait.poll_status()).unwrap_or_else(|| {
        // A caller that polls in a loop must learn of cancel, too.
        let over = WaitGuard::new(wait.net, Deadline::NEVER).check();
        failed(over.err().unwrap_or(Error::WouldBlock))
    })
}

/// Checks, after some polls that found nothing, whether the wait is to end, and pauses where a
/// waiter may sleep. Returns what it found, or [`NOTHING_YET`].
#[inline(never)]
fn go_on(wait: Wait, patience: &mut Patience) -> u64 {
    match wait.go_on(patience) {
        Ok(None) => NOTHING_YET,
        Ok(Some(found)) => found,
        Err(error) => failed(error),
    }
}

/// Marks what is no stream word, whose bit 63 is always 0: the errno below it, or 0 for an end that
/// the word does not show.
const NO_WORD: u64 = 1 << 63;

/// In place of what was found: nothing, so far.
pub(crate) const NOTHING_YET: u64 = u64::MAX;

/// In place of what was found: an end, which is to be looked at closely.
pub(crate) const GO_ON: u64 = NOTHING_YET - 1;

/// Marks, beside [`NO_WORD`], the length of a message that was taken from a line. No errno has it.
const TAKEN: u64 = 1 << 62;

/// In place of what was found: the next message lies in units, and is to be taken by all lanes.
pub(crate) const UNITS: u64 = taken(0);

/// Packs that a message of that length was taken from a line.
#[inline(always)]
pub(crate) const fn taken(len: usize) -> u64 {
    NO_WORD | TAKEN | len as u64
}

/// The length of the message that was taken from a line, if that is what a wait found.
#[inline(always)]
pub(crate) const fn taken_len(packed: u64) -> Option<usize> {
    if packed >> 62 == (NO_WORD | TAKEN) >> 62 && packed < GO_ON {
        Some(packed as u32 as usize)
    } else {
        None
    }
}

/// Packs why a wait ended.
#[inline(always)]
const fn failed(error: Error) -> u64 {
    NO_WORD | error.errno() as u32 as u64
}

/// Returns the word that a wait found; `None` if by the status no more will land. All lanes.
///
/// # Errors
/// Why the wait ended.
#[inline(always)]
pub(crate) fn awaited(packed: u64) -> Result<Option<StreamWord>> {
    if packed & NO_WORD == 0 {
        return Ok(Some(StreamWord(packed)));
    }
    match packed as u32 as i32 {
        0 => Ok(None),
        errno => Err(Error::from_errno(errno)),
    }
}

/// The event that is awaited.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) net: Net,
    pub(crate) handle: Handle,
    pub(crate) half: Direction,
    pub(crate) end: RingEnd,
    /// The other end's word as last believed.
    pub(crate) seen: StreamWord,
    /// How far a receiver is ahead of it.
    pub(crate) ahead: u64,
    /// Where the next message of a receiver's unit ring begins.
    pub(crate) units: Option<NextUnits>,
}

/// How long it has been waited, and what was done meanwhile.
struct Patience {
    guard: WaitGuard,
    /// The proxy has the totals.
    shown: bool,
}

impl Patience {
    #[inline(always)]
    fn new(wait: &Wait, deadline: Deadline) -> Self {
        let call = match wait.half {
            Direction::Send => Call::Send,
            Direction::Recv => Call::Recv,
        };
        let guard = WaitGuard::new(wait.net, deadline).waiting_for(Awaited::on(call, wait.handle.slot()));
        Self { guard, shown: !wait.end.link.is_direct() }
    }
}

impl Wait {
    fn go_on(&self, patience: &mut Patience) -> Result<Option<u64>> {
        let (link, guard) = (self.end.link, &mut patience.guard);
        if let Some(found) = self.poll() {
            return Ok(Some(found));
        }
        self.publish_left();
        guard.count(platform::slow_check_every());
        if let Some(found) = self.poll_status() {
            return Ok(Some(found));
        }
        // Another group may have closed it.
        slots::kind_of(self.net, self.handle)?;
        guard.check()?;
        if !patience.shown && guard.rounds() > 16 {
            // Nothing else to do: let the proxy have the totals.
            patience.shown = true;
            let (own, _) = entry::half(self.net, self.handle, self.half);
            show(self.net, self.handle.slot(), self.half, StreamWord(own.position).position());
        }
        let park = match self.half {
            half if link.is_remote() => remote_park(self.end.theirs, half),
            Direction::Send => self.net.send_park(self.handle.slot()),
            Direction::Recv => self.net.recv_park(self.handle.slot()),
        };
        let changed = || {
            self.units_are_next()
                || self.poll_word().is_some()
                || self.end_status().is_some()
                || self.is_closed()
        };
        // At the gates of a direction that the host has taken, several groups may wait. They share
        // a flag, and each of them clears it.
        let is_shared = platform::may_sleep() && slots::is_taken(self.net, self.handle, self.half);
        platform::pause(guard.rounds(), park, guard.remaining_ns(), link.is_polled() || is_shared, changed);
        Ok(None)
    }

    /// Publishes what calls by handle have left of the other direction: the peer may wait for it
    /// before it sends what is waited for.
    fn publish_left(&self) {
        if self.half == Direction::Recv {
            publish_deferred(self.net, self.handle);
        }
    }

    /// The other end's word, if it is new, packed. An end is reported only while the handle is
    /// valid: it may be the answer to a close.
    #[inline(always)]
    pub(crate) fn poll(&self) -> Option<u64> {
        if self.units_are_next() {
            return Some(UNITS);
        }
        let word = self.poll_word()?;
        if word.end()
            && let Err(closed) = self.check_open()
        {
            return Some(failed(closed));
        }
        Some(word.0)
    }

    /// Checks that nobody has closed the stream: another group, or the proxy for a launch that has
    /// ended, which sets the status first.
    fn check_open(&self) -> Result<()> {
        slots::kind_of(self.net, self.handle)?;
        let status = self.net.status(self.handle.slot(), self.handle.generation());
        if status.and_then(Status::error) == Some(Error::BadHandle) { Err(Error::BadHandle) } else { Ok(()) }
    }

    /// The other end's word, if it is new.
    #[inline(always)]
    fn poll_word(&self) -> Option<StreamWord> {
        let word = self.end.observe();
        let word = match self.units {
            Some(units) if COMPILED => units.before(word, self.seen),
            _ => word,
        };
        if differs(word, self.seen, self.ahead) { Some(word) } else { None }
    }

    #[inline(always)]
    fn units_are_next(&self) -> bool {
        COMPILED && self.units.is_some_and(|units| units.are_next(self.seen))
    }

    fn is_closed(&self) -> bool {
        slots::kind_of(self.net, self.handle).is_err()
    }

    /// The status, if it ends this half.
    fn end_status(&self) -> Option<Status> {
        let flag = match self.half {
            Direction::Send => Status::NO_SEND,
            Direction::Recv => Status::EOF,
        };
        self.net
            .status(self.handle.slot(), self.handle.generation())
            .filter(|status| status.error().is_some() || status.has(flag))
    }

    /// What the status means for this half, if anything, packed: what landed before it comes first.
    fn poll_status(&self) -> Option<u64> {
        let status = self.end_status()?;
        // Ordering: Acquire, pairs with the proxy's publish of the status: everything that landed
        // before it is visible to the poll that follows.
        fence(Ordering::Acquire);
        if self.half == Direction::Recv
            && let Some(found) = self.poll()
        {
            return Some(found);
        }
        if let Err(closed) = self.check_open() {
            return Some(failed(closed));
        }
        Some(self.ends_by(status))
    }

    /// How a status ends this half, packed.
    const fn ends_by(&self, status: Status) -> u64 {
        match (status.error(), self.half) {
            (Some(error), _) => failed(error),
            (None, Direction::Send) => failed(Error::BrokenPipe),
            (None, Direction::Recv) => NO_WORD,
        }
    }
}
