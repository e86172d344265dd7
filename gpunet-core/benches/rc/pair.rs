//! Two machines, face to face: what one posts the other gets at once, and it completes.

use gpunet_core::rc::{Config, Machine, Message, Remote, Variant};
use gpunet_core::verbs::{Op, Sge, Source};

/// The default ring.
pub const RING: u32 = 256 * 1024;

/// The pair.
pub struct Pair {
    pub ends: [Machine; 2],
    written: [u64; 2],
}

impl Pair {
    pub fn new(variant: Variant) -> Self {
        let config = |base: u64| Config {
            variant,
            send_ring: (base, u64::from(RING)),
            recv_ring: Remote { address: base + u64::from(RING), rkey: 1, len: RING },
            sends: 64,
            receives: 384,
            keepalive: u64::MAX,
        };
        let configs = [config(1 << 32), config(1 << 33)];
        let hello =
            |end: usize| configs[end].hello(Remote { address: (end as u64 + 1) << 16, rkey: 2, len: 2 });
        let ends = [Machine::new(&configs[0], hello(1), 0), Machine::new(&configs[1], hello(0), 0)];
        Self { ends, written: [0; 2] }
    }

    /// The application of end `from` writes `len` bytes; that of the other end reads them.
    pub fn transfer(&mut self, from: usize, len: u64) {
        self.written[from] += len;
        self.ends[from].offer(self.written[from]);
        // More than what is granted goes in several steps.
        loop {
            let before = self.ends[1 - from].received();
            self.carry(from);
            let received = self.ends[1 - from].received();
            self.ends[1 - from].handle_consumed(received);
            self.carry(1 - from);
            if received == self.written[from] {
                return;
            }
            assert!(received > before, "nothing moves");
        }
    }

    /// Delivers all that `from` wants to post.
    fn carry(&mut self, from: usize) {
        let [a, b] = &mut self.ends;
        let (sender, target) = if from == 0 { (a, b) } else { (b, a) };
        let mut entry = None;
        while let Some(op) = sender.poll(0) {
            let (message, len) = match op {
                Op::Write { from, immediate, .. } => {
                    let len = match from {
                        Source::Nothing => 0,
                        Source::Inline(bytes) => {
                            entry = Some(sge(&bytes));
                            16
                        }
                        Source::Ring(pieces) => pieces[0].1 + pieces[1].1,
                    };
                    (immediate, Some(len))
                }
                Op::Send { message } => (Some(message), None),
            };
            sender.handle_sent(0);
            let Some(bits) = message else { continue };
            let message = target.handle_message(bits, len, 0).expect("an honest peer");
            if let (Message::Credits(_), Some(area)) = (message, entry.take()) {
                target.handle_area(area).expect("an honest peer");
            }
        }
    }
}

fn sge(bytes: &[u8; 16]) -> Sge {
    let (address, rest) = bytes.split_first_chunk().expect("16 bytes");
    let (rkey, len) = rest.split_first_chunk().expect("8 bytes");
    Sge {
        address: u64::from_ne_bytes(*address),
        rkey: u32::from_ne_bytes(*rkey),
        len: u32::from_ne_bytes(len.try_into().expect("4 bytes")),
    }
}
