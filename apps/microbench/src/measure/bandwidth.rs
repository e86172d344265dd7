//! The throughput of streams.

mod by_size;

use super::{Run, each_pair};
use crate::bench::Bench;
use crate::effort::Effort;
use crate::floor;
use crate::foreign;
use crate::outcome::Outcome;
use crate::pair::{
    BlockShape, Direction, EndpointKind, Flow, How, Pair, PairArgs, Transport, Work, record_placement, waits,
};
use crate::report::{Axis, Role, Row, counted};
use clap::{Args, ValueEnum};
use gpunet_app::cli::{self, spell};
use gpunet_proxy::Config;
use gpunet_proxy::abi::options::{MAX_RING_LOG2, MIN_RING_LOG2};
use std::net::IpAddr;
use std::thread::available_parallelism;
use std::time::Duration;

/// What `bandwidth` takes.
#[derive(Args, Clone, Debug)]
pub struct BandwidthArgs {
    #[command(flatten)]
    pub pair: PairArgs,
    /// Threads of a block, on a GPU.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Numbers of pairs of blocks, instead of the usual ones. (The other rows are measured, too.)
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=132))]
    pairs: Vec<u32>,
    /// Bytes of a call, with K or M if you like; several with commas.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = |text: &str| cli::size(text, 8..=16 << 20))]
    messages: Vec<u64>,
    /// Bytes of a ring, a power of two, with K or M if you like: 4M, and 1M for tcp, whose copies
    /// should find the ring in the processor's cache.
    #[arg(long, value_name = "BYTES", value_parser = ring)]
    ring: Option<u64>,
    /// A shape that others have published.
    #[arg(long)]
    preset: Option<Preset>,
}

/// Shapes that others have published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Preset {
    /// 60,000 messages of 64 KiB, blocks of 256 threads, rings of 256 KiB, one way and then the
    /// other: the microbenchmark of GPUnet (OSDI'14).
    Gpunet,
}

impl Default for BandwidthArgs {
    fn default() -> Self {
        Self {
            pair: PairArgs::default(),
            threads: 512,
            pairs: Vec::new(),
            messages: Vec::new(),
            preset: None,
            ring: None,
        }
    }
}

const RING: u64 = 4 << 20;
/// The ring of a TCP stream: the data thread's copies go through the processor's cache, which a
/// larger ring does not fit.
const TCP_RING: u64 = 1 << 20;

fn ring(text: &str) -> Result<u64, String> {
    let bytes = cli::size(text, 1 << MIN_RING_LOG2..=1 << MAX_RING_LOG2)?;
    if bytes.is_power_of_two() { Ok(bytes) } else { Err("expected a power of two".to_owned()) }
}

/// Measures streams over all pairs and transports that the command line selects.
pub fn bandwidth(run: &mut Run<'_>, args: &BandwidthArgs) -> Outcome<()> {
    each_pair(run, &args.pair, "bandwidth", |run, devices, transport| one(run, args, devices, transport))
}

impl BandwidthArgs {
    fn ring(&self, transport: Transport) -> u64 {
        let usual = if transport == Transport::Tcp { TCP_RING } else { RING };
        self.ring.unwrap_or(usual)
    }

    /// Returns a configuration with rings for all pairs, whose two ends may belong to one
    /// attachment. Over peer a connection has one ring for each direction; otherwise each of its
    /// ends has two.
    fn config(&self, effort: Effort, transport: Transport) -> Config {
        let usual = if transport == Transport::Peer { effort.of(16, 32, 132) } else { 4 };
        let pairs = self.pairs.iter().copied().max().unwrap_or(usual);
        let each = if transport == Transport::Peer { 2 } else { 4 };
        let rings = u64::from(pairs) * each * self.ring(transport);
        let Config { shared_rings, device_rings, .. } = Config::default();
        let (shared_rings, device_rings) = (shared_rings.max(rings), device_rings.max(rings));
        Config { shared_rings, device_rings, ..Config::default() }
    }
}

/// The sizes of a table.
struct Plan {
    counts: Vec<u32>,
    messages: Vec<u64>,
    /// Bytes of a pair.
    bytes: u64,
    ring: u64,
}

