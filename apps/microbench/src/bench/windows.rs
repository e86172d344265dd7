//! Memory that two devices can both access, for floors without sockets.

use super::{Bench, Pinned};
use crate::outcome::Outcome;
use crate::report::print_error;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{ImportedBuffer, ShareableBuffer};
use std::sync::Arc;

/// Two pieces of memory, one local to each of two devices.
pub struct Windows {
    near: [u64; 2],
    far: [u64; 2],
    _pieces: Vec<Piece>,
    /// Each piece lies in its GPU's memory, not in pinned memory.
    pub on_gpus: bool,
}

/// Keeps a piece mapped.
#[expect(dead_code, reason = "only kept")]
enum Piece {
    Gpu(ShareableBuffer, ImportedBuffer),
    Pinned(Pinned),
}

impl Windows {
    /// Allocates both, `len` bytes each: in GPU memory if both devices are GPUs that can access
    /// each other.
    pub fn between(ends: [&Bench; 2], len: usize) -> Outcome<Self> {
        if ends.iter().all(|end| end.is_gpu()) {
            match Self::of_gpus(ends, len) {
                Ok(windows) => return Ok(windows),
                Err(error) => print_error(&format!("floors in pinned memory: {error}")),
            }
        }
        let (mut near, mut far, mut pieces) = ([0; 2], [0; 2], Vec::new());
        for owner in 0..2 {
            let region = PinnedRegion::create("gpunet-bench", len)?;
            for (end, bench) in ends.into_iter().enumerate() {
                let registration =
                    bench.attachment.cuda().map(|device| device.register(region.clone())).transpose()?;
                let piece = Pinned { region: Arc::clone(&region), registration };
                let at = piece.device(0) as u64;
                if end == owner {
                    near[end] = at
                } else {
                    far[end] = at
                }
                pieces.push(Piece::Pinned(piece));
            }
        }
        Ok(Self { near, far, _pieces: pieces, on_gpus: false })
    }

    fn of_gpus(ends: [&Bench; 2], len: usize) -> Outcome<Self> {
        let (mut near, mut far, mut pieces) = ([0; 2], [0; 2], Vec::new());
        for owner in 0..2 {
            let device = |end: usize| ends[end].attachment.cuda().ok_or("no GPU");
            let own = device(owner)?.alloc_shareable(len)?;
            let imported = device(1 - owner)?.import(own.export()?, own.len())?;
            near[owner] = own.ptr();
            far[1 - owner] = imported.ptr();
            pieces.push(Piece::Gpu(own, imported));
        }
        Ok(Self { near, far, _pieces: pieces, on_gpus: true })
    }

    /// The address of byte `offset` of the end's own piece, for that end.
    pub fn near(&self, end: usize, offset: usize) -> *mut u8 {
        (self.near[end] as usize + offset) as *mut u8
    }

    /// The address of byte `offset` of the other end's piece, for that end.
    pub fn far(&self, end: usize, offset: usize) -> *mut u8 {
        (self.far[end] as usize + offset) as *mut u8
    }
}
