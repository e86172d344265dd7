//! Memory of GPUs, on a driver without a GPU.

use crate::dtype::Dtype;
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
                assert_eq!(mixed, Via::Copy, "the receiver reads this process's memory");
            } else {
                assert_eq!((via, mixed), (Via::Header, Via::Header));
            }
        }
    }
}

/// From the CPU to a GPU the receiver reads the sender's memory; from a GPU to the CPU it maps the
/// sender's, for which it needs a GPU.
#[test]
fn between_cpu_and_gpu_the_receiver_copies_once() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    for piece in [4096, 64 << 10] {
        let settings = ChannelOptions { piece, ..options(3) };
        let (mut near, mut far) = pair(&settings, true);
        let (first, second) = (pattern(1_000_003, 1), pattern(300_001, 2));
        let (from, to) = (filled(&gpu, &first), gpu.alloc(second.len()).expect("memory"));
        let mut here = vec![0; first.len()];
        let via = move_once(&mut near, &mut far, &on_gpu(&gpu, &from), &mut ArrayMut::of(&mut here));
        assert_eq!(via, Via::Connections { count: 3, reason: Reason::MixedMemory });
        assert!(here == first);
        let via = move_once(&mut near, &mut far, &Array::of(&second), &mut into_gpu(&gpu, &to));
        assert_eq!((via, content(&gpu, &to) == second), (Via::Copy, true));
        drop((near, far));

        let settings = ChannelOptions { device: Some(gpu.clone()), ..settings };
        let (mut near, mut far) = pair(&settings, true);
        here.fill(0);
        let via = move_once(&mut near, &mut far, &on_gpu(&gpu, &from), &mut ArrayMut::of(&mut here));
        assert_eq!((via, here == first), (Via::Copy, true));
        // Memory that a copy engine reaches is written by it.
        let pinned = gpu
            .register(gpu_usermap::PinnedRegion::create("gpunet-channel", 1 << 20).expect("memory"))
            .expect("registered");
        // SAFETY: the region lives as long as `pinned`, and nobody else uses it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(pinned.region().base().as_ptr(), first.len()) };
        let via = move_once(&mut near, &mut far, &on_gpu(&gpu, &from), &mut ArrayMut::of(&mut *bytes));
        assert_eq!((via, bytes == &first[..]), (Via::Copy, true));
        // All four in one transfer, and an empty one.
        let back = gpu.alloc(first.len()).expect("memory");
        let mut there = vec![0; second.len()];
        thread::scope(|scope| {
            let none: &[u8] = &[];
            let arrays = [
                on_gpu(&gpu, &from),
                Array::of(&second),
                Array::of(none),
                on_gpu(&gpu, &from),
                Array::of(&second),
            ];
            let near = &mut near;
            let sent =
                scope.spawn(move || near.send_all(&arrays, &TransferOptions::default()).expect("sent"));
            here.fill(0);
            let arrays = vec![
                ArrayMut::of(&mut here),
                into_gpu(&gpu, &to),
                ArrayMut::of::<u8>(&mut []),
                into_gpu(&gpu, &back),
                ArrayMut::of(&mut there),
            ];
            let incoming = far.next().expect("a transfer").expect("one");
            incoming.into_arrays(arrays, &TransferOptions::default()).expect("received");
            assert_eq!(sent.join().expect("no panic").via, Via::Copy);
        });
        assert!(here == first && there == second);
        assert!(content(&gpu, &back) == first && content(&gpu, &to) == second);
    }
}