impl Plan {
    fn new(args: &BandwidthArgs, effort: Effort, pair: &Pair, transport: Transport) -> Self {
        let counts: Vec<u32> = if !args.pairs.is_empty() {
            args.pairs.clone()
        } else if !pair.is_gpu() || transport != Transport::Peer {
            vec![1, 4]
        } else if pair.are_one() {
            // Both ends of a pair need a multiprocessor.
            effort.of(vec![1, 16], vec![1, 4, 16, 32], vec![1, 2, 4, 8, 16, 32, 64])
        } else {
            effort.of(vec![1, 16], vec![1, 4, 16, 32], vec![1, 2, 4, 8, 16, 32, 64, 132])
        };
        let messages = if args.messages.is_empty() {
            effort.of(
                vec![1 << 20],
                vec![256 << 10, 1 << 20, 4 << 20],
                vec![4096, 65536, 256 << 10, 1 << 20, 4 << 20],
            )
        } else {
            args.messages.clone()
        };
        let ring = args.ring(transport);
        Self { counts, messages, bytes: effort.of(256 << 20, 1 << 30, 4 << 30), ring }
    }

    /// A flow with the plan's rings.
    fn flow(&self) -> Flow {
        Flow { ring: self.ring, ..Flow::ONE }
    }

    /// Bytes of a pair, chosen so that many pairs and small messages take about as long as one pair
    /// with large ones.
    fn bytes(&self, pairs: u32, message: u64) -> u64 {
        let bytes = self.bytes / if pairs > 8 { 2 } else { 1 };
        let bytes = if message < 65536 { bytes / 8 } else { bytes };
        bytes.next_multiple_of(message)
    }
}

fn one(run: &mut Run<'_>, args: &BandwidthArgs, devices: &[String; 2], transport: Transport) -> Outcome<()> {
    let address = args.pair.address;
    let proxy = run.proxy.open(args.config(run.effort, transport))?;
    let mut pair = Pair::here(proxy, devices, transport, address)?;
    let plan = Plan::new(args, run.effort, &pair, transport);
    let shape = BlockShape { threads: args.threads, ..BlockShape::ONE };
    let apart = args.pair.processes;
    let title = pair.title(apart);
    let mut setting = pair.settings(shape, apart);
    setting.push(("rings", spell(plan.ring)));
    let title = format!("{title}, {}", transport.name());
    let rows = plan.counts.len() * (plan.messages.len() + 4) + 1;
    run.recorder.table("bandwidth", title, Axis::RateByCount, setting, rows)?;
    let floor = floors(run, args, &pair, &plan, transport)?;
    match transport {
        Transport::Peer => {
            if !pair.is_gpu() {
                plain_pairs(run, |spin| EndpointKind::Unix { spin }, address, &plan)?;
            } else if !pair.are_gpus() {
                foreign::between_gpu_and_cpu(run.recorder, foreign::Of::Bandwidth);
            } else if !pair.are_one() || apart {
                foreign::between_gpus(run.recorder, foreign::Of::Bandwidth);
            }
        }
        Transport::Tcp => {
            plain_pairs(run, |spin| EndpointKind::Tcp { spin }, address, &plan)?;
            let seconds = run.effort.of(1, 2, 10);
            foreign::iperf3::bandwidth(run.recorder, address, &plan.counts, seconds);
        }
        Transport::Rc => foreign::rdma_bandwidth(run.recorder, address),
    }
    if apart {
        drop(pair);
        pair = Pair::apart(devices, transport, address, run.proxy)?;
    }
    if args.preset == Some(Preset::Gpunet) {
        return preset(run, &mut pair);
    }
    let (pairs, message) = (plan.counts[0], plan.messages[0]);
    let flow = Flow { pairs, message, bytes: plan.bytes(pairs, message), ..plan.flow() };
    let placement = pair.find_placement(&Work::Flow(flow), shape)?;
    record_placement(run.recorder, placement);
    for &message in &plan.messages {
        for &pairs in &plan.counts {
            let flow = Flow { pairs, message, bytes: plan.bytes(pairs, message), ..plan.flow() };
            let series = format!("gpunet, {} a call", spell(message));
            let row = flow_row(&mut pair, flow, shape, "")?;
            run.recorder.row(row.at(series, u64::from(pairs)));
        }
    }
    variants(run, &mut pair, &plan, shape, transport)?;
    if transport == Transport::Tcp && !apart {
        plain_ends(run, args, &devices[1], &plan, shape)?;
        one_thread(run, args, devices, &plan, shape)?;
    }
    by_size::table(run, &mut pair, &plan, shape, floor, (transport, address, apart))
}

impl Flow {
    /// One pair with one connection.
    pub const ONE: Self = Self {
        pairs: 1,
        connections: 1,
        ring: RING,
        message: 1 << 20,
        bytes: 1 << 30,
        direction: Direction::ToServer,
        how: How::Copies,
    };
}

