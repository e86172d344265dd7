//! Many open sockets, few of them busy.

mod plain;

use super::{Run, crowd, crowd::Crowd};
use crate::bench::Bench;
use crate::floor;
use crate::outcome::Outcome;
use crate::pair::{TIMEOUT, Transport};
use crate::process::{self, Cost, Spent};
use crate::report::{Axis, Percentiles, Role, Row, counted};
use crate::sockets::Kind;
use gpunet_bench_kernel::Busy;
use gpunet_device::{Options, SockAddr};
use gpunet_proxy::FinishPolicy;
use std::time::Duration;

/// Bytes of a busy stream's messages.
const SIZE: u64 = 64;
/// The rings of busy streams.
const RING: u64 = 64 << 10;
/// Round trips of a pair that are recorded.
const SAMPLES: u64 = 50_000;
/// Descriptors for everything but the sockets.
const DESCRIPTORS: u64 = 500;
/// From this number of sockets on, the memory of one can be measured.
const MANY: u64 = 1000;
/// Threads of a block, on a GPU.
const THREADS: u32 = 128;

/// One table.
struct Scene {
    transport: Transport,
    /// Pairs of blocks that are busy.
    busy: u32,
    duration: Duration,
    counts: Vec<u64>,
}

/// Measures one connection to 10,000 open sockets, over tcp and over peer, with one busy pair and
/// with several.
pub fn scale(run: &mut Run<'_>) -> Outcome<()> {
    let descriptors = process::more_descriptors();
    let most = descriptors.saturating_sub(DESCRIPTORS);
    if most < 2 {
        return Err(format!(
            "this process may have {descriptors} descriptors (ulimit -Hn): {DESCRIPTORS} are for everything but the sockets"
        )
        .into());
    }
    let wanted =
        run.effort.of(vec![2, 1000], vec![2, 100, 1000, 10_000], vec![2, 10, 100, 1000, 3000, 10_000]);
    let duration = run.effort.of(Duration::from_millis(400), Duration::from_secs(1), Duration::from_secs(3));
    for transport in [Transport::Tcp, Transport::Peer] {
        let several = if run.open()?.is_gpu() { 8 } else { 4 };
        for busy in [1, several] {
            let counts: Vec<u64> = wanted.iter().map(|&count| count.min(most)).collect();
            let few = counts != wanted;
            let counts = counts.into_iter().filter(|&count| busy == 1 || count >= 2 * u64::from(busy));
            let mut scene = Scene { transport, busy, duration, counts: counts.collect() };
            scene.counts.dedup();
            if scene.counts.is_empty() {
                continue;
            }
            scene.play(run)?;
            if few {
                run.recorder.note(format!(
                    "not more than {most} sockets: this process may have {descriptors} descriptors (ulimit -Hn)"
                ));
            }
        }
    }
    Ok(())
}

impl Scene {
    /// Records a table: floors and references with each number of sockets, then blocks.
    fn play(&self, run: &mut Run<'_>) -> Outcome<()> {
        let bench = run.open()?;
        let transport = self.transport.name();
        let mut setting = super::settings(&bench, THREADS);
        setting.push(("transport", transport.to_owned()));
        setting.push(("placement", crowd::placement(run, self.transport)?));
        setting.push(("rings", format!("{} KiB, of busy streams {} KiB", crowd::RING >> 10, RING >> 10)));
        setting.push(("sockets", "both ends of each connection, the busy ones among them".to_owned()));
        let title = format!("{}, {transport}, {}: {SIZE} B there and back", bench.title(), self.pairs());
        run.recorder.table("scale", title, Axis::TimeByCount, setting, 8 * self.counts.len())?;
        let (kind, plain) = match self.transport {
            Transport::Tcp => (Kind::Tcp, true),
            _ => (Kind::Unix, !bench.is_gpu()),
        };
        if plain {
            for &sockets in &self.counts {
                plain::record(run, kind, self, sockets)?;
            }
            run.recorder.note("references: threads of this process");
        }
        if self.busy == 1 {
            self.floors(run, &bench)?;
        }
        drop(bench);
        for &sockets in &self.counts {
            self.blocks(run, sockets)?;
        }
        if self.busy == 1 {
            run.recorder.note(
                "memory is what this process's resident memory has grown by: the kernel's own memory for sockets \
                 is not in it, and rings are once they have been used",
            );
        }
        if run.proxy.names_a_daemon() {
            run.recorder.note("processor time is measured in this process: run it without --daemon");
        }
        Ok(())
    }

    fn pairs(&self) -> String {
        counted(self.busy, "busy pair")
    }

    /// Returns how many of `sockets` sockets are silent.
    fn silent(&self, sockets: u64) -> u64 {
        sockets.saturating_sub(2 * u64::from(self.busy))
    }