/// Transfers between GPUs are copied together; others come between, and some are refused.
#[test]
fn several_transfers_are_copied_at_once_and_end_in_their_order() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    for (apart, launch) in [(true, false), (true, true), (false, false)] {
        let (mut near, far) = pair(&options(2), apart);
        let (_sender, mut receiver) = far.split();
        let lens = [100_000, 70_000, 10, 200_000, 65_537, 1 << 20, 300, 90_000, 80_000, 0];
        // With a launch each transfer waits for it a while.
        let from: Vec<(Vec<u8>, Option<GpuBuffer>)> = (0..if launch { 10u8 } else { 30 })
            .map(|seed| {
                let bytes = pattern(lens[usize::from(seed) % lens.len()], seed);
                let buffer = (seed % 5 != 4 && !bytes.is_empty()).then(|| filled(&gpu, &bytes));
                (bytes, buffer)
            })
            .collect();
        let to: Vec<GpuBuffer> =
            from.iter().map(|(bytes, _)| gpu.alloc(bytes.len().max(1)).expect("memory")).collect();
        let running = launch.then(|| gpu.announce_launches().expect("the agent is there"));
        let is_refused = |at: usize| at % 7 == 5;
        let (sent, received) = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let mut pipeline = near.pipeline(4);
                for (bytes, buffer) in &from {
                    let array =
                        buffer.as_ref().map_or_else(|| Array::of(bytes), |buffer| on_gpu(&gpu, buffer));
                    pipeline.send(&[array], &TransferOptions::default()).expect("begun");
                }
                std::iter::from_fn(|| pipeline.next()).collect::<Vec<_>>()
            });
            let mut pipeline = receiver.pipeline(3);
            let mut refused = 0;
            for (at, buffer) in to.iter().enumerate() {
                let choose = |about: &[crate::Description]| {
                    let len = about[0].bytes();
                    // SAFETY: within the buffer, which outlives the pipeline.
                    let array = unsafe { ArrayMut::on_gpu(&gpu, buffer.ptr(), Dtype::U8, &[len]) };
                    if is_refused(at) { Vec::new() } else { vec![array.expect("an array")] }
                };
                match pipeline.recv_with(choose, &TransferOptions::default()) {
                    Ok(more) => assert!(more && !is_refused(at)),
                    Err(error) => {
                        assert!(is_refused(at) && error.errno() == libc::EMSGSIZE, "{at}: {error}");
                        refused += 1;
                    }
                }
            }
            assert_eq!(refused, (0..to.len()).filter(|&at| is_refused(at)).count());
            let received = pipeline.finish().expect("received");
            (sending.join().expect("no panic"), received)
        });
        drop(running);
        let whole: Vec<_> = sent.iter().filter_map(|result| result.as_ref().ok().copied()).collect();
        assert_eq!((sent.len(), whole), (from.len(), received));
        for (at, ((bytes, buffer), to)) in from.iter().zip(&to).enumerate() {
            match &sent[at] {
                Err(error) => assert!(is_refused(at) && error.errno() == libc::EMSGSIZE, "{at}: {error}"),
                Ok(outcome) => {
                    assert!(content(&gpu, to)[..bytes.len()] == bytes[..], "{at}, {}", outcome.via);
                    // Memory of a GPU is copied however little it is; so is the CPU's, if it is
                    // more than a header takes with it and nothing before could not be copied.
                    match (buffer, outcome.via) {
                        (Some(_), Via::Copy) => assert!(apart && !launch, "{at}"),
                        (Some(_), _) => assert!(!apart || launch, "{at}, {}", outcome.via),
                        (None, Via::Copy) => assert!(bytes.len() > 65_536, "{at}"),
                        (None, via) => assert!(via == Via::Header, "{at}, {via}"),
                    }
                }
            }
        }
        while gpu.is_busy().expect("the agent is there") {
            thread::yield_now();
        }
    }
}

#[test]
fn a_sender_that_gives_up_ends_what_is_copied_at_once() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let (near, far) = pair(&options(1), true);
    let (_sender, mut receiver) = far.split();
    let from = filled(&gpu, &pattern(1 << 20, 1));
    let to: Vec<GpuBuffer> = (0..3).map(|_| gpu.alloc(1 << 20).expect("memory")).collect();
    let mut pipeline = receiver.pipeline(3);
    thread::scope(|scope| {
        let mut near = near;
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (told, may_end) = std::sync::mpsc::channel();
        let sending = scope.spawn(move || {
            let soon = std::time::Instant::now() + Duration::from_millis(500);
            let transfer = TransferOptions { deadline: Some(soon), ..TransferOptions::default() };
            let mut pipeline = near.pipeline(3);
            for _ in 0..3 {
                pipeline.send(&[on_gpu(&gpu, &from)], &transfer).expect("begun");
            }
            begun.send(()).expect("it is waited for");
            // Nobody answers: it gives up.
            let error = pipeline.next().expect("one").expect_err("no answer");
            assert_eq!(error.errno(), libc::ETIMEDOUT, "{error}");
            told.send(()).expect("it is waited for");
            drop(pipeline);
        });
        // All headers are there, so that no wait for one ends those before.
        has_begun.recv().expect("it sends");
        for to in &to {
            let arrays = vec![into_gpu(to.device(), to)];
            if pipeline.recv_into(arrays, &TransferOptions::default()).is_err() {
                break;
            }
        }
        may_end.recv().expect("it gives up");
        while let Some(result) = pipeline.next() {
            result.expect_err("it is not known to be whole");
        }
        sending.join().expect("no panic");
    });
}

