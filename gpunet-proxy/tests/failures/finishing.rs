//! Kernels that return without closing what they opened.

use crate::support::asleep::spawn_asleep;
use crate::support::client::{client, read_all};
use crate::support::pair::connect;
use crate::support::world::{LOOPBACK, listen};
use crate::support::{Memory, PollMemory, SOLO, World, bounded, small, until};
use gpunet_device::poll::{POLLIN, POLLNVAL};
use gpunet_device::{
    Error, Group, Handle, Kernel, Listener, Net, Options, SendHalf, Stream, Timeout, TransportKind, poll,
};
use gpunet_posix as posix;
use gpunet_proxy::{Config, FinishPolicy, KernelError};
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
                FinishPolicy::Close | FinishPolicy::Reset => {
                    assert_eq!(again.err(), Some(Error::BadHandle));
                    let listener = Listener::from_handle(&SOLO, world.net(), listener.handle());
                    assert_eq!(listener.err(), Some(Error::BadHandle));
                }
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

/// Block 0 serves a client and panics; the others wait for ever.
#[derive(Clone, Copy)]
struct OneFails {
    net: Net,
    listener: Handle,
}

impl Kernel for OneFails {
    const ENTRY: &'static str = "one_fails";
    fn run<G: Group>(self, g: &G) {
        if g.index() == 0 {
            let listener = Listener::from_handle(g, self.net, self.listener).expect("kept");
            let _stream = listener.accept(g).expect("the client's");
            panic!("block {} has had enough", g.index());
        }
        let listener = Listener::bind(g, self.net, LOOPBACK).expect("a free port");
        assert_eq!(listener.accept(g).map(|_| ()), Err(Error::Canceled));
    }
}

/// A panic ends the launch at once, whether or not its host looks: clients see a reset, other
/// blocks' waits end, and whoever asks is told where and why.
#[test]
fn a_panic_of_one_block_ends_the_launch_at_once() {
    bounded(|| {
        for threads in [1, 3] {
            let world = World::new();
            let listener = listen(world.net(), Options::DEFAULT);
            let program = world.attachment().load("", threads).expect("nothing to load");
            let handle = listener.handle();
            let make = |net| OneFails { net, listener: handle };
            // SAFETY: the kernel's parameters hold no addresses.
            let launch = unsafe { world.attachment().launch(&program, 3, threads, make) }.expect("launched");
            world.expect_requests(3);
            let mut peer = client(listener.local_addr());
            // Nobody has asked for the launch's state yet.
            let (_, end) = read_all(&mut peer);
            assert_eq!(end.expect_err("a reset").kind(), ErrorKind::ConnectionReset);
            until("the other blocks' listeners are closed", || {
                let usage = world.attachment().usage();
                usage.requests == 0
            });
            let failed = launch.wait_timeout(std::time::Duration::ZERO).expect_err("it panicked");
            let text = failed.to_string();
            assert!(text.contains("gpunet-block-0"), "{text}");
            assert!(text.contains("finishing.rs") && text.contains("block 0 has had enough"), "{text}");
            let failed = launch.finish(FinishPolicy::Close).expect_err("it panicked");
            assert_eq!(failed.to_string(), text);
            listener.close(&SOLO).expect("the other launch's");
            world.end();
        }
    });
}

/// What a handle is good for, by block, by C handle, and in a poll.
fn expect_dead(net: Net, handle: Handle) {
    let bad = Err(Error::BadHandle);
    assert_eq!(Stream::from_handle(&SOLO, net, handle).map(|_| ()), bad);
    assert_eq!(SendHalf::from_handle(&SOLO, net, handle).map(|_| ()), bad);
    // SAFETY: a byte of this program.
    let sent = unsafe { posix::send::send(&SOLO, net, handle.raw(), b"x".as_ptr(), 1, 0) };
    assert_eq!(sent, Err(Error::BadHandle));
    assert_eq!(posix::close::close(&SOLO, net, handle.raw()), Err(Error::BadHandle));
    let set = PollMemory::new(&[(handle.raw(), POLLIN)]);
    assert_eq!((poll(&SOLO, net, set.set(), Timeout::NON_BLOCKING), set.found(0)), (Ok(1), POLLNVAL));
}

