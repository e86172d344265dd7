//! The GPU: waiters spin, nobody is woken, and vector accesses are inline assembly.

use core::arch::asm;

/// Nanoseconds of the GPU's global timer.
#[inline(always)]
pub(crate) fn now_ns() -> u64 {
    let t: u64;
    // SAFETY: reads a special register. Not `pure`: it is to be read again each time.
    unsafe { asm!("mov.u64 {t}, %globaltimer;", t = out(reg64) t, options(nomem, nostack)) };
    t
}

/// A release waits until what the block has stored has arrived.
pub(crate) const RELEASE_WAITS: bool = true;

/// A small copy is made in place: a called function saves registers in local memory, and the large
/// copy is much code to fetch.
pub(crate) const COPIES_IN_PLACE: bool = true;

/// Waiters never sleep.
#[inline(always)]
pub(crate) const fn may_sleep() -> bool {
    false
}

/// How many polls of the position word come between two checks of status, cancel and heartbeat: 128
/// polls take about 0.1 ms. The three words lie in pinned memory, and the loads of many waiting
/// blocks queue on the bus: at 16, 64 echo streams inside one H200 took 184 us a round trip instead
/// of 3.5.
#[inline(always)]
pub(crate) const fn slow_check_every() -> u32 {
    128
}

/// The number of the calling thread's block.
pub(crate) fn block() -> u32 {
    let (x, y, z, columns, rows): (u32, u32, u32, u32, u32);
    // SAFETY: reads special registers that are constant for the thread.
    unsafe {
        asm!("mov.u32 {x}, %ctaid.x;", "mov.u32 {y}, %ctaid.y;", "mov.u32 {z}, %ctaid.z;", "mov.u32 {columns}, %nctaid.x;", "mov.u32 {rows}, %nctaid.y;", x = out(reg32) x, y = out(reg32) y, z = out(reg32) z, columns = out(reg32) columns, rows = out(reg32) rows, options(pure, nomem, nostack, preserves_flags));
    }
    x + columns * (y + rows * z)
}

/// A GPU's groups lose no lane: a trap ends the whole grid.
#[inline(always)]
pub(crate) fn is_abandoned() -> bool {
    false
}

/// Waits some nanoseconds between two attempts to change a word that many groups want.
#[inline(always)]
pub fn back_off() {
    // SAFETY: suspends the thread for a short time.
    unsafe { asm!("nanosleep.u32 {t};", t = in(reg32) 200u32, options(nomem, nostack)) };
}

/// Waits two microseconds or so between two loads of host memory by a group that has nothing to do,
/// unless `is_over` is true before: asked every half a microsecond or so, it is a load of this
/// GPU's memory. Returns whether it was.
#[inline(always)]
pub(crate) fn nap_unless(is_over: impl Fn() -> bool) -> bool {
    for _ in 0..4 {
        // SAFETY: suspends the thread for a short time.
        unsafe { asm!("nanosleep.u32 {t};", t = in(reg32) 400u32, options(nomem, nostack)) };
        if is_over() {
            return true;
        }
    }
    false
}

/// A GPU's groups need no other's core.
#[inline(always)]
pub fn yield_core() {}

/// A GPU waiter never sleeps.
#[inline(always)]
pub(crate) fn pause(
    _round: u32,
    _flag: *mut u32,
    _limit_ns: u64,
    _naps: bool,
    _changed: impl FnOnce() -> bool,
) {
}

/// A GPU waiter never sleeps.
#[inline(always)]
pub(crate) fn pause_for_bell(
    _round: u32,
    _own: *mut gpunet_abi::arena::PartHeader,
    _limit_ns: u64,
    _naps: bool,
    _changed: impl FnOnce() -> bool,
) {
}

/// A GPU publisher wakes nobody.
#[inline(always)]
pub(crate) fn wake(_flag: *mut u32) {}

/// A GPU publisher wakes nobody.
#[inline(always)]
pub(crate) fn wake_pollers(_pollers: *mut u32, _epoch: *mut u64, _slot: u32) {}

/// A GPU publisher wakes nobody.
#[inline(always)]
pub(crate) fn ring_bell(_remote_part: *mut gpunet_abi::arena::PartHeader) {}

