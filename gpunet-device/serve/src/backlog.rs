//! Answers that wait for their peers in memory of their own: a list of chunks for each connection,
//! within a limit for each and for all.

use crate::Bytes;
use crate::heap::{Chunk, Heap};
use crate::memory::{Carve, Memory};
use gpunet_device::{Group, Net, Result};

/// Bytes of a chunk of the list.
const PIECE: usize = 64 << 10;
/// Where a piece has the number of the next one, and where its bytes begin.
const NEXT: usize = 0;
const DATA: usize = 16;

/// Where things are among the words of all blocks.
mod word {
    /// Connections that were closed because of [`super::Full::Each`], and of [`super::Full::All`].
    pub const CLOSED: usize = 0;
    pub const LEN: usize = 64;
}

/// Which limit a backlog has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// That of the connection.
    Each,
    /// That of all connections.
    All,
}

/// The memory for answers that wait, of all connections.
#[derive(Clone, Copy, Debug)]
pub struct Backlogs {
    /// `None`: answers wait in the connections' buffers alone.
    heap: Option<Heap>,
    words: Memory,
    each: usize,
}

impl Backlogs {
    /// `all` bytes; none if that is 0. A connection gets `each` of them at most.
    pub(crate) fn carve(carve: &mut Carve, all: u64, each: u64) -> Self {
        let heap = if all == 0 { None } else { Some(Heap::new(carve, all as usize)) };
        Self { heap, words: carve.take(word::LEN), each: each as usize }
    }

    /// Bytes in use.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    #[must_use]
    pub fn used<G: Group>(&self, g: &G) -> usize {
        self.heap.map_or(0, |heap| heap.used(g))
    }

    /// Bytes of all connections at most.
    #[must_use]
    pub fn all(&self) -> usize {
        self.heap.map_or(0, Heap::len)
    }

    /// Bytes of one connection at most.
    #[must_use]
    pub const fn each(&self) -> usize {
        self.each
    }

    /// Connections that were closed because of this limit.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    #[must_use]
    pub fn closed<G: Group>(&self, g: &G, limit: Full) -> u64 {
        g.broadcast(self.count(limit).get() as u64)
    }

    /// Counts a connection that is closed because of this limit. By one lane.
    pub(crate) fn count_closed(&self, limit: Full) {
        self.count(limit).fetch_add(1);
    }

    fn count(&self, limit: Full) -> crate::word::Word32 {
        self.words.u32(word::CLOSED + if limit == Full::Each { 0 } else { 4 })
    }

    pub(crate) const fn is_enabled(&self) -> bool {
        self.heap.is_some()
    }
}

/// What waits for one connection: plain data, part of the connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    first: u32,
    last: u32,
    /// Bytes of the first piece that are sent, and of the last one that are filled.
    start: u32,
    end: u32,
    len: u32,
}

