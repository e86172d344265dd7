//! Verified streams over many shapes.

use super::{Run, far_check};
use crate::bench::{Bench, Outcome};
use crate::pair::{PairArgs, Ports};
use clap::Args;
use gpunet_bench_kernel::{GroupKind, Pairs, failed};
use gpunet_device::{Options, SockAddr, TransportKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What `check` takes.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub pair: PairArgs,
    /// With --other or --processes: only blocks of at most so many threads.
    #[arg(long, default_value_t = 1024)]
    pub widest: u32,
}

/// Checks; says whether every byte came right.
pub fn check(run: &mut Run<'_>, args: &CheckArgs) -> Outcome<bool> {
    if args.pair.other.is_some() || args.pair.processes {
        return far_check::check(run, args);
    }
    println!("\n== check");
    one_device(&run.open()?)
}

/// One shape to try.
struct Shape {
    blocks: u32,
    threads: u32,
    group: GroupKind,
    diverge: bool,
    transport: TransportKind,
    ring: u64,
    message: u64,
    bytes: u64,
}

/// Runs all shapes on one device.
fn one_device(bench: &Bench) -> Outcome<bool> {
    let mut good = true;
    let mut ports = Ports::of(IpAddr::V4(Ipv4Addr::LOCALHOST));
    for shape in shapes(bench) {
        let name = format!(
            "{:>3} blocks x {:>4} threads, {:?}, {:?}, ring {} KiB, messages to {} B{}",
            shape.blocks,
            shape.threads,
            shape.group,
            shape.transport,
            shape.ring / 1024,
            shape.message,
            if shape.diverge { ", divergent" } else { "" }
        );
        let verdict = one(bench, &shape, ports.take(shape.blocks as u16 / 2));
        good &= verdict.is_ok();
        match verdict {
            Ok(bytes) => println!("ok    {name}: {bytes} bytes verified"),
            Err(error) => println!("WRONG {name}: {error}"),
        }
    }
    println!("{}", if good { "all shapes right" } else { "SOME SHAPES FAILED" });
    Ok(good)
}

fn shapes(bench: &Bench) -> Vec<Shape> {
    let gpu = bench.is_gpu();
    let most = if gpu { bench.processors() / 2 * 2 } else { 8 };
    let mut shapes = Vec::new();
    let mut add = |blocks, threads, group, diverge, transport, ring, message, bytes| {
        shapes.push(Shape { blocks, threads, group, diverge, transport, ring, message, bytes });
    };
    for transport in [TransportKind::Peer, TransportKind::Tcp] {
        let threads: &[u32] = if gpu { &[32, 33, 128, 256, 512, 1024] } else { &[1, 2, 5] };
        for &threads in threads {
            add(2, threads, GroupKind::Block, false, transport, 8192, 9000, 1 << 20);
            add(2, threads, GroupKind::Block, true, transport, 65536, 3000, 1 << 19);
        }
        let wide = if gpu { 64 } else { 5 };
        add(2, wide, GroupKind::Warp, false, transport, 4096, 3000, 1 << 19);
        add(2, wide, GroupKind::Warp, true, transport, 4096, 3000, 1 << 18);
        add(2, wide, GroupKind::Thread, false, transport, 4096, 500, 1 << 17);
        for blocks in [8, most] {
            let threads = if gpu { 128 } else { 1 };
            add(blocks, threads, GroupKind::Block, false, transport, 65536, 20_000, 1 << 20);
        }
    }
    shapes
}

fn one(bench: &Bench, shape: &Shape, addr: SocketAddr) -> Outcome<u64> {
    let per_block = 2 * shape.message as usize;
    let job = bench.job(per_block * shape.blocks as usize, shape.blocks as usize)?;
    let options = Options::DEFAULT
        .with_rings(shape.ring, shape.ring)
        .with_transport(shape.transport)
        .with_timeouts(20_000_000_000, 20_000_000_000);
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
