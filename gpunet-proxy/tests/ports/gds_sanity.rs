//! gds_sanity: one batch of operations on a queue takes effect in its order, and not before what it waits for.
//!
//! Each batch notes its number, waits for a signal, writes 16 words, waits until the first of them is 0, and says that it is
//! done. The original writes a barrier between; a queue's writes are in order without one. Its words are 32 bits and are
//! compared for equality; here they have 64, and a wait is the signed comparison: a first word of -1 holds it.

use crate::kernels::{Words, await_word};
use crate::ranks::{everywhere, run_both};
use crate::support::{Memory, SOLO, World, bounded, until};
use gpunet_device::abi::Word;
use gpunet_device::copy::copy_into_ring;
use gpunet_proxy::queue::Queue;
use std::time::Duration;

const BATCHES: u64 = 20;
const VALUES: usize = 16;
/// How long a word is watched that must not change. A queue that is wrong may be later than that: then another batch shows it.
const WATCHED: Duration = Duration::from_micros(500);

/// The words of one queue.
struct Batch {
    words: Words,
}

impl Batch {
    fn new() -> Self {
        let words = Words::new(3 + VALUES);
        words.at(0).publish(0);
        Self { words }
    }

    fn noted(&self) -> Word {
        self.words.at(0)
    }

    fn signal(&self) -> Word {
        self.words.at(1)
    }

    fn done(&self) -> Word {
        self.words.at(2)
    }

    fn value(&self, index: usize) -> Word {
        self.words.at(3 + index)
    }

    fn values(&self) -> Vec<u64> {
        (0..VALUES).map(|at| self.value(at).observe()).collect()
    }

    /// What batch `i` writes.
    fn written(i: u64) -> Vec<u64> {
        (0..VALUES as u64).map(|at| if at == 0 { u64::MAX } else { i << 8 | at }).collect()
    }

    /// The part of batch `i` behind its signal.
    fn enqueue_rest(&self, queue: &mut Queue, i: u64) {
        for (at, value) in Self::written(i).into_iter().enumerate() {
            queue.write(self.value(at), value).expect("enqueued");
        }
        queue.wait_word(self.value(0), 0).expect("enqueued");
        queue.write(self.done(), i).expect("enqueued");
    }

    /// Checks that the batch is where its `done` operations are done, and that it stays there.
    fn expect_waiting(&self, queue: &Queue, done: u64, values: &[u64], i: u64) {
        until("it comes so far", || queue.outcome().done >= done);
        std::thread::sleep(WATCHED);
        assert_eq!((self.values().as_slice(), self.done().observe()), (values, i - 1), "batch {i}");
        assert_eq!(queue.outcome().done, done, "batch {i}");
    }

    /// Lets the second wait pass, and waits for the end of the batch.
    fn finish(&self, i: u64) {
        self.value(0).publish(0);
        await_word(self.done(), i);
        assert_eq!(self.values()[1..], Self::written(i)[1..]);
    }
}

/// The program itself, with eight queues at a time.
#[test]
fn batches_wait_for_their_signals() {
    bounded(|| {
        let world = World::new();
        let mut queues: Vec<_> =
            (0..8).map(|_| (Queue::cpu(world.attachment()).expect("a queue"), Batch::new())).collect();
        let operations = VALUES as u64 + 4;
        for i in 1..=BATCHES {
            let before: Vec<_> = queues.iter().map(|(_, batch)| batch.values()).collect();
            for (queue, batch) in &mut queues {
                queue.write(batch.noted(), i).expect("enqueued");
                queue.wait_word(batch.signal(), i).expect("enqueued");
                batch.enqueue_rest(queue, i);
            }
            for ((queue, batch), before) in queues.iter().zip(&before) {
                await_word(batch.noted(), i);
                batch.expect_waiting(queue, (i - 1) * operations + 1, before, i);
            }
            // One after another: the other queues go on waiting.
            for (at, (queue, batch)) in queues.iter().enumerate() {
                batch.signal().publish(i);
                await_word(batch.value(VALUES - 1), Batch::written(i)[VALUES - 1]);
                batch.expect_waiting(queue, i * operations - 2, &Batch::written(i), i);
                batch.finish(i);
                for (other, before) in queues.iter().zip(&before).skip(at + 1) {
                    assert_eq!(other.1.values(), *before, "batch {i}");
                }
            }
        }
        for (queue, _) in &mut queues {
            queue.synchronize().expect("no failure");
            assert_eq!(queue.outcome().done, BATCHES * operations + 1);
        }
        world.end();
    });
}

/// The same with a message for the signal, and another that says it is done.
#[test]
fn batches_wait_for_messages() {
    const LEN: usize = 24;
    bounded(|| {
        everywhere(4096, |place, mut ranks| {
            let batch = Batch::new();
            let batch = &batch;
            run_both(&mut ranks, |rank| {
                for i in 1..=BATCHES {
                    if rank.number == 0 {
                        let expected = rank.receiver.prepare(LEN).expect("room");
                        let answer = rank.sender.prepare(LEN).expect("room");
                        let bytes = Memory::filled(i + BATCHES, 0, LEN);
                        // SAFETY: the ring has room for all batches.
                        unsafe { copy_into_ring(&SOLO, answer.span, bytes.buffer().as_ptr()) };
                        rank.queue.write(batch.noted(), i).expect("enqueued");
                        rank.queue.wait(&[expected.arrived]).expect("open");
                        batch.enqueue_rest(&mut rank.queue, i);
                        rank.queue.post(&[expected.consume, answer.post]).expect("open");
                        rank.queue.synchronize().expect("no failure");
                        continue;
                    }
                    let (signal, answer) = (Memory::filled(i, 0, LEN), Memory::new(LEN));
                    let before = batch.values();
                    await_word(batch.noted(), i);
                    rank.queue.recv(&mut rank.receiver, answer.buffer()).expect("a position");
                    let answered = rank.queue.notify();
                    std::thread::sleep(WATCHED);
                    assert_eq!((batch.values(), batch.done().observe()), (before, i - 1), "{place:?}");
                    let mut signals = rank.another_queue();
                    signals.send(&mut rank.sender, signal.buffer()).expect("a position");
                    await_word(batch.value(VALUES - 1), Batch::written(i)[VALUES - 1]);
                    // Neither the word nor the message is there before the second wait is over.
                    std::thread::sleep(WATCHED);
                    assert_eq!((batch.done().observe(), rank.queue.outcome().done), (i - 1, 2 * (i - 1)));
                    batch.finish(i);
                    answered.wait().expect("no failure");
                    assert!(answer.holds(0, LEN, i + BATCHES, 0), "{place:?}, batch {i}");
                    signals.synchronize().expect("no failure");
                }
            });
        });
    });
}
