//! One run: gather, check, try, report.

use crate::args::Args;
use crate::catalogue;
use crate::check::Check;
use crate::checks;
use crate::child;
use crate::facts::Facts;
use crate::libraries::Libraries;
use crate::report::{Host, Report, human};
use crate::selftest::device::DeviceName;
use crate::selftest::{self, Test};
use crate::system::System;
use crate::verdict::{self, Verdict};
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;

/// EX_USAGE: a bad command line is none of the verdicts.
pub const USAGE: u8 = 64;

/// Runs the program.
pub fn main(args: &Args) -> ExitCode {
    if let Some(task) = &args.child {
        child::perform(task);
        return ExitCode::SUCCESS;
    }
    if args.list {
        return written(list(&mut anstream::stdout().lock()), ExitCode::SUCCESS);
    }
    let selected = match args.selected() {
        Ok(selected) => selected,
        Err(why) => {
            eprintln!("gpunet-diagnose: --only: {why}");
            return ExitCode::from(USAGE);
        }
    };
    let report = diagnose(args, &selected);
    let code = ExitCode::from(report.verdict.code());
    written(print(&mut anstream::stdout().lock(), &report, args), code)
}

fn list(out: &mut impl Write) -> io::Result<()> {
    for entry in catalogue::ALL.iter().chain(catalogue::REQUIRED) {
        writeln!(out, "{:<22}{}", entry.id, entry.title)?;
    }
    out.flush()
}

fn print(out: &mut impl Write, report: &Report, args: &Args) -> io::Result<()> {
    if args.json {
        writeln!(out, "{:#}", report.json())?;
    } else {
        human::print(out, report, args.quiet)?;
    }
    out.flush()
}

/// The exit code, given whether the report (or the help) could be printed. A reader that stops
/// reading is no failure.
pub fn written(outcome: io::Result<()>, code: ExitCode) -> ExitCode {
    match outcome {
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => {
            // If this cannot be printed either, the exit code still tells.
            let _ = writeln!(io::stderr(), "gpunet-diagnose: the report cannot be written: {why}");
            ExitCode::from(Verdict::CannotWork.code())
        }
        _ => code,
    }
}

fn diagnose(args: &Args, selected: &[&str]) -> Report {
    let system = args.root.as_deref().map_or_else(System::here, System::under);
    let facts = Facts::gather(&system, || match system.is_here() {
        true => child::libraries(args.daemon.as_deref()),
        false => Libraries::not_asked("not asked: facts come from --root"),
    });
    let mut checks = checks::all(&facts);
    let devices = devices(&facts);
    let tests: Vec<Test> = selected.iter().filter_map(|id| Test::of(id)).collect();
    if system.is_here() {
        // Requirements of a GPU are shown by its tests, whether selected or not.
        let wanted = if args.require.is_empty() { tests.clone() } else { Test::ALL.to_vec() };
        checks.extend(try_all(&facts, &devices, &wanted));
    } else {
        let why = "not run: facts come from --root";
        checks.extend(Test::ALL.iter().map(|test| Check::unknown(test.id(), why, "run without --root")));
    }
    let required = verdict::require(&args.require, &facts, &checks);
    let tried = !tests.is_empty() && system.is_here();
    let works = if tried { verdict::works(&facts, &checks, &devices) } else { Vec::new() };
    let absent = if tried { verdict::absent(&facts, &checks, &works) } else { Vec::new() };
    checks.retain(|check| selected.contains(&check.id.as_str()));
    checks.extend(required);
    Report { host: Host::of(&facts), verdict: Verdict::of(&checks), checks, works, absent }
}

/// The CPU device, and each GPU.
fn devices(facts: &Facts) -> Vec<DeviceName> {
    let gpus = facts.libraries.gpus().iter().map(|gpu| DeviceName::Cuda(gpu.ordinal));
    std::iter::once(DeviceName::Cpu).chain(gpus).collect()
}

fn try_all(facts: &Facts, devices: &[DeviceName], wanted: &[Test]) -> Vec<Check> {
    let addresses = rdma_addresses(facts);
    let mut checks = Vec::new();
    for &name in devices {
        let tests: Vec<Test> = selftest::of_device(name, !addresses.is_empty())
            .into_iter()
            .filter(|test| wanted.contains(test))
            .collect();
        child::tests(name, &tests, &addresses, |check| checks.push(check));
    }
    if wanted.contains(&Test::Ptx) && devices == [DeviceName::Cpu] {
        checks.push(Check::unknown(Test::Ptx.id(), "no GPU to load kernels on", "see gpu.devices"));
    }
    if wanted.contains(&Test::Streams) && devices == [DeviceName::Cpu] {
        checks.push(Check::unknown(Test::Streams.id(), "no GPU with streams", "see gpu.devices"));
    }
    if wanted.contains(&Test::Rc) && addresses.is_empty() {
        checks.push(Check::unknown(
            Test::Rc.id(),
            "no RDMA device with an address to try it on",
            "see rdma.devices and rdma.address",
        ));
    }
    checks
}

/// The addresses of interfaces that belong to active ports, IPv4 first: a link-local IPv6 address
/// lacks its scope.
fn rdma_addresses(facts: &Facts) -> Vec<IpAddr> {
    let Ok(system) = &facts.libraries.system else { return Vec::new() };
    let ports = facts.cards.iter().flat_map(|card| &card.ports).filter(|port| port.is_active());
    let interfaces: Vec<&str> =
        ports.flat_map(|port| &port.interfaces).map(|(name, _)| name.as_str()).collect();
    let usable = |address: &IpAddr| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let mut found: Vec<IpAddr> = system
        .addresses
        .iter()
        .filter(|(name, address)| interfaces.contains(&name.as_str()) && usable(address))
        .map(|(_, address)| *address)
        .collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found
}
