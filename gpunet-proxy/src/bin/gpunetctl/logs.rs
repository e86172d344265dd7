//! What the kernels of a client have printed and recorded.

use crate::args::LogsArgs;
use crate::{Error, print};
use gpunet_proxy::daemon::{self, ClientLog, LogsError};
use gpunet_records::{Found, Line, NoLine, Record};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a log that is followed looks for more.
pub const LOOKS: Duration = Duration::from_millis(10);
/// How often it asks the daemon whether the client has ended, or has made more rings.
pub const ASKS: Duration = Duration::from_millis(250);
/// Rounds over the rings at the end, each of which takes about all that they keep: kernels that run
/// may write for ever.
pub const LAST_ROUNDS: usize = 4;

/// Prints what is there and, to follow, what comes until the client has ended.
pub fn run(path: &Path, args: &LogsArgs) -> Result<(), Error> {
    let mut log = ask(path, args.client)?;
    // Another set of rings is read from its beginning: earlier sets stay as they are read so far.
    loop {
        let asked = Instant::now();
        let latest = loop {
            show(&mut log, args)?;
            if !args.follow || log.has_ended {
                return end(&mut log, args);
            }
            std::thread::sleep(LOOKS);
            if asked.elapsed() >= ASKS {
                break ask(path, args.client);
            }
        };
        match latest {
            Ok(latest) => log.join(latest),
            Err(error) => {
                // What has come before the daemon went is still there.
                end(&mut log, args)?;
                return Err(error);
            }
        }
    }
}

pub fn ask(path: &Path, client: u32) -> Result<ClientLog, Error> {
    daemon::logs(path, client).map_err(|error| match error {
        LogsError::Daemon(error) => error.into(),
        error @ LogsError::NotThere { .. } => Error::Logs(error),
    })
}

/// Prints the rest, and says what is missing.
fn end(log: &mut ClientLog, args: &LogsArgs) -> Result<(), Error> {
    for _ in 0..LAST_ROUNDS {
        if show(log, args)? == 0 {
            break;
        }
    }
    tell_missing(log.found());
    Ok(())
}

/// Says what is missing.
pub fn tell_missing(found: Found) {
    if found.lost() > 0 {
        // Not eprintln!, which panics when standard error is closed.
        let _ = writeln!(
            std::io::stderr(),
            "gpunetctl: {} records are missing: {} overwritten before they were read, {} without room, {} malformed",
            found.lost(),
            found.overwritten,
            found.refused,
            found.malformed
        );
    }
}

fn show(log: &mut ClientLog, args: &LogsArgs) -> Result<u64, Error> {
    let mut text = String::new();
    let count = log.poll(|record, line| {
        // Writing to a string does not fail.
        let _ = match shown(record, line, args) {
            Some(Shown::Line(line)) => writeln!(text, "{line}"),
            Some(Shown::Other(why)) => writeln!(text, "{record}{why}"),
            None => Ok(()),
        };
    });
    print(&text)?;
    Ok(count)
}

/// What is printed of a record.
enum Shown {
    Line(Line),
    Other(String),
}

fn shown(record: &Record<'_>, line: Result<Line, NoLine>, args: &LogsArgs) -> Option<Shown> {
    match line {
        Ok(line) => (line.level <= args.level).then_some(Shown::Line(line)),
        Err(NoLine::OtherKind) => args.records.then(|| Shown::Other(String::new())),
        Err(why) => Some(Shown::Other(format!(" ({why})"))),
    }
    .filter(|_| args.block.is_none_or(|block| block == record.head.block))
}
