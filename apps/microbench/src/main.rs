//! gpunet-bench: checks sockets on a device, and measures them beside their floors.
#![deny(unsafe_code)]

mod args;
#[allow(unsafe_code)]
mod bench;
mod chart;
mod dispatch;
mod effort;
mod floor;
mod foreign;
mod measure;
mod pair;
mod process;
mod report;
mod sockets;
mod stamps;

use args::{Args, What};
use bench::Outcome;
use clap::Parser;
use measure::Run;
use report::Recorder;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gpunet-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does what the command line says; false if a check failed.
fn run(args: &Args) -> Outcome<bool> {
    match &args.what {
        What::End(end) => return pair::serve_end(&args.device, end),
        What::Render { from } => return show(&report::read(from)?, args).map(|()| true),
        _ => {}
    }
    let command: Vec<_> = std::env::args().skip(1).collect();
    let mut recorder = Recorder::new(format!("gpunet-bench {}", command.join(" ")), args.json.clone());
    recorder.without_foreign = args.without_foreign;
    let effort = args.effort();
    let mut run = Run { recorder: &mut recorder, effort, device: &args.device, proxy: &args.proxy };
    let good = dispatch::run(&mut run, &args.what);
    recorder.save()?;
    show(recorder.report(), args)?;
    good
}

/// Makes the charts and the tables that the command line asks for.
fn show(report: &report::Report, args: &Args) -> Outcome<()> {
    if let Some(path) = &args.plot {
        chart::draw(report, path)?;
    }
    args.tables.as_ref().map_or(Ok(()), |path| report::insert(report, path))
}
