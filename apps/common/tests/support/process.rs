//! Starting, stopping and reading a program under test. The tests of several programs include this
//! file.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything here takes, on a machine that does other things too.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The results of a program that has ended.
pub struct Output {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Output {
    /// The JSON object that the program printed before it ended with success.
    pub fn json(&self) -> serde_json::Value {
        assert!(self.status.success(), "{:?}\n{}\n{}", self.status, self.out, self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.out, self.err))
    }
}

/// A command that runs `program`, with pipes for what it prints.
pub fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end of a process with such pipes, and fails the test if it does not end.
pub fn finish(mut child: Child) -> Output {
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let err = child.stderr.take().expect("piped");
    finish_reading(&mut child, out, err)
}

fn finish_reading(child: &mut Child, out: BufReader<ChildStdout>, err: ChildStderr) -> Output {
    // Read beside waiting: a full pipe would hold the process up.
    let (out, err) = (reader(out), reader(err));
    let status = wait(child);
    let text = |reader: JoinHandle<String>| reader.join().expect("the reader does not panic");
    Output { status, out: text(out), err: text(err) }
}

fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("the process can be waited for") {
            return status;
        }
        if start.elapsed() > TIMEOUT {
            let _ = child.kill();
            panic!("the process did not end within {TIMEOUT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Interrupts a process as Ctrl-C does.
pub fn interrupt(child: &Child) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a running process has a pid");
    kill_process(pid, Signal::INT).expect("the process takes a signal");
}

/// A running server; killed with the test.
pub struct Server {
    child: Child,
    pipes: Option<(BufReader<ChildStdout>, ChildStderr)>,
    /// Where it listens.
    pub addr: SocketAddr,
}

impl Server {
    /// Starts one by a [`command`], and waits until it prints where it listens.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the program starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut err = child.stderr.take().expect("piped");
        let mut line = String::new();
        out.read_line(&mut line).expect("the server's output is text");
        let addr = line.strip_prefix("listening on ").and_then(|rest| rest.split_whitespace().next());
        let addr = addr.and_then(|addr| addr.parse().ok()).unwrap_or_else(|| {
            let _ = child.kill();
            let mut rest = String::new();
            let _ = err.read_to_string(&mut rest);
            panic!("the server printed {line:?} and {rest:?}")
        });
        Self { child, pipes: Some((out, err)), addr }
    }

    /// Interrupts it as Ctrl-C does.
    pub fn interrupt(&self) {
        interrupt(&self.child);
    }

    /// Waits for its end, and returns what it printed after "listening on".
    pub fn finish(mut self) -> Output {
        let (out, err) = self.pipes.take().expect("finished once");
        finish_reading(&mut self.child, out, err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks that a program whose output cannot be written says so and fails.
#[track_caller]
pub fn fails_on_a_full_disk(program: &str, args: &[&str]) {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let output =
        command(program, args).stdout(full).stderr(Stdio::piped()).output().expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
    assert!(error.contains("cannot write to stdout: No space left"), "{args:?}: {error}");
}
