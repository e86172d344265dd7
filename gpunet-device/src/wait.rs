//! Waiting that always ends: what the leader checks beside the word it waits for.

use crate::half::{far_park, show};
use crate::slots::{self, Half};
use crate::{Net, platform, table};
use gpunet_abi::layout::HEARTBEAT_DOWN;
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::RingEnd;
use gpunet_abi::{Error, Handle, Options, Result, Status};

/// How long a call may wait, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout(u64);

impl Timeout {
    /// Not at all: EAGAIN.
    pub(crate) const NON_BLOCKING: Self = Self(1 << 62);
    /// Without limit.
    pub(crate) const NEVER: Self = Self(0);
    /// As the options of the socket say when the wait begins. Lanes need not know them.
    pub(crate) const SOCKET: Self = Self(1 << 61);
    /// The same, but a call on a non-blocking socket waits, too: without limit.
    pub(crate) const SOCKET_BLOCKING: Self = Self(Self::SOCKET.0 + 1);

    /// That many nanoseconds; 0 means without limit, and so do more than 73 years.
    #[inline(always)]
    pub(crate) const fn ns(ns: u64) -> Self {
        if ns < Self::SOCKET.0 { Self(ns) } else { Self::NEVER }
    }

    /// The timeout of a half of a socket with these options.
    pub(crate) const fn of_half(half: Half, options: &Options) -> Self {
        let ns = match half {
            Half::Send => options.send_timeout_ns,
            Half::Recv => options.recv_timeout_ns,
        };
        Self::of(options.has(Options::NONBLOCK), ns)
    }

    /// What the socket's options make of it. By one lane.
    fn resolve(self, net: Net, handle: Handle, half: Half) -> Self {
        if self != Self::SOCKET && self != Self::SOCKET_BLOCKING {
            return self;
        }
        let timeout = Self::of_half(half, &table::options(net, handle));
        if self == Self::SOCKET_BLOCKING && timeout.is_non_blocking() { Self::NEVER } else { timeout }
    }

    /// The timeout of a socket: non-blocking, or its timeout option.
    #[inline(always)]
    pub(crate) const fn of(nonblocking: bool, timeout_ns: u64) -> Self {
        if nonblocking { Self::NON_BLOCKING } else { Self::ns(timeout_ns) }
    }

    /// The timeout as a word, for a broadcast.
    #[inline(always)]
    pub(crate) const fn packed(self) -> u64 {
        self.0
    }

    /// What [`Timeout::packed`] packed.
    #[inline(always)]
    pub(crate) const fn unpacked(word: u64) -> Self {
        Self(word)
    }

    /// Returns whether a call does not wait.
    #[inline(always)]
    pub(crate) const fn is_non_blocking(self) -> bool {
        self.0 == Self::NON_BLOCKING.0
    }

    /// When a wait that begins now ends.
    #[inline(always)]
    pub(crate) fn deadline(self) -> Deadline {
        if self.is_non_blocking() || self.0 == Self::NEVER.0 {
            Deadline::NEVER
        } else {
            Deadline::after(self.0)
        }
    }
}

/// A moment of the device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline(u64);

impl Deadline {
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// So many nanoseconds from now.
    #[inline(always)]
    pub(crate) fn after(ns: u64) -> Self {
        Self(platform::now_ns().saturating_add(ns))
    }
}

/// A time without a heartbeat counts at most so much per check: a process that was stopped and goes
/// on must not take its own absence for the proxy's.
const MAX_STEP_NS: u64 = 300_000_000;

/// What ends a wait, whatever it waits for: the deadline, cancel, or a proxy without a heartbeat.
pub(crate) struct WaitGuard {
    net: Net,
    /// A close goes on although its launch was cancelled.
    ignore_cancel: bool,
    rounds: u32,
    deadline: Deadline,
    /// The clock at the last check; before the first one, later than it can be.
    last_check: u64,
    last_beat: u64,
    silent_ns: u64,
}

impl WaitGuard {
    /// Begins a wait. It does not read the clock yet: most waits are over before the first check.
    #[inline(always)]
    pub(crate) fn new(net: Net, deadline: Deadline) -> Self {
        let last_check = u64::MAX;
        Self { net, ignore_cancel: false, rounds: 0, deadline, last_check, last_beat: 0, silent_ns: 0 }
    }

    /// The same wait, not ended by cancel: for the closes of a cancelled kernel.
    #[inline(always)]
    pub(crate) fn ignoring_cancel(mut self, ignore_cancel: bool) -> Self {
        self.ignore_cancel = ignore_cancel;
        self
    }

    /// Counts a round; returns whether it is time for a check: in every round on the CPU, in every
    /// 128th on a GPU.
    #[inline(always)]
    pub(crate) fn is_due(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        self.rounds.is_multiple_of(platform::SLOW_CHECK_EVERY)
    }

    /// Rounds waited so far.
    #[inline(always)]
    pub(crate) const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Checks whether the wait is to end.
    ///
    /// # Errors
    /// Canceled, NetworkDown or TimedOut.
    #[inline(always)]
    pub(crate) fn check(&mut self) -> Result<()> {
        if platform::is_abandoned() || (!self.ignore_cancel && self.net.cancel().peek() != 0) {
            return Err(Error::Canceled);
        }
        let now = platform::now_ns();
        let beat = self.net.heartbeat().peek();
        if beat == self.last_beat {
            let step = now.saturating_sub(self.last_check);
            self.silent_ns += if step < MAX_STEP_NS { step } else { MAX_STEP_NS };
        } else {
            self.last_beat = beat;
            self.silent_ns = 0;
        }
        self.last_check = now;
        if beat == HEARTBEAT_DOWN || self.silent_ns > self.net.context().heartbeat_timeout_ns {
            return Err(Error::NetworkDown);
        }
        if now >= self.deadline.0 { Err(Error::TimedOut) } else { Ok(()) }
    }

