//! An rsocket that behaves like unmodified librdmacm, after sections 2 to 8 of the specification:
//! half a ring at a time, credits by consumed messages, chunks of 2 KiB doubling to 64 KiB, and
//! nothing done outside the application's calls.

use crate::nic::{Nic, Piece, decode, encode, pattern};
use crate::shape::{Shape, TABLE_KEY};
use crate::wire::Node;
use gpunet_core::rc::{Failure, Hello, Remote, Variant};
use gpunet_core::verbs::{Completion, CompletionStatus, Op, Sge, Source};
use std::collections::VecDeque;

const CHUNK_MIN: u64 = 2048;
const CHUNK_MAX: u64 = 65_536;
const CONTROLS: u32 = 4;
const DISCONNECT: u32 = 0xe000_0000;
const SHUTDOWN: u32 = 0xe000_0002;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Data(u64),
    Control,
    /// The DISCONNECT.
    Last,
}

/// What waits for a slot: the end of one direction, or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    Write,
    Both,
}

/// One end that is an rsocket.
pub struct Reference {
    shape: Shape,
    side: usize,
    nic: Nic,
    remote: Remote,
    remote_big_endian: bool,
    sseq_no: u16,
    sseq_comp: u16,
    rseq_no: u16,
    rseq_comp: u16,
    target_sge: usize,
    remote_sge: u32,
    slots: VecDeque<Slot>,
    sent: u64,
    acked: u64,
    /// Messages not consumed, the first of them in part.
    fifo: VecDeque<u32>,
    received: u64,
    read: u64,
    published: u64,
    readable: bool,
    writable: bool,
    connected: bool,
    /// A SHUTDOWN or DISCONNECT that waits for a slot.
    ending: Ending,
    broken: bool,
    controls: u64,
}

impl Reference {
    pub fn new(side: usize, shape: Shape, peer: Hello) -> Self {
        let base = Shape::base(side);
        let mut table = vec![0; 16 * shape.entries as usize];
        let first = Sge { address: peer.area.address, rkey: peer.area.rkey, len: peer.area.len };
        table[..16].copy_from_slice(&encode(first, shape.big_endian));
        let mut pieces = vec![
            Piece { address: base, rkey: TABLE_KEY, bytes: table },
            Piece { address: base + (1 << 32), rkey: 0, bytes: vec![0; shape.send_ring as usize] },
        ];
        for index in 0..shape.pieces {
            let Sge { address, rkey, len } = shape.area(side, index);
            pieces.push(Piece { address, rkey, bytes: vec![0; len as usize] });
        }
        Self {
            nic: Nic { pieces, receives: u32::from(shape.rq), ..Nic::default() },
            remote: peer.table,
            remote_big_endian: peer.big_endian,
            sseq_no: 0,
            sseq_comp: peer.credits,
            rseq_no: 0,
            rseq_comp: shape.rq / 2,
            target_sge: 0,
            remote_sge: 1,
            slots: VecDeque::new(),
            sent: 0,
            acked: 0,
            fifo: VecDeque::new(),
            received: 0,
            read: 0,
            published: 1,
            readable: true,
            writable: true,
            connected: true,
            ending: Ending::No,
            broken: false,
            controls: 0,
            shape,
            side,
        }
    }

    /// Posts a message; with bytes it takes two slots on iWARP.
    fn post(&mut self, from: Source, to: u64, rkey: u32, message: u32, slot: Slot) {
        match self.shape.variant {
            Variant::Immediate => {
                self.nic.out.push_back(Op::Write { from, to, rkey, immediate: Some(message) });
            }
            Variant::Send => {
                if from != Source::Nothing {
                    self.nic.out.push_back(Op::Write { from, to, rkey, immediate: None });
                    let first = if slot == Slot::Control { Slot::Control } else { Slot::Data(0) };
                    self.slots.push_back(first);
                }
                self.nic.out.push_back(Op::Send { message });
            }
        }
        self.slots.push_back(slot);
    }

