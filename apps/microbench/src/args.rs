//! The command line.

use crate::bench::device_name;
use crate::effort::Effort;
use crate::measure::{
    AttendArgs, BandwidthArgs, CheckArgs, ClientsArgs, LatencyArgs, PlainServerArgs, RateArgs,
    ReceiveTensorsArgs, ServersArgs, StagedArgs, StreamArgs, SymmetricArgs, TensorsArgs,
};
use crate::pair::EndArgs;
use crate::suite::ReportArgs;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Parser, Subcommand};
use gpunet_app::proxy::ProxyArgs;
use gpunet_proxy::config::Lines;
use std::path::PathBuf;

/// Checks and measures gpunet sockets; each measurement shows a floor and a reference from the same
/// run.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Args {
    /// Use the gpunetd that listens at PATH. Without it a proxy runs in this process.
    #[arg(long, global = true, env = "GPUNET_DAEMON", value_name = "PATH", hide_env_values = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from))]
    daemon: Option<PathBuf>,
    /// Which streams have lines, in which small messages carry their own flags: auto (those with a
    /// GPU at one end), on or off; or units, which take their place in kernels of GPUs that are
    /// compiled for them (this program's are not: docs/design/units.md). A daemon has a setting of
    /// its own.
    #[arg(long, global = true, env = "GPUNET_LINES", value_name = "WHICH", hide_env_values = true)]
    lines: Option<Lines>,
    /// Device: cpu, cuda or cuda:N. Without it: the first GPU, else the CPU.
    #[arg(long, global = true, default_value = "auto", value_parser = device_name)]
    pub device: String,
    /// Run fewer rounds and fewer sizes.
    #[arg(long, global = true, conflicts_with = "full")]
    pub quick: bool,
    /// Run more rounds and more sizes.
    #[arg(long, global = true)]
    pub full: bool,
    /// Leave out foreign programs and libraries (rstream, perftest, NVSHMEM, NCCL,
    /// cudaMemcpyAsync, redis-server, iperf3, hyper, Triton).
    #[arg(long, global = true)]
    pub without_foreign: bool,
    /// Where `report` keeps what NVSHMEM, NCCL and cudaMemcpyAsync have said, so that each of its
    /// measurements need not run them again. They are built in the folder above.
    #[arg(long, global = true, hide = true, value_name = "DIR")]
    pub foreign_folder: Option<PathBuf>,
    /// Write all results to FILE, as one JSON object.
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw charts of the results into FILE, as SVG.
    #[arg(long, global = true, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Insert the tables of results into this document, between its two marker lines.
    #[arg(long, global = true, value_name = "FILE.md")]
    pub tables: Option<PathBuf>,
    #[command(subcommand)]
    pub what: What,
}

impl Args {
    /// The proxy to use.
    pub fn proxy(&self) -> ProxyArgs {
        ProxyArgs { daemon: self.daemon.clone(), lines: self.lines, ..ProxyArgs::default() }
    }

