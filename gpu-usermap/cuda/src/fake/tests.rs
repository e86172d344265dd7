//! What the agent owes to its users, and what else can be said without a GPU.

mod exchange;
mod export;
mod growing;
mod sharing;
mod streams;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpunet_region::PinnedRegion;

use super::driver::{self, Fake};
use crate::{CoResidencyError, CopyError, Device, Function, Launch, LaunchError, LaunchSpec, param};

/// Far longer than the agent's longest sleep of 2 ms; only a failing test waits for it.
const SOON: Duration = Duration::from_secs(5);

fn function(device: &Device) -> Function {
    device.load_module("ptx").expect("the driver takes any text").function("kernel").expect("any name")
}

fn launch(device: &Device, function: &Function, blocks: u32) -> Launch {
    // SAFETY: no kernel exists.
    unsafe { device.launch(&[spec(function, blocks)]) }.expect("a launch")
}

fn spec(function: &Function, blocks: u32) -> LaunchSpec {
    // SAFETY: an integer has no padding.
    let params = vec![unsafe { param(1_u64) }];
    LaunchSpec {
        function: function.clone(),
        grid: (blocks, 1, 1),
        block: (64, 1, 1),
        shared_bytes: 0,
        params,
    }
}

fn soon(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + SOON;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn releases_wait_for_the_last_running_kernel() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let kernel = function(&device);
    let running = launch(&device, &kernel, 1);
    let buffer = device.alloc(64).expect("memory");
    let region = PinnedRegion::create("fake", 4096).expect("a region");
    let registration = device.register(region).expect("a registration");
    drop((buffer, registration, kernel));

    // Calls go on meanwhile, and each of them gives the agent an occasion to release.
    for _ in 0..10 {
        assert_eq!(running.is_finished(), Ok(false));
    }
    assert_eq!(fake.events(), Vec::<&str>::new());
    fake.end_kernels();
    assert_eq!(running.wait(), Ok(()));
    assert!(soon(|| fake.events().len() == 3));
    let mut events = fake.events();
    events.sort_unstable();
    assert_eq!(events, ["free", "unload", "unregister"]);
}

#[test]
fn without_a_kernel_releases_happen_at_once() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    drop(device.alloc(64).expect("memory"));
    assert!(soon(|| fake.events() == ["free"]));
}

#[test]
fn the_last_handle_waits_for_kernels_and_releases_children_before_the_context() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let running = launch(&device, &function(&device), 1);
    let buffer = device.alloc(64).expect("memory");
    drop((device, buffer));
    std::thread::scope(|scope| {
        let dropped = scope.spawn(move || drop(running));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!dropped.is_finished(), "the drop did not wait for the kernel");
        assert!(!fake.events().contains(&"release context"));
        fake.end_kernels();
    });
    let events = fake.events();
    assert_eq!(events.last(), Some(&"release context"), "{events:?}");
    assert_eq!(events.iter().filter(|&&event| event == "unload" || event == "free").count(), 3, "{events:?}");
}

#[test]
fn one_gpu_opened_twice_has_one_agent_and_reopens_after_its_end() {
    let fake = Fake::new();
    let cuda = fake.cuda();
    let (one, two) = (cuda.device(0).expect("a device"), cuda.device(0).expect("the same"));
    assert!(one.is(&two));
    drop((one, two));
    assert!(fake.events().contains(&"release context"));
    drop(cuda.device(0).expect("a new one"));
}

#[test]
fn releases_wait_for_announced_launches_of_others() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let (first, second) =
        (device.announce_launches().expect("an agent"), device.announce_launches().expect("an agent"));
    drop(device.alloc(64).expect("memory"));
    drop(first);
    // Each call gives the agent an occasion to release.
    drop(device.alloc(64).expect("memory"));
    assert_eq!(fake.events(), Vec::<&str>::new());
    drop(second);
    assert!(soon(|| fake.events() == ["free", "free"]));
}

#[test]
fn modules_and_kernels_of_others_are_not_unloaded() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let handle = std::ptr::without_provenance_mut(77);
    // SAFETY: this driver knows every handle.
    let module = unsafe { device.borrow_module(handle) };
    // SAFETY: as above.
    let kernel = unsafe { device.borrow_function(handle, "kernel") };
    let kernel = kernel.expect("any handle");
    assert_eq!(device.check_co_resident(&[spec(&kernel, 1)]), Ok(()));
    device.write_symbol(&module, "any", &[1]).expect("any name");
    // SAFETY: as above.
    let its_module = unsafe { device.borrow_module_of(handle) }.expect("any handle");
    drop((module, its_module, kernel));
    drop(device.alloc(64).expect("memory"));
    assert!(soon(|| fake.events() == ["free"]));
}

#[test]
fn one_context_has_one_agent() {
    let fake = Fake::new();
    let cuda = &fake.cuda();
    let context = std::ptr::without_provenance_mut(usize::MAX - 1);
    // SAFETY: this driver knows every context.
    let open = || unsafe { Device::from_raw_context(cuda, context) }.expect("a device");
    let (one, two) = (open(), open());
    assert!(one.is(&two));
    drop((one, two));
    assert!(!fake.events().contains(&"release context"));
    assert!(!cuda.device(0).expect("the primary").is(&open()));
}

#[test]
fn a_kernel_with_a_larger_stack_starts_beside_one_that_runs() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let module = device.load_module("ptx").expect("the driver takes any text");
    let running = launch(&device, &module.function("kernel").expect("any name"), 1);
    drop(launch(&device, &module.function("deep").expect("any name"), 1));
    assert_eq!(fake.events(), Vec::<&str>::new(), "the driver would have waited");
    assert_eq!(running.is_finished(), Ok(false));
    fake.end_kernels();
}

