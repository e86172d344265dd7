//! How long a call waits: by its own timeout, whatever the socket's options say.

use crate::calls::{World, c_addr, count_to_end, good};
use crate::support::asleep::Tid;
use gpunet_device::PollFd;
use gpunet_device::poll::POLLIN;
use gpunet_posix::SOCKET_TIMEOUT;
use gpunet_posix::open::CallOptions;
use libc::{EAGAIN, EINVAL, ETIMEDOUT, MSG_DONTWAIT, MSG_WAITALL, SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const AGAIN: i64 = -(EAGAIN as i64);
const SHORT: i64 = 30_000_000;

#[test]
fn a_receive_and_an_accept_end_when_their_own_time_is_over() {
    let world = World::new();
    let c = world.calls();
    let (fd, _peer) = c.stream();
    let (listener, _) = c.listener("127.0.0.1:0");
    let hour = [3600i64, 0];
    for socket in [fd, listener] {
        assert_eq!(c.set(socket, (SOL_SOCKET, SO_RCVTIMEO), hour), 0);
    }
    let start = Instant::now();
    assert_eq!(c.recv_timeout(fd, &mut [0; 4], 0, SHORT), AGAIN);
    assert_eq!(c.peek(fd, 4, SHORT), Err(AGAIN));
    assert_eq!(c.accept_timeout(listener, SHORT), AGAIN);
    assert!(start.elapsed() >= Duration::from_nanos(3 * SHORT as u64));
    // Not at all: by the timeout, or by the flag.
    assert_eq!(c.recv_timeout(fd, &mut [0; 4], 0, 0), AGAIN);
    assert_eq!(c.recv_timeout(fd, &mut [0; 4], MSG_DONTWAIT, -1), AGAIN);
    assert_eq!(c.accept_timeout(listener, 0), AGAIN);
    assert_eq!(c.get(fd, (SOL_SOCKET, SO_RCVTIMEO)), Ok(hour), "the option stays");
    assert_eq!((c.close(fd), c.close(listener)), (0, 0));
}

#[test]
fn a_call_without_a_limit_waits_on_a_non_blocking_socket_too() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = c.stream();
    let mut on = 1;
    assert_eq!(c.ioctl(fd, libc::FIONBIO as u32, &mut on), 0);
    assert_eq!(c.recv_timeout(fd, &mut [0; 4], 0, SOCKET_TIMEOUT), AGAIN);
    let receiver = Tid::current();
    let writer = std::thread::spawn(move || {
        receiver.until_asleep();
        peer.write_all(b"late").unwrap();
        peer
    });
    assert_eq!(c.recv_timeout(fd, &mut [0; 4], MSG_WAITALL, -1), 4);
    assert_eq!(c.close(fd), 0);
    drop(writer.join().unwrap());
}

#[test]
fn the_timeout_is_that_of_the_call_and_not_of_each_byte() {
    let world = World::new();
    let c = world.calls();
    let (fd, peer) = c.stream();
    let over = AtomicBool::new(false);
    let write = || (&peer).write_all(b"x").unwrap();
    // Even if the writer does not run during a call.
    let one_is_there = || {
        write();
        assert_eq!(c.poll(&mut [PollFd { handle: fd, events: POLLIN, revents: 0 }], -1), 1);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each byte comes well before a wait of its own would end.
            while !over.load(Ordering::Relaxed) {
                write();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let start = Instant::now();
        one_is_there();
        let got = c.recv_timeout(fd, &mut [0; 10_000], MSG_WAITALL, SHORT);
        assert!((1..10_000).contains(&got), "{got}");
        // SO_RCVTIMEO counts in the same way.
        assert_eq!(c.set(fd, (SOL_SOCKET, SO_RCVTIMEO), [0i64, SHORT / 1000]), 0);
        one_is_there();
        let got = c.recv(fd, &mut [0; 10_000], MSG_WAITALL);
        assert!((1..10_000).contains(&got), "{got}");
        assert!(start.elapsed() >= Duration::from_nanos(2 * SHORT as u64));
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(c.close(fd), 0);
}

#[test]
fn a_send_into_a_full_ring_ends_when_its_own_time_is_over() {
    let world = World::new();
    let c = world.calls();
    let (fd, peer) = c.stream();
    // The peer does not read: at some point its buffers and the ring are full.
    let chunk = vec![7; 100_000];
    let mut sent = 0;
    loop {
        match c.send_timeout(fd, &chunk, MSG_WAITALL, 10 * SHORT) {
            AGAIN => break,
            n => sent += good(n) as usize,
        }
    }
    let start = Instant::now();
    assert_eq!(c.send_timeout(fd, &chunk, 0, SHORT), AGAIN);
    assert_eq!(c.reserve(fd, &chunk, SHORT), AGAIN);
    assert!(start.elapsed() >= Duration::from_nanos(2 * SHORT as u64));
    let reader = count_to_end(peer);
    assert_eq!(c.close(fd), 0);
    assert_eq!(reader.join().unwrap(), sent);
    world.end();
}

/// A connect through memory waits until the other end accepts; here nobody does.
#[test]
fn a_connect_ends_when_its_own_time_is_over_and_keeps_the_options() {
    let world = World::new();
    let c = world.calls();
    let (listener, addr) = c.listener("127.0.0.1:0");
    let addr = c_addr(addr);
    let hour = CallOptions { send_timeout_ns: 3_600_000_000_000, transport: 2, ..CallOptions::default() };
    assert_eq!(c.connect_to(&addr, &raw const hour, SHORT), -i64::from(ETIMEDOUT));
    let short = CallOptions { send_timeout_ns: SHORT as u64, ..hour };
    assert_eq!(c.connect_to(&addr, &raw const short, SOCKET_TIMEOUT), -i64::from(ETIMEDOUT));
    assert_eq!(c.connect_to(&addr, &raw const hour, 0), -i64::from(EINVAL));
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| good(world.calls().accept(listener, true)));
        let fd = good(c.connect_to(&addr, &raw const hour, -1));
        assert_eq!(c.get(fd, (SOL_SOCKET, SO_SNDTIMEO)), Ok([3600i64, 0]));
        let accepted = accepting.join().unwrap();
        assert_eq!((c.close(fd), c.close(accepted)), (0, 0));
    });
    assert_eq!(c.close(listener), 0);
    world.end();
}
