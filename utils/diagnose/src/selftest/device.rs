//! The device under test: what it is, its memory, launches that end.
//!
//! All unsafe code of the self-tests is here: a launch hands out addresses, and [`Job`] keeps the
//! memory they point to until the kernel has ended.

use super::LIMIT;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{Cuda, CudaStream, MemOp, NoStreamMemoryOperations, Registration, StreamPriority};
use gpunet_device::abi::Word;
use gpunet_device::{Buffer, Error, Kernel, Net};
use gpunet_diagnose_kernel::{Results, failed};
use gpunet_embed_ptx::{Embedded, embedded};
use gpunet_proxy::{Attachment, Config, DeviceBuffer, FinishPolicy, Program, embed};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kernels for a GPU, made by `cargo run -p gpunet-build-ptx`.
static PTX: Embedded = embedded!("gpunet_diagnose_kernel.ptx");
/// Threads of a block on a GPU.
const THREADS: u32 = 128;
/// Result words of a job.
const RESULTS: usize = 4;
/// How long a cancelled kernel may take to end.
const STUCK: Duration = Duration::from_secs(5);

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// Thread blocks as threads of the CPU.
    Cpu,
    /// A GPU, by CUDA's number.
    Cuda(u32),
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "cpu" {
            return Ok(Self::Cpu);
        }
        let ordinal = text.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
        ordinal.map(Self::Cuda).ok_or_else(|| format!("{text}: expected cpu or cuda:N"))
    }
}

/// A device with its sockets and the kernels.
pub struct TestDevice {
    attachment: Attachment,
    program: Program,
    loading: Duration,
}

/// The memory of a launch: one piece that device and CPU share, one of the device's own, and
/// results.
pub struct Job {
    region: Arc<PinnedRegion>,
    registration: Option<Registration>,
    own: DeviceBuffer,
    results: DeviceBuffer,
}

impl TestDevice {
    /// Opens a device under a proxy of its own, and loads the kernels.
    pub fn open(name: DeviceName) -> Result<Self, String> {
        let cuda = match name {
            DeviceName::Cpu => None,
            DeviceName::Cuda(ordinal) => Some(
                Cuda::load()
                    .map_err(|why| why.to_string())?
                    .device(ordinal)
                    .map_err(|why| why.to_string())?,
            ),
        };
        let proxy = embed(Config::small()).map_err(|why| format!("the proxy does not start: {why}"))?;
        let attachment = match &cuda {
            Some(device) => proxy.attach_cuda(device),
            None => proxy.attach_cpu(),
        };
        let attachment = attachment.map_err(|why| format!("no sockets: {why}"))?;
        let start = Instant::now();
        let program =
            attachment.load(PTX.text(), 256).map_err(|why| format!("the kernels do not load: {why}"))?;
        Ok(Self { attachment, program, loading: start.elapsed() })
    }

    /// Returns whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.attachment.cuda().is_some()
    }

    /// Describes the loaded kernels.
    pub fn loaded(&self) -> String {
        let (size, ms) = (PTX.text().len() >> 10, self.loading.as_millis());
        format!("{size} KiB of PTX for sm_80 assembled and loaded in {ms} ms")
    }

    /// Memory for a launch, zeroed.
    pub fn job(&self, shared: usize, own: usize) -> Result<Job, String> {
        let region = PinnedRegion::create("gpunet-diagnose", shared).map_err(|why| why.to_string())?;
        let registration = self.attachment.cuda().map(|device| device.register(region.clone()));
        let registration = registration.transpose().map_err(|why| why.to_string())?;
        let alloc = |len| self.attachment.alloc(len).map_err(|why| why.to_string());
        Ok(Job { region, registration, own: alloc(own.max(64))?, results: alloc(RESULTS * 8)? })
    }

    /// Runs a kernel of one or two blocks, and `host` on this thread at the same time.
    ///
    /// Returns the result of `host`, the result words and the memory, once the kernel has ended.
    /// `host` must end by itself, whatever the kernel does.
    pub fn run<K: Kernel, T>(
        &self,
        job: Job,
        blocks: u32,
        kernel: impl FnOnce(Net, &Job) -> K,
        host: impl FnOnce(&Job) -> T,
    ) -> Result<(T, Vec<u64>, Job), String> {
        let threads = if self.is_gpu() { THREADS } else { 1 };
        // SAFETY: the kernels of this program use the memory of one job, which stays until they
        // have ended (below), in the places that their tests chose inside it.
        let launch =
            unsafe { self.attachment.launch(&self.program, blocks, threads, |net| kernel(net, &job)) };
        let launch = launch.map_err(|why| why.to_string())?;
        let answer = host(&job);
        let mut ended = launch.wait_timeout(2 * LIMIT);
        if let Ok(false) = ended {
            launch.cancel();
            ended = launch.wait_timeout(STUCK);
        }
        if !matches!(ended, Ok(true)) {
            // It may still use the memory, for as long as this process lives.
            std::mem::forget((launch, job));
            return Err(match ended {
                Err(why) => why.to_string(),
                Ok(_) => "the kernel does not end".to_owned(),
            });
        }
        launch.finish(FinishPolicy::Close).map_err(|why| why.to_string())?;
        let words = job.words()?;
        Ok((answer, words, job))
    }
}

