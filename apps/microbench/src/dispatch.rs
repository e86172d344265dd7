//! From the command line to the measurements.

use crate::args::What;
use crate::measure::*;
use crate::outcome::Outcome;

/// Runs one measurement, or all; returns false if a check failed.
pub fn run(run: &mut Run<'_>, what: &What) -> Outcome<bool> {
    match what {
        What::Check(args) => return check(run, args),
        What::Faults => return faults(run),
        What::Handoff => handoff(run)?,
        What::Latency(args) => latency(run, args)?,
        What::Bandwidth(args) => bandwidth(run, args)?,
        What::Rate(args) => rate(run, args)?,
        What::Connect => connect(run)?,
        What::Clients(args) => clients(run, args)?,
        What::Servers(args) => servers(run, args)?,
        What::References => references(run)?,
        What::Scale => scale(run)?,
        What::Watch => watch(run)?,
        What::Idle => idle(run)?,
        What::Rhythm => rhythm(run)?,
        What::Rings => rings(run)?,
        What::Incast => incast(run)?,
        What::Copy => copy(run)?,
        What::Stream(args) => return stream(run, args),
        What::Staged(args) => staged(run, args)?,
        What::Calls => calls(run)?,
        What::Records => records(run)?,
        What::Symmetric(args) => symmetric(run, args)?,
        What::Tensors(args) => tensors(run, args)?,
        What::Attach => attach(run)?,
        What::All => all(run)?,
        What::Report(_)
        | What::Render(_)
        | What::Compare(_)
        | What::End(_)
        | What::Attend(_)
        | What::PlainServer(_)
        | What::ReceiveTensors(_) => {}
    }
    Ok(true)
}

/// Runs everything but attach, calls, check, clients, faults, rate, records, references, rhythm,
/// rings, servers, staged, stream, symmetric, tensors and watch.
fn all(run: &mut Run<'_>) -> Outcome<()> {
    let parts = [
        ("handoff", What::Handoff),
        ("latency", What::Latency(LatencyArgs::default())),
        ("bandwidth", What::Bandwidth(BandwidthArgs::default())),
        ("copy", What::Copy),
        ("connect", What::Connect),
        ("incast", What::Incast),
        ("idle", What::Idle),
        ("scale", What::Scale),
    ];
    let mut failed = Failed::default();
    for (name, what) in parts {
        failed.attempt(run, name, |run| self::run(run, &what).map(drop));
    }
    failed.into_outcome()
}
