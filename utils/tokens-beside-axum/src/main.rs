//! The model of gpunet-tokens, served as a well-made host program would: axum for HTTP, and a
//! thread that computes a batch by one CUDA graph launch per step. Requests join and leave between
//! steps.

mod check;
mod engine;
mod plan;
mod server;
mod step;

use axum::serve::ListenerExt;
use clap::Parser;
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use step::{Model, Wait};
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;

/// The model of gpunet-tokens behind axum, with a CUDA graph for each step.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8001")]
    listen: SocketAddr,
    /// The number of the GPU.
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Requests in the batch at a time; others wait.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=512))]
    batch: u32,
    /// Milliseconds from one step to the next, at least.
    #[arg(long, default_value_t = 0)]
    interval: u64,
    /// How the model's thread waits for the GPU.
    #[arg(long, value_enum, default_value_t = Wait::Spin)]
    wait: Wait,
    /// Threads of tokio [default: one for each core].
    #[arg(long)]
    threads: Option<usize>,
    /// PTX or a cubin of src/model.cu, instead of compiling it by nvrtc.
    #[arg(long, value_name = "FILE")]
    code: Option<PathBuf>,
    /// Compare the model's texts with numpy's, and end.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    run(&Args::parse()).map_or_else(
        |error| {
            eprintln!("tokens-beside-axum: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let (sequences, interval) = (args.batch as usize, Duration::from_millis(args.interval));
    let (gpu, wait, code) = (args.gpu, args.wait, args.code.clone());
    let load = move || {
        let mut model = Model::load(gpu, sequences, wait, code.as_deref())?;
        let compared = check::check(&mut model)?;
        eprintln!("{}: {compared} tokens are numpy's", model.name);
        Ok::<_, Box<dyn Error>>(model)
    };
    if args.check {
        return load().map(drop);
    }
    let (requests, mut waiting) = unbounded_channel();
    // Graphs stay with the thread that makes them.
    let (loaded, is_loaded) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("model".into()).spawn(move || {
        let model = load().map_err(|error| loaded.send(Err(error.to_string())));
        let Ok(model) = model else { return };
        let _ = loaded.send(Ok(()));
        if let Err(error) = engine::run(model, sequences, interval, &mut waiting) {
            eprintln!("tokens-beside-axum: a step has failed: {error}");
            std::process::exit(1);
        }
    })?;
    is_loaded.recv()??;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = args.threads {
        runtime.worker_threads(threads.max(1));
    }
    runtime.enable_all().build()?.block_on(async {
        let listener =
            TcpListener::bind(args.listen).await.map_err(|error| format!("{}: {error}", args.listen))?;
        println!("listening on {}", listener.local_addr()?);
        std::io::stdout().flush()?;
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let served = axum::serve(listener, server::routes(requests));
        tokio::select! {
            served = served => served?,
            interrupt = tokio::signal::ctrl_c() => interrupt?,
        }
        Ok(())
    })
}
