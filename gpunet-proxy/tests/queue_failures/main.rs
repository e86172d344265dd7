//! What befalls a queue that waits when the other rank fails: the queue goes on, the outcome says
//! why and where, and the next socket works, with the same queue.

#[path = "../support/mod.rs"]
mod support;

mod killed;
#[path = "../../examples/ranks/mod.rs"]
mod ranks;

use gpunet_core::verbs::sim::Fabric;
use gpunet_device::{Error, Options, TransportKind};
use gpunet_proxy::config::Rdma;
use gpunet_proxy::queue::{Done, Queue};
use gpunet_proxy::socket::{DirectionOutcome, Receiver, Sender, Socket};
use gpunet_proxy::{Attachment, Config, FinishPolicy, attach};
use ranks::{Rank, Words};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use support::client::reset;
use support::daemon::Served;
use support::pair::sockets;
use support::place::{APART, places};
use support::process::{say, wait};
use support::{Memory, World, bounded, small, until};

const RING: u64 = 4096;
/// What comes of a message before the other rank fails, and the message.
const CAME: usize = 100;
const MESSAGE: usize = 1000;
/// More than rings and a kernel's socket buffers take.
const MUCH: usize = 48 << 20;
const KINDS: [TransportKind; 2] = [TransportKind::Tcp, TransportKind::Peer];

fn options(kind: TransportKind) -> Options {
    Options::DEFAULT.with_transport(kind).with_rings(RING, RING)
}

/// A queue that waits for the other rank, and an operation behind that.
struct Waiting<T> {
    direction: T,
    queue: Queue,
    done: Done,
    words: Words<1>,
}

impl<T> Waiting<T> {
    fn new(direction: T, mut queue: Queue) -> Self {
        let words = Words::new();
        queue.write(words.at(0), 1).expect("enqueued");
        let done = queue.notify();
        Self { direction, queue, done, words }
    }

    /// Checks that it waits: neither operation is done.
    #[track_caller]
    fn expect_waiting(&self) {
        assert_eq!((self.words.at(0).observe(), self.queue.outcome().done), (0, 0), "it waits");
    }

    /// Checks that the first operation fails so, and that the second one follows.
    #[track_caller]
    fn expect_failure(self, errors: &[Error]) -> Failed<T> {
        let error = self.done.wait().expect_err("the other rank failed").errno();
        let failure = self.queue.outcome().failure.expect("it stays");
        assert_eq!((failure.operation, failure.error.errno()), (0, error));
        assert!(errors.contains(&failure.error), "{failure:?}");
        assert_eq!((self.words.at(0).observe(), self.queue.outcome().done), (1, 3), "it goes on");
        let errors = errors.to_vec();
        Failed { direction: self.direction, queue: self.queue, errors, bytes: failure.bytes }
    }
}

impl Waiting<Sender> {
    /// Waits until both operations are done; returns the queue if the first one has failed, so.
    #[track_caller]
    fn expect_end(self, errors: &[Error]) -> Option<Queue> {
        let (words, done) = (self.words, self.done.wait());
        assert_eq!((words.at(0).observe(), self.queue.outcome().done), (1, 3), "it goes on");
        let failure = self.queue.outcome().failure;
        assert_eq!(done.is_err(), failure.is_some());
        let failure = failure?;
        assert!(errors.contains(&failure.error), "{failure:?}");
        Some(self.queue)
    }
}

/// A queue with a failure, and the direction that failed.
struct Failed<T> {
    direction: T,
    queue: Queue,
    /// What may be said of it. When the other direction fails, too, its error may follow.
    errors: Vec<Error>,
    bytes: u64,
}

#[track_caller]
fn expect_error(outcome: &DirectionOutcome, errors: &[Error]) {
    assert!(outcome.error.is_some_and(|error| errors.contains(&error)), "{outcome:?}");
}

/// Waits for a message of which a part has come.
fn receiving(attachment: &Attachment, socket: &Socket) -> Waiting<Receiver> {
    let mut receiver = socket.take_recv().expect("nobody uses it");
    let message = receiver.prepare(MESSAGE).expect("room");
    let mut queue = Queue::cpu(attachment).expect("a queue");
    queue.wait(&[message.arrived]).expect("open");
    let waiting = Waiting::new(receiver, queue);
    until("a part has come", || waiting.direction.outcome().expect("readable").position == CAME as u64);
    waiting.expect_waiting();
    waiting
}

