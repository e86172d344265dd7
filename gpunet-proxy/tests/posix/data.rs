//! Bytes: flags, timeouts, what waits to be read and what is on its way.

use crate::calls::{World, count_to_end, good};
use gpunet_device::PollFd;
use gpunet_device::poll::{POLLIN, POLLNVAL, POLLOUT};
use libc::{EAGAIN, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const AGAIN: i64 = -(EAGAIN as i64);

#[test]
fn peeked_bytes_stay() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = c.stream();
    peer.write_all(b"abcdef").unwrap();
    let mut bytes = [0; 16];
    assert!(c.recv(fd, &mut bytes, MSG_PEEK) > 0);
    assert!(c.recv(fd, &mut bytes, MSG_PEEK | MSG_DONTWAIT) > 0);
    assert_eq!(&c.recv_exact(fd, 6), b"abcdef");
    assert_eq!(c.recv(fd, &mut bytes, MSG_PEEK | MSG_DONTWAIT), AGAIN);
    assert_eq!(c.close(fd), 0);
}

#[test]
fn dontwait_does_not_wait() {
    let world = World::new();
    let c = world.calls();
    let (fd, peer) = c.stream();
    assert_eq!(c.recv(fd, &mut [0; 4], MSG_DONTWAIT), AGAIN);
    // The peer does not read: at some point its buffers and the ring are full.
    let chunk = vec![7; 100_000];
    let mut sent = 0;
    loop {
        match c.send(fd, &chunk, MSG_DONTWAIT | MSG_NOSIGNAL) {
            AGAIN => match c.poll(&mut [PollFd { handle: fd, events: POLLOUT, revents: 0 }], 200_000_000) {
                0 => break,
                _ => continue,
            },
            n => sent += good(n) as usize,
        }
    }
    let mut queued = 0;
    assert_eq!(c.ioctl(fd, libc::TIOCOUTQ as u32, &mut queued), 0);
    assert!(queued > 0);
    let reader = count_to_end(peer);
    assert_eq!(c.close(fd), 0);
    assert_eq!(reader.join().unwrap(), sent);
    world.end();
}

#[test]
fn waitall_moves_everything_however_small_the_ring() {
    let world = World::new();
    let c = world.calls();
    let (fd, peer) = c.stream();
    let message: Vec<u8> = (0..3_000_000u32).map(|i| (i % 253) as u8).collect();
    let echo = std::thread::spawn(move || {
        let mut reader = peer.try_clone().unwrap();
        std::io::copy(&mut reader, &mut { peer }).unwrap();
    });
    std::thread::scope(|scope| {
        // The two directions are two groups' here.
        scope.spawn(|| world.calls().send_all(fd, &message));
        assert_eq!(c.recv_exact(fd, message.len()), message);
    });
    assert_eq!(c.close(fd), 0);
    echo.join().unwrap();
    world.end();
}

#[test]
fn waitall_ends_with_the_stream() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = c.stream();
    peer.write_all(b"abc").unwrap();
    drop(peer);
    let mut bytes = [0; 10];
    assert_eq!(c.recv(fd, &mut bytes, MSG_WAITALL), 3);
    assert_eq!(c.recv(fd, &mut bytes, MSG_WAITALL), 0);
    assert_eq!(c.close(fd), 0);
}

#[test]
fn nothing_is_moved_at_once() {
    let world = World::new();
    let c = world.calls();
    let (fd, _peer) = c.stream();
    assert_eq!(c.send(fd, b"", 0), 0);
    assert_eq!(c.recv(fd, &mut [], 0), 0);
    assert_eq!(c.close(fd), 0);
}

#[test]
fn a_receive_timeout_ends_with_eagain() {
    let world = World::new();
    let c = world.calls();
    let (fd, _peer) = c.stream();
    let (listener, _) = c.listener("127.0.0.1:0");
    let short = libc::timeval { tv_sec: 0, tv_usec: 50_000 };
    let start = Instant::now();
    for socket in [fd, listener] {
        assert_eq!(c.set(socket, (libc::SOL_SOCKET, libc::SO_RCVTIMEO), [short.tv_sec, short.tv_usec]), 0);
    }
    assert_eq!(c.recv(fd, &mut [0; 4], 0), AGAIN);
    assert_eq!(c.accept(listener, true), AGAIN);
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!((c.close(fd), c.close(listener)), (0, 0));
}

