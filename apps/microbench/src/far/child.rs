//! Ends in processes of their own: tasks go to them as JSON lines, results come back as such.

use super::end::End;
use super::task::Task;
use crate::bench::{self, Bench, Outcome};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// What `far-end` takes. `far --processes` starts it.
#[derive(Args, Clone, Debug)]
pub struct EndArgs {
    /// Which end it is; for people who look at the list of processes.
    #[arg(long)]
    role: String,
    /// Where a gpunetd listens.
    #[arg(long, value_name = "PATH")]
    daemon: PathBuf,
}

/// A line from a child.
#[derive(Deserialize, Serialize)]
enum Line {
    /// It is attached.
    Ready {
        name: String,
        gpu: bool,
    },
    /// A task is done.
    Words(Vec<u64>),
    Failed(String),
}

/// `far-end`: does the tasks that come in as lines, until there are no more.
pub fn serve(device: &str, args: &EndArgs, quick: bool) -> Outcome<bool> {
    let attached = bench::proxy(Some(&args.daemon)).and_then(|proxy| Bench::attach(&proxy, device, quick));
    let mut end = match attached {
        Ok(bench) => End::here(bench),
        Err(error) => {
            say(&Line::Failed(format!("{} on {device}: {error}", args.role)))?;
            return Ok(false);
        }
    };
    say(&Line::Ready { name: end.name().to_owned(), gpu: end.is_gpu() })?;
    for line in std::io::stdin().lines() {
        let task: Task = serde_json::from_str(&line?)?;
        say(&match end.start(&task).and_then(|()| end.finish()) {
            Ok(words) => Line::Words(words),
            Err(error) => Line::Failed(error.to_string()),
        })?;
    }
    Ok(true)
}

fn say(line: &Line) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(line)?)?;
    Ok(out.flush()?)
}

/// A process that is an end.
pub struct Child {
    pub name: String,
    pub gpu: bool,
    process: Process,
    tasks: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

/// A process that ends with its owner.
struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        let limit = Instant::now() + Duration::from_secs(10);
        while Instant::now() < limit {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // No more tasks: it ends.
        drop(self.tasks.take());
    }
}

impl Child {
    /// Begins a task.
    pub fn start(&mut self, task: &Task) -> Outcome<()> {
        let tasks = self.tasks.as_mut().ok_or("the process was told to end")?;
        writeln!(tasks, "{}", serde_json::to_string(task)?)?;
        Ok(tasks.flush()?)
    }

    /// Waits for its result.
    pub fn finish(&mut self) -> Outcome<Vec<u64>> {
        match self.line()? {
            Line::Words(words) => Ok(words),
            Line::Failed(reason) => Err(reason.into()),
            Line::Ready { .. } => Err("a line out of turn".into()),
        }
    }

    fn line(&mut self) -> Outcome<Line> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            let status = self.process.0.try_wait()?;
            return Err(format!("the process has ended: {status:?}").into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}

/// The daemon of a run, and how to start ends that attach to it.
pub struct Children {
    path: PathBuf,
    _daemon: Option<Daemon>,
}

struct Daemon {
    process: Process,
    folder: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It is this run's alone, and its clients are gone.
        let _ = self.process.0.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Children {
    /// Takes the daemon at `path`, or starts the one beside this program.
    pub fn start(path: Option<PathBuf>) -> Outcome<Self> {
        if let Some(path) = path {
            return Ok(Self { path, _daemon: None });
        }
        let gpunetd = std::env::current_exe()?.with_file_name("gpunetd");
        let folder = std::env::temp_dir().join(format!("gpunet-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let path = folder.join("gpunetd.sock");
        let started = Command::new(&gpunetd).arg("--listen-path").arg(&path).stdin(Stdio::null()).spawn();
        let process = match started {
            Ok(process) => Process(process),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&folder);
                return Err(format!("cannot start {}: {error}", gpunetd.display()).into());
            }
        };
        let mut daemon = Daemon { process, folder };
        let limit = Instant::now() + Duration::from_secs(10);
        while !path.exists() {
            if let Some(status) = daemon.process.0.try_wait()? {
                return Err(format!("{} has ended: {status}", gpunetd.display()).into());
            }
            if Instant::now() > limit {
                return Err(format!("{} does not listen", gpunetd.display()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { path, _daemon: Some(daemon) })
    }

    /// Starts an end on a device.
    pub fn end(&mut self, role: &str, device: &str) -> Outcome<End> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--device", device, "far-end", "--role", role, "--daemon"])
            .arg(&self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let tasks = process.stdin.take();
        let lines = BufReader::new(process.stdout.take().ok_or("no pipe")?);
        let mut child = Child { name: String::new(), gpu: false, process: Process(process), tasks, lines };
        match child.line()? {
            Line::Ready { name, gpu } => {
                (child.name, child.gpu) = (name, gpu);
                Ok(End::Child(child))
            }
            Line::Failed(reason) => Err(reason.into()),
            Line::Words(_) => Err("a line out of turn".into()),
        }
    }
}