impl Failed<Receiver> {
    /// Checks that the direction has the same failure, at its place.
    #[track_caller]
    fn expect_outcome(self) -> Queue {
        for _ in 0..2 {
            let outcome = self.direction.outcome().expect("readable");
            expect_error(&outcome, &self.errors);
            assert_eq!((outcome.position, self.bytes), (CAME as u64, 0));
        }
        self.queue
    }
}

/// Sends more than the other rank, which receives nothing, has room for.
fn sending(attachment: &Attachment, socket: &Socket, much: &Memory) -> Waiting<Sender> {
    let mut sender = socket.take_send().expect("nobody uses it");
    let mut queue = Queue::cpu(attachment).expect("a queue");
    queue.send(&mut sender, much.buffer()).expect("a position");
    let waiting = Waiting::new(sender, queue);
    let mut before = u64::MAX;
    until("the ring is full", || {
        let position = waiting.direction.outcome().expect("readable").position;
        std::mem::replace(&mut before, position) == position
    });
    waiting.expect_waiting();
    waiting
}

impl Failed<Sender> {
    #[track_caller]
    fn expect_outcome(self) -> Queue {
        for _ in 0..2 {
            let outcome = self.direction.outcome().expect("readable");
            expect_error(&outcome, &self.errors);
            assert!(
                outcome.position <= self.bytes && self.bytes < MUCH as u64,
                "{outcome:?}, {}",
                self.bytes
            );
        }
        self.queue
    }
}

/// Sends the first part of a message, and waits until it is on its way.
fn send_a_part(rank: &mut Rank<'_>) {
    let part = Memory::filled(1, 0, CAME);
    rank.queue.send(&mut rank.sender, part.buffer()).expect("a position");
    rank.queue.synchronize().expect("no failure");
}

fn rank<'a>(attachment: &'a Attachment, socket: &Socket) -> Rank<'a> {
    Rank::new(1, attachment, socket).expect("nobody uses it")
}

/// Uses the next socket with the queue that has failed. Its failure stays, so the bytes are what
/// shows it.
fn expect_next(mut queue: Queue, here: &World, there: &World, options: Options) {
    let done = queue.outcome().done;
    let [near, far] = sockets(here.attachment(), there.attachment(), options);
    let mut to = rank(there.attachment(), &far);
    let (sent, came) = (Memory::filled(2, 0, 10_000), Memory::new(10_000));
    queue.send(&mut near.take_send().expect("nobody uses it"), sent.buffer()).expect("a position");
    to.queue.recv(&mut to.receiver, came.buffer()).expect("a position");
    to.queue.synchronize().expect("no failure");
    assert!(came.holds(0, 10_000, 2, 0));
    queue.notify().wait().expect_err("it keeps its failure");
    assert_eq!(queue.outcome().done, done + 2);
}

fn send_a_part_by(attachment: &Attachment, socket: &Socket) {
    let (mut queue, part) = (Queue::cpu(attachment).expect("a queue"), Memory::filled(1, 0, CAME));
    queue.send(&mut socket.take_send().expect("nobody uses it"), part.buffer()).expect("a position");
    queue.synchronize().expect("no failure");
}

/// The next stream works.
fn expect_next_between(near: &Attachment, far: &Attachment, options: Options) {
    let [here, there] = sockets(near, far, options);
    send_a_part_by(far, &there);
    let (mut queue, came) = (Queue::cpu(near).expect("a queue"), Memory::new(CAME));
    queue.recv(&mut here.take_recv().expect("nobody uses it"), came.buffer()).expect("a position");
    queue.synchronize().expect("no failure");
    assert!(came.holds(0, CAME, 1, 0));
}

/// The other rank closes its socket: END.
#[test]
fn a_peer_that_leaves_releases_a_queue_that_receives() {
    bounded(|| {
        for place in places() {
            let (here, there) = place.worlds();
            let far = there.as_ref().unwrap_or(&here);
            let sockets = sockets(here.attachment(), far.attachment(), options(place.kind()));
            let mut peer = rank(far.attachment(), &sockets[1]);
            send_a_part(&mut peer);
            let [near, accepted] = sockets;
            let waiting = receiving(here.attachment(), &near);
            drop((peer, accepted));
            let queue = waiting.expect_failure(&[Error::NoData]).expect_outcome();
            expect_next(queue, &here, far, options(place.kind()));
            drop(near);
            here.expect_all_free();
            far.expect_all_free();
        }
    });
}

