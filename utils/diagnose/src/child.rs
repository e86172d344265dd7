//! Child processes for what may hang or crash: driver libraries, and kernels.
//!
//! The tool starts itself again with `--child TASK`. The child writes one JSON [`ChildEvent`] after
//! another to its standard output; the parent waits for each with a limit, and kills a child that
//! exceeds it.

#[cfg(test)]
mod tests;

use crate::check::Check;
use crate::libraries::{Driver, Libraries, NoAnswer, Rdma, SystemAnswer};
use crate::selftest::device::DeviceName;
use crate::selftest::{self, Test};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long one of the libraries may take to answer. The first `cuInit` on a large machine takes
/// seconds.
pub const LIBRARIES_LIMIT: Duration = Duration::from_secs(60);
/// How long one self-test may take: several waits of [`selftest::LIMIT`], and loading kernels on a
/// slow machine.
pub const TEST_LIMIT: Duration = Duration::from_secs(90);
/// What to do when no child can be started.
pub const NOT_STARTED: &str = "raise the limits of open files and of processes (ulimit -n 8192, ulimit -u), and run gpunet-diagnose again";
/// How long to wait for a killed child to end. One that a driver holds is left behind.
const GONE: Duration = Duration::from_secs(2);
/// How long a child may take to end normally: closing a GPU's context, and its sockets.
const FAREWELL: Duration = Duration::from_secs(10);

/// The task of a child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Ask NVIDIA's driver.
    Driver,
    /// Ask the RDMA libraries.
    Rdma,
    /// Ask the kernel, and a daemon.
    System {
        /// The path that `--daemon` gives.
        daemon: Option<PathBuf>,
    },
    /// Run self-tests on a device: their ids, and the addresses of RDMA devices.
    Tests {
        /// `cpu` or `cuda:N`.
        device: String,
        /// Such as `selftest.tcp`.
        tests: Vec<String>,
        /// Where rc may be tried.
        addresses: Vec<IpAddr>,
    },
}

/// What a child reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildEvent {
    /// The answer of the driver.
    Driver(Driver),
    /// The answer of the RDMA libraries.
    Rdma(Rdma),
    /// The answer of the kernel and a daemon.
    System(SystemAnswer),
    /// A self-test begins.
    Begin(String),
    /// It has ended.
    Done(Check),
}

/// Runs a task, as the child.
pub fn perform(task: &Task) {
    let say = |line: &ChildEvent| {
        if let Ok(text) = serde_json::to_string(line) {
            // Without a reader nobody needs the answer.
            let _ = writeln!(std::io::stdout(), "{text}");
        }
    };
    match task {
        Task::Driver => say(&ChildEvent::Driver(Driver::ask())),
        Task::Rdma => say(&ChildEvent::Rdma(Rdma::ask())),
        Task::System { daemon } => say(&ChildEvent::System(SystemAnswer::ask(daemon.as_deref()))),
        Task::Tests { device, tests, addresses } => {
            let Ok(name) = device.parse::<DeviceName>() else { return };
            let tests: Vec<Test> = tests.iter().filter_map(|id| Test::of(id)).collect();
            let begin = |test: Test| say(&ChildEvent::Begin(test.id().to_owned()));
            selftest::run(name, &tests, addresses, begin, |check| say(&ChildEvent::Done(check)));
        }
    }
}

/// The command that runs this program as a child.
fn this_program(task: &Task) -> Result<Command, String> {
    let program =
        std::env::current_exe().map_err(|why| format!("this program does not find itself: {why}"))?;
    let task = serde_json::to_string(task).map_err(|why| why.to_string())?;
    let mut command = Command::new(program);
    command.arg("--child").arg(task);
    Ok(command)
}

/// A running child and its lines.
struct Running {
    child: Child,
    lines: Receiver<ChildEvent>,
}

/// Why no line came.
enum Silence {
    /// The child has ended.
    Ended(String),
    /// It takes too long; it was killed.
    Late,
}

impl Running {
    fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|why| format!("a child process does not start: {why}"))?;
        let out = child.stdout.take().ok_or("a child process has no output")?;
        let (sender, lines) = channel();
        let read = move |out: ChildStdout| {
            // Other lines come from a library and are skipped.
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Ok(line) = serde_json::from_str(&line)
                    && sender.send(line).is_err()
                {
                    break;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("child-output".to_owned()).spawn(move || read(out));
        if let Err(why) = spawned {
            let _ = child.kill();
            return Err(format!("no thread to read a child's output: {why}"));
        }
        Ok(Self { child, lines })
    }

    fn next(&mut self, limit: Duration) -> Result<ChildEvent, Silence> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                self.end();
                Err(Silence::Late)
            }
            Err(RecvTimeoutError::Disconnected) => Err(Silence::Ended(
                self.wait(GONE).map_or_else(|| "its output ended".to_owned(), |status| describe(&status)),
            )),
        }
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.wait(GONE);
    }

    /// Lets a child that has reported everything end normally.
    fn part(mut self) {
        let _ = self.wait(FAREWELL);
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Harmless for one that has ended.
        self.end();
    }
}

