//! The floor of streams between two devices: only data and a flag.

use crate::Results;
use gpunet_device::abi::{Piece, RingSpan, Word};
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_device::{Group, Kernel, kernel_entry, now_ns};

/// One end of a ping-pong: copy `size` bytes into the other's memory, release a flag there, wait
/// for its own flag, copy out or not. Two launches run it, on two devices. `results` of the one
/// that begins: nanoseconds per round.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bare {
    /// The flag that this end polls, in its own memory.
    pub near_flag: *mut u64,
    /// The other's flag.
    pub far_flag: *mut u64,
    /// Where the other end's data arrives, in this end's memory.
    pub near_data: *mut u8,
    /// Where this end's data goes.
    pub far_data: *mut u8,
    /// This end's message.
    pub own: *mut u8,
    /// Bytes; 0 for flags alone.
    pub size: u64,
    /// 1: each four bytes travel with a flag of their own, in units of eight, and there is no
    /// other.
    pub units: u64,
    /// 1: each end copies the data out of where it has arrived.
    pub copies_out: u64,
    /// Round trips.
    pub rounds: u64,
    /// 1: this end begins, and measures.
    pub begins: u64,
    /// Nanoseconds per round.
    pub results: Results,
}

// SAFETY: addresses of memory that both devices can access; the launching host guarantees them.
unsafe impl Send for Bare {}

impl Kernel for Bare {
    const ENTRY: &'static str = "gpunet_bare";

    fn run<G: Group>(self, g: &G) {
        if g.index() > 0 {
            return;
        }
        let mut round = 1;
        while round <= self.rounds {
            let start = now_ns();
            if self.begins == 1 {
                self.put(g, round);
            }
            self.get(g, round);
            if self.begins == 0 {
                self.put(g, round);
            }
            self.results.set(g, round as usize - 1, now_ns() - start);
            round += 1;
        }
    }
}
kernel_entry!(bare, "gpunet_bare", Bare);

impl Bare {
    #[inline(always)]
    fn put<G: Group>(&self, g: &G, round: u64) {
        if self.units == 1 {
            return self.put_units(g, round);
        }
        if self.size > 0 {
            // SAFETY: `size` bytes on both sides, by the launcher's word.
            unsafe { copy_into_ring(g, self.span(self.far_data), self.own) };
            g.sync();
        }
        if g.is_leader() {
            // SAFETY: an aligned word that both devices reach, by the launcher's word.
            unsafe { Word::from_ptr(self.far_flag) }.publish(round);
        }
    }

    #[inline(always)]
    fn get<G: Group>(&self, g: &G, round: u64) {
        if self.units == 1 {
            return self.get_units(g, round);
        }
        if g.is_leader() {
            // SAFETY: as above.
            let flag = unsafe { Word::from_ptr(self.near_flag) };
            while flag.observe() < round {}
        }
        g.sync();
        if self.size > 0 && self.copies_out == 1 {
            // SAFETY: as in `put`; the other end wrote them before its flag.
            unsafe { copy_out_of_ring(g, self.own, self.span(self.near_data)) };
            g.sync();
        }
    }

    /// Unit `index` of a message at `data`.
    #[inline(always)]
    fn unit(data: *mut u8, index: usize) -> Word {
        // SAFETY: an aligned word that both devices reach: the launcher leaves twice the size.
        unsafe { Word::from_ptr(data.cast::<u64>().wrapping_add(index)) }
    }

    #[inline(always)]
    fn put_units<G: Group>(&self, g: &G, round: u64) {
        let (own, mut index) = (self.own.cast::<u32>(), g.rank() as usize);
        while index * 4 < self.size as usize {
            // SAFETY: four bytes of this end's message.
            let data = unsafe { own.wrapping_add(index).read() };
            Self::unit(self.far_data, index).set(round << 32 | u64::from(data));
            index += g.size() as usize;
        }
        g.sync();
    }

    #[inline(always)]
    fn get_units<G: Group>(&self, g: &G, round: u64) {
        let (own, mut index) = (self.own.cast::<u32>(), g.rank() as usize);
        while index * 4 < self.size as usize {
            let mut found = Self::unit(self.near_data, index).peek();
            while found >> 32 != round {
                found = Self::unit(self.near_data, index).peek();
            }
            // SAFETY: as in `put_units`.
            unsafe { own.wrapping_add(index).write(found as u32) };
            index += g.size() as usize;
        }
        g.sync();
    }

    #[inline(always)]
    fn span(&self, at: *mut u8) -> RingSpan {
        let none = Piece { ptr: at, len: 0 };
        RingSpan { first: Piece { ptr: at, len: self.size as usize }, second: none }
    }
}