    pub const fn effort(&self) -> Effort {
        match (self.quick, self.full) {
            (true, _) => Effort::Quick,
            (_, true) => Effort::Full,
            _ => Effort::Usual,
        }
    }
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum What {
    /// Verify streams over many block shapes, groups and transports, also with divergent lanes.
    /// With --other or --processes the streams connect two devices or two processes.
    Check(CheckArgs),
    /// Provoke faults and check that they end well: launches that leave sockets while others wait
    /// on them, panics, a program that is stopped for 4 s.
    Faults,
    /// Time the steps of one hand-off: flags, data and flags, from a send until the proxy sees it,
    /// from a landing until the kernel sees it.
    Handoff,
    /// Measure ping-pong of 1 B to 4 MiB.
    Latency(LatencyArgs),
    /// Measure the throughput of streams.
    Bandwidth(BandwidthArgs),
    /// Measure how many small messages a second blocks send.
    Rate(RateArgs),
    /// Measure connections per second, and the time from accept to the first byte.
    Connect,
    /// Measure an echo server with plain TCP clients: latency, bandwidth, connections, first
    /// messages after a silence.
    Clients(ClientsArgs),
    /// Measure servers of applications beside those that a user would take instead: gpunet-kv and
    /// redis-server, gpunet-hello-http and hyper, an echo by a Triton kernel and by a plain Python
    /// program.
    Servers(ServersArgs),
    /// Measure NVSHMEM, NCCL and cudaMemcpyAsync alone.
    References,
    /// Measure 1 to 10,000 open sockets, few of them busy.
    Scale,
    /// Measure a block that watches 2 to 10,000 tcp sockets with a poll group.
    Watch,
    /// Measure the wake-up time after an idle period, and the processor time of an idle proxy.
    Idle,
    /// Measure how soon the proxy notices a block that sends at regular intervals, and the
    /// processor time that this costs.
    Rhythm,
    /// Measure how soon a connection's bell is heard that another block or this program rings, and
    /// the processor time of a message each 20 ms.
    Rings,
    /// Measure 32 senders to one receiver: total rate and fairness.
    Incast,
    /// Measure the copy routine between device and pinned memory, at all alignments.
    Copy,
    /// Measure queues: ping-pong in the order of two streams beside streams by hand, prepared
    /// messages of kernels, how many queues may wait at a time; and check messages byte by byte.
    Stream(StreamArgs),
    /// Measure how fast queues move memory of the device to plain programs and from them, beside
    /// the copy engine.
    Staged(StagedArgs),
    /// Measure calls of kernels to functions of this program, beside a socket to a CPU block.
    Calls,
    /// Measure records and printed lines of kernels: what a warp takes to write them, how many a
    /// second reach a plain TCP reader, how soon a line does; beside CUDA's printf.
    Records,
    /// Measure symmetric memory: messages with a signal, puts, and barriers and collectives of
    /// several members.
    Symmetric(SymmetricArgs),
    /// Measure whole arrays between two processes, beside one copy and plain sockets, and say why
    /// they were not copied once.
    Tensors(TensorsArgs),
    /// Measure how long it takes to attach to the daemon that --daemon names, without a GPU.
    Attach,
    /// Run everything but attach, calls, check, clients, faults, rate, records, references, rhythm,
    /// rings, servers, staged, stream, symmetric, tensors and watch.
    All,
    /// Run a list of measurements, each in a process of its own and with a limit of time, and keep
    /// all tables in one file. What cannot run here is in it with the reason.
    Report(ReportArgs),
    /// Make tables of documents, --plot and --tables from the results that earlier runs wrote with
    /// --json or report. Measures nothing.
    Render(RenderArgs),
    /// Print which rows changed between two reports by more than their spread.
    Compare(CompareArgs),
    /// One end of a measurement: tasks on stdin, results on stdout, as JSON lines.
    #[command(hide = true)]
    End(EndArgs),
    /// A process of `faults`: serves clients, and reports on stdout as JSON lines.
    #[command(hide = true)]
    Attend(AttendArgs),
    /// A plain server of `clients`: serves until it is killed.
    #[command(hide = true)]
    PlainServer(PlainServerArgs),
    /// The other process of `tensors`.
    #[command(hide = true)]
    ReceiveTensors(ReceiveTensorsArgs),
}

/// What `render` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct RenderArgs {
    /// The files that --json or report wrote. Marks call each by its name without .json.
    #[arg(required = true, value_name = "FILE.json")]
    pub from: Vec<PathBuf>,
    /// Replace the tables of all pages in this folder and below whose marks name a report.
    #[arg(long, value_name = "DIR")]
    pub docs: Option<PathBuf>,
    /// Write nothing. Print which tables of --docs differ, and end with exit code 1 if one does.
    #[arg(long, requires = "docs")]
    pub check: bool,
}

/// What `compare` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct CompareArgs {
    pub old: PathBuf,
    pub new: PathBuf,
    /// By how many percent rows spread that were measured once.
    #[arg(long, default_value_t = 10, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..100))]
    pub spread: u32,
}
