//! Starting, stopping and reading the program under test.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program.
pub const ECHO: &str = env!("CARGO_BIN_EXE_gpunet-echo");

/// A command that runs the program.
pub fn echo(args: &[&str]) -> Command {
    let mut command = Command::new(ECHO);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program to its end.
pub fn run(args: &[&str]) -> Output {
    finish(echo(args).spawn().expect("the program starts"))
}

/// Runs the program to its end, which is to be good, and reads the object it prints.
pub fn json(args: &[&str]) -> serde_json::Value {
    let output = run(args);
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{args:?}: {:?}\n{out}\n{err}", output.status);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error}\n{out}\n{err}"))
}

/// What the program wrote, as text.
pub fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Waits for a process, and fails the test if it does not end.
pub fn finish(mut child: Child) -> Output {
    // Read beside waiting: a full pipe would hold the process up.
    let out = child.stdout.take().map(reader);
    let err = child.stderr.take().map(reader);
    let status = wait(&mut child);
    let text = |reader: Option<std::thread::JoinHandle<Vec<u8>>>| {
        reader.map_or_else(Vec::new, |reader| reader.join().expect("the reader does not panic"))
    };
    Output { status, stdout: text(out), stderr: text(err) }
}

fn reader(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("the process can be waited for") {
            return status;
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("the process did not end within {PATIENCE:?}");
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
    child: Option<Child>,
    out: BufReader<ChildStdout>,
    err: Option<ChildStderr>,
    /// Where it listens.
    pub addr: SocketAddr,
}

impl Server {
    /// Starts one on the CPU device and waits until it listens.
    pub fn start(args: &[&str]) -> Self {
        let all: Vec<&str> = ["server"].iter().chain(args).chain(&["--device", "cpu"]).copied().collect();
        let mut child = echo(&all).spawn().expect("the program starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("the server's output is text");
        let addr =
            line.strip_prefix("listening on ").and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let addr = addr.unwrap_or_else(|| {
            let _ = child.kill();
            let mut rest = String::new();
            if let Some(mut err) = child.stderr.take() {
                let _ = err.read_to_string(&mut rest);
            }
            panic!("the server said {line:?} and {rest:?}")
        });
        let err = child.stderr.take();
        Self { child: Some(child), out, err, addr }
    }

    /// Interrupts it and returns its status and what it printed after "listening on".
    pub fn stop(mut self) -> (ExitStatus, String) {
        let mut child = self.child.take().expect("stopped once");
        interrupt(&child);
        let status = wait(&mut child);
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("the server's output is text");
        if let Some(mut err) = self.err.take() {
            let mut lines = String::new();
            let _ = err.read_to_string(&mut lines);
            eprint!("{lines}");
        }
        (status, text)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
