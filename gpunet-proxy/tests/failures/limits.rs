//! Tables and slabs that are full, and what frees them.

use crate::support::client::client;
use crate::support::pair::connect;
use crate::support::world::{LOOPBACK, listen};
use crate::support::{Memory, PollMemory, SOLO, World, bounded, small, until, with};
use gpu_usermap::placement::{Placement, PlacementChoice};
use gpunet_core::verbs::sim::Fabric;
use gpunet_device::poll::{POLLIN, poll};
use gpunet_device::{Error, Listener, Net, Options, Stream, Timeout, TransportKind};
use gpunet_proxy::Config;
use gpunet_proxy::config::Rdma;

#[test]
fn a_full_socket_table() {
    bounded(|| {
        let world = World::with(Config { sockets: 4, ..small() });
        let net = world.net();
        let mut listeners: Vec<_> = (0..3).map(|_| listen(net, Options::DEFAULT)).collect();
        let addr = listeners[0].local_addr();
        let _client = client(addr);
        let stream = listeners[0].accept(&SOLO).expect("the last slot");
        // Bind, connect and accept all need a slot; what waits in the backlog stays there.
        let _second = client(addr);
        let full = Err(Error::TooManySockets);
        assert_eq!(Listener::bind(&SOLO, net, addr).map(|_| ()), full);
        assert_eq!(Stream::connect(&SOLO, net, addr).map(|_| ()), full);
        assert_eq!(listeners[0].accept(&SOLO).map(|_| ()), full);
        listeners.pop().expect("a listener").close(&SOLO).expect("open");
        let second = listeners[0].accept(&SOLO).expect("the slot that came free");
        for stream in [stream, second] {
            stream.close(&SOLO).expect("open");
        }
        for listener in listeners {
            listener.close(&SOLO).expect("open");
        }
    });
}

