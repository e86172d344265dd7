//! Message passing: a litmus test of release and acquire.

use crate::Results;
use crate::roles::play;
use crate::wait::until;
use gpunet_device::abi::position::StreamWord;
use gpunet_device::abi::ring::RingEnd;
use gpunet_device::abi::{Link, Word};
use gpunet_device::copy::copy;
use gpunet_device::{Error, Group, Kernel, kernel_entry, now_ns};

/// In each round the writer fills data, publishes `flag`, and waits for `ack`; the reader observes
/// `flag`, copies the data out and counts the words that are not of this round.
///
/// Block 0 plays the first of the launch's roles, block 1 the second. Result 0: the writer's
/// rounds; result 1: the reader's stale words. A reader that follows the rules counts none, unless
/// the writer is asked to break them ([`Order::broken`]).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Order {
    /// What both share: `words` words.
    pub data: *mut u8,
    /// As many words of each block's own.
    pub own: *mut u8,
    /// The writer's word.
    pub flag: *mut u64,
    /// The reader's word.
    pub ack: *mut u64,
    /// Words of data.
    pub words: u64,
    /// Rounds.
    pub rounds: u64,
    /// Not 0: the writer publishes the flag and writes the data when the reader is done, so that
    /// all words are stale in every round. A test that finds none then would never find any.
    pub broken: u32,
    /// Not 0: both ends are blocks of one device.
    pub near: u32,
    /// Which roles this launch plays: [`crate::FIRST`], [`crate::SECOND`].
    pub roles: u32,
    /// 0.
    pub reserved: u32,
    /// Nanoseconds that the whole test may take.
    pub limit_ns: u64,
    /// The outcomes.
    pub results: Results,
}

// SAFETY: addresses of memory that the host guarantees.
unsafe impl Send for Order {}

impl Kernel for Order {
    const ENTRY: &'static str = "gpunet_diagnose_order";

    fn run<G: Group>(self, g: &G) {
        play(g, &self.results, self.roles, || self.write(g), || self.read(g));
    }
}
kernel_entry!(order, "gpunet_diagnose_order", Order);

impl Order {
    fn end(&self, mine: *mut u64, theirs: *mut u64) -> RingEnd {
        // SAFETY: the launcher gave two aligned words that stay while this runs.
        let (mine, theirs) = unsafe { (Word::from_ptr(mine), Word::from_ptr(theirs)) };
        let link = if self.near != 0 { Link::same_device(0) } else { Link::REMOTE };
        RingEnd {
            base: self.data,
            capacity: self.words * 8,
            line: core::ptr::null_mut(),
            mine,
            theirs,
            link,
            units: false,
        }
    }

    /// This block's own words.
    fn own<G: Group>(&self, g: &G) -> *mut u64 {
        self.own.wrapping_add(g.index() as usize * self.words as usize * 8).cast()
    }

    /// Writes all rounds; returns their number.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub fn write<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let deadline = now_ns() + self.limit_ns;
        let end = self.end(self.flag, self.ack);
        let own = self.own(g);
        let mut round = 1;
        while round <= self.rounds {
            let mut at = g.rank() as u64;
            while at < self.words {
                // SAFETY: inside this block's own words.
                unsafe { own.wrapping_add(at as usize).write(value(round, at)) };
                at += g.size() as u64;
            }
            g.sync();
            if self.broken == 0 {
                self.copy(g, self.data, own.cast());
                g.sync();
            }
            if g.is_leader() {
                end.publish(StreamWord::at(round));
            }
            until(g, || end.observe().0, round, deadline)?;
            if self.broken != 0 {
                self.copy(g, self.data, own.cast());
                g.sync();
            }
            round += 1;
        }
        Ok(self.rounds)
    }

    /// Reads all rounds; returns the number of stale words.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub fn read<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let deadline = now_ns() + self.limit_ns;
        let end = self.end(self.ack, self.flag);
        let own = self.own(g);
        let (mut round, mut stale) = (1, 0);
        while round <= self.rounds {
            until(g, || end.observe().0, round, deadline)?;
            self.copy(g, own.cast(), self.data);
            g.sync();
            let (mut at, mut wrong) = (g.rank() as u64, 0);
            while at < self.words {
                // SAFETY: inside this block's own words; volatile, so that no round is read once
                // for all.
                let found = unsafe { own.wrapping_add(at as usize).read_volatile() };
                wrong += u32::from(found != value(round, at));
                at += g.size() as u64;
            }
            stale += g.sum(wrong) as u64;
            if g.is_leader() {
                end.publish(StreamWord::at(round));
            }
            round += 1;
        }
        Ok(stale)
    }

    fn copy<G: Group>(&self, g: &G, dst: *mut u8, src: *const u8) {
        // SAFETY: both have as many words and do not overlap; by the hand-off words only one side
        // accesses them.
        unsafe { copy(g.rank(), g.size(), dst, src, self.words as usize * 8) };
    }
}

/// What word `at` holds in a round: never what it held in the one before, nor 0.
#[inline(always)]
const fn value(round: u64, at: u64) -> u64 {
    (round << 20) | (at + 1)
}
