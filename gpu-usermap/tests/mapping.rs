//! CPU mappings of GPU memory, on a real GPU.
//!
//! A GPU is not enough for a mapping: it also takes gdrdrv, or a driver of CUDA 13.3. Without them
//! these tests say NOT RUN even where `GPUNET_REQUIRE_GPU` is set; `GPUNET_REQUIRE_MAPPING` makes
//! that a failure.

#[path = "../cuda/tests/cuda/support.rs"]
#[allow(dead_code, reason = "other suites use the rest")]
mod support;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{FlushScope, GpuBuffer};
use gpu_usermap::mapping::{BackendChoice, Mapping, map};

use support::{KERNEL_LIMIT, kernels, on_gpu, promptly, spec, u32_param, u64_param};

const MIB: usize = 1 << 20;

/// Maps a whole buffer by each way that works here. Says loudly which do not, and why.
fn every_mapping(buffer: &GpuBuffer) -> Vec<Mapping> {
    let mut mappings = Vec::new();
    for choice in [BackendChoice::Gdrdrv, BackendChoice::DmaBuf] {
        match map(buffer, 0..buffer.len(), choice) {
            Ok(mapping) => mappings.push(mapping),
            Err(refused) => {
                let thread = std::thread::current();
                let text =
                    format!("NOT RUN: {} by {choice:?}: {refused}\n", thread.name().unwrap_or("a test"));
                std::io::stderr().write_all(text.as_bytes()).expect("stderr");
            }
        }
    }
    assert!(
        !mappings.is_empty() || std::env::var_os("GPUNET_REQUIRE_MAPPING").is_none(),
        "no backend maps GPU memory here"
    );
    mappings
}

#[test]
fn what_is_written_through_a_mapping_is_in_gpu_memory_and_back() {
    on_gpu!(device);
    let buffer = device.alloc(2 * MIB).expect("memory");
    for mut mapping in every_mapping(&buffer) {
        println!("{mapping:?}, ordered: {}", mapping.is_ordered());
        let data: Vec<u8> = (0..100_003).map(|index| (index % 251) as u8 + 1).collect();
        mapping.write(4093, &data).expect("in bounds");
        let mut seen = vec![0; data.len() + 2];
        device.read(&buffer, 4092, &mut seen).expect("a copy");
        assert!(seen[1..=data.len()] == data[..], "what arrived is not what was written");
        assert_eq!((seen[0], seen[data.len() + 1]), (0, 0), "neighbours were written");

        device.write(&buffer, MIB, &data).expect("a copy");
        let mut seen = vec![0; data.len()];
        let started = Instant::now();
        mapping.read(MIB, &mut seen).expect("in bounds");
        println!("read of {} bytes: {:?}", seen.len(), started.elapsed());
        assert!(seen == data, "what was read is not what the GPU has");
        device.write(&buffer, 0, &vec![0; 2 * MIB]).expect("a copy");
    }
}

#[test]
fn a_part_of_a_small_buffer_is_mapped_at_its_offset() {
    on_gpu!(device);
    // Small allocations share a page: the mapped pages begin before the range.
    let _neighbour = device.alloc(1000).expect("memory");
    let buffer = device.alloc(1000).expect("memory");
    for choice in [BackendChoice::Gdrdrv, BackendChoice::DmaBuf] {
        match map(&buffer, 200..300, choice) {
            Ok(mut mapping) => {
                assert_eq!((mapping.len(), mapping.device_ptr()), (100, buffer.ptr() + 200));
                mapping.write(0, &[5; 100]).expect("in bounds");
                let mut seen = [0; 102];
                device.read(&buffer, 199, &mut seen).expect("a copy");
                assert_eq!((seen[0], seen[1], seen[100], seen[101]), (0, 5, 5, 0));
                device.write(&buffer, 0, &[0; 1000]).expect("a copy");
            }
            Err(refused) => println!("{choice:?}: {refused}"),
        }
    }
}

