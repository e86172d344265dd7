//! Handles of sockets that were closed, and whose slot another socket has now.

use crate::support::asleep::spawn_asleep;
use crate::support::pair::connect;
use crate::support::world::{Home, listen};
use crate::support::{Case, Memory, PollMemory, SOLO, World, bounded, small};
use gpunet_device::poll::{POLLIN, POLLNVAL};
use gpunet_device::{Error, Handle, Listener, Options, Stream, Timeout, TransportKind, poll};
use gpunet_proxy::Config;

#[test]
fn a_stale_handle_is_refused_and_touches_nobody() {
    bounded(|| {
        let world = World::with(Config { sockets: 1, ..small() });
        let net = world.net();
        let old = listen(net, Options::DEFAULT);
        old.close(&SOLO).expect("open");
        let new = listen(net, Options::DEFAULT);
        assert_eq!(old.handle().slot(), new.handle().slot(), "there is only one");
        assert_ne!(old.handle(), new.handle());

        let bad = Err(Error::BadHandle);
        assert_eq!(Listener::from_handle(&SOLO, net, old.handle()).map(|_| ()), bad);
        assert_eq!(Stream::from_handle(&SOLO, net, old.handle()).map(|_| ()), bad);
        assert_eq!(old.accept(&SOLO).map(|_| ()), bad);
        assert_eq!(old.try_accept(&SOLO).map(|_| ()), bad);
        assert_eq!(old.close(&SOLO), bad);
        let set = PollMemory::new(&[(old.handle().raw(), POLLIN), (new.handle().raw(), POLLIN)]);
        assert_eq!(poll(&SOLO, net, set.set(), Timeout::NEVER), Ok(1));
        assert_eq!((set.found(0), set.found(1)), (POLLNVAL, 0));

        assert!(Listener::from_handle(&SOLO, net, new.handle()).is_ok());
        new.close(&SOLO).expect("untouched");
        assert_eq!(new.close(&SOLO), bad, "closed twice");
        world.end();
    });
}

#[test]
fn handles_that_never_were() {
    bounded(|| {
        let world = World::new();
        for handle in [Handle::new(0, 1), Handle::new(63, 5), Handle::new(64, 1), Handle::new(65_535, 32_767)]
        {
            assert_eq!(Stream::from_handle(&SOLO, world.net(), handle).map(|_| ()), Err(Error::BadHandle));
        }
        world.end();
    });
}

/// The words of a slot's earlier lives say nothing about this one.
#[test]
fn a_reused_slot_starts_afresh() {
    bounded(|| {
        let world = World::with(Config { sockets: 3, ..small() });
        let memory = Memory::new(6);
        for round in 0..30 {
            let transport = if round % 2 == 0 { TransportKind::Tcp } else { TransportKind::Peer };
            // Every third ends by a reset, which leaves an error in the slot's status.
            let linger = if round % 3 == 0 { 0 } else { -1 };
            let case = Case {
                transport,
                lanes: 1,
                placement: Default::default(),
                home: Home::Embedded,
                apart: false,
            };
            let server = |g: &_, mut stream: Stream| {
                assert_eq!(stream.recv_exact(g, memory.buffer().first(5))?, 5);
                let end = stream.recv(g, memory.buffer().skip(5));
                assert!(matches!(end, Ok(0) | Err(Error::ConnectionReset)), "{end:?}");
                stream.close(g)
            };
            let client = |g: &_, mut stream: Stream| {
                stream.send_all(g, b"hello")?;
                // Nothing is left to flush, or the reset would destroy it.
                while stream.out_queue(g)? > 0 {}
                stream.close(g)
            };
            case.pair(&world, case.options().with_linger_ms(linger), server, client);
            world.expect_all_free();
        }
    });
}

/// A group that waits for a stream which another group closes is told so.
#[test]
fn who_waits_hears_of_a_close() {
    bounded(|| {
        for transport in [TransportKind::Tcp, TransportKind::Peer] {
            let world = World::new();
            let net = world.net();
            let options = Options::DEFAULT.with_transport(transport);
            let listener = listen(net, options);
            let [client, server] = connect(net, &listener, options);
            let handle = client.handle();
            let waits = spawn_asleep(move || {
                let mut copy = Stream::from_handle(&SOLO, net, handle)?;
                copy.recv(&SOLO, Memory::new(1).buffer())
            });
            client.close(&SOLO).expect("open");
            assert_eq!(waits.join().expect("no panic"), Err(Error::BadHandle), "{transport:?}");
            server.close(&SOLO).expect("open");
            listener.close(&SOLO).expect("open");
            world.end();
        }
    });
}
