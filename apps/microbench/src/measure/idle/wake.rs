//! The first message after a silence.

use super::{SHORT, Served, THREADS};
use crate::bench::Bench;
use crate::measure::{Run, crowd, settings};
use crate::outcome::Outcome;
use crate::pair::{Ports, TIMEOUT, Transport, waits};
use crate::report::{Axis, Role, Row};
use crate::sockets::{Kind, ListenAddr, Listener, Socket, are_cores_few, join, spawn};
use gpunet_bench_kernel::Handoff;
use gpunet_device::{Options, SockAddr, TransportKind};
use gpunet_proxy::Config;
use std::io::Result;
use std::net::{IpAddr, Ipv4Addr};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Milliseconds of silence.
const PAUSES: [u64; 4] = [1, 5, 20, 200];
/// Bytes of a message.
const SIZE: usize = 64;
pub const REFERENCE: &str = "plain TCP";

/// Measures a plain client's round trips to a server block.
pub fn from_network(run: &mut Run<'_>) -> Outcome<()> {
    let bench = run.open()?;
    let title = format!("{}, a plain client's first {SIZE} B after a silence", bench.title());
    table(run, &bench, title, "tcp; the client is a blocking thread of this process")?;
    let rounds = rounds(run);
    let mut served = Served::start(&bench, Ports::of(IpAddr::V4(Ipv4Addr::LOCALHOST)).take(1))?;
    let [mut plain, mut echo] = one_pair()?;
    std::thread::scope(|scope| -> Outcome<()> {
        let echo = spawn(scope, move || echo.echo(SIZE))?;
        for pause in PAUSES {
            for (role, name, socket) in
                [(Role::Reference, REFERENCE, &mut plain), (Role::Gpunet, "server block", &mut served.client)]
            {
                record(run, role, name, pause, &asked(socket, pause, rounds, sleep)?);
            }
        }
        drop(plain);
        Ok(join(echo)?)
    })?;
    served.end(&bench)?;
    drop(bench);
    if let Some(bench) = short(run)? {
        let mut served = Served::start(&bench, Ports::of(IpAddr::V4(Ipv4Addr::LOCALHOST)).take(1))?;
        for pause in &PAUSES[2..] {
            let samples = asked(&mut served.client, *pause, rounds, sleep)?;
            record(run, Role::Gpunet, "server block, Config::latency 100 us", *pause, &samples);
        }
        served.end(&bench)?;
    }
    Ok(())
}

/// Measures a block's round trips to a plain server.
pub fn from_device(run: &mut Run<'_>) -> Outcome<()> {
    let bench = run.open()?;
    let title = format!("{}, a block's first {SIZE} B after a silence", bench.title());
    // The block, the echo and the data thread run at the same time.
    let spin = !are_cores_few();
    let what = format!("tcp; the echo is a {} thread of this process", waits(spin));
    table(run, &bench, title, &what)?;
    let rounds = rounds(run);
    for pause in PAUSES {
        record(run, Role::Reference, REFERENCE, pause, &plain_asks(pause, rounds, spin)?);
        record(run, Role::Gpunet, "block", pause, &asks(&bench, pause, rounds, spin)?);
    }
    drop(bench);
    if let Some(bench) = short(run)? {
        for pause in &PAUSES[2..] {
            let samples = asks(&bench, *pause, rounds, spin)?;
            record(run, Role::Gpunet, "block, Config::latency 100 us", *pause, &samples);
        }
    }
    Ok(())
}

fn table(run: &mut Run<'_>, bench: &Bench, title: String, transport: &str) -> Outcome<()> {
    let mut setting = settings(bench, THREADS);
    setting.push(("transport", transport.to_owned()));
    setting.push(("placement", crowd::placement(run, Transport::Tcp)?));
    run.recorder.table("idle", title, Axis::None, setting, 10)
}

fn rounds(run: &Run<'_>) -> u64 {
    run.effort.of(10, 30, 60)
}

/// Opens the device under a proxy of this process whose data threads sleep only briefly.
fn short(run: &Run<'_>) -> Outcome<Option<Bench>> {
    if run.proxy.names_a_daemon() {
        return Ok(None);
    }
    let proxy = run.proxy.open(Config { latency: SHORT, ..Config::default() })?;
    Bench::attach(&proxy, run.device).map(Some)
}

fn one_pair() -> Result<[Socket; 2]> {
    Socket::pairs(Kind::Tcp, 1)?.pop().ok_or_else(|| std::io::ErrorKind::NotConnected.into())
}

fn record(run: &mut Run<'_>, role: Role, name: &str, pause: u64, samples: &[u64]) {
    let row = Row::all_times(role, format!("after {pause} ms, round trip, {name}"), samples);
    run.recorder.row(row.at(name, pause));
}

/// Waits, and leaves the processor to other threads.
fn sleep(pause: Duration) {
    std::thread::sleep(pause);
}

/// Waits as a block does.
fn wait(pause: Duration) {
    let start = Instant::now();
    while start.elapsed() < pause {
        std::hint::spin_loop();
    }
}

/// Measures round trips after silences.
fn asked(socket: &mut Socket, pause: u64, rounds: u64, rest: fn(Duration)) -> Result<Vec<u64>> {
    let ask = |_| {
        rest(Duration::from_millis(pause));
        socket.round_trip(&mut [1; SIZE])
    };
    (0..rounds).map(ask).collect()
}

/// Returns the nanoseconds of a plain program's round trips to a plain server, each after a pause
/// in milliseconds.
pub fn plain_asks(pause: u64, rounds: u64, spin: bool) -> Result<Vec<u64>> {
    let [mut plain, mut echo] = one_pair()?;
    plain.spin(spin)?;
    echo.spin(spin)?;
    std::thread::scope(|scope| {
        let echo = spawn(scope, move || echo.echo(SIZE))?;
        let samples = asked(&mut plain, pause, rounds, wait);
        drop(plain);
        join(echo).and(samples)
    })
}

/// Returns the nanoseconds of a block's round trips to a plain server, each after a pause in
/// milliseconds.
pub fn asks(bench: &Bench, pause: u64, rounds: u64, spin: bool) -> Outcome<Vec<u64>> {
    bench.prepare::<Handoff>(THREADS)?;
    let listener = Listener::new(Kind::Tcp)?;
    let ListenAddr::Tcp(addr) = listener.local_addr()? else { return Err("not a TCP listener".into()) };
    let job = bench.job(SIZE, 1 + 3 * rounds as usize)?;
    let options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_timeouts(TIMEOUT, TIMEOUT);
    let echo = Builder::new().spawn(move || {
        let mut socket = listener.accept()?;
        socket.spin(spin)?;
        socket.echo(SIZE)
    })?;
    let launch = bench.start(1, bench.threads(THREADS), |net| Handoff {
        net,
        addr: SockAddr::from(addr),
        options,
        buffer: job.buffer(),
        rounds,
        pause_ns: pause * 1_000_000,
        results: job.results(),
    })?;
    let words = bench.finish(launch, &job)?;
    Bench::no_failure(&words[..1])?;
    echo.join().map_err(|_| "the echo panicked")??;
    Ok(words[1..].chunks_exact(3).map(|round| round[2] - round[0]).collect())
}
