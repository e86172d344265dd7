//! Finding the GPU, the test kernels, and waiting with a bound.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpunet_cuda::{Cuda, Device, Function, Launch, LaunchSpec, Module, Registration, param};
use gpunet_region::PinnedRegion;

/// The kernels of the tests, for every GPU since Volta.
pub const PTX: &str = include_str!("kernels.ptx");

/// How long the kernels that wait for the host do so before they give up: the bound on every
/// mistake here.
pub const KERNEL_LIMIT: Duration = Duration::from_secs(5);

/// Binds a device and a turn, or says that the test did not run and returns from it.
///
/// With `GPUNET_REQUIRE_GPU` set, a missing GPU is a failure: for machines that are there to run
/// these tests.
macro_rules! on_gpu {
    ($device:ident) => {
        let Some((_turn, $device)) = $crate::support::gpu() else { return };
    };
}
pub(crate) use on_gpu;

pub fn gpu() -> Option<(MutexGuard<'static, ()>, Device)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match Cuda::load() {
        Err(unavailable) => {
            not_run(&format!("an NVIDIA GPU of compute capability 7.0, no CUDA driver ({unavailable})"));
            None
        }
        Ok(cuda) => Some((turn, cuda.device(0).expect("the first GPU"))),
    }
}

/// Says that the current test, or a part of it, did not run for lack of `hardware`.
pub fn not_run(hardware: &str) {
    let thread = std::thread::current();
    let text = format!("NOT RUN: {}: needs {hardware}\n", thread.name().unwrap_or("a test"));
    assert!(std::env::var_os("GPUNET_REQUIRE_GPU").is_none(), "{text}");
    // Not `eprintln!`, whose output the test harness swallows when a test passes.
    std::io::stderr().write_all(text.as_bytes()).expect("stderr");
}

/// The kernel waits for word 0; what it saw comes back in word 8, another cache line.
pub struct Words {
    pub region: Arc<PinnedRegion>,
    pub registration: Registration,
}

impl Words {
    pub fn new(device: &Device) -> Self {
        let region = PinnedRegion::create("words", 4096).expect("a region");
        let registration = device.register(Arc::clone(&region)).expect("a registration");
        Self { region, registration }
    }

    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < 512);
        // SAFETY: in bounds and aligned; CPU and GPU access it with atomic loads and stores only.
        unsafe { AtomicU64::from_ptr(self.region.base().as_ptr().cast::<u64>().add(index)) }
    }

    pub fn stop(&self) {
        // Release: pairs with the kernel's ld.acquire.sys.
        self.word(0).store(1, Ordering::Release);
    }

    pub fn seen(&self) -> u64 {
        // Acquire: pairs with the kernel's st.release.sys.
        self.word(8).load(Ordering::Acquire)
    }
}

pub fn kernels(device: &Device) -> Module {
    device.load_module(PTX).expect("the test kernels")
}

pub fn spec(function: &Function, grid: u32, block: u32, params: Vec<Vec<u8>>) -> LaunchSpec {
    LaunchSpec {
        function: function.clone(),
        grid: (grid, 1, 1),
        block: (block, 1, 1),
        shared_bytes: 0,
        params,
    }
}

pub fn u64_param(value: u64) -> Vec<u8> {
    // SAFETY: an integer has no padding.
    unsafe { param(value) }
}

pub fn u32_param(value: u32) -> Vec<u8> {
    // SAFETY: an integer has no padding.
    unsafe { param(value) }
}

/// Launches `wait_for_host(word, limit, seen)`: it runs until the registration's first word is
/// not 0.
pub fn start_waiting(function: &Function, grid: u32, block: u32, words: &Registration) -> Launch {
    let limit = u64::try_from(KERNEL_LIMIT.as_nanos()).expect("5 s fit");
    let params = vec![u64_param(words.device_ptr()), u64_param(limit), u64_param(words.device_ptr() + 64)];
    // SAFETY: two words of the registered page and a number, as the kernel takes them; the release
    // of `words` waits for it.
    unsafe { function.device().launch(&[spec(function, grid, block, params)]) }.expect("a launch")
}

/// Runs `call` and fails if it took so long that it must have waited for the kernel.
pub fn promptly<R>(what: &str, call: impl FnOnce() -> R) -> R {
    let started = Instant::now();
    let result = call();
    let took = started.elapsed();
    println!("{what}: {took:?}");
    assert!(took < KERNEL_LIMIT / 2, "{what} took {took:?}: it waited for the running kernel");
    result
}

/// Returns a second GPU, or the first again, and says so: what a test does between two GPUs it then
/// does on one.
pub fn other_gpu(device: &Device) -> Device {
    let cuda = device.cuda();
    if cuda.device_count().expect("a count") > 1 {
        return cuda.device(1).expect("the second GPU");
    }
    let thread = std::thread::current();
    let text = format!("ON ONE GPU: {}: this machine has no second one\n", thread.name().unwrap_or("a test"));
    std::io::stderr().write_all(text.as_bytes()).expect("stderr");
    device.clone()
}

/// A kernel of one thread that writes a growing count to 4 KiB of memory until its words say stop,
/// and tells each count there.
pub struct Hammer {
    pub launch: Launch,
}

/// How many words of 8 bytes a [`Hammer`] writes.
pub const HAMMERED: u32 = 512;

impl Hammer {
    /// Starts it at `address`, where memory of a device handle of its own lies; it stops by itself
    /// after 20 s.
    pub fn start(device: &Device, address: u64, words: &Words) -> Self {
        let at = words.registration.device_ptr();
        let hammer = kernels(device).function("hammer").expect("it");
        let params = vec![
            u64_param(address),
            u32_param(HAMMERED),
            u64_param(at),
            u64_param(20_000_000_000),
            u64_param(at + 64),
        ];
        // SAFETY: 4 KiB of live memory, whose release waits for the kernel, two words of the
        // registered page, and numbers.
        let launch = unsafe { device.launch(&[spec(&hammer, 1, 1, params)]) }.expect("a launch");
        Self { launch }
    }

    /// Waits until it has written `more` times from now on.
    pub fn wait_for_beats(&self, words: &Words, more: u64) {
        let (goal, deadline) = (words.seen() + more, Instant::now() + KERNEL_LIMIT);
        while words.seen() < goal {
            assert!(!self.launch.is_finished().expect("no fault"), "it ended at beat {}", words.seen());
            assert!(Instant::now() < deadline, "it stands still at beat {}", words.seen());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops it, and returns how often it has written.
    pub fn stop(self, words: &Words) -> u64 {
        words.stop();
        assert_eq!(self.launch.wait_timeout(KERNEL_LIMIT), Ok(true));
        words.seen()
    }
}