/// Nothing more is read. Over a network the peer's proxy discards for a while what comes still, as
/// the peer's kernel would take it; between two rings there is nobody to do so.
#[test]
fn a_peer_that_leaves_releases_a_queue_that_sends() {
    bounded(|| {
        let much = Memory::filled(3, 0, MUCH);
        for place in places() {
            let (here, there) = place.worlds();
            let far = there.as_ref().unwrap_or(&here);
            let [near, accepted] = sockets(here.attachment(), far.attachment(), options(place.kind()));
            let waiting = sending(here.attachment(), &near, &much);
            drop(accepted);
            let gone = [Error::BrokenPipe, Error::ConnectionReset];
            let queue = if place.kind() == TransportKind::Peer {
                Some(waiting.expect_failure(&gone[..1]).expect_outcome())
            } else {
                waiting.expect_end(&gone)
            };
            queue.into_iter().for_each(|queue| expect_next(queue, &here, far, options(place.kind())));
        }
    });
}

/// With linger 0, a close is a reset.
#[test]
fn a_peer_that_resets_releases_queues() {
    bounded(|| {
        let much = Memory::filled(3, 0, MUCH);
        for place in places() {
            let options = options(place.kind()).with_linger_ms(0);
            let (here, there) = place.worlds();
            let far = there.as_ref().unwrap_or(&here);
            let [near, accepted] = sockets(here.attachment(), far.attachment(), options);
            let mut peer = rank(far.attachment(), &accepted);
            send_a_part(&mut peer);
            let receiver = receiving(here.attachment(), &near);
            let sender = sending(here.attachment(), &near, &much);
            drop((peer, accepted));
            let queue = receiver.expect_failure(&[Error::ConnectionReset]).expect_outcome();
            expect_next(queue, &here, far, self::options(place.kind()));
            let queue = sender.expect_failure(&[Error::ConnectionReset, Error::BrokenPipe]).expect_outcome();
            expect_next(queue, &here, far, self::options(place.kind()));
        }
    });
}

fn connected(world: &World, server: &TcpListener) -> (Socket, TcpStream) {
    let addr = server.local_addr().expect("bound");
    let socket = world.attachment().connect_blocking(addr, options(TransportKind::Tcp)).expect("connected");
    (socket, server.accept().expect("a connection").0)
}

/// The peer is a program of the CPU with a plain socket.
#[test]
fn a_plain_socket_that_resets_releases_queues() {
    bounded(|| {
        let (world, much) = (World::new(), Memory::filled(3, 0, MUCH));
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");

        let (socket, mut peer) = connected(&world, &server);
        peer.write_all(&[1; CAME]).expect("room");
        let waiting = receiving(world.attachment(), &socket);
        reset(peer);
        let queue = waiting.expect_failure(&[Error::ConnectionReset]).expect_outcome();
        expect_next(queue, &world, &world, options(TransportKind::Tcp));

        let (socket, peer) = connected(&world, &server);
        let waiting = sending(world.attachment(), &socket, &much);
        reset(peer);
        let queue = waiting.expect_failure(&[Error::ConnectionReset]).expect_outcome();
        expect_next(queue, &world, &world, options(TransportKind::Tcp));

        // A plain socket is no worse a peer than before.
        let (socket, mut peer) = connected(&world, &server);
        let (mut queue, sent) =
            (Queue::cpu(world.attachment()).expect("a queue"), Memory::filled(4, 0, 9000));
        queue.send(&mut socket.take_send().expect("nobody uses it"), sent.buffer()).expect("a position");
        queue.synchronize().expect("no failure");
        let mut heard = vec![0; 9000];
        peer.read_exact(&mut heard).expect("sent");
        assert!(heard == sent.copy(0, 9000));
    });
}

