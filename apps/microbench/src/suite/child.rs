//! One measurement as a process, with a limit of time.

use crate::process::start_bound;
use crate::report::{self, Table};
use crate::scratch::Scratch;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process that is told to end may take until it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// The pause between two looks at a process.
const LOOK: Duration = Duration::from_millis(20);

/// What a run left.
pub struct Ended {
    /// Its tables, with the rows that it has measured.
    pub tables: Vec<Table>,
    /// Why it did not succeed.
    pub why: Option<String>,
    /// Whether it was ended at the limit.
    pub is_late: bool,
}

/// Runs this program with these arguments. It and what it starts are killed if it takes longer than
/// `limit`.
pub fn run(arguments: &[String], scratch: &Scratch, limit: Duration) -> Ended {
    let json = scratch.path().join("tables.json");
    match ended(arguments, &json, scratch.path(), limit) {
        Ok((why, is_late)) => {
            let tables =
                if json.exists() { report::read(&json).map(|report| report.tables) } else { Ok(Vec::new()) };
            match tables {
                Ok(tables) => Ended { tables, why, is_late },
                Err(error) => Ended { tables: Vec::new(), why: why.or(Some(error.to_string())), is_late },
            }
        }
        Err(error) => {
            Ended { tables: Vec::new(), why: Some(format!("it cannot be run: {error}")), is_late: false }
        }
    }
}

/// Returns why the process did not succeed, and whether it was late.
fn ended(
    arguments: &[String],
    json: &Path,
    folder: &Path,
    limit: Duration,
) -> std::io::Result<(Option<String>, bool)> {
    let log = folder.join("stderr");
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).arg("--json").arg(json);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
    // What it makes for itself is removed with the folder, also if it is killed.
    command.env("TMPDIR", folder);
    // A group of its own, so that what it starts ends with it.
    command.process_group(0);
    let mut child = start_bound(&mut command, Signal::TERM)?;
    let group = Pid::from_child(&child);
    let members = Scratch::group(group);
    let mut is_late = false;
    if !has_ended(group, limit)? {
        is_late = true;
        let _ = kill_process_group(group, Signal::TERM);
        has_ended(group, GRACE)?;
    }
    // Kills what it has left behind. Until it is reaped, its number is this group's.
    drop(members);
    let status = child.wait()?;
    if is_late {
        return Ok((Some(format!("it took longer than {} s", limit.as_secs())), true));
    }
    if status.success() {
        return Ok((None, false));
    }
    let said = last_line(&std::fs::read(&log).unwrap_or_default());
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => status.to_string(),
    };
    Ok((Some(if said.is_empty() { how } else { format!("{said} ({how})") }), false))
}

/// Waits until the process has ended; returns false if it has not at the limit. It stays to be
/// reaped.
fn has_ended(process: Pid, limit: Duration) -> std::io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let begin = Instant::now();
    loop {
        match waitid(WaitId::Pid(process), options) {
            Ok(Some(_)) => return Ok(true),
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if begin.elapsed() >= limit {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns what a process said last: the line of this program's error, or else the last line.
fn last_line(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(&log[log.len().saturating_sub(1 << 16)..]).into_owned();
    let lines = || text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let own = lines().find_map(|line| line.strip_prefix("gpunet-bench: "));
    own.or_else(|| lines().next()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_programs_own_line() {
        let log = b"warning\ngpunet-bench: failed: peer\nnote: run with RUST_BACKTRACE=1\n";
        assert_eq!(last_line(log), "failed: peer");
        assert_eq!(last_line(b"one\n\ntwo\n \n"), "two");
        assert_eq!(last_line(b""), "");
    }
}
