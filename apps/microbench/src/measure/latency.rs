//! Ping-pong, one way.

use super::{Run, each_pair};
use crate::bench::Bench;
use crate::effort::Effort;
use crate::floor;
use crate::foreign;
use crate::outcome::Outcome;
use crate::pair::{
    BlockShape, Cooperation, EndpointKind, Pair, PairArgs, Transport, Work, record_placement, waits,
};
use crate::report::{Axis, Role, Row};
use clap::Args;
use gpunet_app::cli;
use gpunet_device::abi::line;
use std::net::IpAddr;

/// What `latency` takes.
#[derive(Args, Clone, Debug)]
pub struct LatencyArgs {
    #[command(flatten)]
    pub pair: PairArgs,
    /// Threads of a block, on a GPU. Messages of more than 8 KiB get 512.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// The threads of a block that use the stream. Without it: the block; for small messages on a
    /// GPU also a warp and a thread.
    #[arg(long)]
    group: Option<Cooperation>,
    /// Only these sizes, in bytes, with K or M if you like; several with commas.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = |text: &str| cli::size(text, 1..=64 << 20))]
    sizes: Vec<u64>,
}

impl Default for LatencyArgs {
    fn default() -> Self {
        Self { pair: PairArgs::default(), threads: 128, sizes: Vec::new(), group: None }
    }
}

impl LatencyArgs {
    fn sizes(&self, effort: Effort) -> Vec<u64> {
        if !self.sizes.is_empty() {
            return self.sizes.clone();
        }
        match effort {
            Effort::Quick => vec![64, 1024, 65536, 1 << 20],
            Effort::Usual => vec![1, 8, 64, 256, 1024, 8192, 65536, 1 << 20, 4 << 20],
            Effort::Full => (0..=22).map(|log2| 1 << log2).collect(),
        }
    }

    fn shape(&self, size: u64) -> BlockShape {
        let threads = if size > 8192 { self.threads.max(512) } else { self.threads };
        BlockShape { threads, group: self.group.unwrap_or_default() }
    }
}

/// Rounds of a run that only finds out where the rings lie.
const LOOKED_AT: u64 = 200;

fn rounds(size: u64, effort: Effort) -> u64 {
    let most = effort.of(2000, 6000, 20_000);
    match size {
        0..=16_384 => most,
        16_385..=262_144 => most / 4,
        _ => most / 30,
    }
}

/// Measures ping-pong over all pairs and transports that the command line selects.
pub fn latency(run: &mut Run<'_>, args: &LatencyArgs) -> Outcome<()> {
    each_pair(run, &args.pair, "latency", |run, devices, transport| one(run, args, devices, transport))
}

fn one(run: &mut Run<'_>, args: &LatencyArgs, devices: &[String; 2], transport: Transport) -> Outcome<()> {
    let sizes = args.sizes(run.effort);
    let address = args.pair.address;
    // Floors first, in one process, and not while other processes' kernels run.
    let mut pair = Pair::here(run.proxy()?, devices, transport, address)?;
    let apart = args.pair.processes;
    let title = pair.title(apart);
    let setting = pair.settings(args.shape(64), apart);
    let title = format!("{title}, {}, one way (half of a round trip)", transport.name());
    run.recorder.table("latency", title, Axis::TimeBySize, setting, 3 * sizes.len())?;
    match transport {
        Transport::Peer => {
            floors(run, args, &pair, &sizes)?;
            if !pair.is_gpu() {
                plain_pairs(run, |spin| EndpointKind::Unix { spin }, address, &sizes)?;
            } else if !pair.are_gpus() {
                foreign::between_gpu_and_cpu(run.recorder, foreign::Of::Latency);
            } else if !pair.are_one() || apart {
                foreign::between_gpus(run.recorder, foreign::Of::Latency);
            }
        }
        Transport::Tcp => {
            plain_pairs(run, |spin| EndpointKind::Tcp { spin }, address, &sizes)?;
            tcp_floors(run, args, &pair, &sizes)?;
        }
        Transport::Rc => foreign::rdma_latency(run.recorder, address, &sizes),
    }
    if apart {
        drop(pair);
        pair = Pair::apart(devices, transport, address, run.proxy)?;
    }
    if let Some(&size) = sizes.first() {
        let placement = pair.find_placement(&Work::Echo { size, rounds: LOOKED_AT }, args.shape(size))?;
        record_placement(run.recorder, placement);
    }
    for &size in &sizes {
        let shape = args.shape(size);
        let [_, words] = pair.play(&Work::Echo { size, rounds: rounds(size, run.effort) }, shape)?;
        let series = format!("gpunet, {}", transport.name());
        let row = Row::one_way(Role::Gpunet, format!("{size} B{}", pair.shape_suffix(shape)), &words[2..]);
        run.recorder.row(row.at(series, size));
    }
    if pair.is_gpu() && args.group.is_none() && transport == Transport::Peer {
        groups(run, args, &mut pair)?;
    }
    drop(pair);
    if transport == Transport::Tcp && !apart {
        plain_clients(run, args, &devices[1], &sizes)?;
    }
    Ok(())
}

