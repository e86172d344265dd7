//! The command line.

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use gpunet_abi::options::{MAX_RING_LOG2, MIN_RING_LOG2};
use gpunet_app::cli::{self, Endpoint, Transport, UsageError};
use gpunet_app::device::DeviceChoice;
use gpunet_app::proxy::ProxyArgs;

/// The port of rstream.
const PORT: u16 = 7471;

const EXAMPLES: &str = "\
Examples:
  gpunet-rstream server --transport rc --verify -S 65536 -C 100 -I 10   then: rstream -s HOST -T v -S 65536 -C 100 -I 10
  gpunet-rstream client HOST --transport rc --verify -S 20000 -C 50     the server: rstream -T v -S 20000 -C 50
  gpunet-rstream server --transport rc --verify --all                   then: rstream -s HOST -T v
  gpunet-rstream both --transport peer --verify --all                   both ends in this process
  gpunet-rstream client HOST:7471 --transport tcp --device cuda:1       against another gpunet-rstream

Give both ends the same sizes and counts, as with rstream. Exit codes: 0 success, 1 something failed or data differed,
2 bad command line, 130 interrupted (0 for a server with --connections 0, which runs until it is interrupted).";

/// Either end of librdmacm's test program rstream, run by a kernel.
///
/// In each iteration the client sends a number of transfers. When the server has received all of
/// them, it sends as many back. Over rc the other end may be an unmodified rstream; over tcp and
/// peer it is another gpunet-rstream. The kernel runs on a GPU when there is one, else as a CPU
/// thread block.
#[derive(Debug, Parser)]
#[command(name = "gpunet-rstream", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Accepts connections and runs the test as rstream's server does.
    #[command(after_help = EXAMPLES)]
    Server(ServerArgs),
    /// Connects and runs the test as rstream's client does.
    #[command(after_help = EXAMPLES)]
    Client(ClientArgs),
    /// Runs both ends in this process.
    #[command(after_help = EXAMPLES)]
    Both(BothArgs),
}

/// What to run.
#[derive(Debug)]
pub enum Job {
    /// The server alone.
    Server(ServerArgs),
    /// The client alone.
    Client(ClientArgs),
    /// Both ends in this process.
    Both(BothArgs),
}

