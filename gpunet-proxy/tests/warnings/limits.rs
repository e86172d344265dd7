//! Ring memory and socket slots that are used up.

use crate::lines;
use crate::support::client::{client, std_addr};
use crate::support::world::{LOOPBACK, listen};
use crate::support::{SOLO, World, bounded, small, until};
use gpunet_device::{Error, Listener, Options, Stream, Timeout, TransportKind};
use gpunet_proxy::Config;

/// The address of a listener as the log has it.
fn at(listener: &Listener) -> String {
    std_addr(listener.local_addr()).to_string()
}

#[test]
fn accepts_that_wait_for_rings() {
    bounded(|| {
        lines::keep();
        let world = World::with(Config { shared_rings: 32 << 10, ..small() });
        let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(16 << 10, 16 << 10);
        let listener = listen(world.net(), tcp);
        let _clients: Vec<_> = (0..4).map(|_| client(listener.local_addr())).collect();
        let stream = listener.accept(&SOLO).expect("accepted");
        for _ in 0..20 {
            assert_eq!(listener.accept_timeout(&SOLO, Timeout::ms(1)).map(|_| ()), Err(Error::TimedOut));
            assert!(listener.try_accept(&SOLO).is_err());
        }
        let said = lines::with(&[&at(&listener)]);
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].contains("32768 bytes of ring memory; raise the setting shared_rings"), "{said:?}");
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
    });
}

#[test]
fn connects_that_find_no_rings() {
    bounded(|| {
        lines::keep();
        let world = World::with(Config { shared_rings: 40 << 10, ..small() });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let large = Options::DEFAULT.with_rings(32 << 10, 32 << 10);
        for _ in 0..3 {
            let refused = Stream::connect_with(&SOLO, world.net(), addr.into(), large).map(|_| ());
            assert_eq!(refused, Err(Error::NoBuffers));
        }
        let said = lines::with(&["40960 bytes of ring memory", "raise the setting shared_rings"]);
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].contains(&format!("cannot connect to {addr}")), "{said:?}");
    });
}

#[test]
fn a_bind_with_rings_that_can_never_be_had() {
    bounded(|| {
        lines::keep();
        let world = World::with(Config { shared_rings: 20 << 10, ..small() });
        let large = Options::DEFAULT.with_rings(16 << 10, 16 << 10);
        for _ in 0..3 {
            let refused = Listener::bind_with(&SOLO, world.net(), LOOPBACK, large, 1).map(|_| ());
            assert_eq!(refused, Err(Error::NoBuffers));
        }
        let said = lines::with(&["20480 bytes of ring memory", "raise the setting shared_rings"]);
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].contains("cannot listen at 127.0.0.1:"), "{said:?}");
    });
}

#[test]
fn connections_that_wait_for_a_socket_slot() {
    bounded(|| {
        lines::keep();
        let world = World::with(Config { sockets: 3, ..small() });
        let listener = listen(world.net(), Options::DEFAULT.with_transport(TransportKind::Tcp));
        let _clients: Vec<_> = (0..5).map(|_| client(listener.local_addr())).collect();
        let streams = [(); 2].map(|()| listener.accept(&SOLO).expect("accepted"));
        // The device finds no slot, and so the proxy is not asked.
        for _ in 0..20 {
            assert_eq!(listener.accept(&SOLO).map(|_| ()), Err(Error::TooManySockets));
        }
        until("the log says so", || !lines::with(&[&at(&listener)]).is_empty());
        let said = lines::with(&[&at(&listener)]);
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].contains("3 socket slots are in use; raise the setting sockets"), "{said:?}");
        for stream in streams {
            stream.close(&SOLO).expect("open");
        }
        listener.close(&SOLO).expect("open");
    });
}
