//! `gpunetctl`: what the clients of a gpunetd are doing.
//!
//! | step | modules |
//! |---|---|
//! | what is wanted | `args` |
//! | how it looks | `ss` (sockets), `clients`, `threads`, `top` (blocks that wait), `logs` (what kernels print), `trace` (the same as a file for trace viewers), `table` (columns), `rates` (from two snapshots) |
#![deny(unsafe_code)]

mod args;
mod clients;
mod logs;
mod rates;
mod ss;
mod table;
mod threads;
mod top;
mod trace;

use args::{Cli, Command, RepeatArgs, SsArgs};
use clap::Parser;
use gpunet_proxy::DaemonError;
use gpunet_proxy::daemon::{self, LogsError};
use gpunet_proxy::places;
use gpunet_proxy::snapshot::Snapshot;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The exit code if no daemon runs; also clap's for a bad command line.
const NO_DAEMON: u8 = 2;
/// Cursor to the top, and everything below it gone.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Why the program ends.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "no gpunetd at {path}: {source}; start it, or name its socket by --path",
        path = path.display()
    )]
    NoDaemon { path: PathBuf, r#source: io::Error },
    #[error(transparent)]
    Daemon(DaemonError),
    #[error("gpunetd at {path} speaks version {found} of its snapshots, this is {}; use the gpunetctl that came with it",
        Snapshot::VERSION, path = path.display())]
    Version { path: PathBuf, found: u32 },
    #[error(transparent)]
    Logs(LogsError),
    #[error("cannot write {path}: {source}; name another file by --out", path = path.display())]
    File { path: PathBuf, r#source: io::Error },
    #[error("cannot take signals: {0}")]
    Signals(io::Error),
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl From<DaemonError> for Error {
    fn from(error: DaemonError) -> Self {
        match error {
            DaemonError::NotThere { path, source } => Self::NoDaemon { path, source },
            error => Self::Daemon(error),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn main() -> ExitCode {
    let done = match Cli::try_parse() {
        Ok(cli) => run(&cli),
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => help.print().and_then(|()| io::stdout().flush()).map_err(Error::from),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe.
        Err(Error::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Not eprintln!, which panics when standard error is closed as well.
            let _ = writeln!(io::stderr(), "gpunetctl: {error}");
            ExitCode::from(if matches!(error, Error::NoDaemon { .. }) { NO_DAEMON } else { 1 })
        }
    }
}

fn run(cli: &Cli) -> Result<(), Error> {
    let path = cli.path.clone().unwrap_or_else(places::daemon_path);
    match &cli.command {
        Command::Ss(args) => ss(&path, args),
        Command::Clients { json } => clients(&path, *json),
        Command::Threads(args) => threads(&path, args),
        Command::Top(args) => top(&path, args),
        Command::Logs(args) => logs::run(&path, args),
        Command::Trace(args) => trace::run(&path, args),
    }
}

fn ask(path: &Path) -> Result<Snapshot, Error> {
    let snapshot = daemon::snapshot(path)?;
    match snapshot.version {
        Snapshot::VERSION => Ok(snapshot),
        found => Err(Error::Version { path: path.to_owned(), found }),
    }
}

fn ss(path: &Path, args: &SsArgs) -> Result<(), Error> {
    look(path, args.watch, args.json, |before, snapshot| {
        let snapshot = args.select(snapshot.clone());
        if args.json {
            return json(&snapshot);
        }
        let rates = args.watch.map(|_| rates::between(before, &snapshot));
        Ok(ss::table(&snapshot, rates.as_ref()).to_string())
    })
}

fn top(path: &Path, args: &RepeatArgs) -> Result<(), Error> {
    look(path, args.watch, args.json, |_, snapshot| {
        if args.json { json(&snapshot.waits) } else { Ok(top::table(snapshot).to_string()) }
    })
}

fn threads(path: &Path, args: &RepeatArgs) -> Result<(), Error> {
    look(path, args.watch, args.json, |before, snapshot| {
        if args.json { json(&snapshot.threads) } else { Ok(threads::table(before, snapshot).to_string()) }
    })
}

/// Prints what `show` makes of a snapshot and the one before it, once or every `watch` seconds.
fn look(
    path: &Path,
    watch: Option<f64>,
    as_json: bool,
    show: impl Fn(Option<&Snapshot>, &Snapshot) -> Result<String, Error>,
) -> Result<(), Error> {
    let mut before: Option<Snapshot> = None;
    loop {
        let snapshot = ask(path)?;
        let text = show(before.as_ref(), &snapshot)?;
        let Some(seconds) = watch else { return print(&text) };
        match (as_json, io::stdout().is_terminal()) {
            (false, true) => print(&format!("{CLEAR}{text}"))?,
            (false, false) if before.is_some() => print(&format!("\n{text}"))?,
            _ => print(&text)?,
        }
        before = Some(snapshot);
        std::thread::sleep(Duration::from_secs_f64(seconds));
    }
}

fn clients(path: &Path, as_json: bool) -> Result<(), Error> {
    let snapshot = ask(path)?;
    print(&if as_json { json(&snapshot.clients)? } else { clients::table(&snapshot).to_string() })
}

/// One line.
fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    Ok(serde_json::to_string(value).map_err(io::Error::from)? + "\n")
}

fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
