//! The proxy stops, or the host cancels, while kernels are blocked in every call.

use crate::support::asleep::spawn_asleep;
use crate::support::client::{FullListener, client};
use crate::support::world::listen;
use crate::support::{Memory, PollMemory, SOLO, World, bounded, until};
use gpunet_device::poll::POLLIN;
use gpunet_device::{
    Error, Listener, Net, Options, Shutdown, SockAddr, Stream, Timeout, TransportKind, poll,
};
use gpunet_proxy::{AttachError, FinishPolicy};
use std::sync::Arc;
use std::thread::JoinHandle;

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);
const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer);

/// A pair of connected streams, as handles: a Stream does not travel between threads.
fn pair(net: Net, options: Options) -> (i32, i32) {
    let [client, server] = crate::support::pair::pair(net, net, options);
    (server.handle().raw(), client.handle().raw())
}

fn open(net: Net, raw: i32) -> Stream {
    let handle = gpunet_device::Handle::from_raw(raw).expect("a handle");
    Stream::from_handle(&SOLO, net, handle).expect("open")
}

/// One group in every call that can wait, until each waits.
fn block_everything(world: &World, full: SockAddr) -> Vec<(&'static str, JoinHandle<Result<(), Error>>)> {
    let net = world.net();
    let mut groups = Vec::new();
    for (name, options) in [("tcp", TCP), ("peer", PEER)] {
        let memory = Arc::new(Memory::new(4096));
        let (a, b) = pair(net, options.with_rings(4096, 4096));
        let room = memory.clone();
        groups.push((name, spawn_asleep(move || open(net, a).recv(&SOLO, room.buffer()).map(|_| ()))));
        let room = memory.clone();
        groups.push((
            name,
            spawn_asleep(move || {
                open(net, a).send_all(&SOLO, Memory::new(16 << 20).buffer()).map(|()| drop(room))
            }),
        ));
        let set = PollMemory::new(&[(b, 0)]);
        groups.push((name, spawn_asleep(move || poll(&SOLO, net, set.set(), Timeout::NEVER).map(|_| ()))));
        let accepts = Listener::bind_with(&SOLO, net, crate::support::world::LOOPBACK, options, 1);
        let handle = accepts.expect("a free port").handle();
        groups.push((
            name,
            spawn_asleep(move || Listener::from_handle(&SOLO, net, handle)?.accept(&SOLO).map(|_| ())),
        ));
    }
    groups.push((
        "connect over tcp",
        spawn_asleep(move || Stream::connect_with(&SOLO, net, full, TCP).map(|_| ())),
    ));
    let silent = listen(net, PEER).local_addr();
    groups.push((
        "connect to a peer",
        spawn_asleep(move || Stream::connect_with(&SOLO, net, silent, PEER).map(|_| ())),
    ));
    until("two accepts and two connects wait", || world.attachment().usage().requests == 4);
    groups
}

fn expect_all(groups: Vec<(&'static str, JoinHandle<Result<(), Error>>)>, error: Error) {
    for (name, group) in groups {
        assert_eq!(group.join().expect("no panic"), Err(error), "{name}");
    }
}

#[test]
fn cancel_ends_every_wait() {
    bounded(|| {
        let world = World::new();
        let full = FullListener::new();
        let groups = block_everything(&world, full.addr);
        world.token().cancel();
        expect_all(groups, Error::Canceled);
        let (_proxy, attachment, token) = world.apart();
        assert_eq!(token.finish(FinishPolicy::Reset).left_open, 7);
        until("all is free", || attachment.usage().sockets == 0);
        let usage = attachment.usage();
        assert_eq!(usage.free_ring_bytes, usage.ring_bytes);
    });
}

#[test]
fn a_stopped_proxy_ends_every_wait() {
    bounded(|| {
        let world = World::new();
        let full = FullListener::new();
        let groups = block_everything(&world, full.addr);
        world.proxy.abort();
        expect_all(groups, Error::NetworkDown);
        let net = world.net();
        let down = Err(Error::NetworkDown);
        assert_eq!(Stream::connect(&SOLO, net, full.addr).map(|_| ()), down);
        assert_eq!(Listener::bind(&SOLO, net, full.addr).map(|_| ()), down);
        let (proxy, attachment, token) = world.apart();
        assert!(matches!(proxy.attach_cpu(), Err(AttachError::Stopped)));
        proxy.abort();
        assert_eq!(token.finish(FinishPolicy::Close).left_open, 0, "nobody is left to say");
        assert_eq!(attachment.usage().sockets, 0);
        let _ = attachment.close();
    });
}

#[test]
fn cancel_lets_data_through_first_and_lasts() {
    bounded(|| {
        for options in [TCP, PEER] {
            let world = World::new();
            let net = world.net();
            let (a, b) = pair(net, options);
            let memory = Memory::new(100);
            open(net, b).send_all(&SOLO, b"hello").expect("room");
            let mut stream = open(net, a);
            let set = PollMemory::new(&[(a, POLLIN)]);
            assert_eq!(poll(&SOLO, net, set.set(), Timeout::NEVER), Ok(1));
            world.token().cancel();
            assert_eq!(stream.recv(&SOLO, memory.buffer()), Ok(5));
            // It does not go away, and those who only look hear of it too.
            let canceled = Error::Canceled;
            assert_eq!(stream.recv(&SOLO, memory.buffer()), Err(canceled));
            assert_eq!(stream.try_recv(&SOLO, memory.buffer()), Err(canceled));
            assert_eq!(poll(&SOLO, net, set.set(), Timeout::NON_BLOCKING), Err(canceled));
            assert_eq!(poll(&SOLO, net, set.set(), Timeout::NEVER), Err(canceled));
            assert_eq!(
                Stream::connect(&SOLO, net, SockAddr::v4([127, 0, 0, 1], 9)).map(|_| ()),
                Err(canceled)
            );
            // What it has it can still give back.
            stream.shutdown(&SOLO, Shutdown::Write);
            assert_eq!(stream.close(&SOLO), Ok(()));
            assert_eq!(open(net, b).close(&SOLO), Ok(()));
            world.end();
        }
    });
}

/// Another launch of the same attachment is not concerned.
#[test]
fn cancel_concerns_one_launch() {
    bounded(|| {
        let world = World::new();
        let other = world.attachment().token().expect("a number");
        let listener = listen(other.net(), TCP);
        world.token().cancel();
        let _client = client(listener.local_addr());
        let stream = listener.accept(&SOLO).expect("not cancelled");
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        assert_eq!(other.finish(FinishPolicy::Close).left_open, 0);
    });
}
