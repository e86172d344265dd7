//! One attachment as a data thread sees it: the words that its device writes.

use super::stream::DrivenStream;
use super::streams::{Streams, Words};
use crate::engine::control_queue::ControlSender;
use crate::model::attachment_state::AttachmentState;
use crate::model::message::{Message, StreamCount};
use gpunet_abi::control::Reply;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_core::ids::RequestId;
use gpunet_core::memory::WordArray;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Up to this many streams, of all attachments together, a turn scans the words of all. More
/// streams are scanned in slices. (Ten times as many take some microseconds.)
pub(super) const SLICE: usize = 1024;
/// The smallest slice of one attachment.
const MIN_SLICE: usize = 16;
/// Control slots that a turn scans while nothing happens. Scanning those of all requests takes
/// longer than the rest of such a turn; scanning these takes under a microsecond.
const CONTROLS: usize = 64;
/// Streams whose words each turn scans, however many there are: the most recently active ones.
const RECENT: usize = 256;

/// How many of the words to scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All.
    Whole,
    /// The words of recently active streams, and the next slice of the others: what a busy stream
    /// costs does not depend on how many are idle. Of requests also a slice.
    Slice,
}

/// Goes round a list, a slice at a time.
#[derive(Debug, Default)]
struct Slices {
    /// Where the next one begins.
    next: usize,
}

impl Slices {
    /// Returns the next slice of `size` entries of a list that has `len`.
    fn next(&mut self, size: usize, len: usize) -> Range<usize> {
        let begin = if self.next < len { self.next } else { 0 };
        self.next = (begin + size).min(len);
        begin..self.next
    }
}

/// An attachment that the data thread serves.
pub(super) struct ServedAttachment {
    pub(super) state: Arc<AttachmentState>,
    words: Words,
    requests: WordArray,
    abandons: WordArray,
    seen_requests: Vec<u64>,
    seen_abandons: Vec<u64>,
    pub(super) streams: Streams<Box<DrivenStream>>,
    /// Slots of the recently active streams, the longest known first.
    recent: VecDeque<u32>,
    slices: Slices,
    control_slices: Slices,
}

impl ServedAttachment {
    pub(super) fn new(state: Arc<AttachmentState>) -> Self {
        let memory = &state.memory;
        let controls = memory.geometry().controls as usize;
        Self {
            words: memory.stream_words(),
            requests: memory.request_words(),
            abandons: memory.abandon_words(),
            seen_requests: vec![0; controls],
            seen_abandons: vec![0; controls],
            streams: Streams::default(),
            recent: VecDeque::with_capacity(RECENT + 1),
            slices: Slices::default(),
            control_slices: Slices::default(),
            state,
        }
    }

    /// The progress of its streams.
    pub(super) fn counts(&self) -> impl Iterator<Item = StreamCount> {
        let attachment = self.state.id;
        self.streams.iter().map(move |(slot, stream)| StreamCount {
            attachment,
            slot,
            generation: stream.generation,
            counts: stream.connection.counts(),
            in_flight: stream.unacknowledged(),
            ended: stream.connection.ended(),
        })
    }

    /// Forgets a stream.
    pub(super) fn remove(&mut self, slot: u32) {
        if self.streams.remove(slot).is_some_and(|stream| stream.recent) {
            self.recent.retain(|&recent| recent != slot);
        }
    }

    /// Scans the words of all streams or of some, and calls `ready` for those whose words changed;
    /// returns whether there were any. The slice is divided among `sharing` attachments.
    pub(super) fn scan_streams(
        &mut self,
        extent: Extent,
        sharing: usize,
        mut ready: impl FnMut(&AttachmentState, u32, &mut DrivenStream),
    ) -> bool {
        let mut busy = false;
        let Self { state, streams, recent, slices, words, .. } = self;
        let mut newly_active = VecDeque::new();
        let mut changed = |slot: u32, stream: &mut Box<DrivenStream>| {
            busy = true;
            if !std::mem::replace(&mut stream.recent, true) {
                newly_active.push_back(slot);
            }
            ready(state, slot, stream);
        };
        let (len, slice) = (streams.len(), (SLICE / sharing).max(MIN_SLICE));
        if extent == Extent::Whole || len <= slice {
            streams.scan_range(0..len, words, &mut changed);
        } else {
            for &slot in &*recent {
                streams.scan_slot(slot, words, &mut changed);
            }
            streams.scan_range(slices.next(slice, len), words, &mut changed);
        }
        recent.append(&mut newly_active);
        while recent.len() > RECENT {
            let slot = recent.pop_front();
            if let Some(stream) = slot.and_then(|slot| streams.get_mut(slot)) {
                stream.recent = false;
            }
        }
        busy
    }

    /// Hands new control requests and abandons on to the control thread; returns whether there were
    /// any. Scans `most` control slots, but at least a few.
    pub(super) fn scan_requests(&mut self, most: usize, control: &ControlSender) -> bool {
        let mut busy = false;
        let attachment = self.state.id;
        let (memory, inbox) = (&self.state.memory, &self.state.inbox);
        let controls = self.seen_requests.len();
        let slice = match most.max(CONTROLS) {
            most if most >= controls => 0..controls,
            most => self.control_slices.next(most, controls),
        };
        let seen = self.seen_requests.iter_mut().zip(&mut self.seen_abandons);
        for (index, (seen_request, seen_abandon)) in seen.enumerate().take(slice.end).skip(slice.start) {
            // Read the abandon first: the request that it gives up is then visible too, and is sent
            // before it.
            let abandon = self.abandons.get(index).observe();
            let seq = self.requests.get(index).observe();
            if seq != *seen_request {
                if !inbox.enter_request(index) {
                    continue;
                }
                busy = true;
                *seen_request = seq;
                let request = Box::new(memory.read_request(index as u32));
                hand_off::at(HandOff::RequestRead);
                let id = RequestId::Device { control: index as u32, seq };
                let is_answered = request.is_answered_first();
                let _ = control.send(Message::Request { attachment, id, request });
                if is_answered {
                    memory.write_reply(index as u32, seq, &Reply::new(0, 0));
                }
            }
            if abandon != *seen_abandon && inbox.enter_abandon(index) {
                busy = true;
                *seen_abandon = abandon;
                let id = RequestId::Device { control: index as u32, seq: abandon };
                let _ = control.send(Message::Abandon { attachment, id });
            }
        }
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_go_round_the_whole_list() {
        for len in [1, 40, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE, 10_000] {
            let mut slices = Slices::default();
            for _round in 0..2 {
                let mut seen = Vec::new();
                while seen.len() < len {
                    seen.extend(slices.next(SLICE, len));
                }
                assert!(seen.into_iter().eq(0..len), "{len}");
            }
        }
    }

    #[test]
    fn entries_that_are_gone_leave_no_slice_beyond_the_end() {
        let mut slices = Slices::default();
        slices.next(SLICE, 10_000);
        slices.next(SLICE, 10_000);
        assert_eq!(slices.next(SLICE, SLICE + 1), 0..SLICE);
    }
}
