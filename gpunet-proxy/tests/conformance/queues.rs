//! Both ends are the host program's: it opens the sockets, takes their directions, and has queues
//! send, receive, post and wait. A queue is one thread, whatever the size of a group.

use crate::support::pair::sockets;
use crate::support::{Case, Memory, SOLO, Team, World, pattern, team, until};
use gpunet_device::abi::Word;
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_device::trigger::{GateExt, PreparedExt, TriggerExt};
use gpunet_device::{Group, Net, Prepared, Timeout};
use gpunet_proxy::abi::TransportKind;
use gpunet_proxy::queue::{Done, Queue};
use gpunet_proxy::socket::{DirectionError, Receiver, RecvMessage, SendMessage, Sender, Socket};
use gpunet_proxy::{FinishPolicy, LaunchToken};
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

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
    let [near, far] = sockets(there.attachment(), world.attachment(), options);
    [End::new(there, &near), End::new(world, &far)]
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

/// Messages of a round, which are prepared at once, and bytes of each: no divisor of the ring.
/// Together they are three quarters of it. Over rc no more is sure to come before some is given
/// back: less than a quarter is not granted.
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
    let refused = far.receiver.prepare(most + 1);
    assert!(matches!(refused, Err(DirectionError::MessageTooLong { .. })), "{refused:?}");
    far.receiver.prepare(most).expect("room");
    let refused = far.receiver.prepare(1);
    assert!(matches!(refused, Err(DirectionError::RingFull)), "{refused:?}");
    drop((near, far));
    world.end();
}

/// Both ends send first what neither ring holds: on one queue in order, neither would come to
/// receive.
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

/// Words that a queue, kernels and the program share.
struct Words([AtomicU64; 4]);

impl Words {
    fn new() -> Self {
        Self(Default::default())
    }

    fn at(&self, index: usize) -> Word {
        // SAFETY: an atomic of its own; the tests keep it until queues and kernels are done.
        unsafe { Word::from_ptr(self.0[index].as_ptr()) }
    }
}

/// What is enqueued takes effect in its order, and not before what it waits for, be it a word or a
/// message; further queues that wait hold nothing up, and stay where they are.
pub fn batches_wait_for_words_and_messages(case: &Case) {
    const WAITING: usize = 8;
    const LEN: usize = 24;
    /// Operations of a batch.
    const BATCH: u64 = 8;
    let world = World::of(case);
    let [mut near, mut far] = ends(case, &world);
    let (held, words) = (Words::new(), Words::new());
    let mut waiting = [(); WAITING].map(|()| Queue::cpu(world.attachment()).expect("a queue"));
    let enqueue = |queue: &mut Queue| {
        queue.wait_word(held.at(0), 1).expect("enqueued");
        queue.write(held.at(1), 1).expect("enqueued");
    };
    waiting.iter_mut().for_each(enqueue);
    for i in 1..=case.scaled(24) as u64 {
        let before = (i - 1) * BATCH;
        let (expected, answer) =
            (far.receiver.prepare(LEN).expect("room"), far.sender.prepare(LEN).expect("room"));
        far.queue.write(words.at(0), i).expect("enqueued");
        far.queue.wait(&[expected.arrived, answer.room]).expect("open");
        far.queue.write(words.at(1), i).expect("enqueued");
        far.queue.wait_word(words.at(2), i).expect("enqueued");
        far.queue.write(words.at(3), i).expect("enqueued");
        far.queue.post(&[expected.consume, answer.post]).expect("open");
        let is_at = |done: u64| {
            until("it comes so far", || far.queue.outcome().done >= before + done);
            // Time for a queue that does not wait.
            std::thread::sleep(Duration::from_micros(100));
            assert_eq!(far.queue.outcome().done, before + done, "batch {i}");
            [1, 3].map(|at| words.at(at).observe())
        };
        assert_eq!((is_at(1), words.at(0).observe()), ([i - 1; 2], i));
        let (sent, came) = (Memory::filled(i, 0, LEN), Memory::new(LEN));
        near.queue.send(&mut near.sender, sent.buffer()).expect("a position");
        near.queue.recv(&mut near.receiver, came.buffer()).expect("a position");
        assert_eq!(is_at(4), [i, i - 1], "the message has released it, the word has not");
        let (back, bytes) = (Memory::filled(2 * i, 0, LEN), Memory::new(LEN));
        // SAFETY: the message has landed, the ring has room for the answer, and both buffers are as
        // long.
        unsafe {
            copy_out_of_ring(&SOLO, bytes.buffer().as_ptr(), expected.span);
            copy_into_ring(&SOLO, answer.span, back.buffer().as_ptr());
        }
        words.at(2).publish(i);
        near.queue.synchronize().expect("no failure");
        assert!(bytes.holds(0, LEN, i, 0) && came.holds(0, LEN, 2 * i, 0), "batch {i}");
        assert_eq!(words.at(3).observe(), i);
        assert!(waiting.iter().all(|queue| queue.outcome().done == 0));
    }
    held.at(0).publish(1);
    waiting.iter_mut().for_each(|queue| queue.synchronize().expect("no failure"));
    drop((near, far, waiting));
    world.end();
}