#[test]
fn arrays_are_received_into_memory_of_a_gpu_that_is_allocated_for_them() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let settings = ChannelOptions { most: 2 << 20, ..options(2) };
    let (mut near, mut far) = pair(&settings, true);
    let bytes = pattern(1 << 20, 5);
    let from = filled(&gpu, &bytes);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let arrays = [
                on_gpu(&gpu, &from).named("weights"),
                Array::of(&bytes).named("again"),
                Array::of::<f32>(&[]).named("none"),
            ];
            let outcome = near.send_all(&arrays, &TransferOptions::default()).expect("sent");
            assert_eq!(outcome.via, Via::Copy);
            near.send(&Array::of(&vec![0u8; 3 << 20])).expect_err("more than is allowed")
        });
        let arrays = far.recv_on(&gpu).expect("received").expect("a transfer");
        let names: Vec<&str> = arrays.iter().map(|array| array.name.as_str()).collect();
        assert_eq!(names, ["weights", "again", "none"]);
        for array in &arrays[..2] {
            assert!(content(&gpu, array.buffer.as_ref().expect("memory")) == bytes, "{}", array.name);
        }
        assert!(arrays[2].buffer.is_none() && arrays[2].dtype == Dtype::F32 && arrays[2].shape == [0]);
        far.recv_on(&gpu).expect_err("more than is allowed");
        assert_eq!(sending.join().expect("no panic").errno(), libc::EFBIG);
    });
    drop(near);
    assert!(far.recv_on(&gpu).expect("the end").is_none());
}

#[test]
fn a_full_gpu_refuses_a_transfer_and_the_channel_goes_on() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let (mut near, mut far) = pair(&options(2), true);
    let bytes = pattern(1 << 20, 6);
    let from = filled(&gpu, &bytes);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let error = near.send(&on_gpu(&gpu, &from)).expect_err("there is no memory");
            assert!(error.errno() == libc::ENOMEM && error.to_string().contains("no memory"), "{error}");
            near.send(&on_gpu(&gpu, &from)).expect("sent")
        });
        let incoming = far.next().expect("a header").expect("one");
        fake.refuse(1);
        let error = incoming.receive_on(&gpu, &TransferOptions::default()).expect_err("there is no memory");
        assert!(error.to_string().contains("no memory"), "{error}");
        let arrays = far.recv_on(&gpu).expect("received").expect("a transfer");
        assert!(content(&gpu, arrays[0].buffer.as_ref().expect("memory")) == bytes);
        sending.join().expect("no panic");
    });
}

/// Only a copy within one GPU waits for kernels.
#[test]
fn a_copy_from_another_gpu_passes_a_launch() {
    let fake = Fake::new();
    fake.locate(1);
    let gpu = fake.cuda().device(0).expect("a device");
    let bytes = pattern(1 << 20, 3);
    let from = filled(&gpu, &bytes);
    fake.locate(0);
    let to = gpu.alloc(bytes.len()).expect("memory");
    let (mut near, mut far) = pair(&options(1), true);
    let running = gpu.announce_launches().expect("the agent is there");
    let via = move_once(&mut near, &mut far, &on_gpu(&gpu, &from), &mut into_gpu(&gpu, &to));
    assert_eq!((via, content(&gpu, &to) == bytes), (Via::Copy, true));
    drop(running);
}

