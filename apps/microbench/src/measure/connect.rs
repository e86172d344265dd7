//! Connections that carry a byte each way, one after another.

use super::{Run, crowd, handoff};
use crate::bench::Bench;
use crate::outcome::Outcome;
use crate::pair::{Ports, TIMEOUT, Transport};
use crate::report::{Axis, Role, Row, counted};
use crate::sockets::{Kind, Listener, Socket, join, spawn};
use gpunet_bench_kernel::Connects;
use gpunet_device::{Options, SockAddr, now_ns};
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const PAIRS: [u32; 2] = [1, 16];
const RING: u64 = 64 << 10;

/// The times that both ends of each pair measured, from the words that [`Connects`] leaves.
struct Rounds {
    /// Nanoseconds of each connect.
    connects: Vec<u64>,
    /// Nanoseconds from each accept to the first byte.
    first_bytes: Vec<u64>,
    per_second: f64,
}

/// Measures connections over peer and over tcp, compared with plain sockets.
pub fn connect(run: &mut Run<'_>) -> Outcome<()> {
    let bench = run.open()?;
    let threads = bench.threads(128);
    bench.prepare::<Connects>(threads)?;
    let rounds = run.effort.of(500, 2000, 10_000);
    let mut ports = Ports::of(IpAddr::V4(Ipv4Addr::LOCALHOST));
    for (transport, kind) in [(Transport::Peer, Kind::Unix), (Transport::Tcp, Kind::Tcp)] {
        let mut setting = super::settings(&bench, threads);
        setting.push(("transport", transport.name().to_owned()));
        setting.push(("placement", crowd::placement(run, transport)?));
        setting.push(("rings", format!("{} KiB", RING >> 10)));
        setting.push(("rounds", format!("{rounds}: connect, a byte there and back, close")));
        let title = format!("{}, {}", bench.title(), transport.name());
        run.recorder.table("connect", title, Axis::None, setting, 13)?;
        if transport == Transport::Peer {
            let flags = handoff::flags(&bench, threads, 0, rounds)?;
            run.recorder.row(flags.at("floor: a question and its answer", place(1, 0)));
        }
        for pairs in PAIRS {
            let each = rounds / u64::from(pairs);
            plain(kind, pairs, each)?.record(run, Role::Reference, pairs, &format!(", {}", kind.name()));
        }
        for pairs in PAIRS {
            let addr = SockAddr::from(ports.take(pairs as u16));
            let each = rounds / u64::from(pairs);
            kernel(&bench, transport, addr, pairs, each)?.record(run, Role::Gpunet, pairs, "");
        }
        let note = "references: two blocking threads of this process for each pair";
        run.recorder.note(note);
    }
    Ok(())
}

/// Returns the place on the x axis of rows of one kind and one number of pairs.
fn place(pairs: u32, which: u64) -> u64 {
    u64::from(pairs) * 10 + which
}

/// Measures pairs of blocks.
fn kernel(bench: &Bench, transport: Transport, addr: SockAddr, pairs: u32, rounds: u64) -> Outcome<Rounds> {
    let blocks = 2 * pairs;
    let words = Connects::words(rounds);
    let job = bench.job(blocks as usize * Connects::ROOM, blocks as usize * words)?;
    let options = Options::DEFAULT
        .with_transport(transport.kind())
        .with_rings(RING, RING)
        .with_timeouts(TIMEOUT, TIMEOUT);
    let launch = bench.start(blocks, bench.threads(128), |net| Connects {
        net,
        addr,
        options,
        buffer: job.buffer(),
        rounds,
        results: job.results(),
    })?;
    let all = bench.finish(launch, &job)?;
    Bench::no_failure(&all.iter().copied().step_by(words).collect::<Vec<_>>())?;
    Ok(Rounds::of(&all, words))
}

