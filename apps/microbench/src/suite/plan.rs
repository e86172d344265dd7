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
    /// How many seconds it may take without `--full`. What the ones before it have left is added.
    /// `None`: it runs with `--full`, or if `--only` names it.
    budget: Option<u64>,
    /// How many seconds it may take with `--full`.
    full: u64,
}

/// How long a measurement may take that has no budget, if `--only` names it without `--full`.
const NAMED: u64 = 300;

impl Planned {
    /// Returns how long it may take.
    pub fn limit(&self, effort: Effort) -> Duration {
        let budget = self.budget.unwrap_or(NAMED);
        Duration::from_secs(effort.of(budget, budget, self.full))
    }

    /// Returns whether it runs without being named.
    pub fn is_usual(&self, effort: Effort) -> bool {
        self.budget.is_some() || effort == Effort::Full
    }
}

/// A measurement of a report of every machine.
const fn planned(
    name: &'static str,
    args: &'static [&'static str],
    needs: &'static [Need],
    budget: u64,
) -> Planned {
    Planned { name, args, lines: None, needs, budget: Some(budget), full: FULL }
}

/// One that takes longer than its figures are worth to most readers.
const fn only_full(name: &'static str, args: &'static [&'static str], needs: &'static [Need]) -> Planned {
    Planned { budget: None, ..planned(name, args, needs, 0) }
}

const fn without_lines(name: &'static str, args: &'static [&'static str], needs: &'static [Need]) -> Planned {
    Planned { lines: Some("off"), ..only_full(name, args, needs) }
}

/// What a measurement may take with `--full`.
const FULL: u64 = 3600;

const NOTHING: &[Need] = &[];
const GPU: &[Need] = &[Need::Gpus(1)];
const TWO_GPUS: &[Need] = &[Need::Gpus(2)];
const RDMA: &[Need] = &[Need::Address];
const KV: &[Need] = &[Need::Beside("gpunet-kv")];
const HTTP: &[Need] = &[Need::Beside("gpunet-hello-http")];

/// All measurements, in the order in which they run: what the front page cites comes first.
pub const PLAN: [Planned; 36] = [
    planned("references", &["references"], TWO_GPUS, 110),
    planned("latency", &["latency"], NOTHING, 25),
    planned("clients", &["clients"], &[Need::Beside("gpunet-echo")], 60),
    planned("kv", &["servers", "kv"], KV, 25),
    planned("http", &["servers", "http"], HTTP, 12),
    planned("triton", &["servers", "triton"], GPU, 40),
    planned("tensors", &["tensors"], NOTHING, 12),
    planned("tensors-between-gpus", &["tensors", "--other", OTHER_GPU], TWO_GPUS, 12),
    planned("bandwidth", &["bandwidth"], NOTHING, 25),
    planned("symmetric", &["symmetric"], NOTHING, 20),
    planned("stream", &["stream", "ping-pong", "enqueueing", "triggers"], NOTHING, 10),
    planned("stream-between-gpus", &["stream", "ping-pong", "--other", OTHER_GPU], TWO_GPUS, 8),
    planned("idle", &["idle"], NOTHING, 28),
    planned("scale", &["scale"], NOTHING, 15),
    planned("rate", &["rate"], NOTHING, 6),
    planned("rate-between-gpus", &["rate", "--other", OTHER_GPU, "--transport", "peer"], TWO_GPUS, 6),
    planned(
        "latency-of-processes",
        &["latency", "--other", "cpu", "--transport", "peer", "--processes"],
        &[Need::Beside("gpunetd")],
        10,
    ),
    planned(
        "latency-of-processes-on-gpus",
        &["latency", "--other", OTHER_GPU, "--transport", "peer", "--processes"],
        &[Need::Gpus(2), Need::Beside("gpunetd")],
        10,
    ),
    planned("handoff", &["handoff"], NOTHING, 4),
    planned("connect", &["connect"], NOTHING, 6),
    planned("attach", &["attach"], &[Need::Daemon], 3),
    planned("calls", &["calls"], NOTHING, 8),
    planned("records", &["records"], NOTHING, 18),
    without_lines("latency-without-lines", &["latency", "--transport", "peer"], GPU),
    without_lines(
        "rate-between-gpus-without-lines",
        &["rate", "--other", OTHER_GPU, "--transport", "peer"],
        TWO_GPUS,
    ),
    only_full("stream-waiting", &["stream", "waiting", "messages"], NOTHING),
    only_full("staged", &["staged"], NOTHING),
    only_full("rhythm", &["rhythm"], NOTHING),
    only_full("rings", &["rings"], NOTHING),
    only_full("incast", &["incast"], NOTHING),
    only_full("watch", &["watch"], NOTHING),
    only_full("copy", &["copy"], NOTHING),
    only_full("check", &["check"], NOTHING),
    only_full("faults", &["faults"], NOTHING),
    only_full("latency-rc", &["latency", "--transport", "rc", "--address", ADDRESS], RDMA),
    only_full("bandwidth-rc", &["bandwidth", "--transport", "rc", "--address", ADDRESS], RDMA),
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

    /// Two GPUs have all that is measured without `--full`: what is skipped elsewhere takes no
    /// time.
    #[test]
    fn a_report_fits_into_eight_minutes() {
        let budgets: u64 = PLAN.iter().filter_map(|one| one.budget).sum();
        assert!(budgets < 480, "{budgets} s");
        for effort in [Effort::Quick, Effort::Usual] {
            let usual = PLAN.iter().filter(|one| one.is_usual(effort));
            assert_eq!(usual.map(|one| one.limit(effort).as_secs()).sum::<u64>(), budgets);
        }
        assert!(PLAN.iter().all(|one| one.is_usual(Effort::Full)));
    }

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
            assert!(one.budget != Some(0) && one.budget <= Some(one.full), "{}", one.name);
            parsed.push(one.args[0]);
        }
        let others = ["all", "compare", "help", "render", "report"];
        for command in Args::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert!(parsed.contains(&name) != others.contains(&name), "{name} is in the list or another one");
        }
    }
}
