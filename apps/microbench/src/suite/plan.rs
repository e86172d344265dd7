//! The measurements of a report.

use super::needs::Need;
use crate::effort::Effort;
use clap::builder::PossibleValuesParser;
use std::time::Duration;

/// Stands for the first GPU that is not the device.
pub const OTHER_GPU: &str = "{other GPU}";
/// Stands for `--address`.
pub const ADDRESS: &str = "{address}";

/// One measurement of the list.
pub struct Planned {
    pub name: &'static str,
    /// The subcommand and its options.
    pub args: &'static [&'static str],
    /// `--lines`, if the measurement is about them.
    pub lines: Option<&'static str>,
    pub needs: &'static [Need],
    /// How long it may take, in seconds: quick, usual, full.
    limits: [u64; 3],
}

impl Planned {
    pub fn limit(&self, effort: Effort) -> Duration {
        let [quick, usual, full] = self.limits;
        Duration::from_secs(effort.of(quick, usual, full))
    }
}

const fn planned(
    name: &'static str,
    args: &'static [&'static str],
    needs: &'static [Need],
    limits: [u64; 3],
) -> Planned {
    Planned { name, args, lines: None, needs, limits }
}

const fn without_lines(
    name: &'static str,
    args: &'static [&'static str],
    needs: &'static [Need],
    limits: [u64; 3],
) -> Planned {
    Planned { lines: Some("off"), ..planned(name, args, needs, limits) }
}

/// How long a measurement of few rows, of some, and of many may take.
const SHORT: [u64; 3] = [60, 120, 600];
const USUAL: [u64; 3] = [120, 300, 1200];
const LONG: [u64; 3] = [240, 600, 3600];

const NOTHING: &[Need] = &[];
const GPU: &[Need] = &[Need::Gpus(1)];
const TWO_GPUS: &[Need] = &[Need::Gpus(2)];
const RDMA: &[Need] = &[Need::Address];

/// All measurements, in the order in which they run: what the front page cites comes first.
pub const PLAN: [Planned; 31] = [
    planned("latency", &["latency"], NOTHING, LONG),
    without_lines("latency-without-lines", &["latency", "--transport", "peer"], GPU, LONG),
    planned("bandwidth", &["bandwidth"], NOTHING, LONG),
    planned("handoff", &["handoff"], NOTHING, SHORT),
    planned("connect", &["connect"], NOTHING, SHORT),
    planned("clients", &["clients"], &[Need::Beside("gpunet-echo")], LONG),
    planned("tensors", &["tensors"], NOTHING, LONG),
    planned("tensors-between-gpus", &["tensors", "--other", OTHER_GPU], TWO_GPUS, LONG),
    planned("symmetric", &["symmetric"], NOTHING, LONG),
    planned("stream", &["stream"], NOTHING, LONG),
    planned("stream-between-gpus", &["stream", "ping-pong", "--other", OTHER_GPU], TWO_GPUS, USUAL),
    planned("staged", &["staged"], NOTHING, LONG),
    planned("scale", &["scale"], NOTHING, LONG),
    planned("idle", &["idle"], NOTHING, USUAL),
    planned("rhythm", &["rhythm"], NOTHING, USUAL),
    planned("rings", &["rings"], NOTHING, SHORT),
    planned("incast", &["incast"], NOTHING, SHORT),
    planned("watch", &["watch"], NOTHING, USUAL),
    planned("calls", &["calls"], NOTHING, SHORT),
    planned("copy", &["copy"], NOTHING, SHORT),
    planned("rate", &["rate"], NOTHING, USUAL),
    planned("rate-between-gpus", &["rate", "--other", OTHER_GPU, "--transport", "peer"], TWO_GPUS, USUAL),
    without_lines(
        "rate-between-gpus-without-lines",
        &["rate", "--other", OTHER_GPU, "--transport", "peer"],
        TWO_GPUS,
        USUAL,
    ),
    planned(
        "latency-of-processes",
        &["latency", "--other", "cpu", "--transport", "peer", "--processes"],
        &[Need::Beside("gpunetd")],
        USUAL,
    ),
    planned(
        "latency-of-processes-on-gpus",
        &["latency", "--other", OTHER_GPU, "--transport", "peer", "--processes"],
        &[Need::Gpus(2), Need::Beside("gpunetd")],
        USUAL,
    ),
    planned("attach", &["attach"], &[Need::Daemon], SHORT),
    planned("latency-rc", &["latency", "--transport", "rc", "--address", ADDRESS], RDMA, LONG),
    planned("bandwidth-rc", &["bandwidth", "--transport", "rc", "--address", ADDRESS], RDMA, LONG),
    planned("check", &["check"], NOTHING, LONG),
    planned("check-between-gpus", &["check", "--other", OTHER_GPU], TWO_GPUS, LONG),
    planned("faults", &["faults"], NOTHING, USUAL),
];

/// The names that `--only` takes.
pub fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(PLAN.iter().map(|one| one.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, What};
    use clap::{CommandFactory, Parser};

    /// A measurement that nobody lists is in no document's figures.
    #[test]
    fn every_measurement_is_listed_under_a_name_of_its_own_and_parses() {
        let mut parsed = Vec::new();
        for one in &PLAN {
            let args = one.args.iter().map(|word| match *word {
                OTHER_GPU => "cuda:1",
                ADDRESS => "10.1.0.2",
                word => word,
            });
            let args = Args::try_parse_from(["gpunet-bench"].into_iter().chain(args));
            assert!(args.is_ok_and(|args| !matches!(args.what, What::Report(_))), "{}", one.name);
            assert!(PLAN.iter().filter(|other| other.name == one.name).count() == 1, "{}", one.name);
            assert!(one.limits.is_sorted() && one.limits[0] > 0, "{}", one.name);
            parsed.push(one.args[0]);
        }
        let others = ["all", "compare", "help", "render", "report"];
        for command in Args::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert!(parsed.contains(&name) != others.contains(&name), "{name} is in the list or another one");
        }
    }
}
