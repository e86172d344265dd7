//! Connections that the proxy accepts before a kernel asks for them, whatever happens to listener
//! and kernels.

use crate::support::client::{client, read_all};
use crate::support::raw::{ControlWords, context};
use crate::support::world::listen;
use crate::support::{Memory, PollMemory, SOLO, World, bounded, small, until};
use gpunet_device::abi::accept::{PREPARED, prepared_of};
use gpunet_device::abi::control::{Op, Request};
use gpunet_device::poll::POLLIN;
use gpunet_device::{
    Error, Group, Handle, Kernel, Listener, Net, Options, Stream, Timeout, TransportKind, poll,
};
use gpunet_posix as posix;
use gpunet_proxy::{Config, FinishPolicy};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);

/// Slots that a listener of a world holds.
fn held(world: &World) -> usize {
    prepared_of(context(world.net()).sockets) as usize
}

/// A client that sends one byte.
fn sends(listener: &Listener, byte: u8) -> TcpStream {
    let mut client = client(listener.local_addr());
    client.write_all(&[byte]).expect("sent");
    client
}

/// Receives the byte of a client, sends it back, and closes.
fn serve(stream: Result<Stream, Error>) -> u8 {
    let memory = Memory::new(1);
    let mut stream = stream.expect("accepted");
    assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(1));
    stream.send_all(&SOLO, memory.buffer()).expect("room");
    stream.close(&SOLO).expect("open");
    memory.copy(0, 1)[0]
}

/// Accepts a first connection, after which the device has prepared slots.
fn prepare(world: &World, listener: &Listener) {
    let mut client = sends(listener, 0);
    serve(listener.accept(&SOLO));
    // A client that leaves without it resets, and the byte may count as undelivered.
    client.read_exact(&mut [0]).expect("an answer");
    drop(client);
    expect_sockets(world, 1);
}

/// Waits until so many sockets are open.
fn expect_sockets(world: &World, count: usize) {
    until("so many sockets are open", || world.attachment().usage().sockets == count);
}

fn is_readable(net: Net, listener: &Listener) -> bool {
    let memory = PollMemory::new(&[(listener.handle().raw(), POLLIN)]);
    poll(&SOLO, net, memory.set(), Timeout::NON_BLOCKING) == Ok(1)
}

/// Checks that each slot is free, once, and ends the world.
fn end(mut world: World) {
    world.expect_all_free();
    let (net, sockets) = (world.net(), context(world.net()).sockets);
    let make = || posix::socket::socket(&SOLO, net, 2, posix::socket::SOCK_STREAM, 0);
    let slots: BTreeSet<i64> = (0..sockets).map(|_| make().expect("a free slot") & 0xffff).collect();
    assert_eq!((slots.len(), make()), (sockets as usize, Err(Error::TooManySockets)));
    world.relaunch(FinishPolicy::Close);
    world.end();
}

#[test]
fn connections_come_ahead_of_accepts_and_in_order() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), TCP);
        prepare(&world, &listener);
        assert!(!is_readable(world.net(), &listener));
        let clients: Vec<_> = (0..6).map(|byte| sends(&listener, byte)).collect();
        expect_sockets(&world, 1 + held(&world));
        for (byte, mut client) in (0..).zip(clients) {
            until("it is readable", || is_readable(world.net(), &listener));
            let accept = if byte % 2 == 0 { listener.accept(&SOLO) } else { listener.try_accept(&SOLO) };
            assert_eq!(serve(accept), byte);
            client.read_exact(&mut [0]).expect("an answer");
        }
        assert!(!is_readable(world.net(), &listener));
        assert_eq!(listener.try_accept(&SOLO).err(), Some(Error::WouldBlock));
        listener.close(&SOLO).expect("open");
        end(world);
    });
}

