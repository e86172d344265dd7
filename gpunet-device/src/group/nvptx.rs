//! The GPU's groups.
//!
//! Barriers are the unaligned `barrier.sync`: rustc does not mark functions as convergent, LLVM may
//! copy a barrier into both arms of a branch, and an aligned barrier in divergent code is
//! undefined. Warp operations carry an explicit member mask for the same reason.

use super::{Alone, Front, Group, Lane};
use core::arch::{asm, global_asm};

// Shared memory for broadcasts and sums of whole blocks. Bytes 0-23: broadcast values, one of each
// place of `broadcast_once` and one of `broadcast`; bytes 32-287: one partial sum per warp, of
// `sum_once` and of `sum`.
global_asm!(".shared .align 16 .b8 gpunet_scratch[288];");

/// The scratch memory, as an address in shared memory.
#[inline(always)]
fn scratch() -> u32 {
    let p: u32;
    // SAFETY: takes the address of the module's shared variable.
    unsafe {
        asm!("mov.u32 {p}, gpunet_scratch;", p = out(reg32) p, options(pure, nomem, nostack, preserves_flags))
    };
    p
}

/// Where the value of a [`Group::broadcast`] lies, after the two places of
/// [`Group::broadcast_once`].
const BROADCAST: u32 = 2;
/// Where the sums of [`Group::sum_once`] and of [`Group::sum`] lie.
const SUM_ONCE: u32 = 32;
const SUM: u32 = SUM_ONCE + 128;

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
#[derive(Clone, Copy, Debug)]
pub struct ThreadBlock {
    /// Computed once: to read three special registers takes longer than a load.
    rank: u32,
}

impl ThreadBlock {
    /// The calling thread's block, however many values of it there are.
    #[inline(always)]
    #[must_use]
    pub fn current() -> Self {
        Self { rank: block_rank() }
    }

    /// Gives every lane the leader's value, by a place of the scratch memory that no lane reads any
    /// more.
    #[inline(always)]
    fn broadcast_by<const PLACE: u32>(&self, lane: Lane, value: u64) -> u64 {
        if lane.is_leader() {
            // SAFETY: one of the three broadcast values in shared memory, which no lane reads any
            // more.
            unsafe {
                asm!("st.volatile.shared.u64 [gpunet_scratch+{at}], {v};", at = const 8 * PLACE, v = in(reg64) value, options(nostack));
            }
        }
        self.sync();
        let value: u64;
        // SAFETY: as above; written before the barrier.
        unsafe {
            asm!("ld.volatile.shared.u64 {v}, [gpunet_scratch+{at}];", at = const 8 * PLACE, v = out(reg64) value, options(nostack));
        }
        value
    }

    /// Gives every lane the sum, by the partial sums at `offset` of the scratch memory, which no
    /// lane reads any more.
    #[inline(always)]
    fn sum_by(&self, value: u32, offset: u32) -> u32 {
        let (warp, at) = (Warp::of(self.rank), scratch() + offset);
        let partial = warp.sum(value);
        if crate::platform::opaque(warp.rank == 0) {
            let own = at + self.rank / 32 * 4;
            // SAFETY: this warp's partial sum, one of at most 32.
            unsafe {
                asm!("st.volatile.shared.u32 [{a}], {v};", a = in(reg32) own, v = in(reg32) partial, options(nostack))
            };
        }
        self.sync();
        // Each warp adds up all partial sums, a lane one of them; the lanes of a warp that is not
        // full may take several.
        let (mut sum, mut from) = (0, warp.rank);
        while from < self.size().div_ceil(32) {
            let part: u32;
            // SAFETY: written by that warp before the barrier.
            unsafe {
                asm!("ld.volatile.shared.u32 {v}, [{a}];", a = in(reg32) at + from * 4, v = out(reg32) part, options(nostack));
            }
            sum += part;
            from += warp.size;
        }
        warp.add(sum)
    }
}

