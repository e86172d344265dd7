//! The receiving half of a channel.
//!
//! | file | holds |
//! |---|---|
//! | `headers` | headers, in the order in which they were sent |
//! | `pipeline` | several transfers that are copied at once |
//! | `connections` | pieces that come over several connections |
//! | `rendezvous` | one copy out of the other end's memory |

mod connections;
mod headers;
mod pipeline;
mod rendezvous;

use crate::array::{ArrayMut, Description, Memory, Received, ReceivedOnGpu, zeroed};
use crate::error::ChannelError;
use crate::gpu::Copier;
use crate::header::{Answer, CHECKED, Header, INLINE, Malformed, PROLOGUE, SMALL};
use crate::pieces::targets;
use crate::shared::{Lane, Outcome, Shared, Stages, TransferOptions, Via};
use crate::wire::{lost, write_all};
use gpu_usermap::cuda::Device;
use headers::{Arrived, Headers};
pub use pipeline::ReceivePipeline;
use rendezvous::NotCopied;
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
    receiver: &'a mut Receiver,
    /// `None` once it was received or refused.
    arrived: Option<Arrived>,
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
    /// not over TCP. A transfer that was looked at is not seen there any more, nor is one whose
    /// header has come between the pieces of an earlier one: call `next_until` with a deadline that
    /// has passed before you wait for the descriptor.
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
        shared.settle(self.receiver.take(&arrived, arrays, options))
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

/// Puts the receiver's arrays into the order of the sender's.
fn in_order<'a>(sent: &[Description], arrays: Vec<ArrayMut<'a>>) -> Result<Vec<ArrayMut<'a>>, String> {
    if sent.len() != arrays.len() {
        return Err(format!("{} arrays were sent, and {} are asked for", sent.len(), arrays.len()));
    }
    let has_names = arrays.iter().any(|array| !array.about.name.is_empty());
    let mut places: Vec<Option<ArrayMut<'a>>> = arrays.into_iter().map(Some).collect();
    let mut by_name: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
    if has_names {
        for (at, place) in places.iter().enumerate() {
            let name = place.as_ref().map(|array| array.about.name.clone()).unwrap_or_default();
            if by_name.insert(name.clone(), at).is_some() {
                return Err(format!("two arrays are asked for by the name {name:?}"));
            }
        }
    }
    let mut ordered = Vec::with_capacity(sent.len());
    for (at, Description { name, dtype, shape, .. }) in sent.iter().enumerate() {
        let at = if has_names { by_name.get(name).copied() } else { Some(at) };
        let place = at.and_then(|at| places.get_mut(at)).and_then(Option::take);
        let array = place.ok_or_else(|| format!("the array {name:?} was sent, and is not asked for"))?;
        if (array.about.dtype, &array.about.shape) != (*dtype, shape) {
            return Err(format!(
                "{dtype} of shape {shape:?} was sent, and {} of shape {:?} is asked for",
                array.about.dtype, array.about.shape
            ));
        }
        ordered.push(array);
    }
    Ok(ordered)
}

impl Receiver {
    fn turn_down(&mut self, arrived: Option<Arrived>, errno: i32, why: &str) -> Result<(), ChannelError> {
        let Some(Arrived { header, .. }) = arrived else { return Ok(()) };
        let deadline = TransferOptions::default().deadline(&self.shared.options);
        let answer = Answer::Refused {
            errno: u16::try_from(errno).unwrap_or(libc::EPROTO as u16),
            text: why.to_owned(),
        };
        self.answer(header.number, &answer, deadline)
    }

    /// Receives the bytes of a transfer into arrays that fit.
    fn take(
        &mut self,
        arrived: &Arrived,
        mut arrays: Vec<ArrayMut<'_>>,
        options: &TransferOptions<'_>,
    ) -> Result<Outcome, ChannelError> {
        let header = &arrived.header;
        if arrays.iter().any(|array| array.memory.device().is_none()) {
            options.wait()?;
        }
        let deadline = options.deadline(&self.shared.options);
        let via = if header.has(INLINE) {
            self.small(arrived, arrays, options)?;
            Via::Header
        } else {
            match self.copy(header, &mut arrays, options, deadline) {
                Ok(()) => Via::Copy,
                Err(NotCopied::Failed(error)) => return Err(error),
                Err(NotCopied::Because(reason)) => {
                    self.answer(header.number, &Answer::Go { reason }, deadline)?;
                    self.pieces(header, arrays, options, deadline)?;
                    Via::Connections { count: header.streams, reason }
                }
            }
        };
        self.answer(header.number, &Answer::Done { copied: via == Via::Copy }, deadline)?;
        options.show(header.total, header.total);
        Ok(Outcome { bytes: header.total, via })
    }

    /// Receives what stands behind the header.
    fn small(
        &mut self,
        Arrived { header, payload }: &Arrived,
        arrays: Vec<ArrayMut<'_>>,
        options: &TransferOptions<'_>,
    ) -> Result<(), ChannelError> {
        if header.has(CHECKED) && crc32fast::hash(payload) != header.crc {
            return Err(ChannelError::Checksum { offset: 0 });
        }
        let mut lane = Lane::new(&self.stages, SMALL as usize, options.after);
        let mut rest = &payload[..];
        for mut piece in targets(arrays, SMALL as usize) {
            let (now, later) = rest.split_at(piece.len);
            rest = later;
            if let Some(stage) = lane.stage(&piece.segments)? {
                stage.bytes(0, now.len()).copy_from_slice(now);
                stage.store(0, &mut piece.segments)?;
                stage.wait(0)?;
                continue;
            }
            let mut now = now;
            for segment in &mut piece.segments {
                let (head, tail) = now.split_at(segment.len());
                if let Memory::Host(to) = segment {
                    to.copy_from_slice(head);
                }
                now = tail;
            }
        }
        Ok(())
    }
}
