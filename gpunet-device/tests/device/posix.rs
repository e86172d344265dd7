//! The C functions' inside: handles, flags, negative errno.

use crate::world::{GENERATION, World, buffer, pattern};
use gpunet_device::abi::Status;
use gpunet_device::abi::control::{Op, Reply};
use gpunet_device::abi::entry::{SlotState, lock};
use gpunet_device::abi::layout::SocketLine;
use gpunet_device::group::Solo;
use gpunet_device::poll::POLLIN;
use gpunet_device::{
    Direction, Error, Handle, Net, Options, PollFd, PollSet, SockAddr, Stream, Timeout, poll,
};
use gpunet_posix::options::{
    self, SO_ERROR, SO_LINGER, SO_RCVBUF, SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET, SOL_TCP, TCP_NODELAY,
};
use gpunet_posix::send::{MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL};
use gpunet_posix::{bind, close, connect, ioctl, name, recv, returned, send, shutdown, sockaddr, socket};
use std::mem::offset_of;
use std::sync::atomic::Ordering;

const G: Solo = Solo::new(0, 1);

fn send_bytes(net: Net, handle: i32, bytes: &[u8], flags: i32) -> Result<i64, Error> {
    // SAFETY: a slice of this test.
    unsafe { send::send(&G, net, handle, bytes.as_ptr(), bytes.len(), flags) }
}

fn recv_bytes(net: Net, handle: i32, bytes: &mut [u8], flags: i32) -> Result<i64, Error> {
    // SAFETY: a slice of this test.
    unsafe { recv::recv(&G, net, handle, bytes.as_mut_ptr(), bytes.len(), flags) }
}

fn set_int(net: Net, handle: i32, option: (i32, i32), value: i32) -> Result<i64, Error> {
    // SAFETY: four bytes of this stack.
    unsafe { options::set(&G, net, handle, option.0, option.1, (&raw const value).cast(), 4) }
}

fn get<const N: usize>(net: Net, handle: i32, option: (i32, i32)) -> [u8; N] {
    let (mut value, mut len) = ([0; N], N as u32);
    // SAFETY: room on this stack.
    unsafe { options::get(&G, net, handle, option.0, option.1, value.as_mut_ptr(), &raw mut len) }.unwrap();
    assert_eq!(len as usize, N);
    value
}

#[test]
fn calls_by_handle_go_on_where_the_last_one_stopped() {
    let world = World::new();
    let net = world.net();
    let (a, b) = world.open_pair(0, 1);
    let (a, b) = (a.raw(), b.raw());
    let out = pattern(777);
    let mut back = vec![0; 777];
    for _ in 0..50 {
        assert_eq!(send_bytes(net, a, &out, 0), Ok(777));
        assert_eq!(recv_bytes(net, b, &mut back[..1], MSG_PEEK), Ok(1));
        assert_eq!(recv_bytes(net, b, &mut back[..700], MSG_WAITALL), Ok(700));
        assert_eq!(recv_bytes(net, b, &mut back[700..], 0), Ok(77));
        assert!(back == out);
    }
    assert_eq!(recv_bytes(net, b, &mut back, MSG_DONTWAIT), Err(Error::WouldBlock));
    assert_eq!(shutdown::shutdown(&G, net, a, shutdown::SHUT_WR), Ok(0));
    assert_eq!(send_bytes(net, a, &out, 0), Err(Error::BrokenPipe));
    assert_eq!(recv_bytes(net, b, &mut back, 0), Ok(0));
    assert_eq!(returned(send_bytes(net, 99, &out, 0)), -9);
    assert_eq!(send_bytes(net, a, &out, 1), Err(Error::InvalidArgument));
}

