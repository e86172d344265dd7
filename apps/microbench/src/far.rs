//! Streams between two devices, or two processes, beside their floors from the same run.

mod check;
mod child;
mod end;
mod floor;
mod task;
mod unix;

use crate::bench::{self, Bench, Outcome};
use crate::measure::{show, span};
use crate::table::Percentiles;
use child::Children;
pub use child::EndArgs;
pub use child::serve as serve_end;
use clap::Args;
use end::End;
use gpu_usermap::cuda::Cuda;
use std::path::PathBuf;
use std::time::Duration;
use task::{Ports, Work};

/// What `far` and `far-check` take.
#[derive(Args, Clone, Debug)]
pub struct FarArgs {
    /// The device of the other end, the server: cpu or cuda:N. Without it: the second GPU, else the CPU.
    #[arg(long, default_value = "auto")]
    other: String,
    /// Each end in a process of its own, attached to a daemon.
    #[arg(long)]
    processes: bool,
    /// Where a gpunetd listens. Without it, --processes starts the one beside this program.
    #[arg(long, value_name = "PATH", requires = "processes")]
    daemon: Option<PathBuf>,
    /// Threads of a block that exchanges messages, on a GPU.
    #[arg(long, default_value_t = 128)]
    threads: u32,
    /// Only this many pairs of blocks in bandwidth.
    #[arg(long)]
    pairs: Option<u32>,
    /// Only blocks of so many threads in bandwidth, and of at most so many in far-check.
    #[arg(long)]
    wide: Option<u32>,
    /// Only latency, or only bandwidth.
    #[arg(long)]
    only: Option<Only>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    Latency,
    Bandwidth,
}

/// Two ends that talk to each other.
struct Pair {
    server: End,
    client: End,
    ports: Ports,
    args: FarArgs,
    quick: bool,
    /// Both ends in this process.
    one_process: bool,
}

/// The names of both devices; `auto` is the first and the second GPU, if there are so many.
fn devices(device: &str, other: &str) -> [String; 2] {
    let gpus = Cuda::load().ok().and_then(|cuda| cuda.device_count().ok()).unwrap_or(0);
    let choose = |name: &str, nth: u32| match name {
        "auto" if gpus > nth => format!("cuda:{nth}"),
        "auto" => "cpu".to_owned(),
        named => named.to_owned(),
    };
    [choose(device, 0), choose(other, 1)]
}

impl Pair {
    fn here([device, other]: &[String; 2], args: &FarArgs, quick: bool) -> Outcome<Self> {
        let proxy = bench::proxy(None)?;
        let server = End::here(Bench::attach(&proxy, other, quick)?);
        let client = End::here(Bench::attach(&proxy, device, quick)?);
        Ok(Self { server, client, ports: Ports::default(), args: args.clone(), quick, one_process: true })
    }

    /// Plays both ends, and returns their words, the server's first.
    fn play(&mut self, work: &Work, threads: u32) -> Outcome<[Vec<u64>; 2]> {
        let [servers, clients] = self.ports.tasks(work, threads);
        // No loading beside a kernel that waits.
        for end in [&self.server, &self.client] {
            end.bench().map_or(Ok(()), |bench| bench.prepare(threads))?;
        }
        self.server.start(&servers)?;
        let started = self.client.start(&clients);
        let client = started.and_then(|()| self.client.finish());
        let server = self.server.finish();
        let checked = |words: Outcome<Vec<u64>>, serves: bool| {
            words.and_then(|words| Bench::no_failure(&work.outcomes(serves, &words)).map(|()| words))
        };
        // The client's reason first: the server's is often that the client is gone.
        let client = checked(client, false).map_err(|error| format!("client: {error}"))?;
        let server = checked(server, true).map_err(|error| format!("server: {error}"))?;
        Ok([server, client])
    }

    /// Says whether an end is a GPU.
    fn is_gpu(&self) -> bool {
        self.client.is_gpu() || self.server.is_gpu()
    }

    fn title(&self) -> String {
        let place = if self.one_process { "one process" } else { "two processes" };
        format!("client {}, server {}, {place}", self.client.name(), self.server.name())
    }
}

/// Runs `body` on the pair that the command line names; processes are ended afterwards.
fn with_pair(
    device: &str,
    args: &FarArgs,
    quick: bool,
    body: impl FnOnce(&mut Pair) -> Outcome<bool>,
) -> Outcome<bool> {
    let names = devices(device, &args.other);
    if !args.processes {
        return body(&mut Pair::here(&names, args, quick)?);
    }
    let mut children = Children::start(args.daemon.clone())?;
    let server = children.end("server", &names[1])?;
    let client = children.end("client", &names[0])?;
    let ports = Ports::default();
    body(&mut Pair { server, client, ports, args: args.clone(), quick, one_process: false })
}

/// `far-check`.
pub fn check(device: &str, args: &FarArgs, quick: bool) -> Outcome<bool> {
    with_pair(device, args, quick, check::run)
}

