//! Several transfers of one direction under way.

use super::{Flight, Sender};
use crate::array::Array;
use crate::error::ChannelError;
use crate::header::{MAX_AHEAD_BYTES, Offer, Place};
use crate::shared::{Outcome, TransferOptions};
use crate::under_way::{UnderWay, results};
use crate::wire::HELD_BY_A_SOCKET;

/// Transfers that are sent one after the other, of which several are under way
/// ([`Sender::pipeline`]).
///
/// Each has the result that [`Sender::send_all`] would have had. The arrays are borrowed until the
/// pipeline is gone: its drop waits for what is under way. Forgotten ([`std::mem::forget`]) it ends
/// the channel at the next transfer.
///
/// # Examples
/// ```
/// # fn example(sender: &mut gpunet_channel::Sender, blocks: &[Vec<f32>]) -> Result<(), gpunet_channel::ChannelError> {
/// use gpunet_channel::{Array, TransferOptions};
///
/// let mut pipeline = sender.pipeline(4);
/// for block in blocks {
///     pipeline.send(&[Array::of(block)], &TransferOptions::default())?;
/// }
/// for outcome in pipeline.finish()? {
///     println!("{} bytes by {}", outcome.bytes, outcome.via);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pipeline<'s, 'a> {
    sender: &'s mut Sender,
    under_way: UnderWay<Under<'a>>,
}

/// One that is under way.
struct Under<'a> {
    flight: Flight,
    arrays: Vec<Array<'a>>,
    options: TransferOptions<'a>,
}

impl std::fmt::Debug for Under<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Under").field("number", &self.flight.header.number).finish_non_exhaustive()
    }
}

impl<'s, 'a> Pipeline<'s, 'a> {
    pub(super) fn new(sender: &'s mut Sender, most: usize) -> Self {
        Self { sender, under_way: UnderWay::new(most) }
    }

    /// Begins a transfer. Waits for the oldest ones, until few enough are under way.
    ///
    /// # Errors
    /// [`ChannelError`]: this transfer did not begin, and the pipeline goes on after
    /// [`Invalid`](ChannelError::Invalid) only.
    pub fn send(&mut self, arrays: &[Array<'a>], options: &TransferOptions<'a>) -> Result<(), ChannelError> {
        self.sender.shared.wires.check()?;
        while self.under_way.is_full() {
            self.complete_oldest();
        }
        let shared = self.sender.shared.clone();
        let prepared = shared.settle(self.sender.prepare(arrays, options))?;
        // What the receiver may have to keep meanwhile is bounded: large headers go alone.
        while !self.under_way.is_empty() && self.ahead() + prepared.ahead() > self.most_ahead() {
            self.complete_oldest();
        }
        let flight = shared.settle(self.sender.begin(prepared, arrays, options))?;
        self.under_way.push(Under { flight, arrays: arrays.to_vec(), options: *options });
        Ok(())
    }

    results!();

    /// The bytes behind the oldest header that wait at the other end, if it takes them one by one.
    fn ahead(&self) -> usize {
        self.under_way.iter().skip(1).map(|under| under.flight.ahead).sum()
    }

    /// Returns how many bytes may be ahead. A receiver that waits for descriptors reads no headers,
    /// so that they must fit the socket: else this end, which is to pass them, would wait for room.
    fn most_ahead(&self) -> usize {
        let may_ask = |under: &Under<'_>| match &under.flight.header.offer {
            Offer::Places(places) => {
                places.iter().flat_map(Place::allocations).any(|offered| offered.handle.is_none())
            }
            Offer::None(_) => false,
        };
        match self.under_way.iter().any(may_ask) {
            false => MAX_AHEAD_BYTES,
            true if self.sender.shared.wires.data()[0].descriptor().is_some() => HELD_BY_A_SOCKET,
            // The ring of a stream may have any size.
            true => 0,
        }
    }

    fn complete_oldest(&mut self) {
        let Some(Under { flight, arrays, options }) = self.under_way.take_oldest() else { return };
        let shared = self.sender.shared.clone();
        let result = match shared.wires.check() {
            Ok(()) => shared.settle(self.sender.complete(&flight, &arrays, &options)),
            Err(broken) => Err(broken),
        };
        self.under_way.push_result(result);
    }
}

impl Drop for Pipeline<'_, '_> {
    fn drop(&mut self) {
        self.complete_all();
    }
}
