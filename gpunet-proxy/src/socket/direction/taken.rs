//! Where the next message of a taken direction lies.

use super::hold::{Hold, Holder};
use super::message::Appended;
use crate::model::ids::QueueId;
use crate::socket::{DirectionError, Socket};
use gpunet_abi::position::MASK;
use gpunet_abi::{Direction, Prepared, RingSpan};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A direction that is taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) hold: Arc<Hold>,
    /// Where the next message begins.
    next: u64,
}

impl Taken {
    pub(super) fn take(socket: &Socket, direction: Direction) -> Result<Self, DirectionError> {
        let hold = Hold::take(socket, direction)?;
        let next = hold.posted().position;
        Ok(Self { hold, next })
    }

    /// Gives the direction back, unless queues have operations of it.
    pub(super) fn give_back(self) -> Result<(), DirectionError> {
        match Arc::try_unwrap(self.hold) {
            Ok(hold) => {
                let result = hold.give_back();
                let direction = hold.direction;
                let inner = hold.inner.clone();
                if result.is_ok() {
                    *inner.holder(direction) = Holder::default();
                }
                result
            }
            Err(_) => Err(DirectionError::InUseByQueue),
        }
    }

    /// Where a message of that length begins and ends: behind all that was placed, and behind what
    /// kernels have published of the messages that follow those ([`Prepared::nth`]).
    fn bounds(&self, len: u64, published: u64) -> Result<(u64, u64), DirectionError> {
        if len == 0 {
            return Err(DirectionError::EmptyMessage);
        }
        let start = self.next.max(published);
        let end = start.checked_add(len).filter(|&end| end <= MASK);
        Ok((start, end.ok_or(DirectionError::NoPositions)?))
    }

    /// Places the next message.
    pub(super) fn place(&mut self, len: u64) -> Result<(Prepared, RingSpan), DirectionError> {
        if self.hold.is_captured() {
            return Err(DirectionError::Captured);
        }
        let (published, ring) = (self.hold.published()?, self.hold.half);
        let (start, end) = self.bounds(len, published)?;
        let room = self.hold.most_ahead();
        if len > room {
            return Err(DirectionError::MessageTooLong { len, room });
        }
        if let Some(error) = self.hold.inner.failure() {
            return Err(DirectionError::Failed(error));
        }
        if end - published > room {
            return Err(DirectionError::RingFull);
        }
        let prepared = Prepared::new(self.hold.inner.handle, self.hold.direction, start, len);
        let span = RingSpan::new(ring.base as *mut u8, u64::from(ring.capacity), start, len);
        self.next = end;
        Ok((prepared, span))
    }

    /// Places a message of any length for a queue, which publishes it after all before it, if
    /// `submit` enqueues it. With `captures` the place is found when it is sent or received, and
    /// from then on for all that follow.
    pub(super) fn append<T, E: From<DirectionError>>(
        &mut self,
        len: u64,
        queue: QueueId,
        captures: bool,
        submit: impl FnOnce(Appended) -> Result<T, E>,
    ) -> Result<T, E> {
        let captured = self.hold.is_captured();
        let published = self.hold.published()?;
        let (start, end) = self.bounds(len, published)?;
        if start > published && !captured {
            return Err(DirectionError::Unpublished.into());
        }
        let hold = self.hold.clone();
        let has_place = !captures && !captured;
        hold.post(queue, if has_place { end } else { 0 }, || {
            if captures {
                // Ordering: Relaxed; as in `is_captured`. Before a graph can have it.
                hold.is_captured.store(true, Ordering::Relaxed);
            }
            let message = Prepared::new(hold.inner.handle, hold.direction, start, len);
            let appended = Appended { message, capacity: u64::from(hold.half.capacity), hold: hold.clone() };
            submit(appended).inspect_err(|_| hold.is_captured.store(captured, Ordering::Relaxed))
        })
        .inspect(|_| {
            if has_place {
                self.next = end;
            }
        })
    }
}
