//! gpunet-bench: checks sockets on a device, and measures them beside their floors.

#[allow(unsafe_code)]
mod attach;
mod bench;
mod check;
mod far;
mod measure;
mod table;

use bench::Bench;
use clap::{Parser, Subcommand};
use far::{EndArgs, FarArgs};
use gpunet_app::proxy::ProxyArgs;
use std::process::ExitCode;

/// Checks and measures gpunet sockets; each measurement shows its floor from the same run.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    #[command(flatten)]
    proxy: ProxyArgs,
    /// The device: cpu, cuda or cuda:N. Without it: the first GPU, else the CPU.
    #[arg(long, global = true, default_value = "auto")]
    device: String,
    /// Fewer rounds.
    #[arg(long, global = true)]
    quick: bool,
    #[command(subcommand)]
    what: What,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Verified streams over many block shapes, groups and transports, divergent lanes included.
    Check,
    /// Round trips: flags alone, data and flags, and 64-byte echoes over peer and tcp.
    Latency,
    /// One stream over tcp and peer, beside two plain programs.
    Bandwidth,
    /// The copy routine between device and pinned memory.
    Copy,
    /// Time to wake after idleness, and the processor time of an idle proxy.
    Idle,
    /// How long it takes to attach to the daemon that --daemon names, without a GPU.
    Attach,
    /// Streams between two devices or two processes: latency and bandwidth, beside floors.
    Far(FarArgs),
    /// Verified streams between two devices or two processes.
    FarCheck(FarArgs),
    /// One end of `far --processes`: tasks on stdin, results on stdout, as JSON lines.
    #[command(hide = true)]
    FarEnd(EndArgs),
    /// Everything that takes one device.
    All,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let run = || -> Result<bool, Box<dyn std::error::Error>> {
        match &args.what {
            What::Attach => return attach::attach(&args.proxy).map(|()| true),
            What::Far(far) => return far::measure(&args.device, far, args.quick),
            What::FarCheck(far) => return far::check(&args.device, far, args.quick),
            What::FarEnd(end) => return far::serve_end(&args.device, end, args.quick),
            _ => {}
        }
        let bench = Bench::open(&args.proxy, &args.device, args.quick)?;
        println!(
            "device {}, command gpunet-bench {}",
            bench.name(),
            std::env::args().skip(1).collect::<Vec<_>>().join(" ")
        );
        let mut good = true;
        let all = matches!(args.what, What::All);
        if all || matches!(args.what, What::Check) {
            good &= check::run(&bench)?;
        }
        if all || matches!(args.what, What::Latency) {
            measure::latency(&bench)?;
        }
        if all || matches!(args.what, What::Bandwidth) {
            measure::bandwidth(&bench)?;
        }
        if all || matches!(args.what, What::Copy) {
            measure::copy(&bench)?;
        }
        if all || matches!(args.what, What::Idle) {
            measure::idle(&bench)?;
        }
        Ok(good)
    };
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gpunet-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
