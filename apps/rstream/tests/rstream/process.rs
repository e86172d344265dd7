//! Starting, stopping and reading the program under test.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything here takes, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a program that has ended left.
pub struct Output {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Output {
    /// The object it printed, after it ended as it should.
    pub fn json(&self) -> serde_json::Value {
        assert!(self.status.success(), "{:?}\n{}\n{}", self.status, self.out, self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.out, self.err))
    }
}

fn start(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_gpunet-rstream"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Runs the program to its end.
pub fn run(args: &[&str]) -> Output {
    let mut child = start(args);
    let out = child.stdout.take().map(BufReader::new).expect("piped");
    let err = child.stderr.take().expect("piped");
    finish(&mut child, out, err)
}

/// Runs the program on the CPU device to its end.
pub fn run_on_cpu(args: &[&str]) -> Output {
    run(&[args, &["--device", "cpu"]].concat())
}

fn finish(child: &mut Child, out: BufReader<ChildStdout>, err: ChildStderr) -> Output {
    // Read beside waiting: a full pipe would hold the process up.
    let (out, err) = (reader(out), reader(err));
    let status = wait(child);
    let text = |reader: JoinHandle<String>| reader.join().expect("the reader does not panic");
    Output { status, out: text(out), err: text(err) }
}

fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = pipe.read_to_string(&mut text);
        text
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

/// A running server; killed with the test.
pub struct Server {
    child: Child,
    pipes: Option<(BufReader<ChildStdout>, ChildStderr)>,
    /// Where it listens.
    pub addr: SocketAddr,
}

impl Server {
    /// Starts one on the CPU device, on a free port, and waits until it listens.
    pub fn start(args: &[&str]) -> Self {
        let mut child = start(&[&["server", "127.0.0.1:0", "--device", "cpu"], args].concat());
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut err = child.stderr.take().expect("piped");
        let mut line = String::new();
        out.read_line(&mut line).expect("the server's output is text");
        let addr = line.strip_prefix("listening on ").and_then(|rest| rest.trim().parse().ok());
        let addr = addr.unwrap_or_else(|| {
            let _ = child.kill();
            let mut rest = String::new();
            let _ = err.read_to_string(&mut rest);
            panic!("the server said {line:?} and {rest:?}")
        });
        Self { child, pipes: Some((out, err)), addr }
    }

    /// Interrupts it as Ctrl-C does.
    pub fn interrupt(&self) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a running process has a pid");
        kill_process(pid, Signal::INT).expect("the process takes a signal");
    }

    /// Waits for its end, and returns what it printed after "listening on".
    pub fn finish(mut self) -> Output {
        let (out, err) = self.pipes.take().expect("finished once");
        finish(&mut self.child, out, err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
