//! Clients that want to hold up the daemon: each gets no further than itself.

use crate::raw::{AgentAnswer, Device, First, Raw, ToDaemon, Want, Wish, bytes, hello, wish};
use crate::support::daemon::{Served, TempDir, listener};
use crate::support::world::LOOPBACK;
use crate::support::{HANG, SOLO, bounded, small, until};
use gpunet_device::abi::control::{Op, Request};
use gpunet_device::{Error, Listener, Options};
use gpunet_proxy::access::Access;
use gpunet_proxy::{attach, daemon};
use rustix::net::sockopt::set_socket_linger;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

/// A descriptor that takes an hour to close, once it is the last: a TCP socket that lingers, with data that its peer
/// does not read.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (far, _) = listener.accept().expect("a connection");
    near.set_nonblocking(true).expect("a socket");
    while near.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&near, Some(Duration::from_secs(3600))).expect("a socket");
    (near, far)
}

/// Sends something with the last descriptor of a socket that lingers, and returns the socket's other end.
fn send_lingering(raw: &Raw, bytes: &[u8]) -> TcpStream {
    let (near, far) = lingering();
    // Where the kernel can refuse descriptors for the daemon, the client hears of it.
    let sent = raw.send_with(bytes, &[near.as_fd()]);
    assert!(sent.as_ref().err().is_none_or(|error| error.raw_os_error() == Some(1)), "{sent:?}");
    if sent.is_err() {
        set_socket_linger(&near, None).expect("a socket");
    }
    far
}

#[test]
fn a_descriptor_that_lingers_holds_up_nobody() {
    bounded(|| {
        let dir = TempDir::new();
        let path = dir.path().join("sock");
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
        let gpu = Device::Cuda { name: "a GPU".into(), uuid: [0; 16], shareable: true };
        let raw = Raw::connect(&path);
        raw.send(&hello(&Want::Attach(Wish { device: gpu, ..wish() })));
        assert!(matches!(raw.first(), Some(First::Welcome { .. })));
        far.push(send_lingering(&raw, &bytes(&ToDaemon::Agent(AgentAnswer::Provided { arena: 0, len: 1 }))));
        far.push(send_lingering(&raw, b"y"));
        drop((raw, early));
        let proxy = attach(&path, small()).expect("it answers");
        let attachment = proxy.attach_cpu().expect("attached");
        assert_eq!(attachment.close().undelivered, 0);
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
        let raw = Raw::connect(&served.path);
        raw.send(&hello(&Want::Attach(Wish { sockets: 1024, ..wish() })));
        assert!(matches!(raw.first(), Some(First::Welcome { .. })));
        let ask = |number: u32, request: &Request| {
            raw.send(&bytes(&ToDaemon::Ask { number: (1 << 31) + number, request: request_bytes(request) }));
        };
        let mut bind = Request::new(Op::Bind, 0, 1, 0);
        (bind.flags, bind.address) = (Request::LISTEN, LOOPBACK);
        bind.options = Options::DEFAULT.with_rings(4096, 4096);
        ask(0, &bind);
        assert!(raw.next().is_some());
        for target in 1..=WAITING {
            let mut accept = Request::new(Op::Accept, 0, 1, 0);
            (accept.target, accept.target_generation) = (target, 1);
            ask(target, &accept);
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

fn request_bytes(request: &Request) -> Vec<u8> {
    // SAFETY: plain integers without padding, which the ABI's own tests check.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(request).cast::<u8>(), size_of::<Request>()) }
        .to_vec()
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
                let attaching = scope.spawn(|| served.attach(small()).attach_cpu().expect("attached"));
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
