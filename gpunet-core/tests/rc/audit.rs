//! What a machine may do: an account of its own, kept from what comes in and what is posted.

use crate::nic::decode;
use gpunet_core::rc::{Config, Hello, Variant};
use gpunet_core::verbs::{Op, Sge, Source};
use std::collections::VecDeque;

const DISCONNECT: u32 = 0xe000_0000;
const SHUTDOWN: u32 = 0xe000_0002;
const RESET: u32 = 0xe000_0003;

/// What iWARP's next send must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follow {
    Data(u32),
    Grant,
}

/// The account. Every method panics when a rule is broken.
#[derive(Debug)]
pub struct Audit {
    config: Config,
    peer: Hello,
    /// What the peer granted and was not filled: address, key, bytes left.
    areas: VecDeque<Sge>,
    credits: u16,
    /// Bytes and data messages posted.
    sent: u64,
    sent_messages: u16,
    follow: Option<Follow>,
    /// The send queue; true for control messages.
    queue: VecDeque<bool>,
    /// Its end was posted.
    pub shut: bool,
    /// Its last message was posted.
    pub ended: bool,
    /// In positions: what came, what was consumed, what the machine granted, and where the area
    /// ends that each entry of the peer's table holds.
    received: u64,
    consumed: u64,
    granted: u64,
    entries: Vec<u64>,
    entry: usize,
    /// Messages that took a credit, and how many may come.
    messages: u64,
    limit: u64,
    /// Messages posted that are not data, and among them those with an area.
    pub controls: u64,
    pub grants: u64,
    /// Signs of life asked for.
    pub probes: u64,
}

impl Audit {
    pub fn new(config: Config, peer: Hello) -> Self {
        let whole = u64::from(config.recv_ring.len);
        let mut entries = vec![0; peer.table.len as usize];
        entries[0] = whole;
        let area = Sge { address: peer.area.address, rkey: peer.area.rkey, len: peer.area.len };
        Self {
            areas: VecDeque::from([area]),
            credits: peer.credits,
            sent: 0,
            sent_messages: 0,
            follow: None,
            queue: VecDeque::new(),
            shut: false,
            ended: false,
            received: 0,
            consumed: 0,
            granted: whole,
            entries,
            entry: 1,
            messages: 0,
            limit: u64::from(config.receives),
            controls: 0,
            grants: 0,
            probes: 0,
            config,
            peer,
        }
    }

    /// A request was posted.
    pub fn posted(&mut self, op: &Op) {
        assert!(!self.ended, "{op:?} after the last message");
        match *op {
            Op::Write { from, to, rkey, immediate } => {
                assert_eq!(self.follow, None, "a write before the message of another");
                let carried = match from {
                    Source::Nothing => None,
                    Source::Inline(bytes) => Some(self.take_grant(bytes, to, rkey)),
                    Source::Ring(pieces) => Some(self.take_data(pieces, to, rkey)),
                };
                match (self.config.variant, immediate) {
                    (Variant::Immediate, Some(bits)) => self.take_message(bits, carried),
                    (Variant::Immediate, None) | (Variant::Send, Some(_)) => {
                        assert!(carried.is_none() && immediate.is_none(), "{op:?}");
                        self.take_probe(to, rkey);
                    }
                    (Variant::Send, None) if carried.is_none() => self.take_probe(to, rkey),
                    (Variant::Send, None) => {
                        self.follow = carried;
                        self.queue.push_back(carried == Some(Follow::Grant));
                    }
                }
            }
            Op::Send { message } => {
                assert_eq!(self.config.variant, Variant::Send);
                let carried = self.follow.take();
                self.take_message(message, carried);
            }
        }
        let controls = self.controls_under_way();
        assert!(controls <= 4, "{controls} control messages under way");
        assert!(self.queue.len() - controls <= self.config.sends as usize, "the send queue is too short");
    }

    fn controls_under_way(&self) -> usize {
        self.queue.iter().filter(|control| **control).count()
    }

    fn take_probe(&mut self, to: u64, rkey: u32) {
        assert_eq!((to, rkey), (0, 0));
        assert!(self.queue.is_empty(), "what is under way proves as much");
        self.probes += 1;
        self.queue.push_back(true);
    }

    fn take_data(&mut self, pieces: [(u64, u32); 2], to: u64, rkey: u32) -> Follow {
        assert!(!self.shut, "data after the end");
        let (base, ring) = self.config.send_ring;
        let len = pieces[0].1 + pieces[1].1;
        assert_eq!(pieces[0].0, base + self.sent % ring, "not the next byte of the stream");
        let to_end = ring - self.sent % ring;
        assert_eq!(u64::from(pieces[0].1), u64::from(len).min(to_end));
        assert!(pieces[1].1 == 0 || pieces[1].0 == base);
        let area = self.areas.front_mut().expect("an area");
        assert_eq!((to, rkey), (area.address, area.rkey), "not the next granted byte");
        assert!(len > 0 && len <= area.len, "{len} bytes into an area of {}", area.len);
        area.address += u64::from(len);
        area.len -= len;
        if area.len == 0 {
            self.areas.pop_front();
        }
        assert!(self.credits > 0, "no credit");
        self.credits -= 1;
        self.sent_messages = self.sent_messages.wrapping_add(1);
        self.sent += u64::from(len);
        Follow::Data(len)
    }

