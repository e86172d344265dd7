//! `gpunet-tokens`: completions in the form of OpenAI's API, out of one kernel that stays resident:
//! its blocks serve HTTP, and the last one runs the model.
//!
//! The kernel is in the package gpunet-tokens-kernel; for a GPU its PTX is in `ptx/`. The model is
//! in gpunet-tokens-model.
#![forbid(unsafe_code)]

mod args;
mod server;

use args::Args;
use clap::Parser;
use gpunet_app::cli::{self, UsageError};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::try_parse().map_err(UsageError::from) {
        Err(error) => return error.report("gpunet-tokens"),
        Ok(args) => args,
    };
    let code = server::serve(&args).map_or_else(
        |error| {
            eprintln!("gpunet-tokens: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    );
    cli::finish("gpunet-tokens", code)
}
