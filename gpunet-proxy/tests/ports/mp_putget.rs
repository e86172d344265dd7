//! The shapes of mp_putget that sockets have, and comm_pingpong of libmp's communication library.
//!
//! A put names a place in the memory of the other rank, and a get reads there. A message has no place but its order: the
//! receiver says where it goes. So 64 puts to 64 places are 64 messages that the other rank receives into those places.
//! What is missing is what the other rank has no part in: a put that it has not asked for, and every get. Those belong to
//! symmetric memory, as does `mp_window_create`.

use crate::ranks::{Rank, everywhere, run_both};
use crate::support::{Memory, SOLO, bounded};
use gpunet_device::copy::copy_into_ring;
use gpunet_proxy::queue::Queue;
use gpunet_proxy::socket::{SendMessage, Sender};

/// Puts of a round, and the bytes of each: a round fills the ring with its signal.
const PUTS: usize = 64;
const LEN: usize = 60;
const SIGNAL: usize = 4;
const RING: u64 = 4096;
const ROUNDS: u64 = 20;

/// How the puts of a round are posted.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Each is posted, and waited for.
    EachDone,
    /// All are posted at once, and waited for at once: libmp's desc_queue.
    Collected,
    /// One doorbell and one completion for 65 operations: libmp's NOWAIT, where only the signal has one.
    OneCompletion,
}

/// Places a message and fills it. The ring has room: the round before is done.
fn filled(sender: &mut Sender, from: &Memory, at: usize, len: usize) -> SendMessage {
    let message = sender.prepare(len).expect("the round before is done");
    // SAFETY: the ring has room for the message, and the memory has it.
    unsafe { copy_into_ring(&SOLO, message.span, from.buffer().slice(at, len).as_ptr()) };
    message
}

/// Puts a round, and tells the other rank of it by a signal.
fn put(queue: &mut Queue, sender: &mut Sender, window: &Memory, signal: &Memory, form: Form) {
    let puts: Vec<_> = (0..PUTS).map(|i| filled(sender, window, i * LEN, LEN)).collect();
    let signal = filled(sender, signal, 0, SIGNAL);
    match form {
        Form::EachDone => {
            for message in puts.iter().chain([&signal]) {
                queue.post(&[message.post]).expect("open");
                queue.wait(&[message.done]).expect("open");
            }
        }
        Form::Collected => {
            let posts: Vec<_> = puts.iter().chain([&signal]).map(|message| message.post).collect();
            let done: Vec<_> = puts.iter().chain([&signal]).map(|message| message.done).collect();
            queue.post(&posts).expect("open");
            queue.wait(&done).expect("open");
        }
        Form::OneCompletion => {
            queue.post(&[signal.post]).expect("open");
            queue.wait(&[signal.done]).expect("open");
        }
    }
}

fn bytes(rank: usize, round: u64) -> Memory {
    Memory::filled(round * 2 + rank as u64, 0, PUTS * LEN)
}

/// Each rank puts, and waits for the signal of the other one, whose puts are there then, each in its place.
#[test]
fn puts_are_there_when_their_signal_is() {
    bounded(|| {
        everywhere(RING, |place, mut ranks| {
            for form in [Form::EachDone, Form::Collected, Form::OneCompletion] {
                run_both(&mut ranks, |rank| {
                    let (window, mut receives) = (Memory::new(PUTS * LEN), rank.another_queue());
                    for round in 0..ROUNDS {
                        let came = Memory::new(SIGNAL);
                        for i in 0..PUTS {
                            // The places from the last to the first: the receiver chooses.
                            let place = window.buffer().slice((PUTS - 1 - i) * LEN, LEN);
                            receives.recv(&mut rank.receiver, place).expect("a position");
                        }
                        receives.recv(&mut rank.receiver, came.buffer()).expect("a position");
                        let arrived = receives.notify();
                        let (sent, signal) = (bytes(rank.number, round), Memory::filled(round, 0, SIGNAL));
                        put(&mut rank.queue, &mut rank.sender, &sent, &signal, form);
                        rank.queue.synchronize().expect("no failure");
                        arrived.wait().expect("no failure");
                        assert!(came.holds(0, SIGNAL, round, 0), "{place:?}, {form:?}, round {round}");
                        let expected = bytes(1 - rank.number, round);
                        for i in 0..PUTS {
                            let (at, place) = (i * LEN, (PUTS - 1 - i) * LEN);
                            assert!(window.copy(place, LEN) == expected.copy(at, LEN), "{form:?}, put {i}");
                        }
                    }
                });
            }
        });
    });
}

/// comm_pingpong: a rank sends only when the other one has said that its receive is posted: a credit of one, by a message
/// of four bytes where the original puts a word. All of it on queues.
#[test]
fn a_rank_sends_when_the_other_one_is_ready() {
    bounded(|| {
        everywhere(RING, |_, mut ranks| {
            run_both(&mut ranks, |rank| {
                let (sent, came) = (Memory::filled(rank.number as u64, 0, 50_000), Memory::new(50_000));
                let tokens = [Memory::filled(rank.number as u64, 0, 4), Memory::new(4)];
                let Rank { queue, sender, receiver, .. } = rank;
                for at in (0..50_000).step_by(500) {
                    queue.send(sender, tokens[0].buffer()).expect("a position");
                    queue.recv(receiver, tokens[1].buffer()).expect("a position");
                    queue.send(sender, sent.buffer().slice(at, 500)).expect("a position");
                    queue.recv(receiver, came.buffer().slice(at, 500)).expect("a position");
                }
                queue.synchronize().expect("no failure");
                assert!(came.holds(0, 50_000, 1 - rank.number as u64, 0));
                assert!(tokens[1].holds(0, 4, 1 - rank.number as u64, 0));
            });
        });
    });
}
