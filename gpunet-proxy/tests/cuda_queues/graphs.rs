//! Captured operations, and operations that are kernels.

use crate::support::{Kind, Memory, World, not_run, pattern};
use gpunet_device::abi::Options;
use gpunet_proxy::queue::{Queue, QueueSettings};
use gpunet_proxy::socket::DirectionError;
use std::io::{Read, Write};

fn echo(mut peer: std::net::TcpStream) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(n @ 1..) = peer.read(&mut bytes) {
            peer.write_all(&bytes[..n]).expect("written");
        }
    })
}

/// An exchange that was captured once is repeated with new content, and mixed with operations that
/// were not.
#[test]
fn a_captured_exchange_replays_with_new_content() {
    use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
    const LEN: usize = 5000;
    let world = World::new();
    if !world.is_real {
        return not_run("kernels");
    }
    eprintln!("begins");
    let (socket, peer) = world.tcp(Options::DEFAULT);
    let end = peer.try_clone().expect("a descriptor");
    let server = echo(peer);
    let (mut sender, mut receiver) = (socket.take_send().expect("free"), socket.take_recv().expect("free"));
    let context = cudarc::driver::CudaContext::new(0).expect("cudarc's context");
    let theirs = context.new_stream().expect("a stream");
    // SAFETY: it outlives the queue, and is captured by this test, between calls.
    let stream = unsafe { world.device.borrow_stream(theirs.cu_stream().cast()) }.expect("of this context");
    let mut queue = Queue::cuda(world.attachment(), stream).expect("a queue");
    let (mut from, to) = (Memory::new(&world, Kind::Pinned, LEN), Memory::new(&world, Kind::Pinned, LEN));

    theirs.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).expect("a capture");
    queue.send(&mut sender, from.buffer(LEN)).expect("captured");
    queue.recv(&mut receiver, to.buffer(LEN)).expect("captured");
    let refused = queue.synchronize().expect_err("no graph has it");
    let message = sender.prepare(64).expect_err("its place is not known");
    assert!(matches!(message, DirectionError::Captured), "{message:?}");
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = theirs.end_capture(flags).expect("a graph").expect("not empty");
    drop(refused);

    for round in 0..1000 {
        from.fill(&world, &pattern(round, LEN));
        graph.launch().expect("launched");
        theirs.synchronize().expect("no fault");
        assert!(to.bytes(&world, LEN) == pattern(round, LEN), "round {round}: {:?}", queue.outcome());
        if round % 100 == 0 {
            from.fill(&world, &pattern(!round, LEN));
            queue.send(&mut sender, from.buffer(LEN)).expect("enqueued");
            queue.recv(&mut receiver, to.buffer(LEN)).expect("enqueued");
            queue.synchronize().expect("no failure");
            assert!(to.bytes(&world, LEN) == pattern(!round, LEN), "between, round {round}");
        }
    }
    assert!(queue.outcome().failure.is_none());
    // The peer goes: a replay fails, and ends.
    end.shutdown(std::net::Shutdown::Both).expect("connected");
    server.join().expect("the echo");
    graph.launch().expect("launched");
    theirs.synchronize().expect("no fault");
    assert!(queue.outcome().failure.is_some());
    drop((graph, queue, sender, receiver, socket));
}

#[test]
fn a_queue_of_kernels_does_the_same() {
    let world = World::new();
    if !world.is_real {
        return not_run("kernels");
    }
    let (socket, peer) = world.tcp(Options::DEFAULT.with_rings(1 << 16, 1 << 16));
    let server = echo(peer);
    let (mut sender, mut receiver) = (socket.take_send().expect("free"), socket.take_recv().expect("free"));
    let settings = QueueSettings { kernels: true, ..QueueSettings::default() };
    let mut queue = Queue::cuda_with(world.attachment(), world.stream(), settings).expect("a queue");
    for (round, len) in [1, 64, 4096, 30_000].into_iter().enumerate() {
        let from = Memory::filled(&world, Kind::Device, len, round as u64);
        let to = Memory::new(&world, Kind::Device, len);
        queue.send(&mut sender, from.buffer(len)).expect("enqueued");
        queue.recv(&mut receiver, to.buffer(len)).expect("enqueued");
        queue.synchronize().expect("no failure");
        assert!(to.bytes(&world, len) == pattern(round as u64, len), "{len} bytes");
    }
    let message = sender.prepare(64).expect("room");
    let heard = receiver.prepare(64).expect("room");
    queue.wait(&[message.room]).expect("enqueued");
    queue.post(&[message.post]).expect("enqueued");
    queue.wait(&[message.done, heard.arrived]).expect("enqueued");
    queue.post(&[heard.consume]).expect("enqueued");
    queue.synchronize().expect("no failure");
    drop((sender, receiver, socket));
    server.join().expect("the echo");
}
