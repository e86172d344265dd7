//! Programs that a test starts.

use std::io::{BufRead, BufReader, Write};
use std::ops::{Deref, DerefMut};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A child process that is killed when this drops.
pub struct Killed(pub Child);

impl Deref for Killed {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Killed {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // Fails only if it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program of a suite that runs, and ends with the value: it prints a line for each result
/// ([`say`]), and waits for a line where it is to wait ([`wait`]).
pub struct Program {
    child: Killed,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child: Killed(child), stdin, stdout: BufReader::new(stdout) }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next result. (The test harness prints lines of its own.)
    #[track_caller]
    pub fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.stdout.read_line(&mut line).expect("a pipe");
            assert!(read > 0, "the program ended: {:?}", self.child.wait());
            if let Some(result) = line.trim_end().split("> ").nth(1) {
                return result.to_owned();
            }
        }
    }

    /// Lets it go on.
    pub fn go_on(&mut self) {
        self.stdin.write_all(b"\n").expect("it waits");
    }
}

pub fn say(result: impl std::fmt::Display) {
    println!("> {result}");
}

/// Waits until this program may go on; ends it with the test that started it.
pub fn wait() {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(0);
    }
}

/// Waits until a process has threads whose names begin with `names`, which threads have once they
/// run. Returns all that are this library's, with the signals that each blocks (bit 0 is signal 1).
#[track_caller]
pub fn library_threads(pid: u32, names: &[&str]) -> Vec<(String, u64)> {
    let mut threads = Vec::new();
    super::until("the threads run", || {
        threads = threads_now(pid);
        names.iter().all(|name| threads.iter().any(|(found, _)| found.starts_with(name)))
    });
    threads
}

fn threads_now(pid: u32) -> Vec<(String, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("this is Linux");
    // One may end while they are read.
    let statuses =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let threads = statuses.filter_map(|status| {
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let blocked = u64::from_str_radix(field("SigBlk:")?, 16).ok()?;
        Some((field("Name:")?.to_owned(), blocked))
    });
    threads.filter(|(name, _)| name.starts_with("gpunet-") || name.starts_with("gpunetd-")).collect()
}

/// Checks that a thread takes no signal of its program, and all that it may raise itself.
#[track_caller]
pub fn takes_no_signal(name: &str, blocked: u64) {
    let synchronous = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    for signal in 1..=31 {
        let never = [libc::SIGKILL, libc::SIGSTOP].contains(&signal);
        let expected = !never && !synchronous.contains(&signal);
        assert_eq!(blocked & (1 << (signal - 1)) != 0, expected, "{name}, signal {signal}: {blocked:x}");
    }
}
