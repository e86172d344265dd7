//! A transfer as pieces: runs of its bytes, each over one or several arrays. Threads take them one
//! by one, so that a slow connection holds up only what it carries.

use crate::array::{Array, ArrayMut, Memory};
use crate::error::ChannelError;
use crate::header::Malformed;
use gpu_usermap::cuda::Device;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A part of a piece, in one array.
pub(crate) type Outgoing<'a> = Memory<&'a [u8]>;
pub(crate) type Incoming<'a> = Memory<&'a mut [u8]>;

/// A run of bytes of a transfer.
#[derive(Debug)]
pub(crate) struct Piece<S> {
    pub(crate) offset: u64,
    pub(crate) len: usize,
    pub(crate) segments: Vec<S>,
}

/// Cuts segments into pieces of `size` bytes; only the last one is shorter.
fn cut<S>(
    segments: impl Iterator<Item = (S, usize)>,
    size: usize,
    split: impl Fn(S, usize) -> (S, S),
) -> Vec<Piece<S>> {
    let mut pieces = Vec::new();
    let (mut offset, mut current, mut filled) = (0u64, Vec::new(), 0usize);
    for (mut segment, mut left) in segments {
        while left > 0 {
            let room = size - filled;
            if left < room {
                current.push(segment);
                filled += left;
                break;
            }
            if left > room {
                let (head, tail) = split(segment, room);
                current.push(head);
                segment = tail;
                left -= room;
                pieces.push(Piece { offset, len: size, segments: std::mem::take(&mut current) });
                offset += size as u64;
                filled = 0;
                continue;
            }
            current.push(segment);
            pieces.push(Piece { offset, len: size, segments: std::mem::take(&mut current) });
            offset += size as u64;
            filled = 0;
            break;
        }
    }
    if filled > 0 {
        pieces.push(Piece { offset, len: filled, segments: current });
    }
    pieces
}

/// Cuts arrays that are to be sent.
pub(crate) fn sources<'a>(arrays: &[Array<'a>], size: usize) -> Vec<Piece<Outgoing<'a>>> {
    let segments = arrays.iter().map(|array| (array.memory.clone(), array.memory.len()));
    cut(segments, size, |segment, at| match segment {
        Memory::Host(bytes) => {
            let (head, tail) = bytes.split_at(at);
            (Memory::Host(head), Memory::Host(tail))
        }
        Memory::Gpu { device, address, len } => split_gpu(device, address, len, at),
    })
}

/// Cuts the memory of arrays that are to be received.
pub(crate) fn targets<'a>(arrays: Vec<ArrayMut<'a>>, size: usize) -> Vec<Piece<Incoming<'a>>> {
    let segments = arrays.into_iter().map(|array| {
        let len = array.memory.len();
        (array.memory, len)
    });
    cut(segments, size, |segment, at| match segment {
        Memory::Host(bytes) => {
            let (head, tail) = bytes.split_at_mut(at);
            (Memory::Host(head), Memory::Host(tail))
        }
        Memory::Gpu { device, address, len } => split_gpu(device, address, len, at),
    })
}

fn split_gpu<H>(device: Device, address: u64, len: usize, at: usize) -> (Memory<H>, Memory<H>) {
    let head = Memory::Gpu { device: device.clone(), address, len: at };
    (head, Memory::Gpu { device, address: address + at as u64, len: len - at })
}

/// Pieces that several threads take, each once.
pub(crate) struct Table<S> {
    pieces: Vec<Mutex<Option<Piece<S>>>>,
    size: u64,
    next: AtomicUsize,
    progress: Progress,
}

/// How many bytes of a transfer are in their place.
#[derive(Default)]
pub(crate) struct Progress(AtomicU64);

impl Progress {
    /// Counts further bytes, and returns how many there are.
    pub(crate) fn add(&self, len: usize) -> u64 {
        // Ordering: Relaxed; a figure. The threads' ends order the bytes.
        self.0.fetch_add(len as u64, Ordering::Relaxed) + len as u64
    }