/// A GPU poller is counted nowhere, since it never sleeps.
pub(crate) struct PollerRegistration;

impl PollerRegistration {
    #[inline(always)]
    pub(crate) const fn new(_net: crate::Net) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn enter(&mut self) {}

    #[inline(always)]
    pub(crate) fn leave(&mut self) {}
}

/// A GPU's calls are not counted: what it has mapped stays mapped until no kernel runs.
pub struct CallGuard;

impl CallGuard {
    /// Whether calls are counted.
    pub const IS_COUNTED: bool = false;

    #[inline(always)]
    pub(crate) fn enter(_net: crate::Net, _word: gpunet_abi::Word) -> Self {
        Self
    }

    /// Counts nothing: a GPU's mappings stay until the launch has ended.
    #[inline(always)]
    pub fn enter_any(_net: crate::Net) -> Self {
        Self
    }

    /// As [`CallGuard::enter_any`].
    #[inline(always)]
    pub fn narrow(&self, _word: gpunet_abi::Word) {}
}

/// What a sleeper would compare.
pub(crate) struct ChangeCounts;

impl ChangeCounts {
    #[inline(always)]
    pub(crate) fn load(_net: crate::Net) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) const fn have_changed(&self, _own: Option<(&super::WakeWords, bool)>) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn sleep(&self, _limit_ns: u64, _watched: u32) {}

    #[inline(always)]
    pub(crate) fn sleep_until_woken(&self, _limit_ns: u64, _watches: bool, _own: &super::WakeWords) {}
}

/// A GPU's poll never sleeps.
#[inline(always)]
pub(crate) const fn looks_before_sleep() -> u32 {
    0
}

/// As above.
pub(crate) struct PollSpin;

impl PollSpin {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) const fn spin(&mut self) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) const fn end(&self) {}
}

/// A GPU wakes nobody.
#[inline(always)]
pub(crate) fn wake_sleeper(_sleeping: *mut u32, _word: gpunet_abi::Word) {}

/// A GPU rings no doorbell: the data thread polls.
#[inline(always)]
pub(crate) fn ring_doorbell(_sleeping: *mut u32, _doorbell: i32) {}

/// Changes a lock among this GPU's threads from one value to another; returns whether it had the
/// first.
///
/// GPU scope: the lock guards entries that only this GPU reads, and a release at system scope would
/// wait for the published word to cross PCIe.
///
/// # Safety
/// `word` is aligned, in this GPU's memory, and used as a lock only.
#[inline(always)]
pub(crate) unsafe fn lock(word: *mut u32, from: u32, to: u32) -> bool {
    let old: u32;
    // Ordering: acquire, pairs with the release exchange in `unlock`: what the group that had it
    // before left in the entry is visible.
    // SAFETY: the caller's contract.
    unsafe {
        asm!("atom.acquire.gpu.cas.b32 {o}, [{p}], {f}, {t};", o = out(reg32) old, p = in(reg64) word, f = in(reg32) from, t = in(reg32) to, options(nostack));
    }
    old == from
}

/// Gives a lock back: from the value with which the caller's group has taken it to another. A lock
/// that has another value by now is another socket's, and stays as it is.
///
/// Nothing waits for the exchange, whose result nobody reads: it takes the thread no longer than a
/// store.
///
/// # Safety
/// As [`lock`].
#[inline(always)]
pub(crate) unsafe fn unlock(word: *mut u32, from: u32, to: u32) {
    // Ordering: release, pairs with the acquire exchange in `lock`.
    // SAFETY: the caller's contract.
    unsafe {
        asm!("atom.release.gpu.cas.b32 {o}, [{p}], {f}, {t};", o = out(reg32) _, p = in(reg64) word, f = in(reg32) from, t = in(reg32) to, options(nostack));
    }
}

/// Sixteen bytes in two registers.
pub(crate) type Chunk = [u64; 2];

