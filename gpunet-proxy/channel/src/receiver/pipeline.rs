//! Several transfers of one direction that this end copies at once.

use super::fit::in_order;
use super::rendezvous::{Copying, died};
use super::{Arrived, Receiver};
use crate::array::{ArrayMut, Description};
use crate::error::ChannelError;
use crate::header::Answer;
use crate::shared::{Outcome, TransferOptions, Via};
use crate::under_way::{UnderWay, results};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// Transfers that are received one after the other, of which several are copied at once
/// ([`Receiver::pipeline`]).
///
/// Copies from GPU to GPU are under way together; everything else is received as
/// [`Incoming::into_arrays`](super::Incoming::into_arrays) does. The arrays are borrowed until the
/// pipeline is gone: its drop waits for what is under way.
///
/// # Examples
/// ```
/// # fn example(receiver: &mut gpunet_channel::Receiver, blocks: &mut [Vec<f32>]) -> Result<(), gpunet_channel::ChannelError> {
/// use gpunet_channel::{ArrayMut, TransferOptions};
///
/// let mut pipeline = receiver.pipeline(4);
/// for block in blocks {
///     pipeline.recv_into(vec![ArrayMut::of(block)], &TransferOptions::default())?;
/// }
/// for outcome in pipeline.finish()? {
///     println!("{} bytes by {}", outcome.bytes, outcome.via);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReceivePipeline<'r, 'a> {
    receiver: &'r mut Receiver,
    under_way: UnderWay<Under>,
    arrays: PhantomData<ArrayMut<'a>>,
}

/// One that is copied.
struct Under {
    number: u64,
    total: u64,
    copying: Copying,
    deadline: Option<Instant>,
}

impl std::fmt::Debug for Under {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Under").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Receiver {
    /// Receives transfers one after the other. Up to `most` are copied at once: the next
    /// copy is enqueued while the one before runs.
    pub fn pipeline<'a>(&mut self, most: usize) -> ReceivePipeline<'_, 'a> {
        ReceivePipeline { receiver: self, under_way: UnderWay::new(most), arrays: PhantomData }
    }
}

impl<'a> ReceivePipeline<'_, 'a> {
    /// Begins to receive the next transfer into the memory of these arrays; false when the other
    /// end has closed its sending half. Results come by [`next`](Self::next).
    ///
    /// # Errors
    /// [`ChannelError`] of the wait for the transfer, of which nothing has come.
    /// [`Mismatch`](ChannelError::Mismatch) refuses it, and the pipeline goes on.
    pub fn recv_into(
        &mut self,
        arrays: Vec<ArrayMut<'a>>,
        options: &TransferOptions<'a>,
    ) -> Result<bool, ChannelError> {
        self.recv_with(|_| arrays, options)
    }

    /// As [`recv_into`](Self::recv_into), into memory that is chosen when it is known what comes.
    ///
    /// # Errors
    /// As for [`recv_into`](Self::recv_into).
    pub fn recv_with(
        &mut self,
        choose: impl FnOnce(&[Description]) -> Vec<ArrayMut<'a>>,
        options: &TransferOptions<'a>,
    ) -> Result<bool, ChannelError> {
        while self.under_way.is_full() {
            self.complete_oldest();
        }
        let Some(arrived) = self.next_arrived()? else { return Ok(false) };
        let shared = self.receiver.shared.clone();
        let arrays = choose(&arrived.header.arrays);
        let mut arrays = match in_order(&arrived.header.arrays, arrays) {
            Ok(arrays) => arrays,
            Err(why) => {
                self.complete_all();
                shared.settle(self.receiver.turn_down(Some(arrived), libc::EMSGSIZE, &why))?;
                return Err(ChannelError::Mismatch(why));
            }
        };
        let Arrived { header, .. } = &arrived;
        if let Some(copying) = shared.settle(self.receiver.start_copy(header, &mut arrays, options))? {
            let deadline = options.deadline(&shared.options);
            let under = Under { number: header.number, total: header.total, copying, deadline };
            self.under_way.push(under);
            return Ok(true);
        }
        // Answers come in the order of the transfers.
        self.complete_all();
        self.under_way.push_result(shared.settle(self.receiver.take(arrived, arrays, options)));
        Ok(true)
    }

    results!();

    /// Waits for the next header. The sender may wait for answers before it sends one.
    fn next_arrived(&mut self) -> Result<Option<Arrived>, ChannelError> {
        while !self.under_way.is_empty() {
            match self.receiver.next_arrived(Some(Instant::now()), Duration::ZERO) {
                Err(error) if error.errno() == libc::ETIMEDOUT => self.complete_oldest(),
                arrived => return arrived,
            }
        }
        let spin = self.receiver.shared.options.spin;
        self.receiver.next_arrived(None, spin)
    }

    fn complete_oldest(&mut self) {
        let Some(under) = self.under_way.take_oldest() else { return };
        let shared = self.receiver.shared.clone();
        let result = self.complete(under);
        self.under_way.push_result(shared.settle(result));
        if self.under_way.is_empty() {
            // The streams no longer count as busy.
            if let Err(error) = self.receiver.finish_copies() {
                tracing::debug!(%error, "copies that had passed");
            }
        }
    }

    fn complete(&mut self, under: Under) -> Result<Outcome, ChannelError> {
        let Under { number, total, copying, deadline } = under;
        // Also of a channel that has ended: the copy uses the caller's memory.
        copying.wait(self.receiver.shared.options.spin, &mut self.receiver.copiers)?;
        self.receiver.shared.wires.check()?;
        // See `Receiver::copy`.
        if !self.receiver.shared.local().is_ok_and(crate::local::Local::is_there) {
            return Err(died(0, total));
        }
        self.receiver.answer(number, &Answer::Done { copied: true }, deadline)?;
        Ok(Outcome { bytes: total, via: Via::Copy })
    }
}

impl Drop for ReceivePipeline<'_, '_> {
    fn drop(&mut self) {
        self.complete_all();
    }
}
