//! `gpunet-echo server` as a process of its own.

use crate::measure::Run;
use crate::outcome::Outcome;
use crate::process::{Owned, start_bound};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// A running server. It ends when it is dropped.
pub struct Echo {
    pub addr: SocketAddr,
    process: Owned,
}

impl Echo {
    /// Starts the echo program in this program's folder, at a free port of this machine. Without
    /// `blocks` it has its default number of blocks.
    pub fn start(run: &Run<'_>, blocks: Option<u32>) -> Outcome<Self> {
        let program = std::env::current_exe()?.with_file_name("gpunet-echo");
        let mut command = Command::new(&program);
        command.args(["server", "127.0.0.1:0", "--transport", "tcp"]);
        run.add_device_and_daemon(&mut command);
        if let Some(blocks) = blocks {
            command.args(["--blocks", &blocks.to_string()]);
        }
        command.env("GPUNET_LOG", "error").stdin(Stdio::null()).stdout(Stdio::piped());
        let child = start_bound(&mut command, Signal::TERM)
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let mut process = Owned(child);
        let Some(stdout) = process.0.stdout.take() else { return Err("gpunet-echo has no output".into()) };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let addr = line.trim().strip_prefix("listening on ");
        let Some(addr) = addr.and_then(|addr| addr.parse().ok()) else {
            return Err(format!("{} does not serve: it said {line:?}", program.display()).into());
        };
        Ok(Self { addr, process })
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.process.0.id()
    }
}
