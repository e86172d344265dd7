//! The device under test: attach, launch, collect.
//!
//! | file | holds |
//! |---|---|
//! | `lent` | queues, and the memory and sockets that they use |
//! | `by_hand` | the same operations of a stream, written by hand |
//! | `members` | a team of devices of this process |
//! | `tensor_memory` | memory of arrays, and copies of it |
//! | `windows`, `words` | memory that two devices access; words that streams and kernels share |

mod by_hand;
mod lent;
mod members;
mod tensor_memory;
mod windows;
mod words;

use crate::outcome::Outcome;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::Registration;
use gpunet_app::device::{self, DeviceChoice};
use gpunet_app::proxy::ProxyArgs;
use gpunet_bench_kernel::{Results, failed};
use gpunet_calls_host::{CallServer, Calls};
use gpunet_device::abi::Word;
use gpunet_device::{Buffer, Error, Kernel, Net};
use gpunet_embed_ptx::{Embedded, embedded};
use gpunet_proxy::{
    Attachment, CloseReport, Config, DeviceBuffer, FinishPolicy, Launch, Program, Proxy, embed,
};
use gpunet_records_host::{Reader, Records, Rings, Settings};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

static PTX: Embedded = embedded!("gpunet_bench_kernel.ptx");
/// A kernel that takes longer than this has hung. In an emulated machine on loaded processors one
/// takes most of a minute.
const LIMIT: Duration = Duration::from_secs(120);

pub use by_hand::{ByHand, Step};
pub use lent::Lent;
pub use members::{Members, pointer};
pub use tensor_memory::{TensorCopy, TensorMemory, open};
pub use windows::Windows;
pub use words::Words;

/// The name for any device: a GPU if there is one.
pub const AUTO: &str = "auto";

/// Resolves `auto` and `cuda` to the name of one device. It finds out once which device `auto`
/// takes.
pub fn resolve(proxy: &ProxyArgs, device: &str) -> Outcome<String> {
    Ok(match device {
        AUTO => {
            let bench = Bench::attach(&proxy.open(Config::small())?, AUTO)?;
            bench.attachment.cuda().map_or("cpu".to_owned(), |gpu| format!("cuda:{}", gpu.ordinal()))
        }
        "cuda" => "cuda:0".to_owned(),
        named => named.to_owned(),
    })
}

/// Checks the name of a device.
pub fn device_name(text: &str) -> Result<String, String> {
    text.parse::<DeviceChoice>().map(|_| text.to_owned())
}

/// The device under test.
pub struct Bench {
    attachment: Attachment,
    /// Each loaded kernel by its entry and the most threads of a block.
    programs: RefCell<HashMap<(&'static str, u32), Program>>,
}

/// Memory that a kernel and this program use together.
pub struct Pinned {
    region: Arc<PinnedRegion>,
    registration: Option<Registration>,
}

impl Pinned {
    /// The address for the device.
    pub fn device(&self, offset: usize) -> *mut u8 {
        let base =
            self.registration.as_ref().map_or(self.region.base().as_ptr() as u64, Registration::device_ptr);
        (base as usize + offset) as *mut u8
    }

    /// The address for this program.
    pub fn host(&self, offset: usize) -> *mut u8 {
        self.region.base().as_ptr().wrapping_add(offset)
    }

    /// A word, for this program.
    pub fn word(&self, offset: usize) -> Word {
        assert!(offset + 8 <= self.region.len());
        // SAFETY: inside the region, which lives as long as `self`; used within its user's scope.
        unsafe { Word::from_ptr(self.host(offset).cast()) }
    }

    /// Copies between two parts of the region, as another end on the CPU would.
    pub fn copy(&self, to: usize, from: usize, len: usize) {
        assert!(to + len <= self.region.len() && from + len <= self.region.len());
        // SAFETY: inside the region (checked); the hand-off words let only one side copy at a time.
        unsafe { self.host(from).copy_to(self.host(to), len) };
    }
}

/// The memory of a launch.
pub struct Job {
    memory: DeviceBuffer,
    results: DeviceBuffer,
}

impl Job {
    /// The message memory.
    pub fn buffer(&self) -> Buffer {
        // SAFETY: a job outlives its launch (`Bench::finish` takes both), and the kernels divide
        // the buffer among their blocks.
        unsafe { self.memory.buffer() }
    }

    /// The result words.
    pub fn results(&self) -> Results {
        // SAFETY: as `buffer`; allocations are aligned for u64.
        let ptr = unsafe { self.results.buffer() };
        // SAFETY: as above.
        unsafe { Results::new(ptr.as_ptr().cast(), self.results.len() / 8) }
    }

    /// Fills the message memory with `byte`, before a launch.
    pub fn fill(&mut self, byte: u8) -> Outcome<()> {
        Ok(self.memory.write(0, &vec![byte; self.memory.len()])?)
    }

    /// The result words, once the launch has ended.
    pub fn words(&self) -> Outcome<Vec<u64>> {
        let mut bytes = vec![0; self.results.len()];
        self.results.read(0, &mut bytes)?;
        Ok(bytes.chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().unwrap_or_default())).collect())
    }
}

impl Bench {
    /// Opens the device that the command line names, under the proxy that it names.
    pub fn open(proxy: &ProxyArgs, device: &str) -> Outcome<Self> {
        Self::attach(&proxy.open(Config::default())?, device)
    }

    /// Opens CPU blocks under a proxy of their own: an end of floors, which have no sockets.
    pub fn cpu() -> Outcome<Self> {
        Self::attach(&embed(Config::small())?, "cpu")
    }

