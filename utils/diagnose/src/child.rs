//! Child processes for what may hang or crash: the drivers' libraries, and kernels.
//!
//! The tool starts itself again with `--child TASK`. The child writes one JSON [`Line`] after another to its
//! standard output; the parent waits for each with a limit, and kills a child that exceeds it.

#[cfg(test)]
mod tests;

use crate::check::Check;
use crate::libraries::Libraries;
use crate::selftest::device::Name;
use crate::selftest::{self, Test};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long the libraries may take to say what there is. The first `cuInit` on a large machine takes seconds.
pub const LIBRARIES_LIMIT: Duration = Duration::from_secs(60);
/// How long one self-test may take: several waits of [`selftest::LIMIT`], and loading kernels on a slow machine.
pub const TEST_LIMIT: Duration = Duration::from_secs(90);
/// How long a killed child may take to be gone. One that a driver holds is left behind.
const GONE: Duration = Duration::from_secs(2);
/// How long a child may take to end in good order: closing a GPU's context, and its sockets.
const FAREWELL: Duration = Duration::from_secs(10);

/// What a child is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Ask the libraries.
    Libraries,
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

/// What a child says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    /// The libraries' facts.
    Libraries(Box<Libraries>),
    /// A self-test begins.
    Begin(String),
    /// It has ended.
    Done(Check),
}

/// Does a task, as the child.
pub fn perform(task: &Task) {
    let say = |line: &Line| {
        if let Ok(text) = serde_json::to_string(line) {
            // Without a reader there is nobody to do it for.
            let _ = writeln!(std::io::stdout(), "{text}");
        }
    };
    match task {
        Task::Libraries => say(&Line::Libraries(Box::new(Libraries::ask()))),
        Task::Tests { device, tests, addresses } => {
            let Ok(name) = device.parse::<Name>() else { return };
            let tests: Vec<Test> = tests.iter().filter_map(|id| Test::of(id)).collect();
            let begin = |test: Test| say(&Line::Begin(test.id().to_owned()));
            selftest::run(name, &tests, addresses, begin, |check| say(&Line::Done(check)));
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
    lines: Receiver<Line>,
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
            // Lines that are no `Line` are a library's; they are passed over.
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

    fn next(&mut self, limit: Duration) -> Result<Line, Silence> {
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

    /// Lets a child that has said everything give back what it holds.
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
        (Some(signal), _) => format!("killed by signal {signal}"),
        (None, Some(code)) => format!("ended with code {code}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Asks the libraries in a child.
///
/// # Errors
/// What happened to the child.
pub fn libraries() -> Result<Libraries, String> {
    libraries_by(this_program(&Task::Libraries)?, LIBRARIES_LIMIT)
}

fn libraries_by(command: Command, limit: Duration) -> Result<Libraries, String> {
    let mut running = Running::start(command)?;
    match running.next(limit) {
        Ok(Line::Libraries(libraries)) => {
            running.part();
            Ok(*libraries)
        }
        Ok(_) => Err("the child process that asks the libraries said something else".to_owned()),
        Err(Silence::Late) => Err(format!("the libraries gave no answer within {} s", limit.as_secs())),
        Err(Silence::Ended(how)) => Err(format!("the child process that asks the libraries {how}")),
    }
}

/// Runs self-tests in children, each check as soon as it is there.
pub fn tests(name: Name, tests: &[Test], addresses: &[IpAddr], each: impl FnMut(Check)) {
    let command = |tests: &[Test]| {
        this_program(&Task::Tests {
            device: name.to_string(),
            tests: tests.iter().map(|test| test.id().to_owned()).collect(),
            addresses: addresses.to_vec(),
        })
    };
    tests_by(command, name, tests, TEST_LIMIT, each);
}

/// A test that takes its child with it fails, and the others go on in another child.
fn tests_by(
    command: impl Fn(&[Test]) -> Result<Command, String>,
    name: Name,
    tests: &[Test],
    limit: Duration,
    mut each: impl FnMut(Check),
) {
    let mut left = tests;
    while let [first, rest @ ..] = left {
        let mut running = match command(left).and_then(Running::start) {
            Ok(running) => running,
            Err(why) => {
                left.iter().for_each(|&test| each(selftest::broken_off(test, name, &why)));
                return;
            }
        };
        let mut current = *first;
        let why = loop {
            match running.next(limit) {
                Ok(Line::Begin(id)) => current = Test::of(&id).unwrap_or(current),
                Ok(Line::Done(check)) => {
                    let ended = Test::of(&check.id);
                    each(check);
                    let Some(at) = left.iter().position(|&test| Some(test) == ended) else { continue };
                    left = &left[at + 1..];
                    if left.is_empty() {
                        return running.part();
                    }
                    current = left[0];
                }
                Ok(Line::Libraries(_)) => {}
                Err(Silence::Late) => break format!("no end within {} s; killed", limit.as_secs()),
                Err(Silence::Ended(how)) => break format!("the test's process {how}"),
            }
        };
        each(selftest::broken_off(current, name, &why));
        if current == Test::Ptx {
            // Nor will it open for the others, and each would take as long.
            let rest = rest.iter();
            return rest.for_each(|&test| {
                each(selftest::broken_off(test, name, "not tried: the device does not open"))
            });
        }
        let at = left.iter().position(|&test| test == current);
        left = at.map_or(rest, |at| &left[at + 1..]);
    }
}
