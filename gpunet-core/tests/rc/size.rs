//! Sizes and places of a machine, and what it announces of itself.

use gpunet_core::rc::{Config, Hello, Remote, Variant};

pub const TABLE_KEY: u32 = 0x7ab1;
pub const RING_KEY: u32 = 0x4149;

/// What differs between one machine and another.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub variant: Variant,
    pub send_ring: u64,
    pub recv_ring: u32,
    pub sends: u32,
    pub receives: u16,
}

impl Size {
    pub fn config(&self, side: usize) -> Config {
        let base = (side as u64 + 1) << 40;
        Config {
            variant: self.variant,
            send_ring: (base, self.send_ring),
            recv_ring: Remote { address: base + (1 << 36), rkey: RING_KEY, len: self.recv_ring },
            sends: self.sends,
            receives: self.receives,
            keepalive: u64::MAX,
        }
    }

    pub fn hello(&self, side: usize) -> Hello {
        let table = Remote { address: ((side as u64 + 1) << 40) + (1 << 37), rkey: TABLE_KEY, len: 2 };
        self.config(side).hello(table)
    }
}
