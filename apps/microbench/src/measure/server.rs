//! Servers as processes of their own: programs of gpunet, plain ones, and others that say where
//! they listen.

use super::Run;
use crate::outcome::Outcome;
use crate::process::{Owned, Profile, start_bound};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// What a server prints before its address.
pub const LISTENING: &str = "listening on ";

/// A running server. It ends when it is dropped.
pub struct Server {
    pub addr: SocketAddr,
    process: Owned,
    /// It is noted after each load how busy its threads were.
    is_noted: bool,
}

impl Server {
    /// Starts the echo program in this program's folder, at a free port of this machine. Without
    /// `blocks` it has its default number of blocks.
    pub fn echo(run: &Run<'_>, blocks: Option<u32>) -> Outcome<Self> {
        Self::program(run, "gpunet-echo", &["server", "127.0.0.1:0", "--transport", "tcp"], blocks)
    }

    /// Starts a program of gpunet in this program's folder, on the device that is measured.
    pub fn program(run: &Run<'_>, program: &str, args: &[&str], blocks: Option<u32>) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?.with_file_name(program));
        command.args(args);
        run.add_device_and_daemon(&mut command);
        if let Some(blocks) = blocks {
            command.args(["--blocks", &blocks.to_string()]);
        }
        Self::start(command.env("GPUNET_LOG", "error"))
    }

    /// Starts a plain server, by this program, with what `plain-server` takes as threads.
    pub fn plain(threads: &str) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["plain-server", threads]);
        Self::start(&mut command)
    }

    /// Starts a program that prints its address behind [`LISTENING`] when it serves.
    pub fn start(command: &mut Command) -> Outcome<Self> {
        let program = command.get_program().to_owned();
        let child = start_bound(command.stdin(Stdio::null()).stdout(Stdio::piped()), Signal::TERM)
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let mut process = Owned(child);
        let Some(stdout) = process.0.stdout.take() else {
            return Err(format!("{} has no output", program.display()).into());
        };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let Some(addr) = line.trim().strip_prefix(LISTENING).and_then(|addr| addr.parse().ok()) else {
            return Err(format!("{} does not serve: it said {line:?}", program.display()).into());
        };
        Ok(Self { addr, process, is_noted: false })
    }

    /// The same server; if `is_noted`, [`under`](Self::under) notes how busy its threads were.
    pub fn noted(self, is_noted: bool) -> Self {
        Self { is_noted, ..self }
    }

    /// Runs a load on the server.
    pub fn under<T>(
        &self,
        run: &mut Run<'_>,
        what: &str,
        load: impl FnOnce(SocketAddr) -> Outcome<T>,
    ) -> Outcome<T> {
        if !self.is_noted {
            return load(self.addr);
        }
        let profile = Profile::begin(self.process.0.id())?;
        let result = load(self.addr)?;
        run.recorder.note(format!("{what}: {}", profile.end()?));
        Ok(result)
    }
}
