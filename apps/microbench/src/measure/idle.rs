//! The processor time of an idle proxy, and the time that it takes to wake up.

mod wake;

pub use wake::{REFERENCE, asks, plain_asks};

use super::crowd::{self, Crowd};
use super::{Run, settings};
use crate::bench::{Bench, Job};
use crate::outcome::Outcome;
use crate::pair::{TIMEOUT, Transport};
use crate::process::{self, Cost};
use crate::report::{Axis, Role, Row};
use crate::sockets::{ListenAddr, Socket};
use gpunet_bench_kernel::Serve;
use gpunet_device::{Options, SockAddr, TransportKind};
use gpunet_proxy::{Config, Launch};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Threads of a block, on a GPU.
const THREADS: u32 = 128;
/// A shorter bound of the data threads' sleep, which costs more processor time.
const SHORT: Duration = Duration::from_micros(100);
/// Descriptors for everything but the sockets.
const DESCRIPTORS: u64 = 500;

/// Measures the processor time of an idle proxy, and the first message after a silence.
pub fn idle(run: &mut Run<'_>) -> Outcome<()> {
    let most = process::more_descriptors().saturating_sub(DESCRIPTORS);
    if run.proxy.names_a_daemon() {
        shares_table(run)?;
        run.recorder.note("processor time is measured in this process: run it without --daemon");
    } else {
        shares(run, most)?;
    }
    wake::from_network(run)?;
    wake::from_device(run)
}

fn shares_table(run: &mut Run<'_>) -> Outcome<()> {
    let bench = run.open()?;
    let mut setting = settings(&bench, THREADS);
    setting.push(("rings", format!("{} KiB", crowd::RING >> 10)));
    setting.push(("beside", "a server block that waits for its plain TCP client".to_owned()));
    let title = format!("{}, the proxy's threads beside silent sockets", bench.title());
    run.recorder.table("idle", title, Axis::None, setting, 7)?;
    Ok(())
}

/// Measures the processor time with silent sockets.
fn shares(run: &mut Run<'_>, most: u64) -> Outcome<()> {
    shares_table(run)?;
    let counts = run.effort.of(vec![0, 1000], vec![0, 1000, 10_000], vec![0, 1000, 10_000]);
    for sockets in counts {
        let transports =
            if sockets == 0 { vec![Transport::Tcp] } else { vec![Transport::Tcp, Transport::Peer] };
        for transport in transports {
            if sockets > most && transport == Transport::Tcp {
                run.recorder
                    .note(format!("without {sockets} tcp sockets: there are descriptors for {most} at most"));
                continue;
            }
            share(run, crowd::config(sockets), transport, sockets, "")?;
        }
    }
    for sockets in [1, 100, 1000].map(|sockets| most.min(sockets)) {
        let short = Config { latency: SHORT, ..crowd::config(sockets) };
        share(run, short, Transport::Tcp, sockets, ", Config::latency 100 us")?;
    }
    run.recorder.note("Config::latency bounds the sleep of threads that serve a GPU; CPU blocks ring a bell");
    Ok(())
}

/// Measures one row.
fn share(run: &mut Run<'_>, config: Config, transport: Transport, sockets: u64, how: &str) -> Outcome<()> {
    let mut crowd = Crowd::open(run, config, transport, sockets)?;
    let served = Served::start(&crowd.bench, crowd.ports.take(1))?;
    // Earlier work finishes in this time.
    std::thread::sleep(Duration::from_millis(200));
    let cost = Cost::begin()?;
    std::thread::sleep(Duration::from_secs(run.effort.of(1, 3, 10)));
    let share = cost.end()?.share();
    served.end(&crowd.bench)?;
    let kind = if sockets == 0 { String::new() } else { format!(" over {}", transport.name()) };
    let name = format!("{sockets} silent sockets{kind}{how}");
    run.recorder.row(Row::number(Role::Gpunet, name, share, "% of a core"));
    Ok(())
}

/// A server block with its plain TCP client.
struct Served {
    client: Socket,
    launch: Launch,
    job: Job,
}

impl Served {
    fn start(bench: &Bench, addr: SocketAddr) -> Outcome<Self> {
        bench.prepare::<Serve>(THREADS)?;
        let job = bench.job(65536, 2)?;
        // Longer than any silence; the block ends when its client does.
        let options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_timeouts(TIMEOUT, TIMEOUT);
        let launch = bench.start(1, bench.threads(THREADS), |net| Serve {
            net,
            addr: SockAddr::from(addr),
            options,
            buffer: job.buffer(),
            results: job.results(),
        })?;
        let start = Instant::now();
        let client = loop {
            match Socket::connect(&ListenAddr::Tcp(addr)) {
                Err(_) if start.elapsed() < Duration::from_secs(10) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                result => break result?,
            }
        };
        Ok(Self { client, launch, job })
    }

    fn end(self, bench: &Bench) -> Outcome<()> {
        let Self { client, launch, job } = self;
        drop(client);
        Bench::no_failure(&bench.finish(launch, &job)?[1..])
    }
}