/// Refused requests give their slot back: far more of them than there are slots.
#[test]
fn refused_requests_cost_no_slot() {
    bounded(|| {
        let world = World::with(Config { sockets: 4, ..small() });
        let net = world.net();
        let closed = listen(net, Options::DEFAULT);
        closed.close(&SOLO).expect("open");
        let listener = listen(net, Options::DEFAULT);
        let wrong = with(Options::DEFAULT, |options| options.transport = 99);
        for _ in 0..50 {
            let refused = Stream::connect_with(&SOLO, net, listener.local_addr(), wrong).map(|_| ());
            assert_eq!(refused, Err(Error::InvalidArgument));
            assert_eq!(closed.accept(&SOLO).map(|_| ()), Err(Error::BadHandle));
            assert_eq!(listener.accept_timeout(&SOLO, Timeout::ns(1)).map(|_| ()), Err(Error::TimedOut));
            let used = Listener::bind(&SOLO, net, listener.local_addr()).map(|_| ());
            assert_eq!(used, Err(Error::AddressInUse));
        }
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn a_full_slab_and_tcp() {
    bounded(|| {
        // Two streams' worth of rings.
        let world = World::with(Config { shared_rings: 64 << 10, ..small() });
        let net = world.net();
        let options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(16 << 10, 16 << 10);
        let listener = listen(net, options);
        let addr = listener.local_addr();
        let clients: Vec<_> = (0..3).map(|_| client(addr)).collect();
        let first = listener.accept(&SOLO).expect("accepted");
        let second = listener.accept(&SOLO).expect("accepted");
        // The third stays in the backlog. Who cannot wait is told why, and then there is nothing to
        // poll for.
        refuses_until_not_ready(net, &listener);
        for _ in 0..3 {
            assert_eq!(listener.accept_timeout(&SOLO, Timeout::ms(1)).map(|_| ()), Err(Error::TimedOut));
            assert_eq!(Stream::connect_with(&SOLO, net, addr, options).map(|_| ()), Err(Error::NoBuffers));
        }
        drop(clients);
        // Who can wait is served when the rings of another stream are free.
        let third = accept_in_thread(net, &listener);
        world.expect_requests(1);
        first.close(&SOLO).expect("open");
        let mut third = third();
        let memory = Memory::new(1);
        assert_eq!(third.recv(&SOLO, memory.buffer()), Ok(0), "that client has left long ago");
        for stream in [second, third] {
            stream.close(&SOLO).expect("open");
        }
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

/// What waits at the listener finds no rings: a call that cannot wait says so, and a poll finds
/// nothing then.
fn refuses_until_not_ready(net: Net, listener: &Listener) {
    let mut refused = false;
    let set = PollMemory::new(&[(listener.handle().raw(), POLLIN)]);
    until("the listener is not ready", || {
        match listener.try_accept(&SOLO).map(|_| ()) {
            Err(Error::NoBuffers) => refused = true,
            // It was not ready.
            other => assert_eq!(other, Err(Error::WouldBlock)),
        }
        refused && poll(&SOLO, net, set.set(), Timeout::NON_BLOCKING) == Ok(0)
    });
}

/// Accepts in another thread, as long as it takes.
fn accept_in_thread(net: Net, listener: &Listener) -> impl FnOnce() -> Stream {
    let handle = listener.handle();
    let accept =
        move || Listener::from_handle(&SOLO, net, handle)?.accept(&SOLO).map(|stream| stream.handle());
    let thread = std::thread::spawn(accept);
    move || {
        let accepted = thread.join().expect("no panic").expect("accepted");
        Stream::from_handle(&SOLO, net, accepted).expect("open")
    }
}

#[test]
fn a_full_slab_and_direct_streams() {
    bounded(|| {
        let world = World::with(Config { shared_rings: 64 << 10, ..small() });
        let net = world.net();
        let options = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(16 << 10, 32 << 10);
        let listener = listen(net, options);
        let addr = listener.local_addr();
        let client = || {
            std::thread::spawn(move || {
                Stream::connect_with(&SOLO, net, addr, options).map(|stream| stream.handle())
            })
        };
        // Each direction has one ring, the larger of what the two ends ask for: one pair fits.
        let [first, served] = connect(net, &listener, options);
        let first = first.handle();
        let second = client();
        until("it waits", || world.attachment().usage().requests == 1);
        refuses_until_not_ready(net, &listener);
        assert_eq!(listener.accept_timeout(&SOLO, Timeout::ms(1)).map(|_| ()), Err(Error::TimedOut));
        assert_eq!(world.attachment().usage().requests, 1, "the connect waits on");
        let waiting = accept_in_thread(net, &listener);
        world.expect_requests(2);
        served.close(&SOLO).expect("open");
        Stream::from_handle(&SOLO, net, first).and_then(|s| s.close(&SOLO)).expect("open");
        // The rings that came free.
        let served = waiting();
        let second = second.join().expect("no panic").expect("connected");
        served.close(&SOLO).expect("open");
        Stream::from_handle(&SOLO, net, second).and_then(|s| s.close(&SOLO)).expect("open");
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn all_control_slots_taken() {
    bounded(|| {
        let world = World::with(Config { controls: 2, ..small() });
        let net = world.net();
        let listener = listen(net, Options::DEFAULT.with_transport(TransportKind::Tcp));
        let (addr, handle) = (listener.local_addr(), listener.handle());
        let accept = move || {
            let listener = Listener::from_handle(&SOLO, net, handle)?;
            listener.accept(&SOLO).and_then(|stream| stream.close(&SOLO))
        };
        let waiting = [std::thread::spawn(accept), std::thread::spawn(accept)];
        until("both wait", || world.attachment().usage().requests == 2);
        assert_eq!(listener.accept_timeout(&SOLO, Timeout::ms(5)).map(|_| ()), Err(Error::TimedOut));
        // The slots come free as the requests are answered.
        let _clients = [client(addr), client(addr)];
        for thread in waiting {
            assert_eq!(thread.join().expect("no panic"), Ok(()));
        }
        listener.close(&SOLO).expect("open");
    });
}

/// Blocks that wait to accept can be more than there are control slots; a close gets through all
/// the same.
#[test]
fn a_close_does_not_wait_for_those_who_accept() {
    bounded(|| {
        const CONTROLS: u32 = 4;
        let world = World::with(Config { controls: CONTROLS, ..small() });
        let net = world.net();
        let spare = listen(net, Options::DEFAULT);
        let listener = listen(net, Options::DEFAULT.with_transport(TransportKind::Tcp));
        let (addr, handle) = (listener.local_addr(), listener.handle());
        let accept = move || {
            let listener = Listener::from_handle(&SOLO, net, handle)?;
            listener.accept(&SOLO).and_then(|stream| stream.close(&SOLO))
        };
        let waiting: Vec<_> = (0..2 * CONTROLS).map(|_| std::thread::spawn(accept)).collect();
        until("as many as may wait", || world.attachment().usage().requests == CONTROLS as usize - 1);
        assert_eq!(spare.close(&SOLO), Ok(()));
        let clients: Vec<_> = waiting.iter().map(|_| client(addr)).collect();
        for thread in waiting {
            assert_eq!(
                thread.join().expect("no panic"),
                Ok(()),
                "accepted, and closed beside those who wait"
            );
        }
        drop(clients);
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

/// Rings that the attachment has not, whoever gives back what: the caller hears it at once, not
/// when a connection waits for them.
#[test]
fn rings_that_can_never_be_had() {
    bounded(|| {
        let world = World::with(Config { shared_rings: 16 << 20, ..small() });
        let net = world.net();
        let never = Err(Error::NoBuffers);
        let bind = |options| Listener::bind_with(&SOLO, net, LOOPBACK, options, 1);
        // Ring memory is still being made, but there will never be more than these.
        for transport in [TransportKind::Auto, TransportKind::Tcp] {
            let most = Options::DEFAULT.with_transport(transport).with_rings(8 << 20, 8 << 20);
            bind(most).expect("they can be had").close(&SOLO).expect("open");
            assert_eq!(bind(most.with_rings(16 << 20, 4096)).map(|_| ()), never);
            assert_eq!(bind(most.with_rings(16 << 20, 16 << 20)).map(|_| ()), never);
        }
        // Nobody ever accepts here: a connect that can be served would wait for ever.
        let listener = listen(net, Options::DEFAULT);
        let addr = listener.local_addr();
        for transport in [TransportKind::Auto, TransportKind::Peer, TransportKind::Tcp] {
            let options = Options::DEFAULT.with_transport(transport).with_rings(16 << 20, 16 << 20);
            assert_eq!(Stream::connect_with(&SOLO, net, addr, options).map(|_| ()), never, "{transport:?}");
        }
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

/// A listener for streams through memory serves other attachments in memory of each pair: only its
/// own cannot connect.
#[test]
fn rings_that_only_others_can_have() {
    bounded(|| {
        let world = World::with(Config { shared_rings: 16 << 20, ..small() });
        let other = World::beside(&world);
        let large = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(16 << 20, 16 << 20);
        let listener = listen(world.net(), large);
        let addr = listener.local_addr();
        let own = Stream::connect_with(&SOLO, world.net(), addr, large.with_rings(4096, 4096)).map(|_| ());
        assert_eq!(own, Err(Error::NoBuffers));
        let there = other.net();
        let client =
            std::thread::spawn(move || Stream::connect_with(&SOLO, there, addr, large)?.close(&SOLO));
        listener.accept(&SOLO).and_then(|stream| stream.close(&SOLO)).expect("accepted");
        assert_eq!(client.join().expect("no panic"), Ok(()));
        listener.close(&SOLO).expect("open");
        other.end();
        world.end();
    });
}

/// The rings of rc lie in the device's own memory where a network card reaches it: that is what
/// they have to fit into.
#[test]
fn rings_that_device_memory_can_never_hold() {
    bounded(|| {
        let rdma = Rdma::Simulated(Fabric::new(17));
        let placement = PlacementChoice::Only(Placement::GpuDmaBuf);
        let world = World::with(Config { rdma, placement, device_rings: 64 << 10, ..small() });
        let rc = Options::DEFAULT.with_transport(TransportKind::Rc).with_rings(64 << 10, 64 << 10);
        let bind = |options| Listener::bind_with(&SOLO, world.net(), LOOPBACK, options, 1);
        assert_eq!(bind(rc).map(|_| ()), Err(Error::NoBuffers));
        bind(rc.with_rings(32 << 10, 32 << 10)).expect("they can be had").close(&SOLO).expect("open");
        // Over TCP they can be had: the listener goes without rc.
        bind(rc.with_transport(TransportKind::Auto)).expect("by TCP").close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn memory_that_the_machine_does_not_have() {
    bounded(|| {
        let world = World::new();
        for len in [1 << 60, usize::MAX] {
            let error = world.attachment().alloc(len).map(|_| ()).expect_err("no machine has that much");
            let said = error.to_string();
            assert!(said.contains(&format!("{len} bytes")) && !said.contains("CUDA"), "{said}");
        }
        world.end();
    });
}

#[test]
fn all_launch_numbers_taken() {
    bounded(|| {
        let world = World::new();
        let tokens: Vec<_> = (1..64).map(|_| world.attachment().token().expect("a number")).collect();
        assert!(world.attachment().token().is_err());
        drop(tokens);
        assert!(world.attachment().token().is_ok());
        world.end();
    });
}
