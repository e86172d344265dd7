//! Ends in processes of their own, which get tasks and return results as JSON lines.

use super::task::Task;
use crate::json_lines;
use crate::outcome::Outcome;
use crate::process::start_bound;
use crate::scratch::Scratch;
use gpunet_app::proxy::ProxyArgs;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A report of a child, as a line.
#[derive(Deserialize, Serialize)]
pub(super) enum PairEvent {
    /// The child is attached.
    Ready {
        name: String,
        gpu: bool,
    },
    /// A task is done.
    Words(Vec<u64>),
    Failed(String),
}

/// A process that plays an end.
pub struct EndProcess {
    name: String,
    gpu: bool,
    process: Process,
    tasks: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

/// A process that ends with its owner. The owner gives it some time for this.
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

impl Drop for EndProcess {
    fn drop(&mut self) {
        // No more tasks: it ends.
        drop(self.tasks.take());
    }
}

impl EndProcess {
    /// Starts a process that attaches a device to a daemon.
    pub fn attached(role: &str, device: &str, daemon: &Path) -> Outcome<Self> {
        Self::start_process(role, device, Some(daemon))
    }

    /// Starts a process that has plain sockets only.
    pub fn plain(role: &str) -> Outcome<Self> {
        Self::start_process(role, "cpu", None)
    }

    fn start_process(role: &str, device: &str, daemon: Option<&Path>) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--device", device, "end", "--role", role]);
        if let Some(path) = daemon {
            command.arg("--attach").arg(path);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = start_bound(&mut command, Signal::KILL)?;
        let tasks = process.stdin.take();
        let lines = BufReader::new(process.stdout.take().ok_or("no pipe")?);
        let mut child = Self { name: String::new(), gpu: false, process: Process(process), tasks, lines };
        match child.event()? {
            PairEvent::Ready { name, gpu } => {
                (child.name, child.gpu) = (name, gpu);
                Ok(child)
            }
            PairEvent::Failed(reason) => Err(reason.into()),
            PairEvent::Words(_) => Err("an unexpected event".into()),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// The name of its device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether its device is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.gpu
    }

    /// Begins a task.
    pub fn start(&mut self, task: &Task) -> Outcome<()> {
        let tasks = self.tasks.as_mut().ok_or("the process was told to end")?;
        json_lines::write(tasks, task)
    }

    /// Waits for its result.
    pub fn finish(&mut self) -> Outcome<Vec<u64>> {
        match self.event()? {
            PairEvent::Words(words) => Ok(words),
            PairEvent::Failed(reason) => Err(reason.into()),
            PairEvent::Ready { .. } => Err("an unexpected event".into()),
        }
    }

    fn event(&mut self) -> Outcome<PairEvent> {
        match json_lines::read(&mut self.lines)? {
            Some(event) => Ok(event),
            None => Err(format!("the process has ended: {:?}", self.process.0.try_wait()?).into()),
        }
    }
}

/// The gpunetd of a run.
pub struct Daemon {
    path: PathBuf,
    _own: Option<Own>,
}

/// A daemon of this run alone.
struct Own {
    process: Process,
    _folder: Scratch,
}

impl Drop for Own {
    fn drop(&mut self) {
        // Its clients are gone.
        let _ = self.process.0.kill();
    }
}

impl Daemon {
    /// Uses the daemon that the command line names, or starts the one in this program's folder.
    pub fn start(proxy: &ProxyArgs) -> Outcome<Self> {
        if let Some(path) = proxy.daemon.clone().filter(|_| proxy.names_a_daemon()) {
            return Ok(Self { path, _own: None });
        }
        let gpunetd = std::env::current_exe()?.with_file_name("gpunetd");
        let folder = std::env::temp_dir().join(format!("gpunet-bench-{}", std::process::id()));
        let folder = Scratch::folder(folder)?;
        let path = folder.path().join("gpunetd.sock");
        let mut command = Command::new(&gpunetd);
        command.args(["--log", "warn", "--listen-path"]).arg(&path).stdin(Stdio::null());
        let process = start_bound(&mut command, Signal::TERM)
            .map_err(|error| format!("cannot start {}: {error}", gpunetd.display()))?;
        let mut own = Own { process: Process(process), _folder: folder };
        let limit = Instant::now() + Duration::from_secs(10);
        while !path.exists() {
            if let Some(status) = own.process.0.try_wait()? {
                return Err(format!("{} has ended: {status}", gpunetd.display()).into());
            }
            if Instant::now() > limit {
                return Err(format!("{} does not listen", gpunetd.display()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { path, _own: Some(own) })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