    /// Measures hand-offs without sockets. Over peer these are the two of a round trip. Over tcp
    /// they are the time of plain sockets and two hand-offs. (A round trip between two blocks has
    /// four.) No round trip is shorter.
    fn floors(&self, run: &mut Run<'_>, bench: &Bench) -> Outcome<()> {
        let rounds = run.effort.of(2000, 10_000, 20_000);
        let over_peer = self.transport == Transport::Peer;
        let cpu = Bench::cpu()?;
        let ends = if over_peer { [bench, bench] } else { [&cpu, bench] };
        let row = floor::ping_pong(ends, THREADS, SIZE, rounds)?;
        let Some(hand) = row.as_times().map(|one_way| one_way.plus(one_way)) else { return Ok(()) };
        for &sockets in &self.counts {
            let (times, what): (Option<Percentiles>, _) = if over_peer {
                (Some(hand.clone()), "data and flag, two ways")
            } else {
                let plain = run.recorder.times(&plain::series(Kind::Tcp, true), sockets);
                (plain.map(|plain| plain.plus(&hand)), "plain TCP and two hand-offs to the device (sum)")
            };
            if let Some(times) = times {
                let name = format!("{sockets} sockets, {what}");
                run.recorder.row(Row::percentiles(Role::Floor, name, times).at("floor", sockets));
            }
        }
        Ok(())
    }

    /// Measures `sockets` sockets, some of them busy.
    fn blocks(&self, run: &mut Run<'_>, sockets: u64) -> Outcome<()> {
        let mut crowd = Crowd::open(run, crowd::config(sockets), self.transport, self.silent(sockets))?;
        let (samples, trips, spent) = self.busy(&mut crowd)?;
        let row = Row::all_times(Role::Gpunet, format!("{sockets} sockets, round trip"), &samples);
        run.recorder.row(row.at(format!("gpunet, {}", self.transport.name()), sockets));
        if !run.proxy.names_a_daemon() {
            let number = |what: &str, value, unit| {
                Row::number(Role::Gpunet, format!("{sockets} sockets, {what}"), value, unit)
            };
            run.recorder.row(number("the proxy's threads", spent.share(), "% of a core"));
            let each = spent.busy.as_secs_f64() * 1e6 / (2 * trips.max(1)) as f64;
            run.recorder.row(number("the proxy's threads, a message", each, "us"));
        }
        if self.busy == 1 && sockets >= MANY {
            memory(run, Role::Gpunet, "this process's memory", sockets, crowd.resident_each);
            memory(run, Role::Gpunet, "rings", sockets, crowd.rings_each);
        }
        let report = crowd.bench.close();
        if report.unfinished > 0 {
            run.recorder
                .note(format!("{sockets} sockets: {} streams had not ended in time", report.unfinished));
        }
        Ok(())
    }

    /// Runs busy pairs for a time. Returns the nanoseconds of round trips, their number, and the
    /// proxy's processor time.
    fn busy(&self, crowd: &mut Crowd) -> Outcome<(Vec<u64>, u64, Spent)> {
        let (bench, blocks) = (&crowd.bench, 2 * self.busy);
        let words = Busy::words(SAMPLES);
        let job = bench.job((SIZE * u64::from(blocks)) as usize, blocks as usize * words)?;
        let addr = SockAddr::from(crowd.ports.take(self.busy as u16));
        let options = Options::DEFAULT
            .with_transport(self.transport.kind())
            .with_rings(RING, RING)
            .with_timeouts(TIMEOUT, TIMEOUT);
        bench.prepare::<Busy>(THREADS)?;
        let cost = Cost::begin()?;
        let launch = bench.start(blocks, bench.threads(THREADS), |net| Busy {
            net,
            addr,
            options,
            buffer: job.buffer(),
            size: SIZE,
            duration_ns: self.duration.as_nanos() as u64,
            samples: SAMPLES,
            results: job.results(),
        })?;
        // Before the streams are closed and the results are copied.
        launch.wait_timeout(self.duration * 10)?;
        let spent = cost.end()?;
        let all = bench.finish_with(launch, &job, FinishPolicy::Keep)?;
        let ends: Vec<&[u64]> = all.chunks_exact(words).collect();
        Bench::no_failure(&ends.iter().map(|end| end[0]).collect::<Vec<_>>())?;
        let clients = || ends.iter().skip(1).step_by(2);
        let samples = clients().flat_map(|client| {
            let samples = &client[1..=client[0].min(SAMPLES) as usize];
            // The first tenth of each is warm-up.
            &samples[samples.len() / 10..]
        });
        Ok((samples.copied().collect(), clients().map(|client| client[0]).sum(), spent))
    }
}

/// Records a row with the memory of a connection.
fn memory(run: &mut Run<'_>, role: Role, what: &str, sockets: u64, bytes: f64) {
    let name = format!("{sockets} sockets, {what}, a connection");
    run.recorder.row(Row::number(role, name, bytes, "bytes"));
}
