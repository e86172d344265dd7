//! What cannot be done is an errno, and the socket's slot is not lost by it.

use crate::calls::{World, c_addr, good};
use crate::support::asleep::spawn_asleep_in;
use libc::{
    EADDRINUSE, EAFNOSUPPORT, EBADF, ECANCELED, ECONNREFUSED, ECONNRESET, EFAULT, EINVAL, EISCONN, ENOTCONN,
    EOPNOTSUPP, EPROTONOSUPPORT, EPROTOTYPE, ESOCKTNOSUPPORT,
};
use std::net::{SocketAddr, TcpListener};

fn errno(code: i32) -> i64 {
    -i64::from(code)
}

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn only_stream_sockets_of_ip_are_made() {
    let world = World::new();
    let c = world.calls();
    assert_eq!(c.socket(libc::AF_UNIX, libc::SOCK_STREAM, 0), errno(EAFNOSUPPORT));
    assert_eq!(c.socket(libc::AF_INET, libc::SOCK_DGRAM, 0), errno(ESOCKTNOSUPPORT));
    let udp = c.socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_UDP);
    assert!([EPROTOTYPE, EPROTONOSUPPORT].map(errno).contains(&udp), "{udp}");
    let fd = good(c.socket(libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_TCP));
    assert_eq!(c.close(fd), 0);
}

#[test]
fn a_refused_connect_gives_the_slot_back() {
    let world = World::with_sockets(4);
    let c = world.calls();
    let addr = c_addr(nobody());
    for _ in 0..30 {
        let fd = c.tcp_socket();
        assert_eq!(c.connect(fd, &addr), errno(ECONNREFUSED));
        // The socket is gone: there is no second try on it.
        assert_eq!(c.connect(fd, &addr), errno(EBADF));
        assert_eq!(c.close(fd), errno(EBADF));
        assert_eq!(c.connect_in(&addr), errno(ECONNREFUSED));
    }
    world.end();
}

#[test]
fn an_address_in_use_gives_the_slot_back() {
    let world = World::with_sockets(4);
    let c = world.calls();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = c_addr(taken.local_addr().unwrap());
    for _ in 0..30 {
        let fd = c.tcp_socket();
        assert_eq!(c.bind(fd, &addr), errno(EADDRINUSE));
        assert_eq!(c.close(fd), errno(EBADF));
        assert_eq!(c.bind_in(&addr), errno(EADDRINUSE));
    }
    world.end();
}

#[test]
fn addresses_that_are_none_are_refused_and_leave_the_socket() {
    let world = World::new();
    let c = world.calls();
    let fd = c.tcp_socket();
    let good_one = c_addr("127.0.0.1:0".parse().unwrap());
    let mut foreign = good_one.clone();
    foreign[0] = 1;
    let ipv6 = c_addr("[::1]:0".parse().unwrap());
    let bad = [(&good_one[..8], EINVAL), (&ipv6[..20], EINVAL), (&foreign[..], EAFNOSUPPORT), (&[], EINVAL)];
    for (addr, code) in bad {
        assert_eq!(c.bind(fd, addr), errno(code));
        assert_eq!(c.connect(fd, addr), errno(code));
        assert_eq!(c.bind_in(addr), errno(code));
        assert_eq!(c.connect_in(addr), errno(code));
    }
    assert_eq!(c.bind(fd, &good_one), 0);
    assert_eq!(c.close(fd), 0);
    world.end();
}

#[test]
fn null_is_efault() {
    use gpunet_posix::{SOCKET_TIMEOUT, bind, connect, name, open, options, recv, returned, send};
    use std::ptr::{null, null_mut};
    let world = World::new();
    let c = world.calls();
    let (fd, _peer) = c.stream();
    let fresh = c.tcp_socket();
    let (g, net) = (&c.g, c.net);
    let (sockets, error) = (libc::SOL_SOCKET, libc::SO_ERROR);
    // SAFETY: null is answered with an errno.
    let results = unsafe {
        [
            bind::bind(g, net, fresh, null(), 16),
            open::listen_at(g, net, null(), 16, 1, null()),
            connect::connect(g, net, fresh, null(), 16),
            open::connect_to(g, net, null(), 16, null(), SOCKET_TIMEOUT),
            send::send(g, net, fd, null(), 1, 0),
            recv::recv(g, net, fd, null_mut(), 1, 0),
            name::name(g, net, fd, name::End::Local, null_mut(), null_mut()),
            options::set(g, net, fd, sockets, libc::SO_KEEPALIVE, null(), 4),
            options::get(g, net, fd, sockets, error, null_mut(), null_mut()),
        ]
    };
    assert_eq!(results.map(returned), [errno(EFAULT); 9]);
    assert_eq!((c.close(fd), c.close(fresh)), (0, 0));
}

