//! One run of the clients: one transport, one size.

use crate::args::LoadArgs;
use crate::error::Error;
use crate::kernels::{ClientMemory, Kernels, Load, end_clients};
use crate::progress::Progress;
use crate::report::{Rtt, Run};
use gpunet_abi::Options;
use gpunet_abi::Timeout;
use gpunet_app::cli::spell;
use gpunet_app::interrupt::Interrupt;
use gpunet_app::kernel::{RunningKernel, errno_text};
use gpunet_echo_kernel::record::{Driven, Outcome};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

/// The timeout of kernels' calls (connect, send, receive).
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Clients that finish no message within this time are cancelled. It is longer than [`TIMEOUT`],
/// which must expire first, and longer than the largest message takes on any machine.
const STALLED: Duration = Duration::from_secs(60);

/// Ring of each direction: the device library's default.
pub const RING: u64 = 256 << 10;

/// A placeholder; the code that runs a load sets the real address.
const NOWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

impl LoadArgs {
    /// Returns the kernel's work for messages of this size.
    pub fn load(&self, size: u64, options: Options) -> Load {
        let limit = Timeout::from(TIMEOUT);
        Load {
            addr: NOWHERE,
            options: options.with_timeouts(limit, limit),
            size,
            count: self.count_for(size),
            connections: self.connections,
            samples_each: self.samples_each(size),
        }
    }

    /// Messages of all sizes and connections.
    pub fn messages(&self) -> u64 {
        let each = self.size.iter().map(|&size| self.count_for(size)).fold(0, u64::saturating_add);
        each.saturating_mul(self.connections.into())
    }

    /// Returns how many round-trip times are kept for each connection: at most a million for all
    /// connections together.
    pub fn samples_each(&self, size: u64) -> u64 {
        let places = (1 << 20) / u64::from(self.connections);
        places.clamp(1, 1 << 16).min(self.count_for(size))
    }
}

/// The result of a run.
pub struct RunResult {
    /// The figures.
    pub run: Run,
    /// No client could connect.
    pub unreachable: bool,
    /// Ctrl-C ended it.
    pub interrupted: bool,
    /// One line for each way in which connections failed.
    pub failures: Vec<String>,
}

/// Runs the clients once and waits for their end.
pub fn run(
    kernels: &Kernels,
    memory: ClientMemory,
    load: &Load,
    transport: &'static str,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<(ClientMemory, RunResult), Error> {
    progress.run(format!("{transport}, {}", spell(load.size)));
    let kernel = kernels.drive(memory, load)?;
    let interrupted = watch(&kernel, interrupt, progress)?;
    let (memory, records, samples) = end_clients(kernel, load)?;
    let result = sum_up(load, transport, &records, samples, interrupted);
    Ok((memory, result))
}

/// Waits for the end of the clients, and ends them on Ctrl-C or if they make no progress. Returns
/// whether Ctrl-C ended them.
fn watch(
    kernel: &RunningKernel<ClientMemory>,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<bool, Error> {
    let mut moved = (0, Instant::now());
    while !kernel.wait(Duration::from_millis(50))? {
        let done = kernel.memory().map_or(0, |memory| memory.ticks.total());
        progress.set(done);
        if done != moved.0 {
            moved = (done, Instant::now());
        }
        if interrupt.asked() || moved.1.elapsed() > STALLED {
            kernel.end()?;
            return Ok(interrupt.asked());
        }
    }
    Ok(interrupt.asked())
}

fn sum_up(
    load: &Load,
    transport: &'static str,
    records: &[Driven],
    samples: Vec<u64>,
    interrupted: bool,
) -> RunResult {
    let messages: u64 = records.iter().map(|record| record.messages).sum();
    let connected = records.iter().filter(|record| record.started_ns != 0);
    let started = connected.clone().map(|record| record.started_ns).min().unwrap_or(0);
    let ended = records.iter().map(|record| record.ended_ns).max().unwrap_or(0);
    let failed = records.iter().enumerate().filter(|(_, record)| is_failure(record, interrupted));
    let errors = failed.clone().count() as u64;
    let failures = failures(&format!("{transport}, {}", spell(load.size)), failed, load);
    let nanoseconds = ended.saturating_sub(started);
    let run = Run {
        transport,
        size: load.size,
        connections: connected.count() as u64,
        messages,
        bytes_verified: messages * load.size,
        errors,
        rtt_us: Rtt::of(samples),
        // Bytes per nanosecond are 10^9 bytes per second.
        gigabytes_per_second: (messages * load.size) as f64 / nanoseconds.max(1) as f64,
    };
    let unreachable = records.iter().all(|record| record.outcome == Outcome::Connect);
    RunResult { run, unreachable, interrupted, failures }
}

/// Returns whether a connection has failed. Connections that Ctrl-C ended have not.
fn is_failure(record: &Driven, interrupted: bool) -> bool {
    let canceled = gpunet_abi::Error::Canceled.errno() as u64;
    match record.outcome {
        Outcome::Good => false,
        Outcome::NotRun => !interrupted,
        Outcome::Connect | Outcome::Send | Outcome::Recv => !(interrupted && record.detail == canceled),
        Outcome::Ended | Outcome::Differs | Outcome::Extra => true,
    }
}

/// Describes the failures of connections, one line for each way in which they failed.
fn failures<'a>(run: &str, failed: impl Iterator<Item = (usize, &'a Driven)>, load: &Load) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<usize>)> = Vec::new();
    for (connection, record) in failed {
        let reason = explain(record, load);
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, connections)) => connections.push(connection),
            None => reasons.push((reason, vec![connection])),
        }
    }
    let line = |(reason, connections): (String, Vec<usize>)| match connections[..] {
        [one] => format!("{run}, connection {one}: {reason}"),
        [first, ..] => format!("{run}, {} connections (the first is {first}): {reason}", connections.len()),
        [] => format!("{run}: {reason}"),
    };
    reasons.into_iter().map(line).collect()
}