/// Runs a flow and returns its row. The receivers measure the time: from when the first one's
/// stream is open until the last one has read the end.
fn flow_row(pair: &mut Pair, flow: Flow, shape: BlockShape, how: &str) -> Outcome<Row> {
    let [servers, clients] = pair.play(&Work::Flow(flow), shape)?;
    let receivers: Vec<u64> = match flow.direction {
        Direction::ToServer => servers,
        Direction::ToClient => clients,
        Direction::Both => {
            // The clocks of two devices cannot be compared: each side measures its own time, and
            // the longer one counts.
            let longer = span(&servers).max(span(&clients));
            let name = name(&flow, how);
            return Ok(Row::rate(Role::Gpunet, name, flow.bytes * u64::from(flow.pairs), longer));
        }
    };
    let name = name(&flow, how);
    Ok(Row::rate(Role::Gpunet, name, flow.bytes * u64::from(flow.pairs), span(&receivers)))
}

fn name(flow: &Flow, how: &str) -> String {
    format!("{}, {} a call{how}", counted(flow.pairs, "pair"), spell(flow.message))
}

/// The time from the first block's start to the last one's end, from the four words per block that
/// a flow leaves.
fn span(blocks: &[u64]) -> Duration {
    let began = blocks.chunks_exact(4).map(|block| block[1]).min().unwrap_or(0);
    let ended = blocks.chunks_exact(4).map(|block| block[2]).max().unwrap_or(1);
    Duration::from_nanos(ended.saturating_sub(began).max(1))
}

/// Measures the largest number of pairs over TCP again, under a proxy with a single data thread.
fn one_thread(
    run: &mut Run<'_>,
    args: &BandwidthArgs,
    devices: &[String; 2],
    plan: &Plan,
    shape: BlockShape,
) -> Outcome<()> {
    let pairs = plan.counts.iter().copied().max().unwrap_or(1);
    if pairs == 1 {
        return Ok(());
    }
    if run.proxy.names_a_daemon() {
        run.recorder.note("without a row for one data thread: the daemon's settings decide their number");
        return Ok(());
    }
    let config = args.config(run.effort, Transport::Tcp);
    if config.thread_count() == 1 {
        return Ok(());
    }
    let config = Config { data_threads: 1, ..config };
    let mut pair = Pair::here(run.proxy.open(config)?, devices, Transport::Tcp, args.pair.address)?;
    let flow = Flow { pairs, bytes: plan.bytes(pairs, Flow::ONE.message), ..plan.flow() };
    let row = flow_row(&mut pair, flow, shape, ", 1 data thread")?;
    run.recorder.row(row);
    Ok(())
}

/// Measures both directions at once, zero-copy, and several connections in turn.
fn variants(
    run: &mut Run<'_>,
    pair: &mut Pair,
    plan: &Plan,
    shape: BlockShape,
    transport: Transport,
) -> Outcome<()> {
    let largest = plan.counts.iter().copied().max().unwrap_or(1);
    let message = 1 << 20;
    for pairs in [2, largest] {
        if pairs % 2 == 0 {
            let bytes = plan.bytes(pairs, message);
            let flow = Flow { pairs, message, bytes, direction: Direction::Both, ..plan.flow() };
            run.recorder.row(flow_row(pair, flow, shape, ", half of them the other way")?);
        }
        if pairs == largest {
            break;
        }
    }
    if transport == Transport::Peer {
        for &pairs in &plan.counts {
            let bytes = plan.bytes(pairs, message);
            let flow = Flow { pairs, message, bytes, how: How::InPlace, ..plan.flow() };
            let row = flow_row(pair, flow, shape, ", zero-copy")?;
            run.recorder.row(row.at("gpunet, zero-copy", u64::from(pairs)));
        }
        for message in [4096, 65536] {
            for (how, name) in [(How::Copies, ""), (How::More, ", more follows")] {
                let flow = Flow { message, bytes: plan.bytes(1, message), how, ..plan.flow() };
                run.recorder.row(flow_row(pair, flow, shape, name)?);
            }
        }
    }
    for connections in run.effort.of(vec![64], vec![4, 64], vec![2, 4, 16, 64]) {
        let bytes = (plan.bytes / 4).next_multiple_of(u64::from(connections) << 18);
        let flow =
            Flow { connections, message: 256 << 10, bytes, ring: plan.ring.min(1 << 20), ..plan.flow() };
        let row = flow_row(
            pair,
            flow,
            shape,
            &format!(", {connections} connections in turn, rings of at most 1 MiB"),
        )?;
        run.recorder.row(row);
    }
    Ok(())
}

