//! Tables and slabs that are full, and what frees them.

use crate::support::client::client;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, bounded, small, until, with};
use gpunet_device::{Error, Options, Stream, TransportKind};
use gpunet_proxy::Config;

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
        assert_eq!(gpunet_device::Listener::bind(&SOLO, net, addr).map(|_| ()), full);
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
            assert_eq!(listener.accept_timeout(&SOLO, 1).map(|_| ()), Err(Error::TimedOut));
            let used = gpunet_device::Listener::bind(&SOLO, net, listener.local_addr()).map(|_| ());
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
        // The third stays in the backlog, as often as it is asked for.
        for _ in 0..3 {
            assert_eq!(listener.accept(&SOLO).map(|_| ()), Err(Error::NoBuffers));
            assert_eq!(listener.try_accept(&SOLO).map(|_| ()), Err(Error::NoBuffers));
            assert_eq!(Stream::connect_with(&SOLO, net, addr, options).map(|_| ()), Err(Error::NoBuffers));
        }
        drop(clients);
        first.close(&SOLO).expect("open");
        until("its rings are free", || world.attachment().usage().free_ring_bytes > 0);
        let mut third = listener.accept(&SOLO).expect("accepted");
        let memory = Memory::new(1);
        assert_eq!(third.recv(&SOLO, memory.buffer()), Ok(0), "that client has left long ago");
        for stream in [second, third] {
            stream.close(&SOLO).expect("open");
        }
        listener.close(&SOLO).expect("open");
        world.end();
    });
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
        let first = client();
        let served = listener.accept(&SOLO).expect("accepted");
        let first = first.join().expect("no panic").expect("connected");
        let second = client();
        until("it waits", || world.attachment().usage().requests == 1);
        for _ in 0..3 {
            assert_eq!(listener.accept(&SOLO).map(|_| ()), Err(Error::NoBuffers));
            assert_eq!(world.attachment().usage().requests, 1, "the connect waits on");
        }
        served.close(&SOLO).expect("open");
        Stream::from_handle(&SOLO, net, first).and_then(|s| s.close(&SOLO)).expect("open");
        let served = listener.accept(&SOLO).expect("the rings that came free");
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
            let listener = gpunet_device::Listener::from_handle(&SOLO, net, handle)?;
            listener.accept(&SOLO).and_then(|stream| stream.close(&SOLO))
        };
        let waiting = [std::thread::spawn(accept), std::thread::spawn(accept)];
        until("both wait", || world.attachment().usage().requests == 2);
        assert_eq!(listener.accept_timeout(&SOLO, 5_000_000).map(|_| ()), Err(Error::TimedOut));
        // The slots come free as the requests are answered.
        let _clients = [client(addr), client(addr)];
        for thread in waiting {
            assert_eq!(thread.join().expect("no panic"), Ok(()));
        }
        listener.close(&SOLO).expect("open");
    });
}

/// Blocks that wait to accept can be more than there are control slots; a close gets through all the same.
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
            let listener = gpunet_device::Listener::from_handle(&SOLO, net, handle)?;
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

/// A connect that asks for more than the attachment has is refused, and does not stand in the way of others.
#[test]
fn rings_that_can_never_be_had() {
    bounded(|| {
        let world = World::with(Config { shared_rings: 64 << 10, ..small() });
        let net = world.net();
        let options = Options::DEFAULT.with_rings(16 << 10, 16 << 10);
        let listener = listen(net, options);
        let addr = listener.local_addr();
        let connect = move |options| {
            std::thread::spawn(move || Stream::connect_with(&SOLO, net, addr, options).map(|s| s.handle()))
        };
        let greedy = connect(options.with_rings(64 << 10, 64 << 10));
        until("it waits", || world.attachment().usage().requests == 1);
        let modest = connect(options);
        until("both wait", || world.attachment().usage().requests == 2);
        let served = listener.accept(&SOLO).expect("the one whose rings can be had");
        assert_eq!(greedy.join().expect("no panic"), Err(Error::NoBuffers));
        let modest = modest.join().expect("no panic").expect("connected");
        served.close(&SOLO).expect("open");
        Stream::from_handle(&SOLO, net, modest).and_then(|s| s.close(&SOLO)).expect("open");
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn memory_that_the_machine_does_not_have() {
    bounded(|| {
        let world = World::new();
        for len in [1 << 60, usize::MAX] {
            let error = world.attachment().alloc(len).map(|_| ()).expect_err("no machine has that much");
            assert!(error.to_string().contains("OUT_OF_MEMORY"), "{error}");
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