    fn take_grant(&mut self, bytes: [u8; 16], to: u64, rkey: u32) -> Follow {
        let ring = self.config.recv_ring;
        let capacity = u64::from(ring.len);
        let area = decode(&bytes, self.peer.big_endian);
        let len = u64::from(area.len);
        assert_eq!(rkey, self.peer.table.rkey);
        assert_eq!(to, self.peer.table.address + 16 * self.entry as u64, "not the next entry");
        assert!(self.entries[self.entry] <= self.received, "overwrites an area that is not full");
        let offset = self.granted % capacity;
        assert_eq!((area.address, area.rkey), (ring.address + offset, ring.rkey));
        assert!(offset + len <= capacity, "beyond the ring");
        assert!(self.granted + len <= self.consumed + capacity, "bytes granted that are not free");
        let worth = (capacity / 4).min(64 * 1024);
        assert!(len >= worth || offset + len == capacity, "{len} bytes are not worth a grant");
        self.granted += len;
        self.entries[self.entry] = self.granted;
        self.entry = (self.entry + 1) % self.entries.len();
        assert!(self.entries.iter().filter(|end| **end > self.received).count() <= 2);
        self.grants += 1;
        Follow::Grant
    }

    fn take_message(&mut self, bits: u32, carried: Option<Follow>) {
        if let Some(Follow::Data(len)) = carried {
            assert_eq!(bits, len, "the message says another length");
            self.queue.push_back(false);
            return;
        }
        self.controls += 1;
        self.queue.push_back(true);
        match bits {
            DISCONNECT => self.ended = true,
            SHUTDOWN => assert!(!std::mem::replace(&mut self.shut, true), "a second end"),
            RESET => {
                assert!(self.peer.gpunet.is_some_and(|can| can.reset), "the peer knows no reset");
                self.ended = true;
            }
            _ => {
                assert_eq!(bits >> 16, 0x8000, "{bits:#x}");
                let more = u64::from((bits as u16).wrapping_sub(self.limit as u16));
                self.limit += more;
                // A limit that went backwards would look like 65 thousand more, too.
                assert!(self.limit <= self.messages + u64::from(self.config.receives), "too many credits");
                let worth = more >= u64::from(self.config.receives / 2).max(1);
                assert!(worth || carried.is_some(), "an update for {more} credits");
            }
        }
        assert!(carried.is_none() || bits >> 29 == 4);
    }

    /// The oldest request has completed.
    pub fn completed(&mut self) {
        self.queue.pop_front().expect("a request under way");
    }

    /// The send queue is empty.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// How much a data message may say now.
    pub fn room(&self) -> u64 {
        let end = self.entries.iter().filter(|end| **end > self.received).min();
        end.map_or(0, |end| end - self.received)
    }

    /// Credits that the peer has left.
    pub fn peer_credits(&self) -> u64 {
        self.limit - self.messages
    }

    /// A data message came, of which nothing is wrong.
    pub fn data(&mut self, len: u32) {
        assert!(u64::from(len) <= self.room());
        self.received += u64::from(len);
        self.counted();
    }

    /// A message came that took a credit.
    pub fn counted(&mut self) {
        assert!(self.messages < self.limit, "a message without credit");
        self.messages += 1;
    }

    /// The peer announced how many messages it takes, in 16 bits.
    pub fn limit(&mut self, limit: u16) {
        self.credits = limit.wrapping_sub(self.sent_messages);
    }

    /// No peer can say that: it takes credits back, or gives more than it ever had.
    pub fn is_bad_limit(&self, limit: u16) -> bool {
        let credits = limit.wrapping_sub(self.sent_messages);
        credits < self.credits || credits > self.peer.credits
    }

    /// How many more credits the peer can give.
    pub fn most_credits(&self) -> u16 {
        self.peer.credits - self.credits
    }

    /// What it announces to grant that many more.
    pub fn limit_for(&self, more: u16) -> u16 {
        self.sent_messages.wrapping_add(self.credits).wrapping_add(more)
    }

    /// The peer granted an area.
    pub fn area(&mut self, area: Sge) {
        assert!(self.areas.len() < 2);
        self.areas.push_back(area);
    }

    /// Areas of the peer that are not full.
    pub fn areas(&self) -> usize {
        self.areas.len()
    }

    /// Position behind the last byte that came.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The application took the bytes before `position`.
    pub fn consumed(&mut self, position: u64) {
        self.consumed = position;
    }
}
