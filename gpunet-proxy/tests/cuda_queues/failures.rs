//! A stream that waits for what will not come is released, and says why.

use crate::support::{Kind, Memory, World, pattern};
use gpunet_device::abi::{Options, Word};
use gpunet_device::{Error, TransportKind};
use gpunet_proxy::queue::QueueError;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn errno(error: &QueueError) -> Option<i32> {
    matches!(error, QueueError::Failed(_) | QueueError::Canceled).then(|| error.errno())
}

/// Ends a connection with a reset.
fn reset(peer: TcpStream) {
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).expect("an option");
    drop(peer);
}

/// The next socket works.
fn another(world: &World) {
    let (socket, mut peer) = world.tcp(Options::DEFAULT);
    let mut queue = world.queue();
    let memory = Memory::filled(world, Kind::Device, 300_000, 9);
    let mut sender = socket.take_send().expect("free");
    queue.send(&mut sender, memory.buffer(300_000)).expect("enqueued");
    let mut bytes = vec![0; 300_000];
    peer.read_exact(&mut bytes).expect("all of it");
    queue.synchronize().expect("no failure");
    assert!(bytes == pattern(9, 300_000));
}

fn ends_with(kind: Kind, len: usize, end: impl FnOnce(TcpStream), error: Error, bytes: u64) {
    let world = World::new();
    let (socket, mut peer) = world.tcp(Options::DEFAULT);
    let mut receiver = socket.take_recv().expect("free");
    let mut queue = world.queue();
    let to = Memory::new(&world, kind, len);
    let word = Memory::new(&world, Kind::Pinned, 4096);
    let Memory::Pinned(page) = &word else { unreachable!() };
    // SAFETY: the page's first word.
    let check = unsafe { Word::from_ptr(page.device_ptr() as *mut u64) };
    queue.recv(&mut receiver, to.buffer(len)).expect("enqueued");
    queue.check(check).expect("enqueued");
    peer.write_all(&pattern(1, bytes as usize)).expect("written");
    while receiver.outcome().expect("readable").position != bytes {
        std::thread::yield_now();
    }
    let since = Instant::now();
    end(peer);
    let failed = queue.synchronize().expect_err("it cannot come");
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(errno(&failed), Some(error.errno()), "{kind:?}, {len}: {failed}");
    let failure = queue.outcome().failure.expect("a failure");
    // Of a short message that was reset, a kernel gives nothing: it does not believe the mark that
    // released it.
    let is_void = world.is_real && len == 64 && error == Error::ConnectionReset;
    let through = if is_void { 0 } else { bytes };
    assert_eq!((failure.operation, failure.bytes), (0, through), "{kind:?}, {len}");
    if len == 64 {
        // In fragments some of the rest may be there, too.
        assert_eq!(to.bytes(&world, through as usize), pattern(1, through as usize));
    }
    let mut stored = [0; 8];
    stored.copy_from_slice(&word.bytes(&world, 8));
    assert_eq!(u64::from_le_bytes(stored), error.errno() as u64);
    assert!(receiver.outcome().expect("readable").error.is_some());
    drop((receiver, socket));
    another(&world);
}

#[test]
fn a_peer_that_resets_releases_a_stream_that_waits() {
    ends_with(Kind::Device, 64, reset, Error::ConnectionReset, 0);
    ends_with(Kind::Device, 64, reset, Error::ConnectionReset, 10);
}

#[test]
fn a_peer_that_resets_ends_a_staged_message() {
    ends_with(Kind::Device, 4 << 20, reset, Error::ConnectionReset, 100_000);
    ends_with(Kind::Pageable, 4 << 20, reset, Error::ConnectionReset, 100_000);
}

#[test]
fn a_stream_that_ends_inside_a_message_says_how_far_it_came() {
    ends_with(Kind::Device, 64, drop, Error::NoData, 10);
    ends_with(Kind::Device, 4 << 20, drop, Error::NoData, 100_000);
    ends_with(Kind::Pageable, 4 << 20, drop, Error::NoData, 100_000);
}

#[test]
fn a_peer_that_reads_no_more_ends_a_send() {
    for len in [60_000, 64 << 20] {
        let world = World::new();
        let (socket, peer) = world.tcp(Options::DEFAULT.with_rings(1 << 16, 1 << 16));
        let mut sender = socket.take_send().expect("free");
        let mut queue = world.queue();
        let from = Memory::new(&world, Kind::Device, len);
        reset(peer);
        let mut result = Ok(());
        for _ in 0..200 {
            queue.send(&mut sender, from.buffer(len)).expect("enqueued");
            result = queue.synchronize();
            if result.is_err() {
                break;
            }
        }
        let failed = result.expect_err("nobody reads");
        let expected = [Error::ConnectionReset, Error::BrokenPipe].map(|error| Some(error.errno()));
        assert!(expected.contains(&errno(&failed)), "{failed}");
        drop((sender, socket));
        another(&world);
    }
}

/// The other end of a direct link is closed while a stream waits for it.
#[test]
fn the_other_end_of_a_direct_link_closes() {
    let world = World::new();
    for len in [64, 4 << 20] {
        let options = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(1 << 16, 1 << 16);
        let (near, far) = world.pair(options);
        let mut receiver = near.take_recv().expect("free");
        let mut queue = world.queue();
        let (to, page) = (Memory::new(&world, Kind::Device, len), Memory::new(&world, Kind::Pinned, 4096));
        let Memory::Pinned(page) = &page else { unreachable!() };
        // SAFETY: the page's first word, at its addresses for the device and the CPU.
        let [come, seen] = [page.device_ptr(), page.region().base().as_ptr() as u64]
            .map(|at| unsafe { Word::from_ptr(at as *mut u64) });
        queue.write(come, 1).expect("enqueued");
        queue.recv(&mut receiver, to.buffer(len)).expect("enqueued");
        while seen.observe() != 1 {
            std::thread::yield_now();
        }
        drop(far);
        let failed = queue.synchronize().expect_err("it cannot come");
        let expected = [Error::ConnectionReset, Error::NoData].map(|error| Some(error.errno()));
        assert!(expected.contains(&errno(&failed)), "{len}: {failed}");
        drop((receiver, near));
    }
    another(&world);
}

/// The attachment is closed while a stream waits.
#[test]
fn the_end_of_the_attachment_releases_a_stream() {
    let mut world = World::new();
    let (socket, _peer) = world.tcp(Options::DEFAULT);
    let mut receiver = socket.take_recv().expect("free");
    let mut queue = world.queue();
    let to = Memory::new(&world, Kind::Device, 4 << 20);
    queue.recv(&mut receiver, to.buffer(64)).expect("enqueued");
    queue.recv(&mut receiver, to.buffer(4 << 20)).expect("enqueued");
    let done = queue.notify();
    let _ = world.close();
    let failed = done.wait().expect_err("it cannot come");
    assert!(errno(&failed).is_some(), "{failed}");
    drop((receiver, socket, queue));
}
