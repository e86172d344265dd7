//! Several groups and several lanes at one socket.

use crate::calls::{Calls, World, c_addr, good};
use gpunet_device::group::Lanes;
use gpunet_device::poll::POLLIN;
use gpunet_device::{Group, PollFd};
use gpunet_posix::{recv, returned};
use libc::{EAGAIN, EALREADY, MSG_DONTWAIT, MSG_WAITALL};
use std::io::Write;
use std::net::TcpListener;

#[test]
fn a_second_user_of_a_direction_is_told_so() {
    let world = World::new();
    let c = world.calls();
    let (fd, mut peer) = c.stream();
    let (again, already) = (-i64::from(EAGAIN), -i64::from(EALREADY));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut byte = [0];
            loop {
                // The other thread's look may come between.
                match world.calls().recv(fd, &mut byte, 0) {
                    n if n == already => {}
                    n => return (n, byte),
                }
            }
        });
        // Until the other thread has begun to wait, nothing is there.
        let second = loop {
            match c.recv(fd, &mut [0], MSG_DONTWAIT) {
                n if n == again => std::thread::yield_now(),
                n => break n,
            }
        };
        assert_eq!(second, already);
        assert_eq!(c.shutdown(fd, libc::SHUT_RD), already);
        assert_eq!(c.close(fd), already);
        // The other direction is free.
        assert_eq!(c.send(fd, b"x", 0), 1);
        peer.write_all(b"y").unwrap();
        assert_eq!(first.join().unwrap(), (1, *b"y"));
    });
    assert_eq!(c.recv(fd, &mut [0], MSG_DONTWAIT), again);
    assert_eq!(c.close(fd), 0);
    world.end();
}

#[test]
fn a_socket_that_connects_has_one_user() {
    let world = World::new();
    let c = world.calls();
    let already = -i64::from(EALREADY);
    let (listener, addr) = c.listener("127.0.0.1:0");
    let fd = good(c.socket(libc::AF_INET, libc::SOCK_STREAM, 0));
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| world.calls().connect(fd, &c_addr(addr)));
        // The listener is on this device: the connect ends when it is accepted.
        let mut ready = [PollFd { handle: listener, events: POLLIN, revents: 0 }];
        assert_eq!(c.poll(&mut ready, -1), 1);
        assert_eq!(c.connect(fd, &c_addr(addr)), already);
        assert_eq!(c.bind(fd, &c_addr(addr)), already);
        assert_eq!(c.listen(fd, 1), already);
        assert_eq!(c.close(fd), already);
        let accepted = good(c.accept(listener, true));
        assert_eq!(connecting.join().unwrap(), 0);
        assert_eq!((c.close(fd), c.recv(accepted, &mut [0], 0), c.close(accepted)), (0, 0, 0));
    });
    assert_eq!(c.close(listener), 0);
    world.end();
}

/// The address of a buffer that all lanes of a block receive into.
#[derive(Clone, Copy)]
struct Target(*mut u8);

// SAFETY: an address; the calls give each lane its own bytes to write.
unsafe impl Send for Target {}

/// What a block of several lanes does: connect, send all, receive all, close.
fn client(c: &Calls<Lanes>, to: &[u8], message: &[u8], back: Target) -> [i64; 4] {
    let fd = c.connect_in(to);
    let sent = c.send(fd as i32, message, MSG_WAITALL);
    // SAFETY: room for the message, which outlives the block's threads and which they alone use.
    let received = unsafe { recv::recv(&c.g, c.net, fd as i32, back.0, message.len(), MSG_WAITALL) };
    [fd.min(1), sent, returned(received), c.close(fd as i32)]
}

#[test]
fn all_lanes_of_a_block_get_the_same_results() {
    const LANES: u32 = 33;
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = c_addr(listener.local_addr().unwrap());
    let message: Vec<u8> = (0..70_001u32).map(|i| (i % 251) as u8).collect();
    let mut back = vec![0u8; message.len()];
    let (target, net, len) = (Target(back.as_mut_ptr()), world.net(), message.len() as i64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stream = listener.accept().unwrap().0;
            std::io::copy(&mut stream.try_clone().unwrap(), &mut { stream }).unwrap();
        });
        for g in Lanes::group(0, 1, LANES) {
            let (to, message) = (&to, &message);
            scope.spawn(move || {
                let rank = g.rank();
                let results = client(&Calls { g, net }, to, message, target);
                assert_eq!(results, [1, len, len, 0], "lane {rank}");
            });
        }
    });
    assert_eq!(back, message);
    world.end();
}

#[test]
fn one_listener_serves_many_blocks() {
    const EACH: usize = 5;
    let world = World::with_sockets(128);
    let c = world.calls();
    let (listener, addr) = c.listener("127.0.0.1:0");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let c = world.calls();
                for _ in 0..EACH {
                    let fd = good(c.accept(listener, true));
                    c.send_all(fd, &c.recv_to_end(fd));
                    assert_eq!(c.close(fd), 0);
                }
            });
        }
        for client in 0..4 * EACH {
            scope.spawn({
                let world = &world;
                move || {
                    let c = world.calls();
                    let fd = good(c.connect_in(&c_addr(addr)));
                    c.send_all(fd, &[client as u8; 1000]);
                    assert_eq!(c.shutdown(fd, libc::SHUT_WR), 0);
                    assert_eq!(c.recv_to_end(fd), [client as u8; 1000]);
                    assert_eq!(c.close(fd), 0);
                }
            });
        }
    });
    assert_eq!(c.close(listener), 0);
    world.end();
}
