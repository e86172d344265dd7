//! Waiting that always ends: what the leader looks at beside the word it waits for.

use crate::half::{far_park, show};
use crate::outcome::pack;
use crate::slots::{self, Half};
use crate::{Net, platform};
use gpunet_abi::layout::HEARTBEAT_DOWN;
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::RingEnd;
use gpunet_abi::{Error, Handle, Result, Status};

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all: EAGAIN.
    None,
    /// That many nanoseconds; 0 means without limit.
    Ns(u64),
}

impl Patience {
    /// The patience of a socket: non-blocking, or its timeout option.
    #[inline(always)]
    pub(crate) const fn of(nonblocking: bool, timeout_ns: u64) -> Self {
        if nonblocking { Self::None } else { Self::Ns(timeout_ns) }
    }
}

/// A time without a heartbeat counts at most so much per look: a process that was stopped and goes
/// on must not take its own absence for the proxy's.
const MAX_STEP_NS: u64 = 300_000_000;

/// The leader's watch during one wait: deadline, cancel, heartbeat.
pub(crate) struct Vigil {
    net: Net,
    /// A close goes on although its launch was cancelled.
    deaf: bool,
    rounds: u32,
    deadline: u64,
    last_look: u64,
    last_beat: u64,
    silent_ns: u64,
}

impl Vigil {
    /// Begins a wait.
    #[inline(always)]
    pub(crate) fn new(net: Net, limit_ns: u64) -> Self {
        let now = platform::now_ns();
        let deadline = if limit_ns == 0 { u64::MAX } else { now.saturating_add(limit_ns) };
        Self { net, deaf: false, rounds: 0, deadline, last_look: now, last_beat: 0, silent_ns: 0 }
    }

    /// The same wait, not ended by cancel: for what a cancelled kernel still has to say.
    #[inline(always)]
    pub(crate) fn deaf_if(mut self, deaf: bool) -> Self {
        self.deaf = deaf;
        self
    }

    /// Says whether it is time for the slow looks: every look on the CPU, every 128th on a GPU.
    #[inline(always)]
    pub(crate) fn due(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        self.rounds.is_multiple_of(platform::SLOW_CHECK_EVERY)
    }

    /// Rounds waited so far.
    #[inline(always)]
    pub(crate) const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The slow looks.
    ///
    /// # Errors
    /// Canceled, NetworkDown or TimedOut.
    #[inline(always)]
    pub(crate) fn look(&mut self) -> Result<()> {
        if platform::is_abandoned() || (!self.deaf && self.net.cancel().peek() != 0) {
            return Err(Error::Canceled);
        }
        let now = platform::now_ns();
        let beat = self.net.heartbeat().peek();
        if beat == self.last_beat {
            let step = now.saturating_sub(self.last_look);
            self.silent_ns += if step < MAX_STEP_NS { step } else { MAX_STEP_NS };
        } else {
            self.last_beat = beat;
            self.silent_ns = 0;
        }
        self.last_look = now;
        if beat == HEARTBEAT_DOWN || self.silent_ns > self.net.context().heartbeat_timeout_ns {
            return Err(Error::NetworkDown);
        }
        if now >= self.deadline { Err(Error::TimedOut) } else { Ok(()) }
    }

    /// Nanoseconds until the deadline.
    #[inline(always)]
    pub(crate) fn remaining_ns(&self) -> u64 {
        self.deadline.saturating_sub(self.last_look)
    }
}

/// Waits until the other end's word of a half moves past `seen`, ends, or the half fails; returns
/// the word or the error, packed for a broadcast. By one lane.
///
/// One function for both halves and all groups, kept out of line: a wait is not hurried by a call,
/// and kernels stay small enough for 1,024 threads.
#[inline(never)]
pub(crate) fn await_word(
    net: Net,
    handle: Handle,
    half: Half,
    end: RingEnd,
    seen: u64,
    patience: Patience,
) -> u64 {
    pack(wait_for(&Wait { net, handle, half, end, seen }, patience))
}

struct Wait {
    net: Net,
    handle: Handle,
    half: Half,
    end: RingEnd,
    seen: u64,
}

fn wait_for(wait: &Wait, patience: Patience) -> Result<u64> {
    let limit = match patience {
        Patience::Ns(limit) => limit,
        Patience::None => {
            if let Some(word) = wait.news() {
                return wait.verdict(word);
            }
            // One who asks again and again must hear of cancel too.
            let over = Vigil::new(wait.net, 0).look();
            return wait.last_words().unwrap_or(over.and(Err(Error::WouldBlock)));
        }
    };
    let mut vigil = Vigil::new(wait.net, limit);
    let link = wait.end.link;
    let park = match wait.half {
        half if link.is_far() => far_park(wait.end.theirs, half),
        Half::Send => wait.net.send_park(wait.handle.slot()),
        Half::Recv => wait.net.recv_park(wait.handle.slot()),
    };
    let mut shown = !link.is_direct();
    loop {
        if let Some(word) = wait.news() {
            return wait.verdict(word);
        }
        if vigil.due() {
            if let Some(result) = wait.last_words() {
                return result;
            }
            // Another group may have closed it.
            slots::kind_of(wait.net, wait.handle)?;
            vigil.look()?;
            if !shown && vigil.rounds() > 16 {
                // Nothing else to do: let the proxy's books have the totals.
                shown = true;
                let (own, _) = slots::half(wait.net, wait.handle, wait.half);
                show(wait.net, wait.handle.slot(), wait.half, StreamWord(own.position).position());
            }
        }
        let remaining = vigil.remaining_ns();
        let changed = || wait.news().is_some() || wait.ended().is_some();
        platform::pause(vigil.rounds(), park, remaining, link.is_silent(), changed);
    }
}

impl Wait {
    /// The other end's word, if it says something new.
    #[inline(always)]
    fn news(&self) -> Option<StreamWord> {
        let word = self.end.observe();
        if word.position() != self.seen || word.fin() || word.err() { Some(word) } else { None }
    }

    /// What a word that says something new means: data first, then the end or the failure.
    fn verdict(&self, word: StreamWord) -> Result<u64> {
        match (word.err(), self.half) {
            (false, _) => Ok(word.0),
            // A reader that gave up reads no more, as far as a sender cares.
            (true, Half::Send) => Ok(StreamWord::at(word.position()).with_fin().0),
            (true, Half::Recv) if word.position() != self.seen => Ok(StreamWord::at(word.position()).0),
            (true, Half::Recv) => Err(Error::ConnectionReset),
        }
    }

    /// The status, if it concerns this half.
    fn ended(&self) -> Option<Status> {
        let flag = match self.half {
            Half::Send => Status::NO_SEND,
            Half::Recv => Status::EOF,
        };
        self.net
            .status(self.handle.slot(), self.handle.generation())
            .filter(|status| status.error().is_some() || status.has(flag))
    }

    /// What the status means for this half, if anything: what landed before it comes first.
    fn last_words(&self) -> Option<Result<u64>> {
        let status = self.ended()?;
        // Ordering: Acquire, pairs with the proxy's publish of the status: everything that landed
        // before it is visible to the look that follows.
        core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
        if self.half == Half::Recv
            && let Some(word) = self.news()
            && word.position() != self.seen
        {
            return Some(self.verdict(word));
        }
        Some(match (status.error(), self.half) {
            (Some(error), _) => Err(error),
            (None, Half::Send) => Err(Error::BrokenPipe),
            (None, Half::Recv) => Ok(StreamWord::at(self.seen).with_fin().0),
        })
    }
}
