//! The steps of one hand-off, and their times.

use super::{Run, crowd};
use crate::bench::Bench;
use crate::outcome::Outcome;
use crate::pair::{TIMEOUT, Transport};
use crate::report::{Axis, Role, Row};
use crate::stamps::{self, Step};
use gpunet_bench_kernel::{Clock, Flags, Handoff};
use gpunet_device::{Options, SockAddr, TransportKind, now_ns};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener};

const SIZE: usize = 64;

/// Measures flags, data and flags, and a message to a plain program and back, with a time stamp at
/// each step.
pub fn handoff(run: &mut Run<'_>) -> Outcome<()> {
    let bench = run.open()?;
    let threads = bench.threads(128);
    let rounds = run.effort.of(2000, 10_000, 20_000);
    bench.prepare::<Handoff>(threads)?;
    let mut setting = super::settings(&bench, threads);
    setting.push(("transport", "tcp, to a spinning thread of this process".to_owned()));
    setting.push(("placement", crowd::placement(run, Transport::Tcp)?));
    run.recorder.table("handoff", format!("{}, {SIZE} B", bench.title()), Axis::None, setting, 8)?;
    for size in [0, SIZE] {
        run.recorder.row(flags(&bench, threads, size, rounds)?);
    }
    if run.proxy.names_a_daemon() {
        run.recorder.note("stamps need a proxy in this process: run it without --daemon");
        return Ok(());
    }
    let clock = Offset::measure(&bench)?;
    run.recorder.note(clock.note());
    stamped(run, &bench, threads, clock, rounds)
}

/// Measures round trips of two words between the device and a spinning CPU.
pub(super) fn flags(bench: &Bench, threads: u32, size: usize, rounds: u64) -> Outcome<Row> {
    let (ping, pong, out, back) = (0, 4096, 8192, 16384);
    let pinned = bench.pinned(32768)?;
    let job = bench.job(size, rounds as usize)?;
    let launch = bench.start(1, threads, |_| Flags {
        ping: pinned.device(ping).cast(),
        pong: pinned.device(pong).cast(),
        out: pinned.device(out),
        back: pinned.device(back),
        own: job.buffer().as_ptr(),
        size: size as u64,
        rounds,
        results: job.results(),
    })?;
    for round in 1..=rounds {
        while pinned.word(ping).observe() < round {
            std::hint::spin_loop();
        }
        pinned.copy(back, out, size);
        pinned.word(pong).publish(round);
    }
    let words = bench.finish(launch, &job)?;
    let what =
        if size == 0 { "flags alone".to_owned() } else { format!("{size} B and flags, copied in and out") };
    Ok(Row::times(Role::Floor, format!("device <-> spinning CPU, {what}, round trip"), &words))
}

/// The difference by which the device's clock is ahead of this process's clock.
#[derive(Clone, Copy)]
pub(super) struct Offset {
    ns: i128,
    error_ns: u64,
}

impl Offset {
    const ROUNDS: u64 = 5000;

    /// Asks the device for its time. The quickest answer is the most exact one: the device's time
    /// is taken as that of the middle of the round trip, so the error is at most half a round trip.
    pub(super) fn measure(bench: &Bench) -> Outcome<Self> {
        let pinned = bench.pinned(8192)?;
        let (ping, pong) = (0, 4096);
        let job = bench.job(0, 1)?;
        let clock = |_| Clock {
            ping: pinned.device(ping).cast(),
            pong: pinned.device(pong).cast(),
            rounds: Self::ROUNDS,
        };
        let launch = bench.start(1, bench.threads(32), clock)?;
        let mut best = Self { ns: 0, error_ns: u64::MAX };
        let mut last = 0;
        for round in 1..=Self::ROUNDS {
            let asked = now_ns();
            pinned.word(pong).publish(round);
            let mut told = pinned.word(ping).observe();
            while told == last {
                std::hint::spin_loop();
                told = pinned.word(ping).observe();
            }
            let answered = now_ns();
            last = told;
            let error_ns = (answered - asked).div_ceil(2);
            if error_ns < best.error_ns {
                best = Self { ns: i128::from(told) - i128::from(asked + error_ns), error_ns };
            }
        }
        bench.finish(launch, &job)?;
        Ok(best)
    }

    /// What to know when reading figures that are made by it.
    pub(super) fn note(self) -> String {
        let us = self.error_ns as f64 / 1000.0;
        format!("the device's clock and the CPU's are compared with an error of at most {us:.2} us")
    }

    /// Converts a time stamp of the device to this process's clock.
    pub(super) fn here(self, stamp: u64) -> u64 {
        (i128::from(stamp) - self.ns).max(0) as u64
    }
}

/// Measures messages to a plain program and back, with the time of each step.
fn stamped(run: &mut Run<'_>, bench: &Bench, threads: u32, clock: Offset, rounds: u64) -> Outcome<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = SockAddr::from(listener.local_addr()?);
    let echo = std::thread::Builder::new().spawn(move || echo(&listener))?;
    let job = bench.job(SIZE, 1 + 3 * rounds as usize)?;
    stamps::begin();
    let options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_timeouts(TIMEOUT, TIMEOUT);
    let launch = bench.start(1, threads, |net| Handoff {
        net,
        addr,
        options,
        buffer: job.buffer(),
        rounds,
        pause_ns: 2000,
        results: job.results(),
    })?;
    let words = bench.finish(launch, &job);
    let seen = stamps::end();
    let words = words?;
    Bench::no_failure(&words[..1])?;
    let echoed = echo.join().map_err(|_| "the echo panicked")??;
    let saw: Vec<u64> = seen.iter().filter(|(step, _)| *step == Step::Saw).map(|(_, at)| *at).collect();
    let landed: Vec<u64> = seen.iter().filter(|(step, _)| *step == Step::Landed).map(|(_, at)| *at).collect();
    let counts = [words[1..].len() / 3, echoed.len(), saw.len(), landed.len()];
    if counts.iter().any(|&count| count != rounds as usize) {
        return Err(format!("{rounds} rounds left {counts:?} stamps").into());
    }
    let mut steps = [const { Vec::new() }; 6];
    for (round, device) in words[1..].chunks_exact(3).enumerate() {
        let (begins, got) = (clock.here(device[0]), clock.here(device[2]));
        let (read, landed) = (echoed[round], landed[round]);
        let times = [
            device[1] - device[0],
            saw[round].saturating_sub(begins),
            read.saturating_sub(saw[round]),
            landed.saturating_sub(read),
            got.saturating_sub(landed),
            got.saturating_sub(begins),
        ];
        steps.iter_mut().zip(times).for_each(|(step, time)| step.push(time));
    }
    let names = [
        "send: the call on the device",
        "send: from the call until the proxy sees the bytes",
        "    ... until the plain program has read them",
        "receive: from then, by the plain program's answer, until it has landed",
        "    ... until the device has received them",
        "the whole round trip",
    ];
    for (name, times) in names.into_iter().zip(&steps) {
        run.recorder.row(Row::times(Role::Gpunet, name, times));
    }
    Ok(())
}

/// Runs a plain echo server that spins. Returns the times at which it had read each message.
fn echo(listener: &TcpListener) -> std::io::Result<Vec<u64>> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let (mut message, mut have, mut stamps) = ([0; SIZE], 0, Vec::new());
    loop {
        match stream.read(&mut message[have..]) {
            Ok(0) => return Ok(stamps),
            Ok(n) => have += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
        if have == SIZE {
            have = 0;
            stamps.push(now_ns());
            stream.write_all(&message)?;
        }
    }
}
