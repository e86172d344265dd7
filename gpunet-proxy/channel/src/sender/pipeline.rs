//! Several transfers of one direction under way.

use super::{Flight, Sender};
use crate::array::Array;
use crate::error::ChannelError;
use crate::header::MAX_AHEAD_BYTES;
use crate::shared::{Outcome, TransferOptions};
use crate::under_way::{UnderWay, results};

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
        while !self.under_way.is_empty() && self.ahead() + prepared.ahead() > MAX_AHEAD_BYTES {
            self.complete_oldest();
        }
        let flight = shared.settle(self.sender.begin(prepared, arrays))?;
        self.under_way.push(Under { flight, arrays: arrays.to_vec(), options: *options });
        Ok(())
    }

    results!();

    /// The bytes behind the oldest header that wait at the other end, if it takes them one by one.
    fn ahead(&self) -> usize {
        self.under_way.iter().skip(1).map(|under| under.flight.ahead).sum()
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
