//! One attachment as a data thread sees it: the words that its device writes.

use super::stream::Stream;
use crate::attached::Attached;
use crate::control_queue::ControlSender;
use crate::message::{Message, StreamCount};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_core::memory::WordArray;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Slots up to which a turn looks at the words of all streams (some microseconds for ten times as many).
const SLICE: usize = 1024;
/// Control words that a turn looks at while nothing happens: those of all requests take longer than the rest of
/// such a turn, and four of them are over in a microsecond.
const CONTROLS: usize = 64;
/// Streams whose words each turn looks at, however many there are: those that were active last.
const LIVELY: usize = 256;

/// How much of the words to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All.
    Whole,
    /// Of streams those of lively ones, and a slice of the others, the next one each time: what a busy stream costs
    /// does not depend on how many are silent. Of requests a slice.
    Slice,
}

/// Goes round the slots, a slice at a time.
#[derive(Debug)]
struct Slices {
    /// Slots of a slice.
    size: usize,
    /// Where the next one begins, from the first slot on.
    next: usize,
}

impl Slices {
    const fn of(size: usize) -> Self {
        Self { size, next: 0 }
    }

    /// The next slice of every `step`th slot from `first` on, below `end`. It begins with one of them.
    fn next(&mut self, first: usize, step: usize, end: usize) -> Range<usize> {
        let begin = if first + self.next < end { self.next } else { 0 };
        self.next = begin + self.size - self.size % step;
        first + begin..(first + self.next).min(end)
    }
}

/// One attachment.
pub(super) struct Device {
    pub(super) attached: Arc<Attached>,
    published: WordArray,
    consumed: WordArray,
    requests: WordArray,
    abandons: WordArray,
    seen_published: Vec<u64>,
    seen_consumed: Vec<u64>,
    seen_requests: Vec<u64>,
    seen_abandons: Vec<u64>,
    pub(super) streams: Vec<Option<Box<Stream>>>,
    /// One more than the highest slot with a stream: the end of the scan.
    end: usize,
    /// Slots of the streams that were active last; the longest known first.
    lively: VecDeque<u32>,
    slices: Slices,
    control_slices: Slices,
}

impl Device {
    pub(super) fn new(attached: Arc<Attached>) -> Self {
        let memory = &attached.memory;
        let (sockets, controls) = (memory.geometry().sockets as usize, memory.geometry().controls as usize);
        Self {
            published: memory.published_words(),
            consumed: memory.consumed_words(),
            requests: memory.request_words(),
            abandons: memory.abandon_words(),
            seen_published: vec![0; sockets],
            seen_consumed: vec![0; sockets],
            seen_requests: vec![0; controls],
            seen_abandons: vec![0; controls],
            streams: std::iter::repeat_with(|| None).take(sockets).collect(),
            end: 0,
            lively: VecDeque::with_capacity(LIVELY + 1),
            slices: Slices::of(SLICE),
            control_slices: Slices::of(CONTROLS),
            attached,
        }
    }

    /// How far its streams are.
    pub(super) fn counts(&self) -> impl Iterator<Item = StreamCount> {
        let device = self.attached.id;
        let streams = self.streams[..self.end].iter().enumerate();
        streams.filter_map(move |(slot, stream)| {
            let stream = stream.as_deref()?;
            Some(StreamCount {
                device,
                slot: slot as u32,
                generation: stream.generation,
                counts: stream.connection.counts(),
                in_flight: stream.unacknowledged(),
                ended: stream.connection.ended(),
            })
        })
    }

    /// Enters a new stream.
    pub(super) fn insert(&mut self, index: usize, stream: Box<Stream>) {
        // Words of the slot's earlier life must not look new, nor those of this one look seen.
        self.seen_published[index] = u64::MAX;
        self.seen_consumed[index] = u64::MAX;
        self.streams[index] = Some(stream);
        self.end = self.end.max(index + 1);
    }

