//! `gpunet-kv`: a key-value server for Redis's clients that runs as a kernel.
//!
//! | step | modules |
//! |---|---|
//! | what to do | `args` (command line), gpunet-app's `cli` and `interrupt` (Ctrl-C) |
//! | the server | `server` (starts the kernel by gpunet-serve-host, prints its log and its totals) |
//! | the demonstration | `demo` (loads the server), `search` (vectors, compared with this machine's cores), `client` (a small RESP2 client that checks answers) |
//!
//! The kernel is in the package gpunet-kv-kernel, and its sets of vectors in gpunet-kv-vectors; for
//! a GPU its PTX is in `ptx/`.
#![forbid(unsafe_code)]

mod args;
mod client;
mod demo;
mod error;
mod search;
mod server;

use args::Args;
use error::Error;
use gpunet_app::cli;
use gpunet_app::interrupt::{INTERRUPTED, Interrupt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;

fn main() -> ExitCode {
    match args::parse(std::env::args_os()) {
        Err(error) => error.report("gpunet-kv"),
        Ok(args) => {
            let code = match run(&args) {
                Ok(()) => ExitCode::SUCCESS,
                Err(Error::Interrupted) => ExitCode::from(INTERRUPTED),
                Err(error) => {
                    eprintln!("gpunet-kv: {error}");
                    ExitCode::FAILURE
                }
            };
            cli::finish("gpunet-kv", code)
        }
    }
}

fn run(args: &Args) -> Result<(), Error> {
    cli::start_log();
    // Each connection takes a descriptor. A lower hard limit is respected: further connections
    // wait.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let interrupt = Interrupt::install().map_err(Error::Signals)?;
    if args.demo { demo::run(args, &interrupt) } else { server::run(args, &interrupt) }
}
