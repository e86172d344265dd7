//! Whole arrays between two processes, by one copy and over connections.

use super::{Failed, Run};
use crate::bench::{TensorCopy, TensorMemory, device_name, open, resolve};
use crate::floor;
use crate::outcome::Outcome;
use crate::process::{Owned, start_bound};
use crate::report::{Axis, Role, Row, counted};
use crate::sockets::{Kind, Socket, join, spawn};
use clap::Args;
use gpunet_app::cli::{self, spell};
use gpunet_channel::{Channel, ChannelListener, ChannelOptions, Description, TransferOptions};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How many transfers are under way in the rows of a pipeline.
const UNDER_WAY: usize = 4;
/// How many arrays the rows of a state dict have, and the fewest bytes of all of them.
const STATE_DICT: usize = 300;
const SMALLEST_STATE_DICT: u64 = 16 << 20;
/// Bytes of an array.
const ALL: [u64; 5] = [64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30];
/// How long the other process may take to start: a driver takes some seconds.
const SOON: Duration = Duration::from_secs(60);

/// What `tensors` takes.
#[derive(Args, Clone, Debug)]
pub struct TensorsArgs {
    /// Bytes of an array, with K or M if you like; several with commas. Without it: 64K, 1M, 16M,
    /// 256M, 1024M; the first three with --quick.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = |text: &str| cli::size(text, 1..=16 << 30))]
    arrays: Vec<u64>,
    /// The device of the process that receives: cpu or cuda:N. Without it: that of --device.
    #[arg(long, value_name = "DEVICE", value_parser = device_name)]
    other: Option<String>,
    /// How many connections carry pieces.
    #[arg(long, default_value_t = ChannelOptions::default().streams as u64, value_parser = clap::value_parser!(u64).range(1..=64))]
    streams: u64,
    /// Bytes of a piece, with K or M if you like.
    #[arg(long, value_name = "BYTES", default_value_t = ChannelOptions::default().piece as u64, value_parser = |text: &str| cli::size(text, 4096..=64 << 20))]
    piece: u64,
}

/// What `receive-tensors` takes. `tensors` starts it.
#[derive(Args, Clone, Debug)]
pub struct ReceiveTensorsArgs {
    /// Where the sender listens.
    #[arg(long)]
    at: SocketAddr,
    /// The bytes of the largest array.
    #[arg(long)]
    most: usize,
    #[arg(long)]
    streams: usize,
    #[arg(long)]
    piece: usize,
    /// Bytes are not copied from memory to memory.
    #[arg(long)]
    apart: bool,
    /// How many arrays are copied at once.
    #[arg(long, default_value_t = 1)]
    copying: usize,
    /// The device by which memory of the CPU is filled.
    #[arg(long)]
    reach: Option<String>,
}

/// `receive-tensors`: receives arrays until the sender closes.
pub fn receive_tensors(device: &str, args: &ReceiveTensorsArgs) -> Outcome<bool> {
    let mut memory = TensorMemory::new(device, args.most * args.copying)?;
    let options = ChannelOptions {
        streams: args.streams,
        piece: args.piece,
        rendezvous: !args.apart,
        // The sender's GPU, from which memory of the CPU is filled.
        device: args.reach.as_deref().map(open).transpose()?.flatten(),
        ..ChannelOptions::default()
    };
    let mut channel = Channel::connect(args.at, &options)?;
    if args.copying > 1 {
        let mut pipeline = channel.receive_pipeline(args.copying);
        let mut slots = (0..args.copying).cycle();
        // As many as are copied at once have memory of their own.
        let mut choose = |about: &[Description]| {
            let len = about.first().map_or(0, Description::bytes) as usize;
            slots.next().and_then(|slot| memory.slot(slot * args.most, len)).into_iter().collect()
        };
        while pipeline.recv_with(&mut choose, &TransferOptions::default())? {
            while pipeline.has_result() {
                pipeline.next().transpose()?;
            }
        }
        return Ok(pipeline.finish().is_ok());
    }
    while let Some(incoming) = channel.next()? {
        let lens: Vec<usize> = incoming.arrays().iter().map(|about| about.bytes() as usize).collect();
        incoming.into_arrays(memory.arrays_mut(&lens)?, &TransferOptions::default())?;
    }
    Ok(true)
}

