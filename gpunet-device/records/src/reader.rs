//! The host's side of the rings: finds records by their tags.
//!
//! Nothing in a ring is trusted: a kernel may write anything there. A record is taken if every unit
//! that its length names has its tag; a length that cannot be is counted. Looks at a ring are
//! bounded by its size, whatever is there.
#![allow(unsafe_code)]

use crate::layout::{Records, Shape};
use crate::text::FormatText;
use crate::unit::{self, HEAD, Head};

/// The last number of a record. A lap adds less than 2^52 to it.
const MOST: u64 = 1 << 60;

/// What a reader has found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Records taken.
    pub records: u64,
    /// Records that were overwritten before they were read.
    pub overwritten: u64,
    /// Records for which there was no room in time, or no ring.
    pub refused: u64,
    /// Records that no recorder writes: their length cannot be.
    pub malformed: u64,
}

impl Found {
    /// Records that were written, or tried, and not taken.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.overwritten.saturating_add(self.refused).saturating_add(self.malformed)
    }

    /// What this reader and another one have found together.
    ///
    /// # Examples
    ///
    /// ```
    /// use gpunet_records::Found;
    ///
    /// let (one, other) = (Found { records: 3, ..Found::default() }, Found { refused: 1, ..Found::default() });
    /// assert_eq!(one.and(other), Found { records: 3, refused: 1, ..Found::default() });
    /// ```
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            records: self.records.saturating_add(other.records),
            overwritten: self.overwritten.saturating_add(other.overwritten),
            refused: self.refused.saturating_add(other.refused),
            malformed: self.malformed.saturating_add(other.malformed),
        }
    }
}

/// What lies at the place of the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not the whole record yet. It has begun if some of its units are there.
    NotYet { begun: bool },
    /// The record.
    Whole(Head),
    /// A record of that lap, which is later.
    Passed(u64),
    /// Its length cannot be.
    Malformed,
}

/// Reads the records of all rings, those of each in order.
#[derive(Debug)]
pub struct Reader {
    records: Records,
    /// The number of the next record of each ring.
    next: Vec<u64>,
    found: Found,
}

/// Room for the longest payload.
type Payload = [u8; Shape::MAX_PAYLOAD];
const EMPTY: Payload = [0; Shape::MAX_PAYLOAD];

impl Reader {
    /// A reader of these rings, as the host has them.
    ///
    /// # Safety
    /// As for [`Records::new`], without the memory of the device: the pinned memory is that of the
    /// recorders, and stays mapped while the reader is used. If records wait, there is one reader.
    #[must_use]
    pub unsafe fn new(records: Records) -> Self {
        let shape = records.shape();
        Self { records, next: vec![0; shape.rings() as usize], found: Found::default() }
    }

    /// Gives `each` the records that have come since the last call: the ring, the number in the
    /// ring, the head, the payload. Returns how many there were.
    ///
    /// Of each ring about as many as it keeps at most: more may be there already.
    pub fn poll(&mut self, mut each: impl FnMut(u32, u64, &Head, &[u8])) -> u64 {
        let before = self.found.records;
        let mut payload = EMPTY;
        for ring in 0..self.records.shape().rings() {
            self.poll_ring(ring, &mut payload, &mut each);
        }
        self.found.records - before
    }

    /// What was found so far, with what the recorders have counted.
    #[must_use]
    pub fn found(&self) -> Found {
        let rings = 0..self.records.shape().rings();
        let refused = rings.map(|ring| self.records.refused(ring).peek()).fold(0, u64::saturating_add);
        Found { refused: refused.saturating_add(self.records.homeless().peek()), ..self.found }
    }

