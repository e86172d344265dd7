//! `gpunet-rstream`: either end of librdmacm's test program rstream, run by a kernel.
//!
//! | step | modules |
//! |---|---|
//! | what to do | `args` (command line), `plan` (which tests over which connections), `interrupt` (Ctrl-C) |
//! | the three programs | `run` (server, client, both) |
//! | what they share | gpunet-app's `device` (where kernels run) and `kernel` (a running kernel), `kernels` (starting them: the one module with unsafe code), `report` |
//!
//! The kernels themselves are in the package gpunet-rstream-kernel; for a GPU their PTX is in `ptx/`.
#![deny(unsafe_code)]

mod args;
mod error;
mod kernels;
mod plan;
mod report;
mod run;

use args::Job;
use error::Error;
use gpunet_app::interrupt::{INTERRUPTED, Interrupt};
use report::Report;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    match args::parse(std::env::args_os()) {
        Err(error) => error.report("gpunet-rstream"),
        Ok(job) => dispatch(&job).unwrap_or_else(|error| {
            eprintln!("gpunet-rstream: {error}");
            ExitCode::FAILURE
        }),
    }
}

fn dispatch(job: &Job) -> Result<ExitCode, Error> {
    // GPUNET_LOG=debug shows what the proxy does.
    let filter = EnvFilter::try_from_env("GPUNET_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let interrupt = Interrupt::install().map_err(Error::Signals)?;
    let report = match job {
        Job::Server(args) => run::run_server(args, &interrupt)?,
        Job::Client(args) => run::run_client(args, &interrupt)?,
        Job::Both(args) => run::run_both(args, &interrupt)?,
    };
    report.print();
    Ok(exit_code(&report, matches!(job, Job::Server(args) if args.connections == 0)))
}

/// Returns the exit code. An `endless` server that was interrupted has done its work.
fn exit_code(report: &Report, endless: bool) -> ExitCode {
    match report {
        Report { errors: 1.., .. } => ExitCode::FAILURE,
        Report { interrupted: true, .. } if !endless => ExitCode::from(INTERRUPTED),
        _ => ExitCode::SUCCESS,
    }
}
