//! Verified streams between two devices, over many shapes.

use super::Run;
use super::tally::{Tally, at_most};
use crate::effort::Effort;
use crate::outcome::Outcome;
use crate::pair::{BlockShape, Pair, PairArgs, Transport, Work};
use crate::report::{Axis, counted};
use gpunet_bench_kernel::failed;
use gpunet_device::Error;

/// One shape to try.
struct StreamShape {
    pairs: u32,
    threads: u32,
    ring: u64,
    message: u64,
    bytes: u64,
    rounds: u64,
}

/// Checks every pair of devices and every transport that the command line selects.
pub fn check(run: &mut Run<'_>, args: &PairArgs, widest: u32) -> Outcome<bool> {
    let mut good = true;
    for devices in run.pairs(args)? {
        for transport in args.transports() {
            good &= one_pair(run, args, widest, &devices, transport)?;
        }
    }
    Ok(good)
}

/// Runs all shapes; returns whether every byte arrived intact.
fn one_pair(
    run: &mut Run<'_>,
    args: &PairArgs,
    widest: u32,
    devices: &[String; 2],
    transport: Transport,
) -> Outcome<bool> {
    let (apart, address) = (args.processes, args.address);
    let mut pair = if apart {
        Pair::apart(devices, transport, address, run.proxy)?
    } else {
        Pair::here(run.proxy()?, devices, transport, address)?
    };
    let shapes = at_most(shapes(&pair, run.effort), widest, |shape| shape.threads)?;
    let title = pair.title(apart);
    let setting = vec![("ends", title.clone()), ("transport", transport.name().to_owned())];
    let title = format!("{title}, {}, verified streams both ways", transport.name());
    run.recorder.table("check", title, Axis::None, setting, shapes.len())?;
    let mut tally = Tally::default();
    for shape in shapes {
        let name = format!(
            "{:>8} x {:>12}, ring {:>4} KiB, messages to {:>7} B, {:>3} connections each",
            counted(shape.pairs, "pair"),
            counted(shape.threads, "thread"),
            shape.ring / 1024,
            shape.message,
            shape.rounds
        );
        let verdict = one(&mut pair, &shape);
        tally.take(run.recorder, &name, verdict);
    }
    Ok(tally.end(run.recorder))
}

fn shapes(pair: &Pair, effort: Effort) -> Vec<StreamShape> {
    let gpu = pair.is_gpu();
    let most = if pair.are_gpus() { 32 } else { 8 };
    let scale = effort.of(1, 4, 16);
    let mut shapes = Vec::new();
    let mut add = |pairs, threads, ring, message, bytes, rounds| {
        let threads = if gpu { threads } else { 1 };
        shapes.push(StreamShape { pairs, threads, ring, message, bytes, rounds });
    };
    // Messages of up to several times the ring.
    add(1, 128, 4096, 20_000, scale << 20, 4);
    add(1, 33, 8192, 40_000, scale << 20, 4);
    add(1, 32, 65536, 300_000, scale << 21, 2);
    add(1, 512, 256 << 10, 1 << 20, scale << 24, 2);
    // Small messages; most have lines.
    add(1, 128, 256 << 10, 300, scale << 19, 2);
    add(most, 64, 65536, 300, scale << 18, 2);
    add(1, 1024, 4 << 20, 9 << 20, scale << 26, 2);
    for pairs in [2, 4, 8, 16, 32] {
        if pairs <= most {
            add(pairs, 256, 65536, 200_000, scale << 20, 2);
        }
    }
    add(most, 512, 1 << 20, 3 << 20, scale << 22, 2);
    // Rings that are reused.
    add(1, 64, 4096, 3000, 20_000, 400);
    add(most, 128, 16384, 5000, 60_000, 200);
    shapes
}

fn one(pair: &mut Pair, shape: &StreamShape) -> Outcome<u64> {
    let &StreamShape { pairs, ring, message, bytes, rounds, threads } = shape;
    let block = BlockShape { threads, ..BlockShape::ONE };
    let ends = pair.play(&Work::Duplex { pairs, ring, message, bytes, rounds }, block)?;
    let mut verified = 0;
    // The client's reason comes first.
    for (name, words) in ["client", "server"].into_iter().zip(ends.iter().rev()) {
        if words.len() != 3 * pairs as usize {
            return Err(format!("{name}: {} words", words.len()).into());
        }
        for (block, words) in words.chunks_exact(3).enumerate() {
            if words[1] > 0 {
                let (wrong, at) = (words[1], words[2]);
                return Err(format!("{name} {block}: {wrong} WRONG BYTES in a piece at {at}").into());
            }
            if let Some(errno) = failed(words[0]) {
                return Err(format!("{name} {block}: {}", Error::from_errno(errno)).into());
            }
            if words[0] != bytes * rounds {
                return Err(format!("{name} {block}: {} of {} bytes", words[0], bytes * rounds).into());
            }
            verified += words[0];
        }
    }
    Ok(verified)
}