/// The microbenchmark of the original GPUnet.
fn preset(run: &mut Run<'_>, pair: &mut Pair) -> Outcome<()> {
    let shape = BlockShape { threads: 256, ..BlockShape::ONE };
    for (direction, how) in
        [(Direction::ToServer, ", client to server"), (Direction::ToClient, ", server to client")]
    {
        let flow = Flow { ring: 256 << 10, message: 65536, bytes: 60_000 << 16, direction, ..Flow::ONE };
        let row = flow_row(pair, flow, shape, &format!(", 60,000 messages, rings of 256 KiB{how}"))?;
        run.recorder.row(row);
    }
    Ok(())
}

/// Measures bare copies by as many blocks as there are pairs. Over tcp they go into pinned memory,
/// from which the proxy takes bytes; over rc there are none. Returns the row of one block.
fn floors(
    run: &mut Run<'_>,
    args: &BandwidthArgs,
    pair: &Pair,
    plan: &Plan,
    transport: Transport,
) -> Outcome<Option<Row>> {
    let Some([server, client]) = pair.both() else { return Ok(None) };
    let cpu = Bench::cpu()?;
    let ends = match transport {
        Transport::Peer => [server, client],
        Transport::Tcp => [&cpu, client],
        Transport::Rc => return Ok(None),
    };
    let copy = |blocks: u32| floor::copy(ends, blocks, args.threads, run.effort.of(64, 128, 256));
    let mut of_one = None;
    for &blocks in &plan.counts {
        let [far, near] = copy(blocks)?;
        let far = far.at("floor: bare copies", u64::from(blocks));
        if blocks == 1 {
            of_one = Some(far.clone());
        }
        run.recorder.row(far);
        run.recorder.row(near);
    }
    match of_one {
        None => copy(1).map(|[far, _]| Some(far)),
        found => Ok(found),
    }
}

/// Measures two plain programs.
fn plain_pairs(
    run: &mut Run<'_>,
    kind: fn(bool) -> EndpointKind,
    address: IpAddr,
    plan: &Plan,
) -> Outcome<()> {
    let mut pair = Pair::plain([kind(false); 2], address)?;
    let processors = available_parallelism().map_or(1, usize::from);
    for &pairs in &plan.counts {
        let enough = 2 * pairs as usize <= processors;
        if !enough {
            run.recorder.note(format!(
                "{}: without programs that spin, which need a processor for each end: there are {processors}",
                counted(pairs, "pair")
            ));
        }
        for spin in [false, true].into_iter().filter(|spin| enough || !spin) {
            pair.set_kinds([kind(spin); 2]);
            let flow = Flow { pairs, bytes: plan.bytes(pairs, 1 << 20), ..plan.flow() };
            let [servers, _] = pair.play(&Work::Flow(flow), BlockShape::ONE)?;
            let series = format!("{}, {}", kind(spin).name(), waits(spin));
            let name = format!("{}, two programs, {series}", name(&flow, ""));
            let row = Row::rate(Role::Reference, name, flow.bytes * u64::from(pairs), span(&servers));
            run.recorder.row(row.at(series, u64::from(pairs)));
        }
    }
    Ok(())
}

/// Measures with a plain program at one end.
fn plain_ends(
    run: &mut Run<'_>,
    args: &BandwidthArgs,
    device: &str,
    plan: &Plan,
    shape: BlockShape,
) -> Outcome<()> {
    let proxy = run.proxy.open(args.config(run.effort, Transport::Tcp))?;
    let mut pair = Pair::mixed(proxy, device, EndpointKind::Tcp { spin: false }, false, args.pair.address)?;
    for (direction, what) in
        [(Direction::ToServer, "plain program -> block"), (Direction::ToClient, "block -> plain program")]
    {
        for &pairs in &plan.counts {
            let flow = Flow { pairs, bytes: plan.bytes(pairs, 1 << 20), direction, ..plan.flow() };
            let row = flow_row(&mut pair, flow, shape, &format!(", {what}"))?;
            run.recorder.row(row.at(what, u64::from(pairs)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_rings_for_all_pairs() {
        let usual = BandwidthArgs::default();
        let rings = |args: &BandwidthArgs, effort, transport| args.config(effort, transport).shared_rings;
        let default = Config::default().shared_rings;
        assert_eq!(rings(&usual, Effort::Usual, Transport::Peer), default);
        assert_eq!(rings(&usual, Effort::Full, Transport::Tcp), default);
        assert_eq!(rings(&usual, Effort::Full, Transport::Peer), 132 * 2 * RING);
        let many = BandwidthArgs { pairs: vec![1, 132], ..usual };
        assert_eq!(rings(&many, Effort::Quick, Transport::Tcp), 132 * 4 * TCP_RING);
    }
}
