//! Processes that talk through a real gpunetd while others of them are killed and stopped, and the
//! daemon too. Every byte is checked; at the end nothing is left.
//!
//! `GPUNET_STORM_SECONDS` says how long (8), `GPUNET_STORM_SEED` repeats what happens when. `teams`
//! is the same for teams of symmetric memory: a member dies in each phase, once or for as long as
//! that.

#[path = "../gpunetd/daemon.rs"]
#[allow(dead_code, reason = "its suite uses all of it")]
mod daemon;
#[path = "../support/mod.rs"]
mod support;

mod foreign;
mod host;
mod kernel;
mod parent;
mod plan;
mod restarts;
mod stalls;
mod storm;
mod teams;
mod watch;
mod worker;

/// Not a test: what the tests start many times.
#[test]
fn worker() {
    if std::env::var_os(worker::DIR).is_some() {
        worker::run();
    }
    if std::env::var_os(teams::member::DAEMON).is_some() {
        teams::member::run();
    }
    if std::env::var_os(stalls::DAEMON).is_some() {
        stalls::call();
    }
}
