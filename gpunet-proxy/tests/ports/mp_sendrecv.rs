//! mp_sendrecv: rounds of 64 messages each way, from 1 byte to 64 KiB, every byte checked.

use crate::kernels::{nth, recv, send};
use crate::ranks::{Rank, everywhere, finish, run_both};
use crate::support::{Memory, bounded};
use gpunet_device::{Buffer, Group, Kernel, Net, Prepared, Result};
use gpunet_proxy::queue::{Done, Queue};

/// Messages a round.
const COUNT: usize = 64;
/// The largest message fills it.
const RING: u64 = 64 << 10;

/// The program's sizes.
fn sizes() -> impl Iterator<Item = usize> {
    (0..=16).map(|log2| 1 << log2)
}

/// The buffers of one round: what a rank sends, and room for what it receives.
struct Round {
    sent: Memory,
    came: Memory,
    size: usize,
}

impl Round {
    fn new(rank: usize, size: usize) -> Self {
        let len = COUNT * size;
        Self { sent: Memory::filled(seed(rank, size), 0, len), came: Memory::new(len), size }
    }

    fn to_send(&self, i: usize) -> Buffer {
        self.sent.buffer().slice(i * self.size, self.size)
    }

    fn to_fill(&self, i: usize) -> Buffer {
        self.came.buffer().slice(i * self.size, self.size)
    }

    fn check(&self, rank: usize) {
        let len = COUNT * self.size;
        assert!(self.came.holds(0, len, seed(1 - rank, self.size), 0), "messages of {} bytes", self.size);
    }
}

const fn seed(rank: usize, size: usize) -> u64 {
    (size * 2 + rank) as u64
}

/// mp_sendrecv: all requests are posted, then waited for one by one. A queue for either direction: requests of a peer are
/// ordered among sends and among receives only.
#[test]
fn requests_are_posted_and_waited_for() {
    fn post(queue: &mut Queue, mut request: impl FnMut(&mut Queue, usize)) -> Vec<Done> {
        let post = |i| {
            request(queue, i);
            queue.notify()
        };
        (0..COUNT).map(post).collect()
    }
    bounded(|| {
        everywhere(RING, |_, mut ranks| {
            run_both(&mut ranks, |rank| {
                let mut sends = rank.another_queue();
                for size in sizes() {
                    let round = Round::new(rank.number, size);
                    let receive = |queue: &mut Queue, i| {
                        queue.recv(&mut rank.receiver, round.to_fill(i)).expect("a position")
                    };
                    let received = post(&mut rank.queue, receive);
                    let send = |queue: &mut Queue, i| {
                        queue.send(&mut rank.sender, round.to_send(i)).expect("a position")
                    };
                    let sent = post(&mut sends, send);
                    received.into_iter().chain(sent).for_each(|request| request.wait().expect("no failure"));
                    round.check(rank.number);
                }
            });
        });
    });
}

/// mp_sendrecv_stream: rank 0 sends and receives, rank 1 receives and sends, all on one queue, which is done afterwards.
#[test]
fn a_queue_sends_and_receives_in_order() {
    bounded(|| {
        everywhere(RING, |_, mut ranks| {
            run_both(&mut ranks, |rank| {
                let mut enqueued = 0;
                for size in sizes() {
                    let round = Round::new(rank.number, size);
                    for i in 0..COUNT {
                        for sends in [rank.number == 0, rank.number == 1] {
                            let Rank { queue, sender, receiver, .. } = &mut *rank;
                            let enqueue = if sends {
                                queue.send(sender, round.to_send(i))
                            } else {
                                queue.recv(receiver, round.to_fill(i))
                            };
                            enqueue.expect("a position");
                        }
                    }
                    rank.queue.synchronize().expect("no failure");
                    enqueued += 2 * COUNT as u64 + 1;
                    assert_eq!(rank.queue.outcome().done, enqueued);
                    round.check(rank.number);
                }
            });
        });
    });
}

/// What either rank's kernel plays: rank 0 sends and waits until that is done, then receives; rank 1 the other way round.
#[derive(Clone, Copy)]
struct SendRecv {
    net: Net,
    sends_first: bool,
    ring: u64,
    sent: Prepared,
    came: Prepared,
    from: Buffer,
    to: Buffer,
}

impl Kernel for SendRecv {
    const ENTRY: &'static str = "sendrecv";
    fn run<G: Group>(self, g: &G) {
        self.play(g).expect("the stream goes on");
    }
}

impl SendRecv {
    fn play<G: Group>(&self, g: &G) -> Result<()> {
        let size = self.sent.len as usize;
        for i in 0..COUNT {
            let (message, from) = (nth(self.sent, i as u64), self.from.slice(i * size, size));
            if self.sends_first {
                self.send(g, message, from)?;
            }
            recv(g, self.net, nth(self.came, i as u64), self.to.slice(i * size, size))?;
            if !self.sends_first {
                self.send(g, message, from)?;
            }
        }
        Ok(())
    }

    fn send<G: Group>(&self, g: &G, message: Prepared, from: Buffer) -> Result<()> {
        use gpunet_device::trigger::GateExt;
        send(g, self.net, message, self.ring, from)?;
        message.done().wait(g, self.net, 0)
    }
}

/// mp_sendrecv_kernel: the host program prepares, one kernel plays all. The original stops at 20 messages, because that is
/// what its queues hold; here a round is 64, and one message of a round is prepared for all that follow it.
/// The ring is twice as long as the longest: over rc not all of it may be expected at once.
#[test]
fn a_kernel_sends_and_receives_what_was_prepared() {
    bounded(|| {
        everywhere(2 * RING, |_, mut ranks| {
            run_both(&mut ranks, |rank| {
                for size in sizes().step_by(4) {
                    let round = Round::new(rank.number, size);
                    let (sent, came) = (rank.sender.prepare(size), rank.receiver.prepare(size));
                    let (sent, came) = (sent.expect("room").prepared, came.expect("room").prepared);
                    let (ring, sends_first) = (rank.sender.capacity() as u64, rank.number == 0);
                    let (from, to) = (round.sent.buffer(), round.came.buffer());
                    finish(rank.launch(2, |net| SendRecv { net, sends_first, ring, sent, came, from, to }));
                    round.check(rank.number);
                }
            });
        });
    });
}
