//! Which calls return while a kernel runs that waits for the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpunet_region::PinnedRegion;

use crate::support::{
    KERNEL_LIMIT, Words, kernels, not_run, on_gpu, promptly, spec, start_waiting, u32_param, u64_param,
};

#[test]
fn control_calls_return_while_a_kernel_fills_the_gpu_and_waits() {
    on_gpu!(device);
    let module = kernels(&device);
    let (wait, fill) = (module.function("wait_for_host").expect("it"), module.function("fill").expect("it"));
    let words = Words::new(&device);
    let old = device.alloc(1 << 20).expect("memory");
    let old_registration = device.register(Arc::clone(&words.region)).expect("a registration");
    // A divisor of every GPU's threads per multiprocessor, so that no thread is left for another
    // kernel.
    let threads = 512;
    let blocks = device.multiprocessors() * wait.occupancy(threads, 0).expect("occupancy");

    let launch = start_waiting(&wait, blocks, threads, &words.registration);
    let started = Instant::now();
    assert!(!promptly("is_finished", || launch.is_finished()).expect("no fault"));

    promptly("write 64 B", || device.write(&old, 0, &[1; 64])).expect("a write");
    promptly("write 1 MiB", || device.write(&old, 0, &vec![2; 1 << 20])).expect("a write");
    let mut bytes = vec![0; 1 << 20];
    promptly("read 1 MiB", || device.read(&old, 0, &mut bytes)).expect("a read");
    assert!(bytes.iter().all(|&byte| byte == 2));
    let small = promptly("alloc 4 KiB", || device.alloc(4096)).expect("memory");
    let large = promptly("alloc 256 MiB", || device.alloc(256 << 20)).expect("memory");
    let region =
        promptly("create a region of 16 MiB", || PinnedRegion::create("late", 16 << 20)).expect("a region");
    let registration = promptly("register 16 MiB", || device.register(region)).expect("a registration");
    if let Err(error) = promptly("export a dma-buf", || large.export_dmabuf()) {
        not_run(&format!("a GPU with dma-buf export ({error})"));
    }
    promptly("global", || module.global("settings")).expect("the global");
    promptly("write_symbol", || device.write_symbol(&module, "settings", &[3; 16])).expect("a write");

    // Dropped now, freed when the kernel has ended.
    promptly("drop of buffers and registrations", || drop((old, old_registration, small, registration)));
    let params = vec![u64_param(large.ptr()), u32_param(5)];
    // SAFETY: one block of 32 threads writes 128 bytes of 256 MiB.
    let second =
        promptly("launch", || unsafe { device.launch(&[spec(&fill, 1, 32, params)]) }).expect("a launch");

    assert!(
        !launch.is_finished().expect("no fault"),
        "the kernel gave up: the calls took {:?}",
        started.elapsed()
    );
    assert!(!second.is_finished().expect("no fault"), "the GPU was not full");
    words.stop();
    assert_eq!(launch.wait_timeout(KERNEL_LIMIT), Ok(true));
    assert_eq!(words.seen(), 1, "the kernel ended by its own deadline");
    assert_eq!(second.wait_timeout(KERNEL_LIMIT), Ok(true));
    let mut last = [0; 4];
    device.read(&large, 124, &mut last).expect("a read");
    assert_eq!(u32::from_ne_bytes(last), 5 + 31);
}

#[test]
fn loading_code_beside_a_small_waiting_kernel_is_measured() {
    on_gpu!(device);
    let wait = kernels(&device).function("wait_for_host").expect("it");
    let words = Words::new(&device);
    let launch = start_waiting(&wait, 1, 32, &words.registration);
    // No promise, a fact for the table in `cuda`: the kernel's own deadline ends it if the driver
    // waits.
    let started = Instant::now();
    let module = kernels(&device);
    println!("load_module under a kernel: {:?}", started.elapsed());
    let started = Instant::now();
    let function = module.function("fill").expect("it");
    println!("function under a kernel: {:?} ({:?})", started.elapsed(), device.cuda().lazy_loading());
    drop((function, module));
    println!("the kernel still waits: {:?}", launch.is_finished().map(|done| !done));
    words.stop();
    launch.wait().expect("no fault");
}

#[test]
fn a_kernel_with_a_larger_stack_runs_beside_one_that_waits() {
    on_gpu!(device);
    let module = kernels(&device);
    let wait = module.function("wait_for_host").expect("it");
    let (words, out) = (Words::new(&device), device.alloc(4).expect("memory"));
    let launch = start_waiting(&wait, 1, 32, &words.registration);
    let deep = promptly("function", || module.function("deep")).expect("it");
    assert!(deep.attributes().local_bytes >= 3000, "{:?}", deep.attributes());
    let params = vec![u64_param(out.ptr()), u32_param(7)];
    // SAFETY: one thread writes 4 bytes of 4.
    let second =
        promptly("launch", || unsafe { device.launch(&[spec(&deep, 1, 1, params)]) }).expect("a launch");
    assert_eq!(second.wait_timeout(KERNEL_LIMIT / 2), Ok(true), "it waits for the first");
    assert_eq!(launch.is_finished(), Ok(false));
    words.stop();
    assert_eq!(launch.wait_timeout(KERNEL_LIMIT), Ok(true));
    let mut bytes = [0; 4];
    device.read(&out, 0, &mut bytes).expect("a read");
    assert_eq!(u32::from_ne_bytes(bytes), 7);
}

#[test]
fn two_kernels_of_one_launch_run_at_the_same_time() {
    on_gpu!(device);
    let wait = kernels(&device).function("wait_for_host").expect("it");
    let words = Words::new(&device);
    let limit = u64::try_from(KERNEL_LIMIT.as_nanos()).expect("5 s fit");
    // The first waits for word 8, which the second writes once the host has set word 0.
    let at = |index: u64| u64_param(words.registration.device_ptr() + 8 * index);
    let first = spec(&wait, 1, 32, vec![at(8), u64_param(limit), at(16)]);
    let second = spec(&wait, 1, 32, vec![at(0), u64_param(limit), at(8)]);
    device.check_co_resident(&[first.clone(), second.clone()]).expect("two small kernels fit");
    // SAFETY: words of one registered page and a number.
    let launch = unsafe { device.launch(&[first, second]) }.expect("a launch");
    assert_eq!(launch.wait_timeout(Duration::from_millis(50)), Ok(false));
    words.stop();
    assert_eq!(launch.wait_timeout(KERNEL_LIMIT), Ok(true));
    assert_eq!(words.word(16).load(Ordering::Acquire), 1, "the second did not release the first");
}

#[test]
fn the_last_handle_waits_for_the_kernel_and_gives_everything_back() {
    on_gpu!(device);
    let words = Words::new(&device);
    let wait = kernels(&device).function("wait_for_host").expect("it");
    drop(start_waiting(&wait, 1, 32, &words.registration));
    let region = Arc::clone(&words.region);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            // SAFETY: as in `Words::word`.
            unsafe { AtomicU64::from_ptr(region.base().as_ptr().cast()) }.store(1, Ordering::Release);
        });
        let started = Instant::now();
        drop((words, wait, device));
        let took = started.elapsed();
        println!("drop of the last handle: {took:?}");
        assert!(took >= Duration::from_millis(150) && took < KERNEL_LIMIT / 2, "{took:?}");
    });
}
