//! The process that starts a daemon and workers, and stops and kills them.

use crate::daemon::{Running, TempDir};
use crate::support::Killed;
use crate::support::rng::Rng;
use crate::watch::Report;
use crate::worker;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes that ends.
pub const LONG: Duration = Duration::from_secs(20);

/// What a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Kernels of the CPU device.
    Kernels,
    /// A host program, on tokio.
    Host,
    /// Clients that know nothing of gpunet.
    Foreign,
}

impl Kind {
    /// Of several workers of gpunet, each third one is a host program.
    pub const fn of(number: usize) -> Self {
        if number % 3 == 2 { Self::Host } else { Self::Kernels }
    }
}

pub struct Worker {
    pub child: Killed,
    pub pid: u32,
    kind: Kind,
    number: usize,
    /// It runs again at that time.
    pub until: Option<Instant>,
}

pub struct Storm {
    pub dir: TempDir,
    pub workers: Vec<Worker>,
    pub rng: Rng,
    pub mortal: bool,
    started: usize,
    /// What those said last that were killed.
    past: Vec<(Kind, Report)>,
}

/// What a process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub fds: Vec<String>,
    pub threads: Vec<String>,
}

impl Held {
    pub fn of(pid: u32) -> Self {
        let list = |what| std::fs::read_dir(format!("/proc/{pid}/{what}")).into_iter().flatten().flatten();
        let target = |fd: std::fs::DirEntry| Some(std::fs::read_link(fd.path()).ok()?.display().to_string());
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
        let mut held = Self {
            fds: list("fd").filter_map(target).collect(),
            threads: list("task").filter_map(name).collect(),
        };
        held.fds.sort();
        held.threads.sort();
        held
    }

    /// Descriptors of memory.
    pub fn memory(&self) -> usize {
        self.fds.iter().filter(|to| to.starts_with("/memfd:")).count()
    }

    pub fn counts(&self) -> (usize, usize, usize) {
        (self.fds.len(), self.memory(), self.threads.len())
    }
}

pub fn seed() -> u64 {
    let given = std::env::var("GPUNET_STORM_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        now.as_nanos() as u64 % 1_000_000_000
    })
}

pub fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process");
    kill_process(pid, signal).expect("it lives");
}

impl Storm {
    pub fn new(seed: u64, mortal: bool) -> Self {
        let dir = TempDir::new();
        for name in ["new", "servers", "progress", "log"] {
            std::fs::create_dir(dir.join(name)).expect("a new directory");
        }
        Self { dir, workers: Vec::new(), rng: Rng::new(seed), mortal, started: 0, past: Vec::new() }
    }

    pub fn tell(&self, what: &str) {
        self.dir.file(what, "");
    }