/// Launches of either end: what they know is free when they have ended.
fn launches(world: &World) -> [LaunchToken; 2] {
    [world.connecting(), world].map(|world| world.attachment().token().expect("a number"))
}

/// Bytes of a message that a kernel makes of another one.
const MADE: usize = 48;

/// Enqueues one exchange: what comes is there, a kernel has its turn, which makes of it what is
/// sent. The end that asks first sends what the turn before has made. Returns what comes and what
/// is sent.
fn enqueue_turn(end: &mut End, words: &Words, turn: u64, asks: bool) -> [Prepared; 2] {
    let (came, sent) = (end.receiver.prepare(MADE), end.sender.prepare(MADE));
    let (came, sent) = (came.expect("as good as consumed"), sent.expect("as good as sent"));
    let queue = &mut end.queue;
    if asks {
        queue.wait(&[sent.room]).expect("open");
        queue.post(&[sent.post]).expect("open");
        queue.wait(&[sent.done, came.arrived]).expect("open");
    } else {
        queue.wait(&[came.arrived, sent.room]).expect("open");
    }
    queue.write(words.at(0), turn).expect("enqueued");
    queue.wait_word(words.at(1), turn).expect("enqueued");
    queue.post(&[came.consume]).expect("open");
    if !asks {
        queue.post(&[sent.post]).expect("open");
    }
    [came.prepared, sent.prepared]
}

/// The kernel of an end: in each turn it makes of what came what is sent next, in the rings: one is
/// added to all bytes.
fn take_turns(g: &Team, net: Net, words: &Words, [came, sent]: [Prepared; 2], turns: u64, asks: bool) {
    for turn in 0..turns {
        if g.is_leader() {
            while words.at(0).observe() <= turn {
                std::thread::yield_now();
            }
            let at =
                |first: Prepared, nth| first.nth(nth).expect("a position").span(&SOLO, net).expect("taken");
            let mut bytes = [0u8; MADE];
            // SAFETY: the message has come, and is this kernel's during its turn.
            unsafe { copy_out_of_ring(&SOLO, bytes.as_mut_ptr(), at(came, turn)) };
            let added = (2 * turn + u64::from(asks)) as u8;
            let is_right = |(at, byte): (usize, &u8)| *byte == pattern(9, at).wrapping_add(added);
            assert!(bytes.iter().enumerate().all(is_right), "turn {turn}");
            bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            let next = if asks { turn + 1 } else { turn };
            // The last answer is followed by no question.
            if next < turns {
                // SAFETY: there is room for the message: at most a quarter of the ring is under
                // way.
                unsafe { copy_into_ring(&SOLO, at(sent, next), bytes.as_mut_ptr()) };
            }
            words.at(1).publish(turn + 1);
        }
        g.sync();
    }
}

