//! The GPU's groups.
//!
//! Barriers are the unaligned `barrier.sync`: rustc does not mark functions as convergent, LLVM may
//! copy a barrier into both arms of a branch, and an aligned barrier in divergent code is
//! undefined. Warp operations carry an explicit member mask for the same reason.

use super::Group;
use core::arch::{asm, global_asm};
use core::cell::Cell;

// Shared memory for broadcasts and sums of whole blocks: two of each, used in turns by the value that the
// kernel's entry makes, and one more for all others.
// Bytes 0-23: broadcast values; bytes 32-415: one partial sum per warp, three times.
global_asm!(".shared .align 16 .b8 gpunet_scratch[416];");

#[inline(always)]
fn scratch() -> *mut u8 {
    let p: u64;
    // SAFETY: takes the generic address of the module's shared variable.
    unsafe {
        asm!("cvta.shared.u64 {p}, gpunet_scratch;", p = out(reg64) p, options(pure, nomem, nostack, preserves_flags));
    }
    p as *mut u8
}

macro_rules! special {
    ($name:ident, $register:literal) => {
        #[inline(always)]
        fn $name() -> u32 {
            let v: u32;
            // SAFETY: reads a special register that is constant for the thread.
            unsafe {
                asm!(concat!("mov.u32 {v}, %", $register, ";"), v = out(reg32) v, options(pure, nomem, nostack, preserves_flags));
            }
            v
        }
    };
}
special!(tid_x, "tid.x");
special!(tid_y, "tid.y");
special!(tid_z, "tid.z");
special!(ntid_x, "ntid.x");
special!(ntid_y, "ntid.y");
special!(ntid_z, "ntid.z");
special!(ctaid_x, "ctaid.x");
special!(ctaid_y, "ctaid.y");
special!(ctaid_z, "ctaid.z");
special!(nctaid_x, "nctaid.x");
special!(nctaid_y, "nctaid.y");
special!(nctaid_z, "nctaid.z");

fn block_rank() -> u32 {
    tid_x() + ntid_x() * (tid_y() + ntid_y() * tid_z())
}
fn block_size() -> u32 {
    ntid_x() * ntid_y() * ntid_z()
}
fn block_index() -> u32 {
    ctaid_x() + nctaid_x() * (ctaid_y() + nctaid_y() * ctaid_z())
}
fn block_count() -> u32 {
    nctaid_x() * nctaid_y() * nctaid_z()
}

/// All threads of a block. Ranks are linearised over x, y, z; hardware barrier 0.
pub type ThreadBlock = Block<Shared>;

/// All threads of a block, as the one value of it that is used: what a kernel is given. It needs a barrier less
/// for each broadcast and sum than a [`ThreadBlock`].
#[doc(hidden)]
pub type SoleBlock = Block<InTurns>;

/// All threads of a block, whose broadcasts and sums use parts of the scratch memory as `S` says.
#[derive(Debug)]
pub struct Block<S> {
    rank: u32,
    scratch: S,
}

/// Chooses the part of the scratch memory for the next broadcast or sum: one that no lane reads any more.
pub trait Scratch {
    /// Returns its number.
    fn next(&self, sync: impl FnOnce()) -> usize;
}

/// One part for all values of a block, with a barrier before each use.
#[derive(Debug)]
pub struct Shared;

impl Scratch for Shared {
    #[inline(always)]
    fn next(&self, sync: impl FnOnce()) -> usize {
        sync();
        2
    }
}

/// Two parts in turns: lanes that still read one would not have passed the barrier of the other's turn.
#[derive(Debug)]
pub struct InTurns {
    turn: Cell<u32>,
}

impl Scratch for InTurns {
    #[inline(always)]
    fn next(&self, _sync: impl FnOnce()) -> usize {
        let turn = self.turn.get();
        self.turn.set(turn ^ 1);
        turn as usize
    }
}

impl ThreadBlock {
    /// The calling thread's block, however many values of it there are. A kernel is given one that
    /// needs a barrier less for each broadcast.
    ///
    /// # Cooperation
    /// All threads of the block call it.
    #[inline(always)]
    #[must_use]
    pub fn current() -> Self {
        Self { rank: block_rank(), scratch: Shared }
    }
}

impl SoleBlock {
    /// The calling thread's block, for who makes one value at a time: a kernel's entry, a C function.
    /// Begins with a barrier.
    ///
    /// # Safety
    /// All threads of the block call it, and of the values that this function makes only the last one
    /// of a block is used.
    #[inline(always)]
    #[must_use]
    pub unsafe fn current() -> Self {
        let block = Self { rank: block_rank(), scratch: InTurns { turn: Cell::new(0) } };
        block.sync();
        block
    }
}

impl<S: Scratch> Group for Block<S> {
    type Warp = Warp;
    type Thread = Thread;

