//! `gpunet-kv` as its users run it: the built program on the CPU device, with clients of this suite
//! and foreign ones.

mod client;
mod clients;
mod commands;
mod compare;
mod consistency;
mod foreign;
mod hostile;
mod program;
mod raw;
mod session;
mod vectors;

#[path = "../../../common/tests/support/process.rs"]
mod process;

/// Says loudly that something had no peer to run with: not by `eprintln!`, because the test harness
/// keeps what a passing test prints.
fn not_run(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "NOT RUN: {why}");
}
