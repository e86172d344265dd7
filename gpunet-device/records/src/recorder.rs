//! A group's place to write.
#![allow(unsafe_code)]

use crate::format::{Arguments, Format, Level};
use crate::layout::{Records, TAKEN};
use crate::platform;
use crate::unit::{self, HEAD, Head, Kind, MAX_WORDS, NONE_BYTE, NONE_SM};
use gpunet_device::abi::device_scope;
use gpunet_device::abi::waiting::{Awaited, Call};
use gpunet_device::group::Front;
use gpunet_device::internal::{Deadline, Lane, WaitGuard, back_off, by_leader};
use gpunet_device::{Buffer, Error, Group, Net, Result, Timeout};

/// No ring.
const HOMELESS: u32 = u32::MAX;
/// A line was printed too soon after the last one.
const TOO_SOON: u64 = u64::MAX;

/// What a group writes by: a ring of its own, from [`Recorder::open`] to [`Recorder::close`].
///
/// # Cooperation
/// All lanes of the group that has opened it call it, with the same arguments.
#[derive(Debug)]
#[must_use = "its ring stays taken until it is closed"]
pub struct Recorder {
    records: Records,
    net: Net,
    ring: u32,
    /// Block, multiprocessor, warp, lane.
    place: (u32, u16, u8, u8),
    /// The number of the next record.
    next: u64,
    /// The first number for which the recorder has not seen room. `u64::MAX`: it does not ask.
    end: u64,
    /// Records for which there was no room in time.
    refused: u64,
}

impl Recorder {
    /// Takes a ring that no other recorder has. If there is none, the records of this recorder are
    /// lost, and counted.
    ///
    /// # Cooperation
    /// All lanes of the group call it. It is a [`Group::sync`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net};
    /// # use gpunet_records::{Kind, Recorder, Records};
    /// const TURN: Kind = Kind::new(1);
    ///
    /// fn work<G: Group>(g: &G, net: Net, records: Records) {
    ///     let mut recorder = Recorder::open(g, net, records);
    ///     for turn in 0..1000 {
    ///         recorder.record(g, TURN, [turn]);
    ///     }
    ///     recorder.close(g);
    /// }
    /// ```
    #[inline(always)]
    pub fn open<G: Group>(g: &G, net: Net, records: Records) -> Self {
        let mut recorder = Self {
            records,
            net,
            ring: HOMELESS,
            place: (0, NONE_SM, NONE_BYTE, NONE_BYTE),
            next: 0,
            end: u64::MAX,
            refused: 0,
        };
        if records.is_on() {
            recorder.place = platform::place(g);
            let (ring, next) = if g.is_leader() { take_ring(records, g.index()) } else { (HOMELESS, 0) };
            recorder.ring = g.broadcast(ring.into()) as u32;
            recorder.next = g.broadcast(next);
            if records.wait().is_some() && recorder.ring != HOMELESS {
                recorder.end = recorder.next;
                recorder.refused = g.broadcast(records.refused(recorder.ring).peek());
            }
        }
        recorder
    }

    /// A recorder without rings: what it is told goes nowhere, and does not count as lost.
    #[inline(always)]
    pub const fn off() -> Self {
        let place = (0, NONE_SM, NONE_BYTE, NONE_BYTE);
        // SAFETY: 0 is no attachment.
        let net = unsafe { Net::from_raw(0) };
        Self { records: Records::OFF, net, ring: HOMELESS, place, next: 0, end: u64::MAX, refused: 0 }
    }

    /// Writes a record with at most [`MAX_WORDS`](crate::MAX_WORDS) words. Returns whether it was
    /// written: a payload that is longer than the rings' is not, nor is one for which there is no
    /// room in time. The last is counted.
    #[inline(always)]
    pub fn record<G: Group, const N: usize>(&mut self, g: &G, kind: Kind, words: [u32; N]) -> bool {
        const { assert!(N <= MAX_WORDS, "at most 27 words; a longer record is one of bytes") };
        let mut all = [0; MAX_WORDS];
        let mut at = 0;
        while at < N {
            all[at] = words[at];
            at += 1;
        }
        self.put(g, kind, &all, N)
    }

    /// Writes a record of bytes in memory, at most as many as the rings' longest payload has.
    /// Returns whether it was written, as [`Recorder::record`] does.
    #[inline(always)]
    pub fn record_bytes<G: Group>(&mut self, g: &G, kind: Kind, bytes: Buffer) -> bool {
        let lane = Lane::of(g);
        if bytes.len() > self.records.shape().payload() || !self.has_room(g, lane, 1) {
            return false;
        }
        if let Some(front) = g.front(lane) {
            let head = self.head(kind, bytes.len()).words();
            let (units, tag) = (unit::units(bytes.len()), self.tag(self.next));
            let place = self.records.record(self.ring, self.next);
            let (mut pair, step) = (front.rank(), Self::lanes::<G>(lane));
            while pair * 2 < units {
                let mut both = [0; 2];
                let mut half = 0;
                while half < 2 {
                    let at = pair * 2 + half;
                    let word = if at < HEAD {
                        word_at(&head, at)
                    } else {
                        // SAFETY: the caller's buffer; `word_of` reads no byte beyond its
                        // end.
                        unsafe { word_of(bytes, at - HEAD) }
                    };
                    both[half] = unit::unit(word, tag);
                    half += 1;
                }
                // SAFETY: a pair of the place of a record of this recorder's ring, which has room
                // for the rings' longest payload.
                unsafe { platform::store_units(place.wrapping_add(pair * 2), both) };
                pair += step;
            }
        }
        self.next += 1;
        true
    }

