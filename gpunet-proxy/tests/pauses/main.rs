//! Threads that pause, yield or stop for good at the moments when one agent hands something to
//! another.
//!
//! `cargo test --test pauses` plays the scenarios in turn, each with a seed of its own, for
//! `GPUNET_PAUSES_SECONDS` (10). `GPUNET_PAUSES_SEED` begins with that seed; `GPUNET_PAUSES_ONLY`
//! names one scenario. A failure names scenario and seed. The other suites run under pauses, too,
//! when `GPUNET_PAUSES_SEED` is set.

#[path = "../support/mod.rs"]
mod support;

mod accepts;
mod deaths;
mod endings;
mod groups;
mod launches;
mod lines;
mod proxies;
mod servers;
mod silence;
mod slots;
mod space;
mod streams;
mod stuck;
mod threads;

use gpunet_device::abi::hand_off::{Counts, Plan, start, stop};
use std::time::{Duration, Instant};
use support::rng::Rng;

/// A scenario: its name, what may happen to its threads, and what they do.
struct Scenario {
    name: &'static str,
    plan: fn(Plan) -> Plan,
    play: fn(Rng),
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "slots", plan: either, play: slots::play },
    Scenario { name: "launches", plan: either, play: launches::play },
    Scenario { name: "accepts", plan: either, play: accepts::play },
    Scenario { name: "silence", plan: silence::plan, play: silence::play },
    Scenario { name: "streams", plan: either, play: streams::play },
    Scenario { name: "lines", plan: either, play: lines::play },
    Scenario { name: "threads", plan: |plan| plan, play: threads::play },
    Scenario { name: "watched threads", plan: threads::polled, play: threads::play },
    Scenario { name: "servers", plan: servers::plan, play: servers::play },
    Scenario { name: "groups", plan: either, play: groups::play },
    Scenario { name: "space", plan: either, play: space::play },
    Scenario { name: "endings", plan: endings::plan, play: endings::play },
    Scenario { name: "proxies", plan: |plan| plan, play: proxies::play },
    Scenario { name: "deaths", plan: deaths::plan, play: deaths::play },
    Scenario { name: "stuck", plan: stuck::plan, play: stuck::play },
];

/// By one seed blocks of the CPU device sleep and wake each other, by the next one they poll as a
/// GPU's do.
fn either(plan: Plan) -> Plan {
    Plan { polls: plan.seed % 2 == 1, ..plan }
}

/// Rounds at most, where the time is over and some hand-off was not reached.
const ROUNDS: u64 = 6;

/// Plays a scenario by a seed; returns how often threads were at each hand-off.
fn play(scenario: &'static Scenario, seed: u64) -> Vec<Counts> {
    println!("pauses: {} by seed {seed}", scenario.name);
    support::bounded(move || {
        // Here, so that no plan by the environment takes its place.
        start((scenario.plan)(Plan::new(seed)));
        (scenario.play)(Rng::new(seed));
    });
    stop().to_vec()
}

#[test]
fn nothing_is_lost_mixed_up_or_stuck_whoever_pauses() {
    let setting = |name: &str| std::env::var(name).ok();
    let seconds = setting("GPUNET_PAUSES_SECONDS").and_then(|text| text.parse().ok()).unwrap_or(10);
    let now = || std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let first: u64 = setting("GPUNET_PAUSES_SEED").and_then(|text| text.parse().ok()).unwrap_or_else(now);
    let only = setting("GPUNET_PAUSES_ONLY");
    let chosen =
        || SCENARIOS.iter().filter(|scenario| only.as_ref().is_none_or(|only| only == scenario.name));
    assert!(chosen().next().is_some(), "GPUNET_PAUSES_ONLY names no scenario");
    let (began, limit) = (Instant::now(), Duration::from_secs(seconds));
    let mut total = Counts::default();
    let mut rounds = 0;
    let mut reached = vec![false; gpunet_device::abi::hand_off::HAND_OFFS];
    // On a busy machine a round may miss a hand-off.
    let misses = |reached: &[bool]| only.is_none() && reached.contains(&false);
    while rounds == 0 || began.elapsed() < limit || (misses(&reached) && rounds < ROUNDS) {
        for scenario in chosen() {
            for (at, counts) in play(scenario, first + rounds).into_iter().enumerate() {
                reached[at] |= counts.passed > 0;
                total.passed += counts.passed;
                total.paused += counts.paused;
                total.died += counts.died;
            }
        }
        rounds += 1;
    }
    let Counts { passed, paused, died } = total;
    println!(
        "{rounds} rounds from seed {first}: {passed} hand-offs, {paused} pauses, {died} threads stopped"
    );
    assert!(paused > 0, "nothing paused: this shows nothing");
    assert!(!misses(&reached), "some hand-off is never reached: {reached:?}");
}
