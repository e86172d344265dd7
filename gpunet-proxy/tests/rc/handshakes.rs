//! Clients that stop in the middle of the handshake, and what becomes of connections before an
//! accept.

use crate::hosts::{Host, Hosts, RC, config, exchange, open, receive};
use crate::raw_peer::{Stopped, stopped};
use crate::support::client::std_addr;
use crate::support::world::listen;
use crate::support::{Memory, PollMemory, SOLO, bounded, until};
use gpunet_core::verbs::sim::{Fabric, FabricSettings, Sim};
use gpunet_device::poll::POLLIN;
use gpunet_device::{Error, Handle, Listener, Net, Options, SockAddr, Stream, Timeout, poll};
use gpunet_proxy::Config;
use std::thread::JoinHandle;

/// Time enough for what happens at once; nothing depends on it.
const SOON: Timeout = Timeout::ms(20);

fn connecting(net: Net, addr: SockAddr) -> JoinHandle<Result<Handle, Error>> {
    connecting_with(net, addr, RC)
}

fn connecting_with(net: Net, addr: SockAddr, options: Options) -> JoinHandle<Result<Handle, Error>> {
    std::thread::spawn(move || Stream::connect_with(&SOLO, net, addr, options).map(|stream| stream.handle()))
}

fn accepting(net: Net, listener: Handle) -> JoinHandle<Result<Handle, Error>> {
    std::thread::spawn(move || {
        Listener::from_handle(&SOLO, net, listener)?.accept(&SOLO).map(|stream| stream.handle())
    })
}

/// Waits for a thread that connects or accepts.
fn opened(net: Net, thread: JoinHandle<Result<Handle, Error>>) -> Stream {
    open(net, thread.join().expect("no panic").expect("a connection"))
}

/// Returns whether the listener is ready, as poll has it.
fn is_ready(net: Net, listener: &Listener, timeout: Timeout) -> bool {
    let set = PollMemory::new(&[(listener.handle().raw(), POLLIN)]);
    poll(&SOLO, net, set.set(), timeout).expect("open") == 1
}

fn crowd(sim: &Sim, addr: SockAddr, count: usize) -> Vec<Stopped> {
    (0..count).map(|_| stopped(sim, std_addr(addr))).collect()
}

/// Moves a few bytes, and closes both ends.
fn use_up(mut near: Stream, mut far: Stream) {
    exchange(&mut near, &mut far);
    near.close(&SOLO).expect("open");
    far.close(&SOLO).expect("open");
}

#[test]
fn a_stopped_client_holds_up_no_accept() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(101));
        let (a, b) = (hosts.a.net(), hosts.b.net());
        let listener = listen(b, RC);
        let sim = hosts.fabric.host();
        let client = stopped(&sim, std_addr(listener.local_addr()));
        let server = accepting(b, listener.handle());
        hosts.b.world.expect_requests(1);
        let near = opened(a, connecting(a, listener.local_addr()));
        use_up(near, opened(b, server));
        drop(client);
        listener.close(&SOLO).expect("open");
        hosts.end();
    });
}

/// A client for which the card can register no memory waits with its accept, and is served when
/// there is some.
#[test]
fn an_accept_waits_for_memory_that_the_card_can_register() {
    const RING: u64 = 64 << 10;
    bounded(|| {
        // Enough for the rings of one connection and its table.
        let fabric = Fabric::with(FabricSettings { memory_limit: 3 * RING, ..FabricSettings::new(103) });
        let hosts = Hosts::new(fabric);
        let other = Host::new(&hosts.fabric);
        let (a, b, c) = (hosts.a.net(), hosts.b.net(), other.net());
        let options = RC.with_rings(RING, RING);
        let listener = listen(b, options);
        let first = connecting_with(a, listener.local_addr(), options);
        let far = listener.accept(&SOLO).expect("there is memory for one");
        let second = connecting_with(c, listener.local_addr(), options);
        let server = accepting(b, listener.handle());
        hosts.b.world.expect_requests(1);
        assert!(!is_ready(b, &listener, SOON));
        assert!(!server.is_finished() && !second.is_finished());
        use_up(opened(a, first), far);
        use_up(opened(c, second), opened(b, server));
        listener.close(&SOLO).expect("open");
        other.end();
        hosts.end();
    });
}

#[test]
fn only_established_connections_are_ready() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(102));
        let (a, b) = (hosts.a.net(), hosts.b.net());
        let listener = listen(b, RC);
        let sim = hosts.fabric.host();
        let client = stopped(&sim, std_addr(listener.local_addr()));
        // Behind the one that has stopped.
        let near = connecting(a, listener.local_addr());
        assert!(is_ready(b, &listener, Timeout::NEVER));
        let far = listener.try_accept(&SOLO).expect("it is ready");
        use_up(opened(a, near), far);
        assert!(!is_ready(b, &listener, SOON));
        assert_eq!(listener.try_accept(&SOLO).map(|_| ()), Err(Error::WouldBlock));
        drop(client);
        listener.close(&SOLO).expect("open");
        hosts.end();
    });
}

#[test]
fn a_crowd_of_stopped_clients_exhausts_nothing() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(103));
        let (a, b) = (hosts.a.net(), hosts.b.net());
        let listener = listen(b, RC);
        let sim = hosts.fabric.host();
        let clients = crowd(&sim, listener.local_addr(), 40);
        // Half of the ring memory, and one connection's.
        until("some are answered", || hosts.b.usage().queue_pairs > 1);
        let usage = hosts.b.world.attachment().usage();
        assert!(usage.free_ring_bytes >= usage.ring_bytes / 2 - (1 << 19), "{usage:?}");
        // The host connects to others meanwhile.
        let other = listen(a, RC);
        let far = accepting(a, other.handle());
        let near = opened(b, connecting(b, other.local_addr()));
        use_up(near, opened(a, far));
        other.close(&SOLO).expect("open");
        // And serves who comes behind all of them.
        let near = connecting(a, listener.local_addr());
        let far = listener.accept(&SOLO).expect("accepted");
        use_up(opened(a, near), far);
        drop(clients);
        listener.close(&SOLO).expect("open");
        hosts.end();
    });
}

