//! The server: started, watched, ended.

use crate::args::Args;
use crate::error::Error;
use gpunet_app::cli::print;
use gpunet_app::interrupt::Interrupt;
use gpunet_device::{Kernel, Options};
use gpunet_embed_ptx::{Embedded, embedded};
use gpunet_kv_kernel::{Kv, Password, own};
use gpunet_proxy::{Attachment, Config, Program};
use gpunet_serve::Server;
use gpunet_serve_host::{Counters, Running, ServerSettings};
use serde::Serialize;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The kernel for a GPU, made by `cargo run -p gpunet-build-ptx`.
static PTX: Embedded = embedded!("gpunet_kv_kernel.ptx");

/// Ring memory for all connections, which the proxy divides among them.
const RINGS: u64 = 256 << 20;
/// The default threads of a block on a GPU. All of them parse a request in the same way, and copy
/// values together.
const GPU_THREADS: u32 = 128;
/// Blocks on a GPU.
const GPU_BLOCKS: u32 = 64;
/// Bytes of memory for each bucket of the table. A bucket then holds two or three entries of about
/// 100 bytes.
const BYTES_PER_BUCKET: u64 = 256;

/// A server that runs, with its device. The fields are dropped in this order.
pub struct Serving {
    /// Its kernel.
    pub running: Running,
    _program: Program,
    attachment: Attachment,
    blocks: u32,
}

/// The totals of a server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    device: String,
    blocks: u32,
    pub connections: u64,
    pub commands: u64,
    hits: u64,
    misses: u64,
    received: u64,
    sent: u64,
    pub protocol_errors: u64,
    limited: u64,
    failed: u64,
}

/// Reads the password.
fn password(path: &Path) -> Result<Password, Error> {
    let failed = |source| Error::Password { path: path.to_owned(), source };
    let text = std::fs::read(path).map_err(failed)?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Err(failed(std::io::Error::other("its first line is empty")));
    }
    let random = || RandomState::new().build_hasher().finish();
    Ok(Password::new(line, [random(), random()]))
}

impl Serving {
    /// Starts the server at the first of these addresses on which it can listen.
    pub fn start(args: &Args, addrs: &[SocketAddr]) -> Result<Self, Error> {
        let connections = args.connections;
        let config = Config {
            sockets: (connections * 2 + 64).min(1 << 16),
            shared_rings: RINGS + RINGS / 4,
            ..Config::default()
        };
        let proxy = args.proxy.open(config)?;
        let attachment = gpunet_app::device::attach(&proxy, "gpunet-kv", args.device)?;
        let is_gpu = attachment.cuda().is_some();
        let threads = args.threads.unwrap_or(if is_gpu { GPU_THREADS } else { 1 });
        let blocks = args.blocks.unwrap_or(if is_gpu { GPU_BLOCKS } else { 1 }).min(connections);
        let program = gpunet_app::device::load(&attachment, &PTX, &[Server::<Kv>::ENTRY], threads)
            .map_err(Error::Load)?;
        attachment.check_co_resident(&program, &[(Server::<Kv>::ENTRY, blocks, threads)])?;
        let password = args.password_file.as_deref().map_or(Ok(Password::NONE), password)?;
        let service = Kv {
            memory: args.memory,
            request_memory: args.request_memory,
            connections: u64::from(connections.div_ceil(blocks) * blocks),
            buckets: args.memory / BYTES_PER_BUCKET,
            password,
        };
        let ns = |seconds: u32| u64::from(seconds) * 1_000_000_000;
        let settings = ServerSettings {
            room: connections.div_ceil(blocks),
            idle_ns: ns(args.timeout),
            request_ns: ns(args.request_timeout),
            stall_ns: ns(args.request_timeout),
            backlog_bytes: args.output_memory,
            backlog_bytes_each: args.output_limit,
            ..ServerSettings::DEFAULT
        };
        let mut result = None;
        for addr in addrs {
            let shape = (blocks, threads);
            let started = gpunet_serve_host::start(
                &attachment,
                &program,
                shape,
                *addr,
                Options::DEFAULT,
                settings,
                service,
            );
            let is_good = started.is_ok();
            result = Some(started);
            if is_good {
                break;
            }
        }
        let running = result.unwrap_or_else(|| unreachable!("a name has an address"))?;
        Ok(Self { running, _program: program, attachment, blocks })
    }

    /// Prints the lines that blocks have written to their logs.
    pub fn print_log(&mut self) {
        for line in self.running.log() {
            eprintln!("gpunet-kv: {line}");
        }
    }

    /// Ends the server. Returns its totals.
    pub fn stop(mut self) -> Result<Totals, Error> {
        self.print_log();
        let mut totals = Totals {
            device: self.attachment.device_name().to_owned(),
            blocks: self.blocks,
            ..Totals::default()
        };
        for block in self.running.stop()? {
            totals.add(&block);
        }
        Ok(totals)
    }
}

impl Totals {
    fn add(&mut self, block: &Counters) {
        self.connections += block.accepted;
        self.commands += block.own[own::COMMANDS];
        self.hits += block.own[own::HITS];
        self.misses += block.own[own::MISSES];
        self.received += block.received;
        self.sent += block.sent;
        self.protocol_errors += block.own[own::PROTOCOL_ERRORS];
        self.limited += block.limited;
        self.failed += block.failed;
    }
}

/// Serves until Ctrl-C, and prints the totals.
pub fn run(args: &Args, interrupt: &Interrupt) -> Result<(), Error> {
    let mut serving = Serving::start(args, &args.addr.resolve()?)?;
    let greeting = format!("listening on {}", serving.running.addr());
    // Stdout is for the JSON object alone.
    if args.json {
        eprintln!("{greeting}")
    } else {
        print(&format_args!("{greeting}\n"))
    }
    while !interrupt.asked() {
        if serving.running.is_finished()? {
            // The totals show the reason.
            serving.stop()?;
            return Err(Error::Ended);
        }
        serving.print_log();
        std::thread::sleep(Duration::from_millis(20));
    }
    let totals = serving.stop()?;
    if args.json {
        print(&format_args!("{}\n", serde_json::to_string(&totals).unwrap_or_default()));
    } else {
        print(&format_args!(
            "served {} connections, {} commands, {} bytes received, {} bytes sent; {} protocol errors, {} closed by limits\n",
            totals.connections,
            totals.commands,
            totals.received,
            totals.sent,
            totals.protocol_errors,
            totals.limited,
        ));
    }
    Ok(())
}
