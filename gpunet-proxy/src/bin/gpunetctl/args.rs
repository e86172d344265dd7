//! The command line.

use clap::{Args, Parser, Subcommand};
use gpunet_proxy::snapshot::{Snapshot, State};
use gpunet_records::Level;
use std::path::PathBuf;

const AFTER: &str = "\
Examples:
  gpunetctl ss                      all sockets, once
  gpunetctl ss --watch              every second, with rates
  gpunetctl ss --listening          who listens where
  gpunetctl ss --json --watch 5     one JSON document a line, every five seconds
  gpunetctl clients                 who is attached, and what each holds
  gpunetctl threads --watch         how busy the daemon's data threads are
  gpunetctl top --watch             which blocks of running kernels wait, for what, since when
  gpunetctl logs 3                  what the kernels of client 3 have printed
  gpunetctl logs 3 --follow --level warn  the same while they run: warnings and errors
  gpunetctl trace 3 --out t.json --follow  their spans, counters and lines, until Ctrl-C: a file for ui.perfetto.dev

Exit codes: 0 good, 1 the daemon does not answer, 2 no daemon or a bad command line.";

/// Shows what the clients of a gpunetd are doing.
#[derive(Debug, Parser)]
#[command(name = "gpunetctl", version, after_help = AFTER)]
pub struct Cli {
    /// The daemon's socket [default: $GPUNETD_LISTEN_PATH; gpunetd.sock in $XDG_RUNTIME_DIR if it
    /// is there; /run/gpunet/gpunetd.sock].
    #[arg(long, global = true, value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// What to show.
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Shows sockets, like ss(8).
    ///
    /// Recv-Q: bytes landed and not consumed; for a listener, connections that wait. Send-Q: bytes
    /// accepted from the device and not yet taken by the network. In-flight: taken and not
    /// acknowledged.
    Ss(SsArgs),
    /// Shows the devices that are attached.
    Clients {
        /// Print one JSON array instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Shows the daemon's data threads.
    ///
    /// Streams: how many streams the thread serves. Busy: how long it has worked. Load: the share
    /// of its time that it has worked since the daemon's start or, with --watch, since the last
    /// output.
    Threads(RepeatArgs),
    /// Shows the blocks of running kernels that wait: for what call, on which socket, for how long.
    ///
    /// A wait is shown once it has lasted 20 microseconds, and its time each millisecond. A block
    /// that is not shown computes, or waits for something else.
    Top(RepeatArgs),
    /// Shows what the kernels of a client print and record.
    ///
    /// It works while they run, and after they have hung or their program was killed: the daemon
    /// keeps the last records of an ended program for 15 minutes.
    Logs(LogsArgs),
    /// Writes what the kernels of a client record as a trace: spans, counters and printed lines.
    ///
    /// The file is JSON in Chrome's Trace Event Format, for ui.perfetto.dev and chrome://tracing.
    /// It says how many records are missing, and is valid also after Ctrl-C.
    Trace(TraceArgs),
}

#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The client's number: Id of `gpunetctl clients`.
    #[arg(value_name = "CLIENT")]
    pub client: u32,
    /// The file that is written.
    #[arg(long, short, value_name = "FILE")]
    pub out: PathBuf,
    /// Go on until the client has ended, or until Ctrl-C.
    #[arg(long, short)]
    pub follow: bool,
    /// With --follow: end after so many seconds.
    #[arg(long = "for", value_name = "SECONDS", requires = "follow", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Write other records, too, with their payloads.
    #[arg(long)]
    pub records: bool,
    /// Write only this block.
    #[arg(long, value_name = "NUMBER")]
    pub block: Option<u32>,
}

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The client's number: Id of `gpunetctl clients`.
    #[arg(value_name = "CLIENT")]
    pub client: u32,
    /// Go on until the client has ended.
    #[arg(long, short)]
    pub follow: bool,
    /// The least important level that is shown: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "trace", value_parser = level)]
    pub level: Level,
    /// Show other records, too.
    #[arg(long)]
    pub records: bool,
    /// Show only this block.
    #[arg(long, value_name = "NUMBER")]
    pub block: Option<u32>,
}

fn level(text: &str) -> Result<Level, &'static str> {
    Ok(match text {
        "error" => Level::Error,
        "warn" => Level::Warn,
        "info" => Level::Info,
        "debug" => Level::Debug,
        "trace" => Level::Trace,
        _ => return Err("expected error, warn, info, debug or trace"),
    })
}

#[derive(Debug, Default, Args)]
pub struct RepeatArgs {
    /// Print a JSON array instead of a table; with --watch, one in each line.
    #[arg(long)]
    pub json: bool,
    /// Repeat the output every SECONDS.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    pub watch: Option<f64>,
}

#[derive(Debug, Default, Args)]
pub struct SsArgs {
    /// Print the snapshot as a JSON document instead of a table; with --watch, one in each line.
    #[arg(long)]
    pub json: bool,
    /// Repeat the output every SECONDS, with rates since the last output.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    pub watch: Option<f64>,
    /// Show only listeners.
    #[arg(long)]
    pub listening: bool,
    /// Show only sockets of this process.
    #[arg(long, value_name = "PID")]
    pub client: Option<u32>,
}

fn seconds(text: &str) -> Result<f64, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or("expected seconds, 0.1 to 3600")
}

impl SsArgs {
    /// The part of a snapshot that is shown.
    pub fn select(&self, mut snapshot: Snapshot) -> Snapshot {
        if let Some(pid) = self.client {
            snapshot.clients.retain(|client| client.pid == pid);
            let clients = &snapshot.clients;
            snapshot.sockets.retain(|socket| clients.iter().any(|client| client.id == socket.client));
        }
        if self.listening {
            snapshot.sockets.retain(|socket| socket.state == State::Listen);
        }
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_its_examples_are_valid() {
        Cli::command().debug_assert();
        for line in AFTER.lines().filter(|line| line.starts_with("  gpunetctl")) {
            let command = line.trim().split("  ").next().unwrap_or_default();
            assert!(Cli::try_parse_from(command.split_whitespace()).is_ok(), "{command}");
        }
    }

    #[test]
    fn a_watch_has_its_bounds() {
        let watch = |args: &[&str]| match Cli::try_parse_from(["gpunetctl", "ss"].iter().chain(args)) {
            Ok(Cli { command: Command::Ss(args), .. }) => args.watch,
            _ => Some(-1.0),
        };
        assert_eq!(
            (watch(&[]), watch(&["--watch"]), watch(&["--watch", "0.5"])),
            (None, Some(1.0), Some(0.5))
        );
        for bad in ["0", "-1", "inf", "NaN", "soon"] {
            assert_eq!(watch(&["--watch", bad]), Some(-1.0), "{bad}");
        }
    }
}
