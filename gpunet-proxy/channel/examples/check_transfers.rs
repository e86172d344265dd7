//! Sends arrays of random sizes from random memory of this process to random memory of another one,
//! and compares checksums.
//!
//! ```text
//! cargo run --example check_transfers -- 1000 cpu cuda:0 cuda:1
//! ```
//!
//! Memory of GPUs is of `cuMemAlloc`, of `cuMemCreate`, or three such allocations in a row, which
//! are mapped anew each time at the same addresses.

use gpu_usermap::cuda::{Cuda, Device, GpuBuffer, GrowingBuffer, ShareableBuffer};
use gpunet_channel::{Array, ArrayMut, Channel, ChannelListener, ChannelOptions, Dtype, TransferOptions};
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const PIECE: usize = 4 << 20;
const LONGEST: usize = 3 * PIECE;

/// Random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Where an array lies.
enum Memory {
    Cpu(Vec<u8>),
    Plain(Device, GpuBuffer),
    Shareable(ShareableBuffer),
    Growing(Arc<GrowingBuffer>),
}

impl Memory {
    fn new(
        device: Option<&Device>,
        heap: Option<&Arc<GrowingBuffer>>,
        len: usize,
        kind: usize,
    ) -> Outcome<Self> {
        let Some(device) = device else { return Ok(Self::Cpu(vec![0; len])) };
        Ok(match (kind, heap) {
            (0, _) => Self::Shareable(device.alloc_shareable(len)?),
            (1, Some(heap)) => {
                // Mapped anew: what another process has mapped of it is other memory.
                heap.truncate(0)?;
                for _ in 0..3 {
                    drop(heap.append(PIECE)?);
                }
                Self::Growing(heap.clone())
            }
            _ => Self::Plain(device.clone(), device.alloc(len)?),
        })
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Cpu(_) => "cpu",
            Self::Plain(..) => "gpu",
            Self::Shareable(_) => "gpu, shareable",
            Self::Growing(_) => "gpu, three allocations",
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Outcome<()> {
        match self {
            Self::Cpu(memory) => memory.copy_from_slice(bytes),
            Self::Plain(device, buffer) => device.write(buffer, 0, bytes)?,
            Self::Shareable(buffer) => buffer.device().write(buffer.buffer(), 0, bytes)?,
            Self::Growing(heap) => {
                for (at, part) in (0..).step_by(PIECE).zip(bytes.chunks(PIECE)) {
                    heap.write(at, part)?;
                }
            }
        }
        Ok(())
    }

    fn read(&self, len: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; len];
        match self {
            Self::Cpu(memory) => bytes.copy_from_slice(&memory[..len]),
            Self::Plain(device, buffer) => device.read(buffer, 0, &mut bytes)?,
            Self::Shareable(buffer) => buffer.device().read(buffer.buffer(), 0, &mut bytes)?,
            Self::Growing(heap) => {
                for (at, part) in (0..).step_by(PIECE).zip(bytes.chunks_mut(PIECE)) {
                    heap.read(at, part)?;
                }
            }
        }
        Ok(bytes)
    }

    fn place(&self) -> Option<(&Device, u64)> {
        match self {
            Self::Cpu(_) => None,
            Self::Plain(device, buffer) => Some((device, buffer.ptr())),
            Self::Shareable(buffer) => Some((buffer.device(), buffer.ptr())),
            Self::Growing(heap) => Some((heap.device(), heap.ptr())),
        }
    }

    fn array(&self, len: usize) -> Outcome<Array<'_>> {
        let shape = [len as u64];
        Ok(match (self, self.place()) {
            // SAFETY: `self` has so many bytes there, and nobody writes them while it is borrowed.
            (_, Some((device, address))) => unsafe { Array::on_gpu(device, address, Dtype::U8, &shape) }?,
            (Self::Cpu(memory), _) => Array::of(&memory[..len]),
            _ => return Err("no memory".into()),
        })
    }

    fn array_mut(&mut self, len: usize) -> Outcome<ArrayMut<'_>> {
        let shape = [len as u64];
        if let Some((device, address)) = self.place() {
            // SAFETY: as above, and nobody reads them.
            return Ok(unsafe { ArrayMut::on_gpu(device, address, Dtype::U8, &shape) }?);
        }
        match self {
            Self::Cpu(memory) => Ok(ArrayMut::of(&mut memory[..len])),
            _ => Err("no memory".into()),
        }
    }
}