/// Loads sixteen bytes by one instruction.
///
/// # Safety
/// `ptr` is 16-byte aligned and readable.
#[inline(always)]
pub(crate) unsafe fn load_chunk(ptr: *const u8) -> Chunk {
    let (a, b);
    // SAFETY: the caller's contract.
    unsafe {
        asm!("ld.v2.b64 {{{a}, {b}}}, [{p}];", a = out(reg64) a, b = out(reg64) b, p = in(reg64) ptr, options(nostack))
    };
    [a, b]
}

/// As [`load_chunk`], past the first-level cache: what no lane loads again need not drive out of it
/// what lanes keep in local memory.
///
/// # Safety
/// As [`load_chunk`].
#[inline(always)]
pub(crate) unsafe fn load_chunk_once(ptr: *const u8) -> Chunk {
    let (a, b);
    // SAFETY: the caller's contract.
    unsafe {
        asm!("ld.cg.v2.b64 {{{a}, {b}}}, [{p}];", a = out(reg64) a, b = out(reg64) b, p = in(reg64) ptr, options(nostack))
    };
    [a, b]
}

/// Stores sixteen bytes by one instruction.
///
/// # Safety
/// `ptr` is 16-byte aligned and writable.
#[inline(always)]
pub(crate) unsafe fn store_chunk(ptr: *mut u8, chunk: Chunk) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("st.v2.b64 [{p}], {{{a}, {b}}};", a = in(reg64) chunk[0], b = in(reg64) chunk[1], p = in(reg64) ptr, options(nostack))
    };
}

// Ordering: Relaxed, of both. A unit's tag comes with its bytes, so nothing has to be ordered; PTX
// makes of a vector access one access of each element, and one of eight bytes is whole.
/// Stores two units of a line, each at once.
///
/// # Safety
/// `ptr` is one of the line's chunks.
#[inline(always)]
pub unsafe fn store_units(ptr: *mut u64, units: [u64; 2]) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("st.relaxed.sys.v2.b64 [{p}], {{{a}, {b}}};", a = in(reg64) units[0], b = in(reg64) units[1], p = in(reg64) ptr, options(nostack))
    };
}

/// Loads two units of a line, each at once.
///
/// # Safety
/// `ptr` is one of the line's chunks.
#[inline(always)]
pub unsafe fn load_units(ptr: *mut u64) -> [u64; 2] {
    let (a, b);
    // SAFETY: the caller's contract.
    unsafe {
        asm!("ld.relaxed.sys.v2.b64 {{{a}, {b}}}, [{p}];", a = out(reg64) a, b = out(reg64) b, p = in(reg64) ptr, options(nostack))
    };
    [a, b]
}

/// Loads two words that their writer has published and leaves alone: the calling lane has observed
/// the word that tells of them.
///
/// Loads that order nothing are under way together. Those of [`load_units`] take their trips one
/// after the other within a line of host memory: 5.8 us for 128 bytes on an H200, and these 2.8.
///
/// # Safety
/// `ptr` is 16-byte aligned and readable.
#[inline(always)]
pub unsafe fn load_published(ptr: *mut u64) -> [u64; 2] {
    // SAFETY: the caller's contract.
    unsafe { load_chunk(ptr.cast()) }
}

/// One lane has no faster way than the others: rustc makes `copy_nonoverlapping` a byte loop here.
///
/// # Safety
/// None needed: it does nothing.
#[inline(always)]
pub(crate) unsafe fn copy_alone(_dst: *mut u8, _src: *const u8, _len: usize) -> bool {
    false
}

/// Hides a value from the optimiser, which would otherwise thread jumps through barriers and copy
/// them into both arms of a leader's `if`.
#[inline(always)]
pub(crate) fn opaque(value: bool) -> bool {
    let mut x = u32::from(value);
    // SAFETY: an empty statement that claims to change a register.
    unsafe { asm!("/* opaque {x} */", x = inout(reg32) x, options(nomem, nostack, preserves_flags)) };
    x != 0
}

/// Hides where a number comes from, so that what is computed from it is computed where it is used
/// and not kept in registers from before a loop.
#[inline(always)]
pub(crate) fn opaque_u32(value: u32) -> u32 {
    let mut x = value;
    // SAFETY: an empty statement that claims to change a register.
    unsafe { asm!("/* opaque {x} */", x = inout(reg32) x, options(nomem, nostack, preserves_flags)) };
    x
}
