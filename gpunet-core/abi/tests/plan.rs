//! What a plan of pauses does to threads at hand-offs. A process of its own: a plan, and what it
//! counts, are the whole process's.

#![cfg(all(feature = "pauses", not(loom)))]

use gpunet_abi::hand_off::{self, HandOff, Plan};
use std::time::Duration;

#[test]
fn a_plan_pauses_some_and_stops_those_that_may_die() {
    let plan = Plan {
        longest: Duration::from_micros(1),
        deaths: vec![("mortal", 1_000_000)],
        deadly: vec![HandOff::SlotTaken],
        ..Plan::new(7)
    };
    hand_off::start(plan);
    for _ in 0..1000 {
        hand_off::at(HandOff::Claimed);
    }
    hand_off::hold(|| hand_off::at(HandOff::Claimed));
    let dies = || {
        hand_off::at(HandOff::CellRead);
        hand_off::at(HandOff::SlotTaken);
    };
    let mortal = std::thread::Builder::new().name("mortal-0".into()).spawn(dies).unwrap();
    while hand_off::counts()[HandOff::SlotTaken as usize].died == 0 {
        std::thread::yield_now();
    }
    assert!(!mortal.is_finished());
    let counts = hand_off::stop();
    let claimed = counts[HandOff::Claimed as usize];
    assert_eq!((claimed.passed, claimed.died), (1000, 0));
    assert!((20..200).contains(&claimed.paused), "{claimed:?}");
    hand_off::at(HandOff::Claimed);
    assert_eq!(hand_off::stop()[HandOff::Claimed as usize].passed, 1000);
}