#[test]
fn calls_that_do_not_suit_the_socket_are_refused() {
    let world = World::new();
    let c = world.calls();
    let any = c_addr("127.0.0.1:0".parse().unwrap());
    let (stream, _peer) = c.stream();
    let (listener, addr) = c.listener("127.0.0.1:0");
    let (fresh, bound) = (c.tcp_socket(), c.tcp_socket());
    assert_eq!(c.bind(bound, &any), 0);
    let to = c_addr(addr);
    for fd in [bound, listener, stream] {
        assert_eq!(c.bind(fd, &any), errno(EINVAL));
    }
    assert_eq!(c.connect(stream, &to), errno(EISCONN));
    assert_eq!(c.connect(listener, &to), errno(EOPNOTSUPP));
    assert_eq!(c.listen(stream, 1), errno(EINVAL));
    assert_eq!(c.listen(listener, 1), 0);
    for fd in [fresh, bound, stream] {
        assert_eq!(c.accept(fd, false), errno(EINVAL));
    }
    for fd in [fresh, bound, listener] {
        assert_eq!(c.send(fd, b"x", 0), errno(ENOTCONN));
        assert_eq!(c.recv(fd, &mut [0], 0), errno(ENOTCONN));
        assert_eq!(c.shutdown(fd, libc::SHUT_WR), errno(ENOTCONN));
        assert_eq!(c.name(fd, gpunet_posix::name::End::Peer), Err(errno(ENOTCONN)));
    }
    assert_eq!(c.shutdown(stream, 3), errno(EINVAL));
    for fd in [stream, listener, fresh, bound] {
        assert_eq!(c.close(fd), 0);
    }
    world.end();
}

#[test]
fn unknown_flags_are_refused() {
    let world = World::new();
    let c = world.calls();
    let (fd, _peer) = c.stream();
    assert_eq!(c.send(fd, b"x", libc::MSG_OOB), errno(EINVAL));
    assert_eq!(c.send(fd, b"x", libc::MSG_PEEK), errno(EINVAL));
    assert_eq!(c.recv(fd, &mut [0], libc::MSG_OOB), errno(EINVAL));
    assert_eq!(c.recv(fd, &mut [0], -1), errno(EINVAL));
    assert_eq!(c.close(fd), 0);
}

#[test]
fn a_reset_is_reported_and_so_error_says_it_once() {
    let world = World::new();
    let c = world.calls();
    let (fd, peer) = c.stream();
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: sets an option of an open descriptor from this stack.
    let set = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&peer),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as u32,
        )
    };
    assert_eq!(set, 0);
    drop(peer);
    assert_eq!(c.recv(fd, &mut [0; 4], 0), errno(ECONNRESET));
    assert_eq!(c.get(fd, (libc::SOL_SOCKET, libc::SO_ERROR)), Ok(ECONNRESET));
    assert_eq!(c.get(fd, (libc::SOL_SOCKET, libc::SO_ERROR)), Ok(0));
    assert_eq!(c.close(fd), 0);
}

#[test]
fn a_cancelled_launch_gives_up_waiting_and_can_still_close() {
    let world = World::new();
    let c = world.calls();
    let (fd, _peer) = c.stream();
    let (listener, _) = c.listener("127.0.0.1:0");
    std::thread::scope(|scope| {
        let received = spawn_asleep_in(scope, || world.calls().recv(fd, &mut [0; 4], 0));
        let accepted = spawn_asleep_in(scope, || world.calls().accept(listener, true));
        world.cancel();
        assert_eq!(received.join().unwrap(), errno(ECANCELED));
        assert_eq!(accepted.join().unwrap(), errno(ECANCELED));
    });
    assert_eq!((c.close(fd), c.close(listener)), (0, 0));
}