/// The test, the same for both ends.
#[derive(Clone, Debug, Args)]
pub struct TestArgs {
    /// Bytes of a transfer, optionally with K or M (rstream -S).
    #[arg(short = 'S', long, value_name = "BYTES", default_value = "1000", value_parser = size)]
    pub size: u64,
    /// Transfers in one direction before the other direction (rstream -C).
    #[arg(short = 'C', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub count: u64,
    /// Iterations, each in both directions (rstream -I).
    #[arg(short = 'I', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MOST))]
    pub iterations: u64,
    /// Run the test that rstream runs without -S, -C and -I: four sizes, one transfer at a time;
    /// then, over a second connection, four sizes, many at a time.
    #[arg(long, conflicts_with_all = ["size", "count", "iterations"])]
    pub all: bool,
    /// With --all: run all 33 sizes (rstream -S all).
    #[arg(long, requires = "all")]
    pub every_size: bool,
    /// Check every received byte; an rstream at the other end needs -T v.
    #[arg(long)]
    pub verify: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Where the kernel runs, and the transport of its streams.
#[derive(Clone, Debug, Args)]
pub struct DeviceArgs {
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Where the kernel runs: auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: DeviceChoice,
    /// Threads of the block [default: 256 on a GPU, 1 on the CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Bytes of each ring, 4K to 16M, optionally with K or M. Rounded up to a power of two.
    #[arg(long, default_value = "1M", value_name = "BYTES", value_parser = ring)]
    pub ring: u64,
}

/// The server.
#[derive(Clone, Debug, Args)]
pub struct ServerArgs {
    /// Address to listen on, IPv4 or IPv6; port 0 takes a free one.
    #[arg(default_value = "0.0.0.0:7471", value_name = "ADDR", value_parser = endpoint)]
    pub addr: Endpoint,
    #[command(flatten)]
    pub test: TestArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Transport; rc is RDMA in rsocket's protocol, for the original rstream, and peer needs both
    /// ends under one --daemon.
    #[arg(long, value_enum, default_value_t = Transport::Auto, value_name = "TRANSPORT")]
    pub transport: Transport,
    /// Number of clients to serve, one after another (with --all each connects twice); 0: until
    /// Ctrl-C.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub connections: u32,
}

/// The client.
#[derive(Clone, Debug, Args)]
pub struct ClientArgs {
    /// The server: IP or NAME, and :PORT if it is not rstream's 7471.
    #[arg(value_name = "ADDR", value_parser = endpoint)]
    pub addr: Endpoint,
    #[command(flatten)]
    pub test: TestArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Transport; rc is RDMA in rsocket's protocol, for the original rstream, and peer needs both
    /// ends under one --daemon.
    #[arg(long, value_enum, default_value_t = Transport::Auto, value_name = "TRANSPORT")]
    pub transport: Transport,
    /// How often to run the whole test, one after another; rstream's server serves once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
}

/// Both ends.
#[derive(Clone, Debug, Args)]
pub struct BothArgs {
    /// Where the server listens and the client connects to; for rc an address of an RDMA device.
    #[arg(default_value = "127.0.0.1:0", value_name = "ADDR", value_parser = endpoint)]
    pub addr: Endpoint,
    #[command(flatten)]
    pub test: TestArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Transport; rc is RDMA.
    #[arg(long, value_enum, default_value_t = Transport::Auto, value_name = "TRANSPORT")]
    pub transport: Transport,
    /// How often to run the whole test, one after another.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
}

/// The most transfers or iterations: rstream's are C integers.
const MOST: u64 = i32::MAX as u64;

/// Largest transfer: two buffers of this size must fit in memory, and rstream's size is a C
/// integer.
const LARGEST: u64 = 1 << 30;

fn size(text: &str) -> Result<u64, String> {
    cli::size(text, 1..=LARGEST)
}

fn ring(text: &str) -> Result<u64, String> {
    cli::size(text, 1 << MIN_RING_LOG2..=1 << MAX_RING_LOG2).map(u64::next_power_of_two)
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    Endpoint::parse(text, Some(PORT))
}

/// Both ends without a daemon.
const OTHERWISE: &str = "gpunet-rstream both";

/// Reads the command line.
pub fn parse<I>(args: I) -> Result<Job, UsageError>
where
    I: IntoIterator,
    I::Item: Into<std::ffi::OsString> + Clone,
{
    Ok(match Cli::try_parse_from(args).map_err(usage_error)?.command {
        Command::Server(args) => {
            args.device.proxy.can_reach_others(args.transport, OTHERWISE)?;
            Job::Server(args)
        }
        Command::Client(args) => {
            args.device.proxy.can_reach_others(args.transport, OTHERWISE)?;
            Job::Client(args)
        }
        Command::Both(args) => Job::Both(args),
    })
}

/// Names the commands if none is given; clap would print the whole help.
fn usage_error(error: clap::Error) -> UsageError {
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            UsageError::Invalid("expected server, client or both".to_owned())
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Job, String> {
        match parse(std::iter::once("gpunet-rstream").chain(args.iter().copied())) {
            Ok(job) => Ok(job),
            Err(UsageError::Invalid(line)) => Err(line),
            Err(UsageError::Help(text)) => panic!("{text}"),
        }
    }

    #[test]
    fn rstreams_defaults_and_options_are_known() {
        let Ok(Job::Server(args)) = parsed(&["server"]) else { panic!("no server") };
        assert_eq!(args.addr.to_string(), "0.0.0.0:7471");
        assert_eq!((args.test.size, args.test.count, args.test.iterations), (1000, 1000, 1));
        assert_eq!((args.connections, args.device.ring), (1, 1 << 20));
        let Ok(Job::Client(args)) = parsed(&["client", "[::1]", "-S", "64K", "-C", "2", "-I", "3"]) else {
            panic!("no client")
        };
        assert_eq!(args.addr.to_string(), "[::1]:7471");
        assert_eq!((args.test.size, args.test.count, args.test.iterations), (64 << 10, 2, 3));
        assert!(parsed(&["client", "::1"]).is_err(), "what of it is the port is not clear");
    }

    #[test]
    fn rings_are_powers_of_two_within_bounds() {
        assert_eq!((ring("4096"), ring("5K"), ring("16M")), (Ok(4096), Ok(8192), Ok(16 << 20)));
        assert!(ring("17M").is_err() && ring("4095").is_err() && ring("").is_err());
    }

    #[test]
    fn every_usage_error_is_one_line_that_names_the_reason() {
        for (args, word) in [
            (&[][..], "server, client or both"),
            (&["server", "--frobnicate"], "--frobnicate"),
            (&["server", "-S", "0"], "1 to 1024M"),
            (&["server", "-C", "0"], "0"),
            (&["server", "--transport", "peer"], "--daemon"),
            (&["both", "--transport", "pigeon"], "auto, tcp, peer, rc"),
            (&["both", "--all", "-S", "5"], "--size"),
            (&["both", "--every-size"], "--all"),
            (&["both", "--ring", "1K"], "4K to 16M"),
            (&["client"], "<ADDR>"),
            (&["client", "h:99999"], "HOST:PORT"),
            (&["client", "h", "--connections", "0"], "0"),
            (&["serve"], "serve"),
        ] {
            let line = parsed(args).map(|_| ()).unwrap_err();
            assert!(line.contains(word) && !line.contains('\n'), "{args:?}: {line}");
        }
    }

    #[test]
    fn examples_in_the_help_are_valid() {
        let examples = EXAMPLES.lines().filter(|line| line.starts_with("  gpunet-rstream"));
        for line in examples {
            let command = line.trim().split("  ").next().unwrap_or_default();
            let parsed = parse(command.split_whitespace());
            assert!(parsed.is_ok(), "{command}: {parsed:?}");
        }
    }
}
