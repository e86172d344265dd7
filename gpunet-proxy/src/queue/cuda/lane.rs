//! Staged messages of one direction: fragments between the program's memory and the ring, copied on
//! a stream of the queue's own while the caller's stream waits for one word.
//!
//! (The lanes of a group are something else.)
//!
//! The ring is the pool of fragments. A fragment is enqueued when the ring has room for it, or has
//! it: the stream never waits, so all queues of an attachment share their streams (`streams`): two
//! for each direction, or one where connections are few.
//!
//! A message is staged once the driver has taken all of its operation, and ends when no copy uses
//! its memory any more. One that the driver stops in the middle is the last of its direction.

use super::Shared;
use super::page::At;
use super::plan::{publish, store};
use super::record::Transfer;
use crate::queue::QueueError;
use crate::socket::Appended;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{Device, Registration};
use gpunet_abi::{Direction, Error, Prepared};
use std::collections::VecDeque;

/// The smallest fragment: the copy engine of an H200 takes 8 us for it, and hardly less time for
/// fewer bytes.
const LEAST: u64 = 64 << 10;

/// Why a message has stopped.
enum Stop {
    /// Its socket has ended or failed.
    Socket(Error),
    /// The driver has refused something.
    Refused,
}

/// How a message ended, and how many of its bytes were through.
pub(super) struct Ended {
    /// The operation's number.
    pub(super) number: u64,
    /// Which one of its direction.
    pub(super) nth: u64,
    pub(super) direction: Direction,
    pub(super) bytes: u64,
    pub(super) error: Option<Error>,
}

/// The messages of one direction, one after another.
pub(super) struct Lane {
    direction: Direction,
    /// The most bytes of a fragment.
    fragment: u64,
    /// The most fragments that the copy engine has.
    depth: usize,
    engine: Engine,
    transfers: VecDeque<Transfer>,
    current: Current,
}

/// What copies.
#[derive(Default)]
struct Engine {
    /// Fragments of pageable memory go through here.
    bounce: Option<Registration>,
    /// Fragments enqueued so far.
    enqueued: u64,
}

/// How far the first message is.
#[derive(Default)]
struct Current {
    /// Bytes whose copies are enqueued.
    at: u64,
    /// Bytes whose copies are done.
    through: u64,
    fragments: VecDeque<Fragment>,
    error: Option<Error>,
    /// The error is not the socket's: the driver has refused something.
    is_refused: bool,
}

struct Fragment {
    /// Its number among those of the lane, from 1 on.
    nth: u64,
    /// Where it begins in the message, and its length.
    at: u64,
    len: u64,
}

impl Lane {
    pub(super) fn new(direction: Direction, fragment: u64, depth: usize) -> Self {
        let (engine, transfers, current) = Default::default();
        Self { direction, fragment, depth, engine, transfers, current }
    }

