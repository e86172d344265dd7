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

/// A program of a suite that runs, and ends with the value: it prints a line for each result ([`say`]), and waits for a
/// line where it is to wait ([`wait`]).
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