/// A way for the bytes.
struct Way {
    name: &'static str,
    streams: usize,
    apart: bool,
    under_way: usize,
    /// How many arrays a transfer has.
    arrays: usize,
}

impl Way {
    fn takes(&self, size: u64) -> bool {
        self.arrays == 1 || size >= SMALLEST_STATE_DICT
    }
}

/// Measures arrays of growing size, beside one copy between the same devices in one process, and
/// beside as many plain sockets, and one.
pub fn tensors(run: &mut Run<'_>, args: &TensorsArgs) -> Outcome<()> {
    let from = resolve(run.proxy, run.device)?;
    let to = args.other.clone().map_or(Ok(from.clone()), |other| resolve(run.proxy, &other))?;
    let sizes = match args.arrays.as_slice() {
        [] => run.effort.of(&ALL[..3], &ALL, &ALL).to_vec(),
        named => named.to_vec(),
    };
    let streams = args.streams as usize;
    let setting = vec![
        ("sender", from.clone()),
        ("receiver", format!("{to}, another process")),
        ("connections", format!("{streams}, pieces of {}", spell(args.piece))),
        ("floor", "one copy between the same devices, in one process".to_owned()),
        ("reference", format!("{} between threads", counted(streams as u64, "plain TCP connection"))),
    ];
    let title = format!("arrays from {from} to {to}");
    run.recorder.table("tensors", title, Axis::RateBySize, setting, 8 * sizes.len())?;
    let ways = [
        Way { name: "gpunet", streams, apart: false, under_way: 1, arrays: 1 },
        Way { name: "gpunet, 300 arrays", streams, apart: false, under_way: 1, arrays: STATE_DICT },
        Way { name: "gpunet, four under way", streams, apart: false, under_way: UNDER_WAY, arrays: 1 },
        Way { name: "gpunet over connections", streams, apart: true, under_way: 1, arrays: 1 },
        Way { name: "gpunet over one connection", streams: 1, apart: true, under_way: 1, arrays: 1 },
    ];
    let most = usize::try_from(sizes.iter().copied().max().unwrap_or(1))?;
    let memory = TensorMemory::new(&from, most)?;
    let mut copies = TensorCopy::new(&from, &to, most, streams)?;
    let mut failed = Failed::default();
    let moved: u64 = run.effort.of(64 << 20, 2 << 30, 16 << 30);
    for &size in &sizes {
        let (len, rounds) = (size as usize, (moved / size).clamp(3, 2000));
        failed.attempt(run, &format!("copies of {}", spell(size)), |run| {
            let once = || Ok(row(Role::Floor, "one copy", size, rounds, timed(rounds, || copies.copy(len))?));
            run.recorder.row(floor::best(once)?);
            let took = plain(streams, len, rounds)?;
            run.recorder.row(row(Role::Reference, "plain TCP", size, rounds, took));
            if streams > 1 {
                let took = plain(1, len, rounds)?;
                run.recorder.row(row(Role::Reference, "plain TCP, one connection", size, rounds, took));
            }
            Ok(())
        });
    }
    for way in &ways {
        failed.attempt(run, way.name, |run| {
            let options = ChannelOptions { rendezvous: !way.apart, ..ChannelOptions::default() };
            let options = ChannelOptions { streams: way.streams, piece: args.piece as usize, ..options };
            let listener = ChannelListener::bind("127.0.0.1:0".parse()?, &options)?;
            let at = listener.local_addr()?;
            let mut other = start(&to, &from, at, most, way.under_way, &options)?;
            let mut channel = listener.accept_until(Some(Instant::now() + SOON))?;
            for &size in sizes.iter().filter(|&&size| way.takes(size)) {
                let arrays = memory.arrays(&parts(size as usize, way.arrays))?;
                // The first one maps memory, and makes pinned memory.
                let via = channel.send_all(&arrays, &TransferOptions::default())?.via;
                let rounds = (moved / size).clamp(3, 2000);
                let took = if way.under_way == 1 {
                    timed(rounds, || Ok(channel.send_all(&arrays, &TransferOptions::default()).map(drop)?))?
                } else {
                    let began = Instant::now();
                    let mut pipeline = channel.pipeline(way.under_way);
                    for _ in 0..rounds {
                        pipeline.send(&arrays, &TransferOptions::default())?;
                    }
                    pipeline.finish()?;
                    began.elapsed()
                };
                let mut row = row(Role::Gpunet, way.name, size, rounds, took);
                row.name = format!("{}, {via}", row.name);
                run.recorder.row(row);
            }
            drop(channel);
            other.0.wait()?;
            Ok(())
        });
    }
    failed.into_outcome()
}