/// The handle of a stream that was closed for a launch that has ended must not reach into the rings
/// of the stream that has them next.
#[test]
fn a_stream_that_is_closed_for_its_launch_is_dead_before_its_rings_are_another_s() {
    bounded(|| {
        for transport in [TransportKind::Tcp, TransportKind::Peer] {
            for policy in [FinishPolicy::Close, FinishPolicy::Reset] {
                // Room for the two ends of one stream: over TCP each has rings of its own.
                let options = Options::DEFAULT.with_transport(transport).with_rings(64 << 10, 64 << 10);
                let rings = if transport == TransportKind::Tcp { 256 << 10 } else { 128 << 10 };
                let world = World::with(Config { shared_rings: rings, ..small() });
                let net = world.net();
                let leaver = world.attachment().token().expect("a number");
                let listener = listen(net, options);
                let [connected, first] = connect(leaver.net(), &listener, options);
                let handle = connected.handle();
                assert_eq!(leaver.finish(policy).left_open, 1);
                expect_dead(net, handle);
                first.close(&SOLO).expect("open");
                let are_free = || {
                    let usage = world.attachment().usage();
                    usage.free_ring_bytes == usage.ring_bytes
                };
                until("the rings of the last are back", are_free);
                // There is room for this one in the rings of the last only.
                let [mut next, mut second] = connect(net, &listener, options);
                expect_dead(net, handle);
                next.send_all(&SOLO, b"its own bytes").expect("room");
                let memory = Memory::new(100);
                assert_eq!(second.recv(&SOLO, memory.buffer()), Ok(13));
                assert_eq!(memory.copy(0, 13), *b"its own bytes");
                second.close(&SOLO).expect("open");
                assert_eq!(next.recv(&SOLO, memory.buffer()), Ok(0));
                next.close(&SOLO).expect("open");
                listener.close(&SOLO).expect("open");
                world.end();
            }
        }
    });
}

/// A kernel of another launch may be in the middle of a copy into the rings of a stream that is
/// closed for its launch: they stay out of use until it has ended.
#[test]
fn rings_that_a_running_launch_knows_stay_out_of_use_until_it_has_ended() {
    bounded(|| {
        for transport in [TransportKind::Tcp, TransportKind::Peer] {
            let options = Options::DEFAULT.with_transport(transport).with_rings(64 << 10, 64 << 10);
            let world = World::with(Config { shared_rings: 1 << 20, ..small() });
            let net = world.net();
            let [opener, user, stranger] = [0; 3].map(|_| world.attachment().token().expect("a number"));
            let listener = listen(net, options);
            let [connected, accepted] = connect(opener.net(), &listener, options);
            let handle = connected.handle();
            // A kernel of that launch has the stream in its hands; the third launch knows nothing
            // of it.
            let mut kept = Stream::from_handle(&SOLO, user.net(), handle).expect("open");
            assert_eq!(opener.finish(FinishPolicy::Close).left_open, 1);
            expect_dead(user.net(), handle);
            accepted.close(&SOLO).expect("open");
            // The listener, and the slot that is out of use; of a direct stream the other end's,
            // too, whose words that kernel polls.
            let sockets = if transport == TransportKind::Peer { 3 } else { 2 };
            let retired = || {
                let usage = world.attachment().usage();
                usage.sockets == sockets && usage.ring_bytes - usage.free_ring_bytes == 128 << 10
            };
            until("all but the retired end is free", retired);
            // Others use other rings meanwhile, whatever that kernel does.
            for round in 0..20u8 {
                let [mut next, mut second] = connect(net, &listener, options);
                let _ = kept.try_send(&SOLO, Memory::new(4000).buffer());
                let dead = kept.try_recv(&SOLO, Memory::new(4000).buffer());
                assert!(matches!(dead, Ok(0) | Err(_)), "{dead:?}");
                let own = Memory::from_fn(3000, |_| round);
                next.send_all(&SOLO, own.buffer()).expect("room");
                let _ = kept.try_send(&SOLO, Memory::new(4000).buffer());
                let dead = kept.try_recv(&SOLO, Memory::new(4000).buffer());
                assert!(matches!(dead, Ok(0) | Err(_)), "{dead:?}");
                let memory = Memory::new(3000);
                assert_eq!(second.recv_exact(&SOLO, memory.buffer()), Ok(3000));
                assert!(memory.copy(0, 3000).iter().all(|&byte| byte == round));
                second.close(&SOLO).expect("open");
                next.close(&SOLO).expect("open");
            }
            assert_eq!(stranger.finish(FinishPolicy::Close).left_open, 0);
            until("all but the retired end is free", retired);
            assert_eq!(user.finish(FinishPolicy::Close).left_open, 0);
            until("it is free, too", || world.attachment().usage().sockets == 1);
            listener.close(&SOLO).expect("open");
            world.end();
        }
    });
}

