//! Queues of the CPU device.

use crate::support::pair::sockets;
use crate::support::{Memory, SOLO, World, bounded};
use crate::taking::KINDS;
use gpunet_device::abi::Word;
use gpunet_device::{Error, Options, Shutdown, Stream, TransportKind};
use gpunet_proxy::queue::{Queue, QueueError};
use gpunet_proxy::socket::{DirectionError, Socket};
use std::io::{Read, Write};
use std::net::TcpListener;

/// The two ends of a stream of the host program.
pub struct Pair {
    pub near: Socket,
    pub far: Socket,
}

pub fn pair(world: &World, options: Options) -> Pair {
    between(world, world, options)
}

/// The same between two attachments.
fn between(near: &World, far: &World, options: Options) -> Pair {
    let [near, far] = sockets(near.attachment(), far.attachment(), options);
    Pair { near, far }
}

fn queue(world: &World) -> Queue {
    Queue::cpu(world.attachment()).expect("a queue")
}

#[test]
fn messages_of_any_length_go_and_come_in_order() {
    const LENGTHS: [usize; 9] = [1, 63, 64, 2048, 4095, 4096, 4097, 100_000, 1 << 20];
    bounded(|| {
        let world = World::new();
        let beside = World::beside(&world);
        for (other, kind) in [&world, &beside].into_iter().flat_map(|other| KINDS.map(|kind| (other, kind))) {
            let options = Options::DEFAULT.with_transport(kind).with_rings(4096, 4096);
            let Pair { near, far } = between(&world, other, options);
            let mut ends = [(near.take_send(), far.take_recv()), (far.take_send(), near.take_recv())]
                .map(|(send, recv)| (send.expect("free"), recv.expect("free")));
            let (mut here, mut there) = (queue(&world), queue(other));
            let sent = LENGTHS.map(|len| Memory::filled(len as u64, 0, len));
            let [echoed, back] = [0; 2].map(|_| LENGTHS.map(Memory::new));
            for (at, message) in sent.iter().enumerate() {
                here.send(&mut ends[0].0, message.buffer()).expect("a position");
                here.recv(&mut ends[1].1, back[at].buffer()).expect("a position");
                there.recv(&mut ends[0].1, echoed[at].buffer()).expect("a position");
                there.send(&mut ends[1].0, echoed[at].buffer()).expect("a position");
            }
            here.synchronize().expect("no failure");
            for (message, len) in back.iter().zip(LENGTHS) {
                assert!(message.holds(0, len, len as u64, 0), "{kind:?}, {len} bytes");
            }
            there.synchronize().expect("no failure");
            assert_eq!(here.outcome().done, 2 * LENGTHS.len() as u64 + 1);
        }
    });
}

/// The number of its socket means another socket in the queue's attachment, or none.
#[test]
fn a_direction_of_another_attachment_is_refused() {
    bounded(|| {
        let world = World::new();
        let beside = World::beside(&world);
        let [own, foreign] = [pair(&world, Options::DEFAULT), pair(&beside, Options::DEFAULT)];
        let mut queue = queue(&world);
        let (from, to) = (Memory::filled(1, 0, 64), Memory::new(64));
        let mut sender = foreign.near.take_send().expect("free");
        let mut receiver = own.far.take_recv().expect("free");
        let mut elsewhere = foreign.far.take_recv().expect("free");
        let refused = [
            queue.send(&mut sender, from.buffer()),
            queue.start_send(&mut sender, from.buffer()).map(drop),
            queue.recv(&mut elsewhere, to.buffer()),
            queue.start_recv(&mut elsewhere, to.buffer()).map(drop),
        ];
        for result in refused {
            assert!(matches!(result, Err(QueueError::OtherAttachment)), "{result:?}");
        }
        // It has taken no place in any direction: the queue of the right attachment goes on.
        let mut right = Queue::cpu(beside.attachment()).expect("a queue");
        right.send(&mut sender, from.buffer()).expect("a position");
        right.recv(&mut elsewhere, to.buffer()).expect("a position");
        right.synchronize().expect("no failure");
        assert!(to.holds(0, 64, 1, 0));
        let mut sender = own.near.take_send().expect("free");
        queue.send(&mut sender, from.buffer()).expect("a position");
        queue.recv(&mut receiver, to.buffer()).expect("a position");
        queue.synchronize().expect("no failure");
    });
}

