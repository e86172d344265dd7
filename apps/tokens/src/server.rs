//! The server: started, watched, ended.

use crate::args::Args;
use gpunet_app::cli::{self, print};
use gpunet_app::device::{attach, load};
use gpunet_app::interrupt::Interrupt;
use gpunet_device::{Kernel, Options};
use gpunet_embed_ptx::{Embedded, embedded};
use gpunet_http::Limits;
use gpunet_proxy::Config;
use gpunet_serve::Server;
use gpunet_serve_host::{ServerSettings, start_with_data};
use gpunet_tokens_kernel::Tokens;
use gpunet_tokens_model::{WEIGHTS, Weights};
use std::error::Error;
use std::time::Duration;

/// The kernel for a GPU, made by `cargo run -p gpunet-build-ptx`.
static PTX: Embedded = embedded!("gpunet_tokens_kernel.ptx");

/// Ring memory for all connections, which the proxy divides among them; at least so much for each,
/// so that a ring holds the longest head when there are as many as there may be: half of it is
/// shared equally, by two rings of each connection.
const RINGS: u64 = 256 << 20;
const RINGS_EACH: u64 = 4 * (16 << 10);
/// What HTTP requests may have: a prompt is short, so a body is, too.
const LIMITS: Limits = Limits { body: 64 << 10, ..Limits::DEFAULT };
/// Blocks that run the model on a GPU, at most, unless the user says otherwise.
const MODELS: u32 = 64;
/// Data threads, at most, unless the user says otherwise: each keeps a core busy while tokens pass,
/// and one sends some hundred thousand small events a second.
const DATA_THREADS: usize = 2;
/// A connection without a request is closed after so long.
const IDLE_NS: u64 = 75_000_000_000;

/// Serves until Ctrl-C.
pub fn serve(args: &Args) -> Result<(), Box<dyn Error>> {
    cli::start_log();
    let interrupt = Interrupt::install()?;
    let sockets = args.connections * 2 + 64;
    let shared_rings = (RINGS + RINGS / 4).max(u64::from(sockets) * RINGS_EACH);
    let data_threads = Config::default().thread_count().min(DATA_THREADS);
    let config = Config { sockets, shared_rings, data_threads, ..Config::default() };
    let proxy = args.proxy.open(config)?;
    let attachment = attach(&proxy, "gpunet-tokens", args.device)?;
    let processors = attachment.cuda().map(|device| device.multiprocessors());
    let (blocks, threads, batch) = if processors.is_some() { (32, args.threads, 256) } else { (1, 1, 32) };
    let blocks = args.blocks.unwrap_or(blocks).min(args.connections);
    let batch = args.batch.unwrap_or(batch);
    // Each on a processor of its own, if there are so many.
    let models = processors.map_or(1, |count| count.saturating_sub(blocks).clamp(1, MODELS));
    let models = args.models.unwrap_or(models).min(batch);
    let shape = (blocks + models, threads);
    let program = load(&attachment, &PTX, &[Server::<Tokens>::ENTRY], threads)?;
    attachment.check_co_resident(&program, &[(Server::<Tokens>::ENTRY, shape.0, threads)])?;
    let service = Tokens {
        limits: LIMITS,
        interval_ns: args.interval * 1_000_000,
        weights: Weights::check(WEIGHTS)?,
        models,
        sequences: batch.div_ceil(models),
        waiting: args.waiting,
        timing: args.timing.into(),
    };
    let settings = ServerSettings {
        room: args.connections.div_ceil(blocks),
        idle_ns: IDLE_NS,
        ..ServerSettings::DEFAULT
    };
    let options = Options::DEFAULT;
    let mut server = args.listen.try_each(|addr| {
        start_with_data(&attachment, &program, shape, addr, options, settings, service, WEIGHTS)
            .map_err(Box::<dyn Error>::from)
    })?;
    print(&format_args!("listening on {}\n", server.addr()));
    while !interrupt.asked() && !server.is_finished()? {
        server.log().iter().for_each(|line| eprintln!("gpunet-tokens: {line}"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let connections: u64 = server.stop()?.iter().map(|block| block.accepted).sum();
    print(&format_args!("served {connections} connections\n"));
    Ok(())
}
