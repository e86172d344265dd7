//! The receiving half of a channel.

use crate::array::{ArrayMut, Received, Target, zeroed};
use crate::error::{ChannelError, Reason, errno_of};
use crate::gpu::{Copier, Mapped};
use crate::header::{
    Answer, CHECKED, Description, GpuOffer, Header, INLINE, MAX_NEEDED, Malformed, Offer, PIECE, PROLOGUE,
    PieceFrame, Prologue, SMALL,
};
use crate::local::{BATCH, Local};
use crate::pieces::{FirstError, Incoming as Arriving, Segment, Table, targets};
use crate::process_memory;
use crate::sender::crc_of;
use crate::shared::{Lane, Outcome, Shared, Stages, TransferOptions, Via};
use crate::wire::{Wire, lost, read_all, read_exact, write_all};
use gpu_usermap::cuda::Device;
use gpu_usermap::threads;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

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
    number: u64,
    stages: Stages,
    copiers: Vec<Copier>,
    /// Of a transfer that was looked at, and is still to be received or refused.
    peeked: Option<Header>,
    has_ended: bool,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("transfers", &self.number).finish_non_exhaustive()
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
    header: Option<Header>,
}

fn wrong(why: Malformed) -> ChannelError {
    ChannelError::Protocol(why.to_string())
}

