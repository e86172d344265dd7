//! gds_poll_lat, gds_kernel_latency and gds_kernel_loopback_latency: what happens, not how fast.

use crate::kernels::{Turns, Words, await_word, nth};
use crate::ranks::{APART, Rank, TOGETHER, connect, finish, run_both};
use crate::support::{SOLO, World, bounded};
use gpunet_device::trigger::PreparedExt;
use gpunet_device::{Group, Kernel, Net, Options, Prepared, Result, RingSpan};
use gpunet_proxy::queue::{Done, Queue};
use std::collections::VecDeque;
use std::sync::Barrier;
use std::time::Duration;

/// gds_poll_lat: a queue waits for a word and writes some others, while further queues wait already, some for words and some
/// at gates. It is not done before the program stores the word, and then in order; the further ones stay where they are.
#[test]
fn a_queue_that_waits_is_not_held_up_by_others_that_wait() {
    const WAITING: usize = 16;
    const ROUNDS: u64 = 50;
    const WRITES: usize = 8;
    bounded(|| {
        let world = World::new();
        let [near, far] = connect(&world, &world, Options::DEFAULT);
        let (mut receiver, mut sender) =
            (far.take_recv().expect("nobody uses it"), near.take_send().expect("nobody uses it"));
        let held = Words::new(1);
        let never = receiver.prepare(1).expect("room");
        let mut waiting: Vec<_> = (0..WAITING)
            .map(|at| {
                let mut queue = Queue::cpu(world.attachment()).expect("a queue");
                if at % 2 == 0 {
                    queue.wait_word(held.at(0), 1).expect("enqueued");
                } else {
                    queue.wait(&[never.arrived]).expect("open");
                }
                queue
            })
            .collect();
        let words = Words::new(1 + WRITES);
        let mut queue = Queue::cpu(world.attachment()).expect("a queue");
        for round in 1..=ROUNDS {
            queue.wait_word(words.at(0), round).expect("enqueued");
            (1..=WRITES).for_each(|at| queue.write(words.at(at), round).expect("enqueued"));
            std::thread::sleep(Duration::from_micros(10));
            assert!(queue.outcome().done <= (round - 1) * (WRITES as u64 + 1));
            assert_eq!(words.at(1).observe(), round - 1);
            words.at(0).publish(round);
            await_word(words.at(WRITES), round);
            // The last write is seen, so all others are.
            (1..=WRITES).for_each(|at| assert_eq!(words.at(at).observe(), round));
            assert!(waiting.iter().all(|queue| queue.outcome().done == 0));
        }
        queue.synchronize().expect("no failure");
        held.at(0).publish(1);
        let one = world.attachment().alloc(1).expect("memory");
        // SAFETY: the queue is done with it below.
        queue.send(&mut sender, unsafe { one.buffer() }).expect("a position");
        waiting.iter_mut().for_each(|queue| queue.synchronize().expect("no failure"));
        queue.synchronize().expect("no failure");
    });
}

/// Messages of a batch, and batches that are posted ahead.
const BATCH: u64 = 20;
const AHEAD: usize = 3;
const BATCHES: u64 = 10;
const LEN: usize = 48;
/// Holds what the batches ahead have in flight: room is not what they wait for.
const RING: u64 = 8192;

/// The computation of either rank: of a message that has arrived it makes the next one, in the ring: all its bytes are the
/// number of the exchange, and the answer has the bits inverted.
#[derive(Clone, Copy)]
struct Compute {
    net: Net,
    turns: Turns,
    rank: usize,
    expected: Prepared,
    next: Prepared,
    count: u64,
}

fn fill<G: Group>(g: &G, span: RingSpan, byte: u8) {
    for piece in span.pieces() {
        for at in (g.rank() as usize..piece.len).step_by(g.size() as usize) {
            // SAFETY: inside the message, which is this group's, and for which there is room.
            unsafe { piece.ptr.add(at).write_volatile(byte) };
        }
    }
}

fn holds(span: RingSpan, byte: u8) -> bool {
    // SAFETY: inside a message that has landed and is not given back.
    span.pieces()
        .iter()
        .all(|piece| (0..piece.len).all(|at| unsafe { piece.ptr.add(at).read_volatile() } == byte))
}

/// What the client sends in that exchange.
const fn question(turn: u64) -> u8 {
    (turn * 7) as u8
}

