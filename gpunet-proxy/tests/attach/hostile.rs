//! Clients that want to hold up the daemon: each gets no further than itself.

use crate::raw::{AgentAnswer, First, Raw, ToDaemon, Want, Wish, bytes, hello, wish};
use crate::support::daemon::{Served, TempDir, listener};
use crate::support::world::LOOPBACK;
use crate::support::{HANG, SOLO, bounded, pauses_seed, small, until};
use gpunet_device::abi::SockAddr;
use gpunet_device::abi::control::{Op, Request};
use gpunet_device::{Error, Listener, Options, TransportKind};
use gpunet_proxy::access::Access;
use gpunet_proxy::snapshot::State;
use gpunet_proxy::{attach, daemon};
use rustix::net::sockopt::set_socket_linger;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Connects in a large backlog. Under pauses each takes a while.
fn connects() -> u32 {
    if pauses_seed().is_some() { 1500 } else { 60_000 }
}

/// A client with many sockets.
fn large(served: &Served) -> Raw {
    let raw = Raw::connect(&served.path);
    raw.send(&hello(&Want::Attach(Wish { sockets: (connects() + 1).next_power_of_two(), ..wish() })));
    assert!(matches!(raw.first(), Some(First::Welcome { .. })));
    raw
}

/// Has a client listen in its slot 0, with small rings, and returns the address.
fn listen(raw: &Raw) -> SockAddr {
    let mut bind = Request::new(Op::Bind, 0, 1, 0);
    (bind.flags, bind.backlog, bind.address) = (Request::LISTEN, u32::MAX, LOOPBACK);
    bind.options = PEER;
    raw.ask(0, &bind);
    let reply = raw.reply();
    assert_eq!(reply.errno, 0);
    reply.descriptor.local
}

const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(4096, 4096);

/// A descriptor that takes an hour to close, once it is the last: a TCP socket that lingers, with
/// data that its peer does not read.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (far, _) = listener.accept().expect("a connection");
    near.set_nonblocking(true).expect("a socket");
    while near.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&near, Some(Duration::from_secs(3600))).expect("a socket");
    (near, far)
}

/// Sends something with the last descriptor of a socket that lingers, and returns the socket's
/// other end.
fn send_lingering(raw: &Raw, bytes: &[u8]) -> TcpStream {
    let (near, far) = lingering();
    // Where the kernel can refuse descriptors for the daemon, the client hears of it.
    if !raw.offer(bytes, &[near.as_fd()]) {
        set_socket_linger(&near, None).expect("a socket");
    }
    far
}

#[test]
fn a_descriptor_that_lingers_holds_up_nobody() {
    bounded(|| {
        let dir = TempDir::new();
        let path = dir.join("sock");
        let listener = listener(&path);
        // Those that come before the daemon can send whatever the kernel.
        let early: Vec<_> = (0..6).map(|_| Raw::connect(&path)).collect();
        let mut far: Vec<_> = early.iter().map(|raw| send_lingering(raw, b"x")).collect();
        // And behind something else.
        far.push({
            let raw = Raw::connect(&path);
            raw.send(&[0; 9]);
            send_lingering(&raw, b"")
        });
        let daemon = daemon::start(listener, small(), Access::default()).expect("a daemon");
        early.iter().for_each(Raw::expect_closed);
        // Those that come later.
        let late = Raw::connect(&path);
        far.push(send_lingering(&late, b"x"));
        drop(late);
        // Those that are let in, and may send descriptors.
        let raw = Raw::attached_gpu(&path);
        far.push(send_lingering(&raw, &bytes(&ToDaemon::Agent(AgentAnswer::Provided { arena: 0, len: 1 }))));
        far.push(send_lingering(&raw, b"y"));
        drop((raw, early));
        let proxy = attach(&path, small()).expect("it answers");
        let attachment = proxy.attach_cpu().expect("attached");
        assert_eq!(attachment.close().undelivered, 0);
        // The one whose descriptor is not taken in time has been cut.
        until("nobody is left", || daemon.snapshot().is_some_and(|now| now.clients.is_empty()));
        assert!(daemon.is_alive());
        let _ = daemon.drain(HANG / 4);
        // Their peers are gone as well: nothing lingers beyond the test.
        drop(far);
    });
}