/// Whoever has accepted the only connection finds the listener empty, however late the proxy goes
/// on after its answer.
#[test]
fn who_has_the_only_connection_polls_for_another() {
    const ROUNDS: u8 = 30;
    bounded(|| {
        let world = World::new();
        let net = world.net();
        for kind in [TransportKind::Tcp, TransportKind::Peer] {
            let options = Options::DEFAULT.with_transport(kind);
            for round in 0..ROUNDS {
                // A first accept is asked for; a second one of TCP finds what came ahead.
                let listener = listen(net, options);
                for _ in 0..1 + round % 2 {
                    let addr = listener.local_addr();
                    let connect = move || {
                        let stream = Stream::connect_with(&SOLO, net, addr, options)?;
                        stream.close(&SOLO)
                    };
                    let peer = std::thread::spawn(connect);
                    until("it is readable", || is_readable(net, &listener));
                    let stream = listener.accept(&SOLO).expect("a connection waits");
                    assert!(!is_readable(net, &listener), "{kind:?}, round {round}");
                    stream.close(&SOLO).expect("open");
                    assert_eq!(peer.join().expect("no panic"), Ok(()));
                }
                listener.close(&SOLO).expect("open");
            }
        }
        end(world);
    });
}

/// Connections of two transports at one listener: those that come ahead do not keep the others
/// away.
#[test]
fn what_comes_ahead_lets_others_through() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let listener = listen(net, Options::DEFAULT);
        prepare(&world, &listener);
        let mut clients: Vec<_> = (0..4).map(|byte| sends(&listener, byte)).collect();
        expect_sockets(&world, 1 + held(&world));
        let addr = listener.local_addr();
        let peer = std::thread::spawn(move || {
            Stream::connect(&SOLO, net, addr).and_then(|stream| stream.close(&SOLO))
        });
        world.expect_requests(1);
        // One client comes for each that is served.
        let is_peers = |_| {
            clients.push(sends(&listener, 0));
            // It is there before the accept: as many as may come ahead, beside the listener and the
            // one that waits.
            expect_sockets(&world, 2 + held(&world));
            let stream = listener.accept(&SOLO).expect("a connection waits");
            let is_peers = stream.transport() == TransportKind::Peer;
            stream.close(&SOLO).expect("open");
            is_peers
        };
        assert!((0..2 * PREPARED).any(is_peers), "it waits behind clients that came later");
        assert_eq!(peer.join().expect("no panic"), Ok(()));
        listener.close(&SOLO).expect("open");
        drop(clients);
        end(world);
    });
}

#[test]
fn a_listener_that_closes_resets_what_nobody_took() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), TCP);
        prepare(&world, &listener);
        let mut clients: Vec<_> = (0..4).map(|byte| sends(&listener, byte)).collect();
        expect_sockets(&world, 1 + held(&world));
        let first = listener.accept(&SOLO);
        listener.close(&SOLO).expect("open");
        for client in &mut clients[1..] {
            assert_eq!(read_all(client).1.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
        }
        // The one that was taken lives on.
        assert_eq!(serve(first), 0);
        clients[0].read_exact(&mut [0]).expect("an answer");
        drop(clients);
        end(world);
    });
}

#[test]
fn what_came_ahead_waits_for_the_next_launch() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), TCP);
        for policy in [FinishPolicy::Close, FinishPolicy::Reset, FinishPolicy::Keep] {
            let leaver = world.attachment().token().expect("a number");
            let its = Listener::from_handle(&SOLO, leaver.net(), listener.handle()).expect("open");
            prepare(&world, &its);
            // It waits, and gives up when it is cancelled.
            let (net, handle) = (leaver.net(), listener.handle());
            let accept = std::thread::spawn(move || {
                Listener::from_handle(&SOLO, net, handle)
                    .and_then(|listener| listener.accept(&SOLO))
                    .map(|_| ())
            });
            world.expect_requests(1);
            leaver.cancel();
            assert_eq!(accept.join().expect("no panic"), Err(Error::Canceled));
            let mut late = sends(&listener, 7);
            expect_sockets(&world, 2);
            assert_eq!(leaver.finish(policy).left_open, 0);
            assert_eq!(serve(listener.accept(&SOLO)), 7);
            late.read_exact(&mut [0]).expect("an answer");
        }
        listener.close(&SOLO).expect("open");
        end(world);
    });
}