/// What is on the stream writes the array that is sent, and reads the memory that is received into.
#[test]
fn a_transfer_follows_what_is_on_a_stream_at_either_end() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let words =
        gpu.register(gpu_usermap::PinnedRegion::create("words", 4096).expect("memory")).expect("registered");
    // SAFETY: the region's first word, which all access atomically.
    let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(words.region().base().as_ptr().cast()) };
    for (apart, sender_waits, len) in [
        (true, true, 1 << 20),
        (false, true, 1 << 20),
        (false, true, 1000),
        (true, false, 1 << 20),
        (false, false, 1000),
    ] {
        let (mut near, mut far) = pair(&options(2), apart);
        let (old, new) = (pattern(len, 1), pattern(len, 2));
        let (from, source) = (filled(&gpu, &old), filled(&gpu, &new));
        let (to, copy) = (filled(&gpu, &old), gpu.alloc(len).expect("memory"));
        let stream = gpu.create_stream(gpu_usermap::cuda::StreamPriority::Normal).expect("a stream");
        word.store(0, std::sync::atomic::Ordering::SeqCst);
        // SAFETY: the word and the buffers outlive the stream's work.
        unsafe { stream.wait_value_geq(words.device_ptr(), 1) }.expect("enqueued");
        // SAFETY: as above.
        unsafe {
            match sender_waits {
                true => stream.copy(from.ptr(), source.ptr(), len),
                false => stream.copy(copy.ptr(), to.ptr(), len),
            }
        }
        .expect("enqueued");
        let with = TransferOptions { after: Some(&stream), ..TransferOptions::default() };
        let without = TransferOptions::default();
        thread::scope(|scope| {
            let (near, far) = (&mut near, &mut far);
            let (sending, receiving) = if sender_waits { (&with, &without) } else { (&without, &with) };
            let sent = scope.spawn(|| near.send_all(&[on_gpu(&gpu, &from)], sending).expect("sent"));
            let received = scope.spawn(|| {
                let incoming = far.next().expect("a transfer").expect("one");
                incoming.into_arrays(vec![into_gpu(&gpu, &to)], receiving).expect("received")
            });
            // Nothing can have ended before; what would overtake the stream has time to.
            thread::sleep(Duration::from_millis(20));
            assert!(!sent.is_finished() && !received.is_finished());
            word.store(1, std::sync::atomic::Ordering::SeqCst);
            sent.join().expect("no panic");
            received.join().expect("no panic");
        });
        stream.synchronize().expect("idle");
        let expected = if sender_waits { &new } else { &old };
        assert!(content(&gpu, &to) == *expected, "{apart} {sender_waits} {len}");
        assert!(sender_waits || content(&gpu, &copy) == old, "it was read before it was overwritten");
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
    let mut bases = std::collections::HashSet::new();
    for round in 0..8u8 {
        // A tensor that is resized is another one, too.
        let bytes = pattern(if round % 3 == 2 { 300_000 } else { 1 << 20 }, round);
        let (from, to) = (filled(&gpu, &bytes), gpu.alloc(bytes.len()).expect("memory"));
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

/// The sender's process ends while the copy engine still has to read its memory.
#[test]
fn a_sender_that_dies_under_a_copy_is_never_seen_as_whole_and_leaves_nothing() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let (near, mut far) = pair(&options(1), true);
    let (from, to) = (filled(&gpu, &pattern(1 << 20, 1)), gpu.alloc(1 << 20).expect("memory"));
    let words =
        gpu.register(gpu_usermap::PinnedRegion::create("words", 4096).expect("memory")).expect("registered");
    let stream = gpu.create_stream(gpu_usermap::cuda::StreamPriority::Normal).expect("a stream");
    // SAFETY: a word of the region, which outlives the wait.
    unsafe { stream.wait_value_geq(words.device_ptr(), 1) }.expect("enqueued");
    thread::scope(|scope| {
        let ender = near.ender();
        let sending = scope.spawn(|| {
            let mut near = near;
            near.send(&on_gpu(&gpu, &from))
        });
        let (fake, gpu, stream, to) = (&fake, &gpu, &stream, &to);
        let receiving = scope.spawn(move || {
            let transfer = TransferOptions { after: Some(stream), ..TransferOptions::default() };
            let incoming = far.next().expect("a transfer").expect("one");
            incoming.into_arrays(vec![into_gpu(gpu, to)], &transfer)
        });
        while !fake.events().contains(&"open ipc") {
            thread::yield_now();
        }
        // What the kernel does with the connections of a process that is killed.
        ender.end("killed");
        sending.join().expect("no panic").expect_err("it has ended");
        // SAFETY: the region's first word, which all access atomically.
        let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(words.region().base().as_ptr().cast()) };
        word.store(1, std::sync::atomic::Ordering::SeqCst);
        let error = receiving.join().expect("no panic").expect_err("a torn array");
        assert_eq!(error.errno(), libc::ECONNRESET, "{error}");
    });
    stream.synchronize().expect("done");
    while !fake.events().contains(&"close ipc") {
        gpu.is_busy().expect("the agent is there");
    }
}

