//! Large messages between memory of the device and plain programs, in the order of queues.

mod alone;
mod queues;

use super::{Failed, Run};
use crate::floor;
use crate::outcome::Outcome;
use crate::report::{Axis, Role, Row, counted};
use clap::Args;
use gpunet_app::cli::{self, spell};
use gpunet_proxy::abi::options::{MAX_RING_LOG2, MIN_RING_LOG2};
use gpunet_proxy::queue::QueueSettings;
use std::time::Duration;

/// The size of a ring. Half of it holds a sixty-fourth of the longest message, and a queue may take
/// at most 64 pieces of a message.
const RING: u64 = 4 << 20;

/// Bytes of a message.
const ALL: [u64; 4] = [64 << 10, 1 << 20, 16 << 20, 64 << 20];

/// What `staged` takes.
#[derive(Args, Clone, Debug)]
pub struct StagedArgs {
    /// Bytes of a message, with K or M if you like; several with commas. Without it: 64K, 1M, 16M,
    /// 64M; 64K and 1M with --quick.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = |text: &str| cli::size(text, 64..=256 << 20))]
    messages: Vec<u64>,
    /// Numbers of streams, each with a queue and a plain program of its own.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8], value_parser = clap::value_parser!(u32).range(1..=16))]
    streams: Vec<u32>,
    /// Bytes of a ring, a power of two, with K or M if you like.
    #[arg(long, value_name = "BYTES", default_value_t = RING, value_parser = ring)]
    ring: u64,
    /// Bytes that the copy engine copies at a time at most, with K or M if you like. Without it: as
    /// queues have it.
    #[arg(long, value_name = "BYTES", value_parser = |text: &str| cli::size(text, 4096..=64 << 20))]
    fragment: Option<u64>,
    /// Copies of a queue that are under way at a time at most. Without it: as queues have it.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=64))]
    depth: Option<u64>,
}

impl StagedArgs {
    fn settings(&self) -> QueueSettings {
        let default = QueueSettings::default();
        let fragment = self.fragment.map_or(default.fragment, |bytes| bytes as usize);
        QueueSettings { fragment, depth: self.depth.map_or(default.depth, |depth| depth as usize), ..default }
    }
}

fn ring(text: &str) -> Result<u64, String> {
    let bytes = cli::size(text, 1 << MIN_RING_LOG2..=1 << MAX_RING_LOG2)?;
    if bytes.is_power_of_two() { Ok(bytes) } else { Err("expected a power of two".to_owned()) }
}

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// From the device to plain programs.
    Out,
    /// To the device.
    In,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Out => "Queue::send from the device",
            Self::In => "Queue::recv into the device",
        }
    }
}

/// The load: `count` messages of `size` bytes in each of `streams` streams.
#[derive(Clone, Copy, Debug)]
struct Load {
    way: Way,
    streams: usize,
    size: usize,
    count: u64,
    ring: u64,
    settings: QueueSettings,
}

impl Load {
    const fn bytes(&self) -> u64 {
        self.count * self.size as u64 * self.streams as u64
    }

    fn row(&self, role: Role, what: &str, took: Duration) -> Row {
        let (size, streams) = (self.size as u64, counted(self.streams as u64, "stream"));
        Row::rate(role, format!("{}, {streams}, {what}", spell(size)), self.bytes(), took).at(what, size)
    }
}

/// Measures both directions, compared with the copy engine alone and with plain programs that have
/// as many streams.
pub fn staged(run: &mut Run<'_>, args: &StagedArgs) -> Outcome<()> {
    let bench = run.open()?;
    let sizes = match args.messages.as_slice() {
        [] => run.effort.of(&[64 << 10, 1 << 20][..], &ALL, &ALL).to_vec(),
        named => named.to_vec(),
    };
    let settings = args.settings();
    let mut failed = Failed::default();
    let moved: u64 = run.effort.of(32 << 20, 1 << 30, 8 << 30);
    for way in [Way::Out, Way::In] {
        for &streams in &args.streams {
            let title = format!("{}, {}, {}", bench.title(), way.name(), counted(streams, "stream"));
            let setting = vec![
                ("device", bench.title()),
                ("transport", "tcp, each stream to a plain thread of this process".to_owned()),
                ("rings", spell(args.ring)),
                ("fragments", format!("{} of {} at a time", settings.depth, spell(settings.fragment as u64))),
                ("floor", "copies between the device and pinned memory alone".to_owned()),
                ("reference", "as many plain streams between two threads each".to_owned()),
            ];
            run.recorder.table("staged", title, Axis::RateBySize, setting, 3 * sizes.len())?;
            for &size in &sizes {
                let count = (moved / size / u64::from(streams)).max(4);
                let (streams, size, ring) = (streams as usize, size as usize, args.ring);
                let load = Load { way, streams, size, count, ring, settings };
                let name = format!(
                    "{}, {}, {}",
                    way.name(),
                    spell(load.size as u64),
                    counted(load.streams as u64, "stream")
                );
                failed.attempt(run, &name, |run| {
                    run.recorder.row(floor::best(|| alone::copies(&bench, load))?);
                    run.recorder.row(load.row(Role::Reference, "plain TCP", alone::plain(load)?));
                    run.recorder.row(load.row(Role::Gpunet, "gpunet", queues::measure(&bench, load)?));
                    Ok(())
                });
            }
        }
    }
    failed.into_outcome()
}

/// The most bytes that a plain program reads or writes by one call.
const PIECE: usize = 256 << 10;
/// How long a measurement may make no progress.
const LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Bench;
    use gpu_usermap::cuda::fake::Fake;
    use gpunet_proxy::{Config, embed};

    /// Uses the streams of a driver without a GPU, with one and with several pieces per message.
    #[test]
    fn queues_on_streams_move_what_plain_programs_move() {
        let fake = Fake::new();
        let device = fake.cuda().device(0).unwrap();
        let bench = Bench::on(&embed(Config::small()).unwrap(), &device).unwrap();
        for (way, size) in [(Way::Out, 5000), (Way::Out, 100_000), (Way::In, 5000), (Way::In, 100_000)] {
            let load =
                Load { way, streams: 3, size, count: 40, ring: 16 << 10, settings: QueueSettings::default() };
            alone::copies(&bench, load).unwrap();
            queues::measure(&bench, load).unwrap();
        }
    }
}