    /// Writes a record for each lane of a group of at most 32 lanes, with words of its own. Returns
    /// whether they were written.
    ///
    /// # Cooperation
    /// All lanes call it, each with its own words. It is a [`Group::sync`].
    #[inline(always)]
    pub fn record_each<G: Group, const N: usize>(&mut self, g: &G, kind: Kind, words: [u32; N]) -> bool {
        let lane = Lane::of(g);
        if lane.size() > 32
            || HEAD * 4 + N * 4 > HEAD * 4 + self.records.shape().payload()
            || !self.has_room(g, lane, lane.size().into())
        {
            return false;
        }
        let number = self.next + u64::from(lane.rank());
        let mut head = self.head(kind, N * 4);
        if lane.size() > 1 {
            head.lane = lane.rank() as u8;
        }
        let (head, tag, place) = (head.words(), self.tag(number), self.records.record(self.ring, number));
        let mut pair = 0;
        while pair * 2 < HEAD + N {
            let word = |at: usize| {
                if at < HEAD {
                    head[at]
                } else if at < HEAD + N {
                    words[at - HEAD]
                } else {
                    0
                }
            };
            let units = [unit::unit(word(pair * 2), tag), unit::unit(word(pair * 2 + 1), tag)];
            // SAFETY: as in `record_bytes`.
            unsafe { platform::store_units(place.wrapping_add(pair * 2), units) };
            pair += 1;
        }
        self.next += u64::from(lane.size());
        // No lane comes a lap after the others.
        g.sync();
        true
    }

    /// Prints a line. [`gprintf!`](crate::gprintf) calls it.
    #[doc(hidden)]
    #[inline(always)]
    pub fn print<G: Group, A: Arguments>(&mut self, g: &G, format: Format<A>, arguments: A) -> bool {
        let mut words = [0; MAX_WORDS];
        let kind = Kind::printed(format.number());
        if format.interval_ns() == 0 {
            arguments.put(&mut words, 0);
            return self.put(g, kind, &words, A::WORDS);
        }
        let left_out = g.broadcast(if g.is_leader() { self.may_print(format) } else { 0 });
        if left_out == TOO_SOON {
            return false;
        }
        words[0] = if left_out > u32::MAX.into() { u32::MAX } else { left_out as u32 };
        arguments.put(&mut words, 1);
        self.put(g, kind, &words, A::WORDS + 1)
    }

    /// Returns whether the host wants lines of that level.
    #[must_use]
    #[inline(always)]
    pub const fn prints(&self, level: Level) -> bool {
        self.records.prints(level)
    }

    /// Gives the ring back, for another group.
    ///
    /// # Cooperation
    /// All lanes call it. It is a [`Group::sync`].
    #[inline(always)]
    pub fn close<G: Group>(self, g: &G) {
        if self.ring != HOMELESS {
            g.sync();
            if g.is_leader() {
                // Ordering: Release, pairs with the Acquire of `platform::take` by the ring's next
                // recorder; the barrier has brought the stores of all lanes.
                device_scope::publish(self.records.holder(self.ring), self.next);
            }
        }
    }

    #[inline(always)]
    fn head(&self, kind: Kind, len: usize) -> Head {
        let (block, sm, warp, lane) = self.place;
        Head { kind, len: len as u16, time_ns: gpunet_device::now_ns(), block, sm, warp, lane }
    }

    #[inline(always)]
    fn tag(&self, number: u64) -> u32 {
        unit::tag(self.records.shape().lap(number))
    }

    /// How many lanes store the pairs of a record's units.
    #[inline(always)]
    fn lanes<G: Group>(lane: Lane) -> usize {
        if G::Front::IS_WARP { if lane.size() < 32 { lane.size() as usize } else { 32 } } else { 1 }
    }

