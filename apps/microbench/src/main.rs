//! gpunet-bench: checks sockets on a device, and measures them together with their floors.
//!
//! | file | holds |
//! |---|---|
//! | `args`, `dispatch` | the command line, and what it starts |
//! | `measure` | the measurements, one per file |
//! | `floor`, `foreign`, `sockets` | the figures to compare with: the hardware, other libraries, plain sockets |
//! | `pair` | two ends that talk to each other |
//! | `bench` | the device under test |
//! | `effort`, `stamps` | how much a run does; time stamps of the data thread |
//! | `report`, `chart` | tables and JSON; charts |
//! | `suite` | all measurements, one after the other |
//! | `process`, `scratch`, `json_lines`, `outcome` | processor time and started programs; files that are removed; JSON between processes; errors |
#![deny(unsafe_code)]

mod args;
#[allow(unsafe_code)]
mod bench;
mod chart;
mod dispatch;
mod effort;
mod floor;
mod foreign;
mod json_lines;
mod measure;
mod outcome;
mod pair;
mod process;
mod report;
mod scratch;
mod sockets;
mod stamps;
mod suite;

use args::{Args, CompareArgs, RenderArgs, What};
use clap::Parser;
use gpunet_app::cli::UsageError;
use gpunet_proxy::descriptors::hint;
use measure::Run;
use outcome::Outcome;
use report::{Documents, Json, Named, Recorder, print_error};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => return UsageError::from(help).report("gpunet-bench"),
    };
    if let Ok(choice) = args.device.parse() {
        gpunet_app::device::load_driver(choice);
    }
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print_error(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Runs the command; returns false if a check failed.
fn run(args: &Args) -> Outcome<bool> {
    match &args.what {
        What::End(end) => return pair::serve_end(&args.device, end),
        What::Attend(attend) => return measure::attend(&args.device, &args.proxy(), attend),
        What::PlainServer(plain) => return measure::plain_server(plain).map(|()| true),
        What::ReceiveTensors(receive) => return measure::receive_tensors(&args.device, receive),
        What::Report(report) => return suite(report, args),
        What::Render(render) => return self::render(render, args),
        What::Compare(reports) => return compare(reports).map(|()| true),
        _ => {}
    }
    let json = args.json.as_deref().map(|path| Json::new("--json", path)).transpose()?;
    check_targets(args)?;
    take_signals()?;
    let command: Vec<_> = std::env::args().skip(1).collect();
    let drawn = args.plot.is_some() || args.tables.is_some();
    let mut recorder = Recorder::new(format!("gpunet-bench {}", command.join(" ")), json, drawn);
    recorder.without_foreign = args.without_foreign;
    recorder.foreign_folder.clone_from(&args.foreign_folder);
    let good = measure(&mut recorder, args);
    recorder.save(true)?;
    show(recorder.report(), args)?;
    recorder.check_written()?;
    good
}

/// From now on a signal removes what this program has made.
fn take_signals() -> Outcome<()> {
    Ok(scratch::clean_up_on_signals()
        .map_err(|error| format!("cannot take signals: {error}{}", hint(&error)))?)
}

/// Measures or checks; returns false if a check failed.
fn measure(recorder: &mut Recorder, args: &Args) -> Outcome<bool> {
    let proxy = args.proxy();
    let device = match args.what {
        // It needs no device.
        What::Attach => args.device.clone(),
        _ => bench::resolve(&proxy, &args.device)?,
    };
    let is_auto = args.device == bench::AUTO;
    let mut run = Run { recorder, effort: args.effort(), device: &device, is_auto, proxy: &proxy };
    dispatch::run(&mut run, &args.what)
}

/// `report`; returns false if a measurement failed.
fn suite(report: &suite::ReportArgs, args: &Args) -> Outcome<bool> {
    if args.json.is_some() || args.plot.is_some() || args.tables.is_some() {
        return Err("report writes --out, and render makes --plot, --tables and --docs from it".into());
    }
    take_signals()?;
    let common = suite::Common {
        device: &args.device,
        is_auto: args.device == bench::AUTO,
        effort: args.effort(),
        without_foreign: args.without_foreign,
        proxy: &args.proxy(),
    };
    suite::report(report, &common)
}

/// `render`; returns false if it checks, and a table differs.
fn render(render: &RenderArgs, args: &Args) -> Outcome<bool> {
    if args.plot.is_none() && args.tables.is_none() && render.docs.is_none() {
        return Err("render needs --docs, --plot or --tables".into());
    }
    let reports = Named::read(&render.from)?;
    if args.plot.is_some() || args.tables.is_some() {
        let [one] = &reports[..] else {
            return Err("--plot and --tables take one report".into());
        };
        if !render.check {
            check_targets(args)?;
            show(one.report(), args)?;
        }
    }
    let Some(folder) = &render.docs else { return Ok(true) };
    let documents = Documents::read(folder, &reports)?;
    let differing: Vec<_> = documents.differing().collect();
    let mut out = std::io::stdout().lock();
    for block in &differing {
        writeln!(out, "{block}{}", if render.check { " differs" } else { " is new" })?;
    }
    if render.check {
        writeln!(out, "{} of {} tables differ", differing.len(), documents.marks())?;
        return Ok(differing.is_empty());
    }
    documents.write()?;
    Ok(true)
}

/// `compare`.
fn compare(args: &CompareArgs) -> Outcome<()> {
    let [old, new] = [report::read(&args.old)?, report::read(&args.new)?];
    let mut out = std::io::stdout().lock();
    if old.machine != new.machine {
        let [old, new] = [&old, &new].map(|report| report.machine.hardware());
        writeln!(out, "The machines differ: {old}, and {new}")?;
    }
    let assumed = f64::from(args.spread) / 100.0;
    Ok(writeln!(out, "{}", report::compare(&old, &new, assumed).to_text(assumed))?)
}

/// Checks that charts and tables can be written, before anything is measured.
fn check_targets(args: &Args) -> Outcome<()> {
    args.plot.as_ref().map_or(Ok(()), |path| report::check_target("--plot", path))?;
    args.tables.as_ref().map_or(Ok(()), |path| report::check_page(path))
}

/// Writes the charts and tables that the command line asks for.
fn show(report: &report::Report, args: &Args) -> Outcome<()> {
    if let Some(path) = &args.plot {
        chart::draw(report, path)?;
    }
    args.tables.as_ref().map_or(Ok(()), |path| report::insert(report, path))
}
