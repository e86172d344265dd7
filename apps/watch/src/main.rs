//! `gpunet-watch`: watches kernels while they run.
//!
//! | step | modules |
//! |---|---|
//! | what to do | `args` |
//! | the kernels | `kernels` (starting them: the one module with unsafe code) |
//! | the programs | `work` (a kernel with a planted stall, and what it says), `flood` (records as fast as they come, and what that takes), `collect` (a collector) |
//!
//! The kernels themselves are in the package gpunet-watch-kernel; for a GPU their PTX is in `ptx/`.
#![deny(unsafe_code)]

mod args;
mod collect;
mod error;
mod flood;
mod kernels;
mod work;

use args::Job;
use error::Error;
use gpunet_app::interrupt::Interrupt;
use std::process::ExitCode;

const NAME: &str = "gpunet-watch";

fn main() -> ExitCode {
    let job = match args::parse(std::env::args_os()) {
        Err(error) => return error.report(NAME),
        Ok(job) => job,
    };
    let code = match dispatch(&job) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{NAME}: {error}");
            ExitCode::FAILURE
        }
    };
    gpunet_app::cli::finish(NAME, code)
}

fn dispatch(job: &Job) -> Result<(), Error> {
    gpunet_app::cli::start_log();
    let interrupt = Interrupt::install().map_err(gpunet_app::error::AppError::Signals)?;
    match job {
        Job::Work(args) => work::run(args, &interrupt),
        Job::Flood(args) => flood::run(args, &interrupt),
        Job::Collect(args) => collect::run(args, &interrupt),
    }
}
