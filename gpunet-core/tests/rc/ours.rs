//! A machine with rings, a table, a driver as in the transport, and an application.

use crate::audit::Audit;
use crate::nic::{Nic, Piece, decode, encode, fill, pattern};
use crate::size::{RING_KEY, Size, TABLE_KEY};
use crate::wire::Node;
use gpunet_core::rc::{Config, Failure, Hello, Machine, Message};
use gpunet_core::verbs::{Completion, CompletionStatus, Sge};

/// One end that is a machine.
pub struct Ours {
    pub machine: Machine,
    pub audit: Audit,
    config: Config,
    nic: Nic,
    side: usize,
    now: u64,
    written: u64,
    read: u64,
    closing: bool,
}

impl Ours {
    pub fn new(side: usize, size: &Size, peer: Hello) -> Self {
        let config = size.config(side);
        let hello = size.hello(side);
        let piece = |address, rkey, len| Piece { address, rkey, bytes: vec![0; len] };
        let nic = Nic {
            pieces: vec![
                piece(config.send_ring.0, 0, config.send_ring.1 as usize),
                piece(config.recv_ring.address, RING_KEY, config.recv_ring.len as usize),
                piece(hello.table.address, TABLE_KEY, 32),
            ],
            receives: u32::from(size.receives) + Config::SPARE_RECEIVES,
            ..Nic::default()
        };
        // By way of the private data, as on a wire.
        let peer = Hello::decode(&peer.encode()).expect("a good hello");
        let machine = Machine::new(&config, peer, 0);
        let audit = Audit::new(config, peer);
        Self { machine, audit, config, nic, side, now: 0, written: 0, read: 0, closing: false }
    }

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Sent { status, .. } => {
                self.audit.completed();
                match status {
                    CompletionStatus::Success => self.machine.handle_sent(self.now),
                    _ => self.machine.handle_send_failed(Failure::Device),
                }
            }
            Completion::Received { message, len } => {
                self.nic.receives += 1;
                let message = self.machine.handle_message(message, len, self.now).expect("an honest peer");
                match message {
                    Message::Data(len) => self.audit.data(len),
                    Message::Credits(limit) => {
                        self.audit.limit(limit);
                        self.take_areas();
                    }
                    Message::Ignored { counted: true } => self.audit.counted(),
                    _ => {}
                }
                assert_eq!(self.machine.received(), self.audit.received());
            }
            Completion::Flushed => {}
        }
    }

    fn take_areas(&mut self) {
        let big_endian = cfg!(target_endian = "big");
        loop {
            let entry = &mut self.nic.pieces[2].bytes[16 * self.machine.expected_entry()..][..16];
            let area = decode(entry, big_endian);
            if area.len == 0 {
                return;
            }
            entry.copy_from_slice(&encode(Sge { len: 0, ..area }, big_endian));
            self.audit.area(area);
            self.machine.handle_area(area).expect("an honest peer");
        }
    }

    fn pump(&mut self) {
        if self.nic.dead {
            return;
        }
        while let Some(op) = self.machine.poll(self.now) {
            self.audit.posted(&op);
            self.nic.out.push_back(op);
        }
        // As the transport: it lets go of the queue pair once everything is sent.
        self.nic.dead = self.closing && self.machine.is_settled();
    }
}

impl Node for Ours {
    fn nic(&mut self) -> &mut Nic {
        &mut self.nic
    }

    fn enter(&mut self, at_most: usize) {
        for _ in 0..at_most {
            let Some(completion) = self.nic.completions.pop_front() else { break };
            self.complete(completion);
            self.pump();
        }
        self.pump();
    }

    fn write(&mut self, len: u64) -> u64 {
        let (_, capacity) = self.config.send_ring;
        let len = len.min(capacity - (self.written - self.machine.completed()));
        if self.machine.send_failure().is_some() {
            return 0;
        }
        fill(&mut self.nic.pieces[0].bytes, self.side, self.written, len);
        self.written += len;
        self.machine.offer(self.written);
        self.pump();
        len
    }

    fn read(&mut self, len: u64) -> u64 {
        let len = len.min(self.machine.received() - self.read);
        let ring = &self.nic.pieces[1].bytes;
        for position in self.read..self.read + len {
            let byte = ring[position as usize % ring.len()];
            assert_eq!(byte, pattern(1 - self.side, position), "byte {position} to end {}", self.side);
        }
        self.read += len;
        self.audit.consumed(self.read);
        self.machine.handle_consumed(self.read);
        self.pump();
        len
    }

    fn shut(&mut self) {
        self.machine.shutdown();
        self.pump();
    }

    fn close(&mut self) {
        self.closing = true;
        self.machine.disconnect();
        self.pump();
    }

    fn reset(&mut self) {
        self.machine.reset();
        self.pump();
    }

    fn disconnected(&mut self) {
        self.machine.handle_disconnected();
        self.pump();
    }

    fn is_at_end(&self) -> bool {
        self.machine.is_peer_shut() && self.read == self.machine.received()
    }

    fn has_shut(&self) -> bool {
        self.audit.shut || self.audit.ended
    }

    fn is_settled(&self) -> bool {
        self.machine.is_settled()
    }

    fn failure(&self) -> Option<Failure> {
        self.machine.failure()
    }

    fn controls(&self) -> u64 {
        self.audit.controls
    }

    fn has_told_all(&self) -> bool {
        self.machine.completed() == self.written
    }
}
