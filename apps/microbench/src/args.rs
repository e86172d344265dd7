//! The command line.

use crate::bench::device_name;
use crate::effort::Effort;
use crate::measure::{AttendArgs, BandwidthArgs, CheckArgs, LatencyArgs};
use crate::pair::EndArgs;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Parser, Subcommand};
use gpunet_app::proxy::ProxyArgs;
use std::path::PathBuf;

/// Checks and measures gpunet sockets; each measurement shows a floor and a reference from the same run.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Args {
    /// Use the gpunetd that listens at PATH; without it a proxy runs in this process.
    #[arg(long, global = true, env = "GPUNET_DAEMON", value_name = "PATH", hide_env_values = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from))]
    daemon: Option<PathBuf>,
    /// The device: cpu, cuda or cuda:N. Without it: the first GPU, else the CPU.
    #[arg(long, global = true, default_value = "auto", value_parser = device_name)]
    pub device: String,
    /// Fewer rounds and fewer sizes.
    #[arg(long, global = true, conflicts_with = "full")]
    pub quick: bool,
    /// More rounds and more sizes.
    #[arg(long, global = true)]
    pub full: bool,
    /// Measure no programs and libraries of others (rstream, perftest, NVSHMEM, NCCL, cudaMemcpyAsync).
    #[arg(long, global = true)]
    pub without_foreign: bool,
    /// Write everything that was measured, or checked, to this file, as one JSON object.
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw charts of what was measured into this file, as SVG.
    #[arg(long, global = true, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Put the tables of what was measured into this document, between the lines that mark their place.
    #[arg(long, global = true, value_name = "FILE.md")]
    pub tables: Option<PathBuf>,
    #[command(subcommand)]
    pub what: What,
}

impl Args {
    /// Whose proxy is used.
    pub fn proxy(&self) -> ProxyArgs {
        ProxyArgs { daemon: self.daemon.clone() }
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
    /// Verified streams over many block shapes, groups and transports, divergent lanes included; with
    /// --other or --processes between two devices or two processes.
    Check(CheckArgs),
    /// What must end well: launches that leave sockets while others wait on them, panics, a program that is stopped
    /// for 4 s.
    Faults,
    /// One hand-off: flags, data and flags, a send until the proxy sees it, a landing until the kernel does.
    Handoff,
    /// Ping-pong of 1 B to 4 MiB.
    Latency(LatencyArgs),
    /// Streams as fast as they go.
    Bandwidth(BandwidthArgs),
    /// Connections a second, and the time from accept to the first byte.
    Connect,
    /// 1 to 10,000 open sockets of which few are busy.
    Scale,
    /// Time to wake after idleness, and the processor time of an idle proxy.
    Idle,
    /// 32 senders to one receiver: aggregate and fairness.
    Incast,
    /// The copy routine between device and pinned memory, at all alignments.
    Copy,
    /// How long it takes to attach to the daemon that --daemon names, without a GPU.
    Attach,
    /// Everything but check, faults and attach.
    All,
    /// Measures nothing: makes --plot and --tables of what an earlier run wrote with --json.
    Render {
        /// What --json wrote.
        from: PathBuf,
    },
    /// One end of a measurement: tasks on stdin, results on stdout, as JSON lines.
    #[command(hide = true)]
    End(EndArgs),
    /// A process of `faults`: serves clients, and says so on stdout as JSON lines.
    #[command(hide = true)]
    Attend(AttendArgs),
}
