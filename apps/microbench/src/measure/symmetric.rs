//! Symmetric memory: messages with a signal, puts, barriers and collectives of teams.
//!
//! | file | holds |
//! |---|---|
//! | `put`, `put_signal` | puts; ping-pong by messages with a signal |
//! | `barrier`, `collectives` | operations of all members |
//! | `plain` | the same by threads of a plain program |

mod barrier;
mod collectives;
mod plain;
mod put;
mod put_signal;

use super::{Failed, Run};
use crate::bench::{self, Members, device_name};
use crate::outcome::Outcome;
use crate::report::counted;
use clap::{Args, ValueEnum};
use gpu_usermap::cuda::Cuda;

/// What `symmetric` takes.
#[derive(Args, Clone, Debug)]
pub struct SymmetricArgs {
    /// Measure these parts only.
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,
    /// Devices of the members after the first: cpu or cuda:N, several with commas. Members take
    /// --device and these in turn. Without it: all GPUs, or the CPU.
    #[arg(long, value_delimiter = ',', value_parser = device_name)]
    other: Vec<String>,
    /// Numbers of members of barriers and collectives, instead of the usual ones.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=64))]
    members: Vec<u32>,
    /// Numbers of blocks that put at the same time, instead of the usual ones.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    blocks: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Ping-pong by put_signal.
    PutSignal,
    /// Puts, by the number of blocks and by their size.
    Put,
    /// Barriers.
    Barrier,
    /// all_gather, by the size of a source.
    AllGather,
    /// reduce, by its size, in both of its ways.
    Reduce,
}

/// Measures all parts that the command line selects.
pub fn symmetric(run: &mut Run<'_>, args: &SymmetricArgs) -> Outcome<()> {
    let devices = devices(run, args)?;
    let mut failed = Failed::default();
    for &part in Part::value_variants() {
        if !args.parts.is_empty() && !args.parts.contains(&part) {
            continue;
        }
        let name = format!("{part:?}");
        failed.attempt(run, &name, |run| match part {
            Part::PutSignal => put_signal::measure(run, &devices),
            Part::Put => put::measure(run, &devices, &args.blocks),
            Part::Barrier => barrier::measure(run, &devices, &args.counts(&[2, 3, 4])),
            Part::AllGather => each(run, &devices, &args.counts(&[2, 4]), collectives::all_gather),
            Part::Reduce => each(run, &devices, &args.counts(&[2, 4]), collectives::reduce),
        });
    }
    failed.into_outcome()
}

impl SymmetricArgs {
    fn counts(&self, usual: &[u32]) -> Vec<u32> {
        if self.members.is_empty() { usual.to_vec() } else { self.members.clone() }
    }
}

/// Returns the devices that members take in turn.
fn devices(run: &Run<'_>, args: &SymmetricArgs) -> Outcome<Vec<String>> {
    let mut devices = vec![run.device.to_owned()];
    if args.other.is_empty() && run.device != "cpu" {
        let gpus = Cuda::load().ok().and_then(|cuda| cuda.device_count().ok()).unwrap_or(0);
        devices.extend((0..gpus).map(|gpu| format!("cuda:{gpu}")).filter(|name| name != run.device));
    }
    for other in &args.other {
        devices.push(bench::resolve(run.proxy, other)?);
    }
    Ok(devices)
}

/// Makes a team of `members` members.
fn team(run: &Run<'_>, devices: &[String], members: u32) -> Outcome<Members> {
    let devices: Vec<_> = devices.iter().cycle().take(members as usize).cloned().collect();
    Members::join(&run.proxy()?, &devices)
}

/// Measures with each number of members.
fn each(
    run: &mut Run<'_>,
    devices: &[String],
    counts: &[u32],
    mut measure: impl FnMut(&mut Run<'_>, &Members) -> Outcome<()>,
) -> Outcome<()> {
    counts.iter().try_for_each(|&members| {
        let members = team(run, devices, members)?;
        measure(run, &members)
    })
}

/// Returns the settings that every table shows.
fn settings(members: &Members, threads: u32) -> Vec<(&'static str, String)> {
    let blocks = match (members.are_gpus(), members.are_cpus()) {
        (true, _) => format!("{} a block", counted(threads, "thread")),
        (_, true) => "CPU blocks of one thread".to_owned(),
        _ => format!("{} a block, on the CPU one", counted(threads, "thread")),
    };
    vec![("members", format!("{}: {}", members.size(), members.title())), ("blocks", blocks)]
}
