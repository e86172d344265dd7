//! Sockets from their making to their end.

use crate::calls::{World, c_addr, good};
use gpunet_posix::name::End;
use libc::{EBADF, EMFILE, EPIPE, SHUT_RD, SHUT_RDWR, SHUT_WR};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// What a TCP client sends and gets back, from a server made with the C calls step by step.
fn serves_a_tcp_program(domain: i32, any_port: &str) {
    let world = World::new();
    let c = world.calls();
    let fd = good(c.socket(domain, libc::SOCK_STREAM, 0));
    assert_eq!(c.bind(fd, &c_addr(any_port.parse().unwrap())), 0);
    assert_eq!(c.listen(fd, 5), 0);
    let addr = c.name(fd, End::Local).unwrap();
    assert_ne!(addr.port(), 0);
    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = String::new();
        stream.read_to_string(&mut back).unwrap();
        (stream.local_addr().unwrap(), back)
    });
    let (stream, peer) = c.accept_from(fd);
    let stream = good(stream);
    assert_eq!(c.name(stream, End::Peer), Ok(peer));
    assert_eq!(c.name(stream, End::Local), Ok(addr));
    c.send_all(stream, &c.recv_to_end(stream));
    assert_eq!(c.close(stream), 0);
    assert_eq!(c.close(fd), 0);
    assert_eq!(client.join().unwrap(), (peer, "hello".to_owned()));
    world.end();
}

#[test]
fn a_server_serves_a_tcp_program_over_ipv4() {
    serves_a_tcp_program(libc::AF_INET, "127.0.0.1:0");
}

#[test]
fn a_server_serves_a_tcp_program_over_ipv6() {
    serves_a_tcp_program(libc::AF_INET6, "[::1]:0");
}

#[test]
fn a_client_talks_to_a_tcp_program() {
    for (domain, addr) in [(libc::AF_INET, "127.0.0.1:0"), (libc::AF_INET6, "[::1]:0")] {
        let world = World::new();
        let c = world.calls();
        let listener = TcpListener::bind(addr).unwrap();
        let addr = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, from) = listener.accept().unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
            from
        });
        let fd = good(c.socket(domain, libc::SOCK_STREAM, libc::IPPROTO_TCP));
        assert_eq!(c.connect(fd, &c_addr(addr)), 0);
        assert_eq!(c.name(fd, End::Peer), Ok(addr));
        c.send_all(fd, b"over the wire");
        assert_eq!(c.shutdown(fd, SHUT_WR), 0);
        assert_eq!(c.recv_to_end(fd), b"over the wire");
        assert_eq!(c.name(fd, End::Local), Ok(server.join().unwrap()));
        assert_eq!(c.close(fd), 0);
        world.end();
    }
}

#[test]
fn two_blocks_of_one_device_talk_through_gpunets_calls() {
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        two_blocks_talk(addr);
    }
}

fn two_blocks_talk(addr: &str) {
    let world = World::new();
    let c = world.calls();
    let (listener, addr) = c.listener(addr);
    let message: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let c = world.calls();
            let fd = good(c.connect_in(&c_addr(addr)));
            let mut back = vec![0; message.len()];
            c.send_all(fd, &message);
            assert_eq!(c.recv(fd, &mut back, libc::MSG_WAITALL), message.len() as i64);
            assert_eq!(back, message);
            assert_eq!(c.close(fd), 0);
        });
        let fd = good(c.accept(listener, true));
        c.send_all(fd, &c.recv_exact(fd, message.len()));
        assert_eq!(c.recv_to_end(fd), b"");
        assert_eq!(c.close(fd), 0);
    });
    assert_eq!(c.close(listener), 0);
    world.end();
}

#[test]
fn a_bound_socket_connects_from_its_address() {
    let world = World::new();
    let c = world.calls();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fd = c.tcp_socket();
    assert_eq!(c.name(fd, End::Local), Ok("0.0.0.0:0".parse().unwrap()));
    assert_eq!(c.bind(fd, &c_addr("127.0.0.1:0".parse().unwrap())), 0);
    let bound = c.name(fd, End::Local).unwrap();
    assert_eq!(c.connect(fd, &c_addr(listener.local_addr().unwrap())), 0);
    assert_eq!(listener.accept().unwrap().1, bound);
    assert_eq!(c.close(fd), 0);
}

