//! The two ends of a test.

use crate::Results;
use gpunet_device::{Error, Group};

/// The role of the end that writes or sends.
pub const FIRST: u32 = 1;
/// The role of the end that reads or receives.
pub const SECOND: u32 = 2;

/// Block 0 plays the first of a launch's `roles`, block 1 the second. Result 0 is that of the first
/// role, result 1 that of the second.
#[inline(always)]
pub(crate) fn play<G: Group>(
    g: &G,
    results: &Results,
    roles: u32,
    first: impl FnOnce() -> Result<u64, Error>,
    second: impl FnOnce() -> Result<u64, Error>,
) {
    let plays_first = roles & FIRST != 0;
    if plays_first && g.index() == 0 {
        results.set_result(g, 0, first());
    } else if roles & SECOND != 0 && g.index() == u32::from(plays_first) {
        results.set_result(g, 1, second());
    }
}
