//! Verified streams over many shapes.

use super::tally::{Tally, at_most};
use super::{Run, far_check};
use crate::bench::Bench;
use crate::effort::Effort;
use crate::outcome::Outcome;
use crate::pair::{PairArgs, Ports, Transport};
use crate::report::{Axis, counted};
use clap::Args;
use gpunet_bench_kernel::{GroupKind, Pairs, failed};
use gpunet_device::{Options, SockAddr, Timeout};
use std::net::SocketAddr;

/// What `check` takes.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub pair: PairArgs,
    /// Only blocks of at most this many threads, 1 to 1024.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub widest: u32,
}

/// Checks streams; returns whether every byte arrived intact.
pub fn check(run: &mut Run<'_>, args: &CheckArgs) -> Outcome<bool> {
    if args.pair.other.is_some() || args.pair.processes {
        return far_check::check(run, &args.pair, args.widest);
    }
    one_device(run, args)
}

/// One shape to try.
struct StreamShape {
    blocks: u32,
    threads: u32,
    group: GroupKind,
    diverge: bool,
    transport: Transport,
    ring: u64,
    message: u64,
    bytes: u64,
}

/// Runs all shapes on one device.
fn one_device(run: &mut Run<'_>, args: &CheckArgs) -> Outcome<bool> {
    let bench = run.open()?;
    let transports = args.pair.transports();
    let shapes = at_most(shapes(&bench, &transports, run.effort), args.widest, |shape| shape.threads)?;
    let mut ports = Ports::of(args.pair.address);
    let names: Vec<_> = transports.iter().map(|transport| transport.name()).collect();
    let setting = vec![("device", bench.title()), ("transports", names.join(", "))];
    let title = format!("{}, verified streams", bench.title());
    run.recorder.table("check", title, Axis::None, setting, shapes.len())?;
    let mut tally = Tally::default();
    for shape in shapes {
        let name = format!(
            "{:>3} blocks x {:>12}, {:?}, {}, ring {} KiB, messages to {} B{}",
            shape.blocks,
            counted(shape.threads, "thread"),
            shape.group,
            shape.transport.name(),
            shape.ring / 1024,
            shape.message,
            if shape.diverge { ", divergent" } else { "" }
        );
        let verdict = one(&bench, &shape, ports.take(shape.blocks as u16 / 2));
        tally.take(run.recorder, &name, verdict);
    }
    Ok(tally.end(run.recorder))
}

fn shapes(bench: &Bench, transports: &[Transport], effort: Effort) -> Vec<StreamShape> {
    let gpu = bench.is_gpu();
    let most = if gpu { bench.processors() / 2 * 2 } else { 8 };
    let mut shapes = Vec::new();
    let mut add = |blocks, threads, group, diverge, transport, ring, message, bytes| {
        let bytes = effort.of(bytes / 4, bytes, 4 * bytes);
        shapes.push(StreamShape { blocks, threads, group, diverge, transport, ring, message, bytes });
    };
    for &transport in transports {
        let threads: &[u32] = if gpu { &[32, 33, 128, 256, 512, 1024] } else { &[1, 2, 5] };
        for &threads in threads {
            add(2, threads, GroupKind::Block, false, transport, 8192, 9000, 1 << 20);
            add(2, threads, GroupKind::Block, true, transport, 65536, 3000, 1 << 19);
        }
        let wide = if gpu { 64 } else { 5 };
        add(2, wide, GroupKind::Warp, false, transport, 4096, 3000, 1 << 19);
        add(2, wide, GroupKind::Warp, false, transport, 65536, 300, 1 << 18);
        add(2, wide, GroupKind::Warp, true, transport, 4096, 3000, 1 << 18);
        add(2, wide, GroupKind::Thread, false, transport, 4096, 500, 1 << 17);
        for blocks in [8, most] {
            let threads = if gpu { 128 } else { 1 };
            // Most of these have lines.
            add(blocks, threads, GroupKind::Block, false, transport, 256 << 10, 300, 1 << 18);
            add(blocks, threads, GroupKind::Block, false, transport, 65536, 20_000, 1 << 20);
        }
    }
    shapes
}

fn one(bench: &Bench, shape: &StreamShape, addr: SocketAddr) -> Outcome<u64> {
    let per_block = 2 * shape.message as usize;
    let job = bench.job(per_block * shape.blocks as usize, shape.blocks as usize)?;
    let options = Options::DEFAULT
        .with_rings(shape.ring, shape.ring)
        .with_transport(shape.transport.kind())
        .with_timeouts(Timeout::secs(20), Timeout::secs(20));
    let launch = bench.start(shape.blocks, shape.threads, |net| Pairs {
        net,
        addr: SockAddr::from(addr),
        options,
        buffer: job.buffer(),
        bytes: shape.bytes,
        message: shape.message,
        group: shape.group as u32,
        diverge: u32::from(shape.diverge),
        results: job.results(),
    })?;
    let words = bench.finish(launch, &job)?;
    for (block, &word) in words.iter().enumerate() {
        if let Some(errno) = failed(word) {
            return Err(format!("block {block}: {}", gpunet_device::Error::from_errno(errno)).into());
        }
        if word != shape.bytes {
            return Err(format!("block {block}: {word} of {} bytes", shape.bytes).into());
        }
    }
    Ok(words.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_shapes_are_not_all_shapes_right() {
        assert_eq!(at_most(vec![1, 32, 33], 32, |&threads| threads).unwrap(), [1, 32]);
        let error = at_most(vec![1, 2], 0, |&threads| threads).unwrap_err();
        assert_eq!(error.to_string(), "no shape has at most 0 threads");
    }
}