#[test]
fn a_queue_waits_for_words_and_writes_them_in_order() {
    bounded(|| {
        let world = World::new();
        let mut words = [0u64; 3];
        // SAFETY: words of this test, which outlive the queue's operations.
        let [go, dbg, done] = std::array::from_fn(|at| unsafe { Word::from_ptr(&raw mut words[at]) });
        let mut queue = queue(&world);
        queue.write(dbg, 7).expect("enqueued");
        queue.wait_word(go, 1).expect("enqueued");
        queue.write(done, 1).expect("enqueued");
        while dbg.observe() != 7 {
            std::thread::yield_now();
        }
        // Time for a queue that does not wait.
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_eq!((done.observe(), queue.outcome().done), (0, 1));
        go.publish(1);
        queue.synchronize().expect("no failure");
        assert_eq!(done.observe(), 1);
    });
}

#[test]
fn what_was_prepared_is_posted_before_what_is_sent() {
    bounded(|| {
        let world = World::new();
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = server.local_addr().expect("bound");
        let options = Options::DEFAULT.with_transport(TransportKind::Tcp);
        let socket = world.attachment().connect_blocking(addr, options).expect("connected");
        let (mut peer, _) = server.accept().expect("a connection");
        let mut sender = socket.take_send().expect("nobody uses it");
        let mut queue = queue(&world);
        let messages: Vec<_> = (0..3).map(|_| sender.prepare(4).expect("room")).collect();
        for (at, message) in messages.iter().enumerate() {
            for piece in message.span.pieces() {
                // SAFETY: inside the message, for which a fresh ring has room.
                unsafe { piece.ptr.write_bytes(b'a' + at as u8, piece.len) };
            }
        }
        let tail = Memory::from_fn(4, |_| b'z');
        let early = queue.send(&mut sender, tail.buffer()).expect_err("three messages are not posted");
        assert!(matches!(early, QueueError::Direction(DirectionError::Unpublished)), "{early:?}");
        // Behind its own gate no trigger would ever be released.
        let mut other = Queue::cpu(world.attachment()).expect("a queue");
        other.wait(&[messages[1].room, messages[1].done]).expect("open");
        let late = other.post(&[messages[2].post]).expect_err("it waits for that");
        assert!(matches!(late, QueueError::Deadlock { .. }), "{late:?}");
        let late = std::io::Error::from(late);
        assert_eq!(late.kind(), std::io::ErrorKind::Deadlock, "{late}");
        assert!(late.to_string().contains("post first, then wait"), "{late}");
        // A later trigger publishes all before it, and those do nothing afterwards.
        queue.post(&[messages[1].post, messages[0].post, messages[2].post]).expect("open");
        queue.wait(&[messages[2].done]).expect("open");
        queue.send(&mut sender, tail.buffer()).expect("all are posted");
        queue.synchronize().expect("no failure");
        let mut heard = [0; 16];
        peer.read_exact(&mut heard).expect("sent");
        assert_eq!(&heard, b"aaaabbbbcccczzzz");
    });
}

#[test]
fn the_end_of_a_stream_in_the_middle_of_a_message_is_the_outcome() {
    bounded(|| {
        let world = World::new();
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = server.local_addr().expect("bound");
        let options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
        for reset in [false, true] {
            let socket = world.attachment().connect_blocking(addr, options).expect("connected");
            let (mut peer, _) = server.accept().expect("a connection");
            let mut receiver = socket.take_recv().expect("nobody uses it");
            let (mut queue, message) = (queue(&world), Memory::new(10_000));
            queue.recv(&mut receiver, message.buffer()).expect("a position");
            let done = queue.notify();
            peer.write_all(&[1; 5000]).expect("room");
            if reset {
                while queue_has_not_taken(&receiver, 4096) {
                    std::thread::yield_now();
                }
                crate::support::client::reset(peer);
            } else {
                drop(peer);
            }
            let error = done.wait().expect_err("it ended");
            let expected = if reset { Error::ConnectionReset } else { Error::NoData };
            assert!(matches!(error, QueueError::Failed(failure) if failure.error == expected), "{error:?}");
            let failure = queue.outcome().failure.expect("it ended");
            assert_eq!((failure.operation, failure.error), (0, expected));
            let outcome = receiver.outcome().expect("readable");
            assert_eq!(outcome.error, Some(expected));
            assert!(outcome.position >= 4096, "{}", outcome.position);
        }
        // The next socket works.
        let socket = world.attachment().connect_blocking(addr, options).expect("connected");
        let (mut peer, _) = server.accept().expect("a connection");
        let (mut queue, message) = (queue(&world), Memory::filled(3, 0, 9000));
        queue.send(&mut socket.take_send().expect("free"), message.buffer()).expect("a position");
        let mut heard = vec![0; 9000];
        peer.read_exact(&mut heard).expect("sent");
        queue.synchronize().expect("no failure");
        assert_eq!(heard, message.copy(0, 9000));
    });
}