/// Measures pairs of threads with plain sockets.
fn plain(kind: Kind, pairs: u32, rounds: u64) -> Outcome<Rounds> {
    let listeners = (0..pairs).map(|_| Listener::new(kind)).collect::<Result<Vec<_>>>()?;
    let words = std::thread::scope(|scope| -> Result<Vec<u64>> {
        let mut ends = Vec::new();
        for listener in &listeners {
            let addr = listener.local_addr()?;
            ends.push(spawn(scope, move || {
                end(
                    rounds,
                    || listener.accept(),
                    |socket, byte| {
                        let start = now_ns();
                        if !socket.receive_all(byte)? {
                            return Err(ErrorKind::UnexpectedEof.into());
                        }
                        let ns = now_ns() - start;
                        socket.send_all(byte)?;
                        Ok(Some(ns))
                    },
                )
            })?);
            ends.push(spawn(scope, move || {
                end(
                    rounds,
                    || Socket::connect(&addr),
                    |socket, byte| {
                        socket.send_all(byte)?;
                        socket.receive_all(byte)?;
                        Ok(None)
                    },
                )
            })?);
        }
        ends.into_iter().try_fold(Vec::new(), |mut words, end| {
            words.extend(join(end)?);
            Ok(words)
        })
    })?;
    Ok(Rounds::of(&words, Connects::words(rounds)))
}

/// Runs one end and returns words as [`Connects`] leaves them: for each round the time to open, or
/// what `talk` returns.
fn end(
    rounds: u64,
    open: impl Fn() -> Result<Socket>,
    talk: impl Fn(&mut Socket, &mut [u8]) -> Result<Option<u64>>,
) -> Result<Vec<u64>> {
    let mut words = vec![rounds, 0, 0];
    for round in 0..rounds {
        let start = now_ns();
        if round == 1 {
            words[1] = start;
        }
        let mut socket = open()?;
        let opened = now_ns() - start;
        words.push(talk(&mut socket, &mut [1])?.unwrap_or(opened));
    }
    words[2] = now_ns();
    Ok(words)
}

impl Rounds {
    /// Reads the words of servers and clients in turn. The first tenth of each is warm-up.
    fn of(all: &[u64], words: usize) -> Self {
        let samples = |odd: usize| -> Vec<u64> {
            let ends = all.chunks_exact(words).skip(odd).step_by(2);
            ends.flat_map(|end| &end[3 + (words - 3) / 10..]).copied().collect()
        };
        let clients = || all.chunks_exact(words).skip(1).step_by(2);
        let begin = clients().map(|client| client[1]).min().unwrap_or(0);
        let end = clients().map(|client| client[2]).max().unwrap_or(0);
        let time = Duration::from_nanos(end.saturating_sub(begin).max(1));
        // The first round is before the start.
        let connections: u64 = clients().map(|client| client[0].saturating_sub(1)).sum();
        let per_second = connections as f64 / time.as_secs_f64();
        Self { connects: samples(1), first_bytes: samples(0), per_second }
    }

    fn record(&self, run: &mut Run<'_>, role: Role, pairs: u32, how: &str) {
        let name = counted(pairs, "pair");
        let series = |what: &str| format!("{what}{how}");
        let row = Row::all_times(role, format!("{name}, connect{how}"), &self.connects);
        run.recorder.row(row.at(series("connect"), place(pairs, 0)));
        let row = Row::all_times(role, format!("{name}, accept to first byte{how}"), &self.first_bytes);
        run.recorder.row(row.at(series("accept to first byte"), place(pairs, 1)));
        let row = Row::number(role, format!("{name}, connections{how}"), self.per_second, "a second");
        run.recorder.row(row.at(series("connections"), place(pairs, 2)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_come_from_the_words_of_both_ends() {
        let words = [3, 0, 0, 9, 8, 7, 3, 1000, 1_001_000, 4, 5, 6];
        let rounds = Rounds::of(&words, 6);
        assert_eq!((rounds.first_bytes, rounds.connects), (vec![9, 8, 7], vec![4, 5, 6]));
        assert!((rounds.per_second - 2000.0).abs() < 1e-6);
    }

    #[test]
    fn plain_threads_connect() {
        let rounds = plain(Kind::Unix, 2, 5).unwrap();
        assert_eq!((rounds.connects.len(), rounds.first_bytes.len()), (10, 10));
        assert!(rounds.per_second > 0.0);
    }
}
