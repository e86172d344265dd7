//! gsetsockopt and ggetsockopt.

use crate::calls::{World, c_addr};
use gpunet_posix::options::{GPUNET_NONBLOCK, GPUNET_TRANSPORT, SOL_GPUNET};
use libc::{
    EDOM, EINVAL, EISCONN, ENOPROTOOPT, IPPROTO_IPV6, IPPROTO_TCP, IPV6_V6ONLY, SO_KEEPALIVE, SO_LINGER,
    SO_RCVBUF, SO_RCVTIMEO, SO_REUSEADDR, SO_SNDBUF, SO_SNDTIMEO, SOL_SOCKET, TCP_NODELAY,
};
use std::io::{Read, Write};

fn errno(code: i32) -> i64 {
    -i64::from(code)
}

#[test]
fn a_fresh_socket_has_the_documented_defaults() {
    let world = World::new();
    let c = world.calls();
    let fd = good_socket(&world);
    let defaults = [
        ((SOL_SOCKET, SO_REUSEADDR), 1),
        ((SOL_SOCKET, SO_KEEPALIVE), 0),
        ((SOL_SOCKET, libc::SO_ERROR), 0),
        ((SOL_SOCKET, SO_SNDBUF), 256 * 1024),
        ((SOL_SOCKET, SO_RCVBUF), 256 * 1024),
        ((IPPROTO_TCP, TCP_NODELAY), 1),
        ((IPPROTO_IPV6, IPV6_V6ONLY), 0),
        ((SOL_GPUNET, GPUNET_NONBLOCK), 0),
        ((SOL_GPUNET, GPUNET_TRANSPORT), 0),
    ];
    for (option, value) in defaults {
        assert_eq!(c.get(fd, option), Ok(value), "{option:?}");
    }
    assert_eq!(c.get(fd, (SOL_SOCKET, SO_RCVTIMEO)), Ok([0i64, 0]));
    assert_eq!(c.get(fd, (SOL_SOCKET, SO_SNDTIMEO)), Ok([0i64, 0]));
    assert_eq!(c.get(fd, (SOL_SOCKET, SO_LINGER)), Ok([0i32, 0]));
    assert_eq!(c.close(fd), 0);
}

fn good_socket(world: &World) -> i32 {
    crate::calls::good(world.calls().socket(libc::AF_INET, libc::SOCK_STREAM, 0))
}

#[test]
fn what_was_set_is_read_back() {
    let world = World::new();
    let c = world.calls();
    let fd = good_socket(&world);
    let flags = [
        (SOL_SOCKET, SO_REUSEADDR),
        (SOL_SOCKET, SO_KEEPALIVE),
        (IPPROTO_TCP, TCP_NODELAY),
        (IPPROTO_IPV6, IPV6_V6ONLY),
        (SOL_GPUNET, GPUNET_NONBLOCK),
    ];
    for option in flags {
        for (set, found) in [(1, 1), (0, 0), (7, 1)] {
            assert_eq!(c.set(fd, option, set), 0);
            assert_eq!(c.get(fd, option), Ok(found), "{option:?}");
        }
    }
    for transport in 0..3 {
        assert_eq!(c.set(fd, (SOL_GPUNET, GPUNET_TRANSPORT), transport), 0);
        assert_eq!(c.get(fd, (SOL_GPUNET, GPUNET_TRANSPORT)), Ok(transport));
    }
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
        assert_eq!(c.set(fd, (SOL_SOCKET, option), [3i64, 250_000]), 0);
        assert_eq!(c.get(fd, (SOL_SOCKET, option)), Ok([3i64, 250_000]));
    }
    for (set, found) in [([1i32, 7], [1i32, 7]), ([1, 0], [1, 0]), ([0, 9], [0, 0])] {
        assert_eq!(c.set(fd, (SOL_SOCKET, SO_LINGER), set), 0);
        assert_eq!(c.get(fd, (SOL_SOCKET, SO_LINGER)), Ok(found));
    }
    assert_eq!(c.close(fd), 0);
}