    pub(super) fn push(&mut self, transfer: Transfer) {
        self.transfers.push_back(transfer);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    /// Makes as much progress as is possible now. Returns whether anything moved, and the message
    /// that ended.
    pub(super) fn step(&mut self, shared: &Shared, device: &Device) -> (bool, Option<Ended>) {
        let Some(transfer) = self.transfers.front() else { return (false, None) };
        if shared.page.observe(At::Started(self.direction)) < transfer.nth {
            return (false, None);
        }
        let mut moved = self.collect(shared);
        if self.current.error.is_none() {
            match self.enqueue(shared, device) {
                Ok(enqueued) => moved |= enqueued,
                Err(Stop::Socket(error)) => self.current.error = Some(error),
                Err(Stop::Refused) => {
                    (self.current.error, self.current.is_refused) = (Some(Error::Protocol), true);
                }
            }
        }
        let (Some(transfer), current) = (self.transfers.front(), &self.current) else { return (moved, None) };
        let is_over = current.through == transfer.message.message.len || current.error.is_some();
        if !is_over || !current.fragments.is_empty() {
            return (moved, None);
        }
        let Current { through, error, is_refused, .. } = std::mem::take(&mut self.current);
        let Some(transfer) = self.transfers.pop_front() else { return (moved, None) };
        let Transfer { number, nth, message, .. } = transfer;
        if is_refused {
            shared.give_up(message.hold(), message.message.position + through);
        }
        (true, Some(Ended { number, nth, direction: self.direction, bytes: through, error }))
    }

    /// Takes up the fragments that are copied.
    fn collect(&mut self, shared: &Shared) -> bool {
        let Some(transfer) = self.transfers.front() else { return false };
        let engine = &self.engine;
        let copied = shared.page.observe(At::Copied(self.direction));
        let count = self.current.fragments.iter().take_while(|fragment| fragment.nth <= copied).count();
        if count == 0 {
            return false;
        }
        for fragment in self.current.fragments.drain(..count) {
            if let (Some(bounce), true) =
                (&engine.bounce, transfer.is_pageable && self.direction == Direction::Recv)
            {
                let place = (fragment.nth as usize % self.depth) * self.fragment as usize;
                let from = bounce.region().base().as_ptr().wrapping_add(place);
                let to = transfer.memory.as_ptr().wrapping_add(fragment.at as usize);
                // SAFETY: the fragment's own place of the bounce buffer, which the copy engine has
                // filled, and the program's memory by the buffer's contract.
                unsafe { to.copy_from_nonoverlapping(from, fragment.len as usize) };
            }
            self.current.through = fragment.at + fragment.len;
        }
        true
    }

    /// Enqueues fragments, as many as the ring and the depth allow.
    fn enqueue(&mut self, shared: &Shared, device: &Device) -> Result<bool, Stop> {
        let Some(transfer) = self.transfers.front() else { return Ok(false) };
        let Appended { message, capacity, .. } = transfer.message;
        let hold = transfer.message.hold();
        if hold.is_given_up() {
            // In the middle of a message before it.
            return Err(Stop::Socket(Error::Protocol));
        }
        // By quarters, so that the copy engine and the other end work at a time.
        let most = self.fragment.min(capacity.div_ceil(4)).min(message.len.div_ceil(4).max(LEAST));
        let mut moved = false;
        while self.current.at < message.len && self.current.fragments.len() < self.depth {
            let at = self.current.at;
            let want = most.min(message.len - at);
            // Before the word: what landed, or was released, before the status was set counts.
            let failure = hold.end();
            let word = shared.read_other(hold).ok_or(Stop::Refused)?;
            let ready = match self.direction {
                Direction::Send => (word.position() + capacity).saturating_sub(message.position + at),
                Direction::Recv => word.position().saturating_sub(message.position + at),
            };
            let (is_idle, is_send) = (self.current.fragments.is_empty(), self.direction == Direction::Send);
            let is_enough = ready >= want || !is_send && is_idle && ready > 0;
            if !is_enough || is_send && (failure.is_some() || word.end()) {
                let error = failure.or_else(|| word.end().then_some(hold.ended()));
                let error = error.or_else(|| shared.is_over().then_some(Error::NetworkDown));
                return match error.filter(|_| is_idle) {
                    Some(error) => Err(Stop::Socket(error)),
                    // Copies that are under way end first.
                    None => Ok(moved),
                };
            }
            let len = want.min(ready);
            let piece = Prepared { position: message.position + at, len, ..message };
            let engine = &mut self.engine;
            let copied = engine.copy((shared, device), transfer, piece, (self.fragment as usize, self.depth));
            copied.map_err(|error| {
                tracing::warn!(%error, "a staged message cannot go on");
                // The memory will be the program's: what was enqueued of the fragment ends before.
                // This stream never waits. If that fails, too, the device is lost, and nothing
                // runs.
                let _ = shared.streams.lanes[self.direction as usize][shared.lane].synchronize();
                Stop::Refused
            })?;
            self.current.fragments.push_back(Fragment { nth: engine.enqueued, at, len });
            self.current.at = at + len;
            moved = true;
        }
        Ok(moved)
    }
}

impl Engine {
    /// Enqueues one fragment: copies, and publishes.
    fn copy(
        &mut self,
        (shared, device): (&Shared, &Device),
        transfer: &Transfer,
        piece: Prepared,
        (fragment, depth): (usize, usize),
    ) -> Result<(), QueueError> {
        let hold = transfer.message.hold();
        let nth = self.enqueued + 1;
        let at = piece.position - transfer.message.message.position;
        let mut memory = transfer.memory.as_ptr() as u64 + at;
        if transfer.is_pageable {
            let bounce = match &self.bounce {
                Some(bounce) => bounce,
                None => {
                    let region = PinnedRegion::create("gpunet-bounce", fragment * depth)
                        .map_err(QueueError::device)?;
                    self.bounce.insert(device.register(region).map_err(QueueError::device)?)
                }
            };
            let place = (nth as usize % depth) * fragment;
            memory = bounce.device_ptr() + place as u64;
            if hold.direction() == Direction::Send {
                let to = bounce.region().base().as_ptr().wrapping_add(place);
                let from = transfer.memory.as_ptr().wrapping_add(at as usize);
                // SAFETY: the program's memory by the buffer's contract, and a place of the bounce
                // buffer whose last fragment, of `depth` before, is copied.
                unsafe { to.copy_from_nonoverlapping(from, piece.len as usize) };
            }
        }
        let stream = &shared.streams.lanes[hold.direction() as usize][shared.lane];
        // SAFETY: words and ring of a direction that is held until the message is done, and the
        // program's memory or the bounce buffer, both mapped until then.
        unsafe {
            let mut memory = memory;
            for part in hold.span(piece).pieces() {
                let ring = part.ptr as u64;
                let (to, from) =
                    if hold.direction() == Direction::Send { (ring, memory) } else { (memory, ring) };
                if part.len > 0 {
                    stream.copy(to, from, part.len).map_err(QueueError::device)?;
                }
                memory += part.len as u64;
            }
            let mut batch = Vec::with_capacity(4);
            publish(&mut batch, hold, piece.trigger().position);
            batch.push(store(shared.page.address(At::Copied(hold.direction())), nth));
            stream.batch(&batch).map_err(QueueError::device)?;
        }
        self.enqueued = nth;
        Ok(())
    }
}
