//! Finding the GPU, the test kernels, and waiting with a bound.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpu_usermap::cuda::{Cuda, Device, Function, Launch, LaunchSpec, Module, Registration, param};

/// The kernels of the tests, for every GPU since Volta.
pub const PTX: &str = include_str!("kernels.ptx");

/// How long the kernels that wait for the host do so before they give up: the bound on every mistake here.
pub const KERNEL_LIMIT: Duration = Duration::from_secs(5);

/// Binds a device and a turn, or says that the test did not run and returns from it.
///
/// With `GPUNET_REQUIRE_GPU` set, a missing GPU is a failure: for machines that are there to run these tests.
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

/// Launches `wait_for_host(word, limit, seen)`: it runs until the registration's first word is not 0.
pub fn start_waiting(function: &Function, grid: u32, block: u32, words: &Registration) -> Launch {
    let limit = u64::try_from(KERNEL_LIMIT.as_nanos()).expect("5 s fit");
    let params = vec![u64_param(words.device_ptr()), u64_param(limit), u64_param(words.device_ptr() + 64)];
    // SAFETY: two words of the registered page and a number, as the kernel takes them; the release of `words` waits for it.
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
