//! `gpunet-hello-http`: an HTTP server that runs as a kernel.
//!
//! The kernel is in the package gpunet-hello-http-kernel; for a GPU its PTX is in `ptx/`.
#![forbid(unsafe_code)]

use clap::Parser;
use gpunet_app::cli::{self, Endpoint, UsageError, print};
use gpunet_app::device::{DeviceChoice, attach, load};
use gpunet_app::interrupt::Interrupt;
use gpunet_app::proxy::ProxyArgs;
use gpunet_device::{Kernel, Options};
use gpunet_embed_ptx::{Embedded, embedded};
use gpunet_hello_http_kernel::Hello;
use gpunet_http::Limits;
use gpunet_proxy::Config;
use gpunet_serve::Server;
use gpunet_serve_host::{ServerSettings, start};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// The kernel for a GPU, made by `cargo run -p gpunet-build-ptx`.
static PTX: Embedded = embedded!("gpunet_hello_http_kernel.ptx");

/// An HTTP server that runs as a kernel, on a GPU if there is one, else as CPU threads.
#[derive(Debug, Parser)]
#[command(name = "gpunet-hello-http", version)]
struct Args {
    /// Address to listen on, IPv4 or IPv6; port 0 takes a free one.
    #[arg(default_value = "127.0.0.1:8080", value_name = "ADDR", value_parser = endpoint)]
    addr: Endpoint,
    #[command(flatten)]
    proxy: ProxyArgs,
    /// Where the kernel runs: auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
    /// Thread blocks that share the connections [default: 64 on a GPU, 1 on the CPU].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    blocks: Option<u32>,
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    Endpoint::parse(text, Some(8080))
}

fn main() -> ExitCode {
    let args = match Args::try_parse().map_err(UsageError::from) {
        Err(error) => return error.report("gpunet-hello-http"),
        Ok(args) => args,
    };
    let code = serve(&args).map_or_else(
        |error| {
            eprintln!("gpunet-hello-http: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    );
    cli::finish("gpunet-hello-http", code)
}

fn serve(args: &Args) -> Result<(), Box<dyn Error>> {
    cli::start_log();
    let interrupt = Interrupt::install()?;
    let proxy = args.proxy.open(Config::default())?;
    let attachment = attach(&proxy, "gpunet-hello-http", args.device)?;
    let (blocks, threads) = if attachment.cuda().is_some() { (64, 128) } else { (1, 1) };
    let shape = (args.blocks.unwrap_or(blocks), threads);
    let program = load(&attachment, &PTX, &[Server::<Hello>::ENTRY], threads)?;
    attachment.check_co_resident(&program, &[(Server::<Hello>::ENTRY, shape.0, threads)])?;
    let (settings, service) = (ServerSettings::DEFAULT, Hello { limits: Limits::DEFAULT });
    let mut server = args.addr.try_each(|addr| {
        let started = start(&attachment, &program, shape, addr, Options::DEFAULT, settings, service);
        started.map_err(Box::<dyn Error>::from)
    })?;
    print(&format_args!("listening on {}\n", server.addr()));
    while !interrupt.asked() && !server.is_finished()? {
        server.log().iter().for_each(|line| eprintln!("gpunet-hello-http: {line}"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let connections: u64 = server.stop()?.iter().map(|block| block.accepted).sum();
    print(&format_args!("served {connections} connections\n"));
    Ok(())
}
