//! A gpunetd of the tests.

use crate::support::Killed;
pub use crate::support::{daemon::TempDir, until};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const GPUNETD: &str = env!("CARGO_BIN_EXE_gpunetd");
pub const GPUNETCTL: &str = env!("CARGO_BIN_EXE_gpunetctl");

/// Longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(20);

/// A command without the settings of whoever runs the tests.
pub fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    let ours = |name: &str| name.starts_with("GPUNETD_") || name.starts_with("LISTEN_");
    for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    for name in ["NOTIFY_SOCKET", "RUNTIME_DIRECTORY", "JOURNAL_STREAM", "WATCHDOG_USEC", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    command
}

/// A gpunetd that listens in `dir` and has no RDMA.
pub fn gpunetd(dir: &TempDir) -> Command {
    let mut command = clean(GPUNETD);
    command.arg("--listen-path").arg(dir.join("d.sock")).args(["--rc", "off", "--drain-s", "2"]);
    command
}

/// Runs a command to its end.
pub fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("it runs")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// A daemon that runs, and ends at the latest with the test.
pub struct Running {
    pub child: Killed,
    log: Arc<Mutex<String>>,
}

impl Running {
    /// Starts it; it may end by itself.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut stderr = child.stderr.take().expect("piped");
        let log = Arc::new(Mutex::new(String::new()));
        let kept = log.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = stderr.read(&mut buffer) {
                kept.lock().expect("sane").push_str(&String::from_utf8_lossy(&buffer[..len]));
            }
        });
        Self { child: Killed(child), log }
    }

    /// Starts it and waits until clients can attach.
    pub fn start(command: &mut Command) -> Self {
        let running = Self::spawn(command);
        running.until_logged("clients attach");
        running
    }

    pub fn log(&self) -> String {
        self.log.lock().expect("sane").clone()
    }

    pub fn until_logged(&self, word: &str) {
        let start = Instant::now();
        while !self.log().contains(word) {
            assert!(start.elapsed() < LONG, "{word:?} is not in the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it lives");
    }

    /// Waits for its end: the exit code.
    pub fn end(&mut self) -> i32 {
        let mut status = None;
        until("its end", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        let status = status.expect("ended");
        status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
    }
}

/// Is there a socket that somebody listens at?
pub fn answers(path: &Path) -> bool {
    use socket2::{Domain, SockAddr, Socket, Type};
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
    socket.connect(&SockAddr::unix(path).expect("short enough")).is_ok()
}
