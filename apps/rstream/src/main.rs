//! `gpunet-rstream`: either end of librdmacm's test program rstream, run by a kernel.
//!
//! | step | modules |
//! |---|---|
//! | what to do | `args` (command line), `plan` (which tests over which connections), `interrupt` (Ctrl-C) |
//! | the three programs | `run` (server, client, both) |
//! | common parts | gpunet-app's `device` (where kernels run) and `kernel` (a running kernel), `kernels` (starting them: the one module with unsafe code), `report` |
//!
//! The kernels themselves are in the package gpunet-rstream-kernel; for a GPU their PTX is in
//! `ptx/`.
#![deny(unsafe_code)]

mod args;
mod kernels;
mod plan;
mod report;
mod run;

use args::Job;
use gpunet_app::cli::{self, start_log};
use gpunet_app::error::AppError;
use gpunet_app::interrupt::{INTERRUPTED, Interrupt};
use report::Report;
use std::process::ExitCode;

fn main() -> ExitCode {
    match args::parse(std::env::args_os()) {
        Err(error) => error.report("gpunet-rstream"),
        Ok(job) => {
            let code = dispatch(&job).unwrap_or_else(|error| {
                eprintln!("gpunet-rstream: {error}");
                ExitCode::FAILURE
            });
            cli::finish("gpunet-rstream", code)
        }
    }
}

fn dispatch(job: &Job) -> Result<ExitCode, AppError> {
    start_log();
    let interrupt = Interrupt::install().map_err(AppError::Signals)?;
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