#[test]
fn ring_sizes_are_rounded_up_and_used() {
    let world = World::new();
    let c = world.calls();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let fd = good_socket(&world);
    let sizes = [(1, 4096), (4097, 8192), (1 << 20, 1 << 20), (i32::MAX, 16 << 20), (5000, 8192)];
    for (asked, got) in sizes {
        for option in [SO_RCVBUF, SO_SNDBUF] {
            assert_eq!(c.set(fd, (SOL_SOCKET, option), asked), 0);
            assert_eq!(c.get(fd, (SOL_SOCKET, option)), Ok(got));
        }
    }
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_RCVBUF), 4096), 0);
    assert_eq!(c.connect(fd, &c_addr(listener.local_addr().unwrap())), 0);
    let mut peer = listener.accept().unwrap().0;
    assert_eq!(c.get(fd, (SOL_SOCKET, SO_SNDBUF)), Ok(8192));
    assert_eq!(c.get(fd, (SOL_SOCKET, SO_RCVBUF)), Ok(4096));
    // An open stream keeps its rings.
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_RCVBUF), 1 << 20), errno(EISCONN));
    assert_eq!(c.set(fd, (SOL_GPUNET, GPUNET_TRANSPORT), 2), errno(EISCONN));
    assert_eq!(c.get(fd, (SOL_GPUNET, GPUNET_TRANSPORT)), Ok(1));
    // Never more than the ring holds is there to be read.
    peer.write_all(&[1; 100_000]).unwrap();
    let mut count = 0;
    while count < 4096 {
        assert_eq!(c.ioctl(fd, libc::FIONREAD as u32, &mut count), 0);
    }
    assert_eq!(count, 4096);
    assert_eq!(c.recv_exact(fd, 100_000), [1; 100_000]);
    assert_eq!(c.close(fd), 0);
}

#[test]
fn a_listener_keeps_what_accepted_streams_inherit() {
    let world = World::new();
    let c = world.calls();
    let fd = good_socket(&world);
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_RCVBUF), 8192), 0);
    assert_eq!(c.bind(fd, &c_addr("127.0.0.1:0".parse().unwrap())), 0);
    assert_eq!(c.listen(fd, 1), 0);
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_RCVBUF), 4096), errno(EINVAL));
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_KEEPALIVE), 1), errno(EINVAL));
    // As it is already; and what concerns the calls on the listener alone.
    assert_eq!(c.set(fd, (IPPROTO_TCP, TCP_NODELAY), 1), 0);
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_RCVTIMEO), [5i64, 0]), 0);
    let addr = c.name(fd, gpunet_posix::name::End::Local).unwrap();
    let _client = std::net::TcpStream::connect(addr).unwrap();
    let accepted = crate::calls::good(c.accept(fd, true));
    assert_eq!(c.get(accepted, (SOL_SOCKET, SO_RCVBUF)), Ok(8192));
    assert_eq!(c.get(accepted, (SOL_SOCKET, SO_SNDBUF)), Ok(256 * 1024));
    assert_eq!((c.close(accepted), c.close(fd)), (0, 0));
}

#[test]
fn options_of_an_open_stream_take_effect() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = c.stream();
    for option in [(SOL_SOCKET, SO_KEEPALIVE), (IPPROTO_TCP, TCP_NODELAY)] {
        assert_eq!(c.set(fd, option, 1i32), 0);
        assert_eq!(c.get(fd, option), Ok(1));
    }
    // No lingering: the peer sees a reset instead of the end.
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_LINGER), [1i32, 0]), 0);
    assert_eq!(c.close(fd), 0);
    let error = peer.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn unknown_options_and_wrong_values_are_refused() {
    let world = World::new();
    let c = world.calls();
    let fd = good_socket(&world);
    for option in [(SOL_SOCKET, 999), (IPPROTO_TCP, 999), (12345, 1), (SOL_GPUNET, 99)] {
        assert_eq!(c.set(fd, option, 1i32), errno(ENOPROTOOPT));
        assert_eq!(c.get::<i32>(fd, option), Err(errno(ENOPROTOOPT)));
    }
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_KEEPALIVE), 1u8), errno(EINVAL));
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_RCVTIMEO), 1i32), errno(EINVAL));
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_LINGER), 1i32), errno(EINVAL));
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_RCVTIMEO), [1i64, 1_000_000]), errno(EDOM));
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_RCVTIMEO), [-1i64, 0]), errno(EDOM));
    assert_eq!(c.set(fd, (SOL_GPUNET, GPUNET_TRANSPORT), 9i32), errno(EINVAL));
    assert_eq!(c.set(fd, (SOL_GPUNET, GPUNET_TRANSPORT), -1i32), errno(EINVAL));
    // A longer value is as good: the rest of it is not looked at.
    assert_eq!(c.set(fd, (SOL_SOCKET, SO_KEEPALIVE), [1i32, 99]), 0);
    assert_eq!(c.get(fd, (SOL_SOCKET, SO_KEEPALIVE)), Ok(1));
    let mut value = 0;
    assert_eq!(c.ioctl(fd, 0x1234, &mut value), errno(libc::ENOTTY));
    assert_eq!(c.close(fd), 0);
}