    fn controls_left(&self) -> u32 {
        CONTROLS - self.slots.iter().filter(|slot| !matches!(slot, Slot::Data(_))).count() as u32
    }

    /// Ring space given back: the memory of the next piece consumed, the entry's last area
    /// received.
    fn may_publish(&self) -> bool {
        let piece = u64::from(self.shape.piece);
        let consumed = self.published < self.shape.pieces
            || self.read >= (self.published + 1 - self.shape.pieces) * piece;
        // Before the peer has two areas at all, its second entry is free.
        consumed && self.received >= (self.published - 1) * piece
    }

    fn update_credits(&mut self) {
        let needed = if self.shape.variant == Variant::Send { 2 } else { 1 };
        let due = self.rseq_no.wrapping_sub(self.rseq_comp) as i16 >= 0;
        let publish = self.may_publish();
        if !(publish || due) || self.controls_left() < needed || !self.connected {
            return;
        }
        self.rseq_comp = self.rseq_no.wrapping_add(self.shape.rq / 2);
        // 17 bits may appear.
        let message = 4 << 29 | (u32::from(self.rseq_no) + u32::from(self.shape.rq));
        self.controls += 1;
        if publish {
            let area = self.shape.area(self.side, self.published);
            let bytes = encode(area, self.remote_big_endian);
            let to = self.remote.address + 16 * u64::from(self.remote_sge);
            self.remote_sge = (self.remote_sge + 1) % self.remote.len;
            self.published += 1;
            self.post(Source::Inline(bytes), to, self.remote.rkey, message, Slot::Control);
        } else {
            self.post(Source::Nothing, 0xdead, 0xbeef, message, Slot::Control);
        }
    }

    fn process(&mut self) {
        self.update_credits();
        while let Some(completion) = self.nic.completions.pop_front() {
            self.complete(completion);
        }
        self.update_credits();
        if self.ending != Ending::No && self.connected && self.controls_left() > 0 {
            self.post_end();
        }
        self.nic.dead |= !self.connected && self.slots.is_empty();
    }

    /// librdmacm decides between the two messages when rshutdown is entered, and sends nothing at
    /// all if the peer's SHUTDOWN comes while it waits for a slot. We decide when there is one.
    fn post_end(&mut self) {
        let both = self.ending == Ending::Both || !self.readable;
        (self.ending, self.writable) = (Ending::No, false);
        let (message, slot) = if both { (DISCONNECT, Slot::Last) } else { (SHUTDOWN, Slot::Control) };
        self.post(Source::Nothing, 0, 0, message, slot);
    }

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Sent { status, .. } => {
                let slot = self.slots.pop_front().expect("a request under way");
                match slot {
                    Slot::Data(len) => self.acked += len,
                    Slot::Control => {}
                    Slot::Last => self.connected = false,
                }
                if status != CompletionStatus::Success && self.connected {
                    (self.broken, self.connected) = (true, false);
                }
            }
            Completion::Received { message, len } => {
                if self.connected {
                    self.nic.receives += 1;
                }
                self.take_message(message, len);
            }
            Completion::Flushed => {}
        }
    }

    fn take_message(&mut self, message: u32, written: Option<u32>) {
        match message >> 29 {
            0 => {
                assert!(message > 0, "a reader would take this for the end");
                assert!(written.is_none_or(|written| written == message));
                self.fifo.push_back(message);
                self.received += u64::from(message);
                assert!(self.fifo.len() <= usize::from(self.shape.rq), "more messages than credits");
            }
            4 => self.sseq_comp = message as u16,
            7 if message == DISCONNECT => {
                (self.readable, self.writable, self.connected) = (false, false, false);
            }
            7 if message == SHUTDOWN => {
                self.readable = false;
                self.connected &= self.writable;
            }
            _ => panic!("an rsocket cannot know {message:#x}"),
        }
    }

    fn can_send(&self) -> bool {
        let data = self.slots.iter().filter(|slot| matches!(slot, Slot::Data(_))).count() as u32;
        let slots = if self.shape.variant == Variant::Send { 2 } else { 1 };
        data + slots <= self.shape.sq - CONTROLS
            && self.shape.send_ring - (self.sent - self.acked) >= CHUNK_MIN
            && self.sseq_no != self.sseq_comp
            && self.target().len != 0
    }

    /// The entry in use, read from the memory that the peer's card writes.
    fn target(&self) -> Sge {
        decode(&self.nic.pieces[0].bytes[16 * self.target_sge..][..16], self.shape.big_endian)
    }

    fn send(&mut self, len: u64) {
        let sge = self.target();
        let rest = Sge { address: sge.address + len, len: sge.len - len as u32, ..sge };
        let bytes = encode(rest, self.shape.big_endian);
        self.nic.pieces[0].bytes[16 * self.target_sge..][..16].copy_from_slice(&bytes);
        if rest.len == 0 {
            self.target_sge = (self.target_sge + 1) % self.shape.entries as usize;
        }
        self.sseq_no = self.sseq_no.wrapping_add(1);
        let ring = &mut self.nic.pieces[1];
        crate::nic::fill(&mut ring.bytes, self.side, self.sent, len);
        let offset = self.sent % self.shape.send_ring;
        let first = len.min(self.shape.send_ring - offset);
        let pieces = [(ring.address + offset, first as u32), (ring.address, (len - first) as u32)];
        self.sent += len;
        self.post(Source::Ring(pieces), sge.address, sge.rkey, len as u32, Slot::Data(len));
    }
}