    /// How many rings have the beginning of a record whose rest has not come: of writers that were
    /// killed in its middle, once all have ended.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        let rings = 0..self.records.shape().rings();
        let begun = |&ring: &u32| {
            let place = self.look(ring, self.next[ring as usize], &mut EMPTY.clone());
            place == Place::NotYet { begun: true }
        };
        rings.filter(begun).count() as u64
    }

    /// The text of a format, as the rings' memory has it; `None`: nobody has written it, or not all
    /// of it has come.
    #[must_use]
    pub fn format(&self, number: u16) -> Option<FormatText> {
        self.records.format(number)
    }

    /// The rings' shape.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.records.shape()
    }

    fn poll_ring(&mut self, ring: u32, payload: &mut Payload, each: &mut impl FnMut(u32, u64, &Head, &[u8])) {
        let shape = self.records.shape();
        let (mut first, mut passed) = (self.next[ring as usize], 0);
        let mut next = first;
        // All that a ring keeps, and what it takes to find the oldest of it.
        for _ in 0..shape.records() + 2 {
            // A recorder would need centuries: the laps are invented.
            if next > MOST {
                break;
            }
            match self.look(ring, next, payload) {
                Place::NotYet { .. } => break,
                Place::Whole(head) => {
                    each(ring, next, &head, &payload[..usize::from(head.len)]);
                    self.found.records += 1;
                    next += 1;
                }
                Place::Malformed => {
                    self.found.malformed = self.found.malformed.saturating_add(1);
                    next += 1;
                }
                Place::Passed(lap) => {
                    // At first the oldest that is still there. If the writer is faster than this,
                    // some newer one, which it does not reach at once.
                    let newest = shape.in_lap(next, lap);
                    let to = match passed {
                        0 => self.newest(ring, newest) + 1 - shape.records(),
                        _ => newest + 1 - shape.records() + shape.records() / 4,
                    };
                    passed += 1;
                    self.found.overwritten = self.found.overwritten.saturating_add(to - next);
                    next = to;
                }
            }
            // A writer that waits goes on before all is read.
            if next - first > shape.records() / 4 {
                self.give_room(ring, next);
                first = next;
            }
        }
        self.next[ring as usize] = next;
        if next != first {
            self.give_room(ring, next);
        }
    }

    /// The newest record of a ring that has this one. A writer that goes on may have written newer
    /// ones when this returns.
    fn newest(&self, ring: u32, mut newest: u64) -> u64 {
        let shape = self.records.shape();
        for _ in 0..shape.records() {
            let place = self.records.record(ring, newest + 1);
            // SAFETY: an aligned word of the place, by the contract of `new`.
            let word = unsafe { gpunet_device::abi::Word::from_ptr(place) };
            // Ordering: Relaxed; a hint, what is read later is judged again.
            let tag = (word.peek() >> 32) as u32;
            if tag != unit::tag(shape.lap(newest + 1)) {
                break;
            }
            newest += 1;
        }
        newest
    }

    /// Tells recorders that wait for room that the records before `next` have been read.
    fn give_room(&self, ring: u32, next: u64) {
        if self.records.wait().is_some() {
            // Ordering: Release, after the loads of the places that are given away; its partner is
            // the load in `wait_for_room`, whose stores depend on it. Should one pass, the tags
            // would say so.
            self.records.consumed(ring).publish(next);
        }
    }

    /// Looks at the place of record `next`. A whole record's payload then begins `payload`.
    fn look(&self, ring: u32, next: u64, payload: &mut Payload) -> Place {
        let shape = self.records.shape();
        let (lap, place) = (shape.lap(next), self.records.record(ring, next));
        let tag = unit::tag(lap);
        // A lap that is later by at most 2^31; else an earlier one.
        let later = |found: u64| ((found >> 32) as u32).wrapping_sub(tag) as i32;
        let load = |at: usize| {
            // SAFETY: an aligned word of the place, by the contract of `new`.
            let word = unsafe { gpunet_device::abi::Word::from_ptr(place.wrapping_add(at)) };
            // Ordering: Relaxed; a unit's tag comes with its bytes.
            word.peek()
        };
        let (mut words, mut begun, mut whole) = ([0; HEAD], false, true);
        for (at, word) in words.iter_mut().enumerate() {
            let found = load(at);
            match later(found) {
                0 => begun = true,
                laps @ 1.. => return Place::Passed(lap.saturating_add(laps as u64)),
                _ => whole = false,
            }
            *word = found as u32;
        }
        let head = Head::of(words);
        if !whole {
            return Place::NotYet { begun };
        }
        let len = usize::from(head.len);
        if len > shape.payload() {
            return Place::Malformed;
        }
        let (places, _) = payload.as_chunks_mut::<4>();
        for (word, at) in places.iter_mut().zip(HEAD..unit::units(len)) {
            let found = load(at);
            match later(found) {
                0 => *word = (found as u32).to_le_bytes(),
                laps @ 1.. => return Place::Passed(lap.saturating_add(laps as u64)),
                _ => return Place::NotYet { begun: true },
            }
        }
        Place::Whole(head)
    }
}

impl Drop for Reader {
    /// Who waits for room waits for nobody any more.
    fn drop(&mut self) {
        for ring in 0..self.records.shape().rings() {
            self.give_room(ring, u64::MAX);
        }
    }
}