#[test]
fn a_client_that_detaches_and_does_not_read_ends_with_the_daemon() {
    bounded(|| {
        const WAITING: u32 = 900;
        let mut served = Served::new(small());
        let raw = large(&served);
        listen(&raw);
        for target in 1..=WAITING {
            let mut accept = Request::new(Op::Accept, 0, 1, 0);
            (accept.target, accept.target_generation) = (target, 1);
            raw.ask(target, &accept);
        }
        // All of them are answered now, and nobody reads it.
        raw.send(&bytes(&ToDaemon::Detach));
        until("it is detached", || {
            served.daemon().snapshot().is_some_and(|now| now.clients.is_empty() && now.sockets.is_empty())
        });
        let _ = served.daemon.take().expect("it runs").drain(Duration::from_secs(1));
        drop(raw);
    });
}

/// Attacks a daemon, which takes turns all the time.
fn alive_during(served: &Served, attack: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert!(served.daemon().is_alive());
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        attack();
        over.store(true, Ordering::Relaxed);
    });
}

/// The backlog of one listener is closed, while others bind and close.
#[test]
fn a_large_backlog_is_refused_while_others_are_served() {
    bounded(|| {
        let rules = format!("[user.{}]\nconnects_per_second = 1000000", rustix::process::getuid().as_raw());
        let served = Served::with(small(), toml::from_str(&rules).expect("rules"));
        let attachment = served.attached();
        let token = attachment.token().expect("a number");
        let bind = || {
            let own = Listener::bind(&SOLO, token.net(), LOOPBACK).expect("served, and no ENETDOWN");
            own.close(&SOLO).expect("open");
        };
        alive_during(&served, || {
            let raw = large(&served);
            let addr = listen(&raw);
            for slot in 1..=connects() {
                let mut connect = Request::new(Op::Connect, slot, 1, 0);
                (connect.address, connect.options) = (addr, PEER);
                raw.ask(slot, &connect);
            }
            until("all of them wait", || {
                let sockets = served.daemon().snapshot().expect("it answers").sockets;
                let waiting = sockets.iter().find(|socket| socket.state == State::Listen);
                waiting.is_some_and(|socket| socket.waiting == u64::from(connects()))
            });
            raw.ask(0, &Request::new(Op::Close, 0, 1, 0));
            // The close is answered, too.
            for answered in 0..=connects() {
                assert!(raw.next().is_some());
                if answered % 100 == 0 {
                    bind();
                }
            }
            drop(raw);
            served.expect_clients(1);
        });
    });
}

#[test]
fn limits_that_change_during_an_attach_count() {
    bounded(|| {
        let served = Served::new(small());
        let rules = |sockets: u32| -> Access {
            let user = rustix::process::getuid().as_raw();
            toml::from_str(&format!("[user.{user}]\nsockets = {sockets}")).expect("rules")
        };
        for _ in 0..40 {
            served.daemon().set_access(rules(1000));
            let attaching = std::thread::scope(|scope| {
                let attaching = scope.spawn(|| served.attached());
                std::thread::sleep(Duration::from_micros(500));
                served.daemon().set_access(rules(1));
                attaching.join().expect("no panic")
            });
            let token = attaching.token().expect("a number");
            let _first = Listener::bind(&SOLO, token.net(), LOOPBACK).expect("one is allowed");
            until("the new limit counts", || match Listener::bind(&SOLO, token.net(), LOOPBACK) {
                Err(Error::TooManySockets) => true,
                Err(error) => panic!("{error}"),
                Ok(second) => {
                    second.close(&SOLO).expect("open");
                    false
                }
            });
        }
    });
}
