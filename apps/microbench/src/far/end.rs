//! One end of a measurement: a device of this process, or a process of its own.

use super::child::Child;
use super::task::{Task, Work};
use super::unix;
use crate::bench::{Bench, Job, Outcome};
use gpunet_bench_kernel::{Duplex, Flow, PingPong};
use gpunet_device::{Options, SockAddr, TransportKind};
use gpunet_proxy::Launch;
use std::thread::JoinHandle;

/// An end.
pub enum End {
    Here(Here),
    Child(Child),
}

/// A device of this process, and what it does at the moment.
pub struct Here {
    bench: Bench,
    running: Option<Running>,
}

enum Running {
    Kernel(Launch, Job),
    Thread(JoinHandle<std::io::Result<Vec<u64>>>),
}

impl End {
    /// An end on a device of this process.
    pub fn here(bench: Bench) -> Self {
        Self::Here(Here { bench, running: None })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Here(here) => here.bench.name(),
            Self::Child(child) => &child.name,
        }
    }

    /// Says whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        match self {
            Self::Here(here) => here.bench.is_gpu(),
            Self::Child(child) => child.gpu,
        }
    }

    /// The device, if it is one of this process.
    pub fn bench(&self) -> Option<&Bench> {
        match self {
            Self::Here(here) => Some(&here.bench),
            Self::Child(_) => None,
        }
    }

    /// Begins its part.
    pub fn start(&mut self, task: &Task) -> Outcome<()> {
        match self {
            Self::Here(here) => here.start(task),
            Self::Child(child) => child.start(task),
        }
    }

    /// Waits for the end of its part, and returns what it has left.
    pub fn finish(&mut self) -> Outcome<Vec<u64>> {
        match self {
            Self::Here(here) => here.finish(),
            Self::Child(child) => child.finish(),
        }
    }
}

impl Here {
    fn start(&mut self, task: &Task) -> Outcome<()> {
        let (bench, threads) = (&self.bench, self.bench.threads(task.threads));
        let options = Options::DEFAULT
            .with_transport(TransportKind::Peer)
            .with_timeouts(20_000_000_000, 20_000_000_000);
        let addr = SockAddr::v4([127, 0, 0, 1], task.port);
        self.running = Some(match task.work {
            Work::Echo { size, rounds } => {
                let job = bench.job(size as usize, rounds as usize + 2)?;
                // A ring holds some messages, so that one call sends one.
                let ring = (4 * size).next_power_of_two().clamp(256 << 10, 4 << 20);
                let launch = bench.start(1, threads, |net| PingPong {
                    net,
                    addr,
                    options: options.with_rings(ring, ring),
                    buffer: job.buffer(),
                    size,
                    rounds,
                    ends: task.ends() as u64,
                    results: job.results(),
                })?;
                Running::Kernel(launch, job)
            }
            Work::Flow { pairs, ring, message, bytes } => {
                let job = bench.job((message * u64::from(pairs)) as usize, 4 * pairs as usize)?;
                let launch = bench.start(pairs, threads, |net| Flow {
                    net,
                    addr,
                    options: options.with_rings(ring, ring),
                    buffer: job.buffer(),
                    message,
                    bytes,
                    send: 1,
                    ends: task.ends() as u32,
                    results: job.results(),
                })?;
                Running::Kernel(launch, job)
            }
            Work::Duplex { pairs, ring, message, bytes, rounds } => {
                let room = 2 * Duplex::room(message) * u64::from(pairs);
                let job = bench.job(room as usize, 3 * pairs as usize)?;
                let launch = bench.start(pairs, threads, |net| Duplex {
                    net,
                    addr,
                    options: options.with_rings(ring, ring),
                    buffer: job.buffer(),
                    bytes,
                    message,
                    rounds,
                    ends: task.ends() as u64,
                    results: job.results(),
                })?;
                Running::Kernel(launch, job)
            }
            Work::UnixEcho { .. } | Work::UnixFlow { .. } => {
                let task = task.clone();
                Running::Thread(std::thread::spawn(move || unix::run(&task)))
            }
        });
        Ok(())
    }

    fn finish(&mut self) -> Outcome<Vec<u64>> {
        match self.running.take() {
            None => Err("nothing was begun".into()),
            Some(Running::Thread(thread)) => Ok(thread.join().map_err(|_| "the thread panicked")??),
            Some(Running::Kernel(launch, job)) => self.bench.finish(launch, &job),
        }
    }
}