impl Backlog {
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes as far as there is memory; returns how many, and the limit that the rest is
    /// beyond.
    ///
    /// # Cooperation
    /// All lanes call it. Ends with a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn append<G: Group>(
        &mut self,
        g: &G,
        net: Net,
        all: &Backlogs,
        bytes: Bytes<'_>,
    ) -> Result<(usize, Option<Full>)> {
        let Some(heap) = all.heap else { return Ok((0, Some(Full::All))) };
        let (mut done, mut full) = (0, None);
        while done < bytes.len() {
            let room = match Chunk::from_raw(self.last) {
                Some(_) => PIECE - DATA - self.end as usize,
                None => 0,
            };
            if room == 0 {
                if self.len as usize + PIECE > all.each {
                    full = Some(Full::Each);
                    break;
                }
                let Some(chunk) = heap.alloc(g, net, PIECE)? else {
                    full = Some(Full::All);
                    break;
                };
                if g.is_leader() {
                    heap.memory(chunk).u32(NEXT).set(0);
                    if let Some(last) = Chunk::from_raw(self.last) {
                        heap.memory(last).u32(NEXT).set(chunk.raw());
                    }
                }
                (self.last, self.end) = (chunk.raw(), 0);
                if self.first == 0 {
                    (self.first, self.start) = (chunk.raw(), 0);
                }
                continue;
            }
            let piece = bytes.slice(done, room);
            if let Some(last) = Chunk::from_raw(self.last) {
                heap.memory(last).part(DATA + self.end as usize, piece.len()).fill(g, piece);
            }
            done += piece.len();
            self.end += piece.len() as u32;
            self.len += piece.len() as u32;
        }
        g.sync();
        Ok((done, full))
    }

    /// The first bytes in one piece.
    pub(crate) fn first(&self, all: &Backlogs) -> Option<Memory> {
        let (heap, first) = (all.heap?, Chunk::from_raw(self.first)?);
        let end = if self.first == self.last { self.end as usize } else { PIECE - DATA };
        let start = self.start as usize;
        Some(heap.memory(first).part(DATA + start, end - start))
    }

    /// Removes bytes of the first piece, and the piece with its last one.
    ///
    /// # Cooperation
    /// All lanes call it, after they have read them.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn remove<G: Group>(&mut self, g: &G, net: Net, all: &Backlogs, count: usize) -> Result<()> {
        let (Some(heap), Some(first)) = (all.heap, Chunk::from_raw(self.first)) else { return Ok(()) };
        self.start += count as u32;
        self.len -= count as u32;
        let is_last = self.first == self.last;
        if self.start as usize == if is_last { self.end as usize } else { PIECE - DATA } {
            let next = if is_last { 0 } else { heap.memory(first).u32(NEXT).get() };
            // All lanes have read it.
            g.sync();
            (self.first, self.start) = (next, 0);
            if is_last {
                (self.last, self.end) = (0, 0);
            }
            heap.free(g, net, first)?;
        }
        Ok(())
    }

    /// Gives its memory back.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn clear<G: Group>(&mut self, g: &G, net: Net, all: &Backlogs) -> Result<()> {
        while let Some(first) = self.first(all) {
            self.remove(g, net, all, first.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{for_test, no_net};
    use gpunet_device::group::Solo;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    fn backlogs(all: u64, each: u64) -> Backlogs {
        let mut measure = Carve::measure();
        let _ = Backlogs::carve(&mut measure, all, each);
        Backlogs::carve(&mut Carve::new(for_test(measure.used()), 1), all, each)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn bytes_come_out_as_they_went_in(steps in prop::collection::vec((any::<bool>(), 0usize..200_000), 1..80)) {
            let (g, net, all) = (Solo::new(0, 1), no_net(), backlogs(4 << 20, 1 << 20));
            let (mut backlog, mut model, mut next) = (Backlog::default(), VecDeque::new(), 0u8);
            for (appends, count) in steps {
                if appends {
                    let bytes: Vec<u8> = (0..count).map(|at| next.wrapping_add((at / 3) as u8)).collect();
                    next = next.wrapping_add(17);
                    let (done, full) = backlog.append(&g, net, &all, bytes[..].into()).unwrap();
                    prop_assert_eq!(done < count, full.is_some());
                    prop_assert!(full.is_none() || model.len() + done + 2 * PIECE > 1 << 20);
                    model.extend(&bytes[..done]);
                } else if let Some(first) = backlog.first(&all) {
                    let count = count.min(first.len());
                    let found = first.stable_bytes();
                    for at in 0..count {
                        prop_assert_eq!(Some(found.get(at)), model.pop_front());
                    }
                    backlog.remove(&g, net, &all, count).unwrap();
                }
                prop_assert_eq!(backlog.is_empty(), model.is_empty());
            }
            backlog.clear(&g, net, &all).unwrap();
            prop_assert_eq!((backlog.is_empty(), all.used(&g)), (true, 0));
        }
    }

    #[test]
    fn a_limit_says_which_it_is() {
        let (g, net, all) = (Solo::new(0, 1), no_net(), backlogs(4 << 20, 3 << 20));
        let bytes = std::vec![7; 4 << 20];
        let (mut one, mut two) = (Backlog::default(), Backlog::default());
        let (done, full) = one.append(&g, net, &all, bytes[..].into()).unwrap();
        assert!(done > 2 << 20 && full == Some(Full::Each), "{done} {full:?}");
        let (done, full) = two.append(&g, net, &all, bytes[..].into()).unwrap();
        assert!(done < 2 << 20 && full == Some(Full::All), "{done} {full:?}");
        one.clear(&g, net, &all).unwrap();
        assert!(two.append(&g, net, &all, bytes[..100].into()).unwrap() == (100, None));
    }
}