    pub fn add(&mut self, kind: Kind) {
        let number = self.started;
        self.started += 1;
        let log = std::fs::File::create(self.log(number)).expect("a log");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "worker", "--nocapture"])
            .env(worker::DIR, self.dir.join(""))
            .env(worker::SEED, self.rng.next().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        match kind {
            Kind::Kernels => {}
            Kind::Host => drop(command.env(worker::HOST, "1")),
            Kind::Foreign => drop(command.env(worker::FOREIGN, "1")),
        }
        if self.mortal {
            command.env(worker::MORTAL, "1");
        }
        let child = Killed(command.spawn().expect("this program again"));
        let pid = child.id();
        self.workers.push(Worker { child, pid, kind, number, until: None });
    }

    fn log(&self, number: usize) -> std::path::PathBuf {
        self.dir.join("log").join(number.to_string())
    }

    pub fn report(&self, pid: u32) -> Report {
        Report::of(&self.dir.join(""), pid).unwrap_or_default()
    }

    /// Kills one, waits for its death, and says what it was.
    pub fn kill(&mut self, at: usize) -> Kind {
        let mut worker = self.workers.remove(at);
        // Nobody else is to be sent there.
        let _ = std::fs::remove_file(self.dir.join("servers").join(worker.pid.to_string()));
        worker.child.kill().expect("SIGKILL");
        worker.child.wait().expect("dead");
        self.past.push((worker.kind, self.report(worker.pid)));
        let _ = std::fs::remove_file(self.dir.join("progress").join(worker.pid.to_string()));
        worker.kind
    }

    /// How many connections of foreign clients have come to their end, so that every byte of them
    /// was checked.
    pub fn foreign_done(&self) -> u64 {
        let living = self.workers.iter().map(|worker| (worker.kind, self.report(worker.pid)));
        let all = self.past.iter().cloned().chain(living);
        all.filter(|(kind, _)| *kind == Kind::Foreign).map(|(_, report)| report.done).sum()
    }

    /// Stops one that runs for so long; says which.
    pub fn stop_one(&mut self, time: Duration) -> Option<u32> {
        let at = self.rng.range(0, self.workers.len() as u64) as usize;
        let worker = self.workers.get_mut(at).filter(|worker| worker.until.is_none())?;
        send(worker.pid, Signal::STOP);
        worker.until = Some(Instant::now() + time);
        Some(worker.pid)
    }

    /// Lets those go on whose time has come.
    pub fn go_on(&mut self, all: bool) {
        let now = Instant::now();
        for worker in &mut self.workers {
            if worker.until.is_some_and(|until| all || until <= now) {
                send(worker.pid, Signal::CONT);
                worker.until = None;
            }
        }
    }

    /// Fails if a worker has ended of its own.
    pub fn check(&mut self) {
        for at in 0..self.workers.len() {
            if let Some(status) = self.workers[at].child.try_wait().expect("our child") {
                let log = std::fs::read_to_string(self.log(self.workers[at].number)).unwrap_or_default();
                panic!(
                    "worker {} (number {}) ended: {status}\n{log}",
                    self.workers[at].pid, self.workers[at].number
                );
            }
        }
    }

    /// Waits until something holds of all workers.
    pub fn until(&mut self, what: &str, condition: impl Fn(&Report) -> bool) {
        let start = Instant::now();
        loop {
            self.check();
            let reports: Vec<_> = self.workers.iter().map(|worker| self.report(worker.pid)).collect();
            if reports.iter().all(&condition) {
                return;
            }
            assert!(start.elapsed() < LONG, "never: {what}: {reports:#?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends all workers in good order.
    pub fn end(&mut self) {
        self.tell("finish");
        self.until("all clients are done", |report| report.idle);
        let last = self.workers.iter().map(|worker| (worker.kind, self.report(worker.pid)));
        let last: Vec<_> = last.collect();
        self.past.extend(last);
        self.tell("exit");
        let start = Instant::now();
        while !self.workers.is_empty() {
            self.workers.retain_mut(|worker| match worker.child.try_wait().expect("our child") {
                None => true,
                Some(status) if status.success() => false,
                Some(status) => {
                    let log = self.dir.join("log").join(worker.number.to_string());
                    panic!("{}: {status}\n{}", worker.pid, std::fs::read_to_string(log).unwrap_or_default())
                }
            });
            assert!(start.elapsed() < LONG, "{} workers do not end", self.workers.len());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What all workers did together, in a line.
    pub fn sum(&self) -> String {
        let sum = |of: fn(&Report) -> u64| self.past.iter().map(|(_, report)| of(report)).sum::<u64>();
        let most = |of: fn(&Report) -> u64| self.past.iter().map(|(_, report)| of(report)).max().unwrap_or(0);
        format!(
            "{} workers, {} connections done, {} cut by a death, {} tried again, {} MB verified; \
             longest: {} ms until a dead peer's connection ended, {} ms of no progress with a live one ({})",
            self.started,
            sum(|r| r.done),
            sum(|r| r.broke),
            sum(|r| r.retries),
            sum(|r| r.bytes) / 1_000_000,
            most(|r| r.most_gone_ms),
            most(|r| r.most_stalled_ms),
            self.past.iter().max_by_key(|(_, r)| r.most_stalled_ms).map_or("", |(_, r)| &r.stalled_at),
        )
    }
}

/// The daemon's log has no panics in it.
pub fn sane(daemon: &Running) {
    let log = daemon.log();
    assert!(!log.contains("panicked"), "{log}");
}
