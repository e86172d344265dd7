//! A card's side of a connection: memory under keys, a send queue, posted receives, completions.

use gpunet_core::verbs::{Completion, Op, Sge, Source};
use std::collections::VecDeque;

/// Registered memory. Key 0 is for local use only.
#[derive(Debug)]
pub struct Piece {
    pub address: u64,
    pub rkey: u32,
    pub bytes: Vec<u8>,
}

/// One end's card.
#[derive(Debug, Default)]
pub struct Nic {
    pub pieces: Vec<Piece>,
    /// Posted, not yet delivered.
    pub out: VecDeque<Op>,
    /// Delivered; the acknowledgements are on their way. False: it failed.
    pub acks: VecDeque<bool>,
    pub completions: VecDeque<Completion>,
    /// Receives that are posted.
    pub receives: u32,
    /// The queue pair is in error or gone.
    pub dead: bool,
}

impl Nic {
    /// The bytes at `address` under that key.
    ///
    /// # Panics
    /// When no piece contains them: the access is one that a card would refuse.
    pub fn at(&mut self, address: u64, rkey: u32, len: usize) -> &mut [u8] {
        let found = self.pieces.iter_mut().find_map(|piece| {
            let from = address.checked_sub(piece.address)? as usize;
            (piece.rkey == rkey).then(|| piece.bytes.get_mut(from..from + len))?
        });
        found.unwrap_or_else(|| panic!("access refused: {len} bytes at {address:#x}, key {rkey}"))
    }

    /// The bytes that a write carries, as the card reads them now.
    pub fn gather(&mut self, from: Source) -> Vec<u8> {
        match from {
            Source::Nothing => Vec::new(),
            Source::Inline(bytes) => bytes.to_vec(),
            Source::Ring(pieces) => {
                let read = |(at, len): &(u64, u32)| self.at(*at, 0, *len as usize).to_vec();
                pieces.iter().filter(|(_, len)| *len > 0).flat_map(read).collect()
            }
        }
    }
}

/// Byte `position` of the stream that end `side` sends.
pub fn pattern(side: usize, position: u64) -> u8 {
    (position.wrapping_add(side as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Bytes `from..from + len` of that stream, round a ring.
pub fn fill(ring: &mut [u8], side: usize, from: u64, len: u64) {
    for position in from..from + len {
        let at = position as usize % ring.len();
        ring[at] = pattern(side, position);
    }
}

/// Reads a descriptor, on a host of that byte order.
pub fn decode(bytes: &[u8], big_endian: bool) -> Sge {
    let number = |range: std::ops::Range<usize>| {
        let fold = |n: u64, byte: &u8| n << 8 | u64::from(*byte);
        let bytes = &bytes[range];
        if big_endian { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
    };
    Sge { address: number(0..8), rkey: number(8..12) as u32, len: number(12..16) as u32 }
}

/// Writes one.
pub fn encode(sge: Sge, big_endian: bool) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&sge.address.to_le_bytes());
    bytes[8..12].copy_from_slice(&sge.rkey.to_le_bytes());
    bytes[12..].copy_from_slice(&sge.len.to_le_bytes());
    if big_endian {
        bytes[..8].reverse();
        bytes[8..12].reverse();
        bytes[12..].reverse();
    }
    bytes
}
