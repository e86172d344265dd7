//! The program: see the library.

use clap::Parser;
use gpunet_diagnose::args::Args;
use gpunet_diagnose::run;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Args::try_parse() {
        Ok(args) => run::main(&args),
        Err(error) => {
            // Help is none either; where it cannot be printed, nothing can.
            let _ = error.print();
            if error.use_stderr() { ExitCode::from(run::USAGE) } else { ExitCode::SUCCESS }
        }
    }
}