/// `far`.
pub fn measure(device: &str, args: &FarArgs, quick: bool) -> Outcome<bool> {
    let names = devices(device, &args.other);
    if args.processes {
        // Floors, and the same streams inside one process: not while the children's kernels run.
        let mut pair = Pair::here(&names, args, quick)?;
        println!("-- floors: {}", pair.title());
        floors(&mut pair)?;
        if names.iter().all(|name| name == "cpu") {
            println!("-- {}", pair.title());
            streams(&mut pair)?;
        }
    }
    with_pair(device, args, quick, |pair| {
        println!("-- {}", pair.title());
        if pair.one_process {
            floors(pair)?;
        }
        if !pair.is_gpu() {
            unix_sockets(pair)?;
        }
        streams(pair)?;
        Ok(true)
    })
}

const SIZES: [u64; 6] = [64, 8, 1024, 8192, 65536, 1 << 20];

fn rounds(size: u64, quick: bool) -> u64 {
    let rounds = if size > 100_000 { 1000 } else { 10_000 };
    if quick { rounds / 5 } else { rounds }
}

fn does(pair: &Pair, what: Only) -> bool {
    pair.args.only.is_none_or(|only| only == what)
}

fn floors(pair: &mut Pair) -> Outcome<()> {
    let (threads, quick) = (pair.args.threads, pair.quick);
    let (Some(server), Some(client)) = (pair.server.bench(), pair.client.bench()) else { return Ok(()) };
    let ends = [server, client];
    if does(pair, Only::Latency) {
        floor::ping_pong(ends, threads, 0, rounds(0, quick))?;
        for size in SIZES {
            floor::ping_pong(ends, threads_for(size, threads), size, rounds(size, quick))?;
        }
    }
    if does(pair, Only::Bandwidth) && client.is_gpu() {
        for threads in wide(&pair.args) {
            for blocks in [1, 4, 16, 32] {
                floor::copy(ends, blocks, threads, quick)?;
            }
        }
    }
    Ok(())
}

/// The threads of a block, where there can be more than one.
fn with_threads(gpu: bool, threads: u32) -> String {
    if gpu { format!(", {threads} threads") } else { String::new() }
}

/// Threads of the blocks that move much.
fn wide(args: &FarArgs) -> Vec<u32> {
    args.wide.map_or(vec![512, 1024], |only| vec![only])
}

/// Large messages want more threads than the small ones that latency is about.
fn threads_for(size: u64, threads: u32) -> u32 {
    if size > 8192 { threads.max(512) } else { threads }
}

fn streams(pair: &mut Pair) -> Outcome<()> {
    if does(pair, Only::Latency) {
        for size in SIZES {
            let threads = threads_for(size, pair.args.threads);
            let [_, words] = pair.play(&Work::Echo { size, rounds: rounds(size, pair.quick) }, threads)?;
            let name = format!("gpunet: {size} B, one way{}", with_threads(pair.is_gpu(), threads));
            Percentiles::of_one_way(&words[2..]).row(&name);
        }
    }
    if does(pair, Only::Bandwidth) {
        bandwidth(pair)?;
    }
    Ok(())
}

fn bandwidth(pair: &mut Pair) -> Outcome<()> {
    let gpu = pair.client.is_gpu() && pair.server.is_gpu();
    let shapes = if pair.is_gpu() { wide(&pair.args) } else { vec![1] };
    let counts: &[u32] = if gpu { &[1, 4, 16, 32] } else { &[1, 4] };
    let counts: Vec<u32> = match pair.args.pairs {
        Some(only) => vec![only],
        None => counts.to_vec(),
    };
    let per_pair: u64 = if pair.quick { 512 << 20 } else { 2 << 30 };
    for threads in shapes {
        for message in [256 << 10, 1 << 20, 4 << 20] {
            for &pairs in &counts {
                // About as long for many pairs as for one.
                let bytes = per_pair / if pairs > 8 { 2 } else { 1 };
                let work = Work::Flow { pairs, ring: 4 << 20, message, bytes };
                let [words, _] = pair.play(&work, threads)?;
                let calls: u64 = words.chunks_exact(4).map(|block| block[3]).sum();
                let piece = (bytes * u64::from(pairs) / calls.max(1)) >> 10;
                let name = format!(
                    "gpunet: {pairs} pairs, {} KiB a send, {piece} a recv{}",
                    message >> 10,
                    with_threads(pair.is_gpu(), threads)
                );
                show(&name, bytes * u64::from(pairs), span(&words));
            }
        }
    }
    Ok(())
}

/// The peer of streams between two processes on CPUs: a Unix-domain socket between the same two.
fn unix_sockets(pair: &mut Pair) -> Outcome<()> {
    if does(pair, Only::Latency) {
        for (size, spin) in [(64, true), (64, false), (8192, true)] {
            let work = Work::UnixEcho { spin, size, rounds: rounds(size, pair.quick) };
            let [_, words] = pair.play(&work, 1)?;
            let how = if spin { "both spinning" } else { "blocking" };
            Percentiles::of_one_way(&words).row(&format!("peer: {size} B, one way, Unix socket, {how}"));
        }
    }
    if does(pair, Only::Bandwidth) {
        for message in [256 << 10, 1 << 20] {
            let bytes: u64 = if pair.quick { 512 << 20 } else { 4 << 30 };
            let [words, _] = pair.play(&Work::UnixFlow { message, bytes }, 1)?;
            let time = Duration::from_nanos(words[1].max(1));
            show(&format!("peer: Unix socket, blocking, {} KiB a call", message >> 10), words[0], time);
        }
    }
    Ok(())
}