#[test]
fn a_client_that_has_stopped_is_given_up_in_time() {
    bounded(|| {
        let fabric = Fabric::new(104);
        let host = Host::new(&fabric);
        let listener = listen(host.net(), RC);
        let sim = fabric.host();
        let client = stopped(&sim, std_addr(listener.local_addr()));
        until("it is answered", || host.usage().queue_pairs == 1);
        until("it is given up", || host.usage().queue_pairs == 0);
        drop(client);
        listener.close(&SOLO).expect("open");
        host.end();
    });
}

#[test]
fn an_accept_ends_with_its_listener_whoever_is_in_the_handshake() {
    bounded(|| {
        let fabric = Fabric::new(105);
        let host = Host::with(&fabric, Config { sockets: 8, ..config(&fabric) });
        let other = Host::new(&fabric);
        let (net, sim) = (host.net(), fabric.host());
        let first = listen(net, RC);
        let slot = first.handle().slot();
        let client = stopped(&sim, std_addr(first.local_addr()));
        let accept = accepting(net, first.handle());
        host.world.expect_requests(1);
        until("it is answered", || host.usage().queue_pairs == 1);
        first.close(&SOLO).expect("open");
        // Another listener in its slot, at which a client arrives.
        let mut listeners = Vec::new();
        until("the slot is used again", || {
            listeners.push(listen(net, RC));
            listeners.last().is_some_and(|last| last.handle().slot() == slot)
        });
        let again = listeners.pop().expect("just opened");
        listeners.into_iter().for_each(|listener| listener.close(&SOLO).expect("open"));
        drop(client);
        let near = connecting(other.net(), again.local_addr());
        assert_eq!(accept.join().expect("no panic"), Err(Error::BadHandle));
        let far = again.accept(&SOLO).expect("accepted");
        use_up(opened(other.net(), near), far);
        again.close(&SOLO).expect("open");
        other.end();
        host.end();
    });
}

#[test]
fn a_stopped_client_holds_up_no_client_over_tcp() {
    const AUTO: Options = Options::DEFAULT;
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(108));
        let (a, b) = (hosts.a.net(), hosts.b.net());
        let listener = listen(b, AUTO);
        let sim = hosts.fabric.host();
        let client = stopped(&sim, std_addr(listener.local_addr()));
        let server = accepting(b, listener.handle());
        hosts.b.world.expect_requests(1);
        let near = Stream::connect_with(&SOLO, a, listener.local_addr(), AUTO).expect("connected");
        use_up(near, opened(b, server));
        drop(client);
        listener.close(&SOLO).expect("open");
        hosts.end();
    });
}

#[test]
fn a_client_is_answered_when_rings_come_back() {
    const SMALL: Options = RC.with_rings(4096, 4096);
    bounded(|| {
        let fabric = Fabric::new(109);
        let other = Host::new(&fabric);
        let host = Host::with(&fabric, Config { shared_rings: 16 << 10, ..config(&fabric) });
        let (a, b) = (other.net(), host.net());
        let listener = listen(b, SMALL);
        let mut pairs: Vec<_> = (0..2)
            .map(|_| {
                let near = connecting(a, listener.local_addr());
                let far = listener.accept(&SOLO).expect("accepted");
                (opened(a, near), far)
            })
            .collect();
        let near = connecting(a, listener.local_addr());
        other.world.expect_requests(1);
        assert!(!is_ready(b, &listener, SOON));
        let (first, second) = pairs.pop().expect("two");
        use_up(first, second);
        assert!(is_ready(b, &listener, Timeout::NEVER));
        let far = listener.try_accept(&SOLO).expect("it is ready");
        pairs.push((opened(a, near), far));
        pairs.into_iter().for_each(|(near, far)| use_up(near, far));
        listener.close(&SOLO).expect("open");
        other.end();
        host.end();
    });
}

#[test]
fn what_a_client_sent_before_it_was_accepted_is_delivered() {
    const LEN: usize = 5000;
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(106));
        let (a, b) = (hosts.a.net(), hosts.b.net());
        let listener = listen(b, RC);
        let mut near = opened(a, connecting(a, listener.local_addr()));
        near.send_all(&SOLO, Memory::filled(1, 0, LEN).buffer()).expect("room");
        near.close(&SOLO).expect("open");
        hosts.a.world.expect_all_free();
        let mut far = listener.accept(&SOLO).expect("accepted");
        assert_eq!(receive(&mut far, 1, 0, usize::MAX), (LEN, None));
        far.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        hosts.end();
    });
}

#[test]
fn connections_that_no_accept_has_taken_end_with_their_listener() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(107));
        let (a, b) = (hosts.a.net(), hosts.b.net());
        let listener = listen(b, RC);
        let streams = [(); 3].map(|()| opened(a, connecting(a, listener.local_addr())));
        listener.close(&SOLO).expect("open");
        for mut stream in streams {
            assert_eq!(stream.recv(&SOLO, Memory::new(1).buffer()), Err(Error::ConnectionReset));
            stream.close(&SOLO).expect("open");
        }
        hosts.end();
    });
}