#[test]
fn a_direction_has_one_user_at_a_time() {
    let world = World::new();
    let net = world.net();
    let (a, b) = world.open_pair(0, 1);
    let (a, b) = (a.raw(), b.raw());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || recv_bytes(net, b, &mut [0; 3], MSG_WAITALL));
        world.await_receiver(1);
        assert_eq!(recv_bytes(net, b, &mut [0], MSG_DONTWAIT), Err(Error::Busy));
        assert_eq!(close::close(&G, net, b), Err(Error::Busy));
        // The other direction is free, also after the close that was refused.
        assert_eq!(send_bytes(net, b, b"x", 0), Ok(1));
        assert_eq!(send_bytes(net, a, b"abc", 0), Ok(3));
        assert_eq!(waiting.join().unwrap(), Ok(3));
    });
    assert_eq!(recv_bytes(net, b, &mut [0], MSG_DONTWAIT), Err(Error::WouldBlock));
}

/// Another group has closed the stream in which a call waits, and the slot is the next socket's,
/// whose group is in a call, too.
#[test]
fn a_late_call_leaves_the_lock_of_the_slots_next_socket_alone() {
    for direction in [Direction::Send, Direction::Recv] {
        let world = World::new();
        let (net, first) = (world.net(), world.open_driven(3));
        assert_eq!(send_bytes(net, first.raw(), &[1; 4096], 0), Ok(4096));
        std::thread::scope(|scope| {
            let late = scope.spawn(move || match direction {
                Direction::Send => send_bytes(net, first.raw(), &[1; 3], 0),
                Direction::Recv => recv_bytes(net, first.raw(), &mut [0; 3], 0),
            });
            match direction {
                Direction::Send => world.await_sender(3),
                Direction::Recv => world.await_receiver(3),
            }
            world.set_state(3, SlotState::retired(GENERATION));
            world.open_driven_as(GENERATION + 1, 3);
            let lock = world.direction_lock(3, direction);
            let held = lock::word(GENERATION + 1, lock::CALL);
            lock.store(held, Ordering::SeqCst);
            assert_eq!(late.join().unwrap(), Err(Error::BadHandle));
            assert_eq!(lock.load(Ordering::SeqCst), held);
        });
    }
}

#[test]
fn the_time_limit_of_a_socket_is_eagain() {
    let world = World::new();
    let net = world.net();
    let handle = world.open_driven(0).raw();
    let timeval = [0i64, 2000];
    // SAFETY: sixteen bytes of this stack.
    unsafe { options::set(&G, net, handle, SOL_SOCKET, SO_RCVTIMEO, timeval.as_ptr().cast(), 16) }.unwrap();
    assert_eq!(get::<16>(net, handle, (SOL_SOCKET, SO_RCVTIMEO))[8..10], 2000u16.to_le_bytes());
    assert_eq!(recv_bytes(net, handle, &mut [0; 4], 0), Err(Error::WouldBlock));
    ioctl::nonblocking(&G, net, handle, true).unwrap();
    assert_eq!(recv_bytes(net, handle, &mut [0; 4], 0), Err(Error::WouldBlock));
}

#[test]
fn options_names_and_queues_are_linux_s() {
    let world = World::new();
    let net = world.net();
    world.give_slots(&[5]);
    let fresh = socket::socket(&G, net, 2, socket::SOCK_STREAM, 0).unwrap() as i32;
    assert_eq!(socket::socket(&G, net, 2, 2, 0), Err(Error::from_errno(94)));
    assert_eq!(socket::socket(&G, net, 1, 1, 0), Err(Error::FamilyNotSupported));
    assert_eq!(socket::socket(&G, net, 10, 1, 0), Err(Error::TooManySockets));
    assert_eq!(set_int(net, fresh, (SOL_SOCKET, SO_RCVBUF), 5000), Ok(0));
    assert_eq!(get::<4>(net, fresh, (SOL_SOCKET, SO_RCVBUF)), 8192i32.to_le_bytes());
    assert_eq!(get::<4>(net, fresh, (SOL_TCP, TCP_NODELAY)), 1i32.to_le_bytes());
    assert_eq!(get::<8>(net, fresh, (SOL_SOCKET, SO_LINGER)), [0; 8]);
    assert_eq!(set_int(net, fresh, (77, 77), 1), Err(Error::from_errno(92)));
    assert_eq!(send_bytes(net, fresh, b"x", 0), Err(Error::NotConnected));

    let (a, b) = world.open_pair(0, 1);
    assert_eq!(set_int(net, a.raw(), (SOL_SOCKET, SO_RCVBUF), 5000), Err(Error::IsConnected));
    assert_eq!(get::<4>(net, a.raw(), (SOL_SOCKET, SO_RCVBUF)), 4096i32.to_le_bytes());
    send_bytes(net, a.raw(), b"12345", 0).unwrap();
    let mut found = 0;
    // SAFETY: an int of this stack, here and below.
    unsafe { ioctl::ioctl(&G, net, b.raw(), ioctl::FIONREAD, &raw mut found) }.unwrap();
    assert_eq!(found, 5);
    // SAFETY: as above.
    unsafe { ioctl::ioctl(&G, net, a.raw(), ioctl::TIOCOUTQ, &raw mut found) }.unwrap();
    assert_eq!(found, 5);
    let (mut addr, mut len) = ([0u8; 28], 28);
    // SAFETY: as above.
    unsafe { name::name(&G, net, a.raw(), name::End::Peer, addr.as_mut_ptr(), &raw mut len) }.unwrap();
    assert_eq!((len, &addr[..8]), (16, &[2, 0, 7, 208, 127, 0, 0, 1][..]));
}

