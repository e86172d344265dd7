//! The command line.

use clap::Parser;
use gpunet_app::cli::{self, Endpoint, UsageError};
use gpunet_app::device::DeviceChoice;
use gpunet_app::proxy::ProxyArgs;

const EXAMPLES: &str = "\
Examples:
  gpunet-kv                                    serve at 127.0.0.1:6379; then: redis-cli SET greeting hello
  gpunet-kv 0.0.0.0:6380 --memory 8G           serve everyone, with 8 GiB for keys and values
  gpunet-kv --device cuda:1 --blocks 32        run on the second GPU, in 32 thread blocks
  gpunet-kv --demo                             start it, load it with a client that checks every answer, end it
  gpunet-kv --demo --vectors 1000000 --dim 256 --memory 1G   the same, with a search of a million vectors
  gpunet-kv --demo --json                      the same, with the figures as one JSON object

Exit codes: 0 success, 1 something failed or an answer was wrong, 2 bad command line, 130 interrupted demonstration.";

/// A key-value server for Redis's clients that runs as a kernel.
///
/// Its blocks run on a GPU if there is one, else as CPU threads. They accept connections, parse
/// RESP2 in place, and keep keys and values in a hash table in the device's memory. The table has a
/// fixed size. When it is full, the keys that were not used for the longest time are evicted, by
/// the CLOCK algorithm with one bit for each key.
#[derive(Debug, Parser)]
#[command(name = "gpunet-kv", version, after_help = EXAMPLES)]
pub struct Args {
    /// Address to listen on, IPv4 or IPv6; port 0 takes a free one.
    #[arg(default_value = "127.0.0.1:6379", value_name = "ADDR", value_parser = endpoint)]
    pub addr: Endpoint,
    #[command(flatten)]
    pub proxy: ProxyArgs,
    /// Where the kernel runs: auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: DeviceChoice,
    /// Threads per thread block [default: 128 on a GPU, 1 on the CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Thread blocks that share the connections [default: 64 on a GPU, 1 on the CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub blocks: Option<u32>,
    /// Connections at the same time, over all blocks. Further ones wait in the backlog.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub connections: u32,
    /// Memory for keys and values, in bytes, optionally with K, M or G.
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = memory)]
    pub memory: u64,
    /// Memory for the requests of all clients that are not complete or wait for EXEC. One client
    /// gets a quarter of it at most.
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = request_memory)]
    pub request_memory: u64,
    /// Memory for the answers of all clients that wait because their client does not read.
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = memory)]
    pub output_memory: u64,
    /// The most of this memory that one client gets.
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = memory)]
    pub output_limit: u64,
    /// File whose first line is the password that clients must give (AUTH, HELLO).
    #[arg(long, value_name = "PATH", conflicts_with = "demo")]
    pub password_file: Option<std::path::PathBuf>,
    /// Seconds of silence between requests after which a client loses its connection; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub timeout: u32,
    /// Seconds that a request may take from its first byte to its last, and a client to take its
    /// answers.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub request_timeout: u32,
    /// Start the server at a free port, load it with a client that checks every answer, print
    /// figures, and end.
    #[arg(long)]
    pub demo: bool,
    /// Connections of the demonstration's client.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "demo", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub clients: u32,
    /// Vectors that the demonstration loads and searches.
    #[arg(long, value_name = "N", default_value_t = 20_000, requires = "demo", value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    pub vectors: u32,
    /// Numbers of each of these vectors.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "demo", value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub dim: u32,
    /// Print the totals, or the demonstration's figures, as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// The largest table.
const MOST_MEMORY: u64 = 120 << 30;

fn memory(text: &str) -> Result<u64, String> {
    match text.strip_suffix(['G', 'g']) {
        Some(number) => match number.parse::<u64>() {
            Ok(number) if (1..=MOST_MEMORY >> 30).contains(&number) => Ok(number << 30),
            _ => Err("expected 4M to 120G".to_owned()),
        },
        None => cli::size(text, 4 << 20..=MOST_MEMORY),
    }
}

/// The least memory in which a client finds room for the longest request.
const LEAST_REQUEST_MEMORY: u64 = 24 << 20;

fn request_memory(text: &str) -> Result<u64, String> {
    match memory(text)? {
        bytes if bytes < LEAST_REQUEST_MEMORY => Err("expected 24M to 120G".to_owned()),
        bytes => Ok(bytes),
    }
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    Endpoint::parse(text, Some(6379))
}

/// Reads the command line.
///
/// # Errors
/// It is wrong, or asks for help.
pub fn parse<I>(args: I) -> Result<Args, UsageError>
where
    I: IntoIterator,
    I::Item: Into<std::ffi::OsString> + Clone,
{
    Ok(Args::try_parse_from(args)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_units_and_bounds() {
        assert_eq!((memory("4M"), memory("2G")), (Ok(4 << 20), Ok(2 << 30)));
        for text in ["1M", "0G", "121G", "x"] {
            assert!(memory(text).is_err(), "{text}");
        }
    }

    #[test]
    fn memory_for_requests_holds_the_longest_one() {
        assert_eq!(request_memory("24M"), Ok(24 << 20));
        assert!(request_memory("23M").is_err());
    }

    #[test]
    fn examples_in_the_help_are_valid() {
        for line in EXAMPLES.lines().filter(|line| line.starts_with("  gpunet-kv")) {
            let command = line.trim().split("  ").next().unwrap_or_default();
            assert!(parse(command.split_whitespace()).is_ok(), "{command}");
        }
    }

    #[test]
    fn every_usage_error_is_one_line_that_names_the_reason() {
        for (args, word) in [
            (&["--memory", "1"][..], "4M"),
            (&["nowhere:x"], "HOST:PORT"),
            (&["--clients", "3"], "--demo"),
            (&["--connections", "0"], "1..=16384"),
        ] {
            match parse(std::iter::once("gpunet-kv").chain(args.iter().copied())) {
                Err(UsageError::Invalid(line)) => {
                    assert!(line.contains(word) && !line.contains('\n'), "{line}")
                }
                other => panic!("{args:?}: {other:?}"),
            }
        }
    }
}