/// A batch that waits for a message, gives it back and answers: the peer's end cuts the message
/// off, and no more.
#[test]
fn an_end_does_not_harm_the_other_direction() {
    bounded(|| {
        for kind in KINDS {
            let world = World::new();
            let Pair { near, far } =
                pair(&world, Options::DEFAULT.with_transport(kind).with_rings(4096, 4096));
            let mut receiver = near.take_recv().expect("nobody uses it");
            let (mut queue, answer) = (queue(&world), Memory::filled(1, 0, 10));
            let message = receiver.prepare(1000).expect("room");
            queue.wait(&[message.arrived]).expect("open");
            queue.post(&[message.consume]).expect("open");
            let mut sender = near.take_send().expect("nobody uses it");
            queue.send(&mut sender, answer.buffer()).expect("a position");
            let (net, part) = (world.net(), Memory::new(100));
            let mut stream = Stream::from_handle(&SOLO, net, far.handle()).expect("open");
            stream.send_all(&SOLO, part.buffer()).expect("room");
            stream.shutdown(&SOLO, Shutdown::Write);
            queue.synchronize().expect_err("the message has ended");
            assert_eq!(queue.outcome().failure.map(|failure| failure.error), Some(Error::NoData));
            let heard = Memory::new(10);
            assert_eq!(stream.recv_exact(&SOLO, heard.buffer()), Ok(10), "{kind:?}");
            assert!(heard.holds(0, 10, 1, 0));
            let outcome = receiver.outcome().expect("readable");
            assert_eq!(outcome.error, Some(Error::NoData));
            assert_eq!(outcome.position, 100);
            assert!(sender.outcome().expect("readable").error.is_none());
        }
    });
}

#[test]
fn what_was_enqueued_is_done_after_all_is_dropped() {
    bounded(|| {
        for kind in KINDS {
            let world = World::new();
            let Pair { near, far } =
                pair(&world, Options::DEFAULT.with_transport(kind).with_rings(4096, 4096));
            let (sent, came) = (Memory::filled(1, 0, 100_000), Memory::new(100_000));
            let mut queue = queue(&world);
            queue.send(&mut near.take_send().expect("nobody uses it"), sent.buffer()).expect("a position");
            drop((queue, near));
            let mut stream = Stream::from_handle(&SOLO, world.net(), far.handle()).expect("open");
            assert_eq!(stream.recv_exact(&SOLO, came.buffer()), Ok(100_000));
            assert!(came.holds(0, 100_000, 1, 0));
            assert_eq!(stream.recv(&SOLO, came.buffer()), Ok(0));
        }
    });
}

fn queue_has_not_taken(receiver: &gpunet_proxy::socket::Receiver, position: u64) -> bool {
    receiver.outcome().expect("readable").position < position
}

#[test]
fn a_queue_that_waits_is_released_when_its_attachment_is_closed() {
    bounded(|| {
        let world = World::new();
        let Pair { near, far: _far } = pair(&world, Options::DEFAULT);
        let mut receiver = near.take_recv().expect("nobody uses it");
        let (mut queue, message) = (queue(&world), Memory::new(10));
        queue.recv(&mut receiver, message.buffer()).expect("a position");
        let mut word = 0u64;
        // SAFETY: a word of this test, which outlives the queue's operations.
        queue.wait_word(unsafe { Word::from_ptr(&raw mut word) }, 1).expect("enqueued");
        let done = queue.notify();
        let (_proxy, attachment, token) = world.apart();
        drop((attachment, token));
        let error = done.wait().expect_err("nothing came").errno();
        let ended = [Error::Canceled, Error::NetworkDown, Error::NoData].map(Error::errno);
        assert!(ended.contains(&error), "{error:?}");
    });
}
