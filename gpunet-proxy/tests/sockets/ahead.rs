//! What a CUDA stream does after an end or a failure has released it: it cannot look at why, and
//! publishes whole messages. Here a raw store of the word stands for it.

use crate::queues::{Pair, pair};
use crate::support::client::{read_all, reset};
use crate::support::raw::{consumed, own_consumed, published, table_position};
use crate::support::{Memory, SOLO, World, bounded, until};
use gpunet_device::abi::entry::Entry;
use gpunet_device::{Error, Options, Stream, TransportKind};
use gpunet_proxy::queue::Queue;
use gpunet_proxy::socket::{DirectionError, DirectionOutcome, Socket};
use std::io::{Read, Write};
use std::mem::offset_of;
use std::net::{Shutdown, TcpListener, TcpStream};

const RING: usize = 4096;
/// Beyond all that came, and beyond the ring.
const AHEAD: u64 = 1 << 20;

struct Connected {
    world: World,
    server: TcpListener,
    socket: Socket,
    peer: TcpStream,
}

impl Connected {
    fn new() -> Self {
        let (world, server) = (World::new(), TcpListener::bind("127.0.0.1:0").expect("a port"));
        let (socket, peer) = connect(&world, &server);
        Self { world, server, socket, peer }
    }

    fn slot(&self) -> u32 {
        self.socket.handle().slot()
    }
}

fn connect(world: &World, server: &TcpListener) -> (Socket, TcpStream) {
    let options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(RING as u64, RING as u64);
    let addr = server.local_addr().expect("bound");
    let socket = world.attachment().connect_blocking(addr, options).expect("connected");
    (socket, server.accept().expect("a connection").0)
}

fn error(outcome: Result<DirectionOutcome, DirectionError>) -> Option<i32> {
    outcome.expect("readable").error.map(|error| error.errno())
}

/// Sends by a queue, and has the peer hear it. Afterwards the proxy has seen what was stored
/// before.
fn say(world: &World, socket: &Socket, peer: &mut TcpStream) {
    let (mut queue, message) = (Queue::cpu(world.attachment()).expect("a queue"), Memory::filled(5, 0, 9000));
    queue.send(&mut socket.take_send().expect("nobody uses it"), message.buffer()).expect("a position");
    let mut heard = vec![0; 9000];
    peer.read_exact(&mut heard).expect("sent");
    queue.synchronize().expect("no failure");
    assert!(heard == message.copy(0, 9000));
}

#[test]
fn more_than_came_is_given_back_after_the_end_and_the_other_direction_goes_on() {
    bounded(|| {
        let Connected { mut world, server, socket, mut peer } = Connected::new();
        let (net, slot) = (world.net(), socket.handle().slot());
        let receiver = socket.take_recv().expect("nobody uses it");
        peer.write_all(&[1; 100]).expect("room");
        peer.shutdown(Shutdown::Write).expect("open");
        until("the end has come", || error(receiver.outcome()) == Some(Error::NoData.errno()));
        // One message after another.
        for ahead in [1000, AHEAD] {
            table_position(net, slot, offset_of!(Entry, recv)).set(ahead);
            consumed(net, slot).publish(ahead);
            say(&world, &socket, &mut peer);
            assert_eq!(error(receiver.outcome()), Some(Error::NoData.errno()));
            assert_eq!(receiver.outcome().expect("readable").position, 100);
        }
        // Kernels find the end, and no bytes that never came.
        receiver.give_back().expect("unknown");
        let mut stream = Stream::from_handle(&SOLO, net, socket.handle()).expect("open");
        assert_eq!(stream.recv(&SOLO, Memory::new(10).buffer()), Ok(0));
        world.relaunch(gpunet_proxy::FinishPolicy::Close);
        drop(socket);
        let (rest, end) = read_all(&mut peer);
        assert!(rest.is_empty() && end.is_ok(), "{end:?}");
        let (next, mut peer) = connect(&world, &server);
        say(&world, &next, &mut peer);
        drop(next);
        world.expect_all_free();
    });
}

