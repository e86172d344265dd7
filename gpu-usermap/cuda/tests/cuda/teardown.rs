//! What happens to shared memory, and to the kernels that use it, when the other end goes away.

use std::io::Read;
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;
use gpunet_cuda::{Device, GpuBuffer};

use crate::child::{Child, OWNERS, SHARED, receive_fd, send_fd};
use crate::support::{HAMMERED, Hammer, KERNEL_LIMIT, Words, kernels, on_gpu, other_gpu};

/// The GPUs that the other process may use: both, or the only one.
fn ordinals(device: &Device) -> Vec<u32> {
    let mut ordinals = vec![other_gpu(device).ordinal(), device.ordinal()];
    ordinals.dedup();
    ordinals
}

fn word(buffer: &GpuBuffer, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    buffer.device().read(buffer, offset as usize, &mut bytes).expect("a read");
    u64::from_ne_bytes(bytes)
}

/// Checks that memory, copies and kernels of the device still work.
fn check_usable(device: &Device) {
    let shared = device.alloc_shareable(1).expect("memory");
    let again = device.import(shared.export().expect("a descriptor"), shared.len()).expect("a mapping");
    let words = Words::new(device);
    let hammer = Hammer::start(device, again.ptr(), &words);
    hammer.wait_for_beats(&words, 10);
    let beats = hammer.stop(&words);
    assert_eq!(word(shared.buffer(), 8 * u64::from(HAMMERED - 1)), beats);
}

#[test]
fn an_importers_kernel_writes_on_after_the_exporter_was_killed() {
    on_gpu!(device);
    for ordinal in ordinals(&device) {
        let mut child = Child::start("export", ordinal);
        let fd = receive_fd(&child.socket);
        let started = Instant::now();
        let imported = device.import(fd, SHARED).expect("a mapping");
        println!("import from a process on GPU {ordinal} whose kernel runs: {:?}", started.elapsed());
        let words = Words::new(&device);
        let hammer = Hammer::start(&device, imported.ptr(), &words);
        hammer.wait_for_beats(&words, 100);

        let started = Instant::now();
        child.kill();
        println!("the exporter on GPU {ordinal} was gone after {:?}", started.elapsed());
        let at = words.seen();
        std::thread::sleep(Duration::from_millis(500));
        println!("beats in the half second after it: {}", words.seen() - at);
        hammer.wait_for_beats(&words, 100);
        let beats = hammer.stop(&words);
        for index in [0, 1, HAMMERED - 1] {
            assert_eq!(word(imported.buffer(), 8 * u64::from(index)), beats);
        }
        assert_ne!(word(imported.buffer(), OWNERS), 0, "what the exporter wrote is gone");
        check_usable(&device);
    }
}

#[test]
fn an_exporter_keeps_its_memory_after_an_importer_was_killed() {
    on_gpu!(device);
    for ordinal in ordinals(&device) {
        let shared = device.alloc_shareable(SHARED).expect("memory");
        let pattern: Vec<u8> = (0..SHARED).map(|index| (index % 251) as u8).collect();
        device.write(shared.buffer(), 0, &pattern).expect("a write");
        let words = Words::new(&device);
        let own = Hammer::start(&device, shared.ptr() + OWNERS, &words);
        let mut child = Child::start("import", ordinal);
        send_fd(&child.socket, &shared.export().expect("a descriptor"));
        child.socket.read_exact(&mut [0]).expect("the importer's kernel runs");
        let first = word(shared.buffer(), 0);
        let deadline = Instant::now() + KERNEL_LIMIT;
        while word(shared.buffer(), 0) == first {
            assert!(Instant::now() < deadline, "the importer's kernel does not write");
        }

        let started = Instant::now();
        child.kill();
        println!("the importer on GPU {ordinal} was gone after {:?}", started.elapsed());
        own.wait_for_beats(&words, 100);
        let last = word(shared.buffer(), 0);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(word(shared.buffer(), 0), last, "a dead process's kernel still writes");
        let beats = own.stop(&words);
        assert_eq!(word(shared.buffer(), OWNERS), beats);
        let mut bytes = vec![0; SHARED];
        device.read(shared.buffer(), 0, &mut bytes).expect("a read");
        let (written, owners) = (8 * HAMMERED as usize, OWNERS as usize);
        assert!(bytes[written..owners] == pattern[written..owners], "memory between the two kernels changed");
        assert!(
            bytes[owners + written..] == pattern[owners + written..],
            "memory behind the kernels changed"
        );
        check_usable(&device);
    }
}

#[test]
fn dropped_memory_stays_mapped_until_the_kernel_that_uses_it_ends() {
    on_gpu!(device);
    let owner = other_gpu(&device);
    let context = CudaContext::new(owner.ordinal() as usize).expect("cudarc's context");
    let free = || context.mem_get_info().expect("the sizes").0;
    // To load them sets memory aside for their stacks, which stays with the context.
    drop(kernels(&device));
    let (len, before) = (256 << 20, free());
    let shared = owner.alloc_shareable(len).expect("memory");
    let imported = device.import(shared.export().expect("a descriptor"), len).expect("a mapping");
    let words = Words::new(&device);
    let hammer = Hammer::start(&device, imported.ptr(), &words);
    hammer.wait_for_beats(&words, 10);
    let started = Instant::now();
    drop((shared, imported));
    println!("drop of both ends under a kernel: {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_millis(100), "a drop waits for nothing");
    std::thread::sleep(Duration::from_millis(300));
    hammer.wait_for_beats(&words, 100);
    assert!(free() + len / 2 < before, "the memory was freed under the kernel");
    hammer.stop(&words);
    let deadline = Instant::now() + KERNEL_LIMIT;
    while free() + len / 2 < before {
        assert!(Instant::now() < deadline, "{} of {before} bytes are free after the kernel's end", free());
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("it was given back {:?} after the drop", started.elapsed());
    check_usable(&device);
}
