//! A block that sends at a rhythm: how soon its messages are seen, and the processor time of the
//! proxy.

use super::idle::{REFERENCE, asks, plain_asks};
use super::{Run, settings};
use crate::outcome::Outcome;
use crate::process::Cost;
use crate::report::{Axis, Role, Row};
use crate::sockets::are_cores_few;

/// Milliseconds between two messages.
const GAPS: [u64; 4] = [5, 10, 20, 50];
/// Messages from which the proxy learns the rhythm.
const FIRST: u64 = 10;
/// Threads of a block, on a GPU.
const THREADS: u32 = 128;

/// Measures the round trips of messages that a block sends at a rhythm to a plain program that
/// answers immediately.
pub fn rhythm(run: &mut Run<'_>) -> Outcome<()> {
    let bench = run.open()?;
    let rounds = run.effort.of(20, 500, 2000);
    // The block, the echo and the data thread run at the same time.
    let spin = !are_cores_few();
    let mut setting = settings(&bench, THREADS);
    setting.push((
        "messages",
        format!("64 B, {rounds} after the first {FIRST}, over tcp; the plain program spins"),
    ));
    let title = format!("{}, a block that speaks at a rhythm", bench.title());
    run.recorder.table("rhythm", title, Axis::TimeByInterval, setting, 3 * GAPS.len())?;
    for gap in GAPS {
        let samples = plain_asks(gap, rounds, spin)?;
        let name = format!("every {gap} ms, round trip, {REFERENCE}");
        run.recorder.row(Row::all_times(Role::Reference, name, &samples).at(REFERENCE, gap));
        let cost = Cost::begin()?;
        let samples = asks(&bench, gap, rounds + FIRST, spin)?;
        let spent = cost.end()?;
        let name = format!("every {gap} ms, round trip");
        let row = Row::all_times(Role::Gpunet, name, &samples[FIRST as usize..]);
        run.recorder.row(row.at("block", gap));
        let name = format!("every {gap} ms, the proxy's threads");
        run.recorder.row(Row::number(Role::Gpunet, name, spent.share(), "% of a core"));
    }
    if run.proxy.names_a_daemon() {
        run.recorder.note("processor time is that of this process: run it without --daemon");
    }
    Ok(())
}
