//! A connection whose small reads share a call of the system: the parts of a header come together.

use super::{Wire, lock};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The bytes that are read ahead at most: the header of some arrays.
const AHEAD: usize = 4096;

/// Reads ahead of another connection.
pub(crate) struct ReadAhead {
    wire: Box<dyn Wire>,
    kept: Mutex<Kept>,
}

/// Bytes that have come and were not asked for yet: `bytes[begin..end]`.
struct Kept {
    bytes: Box<[u8; AHEAD]>,
    begin: usize,
    end: usize,
}

impl ReadAhead {
    pub(crate) fn new(wire: Box<dyn Wire>) -> Self {
        Self { wire, kept: Mutex::new(Kept { bytes: Box::new([0; AHEAD]), begin: 0, end: 0 }) }
    }

    fn read_by(
        &self,
        to: &mut [IoSliceMut<'_>],
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        // Only one thread reads.
        let kept = &mut *lock(&self.kept);
        if kept.begin < kept.end {
            return Ok(kept.take(to));
        }
        match to {
            // A piece comes alone: nothing behind it is due.
            [one] if one.len() < AHEAD => {
                let room = one.len();
                let n = read(&mut [IoSliceMut::new(one), IoSliceMut::new(&mut kept.bytes[..])])?;
                (kept.begin, kept.end) = (0, n.saturating_sub(room));
                Ok(n.min(room))
            }
            to => read(to),
        }
    }
}

impl Kept {
    fn take(&mut self, to: &mut [IoSliceMut<'_>]) -> usize {
        let before = self.begin;
        for to in to {
            let len = to.len().min(self.end - self.begin);
            to[..len].copy_from_slice(&self.bytes[self.begin..self.begin + len]);
            self.begin += len;
        }
        self.begin - before
    }
}

impl Wire for ReadAhead {
    fn read(&self, to: &mut [IoSliceMut<'_>], deadline: Option<Instant>) -> io::Result<usize> {
        self.read_by(to, |to| self.wire.read(to, deadline))
    }

    fn read_soon(
        &self,
        to: &mut [IoSliceMut<'_>],
        deadline: Option<Instant>,
        spin: Duration,
    ) -> io::Result<usize> {
        self.read_by(to, |to| self.wire.read_soon(to, deadline, spin))
    }

    fn write(&self, from: &[IoSlice<'_>], deadline: Option<Instant>) -> io::Result<usize> {
        self.wire.write(from, deadline)
    }

    fn write_soon(
        &self,
        from: &[IoSlice<'_>],
        deadline: Option<Instant>,
        spin: Duration,
    ) -> io::Result<usize> {
        self.wire.write_soon(from, deadline, spin)
    }

    fn shut_down(&self) {
        self.wire.shut_down();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wire.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Socket, read_exact, write_all};
    use proptest::prelude::*;

    proptest! {
        /// However bytes are written and read, they come in order, each once.
        #[test]
        fn bytes_come_in_order(
            writes in proptest::collection::vec(1usize..9000, 1..8),
            reads in proptest::collection::vec(1usize..6000, 1..8),
        ) {
            let (near, far) = Socket::pair().expect("a pair");
            let (near, far) = (Socket::of_pair(near), ReadAhead::new(Box::new(Socket::of_pair(far))));
            let total: usize = writes.iter().sum();
            let bytes: Vec<u8> = (0..total).map(|at| ((at * 31) >> 3) as u8).collect();
            let mut rest = &bytes[..];
            for len in writes {
                let (now, later) = rest.split_at(len);
                write_all(&near, &mut [IoSlice::new(now)], None).expect("it fits");
                rest = later;
            }
            near.shut_down();
            let mut got = Vec::new();
            for len in reads.into_iter().cycle() {
                let mut part = vec![0; len.min(total - got.len())];
                if part.is_empty() {
                    break;
                }
                read_exact(&far, &mut part, None).expect("they were written");
                got.extend(part);
            }
            prop_assert_eq!(got, bytes);
            prop_assert_eq!(far.read(&mut [IoSliceMut::new(&mut [0])], None).expect("the end"), 0);
        }
    }
}