impl Group for ThreadBlock {
    type Warp = Warp;
    type Thread = Thread;
    type Front = WholeWarp;

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
        self.sync();
        self.broadcast_by::<BROADCAST>(Lane::of(self), value)
    }
    #[inline(always)]
    fn broadcast_once<const PLACE: u32>(&self, lane: Lane, value: u64) -> u64 {
        self.broadcast_by::<PLACE>(lane, value)
    }
    #[inline(always)]
    fn sum(&self, value: u32) -> u32 {
        self.sync();
        self.sum_by(value, SUM)
    }
    #[inline(always)]
    fn sum_once(&self, value: u32) -> u32 {
        self.sum_by(value, SUM_ONCE)
    }
    #[inline(always)]
    fn has_front(&self, lane: Lane) -> bool {
        lane.size() >= 32
    }
    #[inline(always)]
    fn front(&self, lane: Lane) -> Option<WholeWarp> {
        if crate::platform::opaque(lane.rank() < 32) { Some(WholeWarp { rank: lane.rank() }) } else { None }
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
        Self::of(block_rank())
    }

    /// The warp of the thread of that rank in the block.
    #[inline(always)]
    fn of(rank: u32) -> Self {
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

    /// The sum of all lanes' values, by one instruction. It orders no memory.
    #[inline(always)]
    fn add(&self, value: u32) -> u32 {
        let sum: u32;
        // SAFETY: all lanes of the mask take part.
        unsafe {
            asm!("redux.sync.add.u32 {d}, {s}, {m};", d = out(reg32) sum, s = in(reg32) value, m = in(reg32) self.mask, options(nostack));
        }
        sum
    }
}

impl Group for Warp {
    type Warp = Self;
    type Thread = Thread;
    type Front = WholeWarp;

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
        // redux.sync does not order memory: `sum` is also a sync.
        self.sync();
        self.add(value)
    }
    #[inline(always)]
    fn has_front(&self, _lane: Lane) -> bool {
        self.size == 32
    }
    #[inline(always)]
    fn front(&self, _lane: Lane) -> Option<WholeWarp> {
        Some(WholeWarp { rank: self.rank })
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

/// The first warp of a block, or a warp, with all its lanes.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub struct WholeWarp {
    rank: u32,
}

/// Its lanes. A mask that is no constant makes each shuffle ten instructions.
const ALL_LANES: u32 = u32::MAX;

impl Front for WholeWarp {
    const IS_WARP: bool = true;

    #[inline(always)]
    fn rank(&self) -> usize {
        self.rank as usize
    }
    #[inline(always)]
    fn is_first(&self) -> bool {
        crate::platform::opaque(self.rank == 0)
    }
    #[inline(always)]
    fn first_of(&self, value: u64) -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: all lanes of the warp take part.
        unsafe {
            asm!("shfl.sync.idx.b32 {d}, {s}, 0, 31, {m};", d = out(reg32) low, s = in(reg32) value as u32, m = const ALL_LANES, options(nostack));
            asm!("shfl.sync.idx.b32 {d}, {s}, 0, 31, {m};", d = out(reg32) high, s = in(reg32) (value >> 32) as u32, m = const ALL_LANES, options(nostack));
        }
        u64::from(high) << 32 | u64::from(low)
    }
    #[inline(always)]
    fn of(&self, rank: usize, value: u64) -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: all lanes of the warp take part.
        unsafe {
            asm!("shfl.sync.idx.b32 {d}, {s}, {r}, 31, {m};", d = out(reg32) low, s = in(reg32) value as u32, r = in(reg32) rank as u32, m = const ALL_LANES, options(nostack));
            asm!("shfl.sync.idx.b32 {d}, {s}, {r}, 31, {m};", d = out(reg32) high, s = in(reg32) (value >> 32) as u32, r = in(reg32) rank as u32, m = const ALL_LANES, options(nostack));
        }
        u64::from(high) << 32 | u64::from(low)
    }
    #[inline(always)]
    fn all(&self, value: bool) -> bool {
        let all: u32;
        // SAFETY: all lanes of the warp take part.
        unsafe {
            asm!(
                "{{ .reg .pred p, q;",
                "setp.ne.u32 p, {v}, 0;",
                "vote.sync.all.pred q, p, {m};",
                "selp.u32 {o}, 1, 0, q; }}",
                v = in(reg32) u32::from(value), m = const ALL_LANES, o = out(reg32) all, options(nostack),
            );
        }
        all != 0
    }
}

/// One thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread;

impl Group for Thread {
    type Warp = Self;
    type Thread = Self;
    type Front = Alone;

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
    fn has_front(&self, _lane: Lane) -> bool {
        // One lane would have a line's chunks one after another: the ring is faster.
        false
    }
    #[inline(always)]
    fn front(&self, _lane: Lane) -> Option<Alone> {
        Some(Alone)
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
