//! Both ends are the host program's: it opens the sockets, takes their directions, and has queues send, receive, post and
//! wait. A queue is one thread, whatever the size of a group.

use crate::support::client::std_addr;
use crate::support::{Case, Memory, SOLO, World};
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_proxy::abi::TransportKind;
use gpunet_proxy::queue::Queue;
use gpunet_proxy::socket::{Receiver, RecvMessage, SendMessage, Sender, Socket};

/// Bytes of both rings: messages wrap, and long ones go in many pieces.
const RING: u64 = 4096;

/// One end of a stream, with a queue of its own.
struct End {
    sender: Sender,
    receiver: Receiver,
    queue: Queue,
}

impl End {
    fn new(world: &World, socket: &Socket) -> Self {
        let (sender, receiver) = (socket.take_send(), socket.take_recv());
        let queue = Queue::cpu(world.attachment()).expect("a queue");
        Self { sender: sender.expect("nobody uses it"), receiver: receiver.expect("nobody uses it"), queue }
    }
}

/// Opens a stream, and gives the ends that connected and accepted.
fn ends(case: &Case, world: &World) -> [End; 2] {
    let (options, there) = (case.rings(RING), world.connecting());
    let listener = world.attachment().listen_blocking(std_addr(case.address()), options, 1);
    let listener = listener.expect("a free port");
    std::thread::scope(|scope| {
        let near = scope.spawn(|| there.attachment().connect_blocking(listener.local_addr(), options));
        let far = listener.accept_blocking().expect("a connection");
        [End::new(there, &near.join().expect("no panic").expect("connected")), End::new(world, &far)]
    })
}

pub fn messages_of_any_length_come_back(case: &Case) {
    const LENGTHS: [usize; 7] = [1, 64, 700, 4095, 4096, 4097, 20_000];
    let world = World::of(case);
    let [mut near, mut far] = ends(case, &world);
    let sent = LENGTHS.map(|len| Memory::filled(len as u64, 0, len));
    let [echoed, back] = [0; 2].map(|_| LENGTHS.map(Memory::new));
    for (at, message) in sent.iter().enumerate() {
        near.queue.send(&mut near.sender, message.buffer()).expect("a position");
        near.queue.recv(&mut near.receiver, back[at].buffer()).expect("a position");
        far.queue.recv(&mut far.receiver, echoed[at].buffer()).expect("a position");
        far.queue.send(&mut far.sender, echoed[at].buffer()).expect("a position");
    }
    near.queue.synchronize().expect("no failure");
    far.queue.synchronize().expect("no failure");
    for (message, len) in back.iter().zip(LENGTHS) {
        assert!(message.holds(0, len, len as u64, 0), "{len} bytes");
    }
    drop((near, far));
    world.end();
}

/// Messages of a round, which are prepared at once, and bytes of each: no divisor of the ring. Together they are three quarters
/// of it. Over rc no more is sure to come before some is given back: less than a quarter is not granted.
const COUNT: usize = 4;
const LEN: usize = 768;

/// In which order a round's triggers are posted: one that comes behind a later one does nothing.
const ORDERS: [&[usize]; 4] = [&[0, 1, 2, 3], &[3], &[1, 0, 3, 2], &[3, 2, 1, 0]];

fn send_round(end: &mut End, round: usize, sent: &Memory) {
    let messages: [SendMessage; COUNT] = std::array::from_fn(|_| end.sender.prepare(LEN).expect("room"));
    end.queue.wait(&[messages[COUNT - 1].room]).expect("open");
    end.queue.synchronize().expect("the ring gets empty");
    for (at, message) in messages.iter().enumerate() {
        let from = sent.buffer().skip((round * COUNT + at) * LEN);
        // SAFETY: the ring has room for the message, which nobody else writes; the buffer holds it.
        unsafe { copy_into_ring(&SOLO, message.span, from.as_ptr()) };
    }
    let order = ORDERS[round % ORDERS.len()];
    end.queue.post(&order.iter().map(|&at| messages[at].post).collect::<Vec<_>>()).expect("open");
    end.queue.wait(&messages.map(|message| message.done)).expect("open");
    end.queue.synchronize().expect("no failure");
}

fn receive_round(end: &mut End, round: usize, came: &Memory) {
    let messages: [RecvMessage; COUNT] = std::array::from_fn(|_| end.receiver.prepare(LEN).expect("room"));
    end.queue.wait(&messages.map(|message| message.arrived)).expect("open");
    end.queue.synchronize().expect("it comes");
    for (at, message) in messages.iter().enumerate() {
        let to = came.buffer().skip((round * COUNT + at) * LEN);
        // SAFETY: the message has landed and is not given back; the buffer has room for it.
        unsafe { copy_out_of_ring(&SOLO, to.as_ptr(), message.span) };
    }
    let order = ORDERS[(round + 1) % ORDERS.len()];
    end.queue.post(&order.iter().map(|&at| messages[at].consume).collect::<Vec<_>>()).expect("open");
    end.queue.synchronize().expect("no failure");
}

pub fn prepared_messages_are_posted_and_waited_for(case: &Case) {
    let world = World::of(case);
    let [mut near, mut far] = ends(case, &world);
    let rounds = case.scaled(40);
    let total = rounds * COUNT * LEN;
    let (sent, came) = (Memory::filled(6, 0, total), Memory::new(total));
    std::thread::scope(|scope| {
        scope.spawn(|| (0..rounds).for_each(|round| send_round(&mut near, round, &sent)));
        (0..rounds).for_each(|round| receive_round(&mut far, round, &came));
    });
    assert!(came.holds(0, total, 6, 0));
    // As much as is sure to come before some is given back.
    let most = if case.transport == TransportKind::Rc { RING / 4 * 3 } else { RING } as usize;
    let errno = |refused: std::io::Result<RecvMessage>| refused.expect_err("too much").raw_os_error();
    assert_eq!(errno(far.receiver.prepare(most + 1)), Some(libc::EMSGSIZE));
    far.receiver.prepare(most).expect("room");
    assert_eq!(errno(far.receiver.prepare(1)), Some(libc::ENOBUFS));
    drop((near, far));
    world.end();
}

/// Both ends send first what neither ring holds: on one queue in order, neither would come to receive.
pub fn messages_that_are_started_go_both_ways_at_a_time(case: &Case) {
    const LONG: usize = 20_000;
    let world = World::of(case);
    let mut ends = ends(case, &world);
    let sent = [1, 2].map(|seed| Memory::filled(seed, 0, LONG));
    let came = [0; 2].map(|_| Memory::new(LONG));
    for (at, End { sender, receiver, queue }) in ends.iter_mut().enumerate() {
        let sends = queue.start_send(sender, sent[at].buffer()).expect("a position");
        let receives = queue.start_recv(receiver, came[at].buffer()).expect("a position");
        queue.finish(&[sends, receives]).expect("enqueued");
    }
    for end in &mut ends {
        end.queue.synchronize().expect("no failure");
    }
    assert!(came[0].holds(0, LONG, 2, 0) && came[1].holds(0, LONG, 1, 0));
    drop(ends);
    world.end();
}
