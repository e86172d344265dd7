//! Releasing a trigger: one published word, in order with the direction's other triggers.

use super::taken::TakenDirection;
use crate::Net;
use crate::socket::half::{mirror, notify};
use crate::table::entry;
use gpunet_abi::position::{MASK, StreamWord};
use gpunet_abi::{Direction, Error, Result, Trigger};

/// Publishes the direction up to the trigger's position, unless it is so far. By one lane, after a
/// barrier of its group.
///
/// # Errors
/// As [`TriggerExt::release`](super::TriggerExt::release).
#[inline(never)]
pub(super) fn publish(net: Net, trigger: Trigger) -> Result<u64> {
    if trigger.position > MASK {
        return Err(Error::InvalidArgument);
    }
    let direction = TakenDirection::find(net, trigger.socket, trigger.direction)?;
    direction.lock()?;
    let published = advance(&direction, StreamWord::at(trigger.position));
    direction.unlock();
    published
}

/// The part of [`publish`] under the lock.
fn advance(direction: &TakenDirection, to: StreamWord) -> Result<u64> {
    let from = StreamWord(direction.position().peek());
    if to.position() <= from.position() {
        return Ok(0);
    }
    if from.end() {
        return Err(if from.err() { Error::Protocol } else { Error::BrokenPipe });
    }
    announce(direction, from.position(), to);
    Ok(0)
}

/// Publishes a position that is behind `from`, under the lock.
#[inline(always)]
pub(super) fn announce(direction: &TakenDirection, from: u64, to: StreamWord) {
    let (net, slot, half, end) =
        (direction.net(), direction.handle().slot(), direction.half(), direction.end());
    // Ordering: Relaxed, made visible by the publish below. Before it: the other end may answer at
    // once, and a gate believes no answer that is ahead of this.
    direction.position().set(to.0);
    // System scope on every link, which pairs with the observe of the other end, of the proxy, and
    // of a CUDA stream that waits for the word: without it they could read bytes that the lanes
    // have not written.
    end.mine.publish(to.0);
    mirror(net, slot, half, end.link, from, to.position());
    if half == Direction::Recv {
        entry::announced(direction.entry()).set(to.position());
    }
    notify(net, slot, end, half);
}
