//! The receiving half of a channel.
//!
//! | file | holds |
//! |---|---|
//! | `headers` | headers, in the order in which they were sent |
//! | `incoming` | a transfer whose header has come: it is received, or refused |
//! | `fit` | whether arrays are those that were sent |
//! | `fill` | bytes that come by a connection, into the arrays' memory |
//! | `pipeline` | several transfers that are copied at once |
//! | `connections` | pieces that come over several connections |
//! | `jobs` | copies that threads of this process make |
//! | `rendezvous` | one copy out of the other end's memory |

mod connections;
mod fill;
mod fit;
mod headers;
mod incoming;
mod jobs;
mod pipeline;
mod rendezvous;

use crate::array::{ArrayMut, Description, Received, ReceivedOnGpu};
use crate::error::ChannelError;
use crate::gpu::Copier;
use crate::header::{Answer, Malformed, PROLOGUE};
use crate::shared::{Outcome, Shared, Stages, TransferOptions};
use crate::wire::{lost, write_all};
use gpu_usermap::cuda::Device;
use headers::{Arrived, Headers};
pub use incoming::Incoming;
pub use pipeline::ReceivePipeline;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The receiving half of a channel.
///
/// # Examples
/// ```
/// use gpunet_channel::{Array, ArrayMut, Channel, ChannelListener, ChannelOptions};
///
/// let options = ChannelOptions::default();
/// let listener = ChannelListener::bind("127.0.0.1:0".parse()?, &options)?;
/// let addr = listener.local_addr()?;
/// let other = std::thread::spawn(move || -> Result<_, gpunet_channel::ChannelError> {
///     let mut channel = listener.accept()?;
///     let mut weights = [0f32; 3];
///     channel.recv_into(&mut ArrayMut::of(&mut weights))?;
///     Ok(weights)
/// });
/// let mut channel = Channel::connect(addr, &options)?;
/// channel.send(&Array::of(&[1.0f32, 2.0, 3.0]))?;
/// assert_eq!(other.join().unwrap()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Receiver {
    shared: Arc<Shared>,
    headers: Mutex<Headers>,
    stages: Stages,
    copiers: Vec<Copier>,
    /// Of a transfer that was looked at, and is still to be received or refused.
    peeked: Option<Arrived>,
    has_ended: bool,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("transfers", &self.headers().number()).finish_non_exhaustive()
    }
}

fn wrong(why: Malformed) -> ChannelError {
    ChannelError::Protocol(why.to_string())
}

