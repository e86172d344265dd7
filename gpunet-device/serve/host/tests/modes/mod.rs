//! The two ways in which blocks of the CPU device wait: they sleep and are woken, or they poll as
//! those of a GPU do.
#![allow(dead_code, reason = "each suite uses a part")]

use gpunet_proxy::device::abi::hand_off::{self, HandOff, Plan};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Runs a test in both ways (it is told whether blocks poll), with pauses in the middle of rings
/// and of looks at them. The way is the whole process's, so tests run one after another.
pub fn in_both_ways(test: impl Fn(bool)) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for polls in [false, true] {
        hand_off::start(Plan {
            longest: Duration::from_millis(2),
            only: vec![HandOff::Published, HandOff::Observed, HandOff::Parking, HandOff::Waking],
            polls,
            ..Plan::new(7)
        });
        test(polls);
        hand_off::stop();
    }
}
