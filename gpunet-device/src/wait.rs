//! Waiting for the other end's word: what the leader checks beside it.

use crate::guard::WaitGuard;
use crate::half::{remote_park, show};
use crate::slots::{self, Half};
use crate::timeout::{Deadline, Timeout};
use crate::{Net, platform, table};
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::RingEnd;
use gpunet_abi::{Error, Handle, Result, Status};

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
        half if link.is_remote() => remote_park(wait.end.theirs, half),
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
        platform::pause(guard.rounds(), park, remaining, link.is_polled(), changed);
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
    /// which sets the status first.
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
