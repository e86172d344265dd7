//! The server alone, until Ctrl-C.

use crate::args::ServerArgs;
use crate::error::Error;
use crate::kernels::{self, Kernels, end_server};
use crate::report::{grouped, print_json};
use gpunet_abi::Options;
use gpunet_app::cli::print;
use gpunet_app::interrupt::Interrupt;
use gpunet_echo_kernel::ATTENTION_NS;
use serde::Serialize;
use std::time::Duration;

/// Blocks on a GPU, unless asked for.
const GPU_BLOCKS: u32 = 16;

/// Ring memory for all connections, which the proxy divides among them.
const RINGS: u64 = 256 << 20;

/// What a server did.
#[derive(Serialize)]
struct Totals {
    device: String,
    listening: String,
    connections: u64,
    bytes: u64,
    errors: u64,
    undelivered: u64,
}

/// Serves until Ctrl-C, and prints the totals.
pub fn run_server(args: &ServerArgs, interrupt: &Interrupt) -> Result<(), Error> {
    let mut kernels = Kernels::open(&args.device, args.transport, args.connections, RINGS, kernels::SERVER)?;
    let blocks = args.blocks.unwrap_or(if kernels.on_gpu() { GPU_BLOCKS } else { cores() });
    let blocks = blocks.min(args.connections);
    kernels.fit(blocks, 0)?;
    let options = Options::DEFAULT.with_transport(args.transport.kind());
    let options = options.with_timeouts(0, ATTENTION_NS);
    let bound = args.addr.try_each(|addr| kernels.listen(addr, options))?;
    let kernel = kernels.serve(bound, blocks, args.connections.div_ceil(blocks))?;
    let greeting = format!("listening on {}", bound.addr);
    // Stdout is for the JSON object alone.
    if args.device.json {
        eprintln!("{greeting}")
    } else {
        print(&format_args!("{greeting}\n"))
    }

    while !interrupt.asked() && !kernel.is_finished()? {
        std::thread::sleep(Duration::from_millis(20));
    }
    let served = end_server(kernel)?;
    if served.stopped != 0 {
        return Err(Error::ServerStopped(gpunet_abi::Error::from_errno(served.stopped)));
    }
    let device = kernels.device_name();
    let totals = Totals {
        device,
        listening: bound.addr.to_string(),
        connections: served.connections,
        bytes: served.bytes,
        errors: served.errors,
        undelivered: kernels.close().undelivered,
    };
    if args.device.json {
        print_json(&totals);
    } else {
        print(&format_args!(
            "served {} connections, {} bytes sent back, {} errors, {} bytes not delivered\n",
            grouped(totals.connections),
            grouped(totals.bytes),
            grouped(totals.errors),
            grouped(totals.undelivered),
        ));
    }
    Ok(())
}

/// Blocks on the CPU: as many as run at the same time, at least two, so that one can serve while the other
/// accepts. More would only wake each other.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(2, |cores| (cores.get() as u32).clamp(2, 64))
}