impl Receiver {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let headers = Mutex::new(Headers::new(shared.wires.data().len()));
        let (stages, copiers) = (Stages::default(), Vec::new());
        Self { shared, headers, stages, copiers, peeked: None, has_ended: false }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Waits for the next transfer; `None` when the other end has closed its sending half.
    ///
    /// # Errors
    /// [`ChannelError`]: the other end has died, or the channel has ended before.
    #[allow(clippy::should_implement_trait, reason = "what it returns borrows the receiver")]
    pub fn next(&mut self) -> Result<Option<Incoming<'_>>, ChannelError> {
        self.next_until(None)
    }

    /// As [`next`](Self::next), but waits until `deadline` at most. Nothing is lost if none came by
    /// then: the error is that of ETIMEDOUT, and the next call waits on.
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub fn next_until(&mut self, deadline: Option<Instant>) -> Result<Option<Incoming<'_>>, ChannelError> {
        let spin = self.shared.options.spin;
        let arrived = self.next_arrived(deadline, spin)?;
        Ok(arrived.map(|arrived| Incoming { receiver: self, arrived: Some(arrived) }))
    }

    /// As [`next_until`](Self::next_until), but leaves the transfer: it is looked at again, or
    /// received or refused by the next call.
    ///
    /// # Errors
    /// As for [`next_until`](Self::next_until).
    pub fn peek_until(&mut self, deadline: Option<Instant>) -> Result<Option<&[Description]>, ChannelError> {
        let spin = self.shared.options.spin;
        self.peeked = self.next_arrived(deadline, spin)?;
        Ok(self.peeked.as_ref().map(|arrived| &arrived.header.arrays[..]))
    }

    /// Returns a descriptor that is readable when [`next_until`](Self::next_until) does not wait
    /// for the other end, for programs that wait for several things: `None` where the channel is
    /// not over sockets of the system. A transfer that was looked at is not seen there any more,
    /// nor is one whose header has come with an earlier one or between its pieces: call
    /// `next_until` with a deadline that has passed before you wait for the descriptor.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.shared.wires.data()[0].descriptor()
    }

    /// Waits for the next header. The error at the deadline is that of ETIMEDOUT.
    fn next_arrived(
        &mut self,
        deadline: Option<Instant>,
        spin: Duration,
    ) -> Result<Option<Arrived>, ChannelError> {
        if self.has_ended {
            return Ok(None);
        }
        self.shared.wires.check()?;
        if let Some(arrived) = self.peeked.take() {
            return Ok(Some(arrived));
        }
        let early = self.headers().take_early();
        let arrived = match early {
            Some(arrived) => Some(arrived),
            None => {
                let Some((bytes, n)) = self.first_bytes(deadline, spin)? else { return Err(nothing_yet()) };
                let shared = self.shared.clone();
                let deadline = TransferOptions::default().deadline(&shared.options);
                let wire = shared.wires.data()[0].as_ref();
                shared.settle(self.headers().read(wire, &bytes[..n], deadline))?
            }
        };
        self.has_ended = arrived.is_none();
        Ok(arrived)
    }

    /// Receives the next transfer into memory that is allocated for it.
    ///
    /// # Errors
    /// [`ChannelError`], and then nothing of the arrays is to be had.
    pub fn recv(&mut self) -> Result<Option<Vec<Received>>, ChannelError> {
        match self.next()? {
            Some(incoming) => incoming.receive(&TransferOptions::default()).map(Some),
            None => Ok(None),
        }
    }

    /// Receives the next transfer into memory of a GPU that is allocated for it.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_on(&mut self, device: &Device) -> Result<Option<Vec<ReceivedOnGpu>>, ChannelError> {
        match self.next()? {
            Some(incoming) => incoming.receive_on(device, &TransferOptions::default()).map(Some),
            None => Ok(None),
        }
    }

    /// Receives the next transfer, which must be of this one array, into its memory.
    ///
    /// # Errors
    /// [`ChannelError`]. The memory then has any mixture of what it had and what was sent.
    /// [`Mismatch`](ChannelError::Mismatch) refuses the transfer, and the channel goes on.
    pub fn recv_into(&mut self, array: &mut ArrayMut<'_>) -> Result<Outcome, ChannelError> {
        match self.next()? {
            Some(incoming) => incoming.into_arrays(vec![array.reborrow()], &TransferOptions::default()),
            None => Err(ChannelError::failed("receiving", io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Returns how many bytes of the other end's GPU memory are mapped here, which stays allocated
    /// for as long.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.copiers.iter().map(Copier::mapped_bytes).sum()
    }

    /// Waits for the first bytes of a frame; `None` at the deadline.
    fn first_bytes(
        &mut self,
        deadline: Option<Instant>,
        mut spin: Duration,
    ) -> Result<Option<([u8; PROLOGUE], usize)>, ChannelError> {
        let shared = self.shared.clone();
        let wire = shared.wires.data()[0].as_ref();
        loop {
            self.copiers.iter_mut().for_each(Copier::trim);
            let expiry = self.copiers.iter().filter_map(Copier::next_expiry).min();
            let until = [deadline, expiry].into_iter().flatten().min();
            let mut bytes = [0; PROLOGUE];
            match wire.read_soon(&mut [IoSliceMut::new(&mut bytes)], until, spin) {
                Ok(0) => {
                    let error = lost("waiting for a transfer", io::ErrorKind::UnexpectedEof.into());
                    return shared.settle(Err(error));
                }
                Ok(n) => return Ok(Some((bytes, n))),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Ok(None);
                    }
                    spin = Duration::ZERO;
                }
                Err(error) => return shared.settle(Err(lost("waiting for a transfer", error))),
            }
        }
    }

    fn headers(&self) -> MutexGuard<'_, Headers> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, number: u64, answer: &Answer, deadline: Option<Instant>) -> Result<(), ChannelError> {
        let bytes = answer.encode(number);
        write_all(self.shared.wires.answers(), &mut [IoSlice::new(&bytes)], deadline)
            .map_err(|error| lost("answering the sender", error))
    }

    fn copier(&mut self, device: &Device) -> Result<usize, ChannelError> {
        if let Some(at) = self.copiers.iter().position(|copier| copier.is_of(device)) {
            return Ok(at);
        }
        let options = &self.shared.options;
        self.copiers.push(Copier::new(device, options.mapped, options.idle)?);
        Ok(self.copiers.len() - 1)
    }
}

fn nothing_yet() -> ChannelError {
    ChannelError::failed("waiting for a transfer", io::Error::from_raw_os_error(libc::ETIMEDOUT))
}
