//! The sending half of a channel.

use crate::array::{Array, Source};
use crate::error::{ChannelError, Reason};
use crate::gpu;
use crate::header::{
    Answer, AnswerPrologue, CHECKED, Description, Header, INLINE, MAX_TEXT, Offer, Offered, PROLOGUE,
    PieceFrame, SMALL, bye,
};
use crate::local::BATCH;
use crate::pieces::{FirstError, Outgoing, Piece, Segment, Table, sources};
use crate::shared::{Aborter, Lane, Outcome, Shared, Stages, TransferOptions, Via};
use crate::wire::{Wire, lost, read_exact, write_all};
use gpu_usermap::threads;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The sending half of a channel. Its drop tells the other end that nothing more comes.
///
/// # Examples
/// ```
/// use gpunet_channel::{Array, Channel, ChannelListener, ChannelOptions};
///
/// let options = ChannelOptions::default();
/// let listener = ChannelListener::bind("127.0.0.1:0".parse()?, &options)?;
/// let addr = listener.local_addr()?;
/// let other = std::thread::spawn(move || -> Result<_, gpunet_channel::ChannelError> {
///     listener.accept()?.recv()
/// });
/// let mut channel = Channel::connect(addr, &options)?;
/// channel.send(&Array::of(&[1.0f32, 2.0, 3.0]).named("bias"))?;
/// let arrays = other.join().unwrap()?.expect("one transfer");
/// assert_eq!((arrays[0].name.as_str(), arrays[0].to_vec::<f32>()), ("bias", Some(vec![1.0, 2.0, 3.0])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sender {
    shared: Arc<Shared>,
    number: u64,
    stages: Stages,
    handles: gpu::Handles,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("transfers", &self.number).finish_non_exhaustive()
    }
}