/// Between two devices nobody but the peer sees it, which has ended that direction.
#[test]
fn more_than_came_is_given_back_to_a_peer_and_the_other_direction_goes_on() {
    bounded(|| {
        let mut world = World::new();
        let options =
            Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(RING as u64, RING as u64);
        let Pair { near, far } = pair(&world, options);
        let (net, slot) = (world.net(), near.handle().slot());
        let receiver = near.take_recv().expect("nobody uses it");
        let mut stream = Stream::from_handle(&SOLO, net, far.handle()).expect("open");
        stream.send_all(&SOLO, Memory::new(100).buffer()).expect("room");
        stream.shutdown(&SOLO, gpunet_device::Shutdown::Write);
        until("the end has come", || error(receiver.outcome()) == Some(Error::NoData.errno()));
        table_position(net, slot, offset_of!(Entry, recv)).set(AHEAD);
        own_consumed(net, slot).publish(AHEAD);
        let (mut queue, message) =
            (Queue::cpu(world.attachment()).expect("a queue"), Memory::filled(5, 0, 9000));
        queue.send(&mut near.take_send().expect("nobody uses it"), message.buffer()).expect("a position");
        let heard = Memory::new(9000);
        assert_eq!(stream.recv_exact(&SOLO, heard.buffer()), Ok(9000));
        assert!(heard.holds(0, 9000, 5, 0));
        queue.synchronize().expect("no failure");
        receiver.give_back().expect("unknown");
        let mut back = Stream::from_handle(&SOLO, net, near.handle()).expect("open");
        assert_eq!(back.recv(&SOLO, Memory::new(10).buffer()), Ok(0));
        world.relaunch(gpunet_proxy::FinishPolicy::Close);
        drop((near, far));
        world.expect_all_free();
    });
}

#[test]
fn more_than_came_is_not_given_back_before_the_end() {
    bounded(|| {
        let Connected { world, server, socket, mut peer } = Connected::new();
        let receiver = socket.take_recv().expect("nobody uses it");
        peer.write_all(&[1; 100]).expect("room");
        until("it has come", || receiver.outcome().expect("readable").position == 100);
        consumed(world.net(), socket.handle().slot()).publish(1000);
        // Whether this is still sent or not: the proxy looks at the word.
        let (mut queue, message) = (Queue::cpu(world.attachment()).expect("a queue"), Memory::new(1));
        queue.send(&mut socket.take_send().expect("nobody uses it"), message.buffer()).expect("a position");
        until("it fails", || error(receiver.outcome()) == Some(Error::Protocol.errno()));
        let (next, mut peer) = connect(&world, &server);
        say(&world, &next, &mut peer);
    });
}

#[test]
fn more_than_there_is_room_for_is_published_after_a_failure() {
    bounded(|| {
        let Connected { world, server, socket, peer } = Connected::new();
        let (net, slot) = (world.net(), socket.handle().slot());
        let sender = socket.take_send().expect("nobody uses it");
        reset(peer);
        let reset = Some(Error::ConnectionReset.errno());
        until("it fails", || error(sender.outcome()) == reset);
        table_position(net, slot, offset_of!(Entry, send)).set(AHEAD);
        published(net, slot).publish(AHEAD);
        let (next, mut peer) = connect(&world, &server);
        say(&world, &next, &mut peer);
        assert_eq!(error(sender.outcome()), reset);
        // Nor do kernels find room.
        sender.give_back().expect("unknown");
        let mut stream = Stream::from_handle(&SOLO, net, socket.handle()).expect("open");
        let sent = stream.send_all(&SOLO, Memory::new(10).buffer());
        assert_eq!(sent, Err(Error::ConnectionReset));
    });
}

/// Nothing more can be sent, but what the peer sent before is still being received.
#[test]
fn more_than_there_is_room_for_is_published_while_the_rest_is_received() {
    bounded(|| {
        let connected = Connected::new();
        let slot = connected.slot();
        let Connected { world, server: _server, socket, mut peer } = connected;
        let (mut sender, mut receiver) =
            (socket.take_send().expect("nobody uses it"), socket.take_recv().expect("nobody uses it"));
        let sent = Memory::filled(3, 0, 3 * RING);
        peer.write_all(&sent.copy(0, 3 * RING)).expect("room");
        until("the ring is full", || receiver.outcome().expect("readable").position == RING as u64);
        reset(peer);
        let (mut queue, message) = (Queue::cpu(world.attachment()).expect("a queue"), Memory::new(10));
        let gone = [Error::BrokenPipe, Error::ConnectionReset].map(|error| Some(error.errno()));
        until("nothing can be sent", || {
            queue.send(&mut sender, message.buffer()).expect("a position");
            let _ = queue.notify().wait();
            gone.contains(&error(sender.outcome()))
        });
        published(world.net(), slot).publish(AHEAD);
        // A receive has the proxy look.
        let (mut queue, came) = (Queue::cpu(world.attachment()).expect("a queue"), Memory::new(3 * RING));
        queue.recv(&mut receiver, came.buffer()).expect("a position");
        queue.synchronize().expect("all of it comes");
        assert!(came.holds(0, 3 * RING, 3, 0));
        let reset = Some(Error::ConnectionReset.errno());
        until("then it fails", || error(receiver.outcome()) == reset);
    });
}