    /// Returns how many there are.
    pub(crate) fn done(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<S> Table<S> {
    pub(crate) fn new(pieces: Vec<Piece<S>>, size: usize) -> Self {
        let pieces = pieces.into_iter().map(|piece| Mutex::new(Some(piece))).collect();
        Self { pieces, size: size as u64, next: AtomicUsize::new(0), progress: Progress::default() }
    }

    /// Takes the next piece; `None` when all are taken.
    pub(crate) fn take_next(&self) -> Option<Piece<S>> {
        loop {
            // Ordering: Relaxed; the piece itself is handed over by its mutex.
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            if at >= self.pieces.len() {
                self.next.store(self.pieces.len(), Ordering::Relaxed);
                return None;
            }
            if let Some(piece) = self.take(at) {
                return Some(piece);
            }
        }
    }

    fn take(&self, at: usize) -> Option<Piece<S>> {
        self.pieces.get(at)?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the piece that begins at `offset` and has `len` bytes.
    ///
    /// # Errors
    /// There is no such piece, or it has come before.
    pub(crate) fn take_at(&self, offset: u64, len: u32) -> Result<Piece<S>, Malformed> {
        if !offset.is_multiple_of(self.size) {
            return Err(Malformed("a piece at a place where none begins"));
        }
        let at = usize::try_from(offset / self.size).unwrap_or(usize::MAX);
        let cell = self.pieces.get(at).ok_or(Malformed("a piece behind the end"))?;
        let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cell {
            Some(piece) if piece.len == len as usize => Ok(cell.take().expect("just seen")),
            Some(_) => Err(Malformed("a piece of another length")),
            None => Err(Malformed("a piece that has come before")),
        }
    }

    /// Returns how many bytes are in their place.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }
}

/// The first error of several threads.
#[derive(Default)]
pub(crate) struct FirstError(Mutex<Option<ChannelError>>);

impl FirstError {
    pub(crate) fn set(&self, error: ChannelError) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(crate) fn result(self) -> Result<(), ChannelError> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        /// The pieces of both ends are the same runs, whatever arrays each has them in, and lie at
        /// multiples of the size.
        #[test]
        fn pieces_cover_every_byte_once_and_in_order(lens in vec(0usize..40, 0..12), size in 1usize..50) {
            let total: usize = lens.iter().sum();
            let bytes: Vec<u8> = (0..total).map(|at| at as u8).collect();
            let mut rest = &bytes[..];
            let arrays: Vec<Array<'_>> = lens.iter().map(|&len| {
                let (head, tail) = rest.split_at(len);
                rest = tail;
                Array::of(head)
            }).collect();
            let pieces = sources(&arrays, size);
            let mut seen = Vec::new();
            for (at, piece) in pieces.iter().enumerate() {
                prop_assert_eq!(piece.offset, (at * size) as u64);
                prop_assert_eq!(piece.len, size.min(total - at * size));
                for segment in &piece.segments {
                    let Memory::Host(part) = segment else { panic!("no GPU") };
                    prop_assert!(!part.is_empty());
                    seen.extend_from_slice(part);
                }
            }
            prop_assert_eq!(&seen, &bytes);
            let mut whole = vec![0u8; total];
            let pieces = targets(vec![ArrayMut::of(&mut whole)], size);
            prop_assert_eq!(pieces.iter().map(|piece| piece.len).sum::<usize>(), total);
        }

        /// Pieces in any order, some of them twice, some made up: each is taken at most once, and
        /// only as it is.
        #[test]
        fn a_table_gives_each_piece_once(len in 1usize..400, size in 1usize..50, asked in vec((any::<u64>(), any::<u32>()), 0..20)) {
            let mut whole = vec![0u8; len];
            let table = Table::new(targets(vec![ArrayMut::of(&mut whole)], size), size);
            for (offset, len) in asked {
                let _ = table.take_at(offset, len);
            }
            let mut left = 0;
            for at in 0..len.div_ceil(size) {
                let piece = (size.min(len - at * size)) as u32;
                let offset = (at * size) as u64;
                prop_assert!(table.take_at(offset, piece + 1).is_err());
                if table.take_at(offset, piece).is_ok() {
                    left += 1;
                }
                prop_assert!(table.take_at(offset, piece).is_err());
            }
            prop_assert!(left + 20 >= len.div_ceil(size));
            prop_assert!(table.take_at(len as u64, 1).is_err());
            prop_assert!(table.take_next().is_none());
        }
    }
}
