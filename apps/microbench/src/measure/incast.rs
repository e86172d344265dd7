//! Many senders, one receiver: total rate and fairness.

mod plain;

use super::{Run, crowd};
use crate::bench::Bench;
use crate::floor;
use crate::outcome::Outcome;
use crate::pair::{Ports, TIMEOUT, Transport};
use crate::process;
use crate::report::{Axis, Role, Row};
use crate::sockets::{Kind, ListenAddr, spawn};
use gpunet_bench_kernel::Incast;
use gpunet_device::{Options, SockAddr};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const SENDERS: u32 = 32;
/// Bytes of a call.
const MESSAGE: u64 = 64 << 10;
const RING: u64 = 256 << 10;
/// With fewer descriptors than this, a failure may be due to their lack.
const DESCRIPTORS: u64 = 500;
/// Threads of a block, on a GPU.
const THREADS: u32 = 512;

/// The bytes that a receiver got while all senders were sending.
struct Got {
    time: Duration,
    /// Bytes of each sender.
    each: Vec<u64>,
}

/// Measures 32 senders, blocks and plain threads, to one block, compared with plain sockets.
pub fn incast(run: &mut Run<'_>) -> Outcome<()> {
    let descriptors = process::more_descriptors();
    measure(run).map_err(|error| match descriptors {
        ..DESCRIPTORS => {
            format!("{error}; this process may have {descriptors} descriptors (ulimit -Hn)").into()
        }
        _ => error,
    })
}

fn measure(run: &mut Run<'_>) -> Outcome<()> {
    let bench = run.open()?;
    bench.prepare::<Incast>(THREADS)?;
    let duration = run.effort.of(Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5));
    let mut ports = Ports::of(IpAddr::V4(Ipv4Addr::LOCALHOST));
    for (transport, kind) in [(Transport::Peer, Kind::Unix), (Transport::Tcp, Kind::Tcp)] {
        let mut setting = super::settings(&bench, THREADS);
        setting.push(("transport", transport.name().to_owned()));
        setting.push(("placement", crowd::placement(run, transport)?));
        setting.push(("rings", format!("{} KiB", RING >> 10)));
        setting.push(("messages", format!("{} KiB, for {duration:.1?}", MESSAGE >> 10)));
        let title = format!("{}, {SENDERS} senders to one block, {}", bench.title(), transport.name());
        run.recorder.table("incast", title, Axis::None, setting, 13)?;
        run.recorder.row(copies(&bench, run.effort.of(64, 128, 256))?.at("floor: one block copies", 0));
        if transport == Transport::Tcp || !bench.is_gpu() {
            let got = plain::receive(kind, SENDERS, MESSAGE, duration)?;
            got.record(run, Role::Reference, &format!("{}, threads", kind.name()));
        }
        let addr = ports.take(1);
        blocks(&bench, transport, addr, true, duration)?.record(run, Role::Gpunet, "blocks");
        if transport == Transport::Tcp {
            let addr = ports.take(1);
            let got = std::thread::scope(|scope| {
                let send = move || plain::send(&ListenAddr::Tcp(addr), SENDERS, MESSAGE, duration);
                let senders = spawn(scope, send)?;
                let got = blocks(&bench, transport, addr, false, duration);
                let sent = senders.join().map_err(|_| "a sender panicked")?;
                let got = got?;
                sent?;
                Outcome::Ok(got)
            })?;
            got.record(run, Role::Gpunet, "plain senders");
        }
        run.recorder.note(
            "counted while no sender had ended; plain senders, and the receiver of the reference, are blocking threads of \
             this process",
        );
    }
    Ok(())
}

/// Measures the rate at which the receiver's block copies within its own memory. Returns the best
/// of three tries.
fn copies(bench: &Bench, times: u64) -> Outcome<Row> {
    floor::best(|| floor::copy([bench, bench], 1, THREADS, times).map(|[_, near]| near))
}

/// Runs one block that receives. The senders are blocks of the same launch, or elsewhere.
fn blocks(
    bench: &Bench,
    transport: Transport,
    addr: SocketAddr,
    here: bool,
    duration: Duration,
) -> Outcome<Got> {
    let blocks = if here { 1 + SENDERS } else { 1 };
    let job = bench.job(Incast::room(MESSAGE, blocks), Incast::words(SENDERS, blocks))?;
    let options = Options::DEFAULT
        .with_transport(transport.kind())
        .with_rings(RING, RING)
        .with_timeouts(TIMEOUT, TIMEOUT);
    let launch = bench.start(blocks, bench.threads(THREADS), |net| Incast {
        net,
        addr: SockAddr::from(addr),
        options,
        buffer: job.buffer(),
        message: MESSAGE,
        senders: u64::from(SENDERS),
        duration_ns: duration.as_nanos() as u64,
        results: job.results(),
    })?;
    let words = bench.finish(launch, &job)?;
    let (each, sent) = words[2..].split_at(SENDERS as usize);
    // The receiver's reason first.
    Bench::no_failure(&words[..1])?;
    Bench::no_failure(sent)?;
    let total: u64 = sent.iter().sum();
    if here && words[0] != total {
        return Err(format!("{total} bytes were sent, {} received", words[0]).into());
    }
    Ok(Got { time: Duration::from_nanos(words[1].max(1)), each: each.to_vec() })
}

impl Got {
    fn record(&self, run: &mut Run<'_>, role: Role, how: &str) {
        let total: u64 = self.each.iter().sum();
        let row = Row::rate(role, format!("all together, {how}"), total, self.time);
        run.recorder.row(row.at(how, 0));
        let mean = total as f64 / self.each.len().max(1) as f64;
        let part = |bytes: Option<&u64>| bytes.map_or(0.0, |&bytes| bytes as f64 / mean.max(1.0));
        let numbers = [
            ("fairness (Jain)", fairness(&self.each), "of 1"),
            ("the least a sender got", part(self.each.iter().min()), "of the mean"),
            ("the most a sender got", part(self.each.iter().max()), "of the mean"),
        ];
        for (place, (what, value, unit)) in numbers.into_iter().enumerate() {
            let row = Row::number(role, format!("{what}, {how}"), value, unit);
            run.recorder.row(row.at(how, 1 + place as u64));
        }
    }
}

/// Returns Jain's index: the square of the sum, divided by the sum of the squares and by their
/// number. It is 1 if all got the same, and 1/n if one got everything.
fn fairness(each: &[u64]) -> f64 {
    let sum: f64 = each.iter().map(|&bytes| bytes as f64).sum();
    let squares: f64 = each.iter().map(|&bytes| (bytes as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (squares * each.len() as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_between_one_and_one_of_all() {
        assert!((fairness(&[5, 5, 5, 5]) - 1.0).abs() < 1e-9);
        assert!((fairness(&[8, 0, 0, 0]) - 0.25).abs() < 1e-9);
        assert!((fairness(&[1, 3]) - 0.8).abs() < 1e-9);
        assert!(fairness(&[0, 0]) < 1e-9 && fairness(&[]) < 1e-9);
    }
}