/// A group that asks how much is on its way does not become the one that announces what another has
/// received.
#[test]
fn who_asks_for_the_queue_of_a_stream_is_not_its_receiver() {
    let world = World::new();
    let net = world.net();
    let (a, b) = world.open_pair(0, 1);
    send_bytes(net, a.raw(), b"12345", 0).unwrap();
    let (asker, mut found) = (Solo::new(1, 2), 7);
    assert_eq!(recv_bytes(net, b.raw(), &mut [0; 5], 0), Ok(5));
    // SAFETY: an int of this stack.
    unsafe { ioctl::ioctl(&asker, net, b.raw(), ioctl::TIOCOUTQ, &raw mut found) }.unwrap();
    assert_eq!((found, world.own_consumed(1).observe()), (0, 0));
    let mut fds = [PollFd { handle: b.raw(), events: POLLIN, revents: 0 }];
    // SAFETY: the entry outlives the call.
    let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), 1) };
    assert_eq!(poll(&G, net, set, Timeout::NON_BLOCKING), Ok(0));
    assert_eq!(world.own_consumed(1).observe(), 5, "announced");
    // SAFETY: as above.
    let stale =
        unsafe { ioctl::ioctl(&asker, net, Handle::new(1, 1).raw(), ioctl::TIOCOUTQ, &raw mut found) };
    assert_eq!(stale, Err(Error::BadHandle));
}

/// The proxy's error stays in its status word, so the device remembers that it was reported.
#[test]
fn each_error_of_a_socket_is_told_once() {
    let world = World::new();
    let net = world.net();
    let handle = world.open_driven(1).raw();
    let error = || i32::from_le_bytes(get::<4>(net, handle, (SOL_SOCKET, SO_ERROR)));
    assert_eq!((error(), error()), (0, 0));
    // The device's own: the other end wrote an invalid word.
    world.landed(1).publish(5000);
    assert_eq!(recv_bytes(net, handle, &mut [0; 8], 0), Err(Error::Protocol));
    assert_eq!((error(), error()), (Error::Protocol.errno(), 0));
    world.status(1).publish(Status::open(GENERATION).with_error(Error::ConnectionReset).0);
    assert_eq!((error(), error(), error()), (Error::ConnectionReset.errno(), 0, 0));
}

#[test]
fn a_whole_buffer_is_waited_for_where_calls_do_not_wait() {
    let world = World::new();
    let net = world.net();
    let handle = world.open_driven(1);
    ioctl::nonblocking(&G, net, handle.raw(), true).unwrap();
    let mut stream = Stream::from_handle(&G, net, handle).unwrap();
    assert_eq!(stream.recv(&G, buffer(&mut [0; 8])), Err(Error::WouldBlock));
    while stream.send(&G, buffer(&mut [7; 4096])).is_ok() {}
    assert_eq!(stream.send(&G, b"x"), Err(Error::WouldBlock));
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let mut stream = Stream::from_handle(&G, net, handle).unwrap();
            let received = stream.recv_exact(&G, buffer(&mut [0; 8]));
            (received, stream.send_all(&G, b"x"))
        });
        world.await_receiver(1);
        world.landed(1).publish(8);
        world.await_sender(1);
        world.line(1, offset_of!(SocketLine, released)).publish(1);
        assert_eq!(waits.join().unwrap(), (Ok(8), Ok(())));
    });
}

