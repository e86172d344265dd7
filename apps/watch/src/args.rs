//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use gpunet_app::cli::UsageError;
use gpunet_app::device::DeviceChoice;
use gpunet_app::proxy::ProxyArgs;
use gpunet_watch_kernel::Write;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gpunet-watch work                                        a kernel with a planted stall, and what it says
  gpunet-watch work --trace trace.json                     the same as a trace, for ui.perfetto.dev
  gpunet-watch work --serve 127.0.0.1:7070 --serve-lines 127.0.0.1:7071 --for 60
  nc 127.0.0.1 7071                                        its lines
  gpunet-watch collect 127.0.0.1:7070                      its records
  gpunet-watch flood --device cuda --blocks 132            records as fast as they come, and what that takes

Exit codes: 0 success, 1 something failed or data differed, 2 bad command line.";

/// Watches kernels while they run: what they record and print.
#[derive(Debug, Parser)]
#[command(name = "gpunet-watch", version, after_help = EXAMPLES, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a kernel of which one block stalls, and shows what it says.
    Work(WorkArgs),
    /// Runs a kernel that writes records as fast as it can, counts what comes, and checks it.
    Flood(FloodArgs),
    /// Connects to what `--serve` serves, and shows or counts the records.
    Collect(CollectArgs),
}

/// What to run.
#[derive(Debug)]
pub enum Job {
    /// A kernel with a planted stall.
    Work(WorkArgs),
    /// Records as fast as they come.
    Flood(FloodArgs),
    /// A collector.
    Collect(CollectArgs),
}

/// Where kernels run, and who is sent what they say.
#[derive(Clone, Debug, Args)]
pub struct DeviceArgs {
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Where kernels run: auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: DeviceChoice,
    /// Thread blocks.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub blocks: u32,
    /// Threads of a block [default: 128 on a GPU, 1 on the CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Send records to whoever connects to this address.
    #[arg(long, value_name = "ADDR")]
    pub serve: Option<String>,
    /// Send printed lines to whoever connects to this address, as text.
    #[arg(long, value_name = "ADDR")]
    pub serve_lines: Option<String>,
    /// Microseconds by which a record may be late because the reader sleeps; 0: it polls.
    #[arg(long, value_name = "US", default_value_t = 400)]
    pub latency: u64,
}

/// A kernel with a planted stall.
#[derive(Clone, Debug, Args)]
pub struct WorkArgs {
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Steps of a block.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub steps: u32,
    /// The block that stalls.
    #[arg(long, default_value_t = 1, value_name = "BLOCK")]
    pub stalls: u32,
    /// Write spans, counters and lines to this file, for Perfetto and chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Seconds after which the kernel is cancelled.
    #[arg(long = "for", default_value_t = 1, value_name = "SECONDS")]
    pub seconds: u64,
}

/// What a flood consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Records of a warp, 32 bytes each.
    Records,
    /// A record of each lane at a time.
    Lanes,
    /// Printed lines.
    Lines,
    /// Nothing: what the loop itself takes.
    Nothing,
}

impl What {
    /// As the kernel takes it.
    pub const fn write(self) -> Write {
        match self {
            Self::Records => Write::Records,
            Self::Lanes => Write::Lanes,
            Self::Lines => Write::Lines,
            Self::Nothing => Write::Nothing,
        }
    }
}

/// Records as fast as they come.
#[derive(Clone, Debug, Args)]
pub struct FloodArgs {
    #[command(flatten)]
    pub device: DeviceArgs,
    /// What warps write.
    #[arg(value_enum, default_value_t = What::Records)]
    pub what: What,
    /// How often each warp writes.
    #[arg(long, default_value_t = 100_000)]
    pub count: u64,
    /// Records of a ring.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub ring: u32,
    /// Wait for the reader where a ring is full; otherwise the oldest records are lost.
    #[arg(long)]
    pub wait: bool,
    /// Send the records to a collector in this process, over TCP, and count what it gets.
    #[arg(long)]
    pub collect: bool,
}

/// A collector.
#[derive(Clone, Debug, Args)]
pub struct CollectArgs {
    /// The address that `--serve` has.
    #[arg(value_name = "HOST:PORT")]
    pub addr: String,
    /// Count records, and show only how many there were.
    #[arg(long)]
    pub count: bool,
}

/// Reads a command line.
///
/// # Errors
/// [`UsageError`].
pub fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Job, UsageError> {
    Ok(match Cli::try_parse_from(line)?.command {
        Command::Work(args) => Job::Work(args),
        Command::Flood(args) => Job::Flood(args),
        Command::Collect(args) => Job::Collect(args),
    })
}