    /// Nanoseconds from the last check until the deadline; 0 before the first one.
    #[inline(always)]
    pub(crate) fn remaining_ns(&self) -> u64 {
        self.deadline.0.saturating_sub(self.last_check)
    }
}

/// Waits until the other end's word of a half differs from `seen`, or the half ends; returns what
/// [`awaited`] unpacks after a broadcast. By one lane.
///
/// One function for both halves and all groups, kept out of line: a wait is not hurried by a call,
/// and kernels stay small enough for 1,024 threads.
#[inline(never)]
pub(crate) fn await_word(
    net: Net,
    handle: Handle,
    half: Half,
    end: RingEnd,
    seen: StreamWord,
    timeout: Timeout,
) -> u64 {
    let wait = Wait { net, handle, half, end, seen };
    // What is there already needs no wait.
    if let Some(found) = wait.poll() {
        return found;
    }
    let timeout = timeout.resolve(net, handle, half);
    if timeout.is_non_blocking() {
        return wait.poll_status().unwrap_or_else(|| {
            // A caller that polls in a loop must learn of cancel, too.
            let over = WaitGuard::new(net, Deadline::NEVER).check();
            failed(over.err().unwrap_or(Error::WouldBlock))
        });
    }
    wait_for(&wait, timeout.deadline()).unwrap_or_else(failed)
}

/// Marks what is no stream word, whose bit 63 is always 0: the errno below it, or 0 for an end that the
/// word does not show.
const NO_WORD: u64 = 1 << 63;

/// Packs why a wait ended.
#[inline(always)]
fn failed(error: Error) -> u64 {
    NO_WORD | error.errno() as u32 as u64
}

/// What a wait found: a word, or `None` when nothing more will land by the status. All lanes.
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

struct Wait {
    net: Net,
    handle: Handle,
    half: Half,
    end: RingEnd,
    seen: StreamWord,
}

#[inline(always)]
fn wait_for(wait: &Wait, deadline: Deadline) -> Result<u64> {
    let mut guard = WaitGuard::new(wait.net, deadline);
    let link = wait.end.link;
    let park = match wait.half {
        half if link.is_far() => far_park(wait.end.theirs, half),
        Half::Send => wait.net.send_park(wait.handle.slot()),
        Half::Recv => wait.net.recv_park(wait.handle.slot()),
    };
    let mut shown = !link.is_direct();
    loop {
        if let Some(found) = wait.poll() {
            return Ok(found);
        }
        if guard.is_due() {
            if let Some(found) = wait.poll_status() {
                return Ok(found);
            }
            // Another group may have closed it.
            slots::kind_of(wait.net, wait.handle)?;
            guard.check()?;
            if !shown && guard.rounds() > 16 {
                // Nothing else to do: let the proxy have the totals.
                shown = true;
                let (own, _) = table::half(wait.net, wait.handle, wait.half);
                show(wait.net, wait.handle.slot(), wait.half, StreamWord(own.position).position());
            }
        }
        let remaining = guard.remaining_ns();
        let changed = || wait.poll_word().is_some() || wait.end_status().is_some() || wait.is_closed();
        platform::pause(guard.rounds(), park, remaining, link.is_silent(), changed);
    }
}

impl Wait {
    /// The other end's word, if it is new, packed. An end is reported only while the handle is valid: it
    /// may be the answer to a close.
    #[inline(always)]
    fn poll(&self) -> Option<u64> {
        let word = self.poll_word()?;
        if word.end()
            && let Err(closed) = self.check_open()
        {
            return Some(failed(closed));
        }
        Some(word.0)
    }

    /// Checks that nobody has closed the stream: another group, or the proxy for a launch that has ended,
    /// which says so in the status first.
    fn check_open(&self) -> Result<()> {
        slots::kind_of(self.net, self.handle)?;
        let status = self.net.status(self.handle.slot(), self.handle.generation());
        if status.and_then(Status::error) == Some(Error::BadHandle) { Err(Error::BadHandle) } else { Ok(()) }
    }

    /// The other end's word, if it is new.
    #[inline(always)]
    fn poll_word(&self) -> Option<StreamWord> {
        let word = self.end.observe();
        if word == self.seen { None } else { Some(word) }
    }

    fn is_closed(&self) -> bool {
        slots::kind_of(self.net, self.handle).is_err()
    }

    /// The status, if it ends this half.
    fn end_status(&self) -> Option<Status> {
        let flag = match self.half {
            Half::Send => Status::NO_SEND,
            Half::Recv => Status::EOF,
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
        core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
        if self.half == Half::Recv
            && let Some(found) = self.poll()
        {
            return Some(found);
        }
        if let Err(closed) = self.check_open() {
            return Some(failed(closed));
        }
        Some(match (status.error(), self.half) {
            (Some(error), _) => failed(error),
            (None, Half::Send) => failed(Error::BrokenPipe),
            (None, Half::Recv) => NO_WORD,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_nanoseconds_stands_for_something_else() {
        let marks = [Timeout::NON_BLOCKING, Timeout::SOCKET, Timeout::SOCKET_BLOCKING];
        let first = Timeout::SOCKET.0;
        for ns in [1, first - 1, first, first + 1, Timeout::NON_BLOCKING.0, u64::MAX] {
            assert!(!marks.contains(&Timeout::ns(ns)), "{ns}");
        }
        assert_ne!(Timeout::SOCKET, Timeout::SOCKET_BLOCKING);
        assert_eq!(Timeout::ns(first - 1).packed(), first - 1);
        assert_eq!(Timeout::ns(first), Timeout::NEVER);
    }
}
