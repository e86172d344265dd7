//! What the test suites share: a world of sockets, teams of lanes, memory to move, and a watchdog.
#![allow(dead_code, reason = "every suite uses a part of it")]

pub mod asleep;
pub mod cgroup;
pub mod client;
pub mod daemon;
pub mod memory;
pub mod pair;
pub mod place;
pub mod process;
pub mod raw;
pub mod rng;
pub mod team;
pub mod world;

#[allow(unused_imports, reason = "every suite uses a part of it")]
pub use memory::{Memory, PollMemory, pattern};
#[allow(unused_imports, reason = "as above")]
pub use process::Killed;
#[allow(unused_imports, reason = "as above")]
pub use team::{Team, team};
#[allow(unused_imports, reason = "as above")]
pub use world::{Case, World, small};

use gpunet_device::group::Solo;
use std::io::Write;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// No test takes nearly so long, unless something hangs.
pub const HANG: Duration = Duration::from_secs(60);

/// Returns the seed by which threads pause at hand-offs, if the environment says one.
pub fn pauses_seed() -> Option<u64> {
    std::env::var("GPUNET_PAUSES_SEED").ok().and_then(|seed| seed.parse().ok())
}

/// Makes the threads of this process pause at hand-offs, if the environment says by which seed.
fn pause_by_environment() {
    use gpunet_device::abi::hand_off::{Plan, start};
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if let Some(seed) = pauses_seed() {
            let polls = std::env::var_os("GPUNET_PAUSES_POLL").is_some_and(|value| value == "1");
            eprintln!("threads pause by the seed {seed}; blocks poll: {polls}");
            start(Plan { polls, ..Plan::new(seed) });
        }
    });
}

/// Runs a test's body on a thread of its own and fails when it hangs.
pub fn bounded(body: impl FnOnce() + Send + 'static) {
    pause_by_environment();
    let (done, ended) = mpsc::channel();
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        body();
        let _ = done.send(());
    });
    let thread = thread.expect("a thread for the test");
    match ended.recv_timeout(HANG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs: not done after {HANG:?}"),
        _ => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Waits until `condition` holds.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < HANG / 2, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A value with a change.
pub fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

/// A group of one lane.
pub const SOLO: Solo = Solo::new(0, 1);

/// Says loudly that a test had nothing to run on.
pub fn not_run(test: &str, why: &str) {
    // Not by `eprintln!`: the test harness keeps what a passing test prints to itself.
    let _ = writeln!(std::io::stderr(), "NOT RUN: {test}: {why}");
}

/// Copies a program, to be run. Another process writes the copy: one that another thread forks
/// meanwhile would have this one's descriptor open to write for a moment, and nobody could run the
/// program.
pub fn copy_program(from: &std::path::Path, to: &std::path::Path) {
    let done = std::process::Command::new("cp").arg(from).arg(to).status().expect("cp runs");
    assert!(done.success(), "no copy of {from:?}");
}