/// The other attachment is closed with its sockets open.
#[test]
fn an_attachment_that_ends_releases_the_queues_of_the_other_one() {
    bounded(|| {
        let much = Memory::filled(3, 0, MUCH);
        for place in APART {
            let options = options(place.kind());
            let (here, there) = place.worlds();
            let there = there.expect("two of them");
            let [near, accepted] = sockets(here.attachment(), there.attachment(), options);
            send_a_part(&mut rank(there.attachment(), &accepted));
            let receiver = receiving(here.attachment(), &near);
            let sender = sending(here.attachment(), &near, &much);
            let (_proxy, attachment, token) = there.apart();
            token.finish(FinishPolicy::Reset);
            drop(attachment);
            let gone = [Error::NoData, Error::ConnectionReset, Error::BrokenPipe];
            // Both directions end, in either order, and the receiver may be told why the sender
            // failed.
            let queue = receiver.expect_failure(&gone).expect_outcome();
            sender.expect_end(&gone[1..]);
            drop(accepted);
            expect_next(queue, &here, &here, self::options(TransportKind::Peer));
        }
    });
}

/// What tells the program that is killed where to attach and connect.
const DAEMON: &str = "GPUNET_QUEUES_DAEMON";
const ADDR: &str = "GPUNET_QUEUES_ADDR";

/// Not a test: the other rank, which is killed.
#[test]
fn program() {
    let (Some(daemon), Ok(addr)) = (std::env::var_os(DAEMON), std::env::var(ADDR)) else { return };
    let attachment = attach(Path::new(&daemon), small()).expect("a daemon").attach_cpu().expect("attached");
    let (kind, addr) = addr.split_once(' ').expect("a transport and an address");
    let kind = KINDS[usize::from(kind == "peer")];
    let addr = addr.parse().expect("an address");
    let socket = attachment.connect_blocking(addr, options(kind)).expect("connected");
    let (mut sender, part) = (socket.take_send().expect("nobody uses it"), Memory::filled(1, 0, CAME));
    let mut queue = Queue::cpu(&attachment).expect("a queue");
    queue.send(&mut sender, part.buffer()).expect("a position");
    queue.synchronize().expect("no failure");
    say("sent");
    wait();
}

/// A host dies, over rc.
#[test]
fn a_host_that_dies_releases_the_queues_of_its_peers() {
    bounded(|| {
        let much = Memory::filled(3, 0, MUCH);
        let fabric = Fabric::new(7);
        let config = Config { rdma: Rdma::Simulated(fabric.clone()), ..small() };
        let (here, there) = (World::with(config.clone()), World::with(config.clone()));
        let options = options(TransportKind::Rc);
        // Who listens becomes a host first.
        let [near, accepted] = sockets(here.attachment(), there.attachment(), options);
        let dies = fabric.hosts()[0];
        let mut peer = rank(there.attachment(), &accepted);
        send_a_part(&mut peer);
        let receiver = receiving(here.attachment(), &near);
        let sender = sending(here.attachment(), &near, &much);
        fabric.kill(dies);
        let queue = receiver.expect_failure(&[Error::ConnectionReset]).expect_outcome();
        sender.expect_failure(&[Error::ConnectionReset]).expect_outcome();
        let third = World::with(config);
        expect_next(queue, &here, &third, options);
        drop((peer, accepted));
        let (_proxy, attachment, token) = there.apart();
        token.finish(FinishPolicy::Reset);
        drop(attachment);
    });
}

/// The daemon that both ranks are attached to ends as by a crash.
#[test]
fn a_daemon_that_dies_releases_queues() {
    bounded(|| {
        let much = Memory::filled(3, 0, MUCH);
        for kind in KINDS {
            println!("{kind:?}");
            let mut served = Served::new(small());
            let proxy = served.attach(small());
            let attachment = proxy.attach_cpu().expect("attached");
            let [near, far] = sockets(&attachment, &attachment, options(kind));
            send_a_part_by(&attachment, &far);
            let receiver = receiving(&attachment, &near);
            let sender = sending(&attachment, &near, &much);
            served.kill();
            for failed in [
                receiver.expect_failure(&[Error::NetworkDown]).queue,
                sender.expect_failure(&[Error::NetworkDown]).queue,
            ] {
                drop(failed);
            }
            // Nothing more comes of this attachment; the next one has queues and sockets that work.
            let world = World::new();
            expect_next_between(world.attachment(), world.attachment(), options(kind));
        }
    });
}
