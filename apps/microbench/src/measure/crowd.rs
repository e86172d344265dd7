//! An attachment with many open, silent sockets.

use super::Run;
use crate::bench::Bench;
use crate::outcome::Outcome;
use crate::pair::{Ports, TIMEOUT, Transport};
use crate::process;
use gpunet_bench_kernel::Hold;
use gpunet_device::{Options, SockAddr};
use gpunet_proxy::snapshot::Placement;
use gpunet_proxy::{Config, FinishPolicy, Proxy};
use std::net::{IpAddr, Ipv4Addr};

/// Bytes of a silent socket's rings: the smallest possible.
pub const RING: u64 = 4096;
/// Ring memory for busy sockets.
const SPARE: u64 = 32 << 20;
/// Pairs of blocks that open connections at the same time.
const OPENERS: u64 = 4;

/// An attachment with many open sockets. They are closed when it is dropped.
pub struct Crowd {
    pub bench: Bench,
    pub ports: Ports,
    /// Growth of this process's memory per connection, in bytes.
    pub resident_each: f64,
    /// Ring memory per connection, in bytes.
    pub rings_each: f64,
}

/// A configuration with room for `sockets` sockets.
pub fn config(sockets: u64) -> Config {
    let rings = 2 * RING * sockets + SPARE;
    Config { sockets: sockets as u32 + 256, shared_rings: rings, device_rings: rings, ..Config::default() }
}

/// Returns where the rings of a device's streams lie. Opens two sockets to find out.
pub fn placement(run: &Run<'_>, transport: Transport) -> Outcome<String> {
    let proxy = run.proxy.open(Config::small())?;
    let crowd = Crowd::attach(run, &proxy, transport, 2)?;
    let snapshot = proxy.snapshot()?;
    drop(crowd);
    let own: Vec<u32> =
        snapshot.clients.iter().filter(|c| c.pid == std::process::id()).map(|client| client.id).collect();
    let sockets = snapshot.sockets.iter().filter(|socket| own.contains(&socket.client));
    let mut places: Vec<_> =
        sockets.map(|socket| socket.placement).filter(|place| *place != Placement::None).collect();
    places.dedup();
    Ok(places.into_iter().map(Placement::name).collect::<Vec<_>>().join(", "))
}

impl Crowd {
    /// Attaches and opens `sockets` sockets, half of them accepted by the other half.
    pub fn open(run: &Run<'_>, config: Config, transport: Transport, sockets: u64) -> Outcome<Self> {
        Self::attach(run, &run.proxy.open(config)?, transport, sockets)
    }

    fn attach(run: &Run<'_>, proxy: &Proxy, transport: Transport, sockets: u64) -> Outcome<Self> {
        let bench = Bench::attach(proxy, run.device)?;
        bench.prepare::<Hold>(128)?;
        let ports = Ports::of(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut crowd = Self { bench, ports, resident_each: 0.0, rings_each: 0.0 };
        let connections = sockets / 2;
        if connections > 0 {
            let before = (process::resident_afresh()?, crowd.rings());
            crowd.gather(transport, connections)?;
            let each = |after: u64, before| after.saturating_sub(before) as f64 / connections as f64;
            crowd.resident_each = each(process::resident()?, before.0);
            crowd.rings_each = each(crowd.rings(), before.1);
        }
        Ok(crowd)
    }

    fn gather(&mut self, transport: Transport, connections: u64) -> Outcome<()> {
        let pairs = if connections < 64 { 1 } else { OPENERS };
        let blocks = 2 * pairs as u32;
        let bench = &self.bench;
        let job = bench.job(0, blocks as usize)?;
        let addr = SockAddr::from(self.ports.take(pairs as u16));
        let options = Options::DEFAULT
            .with_transport(transport.kind())
            .with_rings(RING, RING)
            .with_timeouts(TIMEOUT, TIMEOUT);
        let launch = bench.start(blocks, bench.threads(128), |net| Hold {
            net,
            addr,
            options,
            connections,
            results: job.results(),
        })?;
        let words = bench.finish_with(launch, &job, FinishPolicy::Keep)?;
        Bench::no_failure(&words)?;
        let opened: u64 = words.iter().sum();
        if opened == 2 * connections { Ok(()) } else { Err(format!("{opened} sockets were opened").into()) }
    }

    /// Returns the ring memory in use.
    fn rings(&self) -> u64 {
        let usage = self.bench.attachment().usage();
        usage.ring_bytes.saturating_sub(usage.free_ring_bytes)
    }
}
