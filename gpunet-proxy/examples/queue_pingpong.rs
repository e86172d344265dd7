//! One message to and fro between two ranks: by the program, on queues, and in kernels.
//!
//! ```text
//! cargo run --example queue_pingpong [tcp|peer]
//! ```
//!
//! | form | who drives an exchange |
//! |---|---|
//! | `Program` | the program: it waits for each operation of its queue |
//! | `Ahead` | the queue: the program enqueues all exchanges, then waits once |
//! | `WithKernel` | the queue, and between a receive and the next send a kernel that changes the message |
//! | `Kernel` | the kernel alone: the program prepares one message each way, from which all that follow are made |
//!
//! Each kernel adds one to all bytes, so what is there in the end tells how often the message went
//! to and fro. The shapes are those of libmp's `mp_pingpong`.

mod ranks;

use gpunet_device::abi::TransportKind;
use gpunet_device::{Buffer, Group, Kernel, Net, Prepared, Result};
use gpunet_proxy::Attachment;
use ranks::{Fallible, Rank, Turns, Words, buffer, bytes, finish, pattern, recv, run_both, send};
use std::time::Instant;

const SIZES: [usize; 4] = [1, 64, 1000, 4096];
pub(crate) const EXCHANGES: u64 = 100;
const RING: u64 = 16 << 10;
/// Lanes of a kernel.
const LANES: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Program,
    Ahead,
    WithKernel,
    Kernel,
}

fn main() -> Fallible {
    ranks::start(|near, far, transport| run(near, far, transport, EXCHANGES))
}

pub(crate) fn run(near: &Attachment, far: &Attachment, transport: TransportKind, exchanges: u64) -> Fallible {
    let mut ranks = ranks::ranks(near, far, transport, RING)?;
    for form in [Form::Program, Form::Ahead, Form::WithKernel, Form::Kernel] {
        for size in SIZES {
            let start = Instant::now();
            run_both(&mut ranks, |rank| play(rank, form, size, exchanges))?;
            println!("{form:?}: {exchanges} exchanges of {size} bytes in {:?}", start.elapsed());
        }
    }
    Ok(())
}

/// One rank's part: rank 0 has the message first.
fn play(rank: &mut Rank<'_>, form: Form, size: usize, exchanges: u64) -> Fallible {
    let first = if rank.number == 0 { pattern(1, size) } else { vec![0; size] };
    let memory = rank.memory(&first)?;
    let message = buffer(&memory);
    match form {
        Form::Kernel => in_kernel(rank, message, exchanges)?,
        _ => on_queue(rank, form, message, exchanges)?,
    }
    let added = match form {
        Form::Program | Form::Ahead => 0,
        // The last to add one is rank 0.
        Form::WithKernel | Form::Kernel => 2 * exchanges - rank.number as u64,
    };
    let expected: Vec<u8> = pattern(1, size).iter().map(|byte| byte.wrapping_add(added as u8)).collect();
    assert!(bytes(&memory)? == expected, "{form:?}, {size} bytes, rank {}", rank.number);
    Ok(())
}

fn on_queue(rank: &mut Rank<'_>, form: Form, message: Buffer, exchanges: u64) -> Fallible {
    let words = Words::new();
    let turns = Turns::of(&words);
    let kernel = Increment { turns, message, exchanges };
    let launch = (form == Form::WithKernel).then(|| rank.launch(LANES, |_| kernel));
    let launch = launch.transpose()?;
    let Rank { number, sender, receiver, queue, .. } = rank;
    for turn in 1..=exchanges {
        for sends in [*number == 0, *number == 1] {
            if sends {
                queue.send(sender, message)?;
            } else {
                queue.recv(receiver, message)?;
                if launch.is_some() {
                    turns.enqueue(queue, turn)?;
                }
            }
            if form == Form::Program {
                queue.synchronize()?;
            }
        }
    }
    queue.synchronize()?;
    launch.map_or(Ok(()), finish)
}

fn in_kernel(rank: &mut Rank<'_>, message: Buffer, exchanges: u64) -> Fallible {
    let sent = rank.sender.prepare(message.len())?.prepared;
    let came = rank.receiver.prepare(message.len())?.prepared;
    let (number, ring) = (rank.number, rank.sender.capacity() as u64);
    finish(rank.launch(LANES, |net| PingPong { net, number, ring, sent, came, message, exchanges })?)
}

/// Adds one to all bytes. Each lane has a share of them.
fn increment<G: Group>(g: &G, message: Buffer) {
    for at in (g.rank() as usize..message.len()).step_by(g.size() as usize) {
        // SAFETY: inside the message, by one lane, while nobody else uses it.
        unsafe {
            let byte = message.as_ptr().add(at);
            byte.write_volatile(byte.read_volatile().wrapping_add(1));
        }
    }
}

/// The kernel between a receive and the next send.
#[derive(Clone, Copy)]
struct Increment {
    turns: Turns,
    message: Buffer,
    exchanges: u64,
}

impl Kernel for Increment {
    const ENTRY: &'static str = "increment";

    fn run<G: Group>(self, g: &G) {
        for turn in 1..=self.exchanges {
            self.turns.take(g, turn, || increment(g, self.message));
        }
    }
}

/// The whole exchange inside the kernel.
#[derive(Clone, Copy)]
struct PingPong {
    net: Net,
    number: usize,
    ring: u64,
    sent: Prepared,
    came: Prepared,
    message: Buffer,
    exchanges: u64,
}

impl Kernel for PingPong {
    const ENTRY: &'static str = "pingpong";

    fn run<G: Group>(self, g: &G) {
        self.play(g).expect("the stream goes on");
    }
}

impl PingPong {
    fn play<G: Group>(&self, g: &G) -> Result<()> {
        for i in 0..self.exchanges {
            let [sent, came] = [self.sent, self.came].map(|first| first.nth(i).expect("a position"));
            if self.number == 0 {
                send(g, self.net, sent, self.ring, self.message)?;
            }
            recv(g, self.net, came, self.message)?;
            increment(g, self.message);
            g.sync();
            if self.number == 1 {
                send(g, self.net, sent, self.ring, self.message)?;
            }
        }
        Ok(())
    }
}