#[test]
fn a_whole_buffer_is_waited_for_as_long_as_the_socket_says() {
    let world = World::new();
    let net = world.net();
    let handle = world.open_driven(1);
    let timeval = [0i64, 2000];
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
        // SAFETY: sixteen bytes of this stack.
        unsafe { options::set(&G, net, handle.raw(), SOL_SOCKET, option, timeval.as_ptr().cast(), 16) }
            .unwrap();
    }
    let mut stream = Stream::from_handle(&G, net, handle).unwrap();
    assert_eq!(stream.recv_exact(&G, buffer(&mut [0; 8])), Err(Error::TimedOut));
    assert_eq!(stream.send_all(&G, buffer(&mut [7; 5000])), Err(Error::TimedOut));
}

#[test]
fn a_socket_is_bound_listened_on_and_connected_by_requests() {
    let world = World::new();
    let net = world.net();
    world.give_slots(&[5, 6]);
    let (mut raw, mut len) = ([0u8; 28], 28);
    // SAFETY: room on this stack.
    unsafe { sockaddr::write(&SockAddr::v4([127, 0, 0, 1], 80), raw.as_mut_ptr(), &raw mut len) };
    let ops = std::thread::scope(|scope| {
        let kernel = scope.spawn(move || {
            let s = socket::socket(&G, net, 2, socket::SOCK_STREAM, 0).unwrap() as i32;
            // SAFETY: sixteen bytes of an address, here and below.
            assert_eq!(unsafe { bind::bind(&G, net, s, raw.as_ptr(), 16) }, Ok(0));
            // SAFETY: as above.
            assert_eq!(unsafe { bind::bind(&G, net, s, raw.as_ptr(), 16) }, Err(Error::InvalidArgument));
            assert_eq!(bind::listen(&G, net, s, 5), Ok(0));
            // SAFETY: as above.
            assert_eq!(unsafe { connect::connect(&G, net, s, raw.as_ptr(), 16) }, Err(Error::NotSupported));
            assert_eq!(close::close(&G, net, s), Ok(0));
            assert_eq!(close::close(&G, net, s), Err(Error::BadHandle));
            let s = socket::socket(&G, net, 2, socket::SOCK_STREAM, socket::PROTO_TCP).unwrap() as i32;
            // SAFETY: as above.
            assert_eq!(unsafe { connect::connect(&G, net, s, raw.as_ptr(), 16) }, Ok(0));
            // SAFETY: as above.
            assert_eq!(unsafe { connect::connect(&G, net, s, raw.as_ptr(), 16) }, Err(Error::IsConnected));
            assert_eq!(close::close(&G, net, s), Ok(0));
        });
        let mut seen = [0; 4];
        let mut reply = Reply::new(0, 0);
        reply.descriptor = world.driven(6);
        let mut next = || world.serve(&mut seen, |_| Some(reply));
        let requests = [next(), next(), next(), next()];
        kernel.join().unwrap();
        requests
    });
    let names = [Op::Bind, Op::Listen, Op::Close, Op::Connect].map(|op| op as u32);
    assert_eq!(ops.map(|request| request.op), names);
    assert_eq!((ops[1].backlog, ops[3].options.transport), (5, 1));
    assert!(ops[0].options.has(Options::REUSEADDR));
    // The close of what the proxy drives is no request.
    assert_eq!(world.closed(6).observe(), 1);
}

#[test]
fn without_an_attachment_there_is_no_network() {
    // SAFETY: address 0 means that there is none.
    let net = unsafe { Net::from_raw(0) };
    assert_eq!(returned(socket::socket(&G, net, 2, 1, 0)), -100);
    assert_eq!(close::close(&G, net, 65_536), Err(Error::NetworkDown));
    assert_eq!(send_bytes(net, 65_536, b"x", 0), Err(Error::NetworkDown));
}
