//! Kernels that fill and release prepared messages, compared with kernels that send by the socket's
//! handle.

use super::{options, settings};
use crate::bench::Bench;
use crate::floor;
use crate::measure::Run;
use crate::outcome::Outcome;
use crate::pair::Transport;
use crate::report::{Axis, Role, Row, counted};
use gpunet_bench_kernel::{Bare, Triggered};
use gpunet_device::Options;

const SIZE: usize = 64;
/// Messages between two stamps.
const BATCH: u64 = 100;
const THREADS: u32 = 128;

/// Loads the kernels.
pub fn prepare(bench: &Bench) -> Outcome<()> {
    bench.prepare::<Bare>(THREADS)?;
    bench.prepare::<Triggered>(THREADS)
}

/// Measures both, in one direction and in round trips, to a block that receives.
pub fn measure(run: &mut Run<'_>, bench: &Bench, transport: Transport) -> Outcome<()> {
    let threads = bench.threads(THREADS);
    let title = format!("{}, {SIZE} B of a block, {}", bench.title(), transport.name());
    let mut setting = settings(bench, transport);
    setting.push(("blocks", format!("{} a block", counted(threads, "thread"))));
    setting.push(("reference", "the same by `send`".to_owned()));
    run.recorder.table("stream", title, Axis::None, setting, 13)?;
    let rounds = run.effort.of(1000, 10_000, 50_000);
    let floor = floor::ping_pong([bench, bench], threads, SIZE as u64, rounds)?;
    run.recorder.row(floor.at("floor", 0));
    for (role, name, prepared) in KINDS {
        let words = play(bench, threads, transport, prepared, true, rounds)?;
        let row = Row::one_way(role, format!("{name}, one way (half of a round trip)"), &words);
        run.recorder.row(row.at(name, 0));
    }
    let count = run.effort.of(20_000, 200_000, 1_000_000);
    for (role, name, prepared) in KINDS {
        let words = play(bench, threads, transport, prepared, false, count)?;
        let each: Vec<u64> = words.into_iter().map(|ns| ns / BATCH).collect();
        let (receives, sends) = each.split_at(each.len() / 2);
        let row = Row::times(role, format!("{name}, a message, as the sender takes"), sends);
        run.recorder.row(row.at(name, 1));
        let row = Row::times(role, format!("{name}, a message, as the receiver gets"), receives);
        run.recorder.row(row.at(name, 2));
        // Over the whole run both ends have the same rate. If an end is interrupted, the batches do
        // not show it.
        let mean = receives.iter().sum::<u64>() as f64 / receives.len() as f64;
        let row = Row::number(role, format!("{name}, a message, all together"), mean, "ns");
        run.recorder.row(row.at(name, 3));
    }
    run.recorder.note(format!("a message: the mean of {BATCH} in a row"));
    Ok(())
}

const KINDS: [(Role, &str, u32); 3] = [
    (Role::Reference, "send", Triggered::BY_HANDLE),
    (Role::Gpunet, "prepared message", Triggered::PREPARED),
    (Role::Gpunet, "prepared message, direction locked", Triggered::LOCKED),
];

/// Runs the kernel with two new sockets. Returns its samples.
fn play(
    bench: &Bench,
    threads: u32,
    transport: Transport,
    prepared: u32,
    answers: bool,
    count: u64,
) -> Outcome<Vec<u64>> {
    let timeout = crate::pair::TIMEOUT;
    let options: Options = options(transport).with_timeouts(timeout, timeout);
    let [near, far] = Bench::connected([bench; 2], options)?;
    // The direction stays taken while the kernel runs.
    let mut sender = near.take_send()?;
    let message = sender.prepare(SIZE)?.prepared;
    let ring = sender.capacity() as u64;
    let _sender = if prepared != Triggered::BY_HANDLE {
        Some(sender)
    } else {
        sender.give_back()?;
        None
    };
    let samples = if answers { count } else { 2 * (count / BATCH) };
    let job = bench.job(2 * SIZE, 2 + samples as usize)?;
    let launch = bench.start(2, threads, |net| Triggered {
        net,
        message,
        ring,
        buffer: job.buffer(),
        size: SIZE as u64,
        count,
        batch: BATCH,
        near: near.handle().raw(),
        far: far.handle().raw(),
        prepared,
        answers: u32::from(answers),
        results: job.results(),
    })?;
    let words = bench.finish(launch, &job)?;
    Bench::no_failure(&words[..2])?;
    if words[..2] != [count; 2] {
        return Err(format!("{:?} of {count} messages", &words[..2]).into());
    }
    Ok(words[2..].to_vec())
}
