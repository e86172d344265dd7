//! Small messages per second.

use super::{Run, each_pair};
use crate::foreign;
use crate::outcome::Outcome;
use crate::pair::{BlockShape, Flow, How, Pair, PairArgs, Transport, Work, record_placement};
use crate::report::{Axis, Role, Row, counted};
use clap::Args;
use gpunet_proxy::Config;
use std::time::Duration;

/// What `rate` takes.
#[derive(Args, Clone, Debug)]
pub struct RateArgs {
    #[command(flatten)]
    pair: PairArgs,
    /// Threads of a block, on a GPU.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Numbers of pairs of blocks, instead of the usual ones.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=132))]
    pairs: Vec<u32>,
}

/// Bytes of a message, which fits into a cache line.
const MESSAGE: u64 = 64;
/// Bytes of a ring: the default for streams between devices.
const RING: u64 = 256 << 10;

/// Measures messages of 64 bytes, one per call, over all pairs and transports that the command line
/// selects.
pub fn rate(run: &mut Run<'_>, args: &RateArgs) -> Outcome<()> {
    each_pair(run, &args.pair, "rate", |run, devices, transport| one(run, args, devices, transport))
}

fn one(run: &mut Run<'_>, args: &RateArgs, devices: &[String; 2], transport: Transport) -> Outcome<()> {
    let mut pair = Pair::here(run.proxy.open(Config::default())?, devices, transport, args.pair.address)?;
    let counts = if !args.pairs.is_empty() {
        args.pairs.clone()
    } else if !pair.is_gpu() {
        vec![1, 2]
    } else if !pair.are_gpus() {
        vec![1, 4]
    } else if pair.are_one() {
        // Both ends of a pair need a multiprocessor.
        run.effort.of(vec![1, 16], vec![1, 4, 16, 64], vec![1, 2, 4, 8, 16, 32, 64])
    } else {
        run.effort.of(vec![1, 16, 132], vec![1, 4, 16, 64, 132], vec![1, 2, 4, 8, 16, 32, 64, 132])
    };
    let (shape, apart) = (BlockShape { threads: args.threads, ..BlockShape::ONE }, args.pair.processes);
    let title = format!("{}, {}, messages of {MESSAGE} B", pair.title(apart), transport.name());
    let setting = pair.settings(shape, apart);
    run.recorder.table("rate", title, Axis::MessagesByCount, setting, 2 * counts.len())?;
    if transport == Transport::Peer && pair.are_gpus() && (!pair.are_one() || apart) {
        foreign::between_gpus(run.recorder, foreign::Of::Rate);
    }
    if apart {
        drop(pair);
        pair = Pair::apart(devices, transport, args.pair.address, run.proxy)?;
    }
    let messages = run.effort.of(20_000, 200_000, 1_000_000);
    let flow = |pairs, how| Flow {
        pairs,
        ring: RING,
        message: MESSAGE,
        bytes: messages * MESSAGE,
        how,
        ..Flow::ONE
    };
    let placement = pair.find_placement(&Work::Flow(flow(1, How::Copies)), shape)?;
    record_placement(run.recorder, placement);
    for (how, name) in [(How::Copies, ""), (How::More, ", more follows")] {
        for &pairs in &counts {
            let [receivers, _] = pair.play(&Work::Flow(flow(pairs, how)), shape)?;
            let row = row(&receivers, pairs, messages, name);
            run.recorder.row(row.at(format!("gpunet{name}"), u64::from(pairs)));
        }
    }
    Ok(())
}

/// Returns the messages per second of all pairs, from the four words that each block of a flow
/// leaves.
fn row(receivers: &[u64], pairs: u32, messages: u64, how: &str) -> Row {
    let began = receivers.chunks_exact(4).map(|block| block[1]).min().unwrap_or(0);
    let ended = receivers.chunks_exact(4).map(|block| block[2]).max().unwrap_or(1);
    let took = Duration::from_nanos(ended.saturating_sub(began).max(1));
    let rate = messages as f64 * f64::from(pairs) / took.as_secs_f64();
    Row::number(Role::Gpunet, format!("{}{how}", counted(pairs, "pair")), rate, "messages a second")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_all_pairs_count_from_the_first_start_to_the_last_end() {
        let row = row(&[64, 1_000, 2_000, 1, 64, 1_500, 3_000, 1], 2, 10, "");
        assert_eq!(row.figure.typical(), 10_000_000.0);
    }
}
