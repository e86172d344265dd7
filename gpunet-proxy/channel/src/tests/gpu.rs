//! Memory of GPUs, on a driver without a GPU.

use crate::array::Dtype;
use crate::error::Reason;
use crate::local::pretend_another_process;
use crate::{Array, ArrayMut, Channel, ChannelListener, ChannelOptions, TransferOptions, Via};
use gpu_usermap::cuda::fake::Fake;
use gpu_usermap::cuda::{Device, GpuBuffer};
use std::thread;
use std::time::Duration;

fn options(streams: usize) -> ChannelOptions {
    ChannelOptions { streams, piece: 64 << 10, ..ChannelOptions::default() }
}

/// Both ends, of which the accepting one passes for another process.
fn pair(options: &ChannelOptions, apart: bool) -> (Channel, Channel) {
    let listener = ChannelListener::bind("127.0.0.1:0".parse().unwrap(), options).expect("a listener");
    let addr = listener.local_addr().expect("an address");
    thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            pretend_another_process(apart);
            listener.accept().expect("a channel")
        });
        let connected = Channel::connect(addr, options).expect("a channel");
        (connected, accepted.join().expect("no panic"))
    })
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}

fn filled(gpu: &Device, bytes: &[u8]) -> GpuBuffer {
    let buffer = gpu.alloc(bytes.len()).expect("memory");
    gpu.write(&buffer, 0, bytes).expect("written");
    buffer
}

fn content(gpu: &Device, buffer: &GpuBuffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len()];
    gpu.read(buffer, 0, &mut bytes).expect("read");
    bytes
}

fn on_gpu<'a>(gpu: &Device, buffer: &GpuBuffer) -> Array<'a> {
    // SAFETY: the buffer outlives every transfer here, and nobody writes it meanwhile.
    unsafe { Array::on_gpu(gpu, buffer.ptr(), Dtype::U8, &[buffer.len() as u64]) }.expect("an array")
}

fn into_gpu<'a>(gpu: &Device, buffer: &GpuBuffer) -> ArrayMut<'a> {
    // SAFETY: as above, and nobody reads it.
    unsafe { ArrayMut::on_gpu(gpu, buffer.ptr(), Dtype::U8, &[buffer.len() as u64]) }.expect("an array")
}

/// Sends one GPU's memory to the other's, and returns how it went.
fn move_once(near: &mut Channel, far: &mut Channel, array: &Array<'_>, to: &mut ArrayMut<'_>) -> Via {
    thread::scope(|scope| {
        let sent = scope.spawn(|| near.send(array).expect("sent"));
        let received = far.recv_into(to).expect("received");
        let sent = sent.join().expect("no panic");
        assert_eq!(sent, received);
        sent.via
    })
}

#[test]
fn memory_of_gpus_goes_over_connections_through_pinned_memory() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    for streams in [1, 3] {
        let (mut near, mut far) = pair(&options(streams), false);
        for len in [10, 65_536, 65_537, 1_000_003] {
            let bytes = pattern(len, streams as u8);
            let (from, to) = (filled(&gpu, &bytes), gpu.alloc(len).expect("memory"));
            let mut here = vec![0; len];
            // From GPU to GPU, from GPU to CPU, from CPU to GPU.
            let via = move_once(&mut near, &mut far, &on_gpu(&gpu, &from), &mut into_gpu(&gpu, &to));
            assert_eq!(content(&gpu, &to), bytes);
            move_once(&mut near, &mut far, &on_gpu(&gpu, &from), &mut ArrayMut::of(&mut here));
            assert_eq!(here, bytes);
            let again = pattern(len, 77);
            let mixed = move_once(&mut near, &mut far, &Array::of(&again), &mut into_gpu(&gpu, &to));
            assert_eq!(content(&gpu, &to), again);
            if len > 65_536 {
                let count = streams.min(len.div_ceil(65_536)) as u16;
                assert_eq!(via, Via::Connections { count, reason: Reason::SameProcess });
                assert_eq!(mixed, Via::Connections { count, reason: Reason::MixedMemory });
            } else {
                assert_eq!((via, mixed), (Via::Header, Via::Header));
            }
        }
    }
}

#[test]
fn checksums_and_mixed_arrays_go_through_pinned_memory_too() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let (mut near, mut far) = pair(&options(2), true);
    let (first, second) = (pattern(100_000, 1), pattern(150_000, 2));
    let from = filled(&gpu, &first);
    let to = gpu.alloc(second.len()).expect("memory");
    let mut here = vec![0; first.len()];
    let transfer = TransferOptions { checksum: true, ..TransferOptions::default() };
    thread::scope(|scope| {
        let sent = scope
            .spawn(|| near.send_all(&[on_gpu(&gpu, &from), Array::of(&second)], &transfer).expect("sent"));
        let arrays = vec![ArrayMut::of(&mut here), into_gpu(&gpu, &to)];
        far.next().expect("a transfer").expect("one").into_arrays(arrays, &transfer).expect("received");
        let via = sent.join().expect("no panic").via;
        assert_eq!(via, Via::Connections { count: 2, reason: Reason::ChecksumAsked });
    });
    assert_eq!((here, content(&gpu, &to)), (first, second));
}

