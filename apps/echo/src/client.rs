//! The clients alone, against any echo server.

use crate::args::ClientArgs;
use crate::error::Error;
use crate::kernels::{self, ClientMemory, Kernels, Load, with_margin};
use crate::progress::Progress;
use crate::report::Report;
use crate::run::{RING, RunResult, print_failures, run};
use gpunet_abi::Options;
use gpunet_app::interrupt::Interrupt;
use std::net::SocketAddr;

/// Runs the clients.
pub fn run_client(args: &ClientArgs, interrupt: &Interrupt) -> Result<Report, Error> {
    let wanted = &args.load;
    let mut addrs = args.addr.resolve()?;
    let blocks = args.blocks.unwrap_or(wanted.connections).min(wanted.connections);
    let rings = with_margin(u64::from(wanted.connections) * 2 * RING);
    let mut kernels =
        Kernels::open(&args.device, args.transport, wanted.connections, rings, kernels::CLIENT)?;
    kernels.fit(0, blocks)?;
    let mut memory = kernels.client_memory(blocks, wanted)?;
    let mut progress = Progress::new(wanted.messages(), args.device.json);
    let options = Options::DEFAULT.with_rings(RING, RING).with_transport(args.transport.kind());

    let mut runs = Vec::new();
    let mut interrupted = false;
    for &size in &wanted.size {
        let load = wanted.load(size, options);
        let (back, result) =
            reach(&kernels, memory, &load, args.transport.name(), &mut addrs, interrupt, &mut progress)?;
        memory = back;
        progress.finish_run(load.messages());
        print_failures(&result.failures);
        runs.push(result.run);
        interrupted = result.interrupted;
        // There is no listener for the first size, so there will be none for the others.
        if interrupted || result.unreachable {
            break;
        }
    }
    drop(progress);
    let report = Report::new(kernels.device_name(), runs, 0, interrupted);
    drop(memory);
    let closed = kernels.close();
    if closed.undelivered > 0 && report.errors == 0 && !interrupted {
        eprintln!("gpunet-echo: {} bytes were not delivered", closed.undelivered);
    }
    Ok(report)
}

/// Runs one size against the first address that answers, and removes the addresses that do not: a
/// name may resolve to an IPv6 and an IPv4 address, only one of which is served.
fn reach(
    kernels: &Kernels,
    mut memory: ClientMemory,
    load: &Load,
    name: &'static str,
    addrs: &mut Vec<SocketAddr>,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<(ClientMemory, RunResult), Error> {
    loop {
        let load = Load { addr: addrs[0], ..*load };
        let (back, result) = run(kernels, memory, &load, name, interrupt, progress)?;
        if !result.unreachable || result.interrupted || addrs.len() == 1 {
            return Ok((back, result));
        }
        addrs.remove(0);
        memory = back;
    }
}
