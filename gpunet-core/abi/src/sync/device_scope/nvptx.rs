//! GPU scope, by inline assembly: core's atomics know system scope only.

use crate::sync::word::Word;
use core::arch::asm;

// Ordering: release at GPU scope, pairs with the acquire load in `observe` by another thread of
// this GPU; after a group barrier it carries the writes of all lanes (cumulativity).
/// Publishes `value` to the other threads of this device.
#[inline(always)]
pub fn publish(word: Word, value: u64) {
    // SAFETY: an aligned, mapped word by the contract of `Word::from_ptr`. Not `nomem`: what came
    // before stays before.
    unsafe {
        asm!("st.release.gpu.b64 [{p}], {v};", p = in(reg64) word.as_ptr(), v = in(reg64) value, options(nostack))
    };
}

// Ordering: acquire at GPU scope, pairs with the release store in `publish`.
/// Reads the word, and makes what its writer wrote before visible.
#[inline(always)]
#[must_use]
pub fn observe(word: Word) -> u64 {
    let value: u64;
    // SAFETY: as above; what comes after stays after.
    unsafe {
        asm!("ld.acquire.gpu.b64 {v}, [{p}];", v = out(reg64) value, p = in(reg64) word.as_ptr(), options(nostack))
    };
    value
}
