//! Measures how long a step of the model takes, on a GPU if there is one, else on a CPU thread:
//!
//! `cargo run --release -p gpunet-tokens --example steps`
//!
//! Each block computes a batch of its own; with more of them the time is that of the slowest. It is
//! the best of three tries.

use clap::Parser;
use gpunet_app::device::{self, DeviceChoice};
use gpunet_device::Kernel;
use gpunet_embed_ptx::{Embedded, embedded};
use gpunet_proxy::{Attachment, Config, FinishPolicy, Program, embed};
use gpunet_tokens_kernel::Steps;
use gpunet_tokens_model::{WEIGHTS, Weights};
use std::error::Error;
use std::time::Duration;

static PTX: Embedded = embedded!("gpunet_tokens_kernel.ptx");

/// Measures how long a step of the model takes.
#[derive(Debug, Parser)]
#[command(name = "steps")]
struct Args {
    /// Where the kernel runs: auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
    /// Threads of a block on a GPU.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(32..=1024))]
    threads: u32,
    /// Blocks, each with a batch of its own.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    blocks: u32,
}

/// Sequences of a step, rows of each, and tokens before it.
const SHAPES: [(u32, u32, u32); 15] = [
    (1, 1, 24),
    (2, 1, 24),
    (4, 1, 24),
    (8, 1, 24),
    (16, 1, 24),
    (64, 1, 24),
    (1, 1, 384),
    (2, 1, 384),
    (4, 1, 384),
    (16, 1, 384),
    (1, 8, 0),
    (1, 16, 0),
    (1, 32, 0),
    (1, 64, 0),
    (1, 400, 0),
];
/// Steps that are measured: from 24 tokens on they are at position 40 on average.
const STEPS: u32 = 32;
/// A kernel that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(120);

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let attachment = device::attach(&embed(Config::small())?, "steps", args.device)?;
    let (name, threads) = match attachment.cuda() {
        Some(device) => (format!("{}, cuda:{}", attachment.device_name(), device.ordinal()), args.threads),
        None => ("CPU".to_owned(), 1),
    };
    let program = device::load(&attachment, &PTX, &[Steps::ENTRY], threads)?;
    println!("{name}: {} blocks of {threads} threads", args.blocks);
    println!("{:>9} {:>10} {:>9} {:>12}", "sequences", "rows each", "position", "us a step");
    for (sequences, rows, position) in SHAPES {
        let once = || measure(&attachment, &program, (args.blocks, threads), (sequences, rows, position));
        let best = once()?.min(once()?).min(once()?);
        let at = if rows > 1 { (rows - 1) / 2 } else { position + STEPS / 2 };
        println!("{sequences:>9} {rows:>10} {at:>9} {:>12.1}", best as f64 / f64::from(STEPS) / 1e3);
    }
    Ok(())
}

/// Measures steps. Returns the nanoseconds of the slowest block for all of them.
fn measure(
    attachment: &Attachment,
    program: &Program,
    (blocks, threads): (u32, u32),
    (sequences, rows, position): (u32, u32, u32),
) -> Result<u64, Box<dyn Error>> {
    let mut file = attachment.alloc(WEIGHTS.len())?;
    file.write(0, WEIGHTS)?;
    let memory = attachment.alloc(Steps::bytes(sequences, rows) * blocks as usize)?;
    let times = attachment.alloc(blocks as usize * 8)?;
    let weights = Weights::check(WEIGHTS)?;
    // SAFETY: new memory of the device, filled with zeros, of the sizes that the kernel asks for.
    // It is kept until the kernel has ended, and nothing else uses it.
    let launch = unsafe {
        let (file, memory, times) = (file.buffer(), memory.buffer(), times.buffer());
        let kernel = Steps { file, memory, times, weights, sequences, rows, position, steps: STEPS };
        attachment.launch(program, blocks, threads, |_| kernel)
    }?;
    let ended = launch.wait_timeout(LIMIT)?;
    if !ended {
        launch.cancel();
    }
    launch.finish(FinishPolicy::Close)?;
    if !ended {
        return Err("the kernel takes longer than two minutes".into());
    }
    let mut words = vec![0; blocks as usize * 8];
    times.read(0, &mut words)?;
    let times = words.as_chunks().0.iter().map(|&word| u64::from_ne_bytes(word));
    match times.max() {
        Some(u64::MAX) | None => Err("the model has refused a step".into()),
        Some(time) => Ok(time),
    }
}
