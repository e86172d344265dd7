//! Sizes and places of an rsocket, and what it announces of itself.

use gpunet_core::rc::{Hello, Remote, Variant};
use gpunet_core::verbs::Sge;

pub const TABLE_KEY: u32 = 0x368;

/// What differs between one rsocket and another.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub variant: Variant,
    pub big_endian: bool,
    /// Receives, and send-queue slots with the four for control.
    pub rq: u16,
    pub sq: u32,
    pub send_ring: u64,
    /// The receive ring: pieces under keys of their own, two in librdmacm.
    pub pieces: u64,
    pub piece: u32,
    /// Entries of the table, two in librdmacm.
    pub entries: u32,
}

impl Shape {
    pub fn base(side: usize) -> u64 {
        (side as u64 + 11) << 40
    }

    pub fn area(&self, side: usize, publication: u64) -> Sge {
        let index = publication % self.pieces;
        // Neither in order nor contiguous.
        let address = Self::base(side) + (1 << 36) + ((index * 5 + 3) % 16) * (1 << 24) + 8;
        Sge { address, rkey: 0x4a7 + index as u32, len: self.piece }
    }

    pub fn hello(&self, side: usize) -> Hello {
        let Sge { address, rkey, len } = self.area(side, 0);
        Hello {
            big_endian: self.big_endian,
            credits: self.rq,
            table: Remote { address: Self::base(side), rkey: TABLE_KEY, len: self.entries },
            area: Remote { address, rkey, len },
            gpunet: None,
        }
    }
}