impl Kernel for Compute {
    const ENTRY: &'static str = "compute";
    fn run<G: Group>(self, g: &G) {
        for i in 0..self.count {
            self.turns.take(g, i + 1, || self.compute(g, i)).expect("taken");
        }
    }
}

impl Compute {
    fn compute<G: Group>(&self, g: &G, i: u64) -> Result<()> {
        let came = nth(self.expected, i).span(g, self.net)?;
        if self.rank == 0 {
            assert!(holds(came, !question(i)), "the answer {i}");
            // The first question is the program's.
            if i + 1 < self.count {
                fill(g, nth(self.next, i + 1).span(g, self.net)?, question(i + 1));
            }
        } else {
            assert!(holds(came, question(i)), "the question {i}");
            fill(g, nth(self.next, i).span(g, self.net)?, !question(i));
        }
        Ok(())
    }
}

/// Enqueues one exchange, with the kernel between receive and send. Returns what comes and what is sent.
fn enqueue(rank: &mut Rank<'_>, turns: Turns, turn: u64) -> (Prepared, Prepared) {
    let sent = rank.sender.prepare(LEN).expect("what was enqueued is as good as sent");
    let came = rank.receiver.prepare(LEN).expect("what was enqueued is as good as consumed");
    let queue = &mut rank.queue;
    if rank.number == 0 {
        if turn == 1 {
            fill(&SOLO, sent.span, question(0));
        }
        queue.wait(&[sent.room]).expect("open");
        queue.post(&[sent.post]).expect("open");
        queue.wait(&[sent.done, came.arrived]).expect("open");
        turns.enqueue(queue, turn);
        queue.post(&[came.consume]).expect("open");
    } else {
        queue.wait(&[came.arrived, sent.room]).expect("open");
        turns.enqueue(queue, turn);
        queue.post(&[came.consume, sent.post]).expect("open");
    }
    (came.prepared, sent.prepared)
}

/// What holds the server's queue back until both ranks have posted their batches.
struct Start {
    go: Words,
    posted: Barrier,
}

/// One rank: some batches ahead, and another one whenever the oldest is done.
fn exchange(rank: &mut Rank<'_>, start: Option<&Start>) {
    let words = Words::new(2);
    let turns = Turns::of(&words);
    if let (Some(start), 1) = (start, rank.number) {
        rank.queue.wait_word(start.go.at(0), 1).expect("enqueued");
    }
    let (mut ahead, mut launch, mut turn) = (VecDeque::<Done>::new(), None, 0);
    for batch in 0..BATCHES {
        if ahead.len() == AHEAD {
            ahead.pop_front().expect("three of them").wait().expect("no failure");
        }
        for _ in 0..BATCH {
            turn += 1;
            let (expected, next) = enqueue(rank, turns, turn);
            let (number, count) = (rank.number, BATCHES * BATCH);
            launch.get_or_insert_with(|| {
                rank.launch(2, |net| Compute { net, turns, rank: number, expected, next, count })
            });
        }
        ahead.push_back(rank.queue.notify());
        if let (Some(start), true) = (start, batch + 1 == AHEAD as u64) {
            start.posted.wait();
            if rank.number == 0 {
                // All of it waits for the server, whose queue waits for this.
                std::thread::sleep(Duration::from_micros(500));
                assert_eq!((turns.go.observe(), rank.queue.outcome().done < 4), (0, true));
                start.go.at(0).publish(1);
            }
        }
    }
    ahead.into_iter().for_each(|done| done.wait().expect("no failure"));
    finish(launch.expect("a batch"));
    assert_eq!(rank.receiver.outcome().expect("readable").position, turn * LEN as u64);
}

/// gds_kernel_latency: three batches of 20 are posted ahead. The client sends, waits until that is done and for the answer,
/// and runs a kernel; the server waits, runs a kernel, and answers. The CPU waits for a batch now and then, and posts another.
#[test]
fn batches_with_kernels_between_are_posted_ahead() {
    bounded(|| {
        for place in APART {
            place.run(RING, |mut ranks| run_both(&mut ranks, |rank| exchange(rank, None)));
        }
    });
}

/// gds_kernel_loopback_latency: the same with oneself; the server's queue is blocked until all is posted.
#[test]
fn batches_that_are_posted_ahead_wait_for_a_blocked_queue() {
    bounded(|| {
        for place in TOGETHER {
            let start = Start { go: Words::new(1), posted: Barrier::new(2) };
            place.run(RING, |mut ranks| run_both(&mut ranks, |rank| exchange(rank, Some(&start))));
        }
    });
}
