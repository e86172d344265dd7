//! Kernels that return without closing what they opened.

use crate::support::client::{client, read_all};
use crate::support::world::{LOOPBACK, listen};
use crate::support::{Memory, SOLO, World, bounded, until};
use gpunet_device::{Error, Group, Kernel, Listener, Net, Options, Stream, TransportKind};
use gpunet_proxy::{FinishPolicy, KernelError};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};

const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer);

#[test]
fn what_a_launch_left_is_kept_closed_or_reset() {
    bounded(|| {
        for policy in [FinishPolicy::Keep, FinishPolicy::Close, FinishPolicy::Reset] {
            let mut world = World::new();
            let listener = listen(world.net(), Options::DEFAULT);
            let mut peer = client(listener.local_addr());
            let mut stream = listener.accept(&SOLO).expect("accepted");
            stream.send_all(&SOLO, b"data").expect("room");
            let handle = stream.handle();
            assert_eq!(world.relaunch(policy).left_open, 2);
            let again = Stream::from_handle(&SOLO, world.net(), handle);
            match policy {
                FinishPolicy::Keep => {
                    let mut stream = again.expect("kept");
                    stream.send_all(&SOLO, b"more").expect("room");
                    stream.close(&SOLO).expect("open");
                    Listener::from_handle(&SOLO, world.net(), listener.handle())
                        .and_then(|listener| listener.close(&SOLO))
                        .expect("kept");
                }
                // The device's books may still have it, but nobody serves it any more.
                FinishPolicy::Close | FinishPolicy::Reset => {}
            }
            let (bytes, end) = read_all(&mut peer);
            match policy {
                FinishPolicy::Keep => assert!(bytes == b"datamore" && end.is_ok(), "{bytes:?} {end:?}"),
                FinishPolicy::Close => assert!(bytes == b"data" && end.is_ok(), "{bytes:?} {end:?}"),
                FinishPolicy::Reset => {
                    assert_eq!(end.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
                }
            }
            drop(peer);
            world.expect_all_free();
        }
    });
}

#[test]
fn the_direct_peer_of_a_finished_launch_hears_of_it() {
    bounded(|| {
        for policy in [FinishPolicy::Close, FinishPolicy::Reset] {
            let world = World::new();
            let net = world.net();
            let leaver = world.attachment().token().expect("a number");
            let listener = listen(net, PEER);
            let (addr, its_net) = (listener.local_addr(), leaver.net());
            let gone = std::thread::spawn(move || {
                let mut stream = Stream::connect_with(&SOLO, its_net, addr, PEER)?;
                stream.send_all(&SOLO, b"last words")
            });
            let mut stream = listener.accept(&SOLO).expect("accepted");
            assert_eq!(gone.join().expect("no panic"), Ok(()));
            assert_eq!(leaver.finish(policy).left_open, 1);
            let memory = Memory::new(100);
            assert_eq!(stream.recv(&SOLO, memory.buffer()), Ok(10));
            let end = stream.recv(&SOLO, memory.buffer());
            let full = Memory::new(1 << 20);
            let sent = stream.send_all(&SOLO, full.buffer());
            if policy == FinishPolicy::Close {
                assert_eq!((end, sent), (Ok(0), Err(Error::BrokenPipe)));
            } else {
                assert_eq!((end, sent), (Err(Error::ConnectionReset), Err(Error::ConnectionReset)));
            }
            stream.close(&SOLO).expect("open");
            listener.close(&SOLO).expect("open");
            world.end();
        }
    });
}

/// Opens a listener and waits there; panics afterwards if it is told to.
#[derive(Clone, Copy)]
struct Waits {
    net: Net,
    panics: bool,
    ended: &'static AtomicBool,
}

impl Kernel for Waits {
    const ENTRY: &'static str = "waits";
    fn run<G: Group>(self, g: &G) {
        let listener = Listener::bind(g, self.net, LOOPBACK).expect("a free port");
        assert!(!self.panics, "on purpose");
        assert_eq!(listener.accept(g).map(|_| ()), Err(Error::Canceled));
        self.ended.store(true, Ordering::Release);
    }
}

fn flag() -> &'static AtomicBool {
    Box::leak(Box::new(AtomicBool::new(false)))
}

#[test]
fn a_launch_is_cancelled_finished_and_reported() {
    bounded(|| {
        for threads in [1, 3] {
            let world = World::new();
            let program = world.attachment().load("", threads).expect("nothing to load");
            let ended = flag();
            let make = |net| Waits { net, panics: false, ended };
            // SAFETY: the kernel's parameters hold no addresses but a static's.
            let launch = unsafe { world.attachment().launch(&program, 2, threads, make) };
            let launch = launch.expect("launched");
            until("both blocks wait", || world.attachment().usage().requests == 2);
            assert!(!launch.is_finished().expect("no failure"));
            launch.cancel();
            assert_eq!(launch.finish(FinishPolicy::Close).expect("no failure").left_open, 2);
            assert!(ended.load(Ordering::Acquire));
            world.end();
        }
    });
}

#[test]
fn a_dropped_launch_ends_before_its_attachment_goes() {
    bounded(|| {
        let world = World::new();
        let program = world.attachment().load("", 1).expect("nothing to load");
        let ended = flag();
        let make = |net| Waits { net, panics: false, ended };
        // SAFETY: the kernel's parameters hold no addresses but a static's.
        let launch = unsafe { world.attachment().launch(&program, 1, 1, make) }.expect("launched");
        until("it waits", || world.attachment().usage().requests == 1);
        drop(launch);
        assert!(ended.load(Ordering::Acquire));
        world.end();
    });
}

#[test]
fn a_kernel_that_panics_is_reported_and_its_sockets_are_reset() {
    bounded(|| {
        let world = World::new();
        let program = world.attachment().load("", 1).expect("nothing to load");
        let make = |net| Waits { net, panics: true, ended: flag() };
        // SAFETY: the kernel's parameters hold no addresses but a static's.
        let launch = unsafe { world.attachment().launch(&program, 1, 1, make) }.expect("launched");
        let failed = launch.finish(FinishPolicy::Keep).expect_err("it panicked");
        assert!(matches!(failed, KernelError::Panicked(_)), "{failed}");
        world.end();
    });
}