#[test]
fn a_kernel_for_whose_stack_there_is_no_room_is_refused_while_another_runs() {
    let fake = Fake::before_12_4();
    let device = fake.cuda().device(0).expect("a device");
    let module = device.load_module("ptx").expect("the driver takes any text");
    let running = launch(&device, &module.function("kernel").expect("any name"), 1);
    let deep = module.function("deep").expect("any name");
    // SAFETY: no kernel exists.
    let refused = unsafe { device.launch(&[spec(&deep, 1)]) }.expect_err("no room");
    assert!(
        matches!(&refused, LaunchError::LocalMemory { kernel, needed: 3000, set_aside: 1024, .. } if kernel == "deep"),
        "{refused}"
    );
    assert_eq!(fake.events(), Vec::<&str>::new(), "the driver would have waited");
    fake.end_kernels();
    assert_eq!(running.wait(), Ok(()));
    drop(launch(&device, &deep, 1));
    // Now there is room, also while it runs.
    drop(launch(&device, &deep, 1));
    assert_eq!(fake.events(), Vec::<&str>::new());
    fake.end_kernels();
}

#[test]
fn a_kernel_that_is_looked_up_before_has_room_for_its_stack() {
    let fake = Fake::before_12_4();
    let device = fake.cuda().device(0).expect("a device");
    let module = device.load_module("ptx").expect("the driver takes any text");
    let deep = module.function("deep").expect("any name");
    drop(launch(&device, &module.function("kernel").expect("any name"), 1));
    drop(launch(&device, &deep, 1));
    assert_eq!(fake.events(), Vec::<&str>::new(), "the driver would have waited");
    fake.end_kernels();
}

#[test]
fn a_fault_ends_the_launch_with_its_error_and_keeps_it() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let running = launch(&device, &function(&device), 1);
    fake.fault(700);
    let error = running.wait().expect_err("an illegal address");
    assert_eq!((error.call, error.code), ("cuStreamQuery", 700));
    assert_eq!(running.is_finished(), Err(error.clone()));
    assert_eq!(running.wait_timeout(Duration::ZERO), Err(error));
}

#[test]
fn waiting_is_bounded() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let running = launch(&device, &function(&device), 1);
    let started = Instant::now();
    assert_eq!(running.wait_timeout(Duration::from_millis(10)), Ok(false));
    assert!(started.elapsed() >= Duration::from_millis(10) && started.elapsed() < SOON);
    fake.end_kernels();
    assert_eq!(running.wait_timeout(SOON), Ok(true));
}

#[test]
fn running_launches_take_room_until_they_end() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let kernel = function(&device);
    let all = device.multiprocessors() * driver::BLOCKS_PER_SM;
    assert_eq!(device.check_co_resident(&[spec(&kernel, all)]), Ok(()));
    let running = launch(&device, &kernel, 3);
    match device.check_co_resident(&[spec(&kernel, all)]) {
        Err(CoResidencyError::NotCoResident(refused)) => assert_eq!(refused.sms_running, 2),
        other => panic!("{other:?}"),
    }
    fake.end_kernels();
    running.wait().expect("no fault");
    assert_eq!(device.check_co_resident(&[spec(&kernel, all)]), Ok(()));
}

#[test]
fn a_linker_is_told_how_many_threads_a_block_shall_have() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let texts: [(&str, &[u8]); 2] = [("one", b"ptx"), ("two", b"ptx")];
    let (plain, wide) =
        (device.link(&texts).expect("linked"), device.link_for(&texts, 1024).expect("linked"));
    assert_eq!(fake.events(), ["link for 1024 threads"]);
    drop((plain, wide));
}

#[test]
fn text_is_assembled_where_a_cubin_is_of_no_use() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let load = |cubin: &[u8], threads| {
        device.load_assembled(cubin.to_vec(), "ptx", &["kernel"], threads).expect("loaded")
    };
    let linked = || fake.events().len();
    let whole = crate::code::sample_cubin();
    let cubin = load(&whole, 256);
    assert_eq!(linked(), 0);
    let many_threads = load(&whole, 257);
    assert_eq!(linked(), 1, "kernels may have more registers than such blocks");
    let cut = load(&whole[..whole.len() - 1], 256);
    assert_eq!(linked(), 2);
    fake.refuse_code();
    let other_gpu = load(&whole, 256);
    assert_eq!(fake.events(), ["link for others"; 3]);
    drop((cubin, many_threads, cut, other_gpu));
}

#[test]
fn kernels_of_other_devices_are_refused() {
    let (fake, other) = (Fake::new(), Fake::new());
    let (device, elsewhere) = (fake.cuda().device(0).expect("one"), other.cuda().device(0).expect("another"));
    let kernel = function(&elsewhere);
    // SAFETY: refused, and no kernel exists.
    assert!(unsafe { device.launch(&[spec(&kernel, 1)]) }.is_err());
    let buffer = elsewhere.alloc(64).expect("memory");
    assert_eq!(device.write(&buffer, 0, &[1]), Err(CopyError::OtherDevice));
}

#[test]
fn handles_are_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let kernel = function(&device);
    shared(&device);
    shared(&kernel);
    shared(&launch(&device, &kernel, 1));
    shared(&Arc::new(device.alloc(1).expect("memory")));
    fake.end_kernels();
}
