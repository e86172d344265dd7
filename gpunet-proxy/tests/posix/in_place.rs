//! Bytes written and read in the ring, without a copy.

use crate::calls::{World, c_addr};
use gpunet_posix::SOCKET_TIMEOUT;
use gpunet_posix::open::CallOptions;
use libc::{EALREADY, EBADF, EINVAL, ENOTCONN, EPIPE, MSG_DONTWAIT, SHUT_WR};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

fn errno(code: i32) -> i64 {
    -i64::from(code)
}

/// A stream with rings of 4 KiB, and the other end.
fn small_stream(world: &World) -> (i32, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = CallOptions { send_ring: 4096, recv_ring: 4096, ..CallOptions::default() };
    let addr = c_addr(listener.local_addr().unwrap());
    let fd = world.calls().connect_to(&addr, &raw const options, SOCKET_TIMEOUT);
    (crate::calls::good(fd), listener.accept().unwrap().0)
}

fn pattern(round: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + round) as u8).collect()
}

#[test]
fn bytes_written_in_place_arrive_and_answers_are_read_in_place() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = small_stream(&world);
    // Odd lengths: spans wrap round the end of the ring at every place.
    for round in 0..200 {
        let message = pattern(round, 1 + round * 61 % 3000);
        let mut rest = &message[..];
        while !rest.is_empty() {
            let n = c.reserve(fd, rest, -1);
            assert!(n > 0, "{n}");
            assert_eq!(c.commit(fd, n as usize), 0);
            rest = &rest[n as usize..];
        }
        let mut back = vec![0; message.len()];
        peer.read_exact(&mut back).unwrap();
        assert!(back == message);
        peer.write_all(&back).unwrap();
        let mut seen = Vec::new();
        while seen.len() < message.len() {
            let piece = c.peek(fd, message.len() - seen.len(), -1).unwrap();
            assert!(!piece.is_empty(), "the stream has ended");
            seen.extend_from_slice(&piece);
            assert_eq!(c.release(fd, piece.len()), 0);
        }
        assert!(seen == message);
    }
    assert_eq!(c.close(fd), 0);
}

#[test]
fn only_what_is_committed_is_sent_and_only_what_is_released_is_gone() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = small_stream(&world);
    assert_eq!(c.reserve(fd, b"abcdef", -1), 6);
    assert_eq!(c.commit(fd, 2), 0);
    // A span that is not committed leaves nothing.
    assert_eq!(c.reserve(fd, b"zzz", -1), 3);
    assert_eq!(c.send(fd, b"gh", 0), 2);
    let mut got = [0; 4];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"abgh");
    peer.write_all(b"123456").unwrap();
    while c.peek(fd, 6, -1).unwrap().len() < 6 {}
    assert_eq!(c.release(fd, 2), 0);
    assert_eq!(c.peek(fd, 3, 0).unwrap(), b"345");
    assert_eq!(c.recv_exact(fd, 4), b"3456");
    assert_eq!(c.release(fd, 0), 0);
    assert_eq!(c.close(fd), 0);
}

#[test]
fn more_than_there_is_can_neither_be_committed_nor_released() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = small_stream(&world);
    assert_eq!(c.commit(fd, 4097), errno(EINVAL));
    assert_eq!(c.commit(fd, usize::MAX), errno(EINVAL));
    assert_eq!(c.reserve(fd, b"", -1), errno(EINVAL));
    assert_eq!(c.peek(fd, 0, -1), Err(errno(EINVAL)));
    assert_eq!(c.release(fd, 1), errno(EINVAL));
    peer.write_all(b"abc").unwrap();
    while c.peek(fd, 4, -1).unwrap().len() < 3 {}
    assert_eq!(c.release(fd, 4), errno(EINVAL));
    assert_eq!(c.release(fd, usize::MAX), errno(EINVAL));
    assert_eq!(c.release(fd, 3), 0);
    // Nothing of it has hurt the stream.
    c.send_all(fd, b"ok");
    let mut got = [0; 2];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"ok");
    assert_eq!(c.close(fd), 0);
}

#[test]
fn the_end_of_a_stream_is_an_empty_span() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = small_stream(&world);
    peer.write_all(b"last").unwrap();
    drop(peer);
    while c.peek(fd, 9, -1).unwrap().len() < 4 {}
    assert_eq!(c.release(fd, 4), 0);
    assert_eq!(c.peek(fd, 9, -1), Ok(Vec::new()));
    assert_eq!(c.recv(fd, &mut [0; 4], MSG_DONTWAIT), 0);
    assert_eq!(c.close(fd), 0);
    for refused in [c.reserve(fd, b"x", 0), c.commit(fd, 1), c.release(fd, 1)] {
        assert_eq!(refused, errno(EBADF));
    }
    assert_eq!(c.peek(fd, 1, 0), Err(errno(EBADF)));
}

#[test]
fn what_a_shutdown_has_ended_cannot_be_committed() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = small_stream(&world);
    assert_eq!(c.reserve(fd, b"abc", -1), 3);
    assert_eq!(c.shutdown(fd, SHUT_WR), 0);
    assert_eq!(c.commit(fd, 3), errno(EPIPE));
    assert_eq!(c.reserve(fd, b"abc", -1), errno(EPIPE));
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert!(got.is_empty());
    assert_eq!(c.close(fd), 0);
}

#[test]
fn a_direction_that_is_in_use_is_refused_and_so_is_what_is_no_stream() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = small_stream(&world);
    std::thread::scope(|scope| {
        // The receives below have the direction now and then.
        let waiting = scope.spawn(|| {
            let peek = || world.calls().peek(fd, 1, -1);
            std::iter::repeat_with(peek).find(|peeked| *peeked != Err(errno(EALREADY)))
        });
        while c.recv(fd, &mut [0; 1], MSG_DONTWAIT) != errno(EALREADY) {}
        assert_eq!(c.peek(fd, 1, 0), Err(errno(EALREADY)));
        assert_eq!(c.release(fd, 1), errno(EALREADY));
        peer.write_all(b"x").unwrap();
        assert_eq!(waiting.join().unwrap(), Some(Ok(b"x".to_vec())));
    });
    let (listener, _) = c.listener("127.0.0.1:0");
    assert_eq!(c.reserve(listener, b"x", -1), errno(ENOTCONN));
    assert_eq!(c.peek(listener, 1, -1), Err(errno(ENOTCONN)));
    assert_eq!((c.close(fd), c.close(listener)), (0, 0));
}
