//! A peer that behaves as librdmacm's rsockets do, written from the protocol's description and not
//! from ours: half rings, no spare receives, credits by messages read.

use crate::raw_peer::{RawPeer, Shape};
use crate::support::until;
use gpunet_core::verbs::{Completion, CompletionStatus, Sge, Source};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

const DISCONNECT: u32 = 0xe000_0000;
const SHUTDOWN: u32 = 0xe000_0002;
/// Requests of the send queue that are left to data.
const SLOTS: usize = 380;
const CONTROLS: usize = 4;

pub struct Rsocket {
    pub raw: RawPeer,
    depth: u16,
    /// Where data goes: what is left of the two areas, and the one in use.
    target: [Sge; 2],
    current: usize,
    sent_messages: u16,
    limit: u16,
    posted: usize,
    completed: usize,
    chunk: usize,
    /// The send queue: bytes of data, and whether it is a control message.
    in_flight: VecDeque<(usize, bool)>,
    /// Lengths of messages that were not read to their end.
    messages: VecDeque<usize>,
    received: usize,
    consumed: usize,
    read_messages: u16,
    update_at: u16,
    free: usize,
    free_offset: usize,
    publish_to: u64,
    pub peer_shut: bool,
    pub disconnected: bool,
    write_shut: bool,
    pub failed: Option<CompletionStatus>,
}

/// The shape of a peer with rings of that many bytes.
pub const fn shape(ring: usize, depth: u16) -> Shape {
    Shape { ring, area: ring as u32 / 2, credits: depth, receives: depth as u32 }
}

impl Rsocket {
    pub fn new(raw: RawPeer, depth: u16) -> Self {
        let area = raw.theirs.area;
        let first = Sge { address: area.address, rkey: area.rkey, len: area.len };
        let half = raw.recv.len() / 2;
        Self {
            depth,
            target: [first, Sge::default()],
            current: 0,
            sent_messages: 0,
            limit: raw.theirs.credits,
            posted: 0,
            completed: 0,
            chunk: 2048,
            in_flight: VecDeque::new(),
            messages: VecDeque::new(),
            received: 0,
            consumed: 0,
            read_messages: 0,
            update_at: depth / 2,
            free: half,
            free_offset: half,
            publish_to: 1,
            peer_shut: false,
            disconnected: false,
            write_shut: false,
            failed: None,
            raw,
        }
    }

    /// Takes completions, and grants what is due.
    pub fn turn(&mut self) {
        self.grant();
        while let Some(completion) = self.raw.endpoint.poll() {
            match completion {
                Completion::Received { message, .. } => self.take(message),
                Completion::Sent { status, .. } => {
                    let (bytes, _) = self.in_flight.pop_front().expect("it was posted");
                    self.completed += bytes;
                    // When both ends disconnect at once, one of the messages finds nobody.
                    if status != CompletionStatus::Success && !self.disconnected {
                        self.failed.get_or_insert(status);
                    }
                }
                Completion::Flushed => {}
            }
        }
        self.grant();
    }

    fn take(&mut self, message: u32) {
        match message >> 29 {
            0 => {
                let len = (message & 0x1fff_ffff) as usize;
                assert!(len > 0, "data of no bytes is an end of stream to an rsocket");
                assert!(!self.peer_shut, "data after the end");
                self.received += len;
                self.messages.push_back(len);
            }
            4 => self.limit = message as u16,
            _ if message == SHUTDOWN => self.peer_shut = true,
            _ if message == DISCONNECT => (self.peer_shut, self.disconnected) = (true, true),
            op => panic!("a message of operation {op} for a plain rsocket: {message:#x}"),
        }
        if !self.disconnected {
            self.raw.endpoint.post_receive().expect("the place of the one that completed");
        }
    }