/// The devices of a process, and addresses on each to which memory comes in pieces.
struct Devices(Vec<Option<(Device, Arc<GrowingBuffer>)>>);

impl Devices {
    fn open(names: &[String]) -> Outcome<Self> {
        let open = |name: &String| -> Outcome<_> {
            if name == "cpu" {
                return Ok(None);
            }
            let ordinal = name.strip_prefix("cuda:").ok_or("devices are cpu and cuda:N")?.parse()?;
            let device = Cuda::load()?.device(ordinal)?;
            let heap = Arc::new(device.reserve(64 << 20)?);
            Ok(Some((device, heap)))
        };
        Ok(Self(names.iter().map(open).collect::<Outcome<_>>()?))
    }

    fn memory(&self, at: usize, len: usize, kind: usize) -> Outcome<Memory> {
        let (device, heap) = self.0[at].as_ref().map(|(device, heap)| (device, heap)).unzip();
        Memory::new(device, heap, len, kind)
    }
}

/// FNV-1a, eight bytes at a time.
fn checksum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(sum, u64::from_le_bytes(word))
    })
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.split_first() {
        Some((first, rest)) if first == "receive" => receive(rest),
        Some((count, devices)) => check(count, devices),
        None => check("100", &[]),
    };
    done.map_or_else(
        |error| {
            eprintln!("check_transfers: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// The other process: receives arrays, and sends their checksums back.
fn receive(args: &[String]) -> Outcome<()> {
    let (addr, devices) = args.split_first().ok_or("no address")?;
    let devices = Devices::open(devices)?;
    // By it memory of the CPU is filled from a GPU.
    let device = devices.0.iter().flatten().next().map(|(device, _)| device.clone());
    let options = ChannelOptions { device, ..ChannelOptions::default() };
    let (mut sender, mut receiver) = Channel::connect(addr.as_str(), &options)?.split();
    let mut random = Random(2);
    while let Some(incoming) = receiver.next()? {
        let (len, at) = (usize::try_from(incoming.bytes())?, incoming.arrays()[0].name.parse()?);
        let mut memory = devices.memory(at, len, random.below(3))?;
        incoming
            .into_arrays(vec![memory.array_mut(len)?.named(at.to_string())], &TransferOptions::default())?;
        sender.send(&Array::of(&[checksum(&memory.read(len)?)]))?;
    }
    Ok(())
}

fn check(count: &str, devices: &[String]) -> Outcome<()> {
    let count: u64 = count.parse()?;
    let names = if devices.is_empty() { vec!["cpu".to_owned()] } else { devices.to_vec() };
    let devices = Devices::open(&names)?;
    let options = ChannelOptions::default();
    let listener = ChannelListener::bind("127.0.0.1:0".parse()?, &options)?;
    let addr = listener.local_addr()?.to_string();
    let mut child = Command::new(std::env::current_exe()?).arg("receive").arg(addr).args(&names).spawn()?;
    let mut channel = listener.accept_until(Some(Instant::now() + Duration::from_secs(60)))?;
    let mut random = Random(1);
    let mut ways: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for number in 0..count {
        let (from, to) = (random.below(names.len()), random.below(names.len()));
        let len = match random.below(4) {
            0 => 1 + random.below(100_000),
            _ => 1 + random.below(LONGEST),
        };
        let mut words = Random(number);
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| words.next().to_le_bytes()).collect();
        bytes.truncate(len);
        let mut memory = devices.memory(from, len, random.below(3))?;
        memory.write(&bytes)?;
        let sent = channel.send(&memory.array(len)?.named(to.to_string()))?;
        let back = channel.recv()?.ok_or("the other process has ended")?;
        if back[0].to_vec::<u64>() != Some(vec![checksum(&bytes)]) {
            return Err(format!(
                "transfer {number} is WRONG: {len} bytes from {} ({}) to {}, by {}",
                names[from],
                memory.kind(),
                names[to],
                sent.via
            )
            .into());
        }
        let way = format!("{} -> {}, {}", memory.kind(), names[to].split(':').next().unwrap_or(""), sent.via);
        let (times, sum) = ways.entry(way).or_default();
        (*times, *sum) = (*times + 1, *sum + len as u64);
    }
    drop(channel);
    if !child.wait()?.success() {
        return Err("the other process failed".into());
    }
    for (way, (times, bytes)) in ways {
        println!("{times:6} transfers, {:8.1} MB: {way}", bytes as f64 / 1e6);
    }
    println!("{count} transfers are right");
    Ok(())
}