impl Job {
    fn shared(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.region.len(), "outside the shared memory");
    }

    /// The device's address of shared memory.
    pub fn device(&self, offset: usize, len: usize) -> *mut u8 {
        self.shared(offset, len);
        let base =
            self.registration.as_ref().map_or(self.region.base().as_ptr() as u64, Registration::device_ptr);
        (base as usize + offset) as *mut u8
    }

    /// The CPU's address of shared memory.
    pub fn host(&self, offset: usize, len: usize) -> *mut u8 {
        self.shared(offset, len);
        self.region.base().as_ptr().wrapping_add(offset)
    }

    /// A word of shared memory, for the CPU.
    pub fn word(&self, offset: usize) -> Word {
        // SAFETY: inside the region and aligned (tests use multiples of 8); the job outlives the
        // host's side of a test, which is where words are used.
        unsafe { Word::from_ptr(self.host(offset, 8).cast()) }
    }

    /// The device's own memory.
    pub fn own(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + len <= self.own.len(), "outside the device's own memory");
        self.buffer().as_ptr().wrapping_add(offset)
    }

    /// All of the device's own memory.
    pub fn buffer(&self) -> Buffer {
        // SAFETY: the job outlives its launch (`TestDevice::run`), whose blocks divide the buffer.
        unsafe { self.own.buffer() }
    }

    /// Where the kernel leaves its results.
    pub fn results(&self) -> Results {
        // SAFETY: as above; allocations are aligned for u64.
        let words = unsafe { self.results.buffer() };
        // SAFETY: as above.
        unsafe { Results::new(words.as_ptr().cast(), RESULTS) }
    }

    /// Fills a part of the shared memory. No kernel may be using it.
    pub fn fill_shared(&self, offset: usize, bytes: &[u8]) {
        let to = self.host(offset, bytes.len());
        // SAFETY: inside the region (checked), which cannot overlap the caller's slice; used before
        // a launch.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies a part of the shared memory. No kernel may be using it.
    pub fn read_shared(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        // SAFETY: as above, after a launch.
        unsafe { self.host(offset, len).copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Fills a part of the device's own memory. No kernel may be using it.
    pub fn fill_own(&mut self, offset: usize, bytes: &[u8]) -> Result<(), String> {
        self.own.write(offset, bytes).map_err(|why| why.to_string())
    }

    /// Copies a part of the device's own memory. No kernel may be using it.
    pub fn read_own(&self, offset: usize, len: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; len];
        self.own.read(offset, &mut bytes).map_err(|why| why.to_string())?;
        Ok(bytes)
    }

    fn words(&self) -> Result<Vec<u64>, String> {
        let mut bytes = vec![0; self.results.len()];
        self.results.read(0, &mut bytes).map_err(|why| why.to_string())?;
        Ok(bytes.chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().unwrap_or_default())).collect())
    }
}

/// Two streams of a GPU, and the memory with their words.
pub struct Streams {
    streams: [CudaStream; 2],
    job: Job,
}

/// What ends any wait of a stream.
const END: u64 = 1 << 62;

impl TestDevice {
    /// Why streams of the device cannot wait for words; `None` if they can.
    pub fn no_stream_operations(&self) -> Option<NoStreamMemoryOperations> {
        self.attachment.cuda().and_then(|device| device.stream_memory_operations().err())
    }

    /// Two streams for the words of a job.
    pub fn streams(&self, job: Job) -> Result<Streams, String> {
        let device = self.attachment.cuda().ok_or("the CPU device has no streams")?;
        let stream = || device.create_stream(StreamPriority::Normal).map_err(|why| why.to_string());
        Ok(Streams { streams: [stream()?, stream()?], job })
    }
}

impl Streams {
    /// Enqueues waits for a word and writes of it, by offsets in the shared memory.
    pub fn enqueue(&self, stream: usize, operations: &[(Step, usize, u64)]) -> Result<(), String> {
        let operation = |&(step, offset, value): &(Step, usize, u64)| {
            let address = self.job.device(offset, 8) as u64;
            match step {
                Step::Wait => MemOp::WaitGeq { address, value },
                Step::Write => MemOp::Write { address, value },
            }
        };
        let operations: Vec<_> = operations.iter().map(operation).collect();
        // SAFETY: words of registered memory (tests use multiples of 8), whose release waits for
        // the streams, and which everybody accesses atomically.
        unsafe { self.streams[stream].batch(&operations) }.map_err(|why| why.to_string())
    }

    /// Returns whether both have done everything.
    pub fn are_idle(&self) -> Result<bool, String> {
        let [one, other] = &self.streams;
        let both = one.is_idle().and_then(|idle| Ok(idle && other.is_idle()?));
        both.map_err(|why| why.to_string())
    }

    /// A word, for the CPU.
    pub fn word(&self, offset: usize) -> Word {
        self.job.word(offset)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        // What still waits passes.
        (0..self.job.region.len()).step_by(8).for_each(|offset| self.job.word(offset).publish(END));
    }
}

/// An operation of a stream.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Waits until a word has reached the value.
    Wait,
    /// Writes a word.
    Write,
}

/// The number in a result word, or the error that the kernel left there.
pub fn outcome(words: &[u64], index: usize, who: &str) -> Result<u64, String> {
    let word = words.get(index).copied().unwrap_or_default();
    match failed(word) {
        None => Ok(word),
        Some(errno) => Err(format!("{who}: {} (errno {errno})", Error::from_errno(errno))),
    }
}

/// As [`outcome`], for what the CPU's side returned.
pub fn of_host<T>(result: Result<T, Error>) -> Result<T, String> {
    result.map_err(|error| format!("the CPU's side: {error} (errno {})", error.errno()))
}
