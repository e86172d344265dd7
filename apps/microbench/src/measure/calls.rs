//! Calls of kernels to functions of the host.

use super::{Run, settings};
use crate::bench::Bench;
use crate::floor;
use crate::outcome::Outcome;
use crate::pair::{BlockShape, Pair, PairArgs, Transport, Work};
use crate::report::{Axis, Role, Row, counted};
use gpunet_bench_kernel::{GroupKind, HostCalls, MOST_IN_FLIGHT, NEXT};
use gpunet_calls_host::{CallServer, Functions, Settings};
use std::time::Duration;

/// Threads of a block, on a GPU.
const THREADS: u32 = 128;
/// Bytes of a request, and of an answer.
const SIZE: u64 = 64;

/// Measures calls with requests and answers of 64 bytes, beside data and flags and a socket whose
/// other end is a CPU block; and how many a second.
pub fn calls(run: &mut Run<'_>) -> Outcome<()> {
    let bench = run.open()?;
    let title = format!("{}, calls to the host, {SIZE} B and {SIZE} B", bench.title());
    run.recorder.table("calls", title, Axis::None, settings(&bench, THREADS), 10)?;
    let rounds = run.effort.of(2000, 6000, 20_000);
    let cpu = Bench::cpu()?;
    run.recorder.row(floor::ping_pong([&cpu, &bench], THREADS, SIZE, rounds)?);
    drop(cpu);
    let ends = ["cpu".to_owned(), run.device.to_owned()];
    let mut pair = Pair::here(run.proxy()?, &ends, Transport::Peer, PairArgs::default().address)?;
    let shape = BlockShape { threads: THREADS, ..BlockShape::ONE };
    let [_, words] = pair.play(&Work::Echo { size: SIZE, rounds }, shape)?;
    let socket = Row::one_way(Role::Gpunet, "a socket to a CPU block, half of a round trip", &words[2..]);
    run.recorder.row(socket.clone());
    drop(pair);
    let mut functions = Functions::new();
    functions.add(NEXT, |mut message| {
        message[0] = message[0].wrapping_add(1);
        Ok(message)
    })?;
    let most = if bench.is_gpu() { 16 } else { 2 };
    let settings = Settings { latency: Duration::ZERO, tickets: MOST_IN_FLIGHT, ..Settings::new(most) };
    let server = CallServer::start(bench.attachment(), functions, settings)?;
    let groups = [(GroupKind::Block, "block"), (GroupKind::Warp, "warp"), (GroupKind::Thread, "thread")];
    for (group, name) in if bench.is_gpu() { &groups[..] } else { &groups[..1] } {
        let words = one(&bench, &server, Shape { blocks: 1, in_flight: 1, group: *group, rounds })?;
        let name = format!("a call by a {name}, half of it");
        let row = Row::one_way(Role::Gpunet, name, &words[1..]);
        let ratio = row.figure.typical() / socket.figure.typical();
        run.recorder.row(row);
        if *group == GroupKind::Block {
            let name = "a call by a block, of the socket's round trip";
            run.recorder.row(Row::number(Role::Gpunet, name, ratio, "times"));
        }
    }
    let many = 10 * rounds;
    for (blocks, in_flight) in [(1, MOST_IN_FLIGHT), (most, 1), (most, MOST_IN_FLIGHT)] {
        let shape = Shape { blocks, in_flight, group: GroupKind::Warp, rounds: many / u64::from(blocks) };
        let words = one(&bench, &server, shape)?;
        let longest = words[..blocks as usize].iter().copied().max().unwrap_or(1).max(1);
        let calls = (shape.rounds * u64::from(blocks)) as f64 / (longest as f64 / 1e9);
        let name = format!("{}, {in_flight} in flight each", counted(blocks, "warp"));
        run.recorder.row(Row::number(Role::Gpunet, name, calls, "calls a second"));
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Shape {
    blocks: u32,
    in_flight: u32,
    group: GroupKind,
    rounds: u64,
}

/// Runs the kernel; returns its words.
fn one(bench: &Bench, server: &CallServer, shape: Shape) -> Outcome<Vec<u64>> {
    let Shape { blocks, in_flight, group, rounds } = shape;
    let words = blocks as usize + if in_flight == 1 { rounds as usize } else { 0 };
    let job = bench.job(0, words)?;
    let calls = Bench::calls(server);
    let launch = bench.start(blocks, bench.threads(THREADS), |net| HostCalls {
        net,
        calls,
        rounds,
        blocks,
        in_flight,
        group: group as u64,
        results: job.results(),
    })?;
    let words = bench.finish(launch, &job)?;
    Bench::no_failure(&words)?;
    Ok(words)
}
