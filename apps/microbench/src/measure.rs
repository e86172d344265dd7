//! The measurements, one per file. Each records its floor and its references first.

mod attach;
mod bandwidth;
mod calls;
mod check;
mod clients;
mod connect;
mod copy;
mod crowd;
mod far_check;
mod faults;
mod handoff;
mod idle;
mod incast;
mod latency;
mod rate;
mod records;
mod references;
mod rhythm;
mod rings;
mod scale;
mod server;
mod servers;
mod staged;
mod stream;
mod symmetric;
mod tally;
mod tensors;
mod watch;

pub use attach::attach;
pub use bandwidth::{BandwidthArgs, bandwidth};
pub use calls::calls;
pub use check::{CheckArgs, check};
pub use clients::{ClientsArgs, PlainServerArgs, clients, echo_round_trips, plain_server};
pub use connect::connect;
pub use copy::copy;
pub use faults::{AttendArgs, attend, faults};
pub use handoff::handoff;
pub use idle::idle;
pub use incast::incast;
pub use latency::{LatencyArgs, latency};
pub use rate::{RateArgs, rate};
pub use records::records;
pub use references::references;
pub use rhythm::rhythm;
pub use rings::rings;
pub use scale::scale;
pub use servers::{ServersArgs, servers};
pub use staged::{StagedArgs, staged};
pub use stream::{StreamArgs, stream};
pub use symmetric::{SymmetricArgs, symmetric};
pub use tensors::{ReceiveTensorsArgs, TensorsArgs, receive_tensors, tensors};
pub use watch::watch;

use crate::bench::{self, Bench};
use crate::effort::Effort;
use crate::outcome::Outcome;
use crate::pair::{self, PairArgs, Transport};
use crate::report::{Recorder, counted};
use gpu_usermap::cuda::Cuda;
use gpunet_app::proxy::ProxyArgs;
use gpunet_proxy::{Config, Proxy};
use std::process::Command;

/// The input of every measurement.
pub struct Run<'a> {
    pub recorder: &'a mut Recorder,
    pub effort: Effort,
    /// The device that `--device` selects: cpu or cuda:N.
    pub device: &'a str,
    /// Whether the command line does not name the device.
    pub is_auto: bool,
    /// `--daemon`.
    pub proxy: &'a ProxyArgs,
}

impl Run<'_> {
    /// Opens the device, attached to the proxy that the command line names.
    pub fn open(&self) -> Outcome<Bench> {
        Bench::open(self.proxy, self.device)
    }

    /// Opens the proxy that the command line names.
    pub fn proxy(&self) -> Outcome<Proxy> {
        Ok(self.proxy.open(Config::default())?)
    }

    /// Adds the arguments by which a child process uses the same device and daemon.
    fn add_device_and_daemon(&self, command: &mut Command) {
        command.args(["--device", self.device]);
        if let Some(path) = self.proxy.daemon.as_ref().filter(|_| self.proxy.names_a_daemon()) {
            command.arg("--daemon").arg(path);
        }
    }

    /// The devices of all pairs that the command line selects, client and server.
    fn pairs(&self, args: &PairArgs) -> Outcome<Vec<[String; 2]>> {
        let other = args.other.as_deref().map(|other| bench::resolve(self.proxy, other)).transpose()?;
        let gpus = Cuda::load().ok().and_then(|cuda| cuda.device_count().ok()).unwrap_or(0);
        Ok(pair::devices(self.device, other, self.is_auto, gpus))
    }
}

/// Runs `one` for every pair of devices and every transport that the command line selects.
fn each_pair(
    run: &mut Run<'_>,
    args: &PairArgs,
    what: &str,
    mut one: impl FnMut(&mut Run<'_>, &[String; 2], Transport) -> Outcome<()>,
) -> Outcome<()> {
    let mut failed = Failed::default();
    for devices in run.pairs(args)? {
        for transport in args.transports() {
            // Over tcp and rc the ends do not know each other's device: one table per device is
            // enough.
            let same = devices[0] == devices[1];
            if transport != Transport::Peer && !same && args.other.is_none() {
                continue;
            }
            let name = format!("{what} of {} and {} over {}", devices[0], devices[1], transport.name());
            failed.attempt(run, &name, |run| one(run, &devices, transport));
        }
    }
    failed.into_outcome()
}

/// The parts of a measurement that failed.
#[derive(Default)]
pub struct Failed(Vec<String>);

impl Failed {
    /// Runs one part. A failure is recorded, and does not stop the other parts unless the output
    /// has no reader.
    pub fn attempt(&mut self, run: &mut Run<'_>, name: &str, part: impl FnOnce(&mut Run<'_>) -> Outcome<()>) {
        let done = run.recorder.check_output().and_then(|()| part(run));
        if let Err(error) = done {
            run.recorder.note(format!("{name} FAILED: {error}"));
            self.0.push(name.to_owned());
        }
    }

    /// Returns an error if a part failed.
    pub fn into_outcome(self) -> Outcome<()> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("failed: {}", self.0.join(", ")).into()) }
    }
}

/// The settings that a table of one device shows.
pub fn settings(bench: &Bench, threads: u32) -> Vec<(&'static str, String)> {
    let blocks = if bench.is_gpu() {
        format!("{} a block", counted(threads, "thread"))
    } else {
        "CPU blocks of one thread".to_owned()
    };
    vec![("device", bench.title()), ("blocks", blocks)]
}
