//! The server alone, until Ctrl-C.

use crate::args::ServerArgs;
use crate::error::Error;
use crate::kernels::{self, Kernels};
use crate::report::grouped;
use gpunet_abi::Options;
use gpunet_app::cli::{print, print_json};
use gpunet_app::interrupt::Interrupt;
use gpunet_serve_host::{Counters, Running};
use serde::Serialize;
use std::time::Duration;

/// The default number of blocks on a GPU.
const GPU_BLOCKS: u32 = 16;

/// Ring memory for all connections, which the proxy divides among them.
pub const RINGS: u64 = 256 << 20;

/// The totals of a server.
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
    let room = args.connections.div_ceil(blocks);
    let mut server = args.addr.try_each(|addr| kernels.serve(addr, options, blocks, room))?;
    let addr = server.addr();
    let greeting = format!("listening on {addr}");
    // Stdout is for the JSON object alone.
    if args.device.json {
        eprintln!("{greeting}")
    } else {
        print(&format_args!("{greeting}\n"))
    }

    while !interrupt.asked() && !server.is_finished().map_err(Error::Server)? {
        print_log(&mut server);
        std::thread::sleep(Duration::from_millis(20));
    }
    print_log(&mut server);
    let blocks = server.stop().map_err(Error::Server)?;
    let device = kernels.device_name();
    let totals = Totals {
        device,
        listening: addr.to_string(),
        connections: sum(&blocks, |block| block.accepted),
        bytes: sum(&blocks, |block| block.sent),
        errors: sum(&blocks, |block| block.failed),
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

/// Prints the lines that blocks have written to their logs.
fn print_log(server: &mut Running) {
    server.log().iter().for_each(|line| eprintln!("gpunet-echo: {line}"));
}

/// Adds up a counter of all blocks.
pub fn sum(blocks: &[Counters], counter: impl Fn(&Counters) -> u64) -> u64 {
    blocks.iter().map(counter).sum()
}

/// Returns the default number of blocks on the CPU: as many as run at the same time, and at least
/// two, so that one can serve while the other accepts. More blocks would only wake each other.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(2, |cores| (cores.get() as u32).clamp(2, 64))
}