fn describe(status: &ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("ended with code {code}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Asks the libraries, each in a child of its own, so that one that hangs or crashes does not
/// affect the others.
#[must_use]
pub fn libraries(daemon: Option<&Path>) -> Libraries {
    let system = Task::System { daemon: daemon.map(Path::to_owned) };
    Libraries {
        system: ask(&system, "the kernel", |line| match line {
            ChildEvent::System(system) => Some(system),
            _ => None,
        }),
        rdma: ask(&Task::Rdma, "the RDMA libraries", |line| match line {
            ChildEvent::Rdma(rdma) => Some(rdma),
            _ => None,
        }),
        driver: ask(&Task::Driver, "the CUDA driver", |line| match line {
            ChildEvent::Driver(driver) => Some(driver),
            _ => None,
        }),
    }
}

fn ask<T>(task: &Task, whom: &str, read: impl FnOnce(ChildEvent) -> Option<T>) -> Result<T, NoAnswer> {
    let command = this_program(task).map_err(NoAnswer::NotStarted)?;
    ask_by(command, whom, LIBRARIES_LIMIT, read)
}

fn ask_by<T>(
    command: Command,
    whom: &str,
    limit: Duration,
    read: impl FnOnce(ChildEvent) -> Option<T>,
) -> Result<T, NoAnswer> {
    let mut running = Running::start(command).map_err(NoAnswer::NotStarted)?;
    let broken_off = |how: &str| NoAnswer::BrokenOff(format!("the child process that asks {whom} {how}"));
    match running.next(limit) {
        Ok(line) => {
            running.part();
            read(line).ok_or_else(|| broken_off("said something else"))
        }
        Err(Silence::Late) => Err(broken_off(&format!("had no answer within {} s", limit.as_secs()))),
        Err(Silence::Ended(how)) => Err(broken_off(&how)),
    }
}

/// Runs self-tests in children, and passes each check to `each` as soon as it is done.
pub fn tests(name: DeviceName, tests: &[Test], addresses: &[IpAddr], each: impl FnMut(Check)) {
    let command = |tests: &[Test]| {
        this_program(&Task::Tests {
            device: name.to_string(),
            tests: tests.iter().map(|test| test.id().to_owned()).collect(),
            addresses: addresses.to_vec(),
        })
    };
    tests_by(command, name, tests, TEST_LIMIT, each);
}

/// A test that ends its child fails, and the others go on in another child. Tests that no child
/// starts have neither passed nor failed.
fn tests_by(
    command: impl Fn(&[Test]) -> Result<Command, String>,
    name: DeviceName,
    tests: &[Test],
    limit: Duration,
    mut each: impl FnMut(Check),
) {
    let mut left = tests;
    while !left.is_empty() {
        let mut running = match command(left).and_then(Running::start) {
            Ok(running) => running,
            Err(why) => {
                return left
                    .iter()
                    .for_each(|&test| each(selftest::not_begun(test, name, &why, NOT_STARTED)));
            }
        };
        let (mut current, mut ended_one) = (None, false);
        let why = loop {
            match running.next(limit) {
                Ok(ChildEvent::Begin(id)) => current = Test::of(&id).or(current),
                Ok(ChildEvent::Done(check)) => {
                    let ended = Test::of(&check.id);
                    each(check);
                    let Some(at) = left.iter().position(|&test| Some(test) == ended) else { continue };
                    (current, ended_one) = (None, true);
                    left = &left[at + 1..];
                    if left.is_empty() {
                        return running.part();
                    }
                }
                Ok(_) => {}
                Err(Silence::Late) => break format!("no end within {} s; killed", limit.as_secs()),
                Err(Silence::Ended(how)) => break format!("the test's process {how}"),
            }
        };
        let Some(current) = current else {
            if ended_one {
                continue;
            }
            // Another child would get no further.
            let why = format!("no test began: {why}");
            return left.iter().for_each(|&test| each(selftest::not_begun(test, name, &why, NOT_STARTED)));
        };
        each(selftest::broken_off(current, name, &why));
        left = left.iter().position(|&test| test == current).map_or(&[], |at| &left[at + 1..]);
        if current == Test::Ptx {
            // The device would not open for the others either, and each would take as long.
            let why = "not tried: the device does not open";
            return left
                .iter()
                .for_each(|&test| each(selftest::not_begun(test, name, why, "see selftest.ptx")));
        }
    }
}