/// A little memory of a GPU is copied, too; while the receiver cannot, it goes behind the header,
/// without a question each time.
#[test]
fn small_memory_of_a_gpu_is_copied_unless_the_receiver_could_not() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let (mut near, mut far) = pair(&options(1), true);
    let mut check = |len: usize, seed: u8| {
        let bytes = pattern(len, seed);
        let (from, to) = (filled(&gpu, &bytes), gpu.alloc(len).expect("memory"));
        let via = move_once(&mut near, &mut far, &on_gpu(&gpu, &from), &mut into_gpu(&gpu, &to));
        assert!(content(&gpu, &to) == bytes, "{len} bytes by {via}");
        via
    };
    for len in [1, 4096, 65_536] {
        assert_eq!(check(len, 1), Via::Copy);
    }
    let running = gpu.announce_launches().expect("the agent is there");
    let asked = Via::Connections { count: 1, reason: Reason::LaunchRuns };
    assert_eq!(check(100, 2), asked);
    for seed in 0..32 {
        assert_eq!(check(4096, seed), Via::Header);
    }
    assert_eq!(check(4096, 3), asked, "it is tried again");
    drop(running);
    assert_eq!(check(4096, 4), Via::Header);
    assert_eq!(check(100_000, 5), Via::Copy);
    assert_eq!(check(4096, 6), Via::Copy, "after one that was copied");
}

/// Arrays that lie in one allocation, in several, and in none.
#[test]
fn many_arrays_of_a_gpu_are_one_transfer() {
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let (mut near, mut far) = pair(&options(2), true);
    let bytes = [pattern(300_000, 1), pattern(200_000, 2)];
    let from = [filled(&gpu, &bytes[0]), filled(&gpu, &bytes[1])];
    let to = [gpu.alloc(300_000).expect("memory"), gpu.alloc(200_000).expect("memory")];
    let cuts = [(0, 0, 1000), (0, 1000, 0), (1, 0, 100_000), (1, 100_000, 100_000), (0, 1000, 299_000)];
    // SAFETY: within the buffers, which outlive the transfer; no two of them overlap.
    let at = |buffer: &GpuBuffer, at: u64, len| unsafe {
        Array::on_gpu(&gpu, buffer.ptr() + at, Dtype::U8, &[len]).expect("an array")
    };
    // SAFETY: as above.
    let into = |buffer: &GpuBuffer, at: u64, len| unsafe {
        ArrayMut::on_gpu(&gpu, buffer.ptr() + at, Dtype::U8, &[len]).expect("an array")
    };
    thread::scope(|scope| {
        let arrays: Vec<_> = cuts.iter().map(|&(of, begin, len)| at(&from[of], begin, len)).collect();
        let near = &mut near;
        let sent = scope.spawn(move || near.send_all(&arrays, &TransferOptions::default()).expect("sent"));
        let arrays = cuts.iter().map(|&(of, begin, len)| into(&to[of], begin, len)).collect();
        let incoming = far.next().expect("a transfer").expect("one");
        incoming.into_arrays(arrays, &TransferOptions::default()).expect("received");
        assert_eq!(sent.join().expect("no panic").via, Via::Copy);
    });
    for (to, bytes) in to.iter().zip(&bytes) {
        assert!(content(&gpu, to) == *bytes);
    }
    assert_eq!(fake.events().iter().filter(|&&event| event == "open ipc").count(), 2);
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