#[test]
fn what_a_launch_has_taken_is_its_own() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), TCP);
        prepare(&world, &listener);
        for policy in [FinishPolicy::Close, FinishPolicy::Reset, FinishPolicy::Keep] {
            let mut peer = sends(&listener, 1);
            expect_sockets(&world, 2);
            let taker = world.attachment().token().expect("a number");
            let its = Listener::from_handle(&SOLO, taker.net(), listener.handle()).expect("open");
            let handle = its.try_accept(&SOLO).expect("accepted ahead").handle();
            assert_eq!(taker.finish(policy).left_open, 1);
            let again = Stream::from_handle(&SOLO, world.net(), handle);
            match policy {
                FinishPolicy::Keep => {
                    // Not the next launch's of that number either.
                    let next = world.attachment().token().expect("a number");
                    assert_eq!(next.finish(FinishPolicy::Close).left_open, 0);
                    assert_eq!(serve(again), 1);
                    peer.read_exact(&mut [0]).expect("an answer");
                }
                FinishPolicy::Close | FinishPolicy::Reset => {
                    assert_eq!(again.err(), Some(Error::BadHandle));
                    let end = read_all(&mut peer).1;
                    assert_eq!(end.is_err(), policy == FinishPolicy::Reset, "{end:?}");
                }
            }
            drop(peer);
            expect_sockets(&world, 1);
        }
        listener.close(&SOLO).expect("open");
        end(world);
    });
}

#[test]
fn a_listener_that_its_launch_leaves_resets_what_nobody_took() {
    bounded(|| {
        for policy in [FinishPolicy::Close, FinishPolicy::Reset] {
            let world = World::new();
            let leaver = world.attachment().token().expect("a number");
            let listener = listen(leaver.net(), TCP);
            prepare(&world, &listener);
            let mut clients: Vec<_> = (0..2).map(|byte| sends(&listener, byte)).collect();
            expect_sockets(&world, 1 + held(&world));
            // Another launch that knows the listener: what it has taken stays, and slots stay out
            // of use until it ends.
            let other = world.attachment().token().expect("a number");
            let its = Listener::from_handle(&SOLO, other.net(), listener.handle()).expect("open");
            let taken = its.try_accept(&SOLO);
            leaver.finish(policy);
            assert_eq!(its.try_accept(&SOLO).err(), Some(Error::BadHandle));
            let reset = read_all(&mut clients[1]).1.expect_err("a reset");
            assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
            assert_eq!(serve(taken), 0);
            clients[0].read_exact(&mut [0]).expect("an answer");
            drop(clients);
            assert_eq!(other.finish(FinishPolicy::Close).left_open, 0);
            end(world);
        }
    });
}

#[test]
fn many_listeners_leave_slots_to_other_sockets() {
    const SOCKETS: usize = 64;
    const LISTENERS: usize = 24;
    bounded(|| {
        let world = World::with(Config { sockets: SOCKETS as u32, ..small() });
        let net = world.net();
        let listeners: Vec<_> = (0..LISTENERS).map(|_| listen(net, TCP)).collect();
        let serve_all = || {
            for listener in &listeners {
                let mut client = sends(listener, 3);
                assert_eq!(serve(listener.accept(&SOLO)), 3);
                client.read_exact(&mut [0]).expect("an answer");
            }
            expect_sockets(&world, LISTENERS);
        };
        // By the second time the first listeners hold all that they may.
        serve_all();
        serve_all();
        let make = || posix::socket::socket(&SOLO, net, 2, posix::socket::SOCK_STREAM, 0);
        let mut others = Vec::new();
        until("listeners hold a quarter", || {
            others.extend(std::iter::from_fn(|| make().ok()));
            others.len() == SOCKETS - LISTENERS - SOCKETS / 4
        });
        for socket in others {
            posix::close::close(&SOLO, net, socket as i32).expect("open");
        }
        serve_all();
        listeners.into_iter().for_each(|listener| listener.close(&SOLO).expect("open"));
        end(world);
    });
}

/// Accepts twice and panics.
#[derive(Clone, Copy)]
struct Fails {
    net: Net,
    listener: Handle,
}

impl Kernel for Fails {
    const ENTRY: &'static str = "fails";
    fn run<G: Group>(self, g: &G) {
        let listener = Listener::from_handle(g, self.net, self.listener).expect("kept");
        let _asked_for = listener.accept(g).expect("a client");
        let _ahead = listener.accept(g).expect("a client");
        panic!("on purpose");
    }
}

