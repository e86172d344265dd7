//! Bytes through a ring, by the code that sockets use.

use crate::Results;
use crate::crc::crc32;
use crate::lengths::Lengths;
use crate::roles::play;
use crate::wait::until;
use gpunet_device::abi::position::StreamWord;
use gpunet_device::abi::ring::{Consumer, Producer, RingEnd};
use gpunet_device::abi::{Link, Word};
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_device::{Error, Group, Kernel, kernel_entry, now_ns};

/// Sends `total` bytes at `src` through a ring, or receives them at `dst`, in pieces of many
/// lengths.
///
/// Block 0 plays the first of the launch's roles, block 1 the second. Result 0: the CRC-32 of what
/// was sent; result 1: that of what arrived.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Ring {
    /// The bytes to send.
    pub src: *mut u8,
    /// Where it arrives.
    pub dst: *mut u8,
    /// The ring.
    pub base: *mut u8,
    /// Its length, a power of two.
    pub capacity: u64,
    /// The sender's word.
    pub published: *mut u64,
    /// The receiver's word.
    pub consumed: *mut u64,
    /// Bytes to move.
    pub total: u64,
    /// The lengths of the pieces.
    pub seed: u64,
    /// Which roles this launch plays: [`crate::FIRST`], [`crate::SECOND`].
    pub roles: u32,
    /// Not 0: both ends are blocks of one device.
    pub near: u32,
    /// Nanoseconds that the whole test may take.
    pub limit_ns: u64,
    /// The outcomes.
    pub results: Results,
}

// SAFETY: addresses of memory that the host guarantees.
unsafe impl Send for Ring {}

impl Kernel for Ring {
    const ENTRY: &'static str = "gpunet_diagnose_ring";

    fn run<G: Group>(self, g: &G) {
        play(g, &self.results, self.roles, || self.send(g), || self.receive(g));
    }
}
kernel_entry!(ring, "gpunet_diagnose_ring", Ring);

impl Ring {
    fn end(&self, mine: *mut u64, theirs: *mut u64) -> RingEnd {
        // SAFETY: the launcher gave two aligned words that stay while this runs.
        let (mine, theirs) = unsafe { (Word::from_ptr(mine), Word::from_ptr(theirs)) };
        let link = if self.near != 0 { Link::same_device(0) } else { Link::REMOTE };
        RingEnd {
            base: self.base,
            capacity: self.capacity,
            line: core::ptr::null_mut(),
            mine,
            theirs,
            link,
            units: false,
        }
    }

    /// Sends everything; returns its CRC.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::Protocol`], if the receiver's word has an invalid value.
    pub fn send<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let deadline = now_ns() + self.limit_ns;
        // SAFETY: the launcher gave a ring that nobody else sends to.
        let mut producer =
            unsafe { Producer::new(self.end(self.published, self.consumed), StreamWord(0), StreamWord(0)) };
        let mut lengths = Lengths::new(self.seed);
        while producer.position() < self.total {
            if producer.free() == 0 {
                let seen = until(g, || producer.poll().0, producer.released().position() + 1, deadline)?;
                producer.accept(StreamWord(seen)).map_err(|_| Error::Protocol)?;
            }
            let left = self.total - producer.position();
            let len = lengths.next();
            let span = producer.span(if len < left { len } else { left });
            // SAFETY: `total` bytes are readable, and the span is free.
            unsafe { copy_into_ring(g, span, self.src.wrapping_add(producer.position() as usize)) };
            g.sync();
            producer.advance(span.len() as u64);
            if g.is_leader() {
                producer.announce();
            }
        }
        Ok(self.crc(g, self.src))
    }

    /// Receives everything; returns its CRC.
    ///
    /// # Errors
    /// As [`Ring::send`].
    pub fn receive<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let deadline = now_ns() + self.limit_ns;
        // SAFETY: the launcher gave a ring that nobody else receives from.
        let mut consumer =
            unsafe { Consumer::new(self.end(self.consumed, self.published), StreamWord(0), StreamWord(0)) };
        let mut lengths = Lengths::new(!self.seed);
        while consumer.position() < self.total {
            if consumer.available() == 0 {
                let seen = until(g, || consumer.poll().0, consumer.landed().position() + 1, deadline)?;
                consumer.accept(StreamWord(seen)).map_err(|_| Error::Protocol)?;
            }
            let left = self.total - consumer.position();
            let len = lengths.next();
            let span = consumer.span(if len < left { len } else { left });
            // SAFETY: `total` bytes are writable, and the span has landed.
            unsafe { copy_out_of_ring(g, self.dst.wrapping_add(consumer.position() as usize), span) };
            g.sync();
            consumer.advance(span.len() as u64);
            if g.is_leader() {
                consumer.announce();
            }
        }
        Ok(self.crc(g, self.dst))
    }

    /// By the leader, after the group's barrier.
    fn crc<G: Group>(&self, g: &G, bytes: *const u8) -> u64 {
        let mut crc = 0;
        if g.is_leader() {
            // SAFETY: `total` bytes of this block alone; the barrier ordered the lanes' copies.
            crc = unsafe { crc32(bytes, self.total as usize) };
        }
        g.broadcast(crc as u64)
    }
}