    /// Opens a device of a driver without a GPU, whose streams carry out their operations.
    #[cfg(test)]
    pub fn on(proxy: &Proxy, device: &gpu_usermap::cuda::Device) -> Outcome<Self> {
        Ok(Self { attachment: proxy.attach_cuda(device)?, programs: Default::default() })
    }

    /// Opens the device with this name.
    pub fn attach(proxy: &Proxy, device: &str) -> Outcome<Self> {
        let attachment = device::attach(proxy, "gpunet-bench", device.parse::<DeviceChoice>()?)?;
        Ok(Self { attachment, programs: Default::default() })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        self.attachment.device_name()
    }

    /// Returns whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.attachment.cuda().is_some()
    }

    /// The threads of a block: `wanted` on a GPU, one on the CPU.
    pub fn threads(&self, wanted: u32) -> u32 {
        if self.is_gpu() { wanted } else { 1 }
    }

    /// The attachment that owns the sockets.
    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// Returns where it runs, for the head of a table: the device and, for a GPU, its ordinal.
    pub fn title(&self) -> String {
        match self.attachment.cuda() {
            Some(device) => format!("{} (cuda:{})", self.name(), device.ordinal()),
            None => "CPU thread blocks".to_owned(),
        }
    }

    /// Returns how many blocks can run at the same time and wait for each other.
    pub fn processors(&self) -> u32 {
        self.attachment.cuda().map_or(4, |device| device.multiprocessors())
    }

    /// Memory for a launch: message bytes and result words.
    pub fn job(&self, bytes: usize, words: usize) -> Outcome<Job> {
        Ok(Job { memory: self.attachment.alloc(bytes.max(64))?, results: self.attachment.alloc(words * 8)? })
    }

    /// Memory shared with the device.
    pub fn pinned(&self, bytes: usize) -> Outcome<Pinned> {
        let region = PinnedRegion::create("gpunet-bench", bytes)?;
        let registration = self.attachment.cuda().map(|d| d.register(region.clone())).transpose()?;
        Ok(Pinned { region, registration })
    }

    /// Returns a kernel for blocks of `threads` threads. Loading one takes up to a second if it is
    /// not cached.
    pub fn program<K: Kernel>(&self, threads: u32) -> Outcome<Program> {
        let most = [256, 512, 1024].into_iter().find(|&most| threads <= most).ok_or("too many threads")?;
        let key = (K::ENTRY, most);
        if let Some(program) = self.programs.borrow().get(&key) {
            return Ok(program.clone());
        }
        let program = self.attachment.load_entries(PTX.text(), &[K::ENTRY], most)?;
        self.programs.borrow_mut().insert(key, program.clone());
        Ok(program)
    }

    /// Loads a kernel for blocks of `threads` threads, if it is not loaded yet. Call it before
    /// another kernel waits, and before time is measured.
    pub fn prepare<K: Kernel>(&self, threads: u32) -> Outcome<()> {
        self.program::<K>(self.threads(threads)).map(|_| ())
    }

    /// Returns a kernel's way to functions of this program. The server outlives the launch, which
    /// the caller waits for.
    pub fn calls(server: &CallServer) -> Calls {
        // SAFETY: kept until the launch has ended, as the memory of a `Job` is.
        unsafe { server.calls() }
    }

    /// Rings for records of kernels, and their reader.
    pub fn rings(&self, settings: Settings) -> Outcome<(Rings, Reader)> {
        Ok(Rings::create(&self.attachment, settings)?)
    }

    /// A kernel's rings. They outlive the launch, which the caller waits for.
    pub fn records(rings: &Rings) -> Records {
        // SAFETY: kept until the launch has ended, as the memory of a `Job` is.
        unsafe { rings.records() }
    }

    /// Starts a kernel.
    pub fn start<K: Kernel>(
        &self,
        blocks: u32,
        threads: u32,
        kernel: impl FnOnce(Net) -> K,
    ) -> Outcome<Launch> {
        let program = self.program::<K>(threads)?;
        // SAFETY: kernels of this program use the memory of a `Job` or `Pinned`, which `finish` and
        // the callers keep until the launch has ended.
        Ok(unsafe { self.attachment.launch(&program, blocks, threads, kernel) }?)
    }

    /// Waits for a kernel. A kernel that hangs is cancelled and reported.
    pub fn finish(&self, launch: Launch, job: &Job) -> Outcome<Vec<u64>> {
        self.finish_with(launch, job, FinishPolicy::Close)
    }

    /// As [`Bench::finish`]. `policy` decides what happens to the sockets that the kernel left
    /// open.
    pub fn finish_with(&self, launch: Launch, job: &Job, policy: FinishPolicy) -> Outcome<Vec<u64>> {
        let start = Instant::now();
        let ended = launch.wait_timeout(LIMIT)?;
        if !ended {
            launch.cancel();
        }
        launch.finish(policy)?;
        if !ended {
            return Err(format!("the kernel hung: cancelled after {:?}", start.elapsed()).into());
        }
        job.words()
    }

    /// Closes all sockets and returns how that ended.
    pub fn close(self) -> CloseReport {
        self.attachment.close()
    }

    /// Fails with the errno of the first of these words that holds one.
    pub fn no_failure(words: &[u64]) -> Outcome<()> {
        match words.iter().find_map(|&word| failed(word)) {
            Some(errno) => {
                Err(format!("the kernel reports: {} (errno {errno})", Error::from_errno(errno)).into())
            }
            None => Ok(()),
        }
    }
}