fn floors(run: &mut Run<'_>, args: &LatencyArgs, pair: &Pair, sizes: &[u64]) -> Outcome<()> {
    let Some(ends) = pair.both() else { return Ok(()) };
    run.recorder.row(floor::ping_pong(ends, args.threads, 0, rounds(0, run.effort))?);
    for &size in sizes {
        let row = floor::ping_pong(ends, args.shape(size).threads, size, rounds(size, run.effort))?;
        run.recorder.row(row.at("floor: data and flag", size));
        if pair.is_gpu() && size <= line::MAX as u64 {
            let row =
                floor::ping_pong_by_units(ends, args.shape(size).threads, size, rounds(size, run.effort))?;
            run.recorder.row(row.at("floor: data with flags", size));
        }
    }
    run.recorder.note(
        "the floor moves a message whole (a copy, a flag, a copy out); sockets overlap the two copies of large ones and \
         may take less",
    );
    Ok(())
}

/// Measures two plain programs, and one of them with a hand-off to the device behind it.
fn tcp_floors(run: &mut Run<'_>, args: &LatencyArgs, pair: &Pair, sizes: &[u64]) -> Outcome<()> {
    let Some([device, _]) = pair.both() else { return Ok(()) };
    let cpu = Bench::cpu()?;
    for &size in sizes {
        let plain = run.recorder.times("plain TCP, spinning", size);
        let row = floor::ping_pong([&cpu, device], args.shape(size).threads, size, rounds(size, run.effort))?;
        let Some(both) = plain.zip(row.as_times()).map(|(plain, hand)| plain.plus(hand)) else { continue };
        let name = format!("{size} B, plain TCP and a hand-off to the device (sum)");
        run.recorder.row(Row::percentiles(Role::Floor, name, both).at("floor: plain TCP + hand-off", size));
    }
    Ok(())
}

/// Measures two plain programs, spinning and blocking.
fn plain_pairs(
    run: &mut Run<'_>,
    kind: fn(bool) -> EndpointKind,
    address: IpAddr,
    sizes: &[u64],
) -> Outcome<()> {
    for spin in [true, false] {
        let mut pair = Pair::plain([kind(spin); 2], address)?;
        let series = format!("{}, {}", kind(spin).name(), waits(spin));
        for &size in sizes {
            let work = Work::Echo { size, rounds: rounds(size, run.effort) };
            let [_, words] = pair.play(&work, BlockShape::ONE)?;
            let row = Row::one_way(Role::Reference, format!("{size} B, two programs, {series}"), &words[2..]);
            run.recorder.row(row.at(&series, size));
        }
    }
    Ok(())
}

/// Measures plain clients of a server block.
fn plain_clients(run: &mut Run<'_>, args: &LatencyArgs, device: &str, sizes: &[u64]) -> Outcome<()> {
    for spin in [true, false] {
        let mut pair =
            Pair::mixed(run.proxy()?, device, EndpointKind::Tcp { spin }, false, args.pair.address)?;
        for &size in sizes {
            let work = Work::Echo { size, rounds: rounds(size, run.effort) };
            let [_, words] = pair.play(&work, args.shape(size))?;
            let name = format!("{size} B, server block, {} client", waits(spin));
            let series = format!("server block, {} client", waits(spin));
            run.recorder.row(Row::one_way(Role::Gpunet, name, &words[2..]).at(series, size));
        }
    }
    Ok(())
}

/// Measures parts of a block, with small messages.
fn groups(run: &mut Run<'_>, args: &LatencyArgs, pair: &mut Pair) -> Outcome<()> {
    for group in [Cooperation::Warp, Cooperation::Thread] {
        for size in [64, 1024] {
            let shape = BlockShape { threads: args.threads.min(32), group };
            let [_, words] = pair.play(&Work::Echo { size, rounds: rounds(size, run.effort) }, shape)?;
            let name = format!("{size} B{}", pair.shape_suffix(shape));
            let series = format!("gpunet, {}", group.name());
            run.recorder.row(Row::one_way(Role::Gpunet, name, &words[2..]).at(series, size));
        }
    }
    Ok(())
}
