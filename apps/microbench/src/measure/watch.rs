//! One block that watches many connections, one of them busy.

use super::{Run, crowd, settings};
use crate::bench::Bench;
use crate::outcome::Outcome;
use crate::pair::{Ports, TIMEOUT};
use crate::process;
use crate::report::{Axis, Role, Row};
use crate::sockets::{ListenAddr, Socket};
use gpunet_bench_kernel::Watch;
use gpunet_device::{Options, SockAddr, TransportKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Bytes of a message.
const SIZE: usize = 64;
/// Threads of a block, on a GPU.
const THREADS: u32 = 128;
/// Descriptors for everything but the sockets.
const DESCRIPTORS: u64 = 500;
/// How long the block may take to listen.
const LIMIT: Duration = Duration::from_secs(10);

/// Measures round trips of one of 2 to 10,000 plain TCP clients of a block that waits for all of
/// them with a poll group.
pub fn watch(run: &mut Run<'_>) -> Outcome<()> {
    // Both ends of each connection are in this process.
    let most = process::more_descriptors().saturating_sub(DESCRIPTORS) / 2;
    let bench = run.open()?;
    let title = format!("{}, a block that watches tcp sockets with a poll group, one busy", bench.title());
    let mut setting = settings(&bench, THREADS);
    setting.push(("rings", format!("{} KiB", crowd::RING >> 10)));
    run.recorder.table("watch", title, Axis::TimeByCount, setting, 4)?;
    drop(bench);
    for sockets in run.effort.of(vec![2, 1000], vec![2, 10, 1000, 10_000], vec![2, 10, 100, 1000, 10_000]) {
        if sockets > most {
            run.recorder
                .note(format!("without {sockets} sockets: there are descriptors for {most} connections"));
            continue;
        }
        let samples = one(run, sockets)?;
        let row =
            Row::all_times(Role::Gpunet, format!("one busy among {sockets} sockets, round trip"), &samples);
        run.recorder.row(row.at("gpunet, poll group", sockets));
    }
    Ok(())
}

/// Returns the nanoseconds of round trips of one client among `sockets`.
fn one(run: &Run<'_>, sockets: u64) -> Outcome<Vec<u64>> {
    let bench = Bench::attach(&run.proxy.open(crowd::config(sockets))?, run.device)?;
    bench.prepare::<Watch>(THREADS)?;
    let job = bench.job(Watch::BYTES, 1)?;
    let addr = Ports::of(IpAddr::V4(Ipv4Addr::LOCALHOST)).take(1);
    let options = Options::DEFAULT
        .with_transport(TransportKind::Tcp)
        .with_rings(crowd::RING, crowd::RING)
        .with_timeouts(TIMEOUT, TIMEOUT);
    let launch = bench.start(1, bench.threads(THREADS), |net| Watch {
        net,
        addr: SockAddr::from(addr),
        options,
        buffer: job.buffer(),
        sockets,
        results: job.results(),
    })?;
    let mut message = [7; SIZE];
    let mut clients = Vec::new();
    for _ in 0..sockets {
        let mut client = connect(addr)?;
        // After this round trip the client has been accepted.
        client.round_trip(&mut message)?;
        clients.push(client);
    }
    let busy = &mut clients[sockets as usize / 2];
    busy.spin(true)?;
    let rounds = run.effort.of(2000, 10_000, 20_000);
    for _ in 0..rounds / 10 {
        busy.round_trip(&mut message)?;
    }
    let samples = (0..rounds).map(|_| busy.round_trip(&mut message)).collect::<Result<_, _>>()?;
    drop(clients);
    Bench::no_failure(&bench.finish(launch, &job)?)?;
    bench.close();
    Ok(samples)
}

/// Connects, as soon as the block listens.
fn connect(addr: SocketAddr) -> Outcome<Socket> {
    let start = Instant::now();
    loop {
        match Socket::connect(&ListenAddr::Tcp(addr)) {
            Err(_) if start.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(1)),
            result => return Ok(result?),
        }
    }
}
