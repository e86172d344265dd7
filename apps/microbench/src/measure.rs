//! The measurements, one a file. Each takes down its floor and its peer first.

mod attach;
mod bandwidth;
mod check;
mod connect;
mod copy;
mod crowd;
mod far_check;
mod handoff;
mod idle;
mod incast;
mod latency;
mod scale;

pub use attach::attach;
pub use bandwidth::{BandwidthArgs, bandwidth};
pub use check::{CheckArgs, check};
pub use connect::connect;
pub use copy::copy;
pub use handoff::handoff;
pub use idle::idle;
pub use incast::incast;
pub use latency::{LatencyArgs, latency};
pub use scale::scale;

use crate::args::{Effort, What};
use crate::bench::{Bench, Outcome};
use crate::report::Recorder;
use gpunet_app::proxy::ProxyArgs;

/// What every measurement is given.
pub struct Run<'a> {
    pub recorder: &'a mut Recorder,
    pub effort: Effort,
    /// `--device`.
    pub device: &'a str,
    /// `--daemon`.
    pub proxy: &'a ProxyArgs,
}

impl Run<'_> {
    /// The device, attached to the proxy that the command line names.
    pub fn open(&self) -> Outcome<Bench> {
        Bench::open(self.proxy, self.device)
    }
}

/// Does one measurement, or all; false if a check failed.
pub fn run(run: &mut Run<'_>, what: &What) -> Outcome<bool> {
    match what {
        What::Check(args) => return check(run, args),
        What::Handoff => handoff(run)?,
        What::Latency(args) => latency(run, args)?,
        What::Bandwidth(args) => bandwidth(run, args)?,
        What::Connect => connect(run)?,
        What::Scale => scale(run)?,
        What::Idle => idle(run)?,
        What::Incast => incast(run)?,
        What::Copy => copy(run)?,
        What::Attach => attach(run)?,
        What::All => all(run)?,
        What::Render { .. } | What::End(_) => {}
    }
    Ok(true)
}

/// Everything but check and attach.
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

/// The parts of a measurement that failed.
#[derive(Default)]
pub struct Failed(Vec<String>);

impl Failed {
    /// Does one part. Its failure is said, and keeps nothing else from being measured.
    pub fn attempt(&mut self, run: &mut Run<'_>, name: &str, part: impl FnOnce(&mut Run<'_>) -> Outcome<()>) {
        if let Err(error) = part(run) {
            run.recorder.note(format!("{name} FAILED: {error}"));
            self.0.push(name.to_owned());
        }
    }

    /// An error, if there were any.
    pub fn into_outcome(self) -> Outcome<()> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("failed: {}", self.0.join(", ")).into()) }
    }
}

/// What a table of one device says of it.
pub fn settings(bench: &Bench, threads: u32) -> Vec<(&'static str, String)> {
    let blocks = if bench.is_gpu() {
        format!("{threads} threads a block")
    } else {
        "CPU blocks of one thread".to_owned()
    };
    vec![("device", bench.title()), ("blocks", blocks)]
}