#[test]
fn another_process_copies_once_and_opens_each_allocation_once() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let (mut near, far) = pair(&options(2), true);
    let (_, mut receiver) = far.split();
    let bytes = pattern(1 << 20, 9);
    let (from, to) = (filled(&gpu, &bytes), gpu.alloc(bytes.len()).expect("memory"));
    let opened = || fake.events().iter().filter(|&&event| event == "open ipc").count();
    for _ in 0..3 {
        gpu.write(&to, 0, &vec![0; to.len()]).expect("written");
        thread::scope(|scope| {
            let sent = scope.spawn(|| near.send(&on_gpu(&gpu, &from)).expect("sent"));
            assert_eq!(receiver.recv_into(&mut into_gpu(&gpu, &to)).expect("received").via, Via::Copy);
            assert_eq!(sent.join().expect("no panic").via, Via::Copy);
        });
        assert_eq!(content(&gpu, &to), bytes);
        assert_eq!((opened(), receiver.mapped_bytes()), (1, 1 << 20));
    }
    // Two ranges of two allocations, of which one is mapped already, in one transfer.
    let other = filled(&gpu, &pattern(200_000, 4));
    let target = gpu.alloc(200_000).expect("memory");
    thread::scope(|scope| {
        let arrays = [on_gpu(&gpu, &other), on_gpu(&gpu, &from)];
        let near = &mut near;
        let sent = scope.spawn(move || near.send_all(&arrays, &TransferOptions::default()).expect("sent"));
        let arrays = vec![into_gpu(&gpu, &target), into_gpu(&gpu, &to)];
        let incoming = receiver.next().expect("a transfer").expect("one");
        incoming.into_arrays(arrays, &TransferOptions::default()).expect("received");
        assert_eq!(sent.join().expect("no panic").via, Via::Copy);
    });
    assert_eq!((content(&gpu, &target), content(&gpu, &to)), (pattern(200_000, 4), bytes));
    assert_eq!(opened(), 2);
}

/// The driver gives memory that was freed to the next who asks: the same address, another
/// allocation.
#[test]
fn memory_that_was_freed_and_allocated_again_is_mapped_anew() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let (mut near, far) = pair(&options(1), true);
    let (_, mut receiver) = far.split();
    let to = gpu.alloc(1 << 20).expect("memory");
    let mut bases = std::collections::HashSet::new();
    for round in 0..8u8 {
        let bytes = pattern(1 << 20, round);
        let from = filled(&gpu, &bytes);
        let reused = !bases.insert(from.ptr());
        thread::scope(|scope| {
            let sent = scope.spawn(|| near.send(&on_gpu(&gpu, &from)).expect("sent"));
            receiver.recv_into(&mut into_gpu(&gpu, &to)).expect("received");
            assert_eq!(sent.join().expect("no panic").via, Via::Copy, "round {round}, reused: {reused}");
        });
        assert_eq!(content(&gpu, &to), bytes, "round {round}, reused: {reused}");
        drop(from);
        assert_eq!(gpu.is_busy(), Ok(false), "a call gives the agent an occasion to release");
    }
}

#[test]
fn mappings_go_when_they_are_idle_and_with_the_channel() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let settings = ChannelOptions { idle: Duration::from_millis(1), ..options(1) };
    let (mut near, far) = pair(&settings, true);
    let (_sender, mut receiver) = far.split();
    let (from, to) = (filled(&gpu, &pattern(1 << 20, 1)), gpu.alloc(1 << 20).expect("memory"));
    thread::scope(|scope| {
        let sent = scope.spawn(|| near.send(&on_gpu(&gpu, &from)).expect("sent"));
        receiver.recv_into(&mut into_gpu(&gpu, &to)).expect("received");
        sent.join().expect("no panic");
    });
    // A receiver that waits gives them back.
    while receiver.mapped_bytes() > 0 {
        let soon = std::time::Instant::now() + Duration::from_millis(5);
        receiver.next_until(Some(soon)).expect_err("nothing was sent");
    }
    while !fake.events().contains(&"close ipc") {
        gpu.is_busy().expect("the agent is there");
    }
}

#[test]
fn a_launch_that_runs_on_the_receivers_gpu_is_a_reason() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let (mut near, mut far) = pair(&options(1), true);
    let bytes = pattern(1 << 20, 3);
    let (from, to) = (filled(&gpu, &bytes), gpu.alloc(bytes.len()).expect("memory"));
    let running = gpu.announce_launches().expect("the agent is there");
    let via = move_once(&mut near, &mut far, &on_gpu(&gpu, &from), &mut into_gpu(&gpu, &to));
    assert_eq!(via, Via::Connections { count: 1, reason: Reason::LaunchRuns });
    assert_eq!(content(&gpu, &to), bytes);
    drop(running);
    let via = move_once(&mut near, &mut far, &on_gpu(&gpu, &from), &mut into_gpu(&gpu, &to));
    assert_eq!(via, Via::Copy);
}