    fn grant(&mut self) {
        let half = self.raw.recv.len() / 2;
        let cost = if self.raw.iwarp { 2 } else { 1 };
        while !self.disconnected && self.failed.is_none() && !self.peer_shut {
            let room = CONTROLS - self.in_flight.iter().filter(|(_, control)| *control).count();
            let limit = self.read_messages.wrapping_add(self.depth);
            if self.free >= half && room >= cost {
                let area = self.raw.area(self.free_offset as u64, half as u32);
                self.raw.publish(self.publish_to, area, limit);
                self.in_flight.extend(std::iter::repeat_n((0, true), cost));
                self.free -= half;
                self.free_offset = (self.free_offset + half) % self.raw.recv.len();
                self.publish_to = (self.publish_to + 1) % 2;
            } else if self.read_messages.wrapping_sub(self.update_at) as i16 >= 0 && room >= 1 {
                self.raw.message(4 << 29 | u32::from(limit));
                self.in_flight.push_back((0, true));
            } else {
                return;
            }
            self.update_at = self.read_messages.wrapping_add(self.depth / 2);
        }
    }

    /// Sends as much as goes now; returns how many bytes.
    pub fn send(&mut self, bytes: &[u8]) -> usize {
        self.turn();
        let mut done = 0;
        while done < bytes.len() && !self.disconnected && !self.write_shut && self.failed.is_none() {
            if self.target[self.current].len == 0
                && let Some(area) = self.raw.endpoint.table().take(self.current)
            {
                self.target[self.current] = area;
            }
            let target = &mut self.target[self.current];
            let ring = self.raw.send.len();
            let room = ring - (self.posted - self.completed);
            let at = self.posted % ring;
            let len = self.chunk.min(bytes.len() - done).min(room).min(ring - at).min(target.len as usize);
            let data = self.in_flight.iter().filter(|(_, control)| !*control).count();
            if len == 0 || self.sent_messages == self.limit || data + 2 > SLOTS {
                break;
            }
            let (to, rkey) = (target.address, target.rkey);
            (target.address, target.len) = (to + len as u64, target.len - len as u32);
            if target.len == 0 {
                self.current = (self.current + 1) % 2;
            }
            for (slot, byte) in self.raw.send[at..at + len].iter().zip(&bytes[done..]) {
                slot.store(*byte, Ordering::Relaxed);
            }
            let pieces = [(self.raw.send.as_ptr() as u64 + at as u64, len as u32), (0, 0)];
            self.raw.write(Source::Ring(pieces), to, rkey, len as u32);
            self.in_flight.push_back((len, false));
            if self.raw.iwarp {
                self.in_flight.push_back((0, false));
            }
            self.sent_messages = self.sent_messages.wrapping_add(1);
            self.posted += len;
            self.chunk = (self.chunk * 2).min(65_536);
            done += len;
        }
        done
    }

    pub fn send_all(&mut self, bytes: &[u8]) {
        let mut done = 0;
        until("everything is sent", || {
            done += self.send(&bytes[done..]);
            assert_eq!(self.failed, None);
            done == bytes.len()
        });
        self.chunk = 2048;
    }

    /// Reads what is there, at most `limit` bytes.
    pub fn read(&mut self, limit: usize) -> Vec<u8> {
        self.turn();
        let ring = self.raw.recv.len();
        let len = (self.received - self.consumed).min(limit);
        let byte = |i: usize| self.raw.recv[(self.consumed + i) % ring].load(Ordering::Relaxed);
        let bytes = (0..len).map(byte).collect();
        self.consumed += len;
        self.free += len;
        let mut left = len;
        while left > 0 {
            let first = self.messages.front_mut().expect("a message for every byte");
            let part = left.min(*first);
            (*first, left) = (*first - part, left - part);
            if *first == 0 {
                self.messages.pop_front();
                self.read_messages = self.read_messages.wrapping_add(1);
            }
        }
        self.turn();
        bytes
    }

    pub fn read_exact(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        until("that many bytes come", || {
            let more = self.read(len - bytes.len());
            bytes.extend(more);
            bytes.len() == len
        });
        bytes
    }

    /// rshutdown(SHUT_WR): blocks until everything has arrived.
    pub fn shutdown(&mut self) {
        self.end(if self.peer_shut { DISCONNECT } else { SHUTDOWN });
    }

    /// rshutdown(SHUT_RDWR).
    pub fn disconnect(&mut self) {
        self.end(DISCONNECT);
        self.disconnected = true;
    }

    fn end(&mut self, message: u32) {
        self.write_shut = true;
        if !self.disconnected {
            self.raw.message(message);
            self.in_flight.push_back((0, true));
        }
        until("everything has arrived", || {
            self.turn();
            self.in_flight.is_empty() || self.failed.is_some() || self.disconnected
        });
    }
}
