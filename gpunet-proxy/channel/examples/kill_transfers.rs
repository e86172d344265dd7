//! Kills either end of a channel in the middle of a transfer, and checks the other one: it gets an
//! error within two seconds, sees no torn array as whole, and no memory of a GPU stays.
//!
//! ```text
//! cargo run --example kill_transfers -- 20 cuda:0 cuda:1
//! ```
//!
//! This process has the first device and its child the second; they take turns at sending. The
//! child is killed at a random time of a transfer.

use gpu_usermap::cuda::{Cuda, Device, GpuBuffer};
use gpunet_channel::{Array, ArrayMut, Channel, ChannelError, ChannelListener, ChannelOptions, Dtype};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// How soon after a kill the other end must know.
const SOON: Duration = Duration::from_secs(2);
/// A driver takes some seconds to start.
const START: Duration = Duration::from_secs(60);
/// The bytes of an array on a GPU, which takes some milliseconds, and on the CPU.
const ON_GPU: usize = 1 << 30;
const ON_CPU: usize = 64 << 20;

enum Memory {
    Cpu(Vec<u8>),
    Gpu(Device, GpuBuffer),
}

impl Memory {
    fn new(device: &str, len: usize) -> Outcome<Self> {
        let Some(ordinal) = device.strip_prefix("cuda:") else { return Ok(Self::Cpu(vec![7; len])) };
        let device = Cuda::load()?.device(ordinal.parse()?)?;
        let buffer = device.alloc(len)?;
        Ok(Self::Gpu(device, buffer))
    }

    fn array(&self) -> Outcome<Array<'_>> {
        Ok(match self {
            Self::Cpu(bytes) => Array::of(bytes),
            Self::Gpu(device, buffer) => {
                // SAFETY: the array borrows the buffer, and nobody writes it.
                unsafe { Array::on_gpu(device, buffer.ptr(), Dtype::U8, &[buffer.len() as u64]) }?
            }
        })
    }

    fn array_mut(&mut self) -> Outcome<ArrayMut<'_>> {
        Ok(match self {
            Self::Cpu(bytes) => ArrayMut::of(bytes),
            Self::Gpu(device, buffer) => {
                // SAFETY: as above, and nobody reads it.
                unsafe { ArrayMut::on_gpu(device, buffer.ptr(), Dtype::U8, &[buffer.len() as u64]) }?
            }
        })
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.as_slice() {
        [child, role, addr, len, device] if child == "child" => transfer(role, addr, len, device),
        [rounds, here, there] => check(rounds, here, there),
        _ => Err("kill_transfers ROUNDS DEVICE DEVICE, where a device is cpu or cuda:N".into()),
    };
    done.map_or_else(
        |error| {
            eprintln!("kill_transfers: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// The child: one transfer after the other, until it is killed.
fn transfer(role: &str, addr: &str, len: &str, device: &str) -> Outcome<()> {
    let mut memory = Memory::new(device, len.parse()?)?;
    let mut channel = Channel::connect(addr, &ChannelOptions::default())?;
    loop {
        once(role == "send", &mut channel, &mut memory)?;
    }
}

fn once(sends: bool, channel: &mut Channel, memory: &mut Memory) -> Outcome<()> {
    match sends {
        true => channel.send(&memory.array()?)?,
        false => channel.recv_into(&mut memory.array_mut()?)?,
    };
    Ok(())
}

/// The child is killed by the drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn check(rounds: &str, here: &str, there: &str) -> Outcome<()> {
    let rounds: u32 = rounds.parse()?;
    let len = if here == "cpu" && there == "cpu" { ON_CPU } else { ON_GPU };
    let listener = ChannelListener::bind("127.0.0.1:0".parse()?, &ChannelOptions::default())?;
    let addr = listener.local_addr()?.to_string();
    let mut memory = Memory::new(here, len)?;
    let (mut slowest, mut whole, mut used) = (Duration::ZERO, 0, None);
    for round in 0..rounds {
        let (role, sends) = if round % 2 == 0 { ("send", false) } else { ("receive", true) };
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = Killed(command.args(["child", role, &addr, &len.to_string(), there]).spawn()?);
        let mut channel = listener.accept_until(Some(Instant::now() + START))?;
        once(sends, &mut channel, &mut memory)?;
        // From microseconds to some transfers after the first.
        let delay = Duration::from_micros(u64::from(round) * 7919 % 60_000);
        let killing = std::thread::spawn(move || {
            std::thread::sleep(delay);
            child.0.kill().map(|()| (child, Instant::now()))
        });
        let error = loop {
            match once(sends, &mut channel, &mut memory) {
                Ok(()) => whole += 1,
                Err(error) => break error,
            }
        };
        let ended = Instant::now();
        let (child, killed) = killing.join().map_err(|_| "the thread that kills")??;
        let took = ended.saturating_duration_since(killed);
        let reset = error.downcast_ref::<ChannelError>().is_some_and(|error| error.errno() == 104);
        if !reset || took > SOON {
            return Err(format!("round {round}: {took:?} after the kill: {error}").into());
        }
        slowest = slowest.max(took);
        drop((channel, child));
        let now = memory_used(here)?;
        // What the driver keeps for itself comes with the first round.
        if round == 1 {
            used = now;
        }
        if let (Some(before), Some(now)) = (used, now)
            && round > 1
            && now > before + 64
        {
            return Err(format!("round {round}: {now} MiB of {here} are in use, and {before} before").into());
        }
    }
    println!(
        "{rounds} kills from {here} to {there}, {whole} transfers between them: an error after {slowest:?} at most"
    );
    Ok(())
}

/// The MiB of a GPU that are in use by all processes.
fn memory_used(device: &str) -> Outcome<Option<u64>> {
    let Some(ordinal) = device.strip_prefix("cuda:") else { return Ok(None) };
    let asked = ["--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", ordinal];
    let said = Command::new("nvidia-smi").args(asked).output()?;
    Ok(Some(String::from_utf8_lossy(&said.stdout).trim().parse()?))
}
