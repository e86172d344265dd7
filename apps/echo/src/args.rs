//! The command line.

use clap::{Args, Parser, Subcommand};
use gpu_usermap::placement::PlacementChoice;
use gpunet_app::cli::{self, Endpoint, Transport, UsageError};
use gpunet_app::device::DeviceChoice;
use gpunet_app::proxy::ProxyArgs;
use std::net::IpAddr;

const EXAMPLES: &str = "\
Examples:
  gpunet-echo                                  the demonstration: server and clients, tcp and then peer
  gpunet-echo --json --size 64,64K --count 500 the same, shorter, as one JSON object
  gpunet-echo server 0.0.0.0:7777              serve everyone; then: printf hello | nc -N HOST 7777
  gpunet-echo server [::]:0 --blocks 16        IPv6 and IPv4, a free port (it is printed), 16 thread blocks
  gpunet-echo client HOST:7777 --connections 8 load any echo server and check its answers
  gpunet-echo --device cuda:1                  run the kernels on the second GPU
  gpunet-echo probe                            what this machine offers, and why something is unused

Exit codes: 0 success, 1 something failed or data differed, 2 bad command line, 130 interrupted (0 for a
server, which runs until it is interrupted).";

/// Echo over sockets for kernels.
///
/// Without a command it starts a proxy, an echo server kernel and echo client kernels in this
/// process, sends messages of several sizes over several connections, first over tcp and then over
/// the in-process peer transport, checks every byte that comes back, and prints a table. Kernels
/// run on a GPU when there is one, else as CPU thread blocks.
#[derive(Debug, Parser)]
#[command(
    name = "gpunet-echo",
    version,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// The command to run. The default is the demonstration.
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    demo: DemoArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs an echo server kernel until Ctrl-C.
    #[command(after_help = EXAMPLES)]
    Server(ServerArgs),
    /// Runs echo client kernels against a server, any TCP echo server.
    #[command(after_help = EXAMPLES)]
    Client(ClientArgs),
    /// Prints what this machine offers, and why something is unused.
    Probe,
}

/// What to run.
#[derive(Debug)]
pub enum Job {
    /// Both halves in this process.
    Demo(DemoArgs),
    /// The server alone.
    Server(ServerArgs),
    /// The clients alone.
    Client(ClientArgs),
    /// [`gpu_usermap::probe()`].
    Probe,
}

/// Where kernels run.
#[derive(Clone, Debug, Args)]
pub struct DeviceArgs {
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Where kernels run: auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: DeviceChoice,
    /// Threads per thread block [default: 256 on a GPU, 1 on the CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Where the rings of rc streams lie: auto, pinned (host memory), dma-buf or peer-mem (the
    /// device's memory).
    #[arg(long, default_value = "auto", value_name = "PLACE")]
    pub placement: PlacementChoice,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// What is sent.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Message sizes in bytes, optionally with K or M; separate several by commas.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "64,1K,16K,256K,1M", value_parser = size)]
    pub size: Vec<u64>,
    /// Messages per connection [default: by size, 8000 of 64 bytes, 64 of 1 MiB].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Connections, at most 2048. Each client block has one at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=MOST_DRIVEN))]
    pub connections: u32,
}

/// The demonstration.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub load: LoadArgs,
    /// Transport: auto (everything over tcp and then over peer), tcp, peer or rc (RDMA).
    #[arg(long, default_value = "auto", value_name = "TRANSPORT")]
    pub transport: Transport,
    /// Address of the server; for rc that of an RDMA device.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub listen: IpAddr,
    /// Thread blocks of the server, which share the connections: at most one per connection
    /// [default: one per connection, at most 64 on a GPU and the number of cores on the CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub blocks: Option<u32>,
}

