//! Streams between two programs, when the daemon that brought them together ends.

use crate::support::daemon::Served;
use crate::support::pair::pair;
use crate::support::world::LOOPBACK;
use crate::support::{Memory, SOLO, bounded, small, until};
use gpunet_device::{Error, Listener, Options, TransportKind};
use gpunet_proxy::{Attachment, LaunchToken};
use std::time::Duration;

const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer);

fn two(served: &Served) -> [Attachment; 2] {
    [0, 1].map(|_| served.attached())
}

#[test]
fn what_two_programs_share_stays_mapped_when_the_daemon_dies() {
    bounded(|| {
        let mut served = Served::new(small());
        let [here, there] = two(&served);
        let (one, other) = (here.token().expect("a number"), there.token().expect("a number"));
        let [mut client, mut server] = pair(other.net(), one.net(), PEER);
        let (sent, got) = (Memory::filled(3, 0, 100_000), Memory::new(100_000));
        served.kill();
        until("both programs know", || {
            let bind = |token: &LaunchToken| Listener::bind(&SOLO, token.net(), LOOPBACK).err();
            [&one, &other].into_iter().all(|token| bind(token) == Some(Error::NetworkDown))
        });
        client.send_all(&SOLO, sent.buffer()).expect("room in the ring");
        assert_eq!(server.recv_exact(&SOLO, got.buffer()), Ok(100_000));
        assert!(got.holds(0, 100_000, 3, 0));
        assert_eq!(server.recv(&SOLO, got.buffer()), Err(Error::NetworkDown));
        assert_eq!(client.close(&SOLO), Err(Error::NetworkDown));
    });
}

#[test]
fn what_was_sent_is_read_although_the_daemon_closes_both_ends() {
    bounded(|| {
        let mut served = Served::new(small());
        let [here, there] = two(&served);
        let (one, other) = (here.token().expect("a number"), there.token().expect("a number"));
        let [mut client, mut server] = pair(other.net(), one.net(), PEER);
        let (sent, got) = (Memory::filled(4, 0, 100_000), Memory::new(100_000));
        client.send_all(&SOLO, sent.buffer()).expect("room in the ring");
        client.close(&SOLO).expect("open");
        let _ = served.daemon.take().expect("it runs").drain(Duration::from_secs(5));
        assert_eq!(server.recv_exact(&SOLO, got.buffer()), Ok(100_000));
        assert!(got.holds(0, 100_000, 4, 0));
        // The other end was closed in order before.
        assert_eq!(server.recv(&SOLO, got.buffer()), Ok(0));
    });
}

#[test]
fn an_end_that_nobody_meant_is_no_end_of_stream() {
    bounded(|| {
        let mut served = Served::new(small());
        let [here, there] = two(&served);
        let (one, other) = (here.token().expect("a number"), there.token().expect("a number"));
        let [mut client, mut server] = pair(other.net(), one.net(), PEER);
        let (sent, got) = (Memory::filled(4, 0, 100_000), Memory::new(100_000));
        client.send_all(&SOLO, sent.buffer()).expect("room in the ring");
        let _ = served.daemon.take().expect("it runs").drain(Duration::from_secs(5));
        assert_eq!(server.recv_exact(&SOLO, got.buffer()), Ok(100_000));
        assert!(got.holds(0, 100_000, 4, 0));
        let error = server.recv(&SOLO, got.buffer()).expect_err("the sender had not ended");
        assert!(matches!(error, Error::ConnectionReset | Error::NetworkDown), "{error}");
    });
}