fn row(role: Role, what: &str, size: u64, rounds: u64, took: Duration) -> Row {
    Row::rate(role, format!("{}, {what}", spell(size)), size * rounds, took).at(what, size)
}

/// Cuts bytes into arrays as a model has them: every other one is small, as a norm's weights are.
fn parts(len: usize, count: usize) -> Vec<usize> {
    const NORM: usize = 8 << 10;
    let large = count.div_ceil(2);
    let rest = len - (count - large) * NORM;
    let each = (rest / large) & !255;
    let mut parts: Vec<usize> = (0..count).map(|at| if at % 2 == 0 { each } else { NORM }).collect();
    parts[0] += rest - large * each;
    parts
}

fn timed(rounds: u64, mut once: impl FnMut() -> Outcome<()>) -> Outcome<Duration> {
    once()?;
    let began = Instant::now();
    (0..rounds).try_for_each(|_| once())?;
    Ok(began.elapsed())
}

fn start(
    device: &str,
    from: &str,
    at: SocketAddr,
    most: usize,
    under_way: usize,
    options: &ChannelOptions,
) -> Outcome<Owned> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([
        "--device",
        device,
        "receive-tensors",
        "--at",
        &at.to_string(),
        "--most",
        &most.to_string(),
    ]);
    command.args(["--streams", &options.streams.to_string(), "--piece", &options.piece.to_string()]);
    if !options.rendezvous {
        command.arg("--apart");
    }
    if device != "cpu" && from != "cpu" {
        command.args(["--copying", &under_way.to_string()]);
    }
    if device == "cpu" && from != "cpu" {
        command.args(["--reach", from]);
    }
    Ok(Owned(start_bound(command.stdin(Stdio::null()), Signal::KILL)?))
}

/// Sends arrays over plain connections, an equal part over each. A byte back ends each array.
fn plain(streams: usize, len: usize, rounds: u64) -> Outcome<Duration> {
    const PIECE: usize = 1 << 20;
    let part = len.div_ceil(streams);
    let pairs = Socket::pairs(Kind::Tcp, streams)?;
    let took = std::thread::scope(|scope| -> std::io::Result<Duration> {
        let began = Instant::now();
        let mut threads = Vec::new();
        for [mut near, mut far] in pairs {
            threads.push(spawn(scope, move || {
                let (message, mut back) = (vec![7; part.max(1)], [0]);
                for _ in 0..rounds {
                    message.chunks(PIECE).try_for_each(|piece| near.send_all(piece))?;
                    near.receive(&mut back)?;
                }
                Ok(())
            })?);
            threads.push(spawn(scope, move || {
                let mut memory = vec![0; part.max(1)];
                for _ in 0..rounds {
                    let mut at = 0;
                    while at < memory.len() {
                        match far.receive(&mut memory[at..])? {
                            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                            n => at += n,
                        }
                    }
                    far.send_all(&[1])?;
                }
                Ok(())
            })?);
        }
        threads.into_iter().try_for_each(join)?;
        Ok(began.elapsed())
    })?;
    Ok(took)
}