    /// Forgets a stream.
    pub(super) fn remove(&mut self, index: usize) {
        if self.streams[index].take().is_some_and(|stream| stream.lively) {
            self.lively.retain(|&slot| slot as usize != index);
        }
        while self.end > 0 && self.streams[self.end - 1].is_none() {
            self.end -= 1;
        }
    }

    /// Looks at the words of every `step`th stream from `first` on, of all or of a slice, and passes those on
    /// whose words changed; says whether there were any.
    pub(super) fn scan_streams(
        &mut self,
        first: usize,
        step: usize,
        extent: Extent,
        mut ready: impl FnMut(u32, &mut Stream),
    ) -> bool {
        let mut busy = false;
        let Self { streams, lively, slices, published, consumed, seen_published, seen_consumed, .. } = self;
        let mut news = VecDeque::new();
        let mut changed = |index: usize, _| {
            if let Some(stream) = streams[index].as_deref_mut() {
                busy = true;
                if !std::mem::replace(&mut stream.lively, true) {
                    news.push_back(index as u32);
                }
                ready(index as u32, stream);
            }
        };
        let mut scan = |from: usize, step: usize, end: usize| {
            published.scan(seen_published, from, step, end, &mut changed);
            consumed.scan(seen_consumed, from, step, end, &mut changed);
        };
        if extent == Extent::Whole || self.end <= SLICE {
            scan(first, step, self.end);
        } else {
            for &slot in &*lively {
                scan(slot as usize, 1, slot as usize + 1);
            }
            let slice = slices.next(first, step, self.end);
            scan(slice.start, step, slice.end);
        }
        lively.append(&mut news);
        while lively.len() > LIVELY {
            let slot = lively.pop_front();
            let stream = slot.and_then(|slot| streams[slot as usize].as_deref_mut());
            if let Some(stream) = stream {
                stream.lively = false;
            }
        }
        busy
    }

    /// Hands new control requests on, of all or of a slice, and those that were given up; says whether there
    /// were any.
    pub(super) fn scan_requests(&mut self, extent: Extent, control: &ControlSender) -> bool {
        let mut busy = false;
        let id = self.attached.id;
        let (memory, inbox) = (&self.attached.memory, &self.attached.inbox);
        let controls = self.seen_requests.len();
        let slice = match extent {
            Extent::Whole => 0..controls,
            Extent::Slice => self.control_slices.next(0, 1, controls),
        };
        let seen = self.seen_requests.iter_mut().zip(&mut self.seen_abandons);
        for (index, (seen_request, seen_abandon)) in seen.enumerate().take(slice.end).skip(slice.start) {
            // The abandon first: the request that it gives up is then visible too, and goes ahead of it.
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
                let _ = control.send(Message::Request { device: id, control: index as u32, seq, request });
            }
            if abandon != *seen_abandon && inbox.enter_abandon(index) {
                busy = true;
                *seen_abandon = abandon;
                let _ = control.send(Message::Abandon { device: id, control: index as u32, seq: abandon });
            }
        }
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_go_round_all_slots_of_a_thread_and_no_others() {
        for step in 1..=16 {
            for first in 0..step {
                for end in [SLICE + 1, SLICE + 40, 3 * SLICE, 10_000] {
                    let mine: Vec<usize> = (first..end).step_by(step).collect();
                    let mut slices = Slices::of(SLICE);
                    for _round in 0..2 {
                        let mut seen = Vec::new();
                        while seen.len() < mine.len() {
                            seen.extend(slices.next(first, step, end).step_by(step));
                        }
                        assert_eq!(seen, mine, "step {step}, first {first}, end {end}");
                    }
                }
            }
        }
    }

    #[test]
    fn slots_that_are_gone_leave_no_slice_beyond_the_end() {
        let mut slices = Slices::of(SLICE);
        slices.next(0, 1, 10_000);
        slices.next(0, 1, 10_000);
        assert_eq!(slices.next(0, 1, SLICE + 1), 0..SLICE);
    }
}