fn explain(record: &Driven, load: &Load) -> String {
    let (done, detail) = (record.messages, record.detail);
    let error = || errno_text(detail as i32);
    match record.outcome {
        Outcome::Good => "good".to_owned(),
        Outcome::NotRun => "was not tried".to_owned(),
        Outcome::Connect => format!("cannot connect to {}: {}", load.addr, error()),
        Outcome::Send => format!("send failed after {done} messages: {}", error()),
        Outcome::Recv => format!("receive failed after {done} messages: {}", error()),
        Outcome::Ended => format!("the server ended the stream {detail} bytes into message {done}"),
        Outcome::Differs => format!("byte {detail} of message {done} came back changed"),
        Outcome::Extra => format!("{detail} bytes came back that were never sent"),
    }
}

/// Prints the first few errors in full.
pub fn print_failures(failures: &[String]) {
    const SHOWN: usize = 5;
    failures.iter().take(SHOWN).for_each(|line| eprintln!("gpunet-echo: {line}"));
    if failures.len() > SHOWN {
        eprintln!("gpunet-echo: and {} more kinds of failure", failures.len() - SHOWN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_abi::Error;

    fn load() -> Load {
        let addr = "127.0.0.1:9".parse().unwrap();
        Load { addr, options: Options::DEFAULT, size: 100, count: 10, connections: 2, samples_each: 10 }
    }

    fn good(started_ns: u64, ended_ns: u64) -> Driven {
        Driven { outcome: Outcome::Good, detail: 0, messages: 10, started_ns, ended_ns }
    }

    #[test]
    fn throughput_is_from_the_first_start_to_the_last_end() {
        let result = sum_up(&load(), "tcp", &[good(1000, 2000), good(1500, 3000)], vec![5000; 20], false);
        assert_eq!((result.run.messages, result.run.bytes_verified, result.run.errors), (20, 2000, 0));
        assert!((result.run.gigabytes_per_second - 1.0).abs() < 1e-9);
        assert!(!result.unreachable && result.failures.is_empty());
    }

    #[test]
    fn failures_are_explained_and_interruptions_are_none() {
        let mut cut = good(1, 2);
        (cut.outcome, cut.detail) = (Outcome::Recv, Error::Canceled.errno() as u64);
        assert_eq!(sum_up(&load(), "tcp", &[cut, good(1, 2)], vec![], true).run.errors, 0);
        let result = sum_up(&load(), "tcp", &[cut, good(1, 2)], vec![], false);
        assert_eq!(
            result.failures,
            ["tcp, 100 B, connection 0: receive failed after 10 messages: canceled by the host"]
        );
        let refused = Driven {
            outcome: Outcome::Connect,
            detail: Error::ConnectionRefused.errno() as u64,
            ..Driven::default()
        };
        let result = sum_up(&load(), "tcp", &[refused, refused], vec![], false);
        assert!(result.unreachable);
        assert_eq!((result.run.connections, result.run.errors), (0, 2));
        assert_eq!(
            result.failures,
            ["tcp, 100 B, 2 connections (the first is 0): cannot connect to 127.0.0.1:9: connection refused"]
        );
    }

    #[test]
    fn samples_are_bounded() {
        let args = |connections, count| LoadArgs { size: vec![64], count: Some(count), connections };
        assert_eq!(args(4, 100).samples_each(64), 100);
        assert_eq!(args(4, u64::MAX).samples_each(64), 1 << 16);
        assert_eq!(args(16_384, u64::MAX).samples_each(64), 64);
    }
}