    /// Writes a record of `count` words, which is a constant where this is inlined.
    #[inline(always)]
    fn put<G: Group>(&mut self, g: &G, kind: Kind, words: &[u32; MAX_WORDS], count: usize) -> bool {
        let lane = Lane::of(g);
        if count * 4 > self.records.shape().payload() || !self.has_room(g, lane, 1) {
            return false;
        }
        if let Some(front) = g.front(lane) {
            let head = self.head(kind, count * 4).words();
            let word = |at: usize| {
                if at < HEAD {
                    head[at]
                } else if at < HEAD + count {
                    words[at - HEAD]
                } else {
                    0
                }
            };
            let (units, tag) = (HEAD + count, self.tag(self.next));
            let place = self.records.record(self.ring, self.next);
            let (rank, lanes) = (front.rank(), Self::lanes::<G>(lane));
            // By numbers that are constants, so that the words stay in registers: each lane selects
            // its pair.
            let mut pair = 0;
            if lanes >= 16 {
                let mut own = [0; 2];
                while pair * 2 < units {
                    if rank == pair {
                        own = [word(pair * 2), word(pair * 2 + 1)];
                    }
                    pair += 1;
                }
                if rank < units.div_ceil(2) {
                    let own = own.map(|word| unit::unit(word, tag));
                    // SAFETY: as in `record_bytes`.
                    unsafe { platform::store_units(place.wrapping_add(rank * 2), own) };
                }
            } else if rank == 0 {
                while pair * 2 < units {
                    let both = [unit::unit(word(pair * 2), tag), unit::unit(word(pair * 2 + 1), tag)];
                    // SAFETY: as above.
                    unsafe { platform::store_units(place.wrapping_add(pair * 2), both) };
                    pair += 1;
                }
            }
        }
        self.next += 1;
        true
    }

    /// Returns whether there is room for `count` records: at once, unless the rings are such that
    /// records wait.
    #[inline(always)]
    fn has_room<G: Group>(&mut self, g: &G, lane: Lane, count: u64) -> bool {
        if self.ring == HOMELESS {
            if self.records.is_on() && lane.is_leader() {
                platform::count_for_host(self.records.homeless(), count);
            }
            return false;
        }
        if self.next + count <= self.end {
            return true;
        }
        // The recorder stays in registers: its address is given to no function.
        match find_room(g, self.records, self.net, self.ring, self.next + count) {
            0 => {
                self.refused += count;
                if lane.is_leader() {
                    self.records.refused(self.ring).set(self.refused);
                }
                false
            }
            end => {
                self.end = end;
                true
            }
        }
    }

    /// How many lines of a format were left out since the last that was printed, if one may be
    /// printed now. By the leader.
    #[inline(always)]
    fn may_print<A: Arguments>(&self, format: Format<A>) -> u64 {
        let Some([next, left_out]) = self.records.limit(format.number()) else { return 0 };
        let (now, from) = (gpunet_device::now_ns(), next.peek());
        if now >= from && platform::replace(next, from, now.saturating_add(format.interval_ns())) {
            return platform::take_count(left_out);
        }
        platform::count(left_out);
        TOO_SOON
    }
}

/// Takes a ring: the group's own if it is free. By the leader.
#[inline(always)]
fn take_ring(records: Records, group: u32) -> (u32, u64) {
    let rings = records.shape().rings();
    // There is at least one.
    let (mut ring, mut tried) = (group.checked_rem(rings).unwrap_or(0), 0);
    while tried < rings {
        let holder = records.holder(ring);
        let next = holder.peek();
        if next & TAKEN == 0 && platform::take(holder, next, next | TAKEN) {
            return (ring, next);
        }
        ring = if ring + 1 == rings { 0 } else { ring + 1 };
        tried += 1;
    }
    (HOMELESS, 0)
}

/// Finds room for the records before `end`; returns up to where there is room, or 0. All lanes call
/// it.
#[cold]
#[inline(never)]
fn find_room<G: Group>(g: &G, records: Records, net: Net, ring: u32, end: u64) -> u64 {
    by_leader(g, || wait_for_room(records, net, ring, end)).unwrap_or(0)
}

/// Waits until the ring has room for the records before `end`; returns up to where there is room.
/// By the leader.
#[inline(always)]
fn wait_for_room(records: Records, net: Net, ring: u32, end: u64) -> Result<u64> {
    let timeout = records.wait().unwrap_or(Timeout::NON_BLOCKING);
    // Ordering: Relaxed. If a record were stored before the reader has loaded the last units in
    // its place, the reader would find that by their tags.
    let room = || records.consumed(ring).peek().saturating_add(records.shape().records());
    let mut found = room();
    if found >= end {
        return Ok(found);
    }
    if timeout.is_non_blocking() || !net.is_attached() {
        return Err(Error::WouldBlock);
    }
    let mut guard = WaitGuard::new(net, Deadline::of(timeout)).waiting_for(Awaited::new(Call::Record));
    loop {
        found = room();
        if found >= end {
            return Ok(found);
        }
        if guard.is_due() {
            guard.check()?;
        }
        back_off();
    }
}

/// A head's word, by a number that may be no constant, without a copy in memory.
#[inline(always)]
const fn word_at(head: &[u32; HEAD], at: usize) -> u32 {
    match at {
        0 => head[0],
        1 => head[1],
        2 => head[2],
        3 => head[3],
        _ => head[4],
    }
}

/// Four bytes of a buffer as a little-endian number; zeros beyond its end.
///
/// # Safety
/// The buffer's memory is readable.
#[inline(always)]
unsafe fn word_of(bytes: Buffer, word: usize) -> u32 {
    let (mut value, mut at) = (0, 0);
    while at < 4 && word * 4 + at < bytes.len() {
        // SAFETY: inside the buffer.
        value |= u32::from(unsafe { bytes.as_ptr().wrapping_add(word * 4 + at).read() }) << (8 * at);
        at += 1;
    }
    value
}
