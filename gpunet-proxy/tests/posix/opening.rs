//! Opening by one call, with options.

use crate::calls::{World, c_addr, good};
use gpunet_posix::name::End;
use gpunet_posix::open::{CallOptions, EXCLUSIVE, KEEPALIVE, NONBLOCK, listen_at};
use gpunet_posix::options::{GPUNET_NONBLOCK, GPUNET_TRANSPORT, SOL_GPUNET};
use gpunet_posix::{SOCKET_TIMEOUT, returned};
use libc::{EINVAL, SO_KEEPALIVE, SO_RCVBUF, SO_REUSEADDR, SO_SNDBUF, SOL_SOCKET};
use std::net::{TcpListener, TcpStream};

#[test]
fn a_stream_has_the_options_it_was_opened_with() {
    let world = World::new();
    let c = world.calls();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = CallOptions {
        send_ring: 8192,
        recv_ring: 1 << 20,
        transport: 1,
        flags: KEEPALIVE | NONBLOCK,
        ..CallOptions::default()
    };
    let addr = c_addr(listener.local_addr().unwrap());
    let fd = good(c.connect_to(&addr, &raw const options, SOCKET_TIMEOUT));
    for (option, wanted) in [
        ((SOL_SOCKET, SO_SNDBUF), 8192),
        ((SOL_SOCKET, SO_RCVBUF), 1 << 20),
        ((SOL_SOCKET, SO_KEEPALIVE), 1),
        ((SOL_GPUNET, GPUNET_NONBLOCK), 1),
        ((SOL_GPUNET, GPUNET_TRANSPORT), 1),
    ] {
        assert_eq!(c.get(fd, option), Ok(wanted), "{option:?}");
    }
    assert_eq!(c.close(fd), 0);
}

#[test]
fn a_listener_hands_its_options_on() {
    let world = World::new();
    let c = world.calls();
    let options = CallOptions { recv_ring: 8192, flags: EXCLUSIVE, ..CallOptions::default() };
    let addr = c_addr("127.0.0.1:0".parse().unwrap());
    // SAFETY: `addr` is readable for its length, and `options` lies on this stack.
    let listener = unsafe { listen_at(&c.g, c.net, addr.as_ptr(), 16, -5, &raw const options) };
    let listener = good(returned(listener));
    assert_eq!(c.get(listener, (SOL_SOCKET, SO_REUSEADDR)), Ok(0));
    let _client = TcpStream::connect(c.name(listener, End::Local).unwrap()).unwrap();
    let accepted = good(c.accept_timeout(listener, -1));
    assert_eq!(c.get(accepted, (SOL_SOCKET, SO_RCVBUF)), Ok(8192));
    assert_eq!((c.close(accepted), c.close(listener)), (0, 0));
}

#[test]
fn options_that_are_none_open_nothing() {
    let world = World::with_sockets(1);
    let c = world.calls();
    let addr = c_addr("127.0.0.1:0".parse().unwrap());
    let unknown = CallOptions { flags: 1 << 31, ..CallOptions::default() };
    for _ in 0..3 {
        assert_eq!(c.connect_to(&addr, &raw const unknown, -1), -i64::from(EINVAL));
        // SAFETY: as above.
        let refused = unsafe { listen_at(&c.g, c.net, addr.as_ptr(), 16, 1, &raw const unknown) };
        assert_eq!(returned(refused), -i64::from(EINVAL));
    }
    world.end();
}