#[test]
fn a_non_blocking_socket_does_not_wait() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = c.stream();
    let (listener, addr) = c.listener("127.0.0.1:0");
    let mut on = 1;
    assert_eq!(c.ioctl(fd, libc::FIONBIO as u32, &mut on), 0);
    assert_eq!(c.ioctl(listener, libc::FIONBIO as u32, &mut on), 0);
    assert_eq!(c.recv(fd, &mut [0; 4], 0), AGAIN);
    assert_eq!(c.accept(listener, true), AGAIN);
    let client = TcpStream::connect(addr).unwrap();
    assert_eq!(c.poll(&mut [PollFd { handle: listener, events: POLLIN, revents: 0 }], -1), 1);
    let accepted = good(c.accept(listener, false));
    // What comes from a non-blocking listener blocks, as on Linux.
    peer.write_all(b"z").unwrap();
    let mut off = 0;
    assert_eq!(c.ioctl(fd, libc::FIONBIO as u32, &mut off), 0);
    assert_eq!(&c.recv_exact(fd, 1), b"z");
    drop(client);
    assert_eq!(c.recv(accepted, &mut [0; 4], 0), 0);
    assert_eq!((c.close(fd), c.close(listener), c.close(accepted)), (0, 0, 0));
}

#[test]
fn what_can_be_read_is_counted() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = c.stream();
    let mut count = -1;
    assert_eq!(c.ioctl(fd, libc::FIONREAD as u32, &mut count), 0);
    assert_eq!(count, 0);
    peer.write_all(b"12345").unwrap();
    while count < 5 {
        assert_eq!(c.ioctl(fd, libc::FIONREAD as u32, &mut count), 0);
    }
    assert_eq!(&c.recv_exact(fd, 2), b"12");
    assert_eq!(c.ioctl(fd, libc::FIONREAD as u32, &mut count), 0);
    assert_eq!(count, 3);
    assert_eq!(c.close(fd), 0);
}

/// SHUT_RD, then a look at what could be read, then a receive: the connection goes on in the other
/// direction.
#[test]
fn a_look_after_shut_rd_does_no_harm() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = c.stream();
    peer.write_all(b"12345").unwrap();
    let mut count = 0;
    while count < 5 {
        assert_eq!(c.ioctl(fd, libc::FIONREAD as u32, &mut count), 0);
    }
    assert_eq!(c.shutdown(fd, libc::SHUT_RD), 0);
    for _ in 0..100 {
        peer.write_all(b"more that nobody wants").unwrap();
        assert_eq!(c.ioctl(fd, libc::FIONREAD as u32, &mut count), 0);
        assert_eq!(count, 0);
        assert_eq!(c.recv(fd, &mut [0; 8], 0), 0);
        c.send_all(fd, b"still here");
        let mut back = [0; 10];
        peer.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"still here");
    }
    assert_eq!(c.close(fd), 0);
    drop(peer);
    world.end();
}

#[test]
fn poll_tells_what_is_ready() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = c.stream();
    let (listener, addr) = c.listener("127.0.0.1:0");
    let entry = |handle, events| PollFd { handle, events, revents: 0 };
    let mut fds = [entry(fd, POLLIN | POLLOUT), entry(listener, POLLIN), entry(-1, POLLIN)];
    assert_eq!(c.poll(&mut fds, 0), 1);
    assert_eq!(fds.map(|fd| fd.revents), [POLLOUT, 0, 0]);
    // A wait for reading is not ended by room to write.
    fds[0].events = POLLIN;
    assert_eq!(c.poll(&mut fds, 20_000_000), 0);
    peer.write_all(b"x").unwrap();
    assert_eq!(c.poll(&mut fds, -1), 1);
    assert_eq!(fds.map(|fd| fd.revents), [POLLIN, 0, 0]);
    let client = TcpStream::connect(addr).unwrap();
    while c.poll(&mut fds, -1) < 2 {}
    assert_eq!(fds.map(|fd| fd.revents), [POLLIN, POLLIN, 0]);
    let accepted = good(c.accept(listener, true));
    assert_eq!((c.close(accepted), c.close(listener)), (0, 0));
    assert_eq!(c.poll(&mut fds, -1), 2);
    assert_eq!(fds.map(|fd| fd.revents), [POLLIN, POLLNVAL, 0]);
    assert_eq!(c.close(fd), 0);
    drop(client);
}