    #[inline(always)]
    fn rank(&self) -> u32 {
        self.rank
    }
    #[inline(always)]
    fn size(&self) -> u32 {
        block_size()
    }
    #[inline(always)]
    fn index(&self) -> u32 {
        block_index()
    }
    #[inline(always)]
    fn count(&self) -> u32 {
        block_count()
    }
    #[inline(always)]
    fn sync(&self) {
        // SAFETY: barrier 0 of the block; unaligned, so it may stand in divergent code. It orders
        // the block's memory accesses, hence no `nomem`.
        unsafe { asm!("barrier.sync 0;", options(nostack)) };
    }
    #[inline(always)]
    fn broadcast(&self, value: u64) -> u64 {
        let slot = scratch().cast::<u64>().wrapping_add(self.scratch.next(|| self.sync()));
        if self.is_leader() {
            // SAFETY: one of the three broadcast values in shared memory, which no lane reads any more
            // (`Scratch`).
            unsafe { slot.write_volatile(value) };
        }
        self.sync();
        // SAFETY: as above; written before the barrier.
        unsafe { slot.read_volatile() }
    }
    #[inline(always)]
    fn sum(&self, value: u32) -> u32 {
        let warps = block_size().div_ceil(32);
        let partial = self.warp().sum(value);
        let slots = scratch().wrapping_add(32 + 128 * self.scratch.next(|| self.sync())).cast::<u32>();
        if crate::platform::opaque(self.rank % 32 == 0) {
            // SAFETY: this warp's partial sum, one of at most 32, in this turn's part.
            unsafe { slots.wrapping_add((self.rank / 32) as usize).write_volatile(partial) };
        }
        self.sync();
        let mut sum = 0;
        for warp in 0..warps {
            // SAFETY: written by that warp before the barrier.
            sum += unsafe { slots.wrapping_add(warp as usize).read_volatile() };
        }
        sum
    }
    #[inline(always)]
    fn warp(&self) -> Warp {
        Warp::current()
    }
    #[inline(always)]
    fn thread(&self) -> Thread {
        Thread
    }
}

/// The threads of one warp.
#[derive(Clone, Copy, Debug)]
pub struct Warp {
    rank: u32,
    size: u32,
    mask: u32,
}

impl Warp {
    /// The calling thread's warp; the last one of a block may be smaller than 32.
    #[inline(always)]
    #[must_use]
    pub fn current() -> Self {
        let rank = block_rank();
        let first = rank & !31;
        let size = if block_size() - first < 32 { block_size() - first } else { 32 };
        let mask = if size == 32 { u32::MAX } else { (1 << size) - 1 };
        Self { rank: rank & 31, size, mask }
    }

    #[inline(always)]
    fn shuffle(&self, value: u32, from: u32) -> u32 {
        let out: u32;
        // SAFETY: all lanes of the mask take part; `from` is one of them.
        unsafe {
            asm!("shfl.sync.idx.b32 {d}, {s}, {l}, 31, {m};", d = out(reg32) out, s = in(reg32) value, l = in(reg32) from, m = in(reg32) self.mask, options(nostack));
        }
        out
    }
}

impl Group for Warp {
    type Warp = Self;
    type Thread = Thread;

    #[inline(always)]
    fn rank(&self) -> u32 {
        self.rank
    }
    #[inline(always)]
    fn size(&self) -> u32 {
        self.size
    }
    #[inline(always)]
    fn index(&self) -> u32 {
        block_index() * block_size().div_ceil(32) + block_rank() / 32
    }
    #[inline(always)]
    fn count(&self) -> u32 {
        block_count() * block_size().div_ceil(32)
    }
    #[inline(always)]
    fn sync(&self) {
        // SAFETY: waits for the lanes of the mask and orders their memory accesses.
        unsafe { asm!("bar.warp.sync {m};", m = in(reg32) self.mask, options(nostack)) };
    }
    #[inline(always)]
    fn broadcast(&self, value: u64) -> u64 {
        // shfl.sync does not order memory: `broadcast` is also a sync.
        self.sync();
        let low = self.shuffle(value as u32, 0);
        let high = self.shuffle((value >> 32) as u32, 0);
        u64::from(high) << 32 | u64::from(low)
    }
    #[inline(always)]
    fn sum(&self, value: u32) -> u32 {
        self.sync();
        let mut sum = 0;
        for lane in 0..self.size {
            sum += self.shuffle(value, lane);
        }
        sum
    }
    #[inline(always)]
    fn warp(&self) -> Self {
        *self
    }
    #[inline(always)]
    fn thread(&self) -> Thread {
        Thread
    }
}

/// One thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread;

impl Group for Thread {
    type Warp = Self;
    type Thread = Self;

    #[inline(always)]
    fn rank(&self) -> u32 {
        0
    }
    #[inline(always)]
    fn size(&self) -> u32 {
        1
    }
    #[inline(always)]
    fn index(&self) -> u32 {
        block_index() * block_size() + block_rank()
    }
    #[inline(always)]
    fn count(&self) -> u32 {
        block_count() * block_size()
    }
    #[inline(always)]
    fn sync(&self) {}
    #[inline(always)]
    fn broadcast(&self, value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn sum(&self, value: u32) -> u32 {
        value
    }
    #[inline(always)]
    fn warp(&self) -> Self {
        *self
    }
    #[inline(always)]
    fn thread(&self) -> Self {
        *self
    }
}
