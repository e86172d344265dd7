//! Turns from outside: how soon a bell is heard, and the processor time of a message at each.

use super::{Run, settings};
use crate::bench::Bench;
use crate::outcome::Outcome;
use crate::process::Cost;
use crate::report::{Axis, Role, Row};
use crate::sockets::{ListenAddr, Socket, are_cores_few, spin};
use gpunet_bench_kernel::{BELL, HEARD, Rings};
use gpunet_device::{Options, TransportKind};
use gpunet_serve::{Bell, Server};
use gpunet_serve_host::{Running, ServerSettings, start};
use std::time::{Duration, Instant};

/// Threads of a block, on a GPU.
const THREADS: u32 = 128;
/// From one ring to the next: the connection's block waits.
const PAUSE: Duration = Duration::from_micros(200);
/// From one message to the next.
const RHYTHM: Duration = Duration::from_millis(20);
/// How long a ring may take.
const LOST: Duration = Duration::from_secs(10);

/// Measures bells.
pub fn rings(run: &mut Run<'_>) -> Outcome<()> {
    let bench = run.open()?;
    let rounds = run.effort.of(500, 5000, 50_000);
    let mut setting = settings(&bench, THREADS);
    setting.push(("server", "one block that serves, one that works, over tcp".to_owned()));
    let title = format!("{}, a bell until its turn has said so", bench.title());
    run.recorder.table("rings", title, Axis::None, setting, 4)?;
    let server = serve(&bench, rounds, PAUSE)?;
    let samples = by_worker(&server, rounds)?;
    run.recorder.row(Row::times(Role::Gpunet, "another block rings, by the device's clock", &samples));
    let samples = by_host(&server, rounds)?;
    run.recorder.row(Row::times(Role::Gpunet, "this program rings, until it sees the counter", &samples));
    server.stop()?;
    // At least a second.
    let rounds = run.effort.of(50, 250, 500);
    let server = serve(&bench, rounds, RHYTHM)?;
    let cost = Cost::begin()?;
    let samples = by_worker(&server, rounds)?;
    let spent = cost.end()?;
    let name = format!("another block rings every {} ms and each turn sends 8 B", RHYTHM.as_millis());
    run.recorder.row(Row::times(Role::Gpunet, name.clone(), &samples));
    run.recorder.row(Row::number(
        Role::Gpunet,
        format!("{name}, the proxy's threads"),
        spent.share(),
        "% of a core",
    ));
    server.stop()?;
    if run.proxy.names_a_daemon() {
        run.recorder.note("processor time is that of this process: run it without --daemon");
    }
    Ok(())
}

fn serve(bench: &Bench, rounds: u64, pause: Duration) -> Outcome<Running> {
    let threads = bench.threads(THREADS);
    let program = bench.program::<Server<Rings>>(threads)?;
    let options = Options::DEFAULT.with_transport(TransportKind::Tcp);
    let service = Rings { rounds, pause_ns: pause.as_nanos() as u64 };
    let addr = "127.0.0.1:0".parse()?;
    let settings = ServerSettings { room: 16, grace_ns: 0, ..ServerSettings::DEFAULT };
    Ok(start(bench.attachment(), &program, (2, threads), addr, options, settings, service)?)
}

/// Returns the times that the worker has taken.
fn by_worker(server: &Running, rounds: u64) -> Outcome<Vec<u64>> {
    let mut client = Socket::connect(&ListenAddr::Tcp(server.addr()))?;
    client.send_all(b"W\n")?;
    let mut times = vec![0; 8 * rounds as usize];
    // Each piece within the socket's timeout.
    for time in times.chunks_mut(8) {
        if !client.receive_all(time)? {
            return Err("the server has closed the connection".into());
        }
    }
    Ok(times.chunks(8).map(|time| u64::from_le_bytes(time.try_into().unwrap_or_default())).collect())
}

/// Returns the times until this program sees that its ring was heard.
fn by_host(server: &Running, rounds: u64) -> Outcome<Vec<u64>> {
    let mut client = Socket::connect(&ListenAddr::Tcp(server.addr()))?;
    client.send_all(b"H\n")?;
    let counted = |which: usize| server.counters().iter().map(|block| block.own[which]).sum::<u64>();
    let await_change = |which, before| -> Outcome<u64> {
        let (start, few) = (Instant::now(), are_cores_few());
        loop {
            let now = counted(which);
            if now != before {
                return Ok(now);
            }
            if start.elapsed() > LOST {
                return Err("a ring was not heard".into());
            }
            spin(few);
        }
    };
    let (bell, ringer) = (Bell::from_raw(await_change(BELL, 0)?), server.ringer());
    let mut samples = Vec::new();
    let mut heard = counted(HEARD);
    for _ in 0..rounds {
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        ringer.ring(bell);
        heard = await_change(HEARD, heard)?;
        samples.push(start.elapsed().as_nanos() as u64);
    }
    Ok(samples)
}
