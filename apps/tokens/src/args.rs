//! The command line.

use clap::Parser;
use gpunet_app::cli::Endpoint;
use gpunet_app::device::DeviceChoice;
use gpunet_app::proxy::ProxyArgs;
use gpunet_tokens_kernel::Tokens;

/// The port where servers of models usually listen.
const PORT: u16 = 8000;

/// A server of completions that runs as a kernel, with its model, on a GPU if there is one, else as
/// CPU threads.
#[derive(Debug, Parser)]
#[command(name = "gpunet-tokens", version)]
pub struct Args {
    /// Address to listen on, IPv4 or IPv6; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8000", value_name = "ADDRESS", value_parser = endpoint)]
    pub listen: Endpoint,
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Where the kernel runs: auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: DeviceChoice,
    /// Thread blocks that serve connections, beside those of the model [default: 32 on a GPU, 1 on
    /// the CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub blocks: Option<u32>,
    /// Thread blocks that run the model, each with an equal part of the batch [default: as many as
    /// there are multiprocessors left, at most 64; 1 on the CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub models: Option<u32>,
    /// Threads of a block on a GPU.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(32..=1024))]
    pub threads: u32,
    /// Connections at a time, of all blocks; others wait to be accepted.
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub connections: u32,
    /// Requests that the model serves at a time; each takes 1.5 MiB of memory [default: 256 on a
    /// GPU, 32 on the CPU].
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(Tokens::MAX_SEQUENCES)))]
    pub batch: Option<u32>,
    /// Requests that wait for the model; who comes then gets 503.
    #[arg(long, default_value_t = 1024, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(Tokens::MAX_WAITING)))]
    pub waiting: u32,
    /// Milliseconds from one step of the model to the next, at least.
    #[arg(long, default_value_t = 0, value_name = "MS", value_parser = clap::value_parser!(u64).range(..=60_000))]
    pub interval: u64,
    /// Tell with each event when its last token was stored (`stored_ns`, by the clock that /healthz
    /// shows).
    #[arg(long)]
    pub timing: bool,
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    Endpoint::parse(text, Some(PORT))
}
