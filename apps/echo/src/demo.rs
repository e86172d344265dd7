//! Both halves in this process, over tcp and then over peer.

use crate::args::DemoArgs;
use crate::error::Error;
use crate::kernels::{self, Kernels, Load, with_margin};
use crate::progress::Progress;
use crate::report::Report;
use crate::run::{RING, print_failures, run};
use crate::server::{cores, sum};
use gpunet_abi::Options;
use gpunet_app::cli::Transport;
use gpunet_app::interrupt::Interrupt;
use std::net::SocketAddr;

/// The most server blocks on a GPU, unless the user asks for more; with more connections, they
/// share blocks.
const GPU_BLOCKS: u32 = 64;

/// Runs the demonstration.
pub fn run_demo(args: &DemoArgs, interrupt: &Interrupt) -> Result<Report, Error> {
    let wanted = &args.load;
    let connections = wanted.connections;
    let transports = match args.transport {
        Transport::Auto => vec![Transport::Tcp, Transport::Peer],
        one => vec![one],
    };
    // Both ends of each stream are on this device.
    let rings = with_margin(u64::from(2 * connections) * 2 * RING);
    let mut kernels = Kernels::open(&args.device, args.transport, 2 * connections, rings, kernels::BOTH)?;
    let most = if kernels.on_gpu() { GPU_BLOCKS } else { cores() };
    let blocks = args.blocks.unwrap_or(most).min(connections);
    kernels.fit(blocks, connections)?;
    // All memory is allocated before the server runs: it is best not to allocate while a kernel
    // waits.
    let memory = kernels.client_memory(connections, wanted)?;
    let mut memory = kernels.warm_up(memory)?;
    let options = Options::DEFAULT.with_rings(RING, RING);
    let listen = options.with_transport(args.transport.kind());
    // Each block has room for all connections, in case the others are slow to wake.
    let server = kernels.serve(SocketAddr::from((args.listen, 0)), listen, blocks, connections)?;

    let messages = wanted.messages().saturating_mul(transports.len() as u64);
    let mut progress = Progress::new(messages, args.device.json);
    let mut runs = Vec::new();
    let mut interrupted = false;
    let steps = transports.iter().flat_map(|&step| wanted.size.iter().map(move |&size| (step, size)));
    for (transport, size) in steps {
        let load = wanted.load(size, options.with_transport(transport.kind()));
        let load = Load { addr: server.addr(), ..load };
        let (back, result) = run(&kernels, memory, &load, transport.name(), interrupt, &mut progress)?;
        memory = back;
        progress.finish_run(load.messages());
        print_failures(&result.failures);
        runs.push(result.run);
        interrupted = result.interrupted;
        if interrupted {
            break;
        }
    }
    drop(progress);
    let server_errors = match server.stop() {
        // To the server, a connection whose client was cancelled may look broken.
        Ok(_) if interrupted => 0,
        Ok(blocks) => sum(&blocks, |block| block.failed),
        Err(error) => {
            eprintln!("gpunet-echo: {error}");
            1
        }
    };
    let report = Report::new(kernels.device_name(), runs, server_errors, interrupted);
    drop(memory);
    let closed = kernels.close();
    if closed.undelivered > 0 && !interrupted {
        eprintln!("gpunet-echo: {} bytes were not delivered", closed.undelivered);
    }
    Ok(report)
}
