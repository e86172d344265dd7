//! Many small messages, few doorbells: each rank puts 64 pieces to the other one, and tells it so
//! by a signal.
//!
//! ```text
//! cargo run --example queue_puts [tcp|peer]
//! ```
//!
//! The program places all messages of a round in the ring and fills them ([`Sender::prepare`]). Its
//! queue then posts each and waits for it, or posts all at once, or posts and waits for the last
//! one only, which publishes all before it. A further queue receives, each message into the place
//! that the receiver has for it.
//!
//! The shape is that of libmp's `mp_putget`, as far as sockets have it. A put names a place in the
//! memory of the other rank; a message has none but its order. For puts that the other rank has no
//! part in, see `gpunet_proxy::team`.

mod ranks;

use gpunet_device::abi::TransportKind;
use gpunet_device::copy::copy_into_ring;
use gpunet_device::group::Solo;
use gpunet_proxy::Attachment;
use gpunet_proxy::queue::Queue;
use gpunet_proxy::socket::{SendMessage, Sender};
use ranks::{Fallible, Rank, buffer, bytes, pattern, run_both};
use std::time::Instant;

/// Puts of a round, and the bytes of each: a round fills the ring with its signal.
const PUTS: usize = 64;
const LEN: usize = 60;
const SIGNAL: usize = 4;
const RING: u64 = 4096;
pub(crate) const ROUNDS: usize = 20;

/// How the puts of a round are posted.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Each is posted, and waited for.
    EachDone,
    /// All are posted at once, and waited for at once.
    Collected,
    /// One doorbell and one completion for 65 operations.
    OneCompletion,
}

fn main() -> Fallible {
    ranks::start(|near, far, transport| run(near, far, transport, ROUNDS))
}

pub(crate) fn run(near: &Attachment, far: &Attachment, transport: TransportKind, rounds: usize) -> Fallible {
    let mut ranks = ranks::ranks(near, far, transport, RING)?;
    for form in [Form::EachDone, Form::Collected, Form::OneCompletion] {
        let start = Instant::now();
        run_both(&mut ranks, |rank| (0..rounds).try_for_each(|round| play(rank, form, round)))?;
        println!("{form:?}: {rounds} rounds of {PUTS} puts each way in {:?}", start.elapsed());
    }
    Ok(())
}

/// A rank puts, and waits for the signal of the other one, whose puts are there then, each in its
/// place.
fn play(rank: &mut Rank<'_>, form: Form, round: usize) -> Fallible {
    let seed = |number: usize| round * 2 + number;
    let (window, signal) = (rank.memory(&[0; PUTS * LEN])?, rank.memory(&[0; SIGNAL])?);
    let mut receives = Queue::cpu(rank.attachment)?;
    for i in 0..PUTS {
        receives.recv(&mut rank.receiver, buffer(&window).slice(place(i), LEN))?;
    }
    receives.recv(&mut rank.receiver, buffer(&signal))?;
    put(rank, form, &pattern(seed(rank.number), PUTS * LEN), &pattern(round, SIGNAL))?;
    rank.queue.synchronize()?;
    receives.synchronize()?;
    assert!(bytes(&signal)? == pattern(round, SIGNAL), "{form:?}, round {round}");
    let (came, expected) = (bytes(&window)?, pattern(seed(1 - rank.number), PUTS * LEN));
    for i in 0..PUTS {
        assert!(came[place(i)..][..LEN] == expected[i * LEN..][..LEN], "{form:?}, round {round}, put {i}");
    }
    Ok(())
}

/// Where the receiver wants a put: the places from the last to the first.
const fn place(i: usize) -> usize {
    (PUTS - 1 - i) * LEN
}

/// Puts a round, and tells the other rank of it by a signal.
fn put(rank: &mut Rank<'_>, form: Form, window: &[u8], signal: &[u8]) -> Fallible {
    let Rank { queue, sender, .. } = rank;
    let pieces = window.chunks(LEN).chain([signal]);
    let messages = pieces.map(|piece| filled(sender, piece)).collect::<Fallible<Vec<_>>>()?;
    match form {
        Form::EachDone => {
            for message in &messages {
                queue.post(&[message.post])?;
                queue.wait(&[message.done])?;
            }
        }
        Form::Collected => {
            queue.post(&messages.iter().map(|message| message.post).collect::<Vec<_>>())?;
            queue.wait(&messages.iter().map(|message| message.done).collect::<Vec<_>>())?;
        }
        Form::OneCompletion => {
            queue.post(&[messages[PUTS].post])?;
            queue.wait(&[messages[PUTS].done])?;
        }
    }
    Ok(())
}

/// Places a message and fills it. The ring has room: the round before is done.
fn filled(sender: &mut Sender, piece: &[u8]) -> Fallible<SendMessage> {
    let message = sender.prepare(piece.len())?;
    // SAFETY: the ring has room for the message, which is as long as the piece.
    unsafe { copy_into_ring(&Solo::new(0, 1), message.span, piece.as_ptr().cast_mut()) };
    Ok(message)
}