impl Sender {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, number: 0, stages: Stages::default(), handles: gpu::Handles::default() }
    }

    pub(crate) fn aborter(&self) -> Aborter {
        Aborter::new(self.shared.clone())
    }

    /// Sends an array, and returns when the other end has it.
    ///
    /// # Errors
    /// [`ChannelError`]. After [`Refused`](ChannelError::Refused) the channel goes on; after other
    /// failures it has ended at both ends.
    pub fn send(&mut self, array: &Array<'_>) -> Result<Outcome, ChannelError> {
        self.send_all(std::slice::from_ref(array), &TransferOptions::default())
    }

    /// Sends several arrays as one transfer, which the other end gets whole or not at all.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_all(
        &mut self,
        arrays: &[Array<'_>],
        options: &TransferOptions<'_>,
    ) -> Result<Outcome, ChannelError> {
        self.shared.wires.check()?;
        let shared = self.shared.clone();
        shared.settle(self.transfer(arrays, options))
    }

    fn transfer(
        &mut self,
        arrays: &[Array<'_>],
        options: &TransferOptions<'_>,
    ) -> Result<Outcome, ChannelError> {
        options.wait()?;
        let deadline = options.deadline(&self.shared.options);
        let total = arrays.iter().map(Array::bytes).sum();
        let is_small = total <= SMALL;
        let mut payload = Vec::new();
        if is_small {
            self.gather(arrays, &mut payload)?;
        }
        let size = self.shared.options.piece.max(4096);
        let streams = self
            .shared
            .wires
            .data()
            .len()
            .min(usize::try_from(total).unwrap_or(usize::MAX).div_ceil(size))
            .max(1);
        let header = Header {
            number: self.number,
            flags: if options.checksum { CHECKED } else { 0 } | if is_small { INLINE } else { 0 },
            streams: streams as u16,
            piece: size as u32,
            total,
            crc: if is_small && options.checksum { crc32fast::hash(&payload) } else { 0 },
            arrays: arrays.iter().map(describe).collect(),
            offer: if is_small { Offer::None(Reason::Small) } else { self.offer(arrays, options) },
        };
        let (header, bytes) = encode(header)?;
        self.number += 1;
        let first = self.shared.wires.data()[0].as_ref();
        write_all(first, &mut [IoSlice::new(&bytes), IoSlice::new(&payload)], deadline)
            .map_err(|error| lost("sending a header", error).at(0, total))?;
        let mut via = if is_small { Via::Header } else { Via::Copy };
        let mut moved = 0;
        loop {
            let answer = self.answer(header.number, deadline).map_err(|error| error.at(moved, total))?;
            match answer {
                Answer::Go { reason } if !is_small && via == Via::Copy => {
                    via = Via::Connections { count: header.streams, reason };
                    self.pieces(arrays, &header, options, deadline)?;
                    moved = total;
                }
                Answer::Need { allocations } if via == Via::Copy => {
                    self.pass(arrays, &header.offer, &allocations, deadline)?;
                }
                Answer::Refused { errno, text } if moved == 0 => {
                    return Err(ChannelError::Refused { errno: errno.into(), reason: text });
                }
                Answer::Done { copied } if copied == (via == Via::Copy) => {
                    options.show(total, total);
                    return Ok(Outcome { bytes: total, via });
                }
                _ => return Err(ChannelError::Protocol("an answer out of turn".into())),
            }
        }
    }

    /// Copies the bytes of a small transfer.
    fn gather(&self, arrays: &[Array<'_>], to: &mut Vec<u8>) -> Result<(), ChannelError> {
        let mut lane = Lane::new(&self.stages, SMALL as usize);
        for piece in sources(arrays, SMALL as usize) {
            match lane.stage(&piece.segments)? {
                Some(stage) => {
                    stage.fetch(0, &piece.segments)?;
                    stage.wait(0)?;
                    to.extend_from_slice(stage.bytes(0, piece.len));
                }
                None => piece.segments.iter().for_each(|segment| to.extend_from_slice(host(segment))),
            }
        }
        Ok(())
    }

    /// Returns where the arrays can be read from, for a receiver of this machine.
    fn offer(&mut self, arrays: &[Array<'_>], options: &TransferOptions<'_>) -> Offer {
        self.try_offer(arrays, options).unwrap_or_else(Offer::None)
    }

    fn try_offer(&mut self, arrays: &[Array<'_>], options: &TransferOptions<'_>) -> Result<Offer, Reason> {
        let shared = self.shared.clone();
        let local = shared.local()?;
        if options.checksum {
            return Err(Reason::ChecksumAsked);
        }
        if !arrays.iter().any(Array::is_on_gpu) {
            let address = |array: &Array<'_>| match &array.source {
                Source::Host(bytes) => bytes.as_ptr().addr() as u64,
                Source::Gpu { .. } => 0,
            };
            return Ok(Offer::Process(arrays.iter().map(address).collect()));
        }
        if local.same_process {
            return Err(Reason::SameProcess);
        }
        let offers = arrays.iter().map(|array| match &array.source {
            Source::Gpu { device, address, len } => gpu::offer(&mut self.handles, device, *address, *len),
            Source::Host(_) => Err(Reason::MixedMemory),
        });
        Ok(Offer::Gpu(offers.collect::<Result<_, _>>()?))
    }

    fn answer(&self, number: u64, deadline: Option<Instant>) -> Result<Answer, ChannelError> {
        let wire = self.shared.wires.answers();
        let waiting = |error| lost("waiting for the receiver", error);
        let mut bytes = [0; PROLOGUE];
        read_exact(wire, &mut bytes, deadline).map_err(waiting)?;
        let wrong = |why: crate::header::Malformed| ChannelError::Protocol(why.to_string());
        let prologue = AnswerPrologue::decode(&bytes).map_err(wrong)?;
        let mut text = [0; MAX_TEXT];
        read_exact(wire, &mut text[..prologue.text], deadline).map_err(waiting)?;
        if prologue.number != number {
            return Err(ChannelError::Protocol("an answer to another transfer".into()));
        }
        Answer::decode(prologue, &text[..prologue.text]).map_err(wrong)
    }

    /// Passes descriptors of allocations for which the receiver has asked.
    fn pass(
        &self,
        arrays: &[Array<'_>],
        offer: &Offer,
        asked: &[u32],
        deadline: Option<Instant>,
    ) -> Result<(), ChannelError> {
        let wrong = || ChannelError::Protocol("a descriptor is asked for that was not offered".into());
        let (Offer::Gpu(offers), Ok(local)) = (offer, self.shared.local()) else { return Err(wrong()) };
        let devices = arrays.iter().filter_map(|array| match &array.source {
            Source::Gpu { device, .. } => Some(device),
            Source::Host(_) => None,
        });
        let all: Vec<(_, &Offered)> = devices
            .zip(offers)
            .flat_map(|(device, offer)| offer.allocations.iter().map(move |offered| (device, offered)))
            .collect();
        for batch in asked.chunks(BATCH) {
            let mut fds = Vec::with_capacity(batch.len());
            for &at in batch {
                let (device, offered) = all.get(at as usize).ok_or_else(wrong)?;
                match gpu::export(device, offered) {
                    Ok(fd) => fds.push(fd),
                    // The receiver sees that it is missing, and takes the connections.
                    Err(error) => {
                        tracing::debug!(%error, "memory is not exported");
                        break;
                    }
                }
            }
            let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            local.pass(&borrowed, deadline).map_err(|error| lost("passing descriptors", error))?;
        }
        Ok(())
    }

    /// Sends all pieces, over several connections at once.
    fn pieces(
        &self,
        arrays: &[Array<'_>],
        header: &Header,
        options: &TransferOptions<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), ChannelError> {
        let size = header.piece as usize;
        let table = Table::new(sources(arrays, size), size);
        let failed = FirstError::default();
        let wires = &self.shared.wires.data()[..usize::from(header.streams)];
        let send = |wire: &dyn Wire| {
            let lane = Lane::new(&self.stages, size);
            if let Err(error) = send_pieces(wire, lane, &table, header, options, deadline, &failed) {
                failed.set(error.at(table.done(), header.total));
                // The threads of the other connections may be waiting for room.
                wires.iter().for_each(|wire| wire.shut_down());
            }
        };
        let started = threads::scope(|scope| {
            for wire in &wires[1..] {
                threads::spawn_scoped(scope, "gpunet-channel", || send(wire.as_ref()))?;
            }
            send(wires[0].as_ref());
            Ok(())
        });
        started.map_err(|error| ChannelError::failed("starting a thread", error))?;
        failed.result()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.shared.wires.check().is_ok() {
            // The other end takes a channel that ends without it for one that broke.
            let soon = Some(Instant::now() + Duration::from_secs(1));
            let _ = write_all(self.shared.wires.data()[0].as_ref(), &mut [IoSlice::new(&bye())], soon);
        }
    }
}

fn describe(array: &Array<'_>) -> Description {
    Description {
        name: array.name.clone(),
        dtype: array.dtype,
        shape: array.shape.clone(),
        on_gpu: array.is_on_gpu(),
    }
}

/// The header as it goes out: without an offer that is longer than a header.
fn encode(mut header: Header) -> Result<(Header, Vec<u8>), ChannelError> {
    if let Ok(bytes) = header.encode() {
        return Ok((header, bytes));
    }
    header.offer = Offer::None(Reason::NotExported);
    let bytes = header.encode().map_err(|why| ChannelError::Invalid(why.to_string()))?;
    Ok((header, bytes))
}

/// The bytes of a segment in host memory; none of one on a GPU, which is staged.
fn host<'a>(segment: &Outgoing<'a>) -> &'a [u8] {
    match segment {
        Segment::Host(bytes) => bytes,
        Segment::Gpu { .. } => &[],
    }
}

/// Sends pieces over one connection until there are no more. While one travels, the next one is
/// copied out of the GPU.
fn send_pieces(
    wire: &dyn Wire,
    mut lane: Lane<'_>,
    table: &Table<Outgoing<'_>>,
    header: &Header,
    options: &TransferOptions<'_>,
    deadline: Option<Instant>,
    failed: &FirstError,
) -> Result<(), ChannelError> {
    let sending = |error| lost("sending", error);
    let mut slot = 0;
    let mut current = begin(table, &mut lane, slot)?;
    while let Some((piece, is_staged)) = current {
        if failed.is_set() {
            return Ok(());
        }
        let ahead = if is_staged { Some(begin(table, &mut lane, slot ^ 1)?) } else { None };
        let staged = match lane.current().filter(|_| is_staged) {
            Some(stage) => {
                stage.wait(slot)?;
                Some(&*stage.bytes(slot, piece.len))
            }
            None => None,
        };
        let parts = || staged.into_iter().chain(piece.segments.iter().map(host).filter(|_| staged.is_none()));
        let crc = if header.has(CHECKED) { crc_of(parts()) } else { 0 };
        let frame =
            PieceFrame::Piece { number: header.number, offset: piece.offset, len: piece.len as u32, crc }
                .encode();
        let mut slices: Vec<IoSlice<'_>> =
            std::iter::once(&frame[..]).chain(parts()).map(IoSlice::new).collect();
        write_all(wire, &mut slices, deadline).map_err(sending)?;
        options.show(table.add(piece.len), header.total);
        current = match ahead {
            Some(ahead) => ahead,
            None => begin(table, &mut lane, slot ^ 1)?,
        };
        slot ^= 1;
    }
    let last = PieceFrame::Last { number: header.number }.encode();
    write_all(wire, &mut [IoSlice::new(&last)], deadline).map_err(sending)
}

/// Takes a piece, and starts to copy it if it is on a GPU.
fn begin<'a>(
    table: &Table<Outgoing<'a>>,
    lane: &mut Lane<'_>,
    slot: usize,
) -> Result<Option<(Piece<Outgoing<'a>>, bool)>, ChannelError> {
    let Some(piece) = table.take_next() else { return Ok(None) };
    let is_staged = match lane.stage(&piece.segments)? {
        Some(stage) => {
            stage.fetch(slot, &piece.segments)?;
            true
        }
        None => false,
    };
    Ok(Some((piece, is_staged)))
}

pub(crate) fn crc_of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.for_each(|part| hasher.update(part));
    hasher.finalize()
}