/// Kernels have turns between receive and send on both queues, batches of which are enqueued ahead,
/// before any can begin.
pub fn kernels_take_turns_between_messages(case: &Case) {
    const BATCH: u64 = 20;
    const AHEAD: usize = 2;
    let world = World::of(case);
    let [mut near, mut far] = ends(case, &world);
    let batches = case.scaled(16) as u64;
    let turns = batches * BATCH;
    let (words, start) = ([Words::new(), Words::new()], Words::new());
    // The question lies in the ring before its queue may publish it.
    [&mut near, &mut far].into_iter().for_each(|end| end.queue.wait_word(start.at(0), 1).expect("enqueued"));
    let question = Memory::filled(9, 0, MADE);
    let mut ends = [&mut near, &mut far];
    let tokens = launches(&world);
    let mut ahead: VecDeque<[Done; 2]> = VecDeque::new();
    std::thread::scope(|scope| {
        let nets = tokens.each_ref().map(LaunchToken::net);
        for batch in 0..batches {
            if ahead.len() == AHEAD {
                start.at(0).publish(1);
                ahead.pop_front().into_iter().flatten().for_each(|done| done.wait().expect("no failure"));
            }
            for turn in batch * BATCH + 1..=(batch + 1) * BATCH {
                for (at, end) in ends.iter_mut().enumerate() {
                    let first = enqueue_turn(end, &words[at], turn, at == 0);
                    if turn > 1 {
                        continue;
                    }
                    let (net, words, lanes) = (nets[at], &words[at], case.lanes);
                    if at == 0 {
                        let span = first[1].span(&SOLO, net).expect("taken");
                        // SAFETY: the ring is empty.
                        unsafe { copy_into_ring(&SOLO, span, question.buffer().as_ptr()) };
                    }
                    scope.spawn(move || team(lanes, |g| take_turns(g, net, words, first, turns, at == 0)));
                }
            }
            if batch == 0 {
                assert_eq!(
                    words.each_ref().map(|words| words.at(0).observe()),
                    [0; 2],
                    "all waits for the start"
                );
            }
            ahead.push_back(ends.each_mut().map(|end| end.queue.notify()));
        }
        start.at(0).publish(1);
        ahead.into_iter().flatten().for_each(|done| done.wait().expect("no failure"));
    });
    for token in tokens {
        token.finish(FinishPolicy::Close);
    }
    let outcome = near.receiver.outcome().expect("readable");
    assert_eq!((outcome.position, outcome.error.is_none()), (turns * MADE as u64, true));
    drop((near, far));
    world.end();
}

/// Kernels at both ends send and receive by turns what was prepared, each message of another
/// length.
pub fn kernels_at_both_ends_play_what_was_prepared(case: &Case) {
    const COUNT: usize = 20;
    let len = |i: usize| 8 * (i + 1);
    let total = (0..COUNT).map(len).sum();
    let world = World::of(case);
    let (mut ends, tokens) = (ends(case, &world), launches(&world));
    let (sent, came) =
        ([1, 2].map(|seed| Memory::filled(seed, 0, total)), [0; 2].map(|_| Memory::new(total)));
    std::thread::scope(|scope| {
        for (at, end) in ends.iter_mut().enumerate() {
            let net = tokens[at].net();
            let sends: [_; COUNT] =
                std::array::from_fn(|i| end.sender.prepare(len(i)).expect("room").prepared);
            let receives: [_; COUNT] =
                std::array::from_fn(|i| end.receiver.prepare(len(i)).expect("room").prepared);
            let (ring, lanes) = (end.sender.capacity() as u64, case.lanes);
            let (from, to) = (&sent[at], &came[at]);
            let play = move |g: &Team| {
                let mut place = 0;
                for (sent, came) in sends.iter().zip(&receives) {
                    sent.room(ring).wait(g, net, Timeout::NEVER)?;
                    // SAFETY: the ring has room for the message, and the buffer holds it.
                    unsafe { copy_into_ring(g, sent.span(g, net)?, from.buffer().skip(place).as_ptr()) };
                    sent.trigger().release(g, net)?;
                    came.arrived().wait(g, net, Timeout::NEVER)?;
                    // SAFETY: the message has landed, and the buffer has room for it.
                    unsafe { copy_out_of_ring(g, to.buffer().skip(place).as_ptr(), came.span(g, net)?) };
                    came.trigger().release(g, net)?;
                    place += sent.len as usize;
                }
                Ok::<_, gpunet_device::Error>(())
            };
            scope.spawn(move || team(lanes, play).expect("the stream goes on"));
        }
    });
    for token in tokens {
        token.finish(FinishPolicy::Close);
    }
    assert!(came[0].holds(0, total, 2, 0) && came[1].holds(0, total, 1, 0));
    drop(ends);
    world.end();
}