#[test]
fn listen_without_bind_takes_a_free_port() {
    let world = World::new();
    let c = world.calls();
    let fd = c.tcp_socket();
    assert_eq!(c.listen(fd, 1), 0);
    let port = c.name(fd, End::Local).unwrap().port();
    let client = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    let stream = good(c.accept(fd, true));
    assert_eq!((c.close(stream), c.close(fd)), (0, 0));
    drop(client);
}

#[test]
fn each_direction_is_shut_down_by_itself() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = c.stream();
    assert_eq!(c.shutdown(fd, SHUT_WR), 0);
    let mut byte = [0];
    assert_eq!(peer.read(&mut byte).unwrap(), 0);
    assert_eq!(c.send(fd, b"x", 0), -i64::from(EPIPE));
    peer.write_all(b"y").unwrap();
    assert_eq!((c.recv(fd, &mut byte, 0), byte), (1, *b"y"));
    assert_eq!(c.shutdown(fd, SHUT_RD), 0);
    assert_eq!(c.recv(fd, &mut byte, 0), 0);
    assert_eq!(c.shutdown(fd, SHUT_RDWR), 0);
    assert_eq!(c.close(fd), 0);
}

#[test]
fn a_closed_socket_is_stale_for_every_call() {
    let world = World::new();
    let c = world.calls();
    let (fd, _peer) = c.stream();
    let addr = c_addr("127.0.0.1:9".parse().unwrap());
    assert_eq!(c.close(fd), 0);
    let stale = -i64::from(EBADF);
    let (mut byte, mut value) = ([0], 0);
    // Numbers that never were a socket are answered alike.
    for fd in [fd, 0, -1, 5, i32::MAX] {
        let results = [
            c.bind(fd, &addr),
            c.listen(fd, 1),
            c.accept(fd, false),
            c.connect(fd, &addr),
            c.send(fd, b"x", 0),
            c.send(fd, b"", 0),
            c.recv(fd, &mut byte, 0),
            c.shutdown(fd, SHUT_WR),
            c.close(fd),
            c.set(fd, (libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1i32),
            c.get::<i32>(fd, (libc::SOL_SOCKET, libc::SO_ERROR)).unwrap_err(),
            c.name(fd, End::Local).unwrap_err(),
            c.name(fd, End::Peer).unwrap_err(),
            c.ioctl(fd, libc::FIONREAD as u32, &mut value),
        ];
        assert_eq!(results, [stale; 14], "socket {fd}");
    }
}

#[test]
fn sockets_that_never_opened_are_given_back() {
    let world = World::with_sockets(4);
    let c = world.calls();
    let any = c_addr("127.0.0.1:0".parse().unwrap());
    for round in 0..60 {
        let fd = c.tcp_socket();
        if round % 3 > 0 {
            assert_eq!(c.bind(fd, &any), 0);
        }
        if round % 3 > 1 {
            assert_eq!(c.listen(fd, 1), 0);
        }
        assert_eq!(c.close(fd), 0);
        assert_eq!(c.close(fd), -i64::from(EBADF));
    }
    world.end();
}

#[test]
fn a_full_table_is_emfile_until_a_socket_is_closed() {
    let world = World::with_sockets(4);
    let c = world.calls();
    let all: Vec<i32> = (0..4).map(|_| c.tcp_socket()).collect();
    let one_more = || c.socket(libc::AF_INET, libc::SOCK_STREAM, 0);
    assert_eq!(one_more(), -i64::from(EMFILE));
    assert_eq!(c.close(all[2]), 0);
    let again = good(one_more());
    assert_ne!(again, all[2], "a slot's next socket has another handle");
    for fd in [all[0], all[1], all[3], again] {
        assert_eq!(c.close(fd), 0);
    }
    world.end();
}