/// The kernel observes the word by `ld.acquire.sys` and must find all of the data.
#[test]
fn a_polling_kernel_finds_the_data_with_the_word() {
    const ROUNDS: u32 = 20_000;
    // Not whole cache lines: the rest of the last one leaves the CPU by the fence only.
    const WORDS: u32 = 130;
    on_gpu!(device);
    let follow = kernels(&device).function("follow").expect("the kernel");
    let buffer = device.alloc(2 * MIB).expect("memory");
    for mapping in every_mapping(&buffer) {
        device.write(&buffer, 0, &vec![0; 8192]).expect("a copy");
        let region = PinnedRegion::create("seen", 4096).expect("a region");
        let registration = device.register(Arc::clone(&region)).expect("a registration");
        // SAFETY: the page's first two words; CPU and GPU access them with atomic loads and stores
        // only.
        let word_at = |index| unsafe { AtomicU64::from_ptr(region.base().as_ptr().cast::<u64>().add(index)) };
        let (mut data, tail) = mapping.split_at(4096).expect("in bounds");
        let mut word = tail.into_word().expect("aligned");
        let limit = u64::try_from(KERNEL_LIMIT.as_nanos()).expect("5 s fit");
        let params = vec![
            u64_param(word.device_ptr()),
            u64_param(data.device_ptr()),
            u32_param(WORDS),
            u32_param(ROUNDS),
            u64_param(limit),
            u64_param(registration.device_ptr()),
        ];
        // SAFETY: words of live memory, which the mapping and the registration keep until the
        // launch has ended.
        let launch = unsafe { device.launch(&[spec(&follow, 1, 1, params)]) }.expect("a launch");
        let mut fastest = Duration::MAX;
        let mut done = 0;
        'rounds: for round in 1..=u64::from(ROUNDS) {
            let values: Vec<u8> = (0..WORDS).flat_map(|_| round.to_ne_bytes()).collect();
            let started = Instant::now();
            data.write(0, &values).expect("in bounds");
            word.publish(round);
            while word_at(0).load(Ordering::Acquire) < round {
                if started.elapsed() > KERNEL_LIMIT {
                    break 'rounds;
                }
                std::hint::spin_loop();
            }
            fastest = fastest.min(started.elapsed());
            done = round;
        }
        launch.wait().expect("no fault");
        println!(
            "{} by {}: 1040 bytes and their word to a kernel and the answer back, fastest of {done}: {fastest:?}",
            device.name(),
            data.kind()
        );
        assert_eq!(done, u64::from(ROUNDS), "the kernel gave up");
        let mismatches = word_at(1).load(Ordering::Relaxed);
        if data.is_ordered() {
            assert_eq!(mismatches, 0, "words that were not there when their round was published");
        } else {
            println!("the GPU promises no order; {mismatches} words were late");
        }
    }
}

#[test]
fn mapping_and_unmapping_return_while_a_kernel_waits() {
    on_gpu!(device);
    let wait = kernels(&device).function("wait_for_host").expect("it");
    let region = PinnedRegion::create("words", 4096).expect("a region");
    let words = device.register(Arc::clone(&region)).expect("a registration");
    let buffer = device.alloc(2 * MIB).expect("memory");
    let launch = support::start_waiting(&wait, 1, 32, &words);
    let mappings = promptly("map", || every_mapping(&buffer));
    promptly("unmap", || drop(mappings));
    promptly("sync_memops", || buffer.sync_memops()).expect("set");
    let flush = promptly("flush", || device.flush_gpudirect_rdma_writes(FlushScope::Owner));
    println!("flush under a kernel: {flush:?}");
    assert!(!launch.is_finished().expect("no fault"));
    // SAFETY: the page's first word; CPU and GPU access it with atomic loads and stores only.
    unsafe { AtomicU64::from_ptr(region.base().as_ptr().cast()) }.store(1, Ordering::Release);
    launch.wait().expect("no fault");
}
