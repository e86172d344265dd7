//! `gpunetd`: one proxy for all programs of a machine.
//!
//! | step | modules |
//! |---|---|
//! | what is wanted | `args` (command line), `settings` (every key, from file, environment and flags), `values` (their types) |
//! | where it listens | `socket` (a path of its own), `activation` (a socket of systemd's: the one module with unsafe code) |
//! | running | `serve` (signals, reload, drain), `supervisor` (notifications to systemd), `metrics`, `log` |
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod activation;
mod args;
mod log;
mod metrics;
mod serve;
mod settings;
mod socket;
mod supervisor;
mod values;

use args::Refusal;
use std::io::{self, Write};
use std::process::ExitCode;

/// The exit code of an invalid command line.
const BAD_COMMAND_LINE: u8 = 2;

fn main() -> ExitCode {
    let cli = match args::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(Refusal::Text(text)) => return printed(text.print()),
        Err(Refusal::Wrong(line)) => {
            eprintln!("gpunetd: {line} (try --help)");
            return ExitCode::from(BAD_COMMAND_LINE);
        }
    };
    let loaded = match settings::load(&cli) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("gpunetd: {error}");
            return ExitCode::FAILURE;
        }
    };
    if cli.check {
        return printed(io::stdout().write_all(loaded.to_string().as_bytes()));
    }
    let limiter = log::init(&loaded.settings.log, loaded.settings.log_format);
    serve::run(&cli, loaded, &limiter).unwrap_or_else(|error| {
        tracing::error!("{error}");
        ExitCode::FAILURE
    })
}

/// The exit code of what only prints. A reader that stops reading is no failure.
fn printed(outcome: io::Result<()>) -> ExitCode {
    match outcome.and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // If this cannot be printed either, the exit code reports the failure.
            let _ = writeln!(io::stderr(), "gpunetd: cannot write to stdout: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