/// A group that waits on a stream of another launch hears that it was closed for that launch.
#[test]
fn who_waits_on_a_stream_of_a_launch_that_is_finished_hears_of_it() {
    bounded(|| {
        for transport in [TransportKind::Tcp, TransportKind::Peer] {
            let world = World::new();
            let net = world.net();
            let options = Options::DEFAULT.with_transport(transport);
            let opener = world.attachment().token().expect("a number");
            let listener = listen(net, options);
            let [connected, accepted] = connect(opener.net(), &listener, options);
            let handle = connected.handle();
            let waits = spawn_asleep(move || {
                let mut stream = Stream::from_handle(&SOLO, net, handle)?;
                stream.recv(&SOLO, Memory::new(1).buffer())
            });
            assert_eq!(opener.finish(FinishPolicy::Close).left_open, 1);
            assert_eq!(waits.join().expect("no panic"), Err(Error::BadHandle), "{transport:?}");
            accepted.close(&SOLO).expect("open");
            listener.close(&SOLO).expect("open");
            // The launch that waited knows the stream.
            let (_proxy, attachment, token) = world.apart();
            assert_eq!(token.finish(FinishPolicy::Close).left_open, 0);
            until("everything is free", || attachment.usage().sockets == 0);
        }
    });
}

/// A socket that was made and never used is given back with its launch, and kept with it.
#[test]
fn sockets_that_were_only_made_are_the_launch_s_too() {
    bounded(|| {
        let make = |net| posix::socket::socket(&SOLO, net, 2, posix::socket::SOCK_STREAM, 0);
        let mut world = World::with(Config { sockets: 4, ..small() });
        for policy in [FinishPolicy::Close, FinishPolicy::Reset, FinishPolicy::Close] {
            let made: Vec<_> = (0..4).map(|_| make(world.net()).expect("a slot") as i32).collect();
            assert_eq!(make(world.net()), Err(Error::TooManySockets));
            assert_eq!(world.relaunch(policy).left_open, 4);
            for handle in made.into_iter().filter_map(Handle::from_raw) {
                expect_dead(world.net(), handle);
            }
            // The next round finds their slots at once.
        }
        world.expect_all_free();
        // A number is used again at once: what was kept is not the next launch's.
        let kept = make(world.net()).expect("a slot") as i32;
        assert_eq!(world.relaunch(FinishPolicy::Keep).left_open, 1);
        assert_eq!(world.relaunch(FinishPolicy::Close).left_open, 0);
        assert_eq!(posix::close::close(&SOLO, world.net(), kept), Ok(0));
        // A launch that runs may use a socket that another one made; then it is its own.
        let maker = world.attachment().token().expect("a number");
        let socket = make(maker.net()).expect("a slot") as i32;
        assert_eq!(posix::bind::listen(&SOLO, world.net(), socket, 1), Ok(0));
        assert_eq!(maker.finish(FinishPolicy::Close).left_open, 0);
        assert_eq!(posix::close::close(&SOLO, world.net(), socket), Ok(0));
        world.end();
    });
}
