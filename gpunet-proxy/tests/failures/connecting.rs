//! Connects and binds that cannot be.

use crate::support::client::{FullListener, nobody};
use crate::support::world::{LOOPBACK, listen};
use crate::support::{SOLO, World, bounded, with};
use gpunet_device::{Error, Listener, Options, SockAddr, Stream, Timeout, TransportKind};
use std::net::TcpListener;

fn connect(world: &World, addr: SockAddr, options: Options) -> Result<(), Error> {
    Stream::connect_with(&SOLO, world.net(), addr, options).map(|_| ())
}

#[test]
fn nobody_listens_there() {
    bounded(|| {
        let world = World::new();
        for kind in [TransportKind::Auto, TransportKind::Tcp, TransportKind::Peer] {
            let options = Options::DEFAULT.with_transport(kind);
            assert_eq!(connect(&world, nobody(), options), Err(Error::ConnectionRefused), "{kind:?}");
        }
        // A listener of this proxy that does not serve that transport is nobody, too.
        let tcp_only = listen(world.net(), Options::DEFAULT.with_transport(TransportKind::Tcp));
        let peer = Options::DEFAULT.with_transport(TransportKind::Peer);
        assert_eq!(connect(&world, tcp_only.local_addr(), peer), Err(Error::ConnectionRefused));
        let peer_only = listen(world.net(), peer);
        let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp);
        assert_eq!(connect(&world, peer_only.local_addr(), tcp), Err(Error::ConnectionRefused));
        tcp_only.close(&SOLO).expect("open");
        peer_only.close(&SOLO).expect("open");
        world.end();
    });
}

/// No packet leaves the machine: the loopback's broadcast address and multicast are refused by
/// connect(2) itself, and a link-local address without a link cannot be routed.
#[test]
fn there_is_no_way_there() {
    bounded(|| {
        let world = World::new();
        let broadcast = SockAddr::v4([127, 255, 255, 255], 9);
        assert_eq!(connect(&world, broadcast, Options::DEFAULT), Err(Error::NetworkUnreachable));
        let [mut multicast, mut link_local] = [[0; 16]; 2];
        multicast[..2].copy_from_slice(&[0xff, 0x02]);
        link_local[..2].copy_from_slice(&[0xfe, 0x80]);
        for ip in [multicast, link_local] {
            let error = connect(&world, SockAddr::v6(ip, 9), Options::DEFAULT).expect_err("no way there");
            let expected = [
                Error::NetworkUnreachable,
                Error::HostUnreachable,
                Error::InvalidArgument,
                Error::AddressNotAvailable,
                Error::FamilyNotSupported,
            ];
            assert!(expected.contains(&error), "{error:?}");
        }
        world.end();
    });
}

#[test]
fn an_address_that_is_none() {
    bounded(|| {
        let world = World::new();
        assert_eq!(connect(&world, SockAddr::NONE, Options::DEFAULT), Err(Error::FamilyNotSupported));
        let bound = Listener::bind(&SOLO, world.net(), SockAddr::NONE).map(|_| ());
        assert_eq!(bound, Err(Error::FamilyNotSupported));
        // TEST-NET-3 is nobody's, so it is not this machine's.
        let foreign = Listener::bind(&SOLO, world.net(), SockAddr::v4([203, 0, 113, 77], 0)).map(|_| ());
        assert_eq!(foreign, Err(Error::AddressNotAvailable));
        world.end();
    });
}

#[test]
fn options_that_cannot_be() {
    bounded(|| {
        let world = World::new();
        let wrong = [
            with(Options::DEFAULT, |options| options.send_log2 = 40),
            with(Options::DEFAULT, |options| options.recv_log2 = 3),
            with(Options::DEFAULT, |options| options.transport = 99),
        ];
        for options in wrong {
            assert_eq!(connect(&world, nobody(), options), Err(Error::InvalidArgument));
            let bound = Listener::bind_with(&SOLO, world.net(), LOOPBACK, options, 1).map(|_| ());
            assert_eq!(bound, Err(Error::InvalidArgument));
        }
        world.end();
    });
}

#[test]
fn an_address_in_use() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), Options::DEFAULT);
        let again = Listener::bind(&SOLO, world.net(), listener.local_addr()).map(|_| ());
        assert_eq!(again, Err(Error::AddressInUse));
        let foreign = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let addr = SockAddr::from_std(foreign.local_addr().expect("an address"));
        assert_eq!(Listener::bind(&SOLO, world.net(), addr).map(|_| ()), Err(Error::AddressInUse));
        // The first listener is as good as before.
        let addr = listener.local_addr();
        let net = world.net();
        let client =
            std::thread::spawn(move || Stream::connect(&SOLO, net, addr).and_then(|s| s.close(&SOLO)));
        assert_eq!(listener.accept(&SOLO).and_then(|stream| stream.close(&SOLO)), Ok(()));
        assert_eq!(client.join().expect("no panic"), Ok(()));
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn nobody_answers_in_time() {
    bounded(|| {
        let world = World::new();
        let full = FullListener::new();
        let late = Stream::connect_timeout(&SOLO, world.net(), full.addr, Timeout::ms(50)).map(|_| ());
        assert_eq!(late, Err(Error::TimedOut));
        world.expect_all_free();

        // A peer that does not accept: the connect is taken out of its backlog again.
        let peer = Options::DEFAULT.with_transport(TransportKind::Peer);
        let listener = listen(world.net(), peer);
        let late = connect(&world, listener.local_addr(), peer.with_timeouts(Timeout::ms(2), Timeout::NEVER));
        assert_eq!(late, Err(Error::TimedOut));
        assert_eq!(listener.accept_timeout(&SOLO, Timeout::ms(2)).map(|_| ()), Err(Error::TimedOut));
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn a_full_peer_backlog_refuses() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let peer = Options::DEFAULT.with_transport(TransportKind::Peer);
        let listener = Listener::bind_with(&SOLO, net, LOOPBACK, peer, 1).expect("a free port");
        let addr = listener.local_addr();
        let first = std::thread::spawn(move || Stream::connect_with(&SOLO, net, addr, peer).map(|_| ()));
        crate::support::until("the first waits", || world.attachment().usage().requests == 1);
        assert_eq!(connect(&world, addr, peer), Err(Error::ConnectionRefused));
        // The listener's end is the end of its backlog.
        listener.close(&SOLO).expect("open");
        assert_eq!(first.join().expect("no panic"), Err(Error::ConnectionRefused));
        world.end();
    });
}
