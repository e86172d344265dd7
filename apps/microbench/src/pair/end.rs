//! One end of a measurement: a device of this process, or a process of its own.

use super::child::EndProcess;
use super::plain;
use super::task::{EndpointKind, Side, Task, Work};
use crate::bench::{Bench, Job};
use crate::outcome::Outcome;
use gpunet_bench_kernel::{Duplex, Flow, PingPong};
use gpunet_device::Options;
use gpunet_device::Timeout;
use gpunet_proxy::Launch;
use std::thread::{Builder, JoinHandle};

/// An end.
pub enum End {
    Here(Here),
    Child(EndProcess),
}

/// A device of this process, or none for plain sockets, and what it currently runs.
pub struct Here {
    bench: Option<Bench>,
    running: Option<Running>,
}

enum Running {
    Kernel(Launch, Job),
    Thread(JoinHandle<std::io::Result<Vec<u64>>>),
}

impl End {
    /// Makes an end on a device of this process.
    pub fn here(bench: Bench) -> Self {
        Self::Here(Here { bench: Some(bench), running: None })
    }

    /// Makes an end that has plain sockets only.
    pub fn plain() -> Self {
        Self::Here(Here { bench: None, running: None })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Here(here) => here.bench.as_ref().map_or("a plain program", Bench::name),
            Self::Child(child) => child.name(),
        }
    }

    /// Returns whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        match self {
            Self::Here(here) => here.bench.as_ref().is_some_and(Bench::is_gpu),
            Self::Child(child) => child.is_gpu(),
        }
    }

    /// Returns the process that has its sockets.
    pub fn pid(&self) -> u32 {
        match self {
            Self::Here(_) => std::process::id(),
            Self::Child(child) => child.pid(),
        }
    }

    /// The device, if it is one of this process.
    pub fn bench(&self) -> Option<&Bench> {
        match self {
            Self::Here(here) => here.bench.as_ref(),
            Self::Child(_) => None,
        }
    }

    /// Starts its part.
    pub fn start(&mut self, task: &Task) -> Outcome<()> {
        match self {
            Self::Here(here) => here.start(task),
            Self::Child(child) => child.start(task),
        }
    }

    /// Waits for the end of its part, and returns its words.
    pub fn finish(&mut self) -> Outcome<Vec<u64>> {
        match self {
            Self::Here(here) => here.finish(),
            Self::Child(child) => child.finish(),
        }
    }
}

/// The timeout of every call of a kernel.
pub const TIMEOUT: Timeout = Timeout::secs(20);

impl Here {
    fn start(&mut self, task: &Task) -> Outcome<()> {
        self.running = Some(match (task.kind, &self.bench) {
            (EndpointKind::Gpunet(_), Some(bench)) => {
                let (launch, job) = kernel(bench, task)?;
                Running::Kernel(launch, job)
            }
            (EndpointKind::Gpunet(_), None) => return Err("this end has no device".into()),
            _ => {
                let task = task.clone();
                Running::Thread(Builder::new().spawn(move || plain::run(&task))?)
            }
        });
        Ok(())
    }

    fn finish(&mut self) -> Outcome<Vec<u64>> {
        match (self.running.take(), &self.bench) {
            (Some(Running::Thread(thread)), _) => Ok(thread.join().map_err(|_| "the thread panicked")??),
            (Some(Running::Kernel(launch, job)), Some(bench)) => bench.finish(launch, &job),
            _ => Err("nothing was started".into()),
        }
    }
}

/// Loads the kernel for some work.
pub fn prepare(bench: &Bench, work: &Work, threads: u32) -> Outcome<()> {
    match work {
        Work::Echo { .. } => bench.prepare::<PingPong>(threads),
        Work::Flow(_) => bench.prepare::<Flow>(threads),
        Work::Duplex { .. } => bench.prepare::<Duplex>(threads),
    }
}

/// Starts the kernel of a task.
fn kernel(bench: &Bench, task: &Task) -> Outcome<(Launch, Job)> {
    let EndpointKind::Gpunet(transport) = task.kind else { return Err("no kernel has plain sockets".into()) };
    let threads = bench.threads(task.shape.threads);
    let options = Options::DEFAULT.with_transport(transport.kind()).with_timeouts(TIMEOUT, TIMEOUT);
    let (addr, ends, group) = (task.sock_addr(), task.side.ends(), task.shape.group.kind() as u32);
    let blocks = |pairs: u32| if task.side == Side::Both { 2 * pairs } else { pairs };
    match task.work {
        Work::Echo { size, rounds } => {
            let job = bench.job(2 * size as usize, rounds as usize + 2)?;
            // A ring holds several messages, so that one call sends a whole message.
            let ring = (4 * size).next_power_of_two().clamp(256 << 10, 4 << 20);
            let launch = bench.start(blocks(1), threads, |net| PingPong {
                net,
                addr,
                options: options.with_rings(ring, ring),
                buffer: job.buffer(),
                size,
                rounds,
                ends: ends as u32,
                group,
                results: job.results(),
            })?;
            Ok((launch, job))
        }
        Work::Flow(flow) => {
            let blocks = blocks(flow.pairs);
            let job = bench.job((flow.message * u64::from(blocks)) as usize, 4 * blocks as usize)?;
            let launch = bench.start(blocks, threads, |net| Flow {
                net,
                addr,
                options: options.with_rings(flow.ring, flow.ring),
                buffer: job.buffer(),
                message: flow.message,
                bytes: flow.bytes,
                connections: flow.connections,
                way: flow.direction as u32,
                ends: ends as u32,
                group,
                how: flow.how as u64,
                results: job.results(),
            })?;
            Ok((launch, job))
        }
        Work::Duplex { pairs, ring, message, bytes, rounds } => {
            let room = 2 * Duplex::room(message) * u64::from(blocks(pairs));
            let job = bench.job(room as usize, 3 * blocks(pairs) as usize)?;
            let launch = bench.start(blocks(pairs), threads, |net| Duplex {
                net,
                addr,
                options: options.with_rings(ring, ring),
                buffer: job.buffer(),
                bytes,
                message,
                rounds,
                ends: ends as u64,
                results: job.results(),
            })?;
            Ok((launch, job))
        }
    }
}
