//! Streams that close before their peer has everything: the log says which, and how much was lost.

use crate::lines;
use crate::support::client::narrow_client;
use crate::support::pair::connect;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, bounded, small};
use gpunet_device::{Options, Timeout, TransportKind};

const LOST: &str = "closed before everything was delivered";

#[test]
fn a_tcp_stream_names_its_peer() {
    bounded(|| {
        lines::keep();
        let world = World::with(small());
        let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp).with_linger_ms(1);
        let listener = listen(world.net(), tcp);
        let client = narrow_client(listener.local_addr());
        let mut stream = listener.accept(&SOLO).expect("accepted");
        let piece = Memory::new(1 << 16);
        while stream.sender().send_timeout(&SOLO, piece.buffer(), Timeout::ms(50)).is_ok() {}
        let slot = stream.handle().slot();
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
        let (peer, lost) = (client.local_addr().expect("an address"), world.attachment().stats().undelivered);
        let said = lines::with(&[LOST, &format!("peer={peer}")]);
        assert_eq!(said.len(), 1, "{said:#?}");
        let words = [format!("slot={slot}"), "kind=Tcp".to_owned(), format!("undelivered={lost}")];
        assert!(words.iter().all(|word| said[0].contains(word)), "{said:?}");
    });
}

#[test]
fn a_direct_stream_names_its_peer() {
    bounded(|| {
        lines::keep();
        let world = World::new();
        let net = world.net();
        let peer = Options::DEFAULT.with_transport(TransportKind::Peer);
        let listener = listen(net, peer);
        let [mut client, server] = connect(net, &listener, peer);
        server.close(&SOLO).expect("open");
        client.send_all(&SOLO, b"anyone?").expect("room");
        let (slot, at) = (client.handle().slot(), client.peer_addr().to_std().expect("an address"));
        client.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
        let said = lines::with(&[LOST, &format!("peer={at}")]);
        assert_eq!(said.len(), 1, "{said:#?}");
        let words = [format!("slot={slot}"), "kind=Peer".to_owned(), "undelivered=7".to_owned()];
        assert!(words.iter().all(|word| said[0].contains(word)), "{said:?}");
    });
}