impl Node for Reference {
    fn nic(&mut self) -> &mut Nic {
        &mut self.nic
    }

    fn enter(&mut self, at_most: usize) {
        // A call drains the queue, however much is in it.
        if at_most > 0 {
            self.process();
        }
    }

    fn write(&mut self, len: u64) -> u64 {
        let mut left = len;
        let mut chunk = CHUNK_MIN;
        while left > 0 && self.writable && self.ending == Ending::No && self.connected {
            if !self.can_send() {
                self.process();
                if !self.can_send() || !self.connected {
                    break;
                }
            }
            let free = self.shape.send_ring - (self.sent - self.acked);
            let n = left.min(chunk).min(free).min(u64::from(self.target().len));
            chunk = (chunk * 2).min(CHUNK_MAX);
            self.send(n);
            left -= n;
        }
        len - left
    }

    fn read(&mut self, len: u64) -> u64 {
        if self.fifo.is_empty() {
            self.process();
        }
        let mut left = len;
        while left > 0
            && let Some(front) = self.fifo.front_mut()
        {
            let n = left.min(u64::from(*front));
            *front -= n as u32;
            let piece = u64::from(self.shape.piece);
            for position in self.read..self.read + n {
                let bytes = &self.nic.pieces[2 + (position / piece % self.shape.pieces) as usize].bytes;
                let byte = bytes[(position % piece) as usize];
                assert_eq!(byte, pattern(1 - self.side, position), "byte {position} to the rsocket");
            }
            self.read += n;
            left -= n;
            if *front == 0 {
                self.fifo.pop_front();
                self.rseq_no = self.rseq_no.wrapping_add(1);
            }
        }
        len - left
    }

    fn shut(&mut self) {
        if self.connected && self.writable {
            self.ending = Ending::Write;
            self.process();
        }
    }

    fn close(&mut self) {
        if self.connected {
            self.ending = Ending::Both;
        }
        self.process();
    }

    fn reset(&mut self) {
        self.close();
    }

    fn disconnected(&mut self) {
        self.process();
        self.connected = false;
    }

    fn is_at_end(&self) -> bool {
        !self.readable && self.fifo.is_empty()
    }

    fn has_shut(&self) -> bool {
        !self.writable
    }

    fn is_settled(&self) -> bool {
        (self.ending == Ending::No || !self.connected) && self.slots.is_empty()
    }

    fn failure(&self) -> Option<Failure> {
        self.broken.then_some(Failure::Device)
    }

    fn controls(&self) -> u64 {
        self.controls
    }

    fn has_told_all(&self) -> bool {
        self.acked == self.sent
    }
}
