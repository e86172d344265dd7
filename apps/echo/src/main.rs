//! `gpunet-echo`: an echo server and echo clients that run as kernels.
//!
//! | step | modules |
//! |---|---|
//! | what to do | `args` (command line), gpunet-app's `cli` and `interrupt` (Ctrl-C) |
//! | the three programs | `demo` (both halves in this process), `server`, `client` |
//! | common parts | gpunet-app's `device` (where kernels run) and `kernel` (a running kernel), `kernels` (starting them: the one module with unsafe code), `ticks` (their progress), `run` (one transport, one size), `progress`, `report` |
//!
//! The kernels themselves are in the package gpunet-echo-kernel; for a GPU their PTX is in `ptx/`.
#![deny(unsafe_code)]

mod args;
mod client;
mod demo;
mod error;
mod kernels;
mod progress;
mod report;
mod run;
mod server;
mod ticks;

use args::Job;
use error::Error;
use gpu_usermap::region::{MemoryGroup, check_room};
use gpunet_app::cli::{self, print, start_log};
use gpunet_app::error::AppError;
use gpunet_app::interrupt::{INTERRUPTED, Interrupt};
use report::Report;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;

fn main() -> ExitCode {
    match args::parse(std::env::args_os()) {
        Err(error) => error.report("gpunet-echo"),
        Ok(job) => {
            let code = dispatch(&job).unwrap_or_else(|error| {
                eprintln!("gpunet-echo: {error}");
                ExitCode::FAILURE
            });
            cli::finish("gpunet-echo", code)
        }
    }
}

fn dispatch(job: &Job) -> Result<ExitCode, Error> {
    start_log();
    // Hundreds of connections need more than the usual 1,024 descriptors. A lower hard limit is
    // respected: connections beyond it fail with an error.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let interrupt = Interrupt::install().map_err(AppError::Signals)?;
    match job {
        Job::Probe => {
            print(&gpu_usermap::probe());
            print_memory();
            match gpunet_proxy::rdma_devices() {
                Ok(devices) => {
                    devices.iter().for_each(|device| print(&format_args!("RDMA device: {device}\n")))
                }
                Err(why) => print(&format_args!("RDMA: {why}\n")),
            }
            Ok(ExitCode::SUCCESS)
        }
        Job::Server(args) => server::run_server(args, &interrupt).map(|()| ExitCode::SUCCESS),
        Job::Demo(args) => demo::run_demo(args, &interrupt).map(|report| finish(&report, args.device.json)),
        Job::Client(args) => {
            client::run_client(args, &interrupt).map(|report| finish(&report, args.device.json))
        }
    }
}

/// Prints how much memory the control groups of this process allow. An attachment's rings must fit
/// in it.
fn print_memory() {
    let groups = MemoryGroup::of_process();
    let Some(group) = groups.iter().min_by_key(|group| group.available()) else {
        return print(&format_args!("memory: no control group limits this process\n"));
    };
    let (left, limit, file) = (group.available() >> 20, group.limit >> 20, group.file.display());
    print(&format_args!("memory: {left} MiB are left of the {limit} MiB that {file} allows\n"));
    if let Err(why) = check_room(server::RINGS as usize) {
        print(&format_args!("gpunet-echo server: cannot start: {why}\n"));
    }
}

/// Prints the report and returns the exit code.
fn finish(report: &Report, json: bool) -> ExitCode {
    // If nothing came back, the errors say everything, but JSON is printed in any case.
    if json || report.messages > 0 || report.errors == 0 {
        report.print(json);
    }
    match report {
        Report { errors: 1.., .. } => ExitCode::FAILURE,
        Report { interrupted: true, .. } => ExitCode::from(INTERRUPTED),
        _ => ExitCode::SUCCESS,
    }
}
