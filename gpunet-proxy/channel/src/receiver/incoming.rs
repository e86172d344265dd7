//! A transfer whose header has come.

use super::fit::in_order;
use super::rendezvous::NotCopied;
use super::{Arrived, Receiver};
use crate::array::{ArrayMut, Description, Received, ReceivedOnGpu, zeroed};
use crate::error::ChannelError;
use crate::header::{Answer, Header, INLINE};
use crate::shared::{Outcome, TransferOptions, Via};
use gpu_usermap::cuda::Device;

/// A transfer whose header has come. Its bytes wait at the other end, unless they are few. To drop
/// it refuses it.
///
/// # Examples
/// ```
/// # fn example(receiver: &mut gpunet_channel::Receiver) -> Result<(), gpunet_channel::ChannelError> {
/// use gpunet_channel::TransferOptions;
///
/// while let Some(incoming) = receiver.next()? {
///     if incoming.bytes() > 1 << 30 {
///         incoming.refuse(libc::EFBIG, "at most a gigabyte, please")?;
///     } else {
///         println!("{} arrays", incoming.receive(&TransferOptions::default())?.len());
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Incoming<'a> {
    pub(super) receiver: &'a mut Receiver,
    /// `None` once it was received or refused.
    pub(super) arrived: Option<Arrived>,
}

impl Incoming<'_> {
    fn described(&self) -> &Header {
        &self.arrived.as_ref().expect("it is there until the call that consumes this").header
    }

    /// Returns what the arrays are.
    #[must_use]
    pub fn arrays(&self) -> &[Description] {
        &self.described().arrays
    }

    /// Returns the bytes of all arrays.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.described().total
    }

    /// Tells the sender that the transfer is not wanted. The channel goes on.
    ///
    /// # Errors
    /// [`ChannelError`]: the other end is gone.
    pub fn refuse(mut self, errno: i32, why: &str) -> Result<(), ChannelError> {
        let shared = self.receiver.shared.clone();
        let arrived = self.arrived.take();
        shared.settle(self.receiver.turn_down(arrived, errno, why))
    }

    /// Receives into memory that is allocated for it.
    ///
    /// # Errors
    /// As for [`Receiver::recv`]. More bytes than [`ChannelOptions::most`](crate::ChannelOptions),
    /// or than there are, are refused, and the channel goes on.
    pub fn receive(self, options: &TransferOptions<'_>) -> Result<Vec<Received>, ChannelError> {
        let allocate = |about: &Description| {
            let bytes = zeroed(usize::try_from(about.bytes()).ok()?)?;
            let Description { name, dtype, shape, .. } = about.clone();
            Some(Received { name, dtype, shape, bytes })
        };
        self.into_new(allocate, Received::as_mut, options)
    }

    /// Receives into memory of a GPU that is allocated for it.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_on(
        self,
        device: &Device,
        options: &TransferOptions<'_>,
    ) -> Result<Vec<ReceivedOnGpu>, ChannelError> {
        let allocate = |about: &Description| match ReceivedOnGpu::allocate(device, about) {
            Ok(array) => Some(array),
            Err(error) => {
                tracing::debug!(%error, "no memory for an array");
                None
            }
        };
        self.into_new(allocate, ReceivedOnGpu::as_mut, options)
    }

    fn into_new<T>(
        self,
        allocate: impl Fn(&Description) -> Option<T>,
        as_mut: impl Fn(&mut T) -> ArrayMut<'_>,
        options: &TransferOptions<'_>,
    ) -> Result<Vec<T>, ChannelError> {
        let most = self.receiver.shared.options.most;
        if self.bytes() > most {
            let why = format!("{} bytes in one transfer, where {most} are allowed", self.bytes());
            self.refuse(libc::EFBIG, &why)?;
            return Err(ChannelError::Mismatch(why));
        }
        let Some(mut arrays) = self.arrays().iter().map(allocate).collect::<Option<Vec<T>>>() else {
            let why = "no memory for an array".to_owned();
            self.refuse(libc::ENOMEM, &why)?;
            return Err(ChannelError::Mismatch(why));
        };
        self.into_arrays(arrays.iter_mut().map(as_mut).collect(), options)?;
        Ok(arrays)
    }

    /// Receives into the memory of these arrays. With names they may be in another order than the
    /// sender's.
    ///
    /// # Errors
    /// As for [`Receiver::recv_into`].
    pub fn into_arrays(
        mut self,
        arrays: Vec<ArrayMut<'_>>,
        options: &TransferOptions<'_>,
    ) -> Result<Outcome, ChannelError> {
        let shared = self.receiver.shared.clone();
        let arrays = match in_order(self.arrays(), arrays) {
            Ok(arrays) => arrays,
            Err(why) => {
                self.refuse(libc::EMSGSIZE, &why)?;
                return Err(ChannelError::Mismatch(why));
            }
        };
        let arrived = self.arrived.take().expect("just seen");
        shared.settle(self.receiver.take(arrived, arrays, options))
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        let arrived = self.arrived.take();
        if arrived.is_some() {
            let shared = self.receiver.shared.clone();
            let refused = shared.settle(self.receiver.turn_down(
                arrived,
                libc::ECANCELED,
                "the transfer is not wanted",
            ));
            if let Err(error) = refused {
                tracing::debug!(%error, "a transfer was refused, and the other end is gone");
            }
        }
    }
}

impl Receiver {
    pub(super) fn turn_down(
        &mut self,
        arrived: Option<Arrived>,
        errno: i32,
        why: &str,
    ) -> Result<(), ChannelError> {
        let Some(arrived) = arrived else { return Ok(()) };
        let deadline = TransferOptions::default().deadline(&self.shared.options);
        self.discard(&arrived, deadline)?;
        let header = arrived.header;
        let answer = Answer::Refused {
            errno: u16::try_from(errno).unwrap_or(libc::EPROTO as u16),
            text: why.to_owned(),
        };
        self.answer(header.number, &answer, deadline)
    }

    /// Receives the bytes of a transfer into arrays that fit.
    pub(super) fn take(
        &mut self,
        arrived: Arrived,
        mut arrays: Vec<ArrayMut<'_>>,
        options: &TransferOptions<'_>,
    ) -> Result<Outcome, ChannelError> {
        let Arrived { header, payload } = arrived;
        if arrays.iter().any(|array| array.memory.device().is_none()) {
            options.wait()?;
        }
        let deadline = options.deadline(&self.shared.options);
        let via = if header.has(INLINE) {
            self.small(&header, payload, arrays, options, deadline)?;
            Via::Header
        } else {
            match self.copy(&header, &mut arrays, options, deadline) {
                Ok(()) => Via::Copy,
                Err(NotCopied::Failed(error)) => return Err(error),
                Err(NotCopied::Because(reason)) => {
                    self.answer(header.number, &Answer::Go { reason }, deadline)?;
                    self.pieces(&header, arrays, options, deadline)?;
                    Via::Connections { count: header.streams, reason }
                }
            }
        };
        self.answer(header.number, &Answer::Done { copied: via == Via::Copy }, deadline)?;
        options.show(header.total, header.total);
        Ok(Outcome { bytes: header.total, via })
    }
}