#[test]
fn what_a_block_has_taken_is_reset_when_it_panics() {
    bounded(|| {
        for threads in [1, 3] {
            let world = World::new();
            let listener = listen(world.net(), TCP);
            prepare(&world, &listener);
            let mut clients: Vec<_> = (0..2).map(|byte| sends(&listener, byte)).collect();
            expect_sockets(&world, 3);
            let program = world.attachment().load("", threads).expect("nothing to load");
            let handle = listener.handle();
            let make = |net| Fails { net, listener: handle };
            // SAFETY: the kernel's parameters hold no addresses.
            let launch = unsafe { world.attachment().launch(&program, 1, threads, make) }.expect("launched");
            for client in &mut clients {
                assert_eq!(read_all(client).1.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
            }
            assert!(launch.finish(FinishPolicy::Close).is_err());
            // The listener is another launch's.
            let mut late = sends(&listener, 9);
            assert_eq!(serve(listener.accept(&SOLO)), 9);
            late.read_exact(&mut [0]).expect("an answer");
            listener.close(&SOLO).expect("open");
            drop(clients);
            end(world);
        }
    });
}

/// A kernel that prepares what it has not, or what it was not asked for: the request is refused and
/// nothing changes.
#[test]
fn slots_that_cannot_be_prepared_are_refused() {
    bounded(|| {
        let world = World::new();
        let (net, sockets) = (world.net(), context(world.net()).sockets);
        let listener = listen(net, TCP);
        prepare(&world, &listener);
        let mut client = sends(&listener, 1);
        expect_sockets(&world, 2);
        let stream = listener.accept(&SOLO).expect("accepted");
        let socket = || posix::socket::socket(&SOLO, net, 2, posix::socket::SOCK_STREAM, 0);
        let fresh = || socket().expect("a slot") as i32;
        let used = stream.handle().raw();
        let at = listener.handle();
        let control = ControlWords::new(net, context(net).controls - 1);
        let mut number = 1 << 20;
        let mut refused = |handle: Handle, position: u64, slots: &[i32]| {
            let mut request = Request::new(Op::Prepare, handle.slot(), handle.generation(), 0);
            request.value = position;
            request.slots[..slots.len()].copy_from_slice(slots);
            number += 1;
            control.post(number, request);
            control.answer(number)
        };
        let [protocol, bad] = [Error::Protocol, Error::BadHandle].map(|error| error.errno() as u32);
        let invalid = Error::InvalidArgument.errno() as u32;
        for (position, slots) in [
            (8, &[][..]),
            (8, &[-1]),
            (8, &[i32::MAX]),
            (8, &[Handle::new(sockets, 1).raw()]),
            (8, &[used]),
            (8, &[at.raw()]),
            (8, &[fresh(), used]),
            (0, &[fresh()]),
            (1, &[fresh()]),
            (40, &[fresh()]),
            (u64::MAX, &[fresh(), fresh()]),
            (1 << 63, &[fresh()]),
        ] {
            assert_eq!(refused(at, position, slots), protocol, "{position} {slots:?}");
        }
        let twice = fresh();
        assert_eq!(refused(at, 8, &[twice, twice]), protocol, "named twice");
        let all: Vec<_> = (0..PREPARED).map(|_| fresh()).collect();
        assert_eq!(refused(at, 8, &all), protocol, "the last ones are too far");
        let next = Handle::new(at.slot(), at.generation() + 1);
        assert_eq!(refused(next, 8, &[fresh()]), bad, "another listener");
        assert_eq!(refused(stream.handle(), 8, &[fresh()]), invalid, "no listener");
        // Nothing has changed, and what was named is free again.
        assert_eq!(serve(Ok(stream)), 1);
        client.read_exact(&mut [0]).expect("an answer");
        let mut late = sends(&listener, 2);
        assert_eq!(serve(listener.accept(&SOLO)), 2);
        late.read_exact(&mut [0]).expect("an answer");
        listener.close(&SOLO).expect("open");
        drop((client, late));
        end(world);
    });
}
