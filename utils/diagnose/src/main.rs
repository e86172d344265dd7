//! The program: see the library.

use clap::Parser;
use gpunet_diagnose::args::Args;
use gpunet_diagnose::run;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Args::try_parse() {
        Ok(args) => run::main(&args),
        Err(error) if error.use_stderr() => {
            // The exit code still tells.
            let _ = error.print();
            ExitCode::from(run::USAGE)
        }
        Err(help) => run::written(help.print().and_then(|()| io::stdout().flush()), ExitCode::SUCCESS),
    }
}