impl Receiver {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (stages, copiers) = (Stages::default(), Vec::new());
        Self { shared, number: 0, stages, copiers, peeked: None, has_ended: false }
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
        let header = self.next_header(deadline)?;
        Ok(header.map(|header| Incoming { receiver: self, header: Some(header) }))
    }

    /// As [`next_until`](Self::next_until), but leaves the transfer: it is looked at again, or
    /// received or refused by the next call.
    ///
    /// # Errors
    /// As for [`next_until`](Self::next_until).
    pub fn peek_until(&mut self, deadline: Option<Instant>) -> Result<Option<&[Description]>, ChannelError> {
        self.peeked = self.next_header(deadline)?;
        Ok(self.peeked.as_ref().map(|header| &header.arrays[..]))
    }

    /// Returns a descriptor that is readable when [`next_until`](Self::next_until) does not wait
    /// for the other end, for programs that wait for several things: `None` where the channel is
    /// not over TCP. A transfer that was looked at is not seen there any more.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.shared.wires.data()[0].descriptor()
    }

    fn next_header(&mut self, deadline: Option<Instant>) -> Result<Option<Header>, ChannelError> {
        if self.has_ended {
            return Ok(None);
        }
        self.shared.wires.check()?;
        if let Some(header) = self.peeked.take() {
            return Ok(Some(header));
        }
        let Some(first) = self.first_bytes(deadline)? else { return Err(nothing_yet()) };
        let shared = self.shared.clone();
        let header = shared.settle(self.header(first))?;
        self.has_ended = header.is_none();
        Ok(header)
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
    ) -> Result<Option<([u8; PROLOGUE], usize)>, ChannelError> {
        let shared = self.shared.clone();
        let wire = shared.wires.data()[0].as_ref();
        loop {
            self.copiers.iter_mut().for_each(Copier::trim);
            let expiry = self.copiers.iter().filter_map(Copier::next_expiry).min();
            let until = [deadline, expiry].into_iter().flatten().min();
            let mut bytes = [0; PROLOGUE];
            match wire.read(&mut [IoSliceMut::new(&mut bytes)], until) {
                Ok(0) => {
                    let error = lost("waiting for a transfer", io::ErrorKind::UnexpectedEof.into());
                    return shared.settle(Err(error));
                }
                Ok(n) => return Ok(Some((bytes, n))),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Ok(None);
                    }
                }
                Err(error) => return shared.settle(Err(lost("waiting for a transfer", error))),
            }
        }
    }

    /// Reads the rest of a header; `None` for the sender's last word.
    fn header(&mut self, (mut bytes, n): ([u8; PROLOGUE], usize)) -> Result<Option<Header>, ChannelError> {
        let deadline = TransferOptions::default().deadline(&self.shared.options);
        let wire = self.shared.wires.data()[0].as_ref();
        let reading = |error| lost("receiving a header", error);
        read_exact(wire, &mut bytes[n..], deadline).map_err(reading)?;
        let prologue = Prologue::decode(&bytes).map_err(wrong)?;
        if prologue.is_bye {
            return Ok(None);
        }
        let mut body = vec![0; prologue.body];
        read_exact(wire, &mut body, deadline).map_err(reading)?;
        let header = Header::decode(&prologue, &body, self.shared.wires.data().len()).map_err(wrong)?;
        if header.number != self.number {
            return Err(ChannelError::Protocol("a transfer out of turn".into()));
        }
        self.number += 1;
        Ok(Some(header))
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

/// Why bytes were not copied, or why the transfer fails.
enum NotCopied {
    Because(Reason),
    Failed(ChannelError),
}

impl From<Reason> for NotCopied {
    fn from(reason: Reason) -> Self {
        Self::Because(reason)
    }
}

impl From<ChannelError> for NotCopied {
    fn from(error: ChannelError) -> Self {
        Self::Failed(error)
    }
}

impl Incoming<'_> {
    fn described(&self) -> &Header {
        self.header.as_ref().expect("it is there until the call that consumes this")
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
        let header = self.header.take();
        shared.settle(self.receiver.turn_down(header, errno, why))
    }

    /// Receives into memory that is allocated for it.
    ///
    /// # Errors
    /// As for [`Receiver::recv`]. More bytes than [`ChannelOptions::most`](crate::ChannelOptions),
    /// or than there are, are refused, and the channel goes on.
    pub fn receive(self, options: &TransferOptions<'_>) -> Result<Vec<Received>, ChannelError> {
        let most = self.receiver.shared.options.most;
        if self.bytes() > most {
            let why = format!("{} bytes in one transfer, where {most} are allowed", self.bytes());
            self.refuse(libc::EFBIG, &why)?;
            return Err(ChannelError::Mismatch(why));
        }
        let mut arrays = Vec::with_capacity(self.arrays().len());
        for Description { name, dtype, shape, .. } in self.arrays() {
            let bytes =
                crate::array::bytes_of(*dtype, shape).and_then(|len| zeroed(usize::try_from(len).ok()?));
            let Some(bytes) = bytes else {
                let why = "no memory for an array".to_owned();
                self.refuse(libc::ENOMEM, &why)?;
                return Err(ChannelError::Mismatch(why));
            };
            arrays.push(Received { name: name.clone(), dtype: *dtype, shape: shape.clone(), bytes });
        }
        self.into_arrays(arrays.iter_mut().map(Received::as_mut).collect(), options)?;
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
        let header = self.header.take().expect("just seen");
        shared.settle(self.receiver.take(&header, arrays, options))
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        let header = self.header.take();
        if header.is_some() {
            let shared = self.receiver.shared.clone();
            let refused =
                shared.settle(self.receiver.turn_down(header, libc::ECANCELED, "the transfer is not wanted"));
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
    let has_names = arrays.iter().any(|array| !array.name.is_empty());
    let mut places: Vec<Option<ArrayMut<'a>>> = arrays.into_iter().map(Some).collect();
    let mut by_name: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
    if has_names {
        for (at, place) in places.iter().enumerate() {
            let name = place.as_ref().map(|array| array.name.clone()).unwrap_or_default();
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
        if (array.dtype, &array.shape) != (*dtype, shape) {
            return Err(format!(
                "{dtype} of shape {shape:?} was sent, and {} of shape {:?} is asked for",
                array.dtype, array.shape
            ));
        }
        ordered.push(array);
    }
    Ok(ordered)
}

impl Receiver {
    fn turn_down(&mut self, header: Option<Header>, errno: i32, why: &str) -> Result<(), ChannelError> {
        let Some(header) = header else { return Ok(()) };
        let deadline = TransferOptions::default().deadline(&self.shared.options);
        if header.has(INLINE) {
            let mut rest = vec![0; usize::try_from(header.total.min(SMALL)).unwrap_or(0)];
            read_exact(self.shared.wires.data()[0].as_ref(), &mut rest, deadline)
                .map_err(|error| lost("receiving", error))?;
        }
        let answer = Answer::Refused {
            errno: u16::try_from(errno).unwrap_or(libc::EPROTO as u16),
            text: why.to_owned(),
        };
        self.answer(header.number, &answer, deadline)
    }

    /// Receives the bytes of a transfer into arrays that fit.
    fn take(
        &mut self,
        header: &Header,
        mut arrays: Vec<ArrayMut<'_>>,
        options: &TransferOptions<'_>,
    ) -> Result<Outcome, ChannelError> {
        options.wait()?;
        let deadline = options.deadline(&self.shared.options);
        let via = if header.has(INLINE) {
            self.small(header, arrays, deadline)?;
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
        header: &Header,
        arrays: Vec<ArrayMut<'_>>,
        deadline: Option<Instant>,
    ) -> Result<(), ChannelError> {
        let mut bytes = vec![0; usize::try_from(header.total.min(SMALL)).unwrap_or(0)];
        let wire = self.shared.wires.data()[0].as_ref();
        read_exact(wire, &mut bytes, deadline)
            .map_err(|error| lost("receiving", error).at(0, header.total))?;
        if header.has(CHECKED) && crc32fast::hash(&bytes) != header.crc {
            return Err(ChannelError::Checksum { offset: 0 });
        }
        let mut lane = Lane::new(&self.stages, SMALL as usize);
        let mut rest = &bytes[..];
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
                if let Segment::Host(to) = segment {
                    to.copy_from_slice(head);
                }
                now = tail;
            }
        }
        Ok(())
    }

    /// Receives all pieces, over several connections at once.
    fn pieces(
        &self,
        header: &Header,
        arrays: Vec<ArrayMut<'_>>,
        options: &TransferOptions<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), ChannelError> {
        let size = header.piece as usize;
        let table = Table::new(targets(arrays, size), size);
        let failed = FirstError::default();
        let wires = &self.shared.wires.data()[..usize::from(header.streams)];
        let receive = |wire: &dyn Wire| {
            let lane = Lane::new(&self.stages, size);
            if let Err(error) = receive_pieces(wire, lane, &table, header, options, deadline) {
                failed.set(error.at(table.done(), header.total));
                // What this connection was to bring does not come by another one.
                wires.iter().for_each(|wire| wire.shut_down());
            }
        };
        let started = threads::scope(|scope| {
            for wire in &wires[1..] {
                threads::spawn_scoped(scope, "gpunet-channel", || receive(wire.as_ref())).inspect_err(
                    |_| {
                        // The sender waits for a thread that there is not.
                        wires.iter().for_each(|wire| wire.shut_down());
                    },
                )?;
            }
            receive(wires[0].as_ref());
            Ok(())
        });
        started.map_err(|error| ChannelError::failed("starting a thread", error))?;
        failed.result()?;
        match table.done() {
            done if done == header.total => Ok(()),
            _ => Err(ChannelError::Protocol("the last piece came before all others".into())),
        }
    }

    /// Copies the arrays out of the other end's memory.
    fn copy(
        &mut self,
        header: &Header,
        arrays: &mut [ArrayMut<'_>],
        options: &TransferOptions<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), NotCopied> {
        let shared = self.shared.clone();
        // What the sender says is more than what this end knows.
        if let Offer::None(reason) = header.offer {
            return Err(reason.into());
        }
        let local = shared.local()?;
        match &header.offer {
            Offer::Process(addresses) => self.copy_from_process(local, header, arrays, addresses, options)?,
            Offer::Gpu(offers) => self.copy_from_gpu(local, header, arrays, offers, deadline)?,
            Offer::None(reason) => return Err((*reason).into()),
        }
        // A sender that has given up may have used its memory for something else since. It tells
        // before it does, by a socket of this machine, so that what is still true now was true
        // during the copy.
        if local.is_there() { Ok(()) } else { Err(died(0, header.total).into()) }
    }

    fn copy_from_process(
        &self,
        local: &Local,
        header: &Header,
        arrays: &mut [ArrayMut<'_>],
        addresses: &[u64],
        options: &TransferOptions<'_>,
    ) -> Result<(), NotCopied> {
        let pid = local.pid().ok_or(Reason::HiddenProcess)?;
        if arrays.iter().any(ArrayMut::is_on_gpu) {
            return Err(Reason::MixedMemory.into());
        }
        let size = header.piece as usize;
        let mut jobs = Vec::new();
        for (array, &address) in arrays.iter_mut().zip(addresses) {
            if let Target::Host(bytes) = &mut array.target {
                let chunks = (address..).step_by(size).zip(bytes.chunks_mut(size));
                jobs.extend(chunks);
            }
        }
        let count = jobs.len().min(usize::from(header.streams)).max(1);
        let table: Table<Segment<&mut [u8]>> = Table::new(Vec::new(), size);
        let jobs = Mutex::new(jobs.into_iter());
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
        let failed: Mutex<Option<io::Error>> = Mutex::new(None);
        let is_set = || failed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let copy = || {
            while let Some((from, to)) = next().filter(|_| !is_set()) {
                let len = to.len();
                if let Err(error) = process_memory::read(pid, from, to) {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
                options.show(table.add(len), header.total);
            }
        };
        let started = threads::scope(|scope| {
            for _ in 1..count {
                threads::spawn_scoped(scope, "gpunet-channel", copy)?;
            }
            copy();
            Ok::<_, io::Error>(())
        });
        started.map_err(|error| ChannelError::failed("starting a thread", error))?;
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(_) if !local.is_there() => Err(died(table.done(), header.total).into()),
            Some(error) => {
                tracing::debug!(%error, "the other process's memory is not read");
                Err(match errno_of(&error) {
                    libc::EPERM | libc::ENOSYS | libc::EACCES => Reason::NotPermitted.into(),
                    _ => Reason::CopyFailed.into(),
                })
            }
        }
    }

    fn copy_from_gpu(
        &mut self,
        local: &Local,
        header: &Header,
        arrays: &[ArrayMut<'_>],
        offers: &[GpuOffer],
        deadline: Option<Instant>,
    ) -> Result<(), NotCopied> {
        // Which copier an allocation is for, in the order in which they count.
        let mut places = Vec::new();
        for (array, offer) in arrays.iter().zip(offers) {
            let Target::Gpu { device, .. } = &array.target else { return Err(Reason::MixedMemory.into()) };
            let copier = self.copier(device)?;
            self.copiers[copier].wait_for_launches()?;
            places.extend(offer.allocations.iter().map(|offered| (copier, *offered)));
        }
        let mut mapped: Vec<Option<Mapped>> =
            places.iter().map(|(copier, offered)| self.copiers[*copier].find(offered)).collect();
        let missing =
            |mapped: &[Option<Mapped>], at: usize| mapped[at].is_none() && places[at].1.handle.is_none();
        let needed: Vec<u32> =
            (0..places.len()).filter(|&at| missing(&mapped, at)).map(|at| at as u32).collect();
        for asked in needed.chunks(MAX_NEEDED) {
            self.answer(header.number, &Answer::Need { allocations: asked.to_vec() }, deadline)?;
            let mut refused = None;
            for batch in asked.chunks(BATCH) {
                let fds = local.receive(deadline).map_err(|error| lost("receiving descriptors", error))?;
                if refused.is_none() && fds.len() != batch.len() {
                    refused = Some(Reason::NotExported);
                }
                for (&at, fd) in batch.iter().zip(fds) {
                    if refused.is_none() {
                        refused = self.map(&mut mapped, &places, at as usize, Some(fd)).err();
                    }
                }
            }
            if let Some(reason) = refused {
                return Err(reason.into());
            }
        }
        for at in 0..places.len() {
            if mapped[at].is_none() {
                self.map(&mut mapped, &places, at, None)?;
            }
        }
        let mapped: Vec<Mapped> = mapped.into_iter().flatten().collect();
        let (mut rest, mut enqueued) = (&mapped[..], Ok(()));
        for (array, offer) in arrays.iter().zip(offers) {
            let (now, later) = rest.split_at(offer.allocations.len());
            rest = later;
            let Target::Gpu { device, .. } = &array.target else { continue };
            let copier = self.copier(device)?;
            enqueued = enqueued.and_then(|()| self.copiers[copier].copy(array, offer, now));
        }
        // All of them, also those before one that was refused: they use the caller's memory.
        let mut finished = Ok(());
        for copier in &mut self.copiers {
            finished = finished.and(copier.finish());
            copier.trim();
        }
        finished?;
        Ok(enqueued?)
    }

    /// Maps one allocation, unless an earlier one of the transfer was the same.
    fn map(
        &mut self,
        mapped: &mut [Option<Mapped>],
        places: &[(usize, crate::header::Offered)],
        at: usize,
        fd: Option<OwnedFd>,
    ) -> Result<(), Reason> {
        let (copier, offered) = &places[at];
        let copier = &mut self.copiers[*copier];
        mapped[at] = Some(match copier.find(offered) {
            Some(found) => found,
            None => copier.map(offered, fd)?,
        });
        Ok(())
    }
}

fn died(moved: u64, total: u64) -> ChannelError {
    lost("copying", io::Error::from_raw_os_error(libc::ECONNRESET)).at(moved, total)
}

/// Receives pieces over one connection until it brings the last one. While one travels, the one
/// before is copied into the GPU.
fn receive_pieces(
    wire: &dyn Wire,
    mut lane: Lane<'_>,
    table: &Table<Arriving<'_>>,
    header: &Header,
    options: &TransferOptions<'_>,
    deadline: Option<Instant>,
) -> Result<(), ChannelError> {
    let receiving = |error| lost("receiving", error);
    let mut slot = 0;
    loop {
        let mut bytes = [0; PIECE];
        read_exact(wire, &mut bytes, deadline).map_err(receiving)?;
        let (number, offset, len, crc) = match PieceFrame::decode(&bytes).map_err(wrong)? {
            PieceFrame::Last { number } if number == header.number => break,
            PieceFrame::Piece { number, offset, len, crc } => (number, offset, len, crc),
            PieceFrame::Last { .. } => return Err(wrong(Malformed("the end of another transfer"))),
        };
        if number != header.number {
            return Err(wrong(Malformed("a piece of another transfer")));
        }
        let mut piece = table.take_at(offset, len).map_err(wrong)?;
        let found = match lane.stage(&piece.segments)? {
            Some(stage) => {
                stage.wait(slot)?;
                let room = stage.bytes(slot, piece.len);
                read_exact(wire, room, deadline).map_err(receiving)?;
                let found = if header.has(CHECKED) { crc32fast::hash(room) } else { 0 };
                stage.store(slot, &mut piece.segments)?;
                slot ^= 1;
                found
            }
            None => {
                let mut slices: Vec<IoSliceMut<'_>> = piece
                    .segments
                    .iter_mut()
                    .filter_map(|segment| match segment {
                        Segment::Host(bytes) => Some(IoSliceMut::new(bytes)),
                        Segment::Gpu { .. } => None,
                    })
                    .collect();
                read_all(wire, &mut slices, deadline).map_err(receiving)?;
                let parts = piece.segments.iter().filter_map(|segment| match segment {
                    Segment::Host(bytes) => Some(&**bytes),
                    Segment::Gpu { .. } => None,
                });
                if header.has(CHECKED) { crc_of(parts) } else { 0 }
            }
        };
        if header.has(CHECKED) && found != crc {
            return Err(ChannelError::Checksum { offset });
        }
        options.show(table.add(piece.len), header.total);
    }
    if let Some(stage) = lane.current() {
        stage.wait(0)?;
        stage.wait(1)?;
    }
    Ok(())
}