/// The server.
#[derive(Clone, Debug, Args)]
pub struct ServerArgs {
    /// Address to listen on, IPv4 or IPv6; port 0 takes a free one.
    #[arg(default_value = "127.0.0.1:7777", value_name = "ADDR", value_parser = endpoint)]
    pub addr: Endpoint,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Transport: tcp, rc (RDMA, rsocket's protocol), peer (through memory; needs --daemon, and the
    /// other end under the same one), or auto.
    #[arg(long, value_enum, default_value_t = Transport::Auto, value_name = "TRANSPORT")]
    pub transport: Transport,
    /// Thread blocks that share the connections; at most as many as --connections [default: 16 on a
    /// GPU, the number of cores on the CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub blocks: Option<u32>,
    /// Connections at the same time, over all blocks. Further ones wait in the backlog.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub connections: u32,
}

/// The clients.
#[derive(Clone, Debug, Args)]
pub struct ClientArgs {
    /// The server: IP:PORT or NAME:PORT.
    #[arg(value_name = "ADDR", value_parser = endpoint)]
    pub addr: Endpoint,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub load: LoadArgs,
    /// Transport: tcp, rc (RDMA, rsocket's protocol), peer (through memory; needs --daemon, and the
    /// other end under the same one), or auto.
    #[arg(long, value_enum, default_value_t = Transport::Auto, value_name = "TRANSPORT")]
    pub transport: Transport,
    /// Thread blocks. If there are fewer than connections, each block serves several, one after
    /// another [default: one per connection].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub blocks: Option<u32>,
}

/// The most connections of clients. Each has a client block by default, and a block that connects
/// holds a control slot: there must be fewer such blocks than slots.
const MOST_DRIVEN: i64 = 2048;

/// Largest message: two buffers of this size per block must fit in memory.
const LARGEST: u64 = 256 << 20;

fn size(text: &str) -> Result<u64, String> {
    cli::size(text, 1..=LARGEST)
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    Endpoint::parse(text, None)
}

impl LoadArgs {
    /// Messages per connection of that size: enough for a steady figure, few enough that the whole
    /// demonstration takes a few seconds on two cores.
    pub fn count_for(&self, size: u64) -> u64 {
        self.count.unwrap_or(((64 << 20) / size).clamp(48, 8000))
    }
}

/// Both ends without a daemon.
const OTHERWISE: &str = "run gpunet-echo without a command";

/// Reads the command line.
pub fn parse<I>(args: I) -> Result<Job, UsageError>
where
    I: IntoIterator,
    I::Item: Into<std::ffi::OsString> + Clone,
{
    let cli = Cli::try_parse_from(args)?;
    Ok(match cli.command {
        None => Job::Demo(cli.demo),
        Some(Command::Server(args)) => {
            args.device.proxy.can_reach_others(args.transport, OTHERWISE)?;
            Job::Server(args)
        }
        Some(Command::Client(args)) => {
            args.device.proxy.can_reach_others(args.transport, OTHERWISE)?;
            Job::Client(args)
        }
        Some(Command::Probe) => Job::Probe,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(args: &[&str]) -> String {
        let args = std::iter::once("gpunet-echo").chain(args.iter().copied());
        match parse(args) {
            Err(UsageError::Invalid(line)) => line,
            other => panic!("expected a usage error, got {other:?}"),
        }
    }

    #[test]
    fn every_usage_error_is_one_line_that_names_the_reason() {
        for (args, word) in [
            (&["--size", "0"][..], "1 to 256M"),
            (&["--frobnicate"], "--frobnicate"),
            (&["client"], "<ADDR>"),
            (&["client", "nowhere"], "HOST:PORT"),
            (&["server", "127.0.0.1:99999"], "HOST:PORT"),
            (&["server", "--transport", "peer"], "--daemon"),
            (&["--transport", "rdma"], "rdma"),
            (&["--threads", "1025"], "1025"),
            (&["--blocks", "0"], "0"),
            (&["--count", "-3"], "-3"),
            (&["--connections", "5000"], "1..=2048"),
            (&["client", "127.0.0.1:7777", "--connections", "2049"], "1..=2048"),
            (&["server", "--connections", "16385"], "1..=16384"),
            (&["--json", "server"], "--json"),
            (&["serve"], "serve"),
        ] {
            let line = wrong(args);
            assert!(line.contains(word) && !line.contains('\n'), "{args:?}: {line}");
        }
    }

    #[test]
    fn examples_in_the_help_are_valid() {
        for line in EXAMPLES.lines().filter(|line| line.starts_with("  gpunet-echo")) {
            let command = line.trim().split("  ").next().unwrap_or_default().replace("HOST", "127.0.0.1");
            let command = command
                .split(" the same")
                .next()
                .unwrap_or_default()
                .split(" load ")
                .next()
                .unwrap_or_default();
            assert!(parse(command.split_whitespace()).is_ok(), "{command}");
        }
    }
}
