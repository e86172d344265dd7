//! The sending half of a channel.
//!
//! | file | holds |
//! |---|---|
//! | `pipeline` | several transfers under way |
//! | `connections` | pieces that go over several connections |
//! | `outgoing` | the bytes of pieces, out of the memory of arrays |

mod connections;
mod outgoing;
mod pipeline;

use crate::array::{Array, Memory};
use crate::error::{ChannelError, Reason};
use crate::gpu;
use crate::header::{
    Answer, AnswerPrologue, CHECKED, Header, INLINE, MAX_TEXT, Offer, Offered, PROLOGUE, Place, SMALL, bye,
};
use crate::local::BATCH;
use crate::pieces::{Outgoing, sources};
use crate::shared::{Lane, Outcome, STAGED, Shared, Stages, TransferOptions, Via};
use crate::tuner::Tuner;
use crate::wire::{lost, read_exact, read_exact_soon, write_all, write_all_soon};
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use pipeline::Pipeline;

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
    tuner: Tuner,
    /// How many small transfers go behind their headers before one is offered again.
    offerless: u32,
}

/// Memory of the CPU is copied by the receiver if it has more bytes. Fewer follow the header: 64
/// KiB take 16 us so, on two cores of an EPYC, while a call to read another process's memory pins
/// each of its pages.
const WORTH_A_COPY: u64 = 64 << 10;
/// After a transfer that the receiver could not copy, so many small ones are not offered to it.
const OFFERLESS: u32 = 32;

/// A transfer that is to begin.
struct Prepared {
    header: Header,
    bytes: Vec<u8>,
    deadline: Option<Instant>,
}

impl Prepared {
    /// Returns how many bytes the receiver may have to keep while it has to do with another one.
    fn ahead(&self) -> usize {
        let payload = if self.header.has(INLINE) { self.header.total } else { 0 };
        self.bytes.len() + usize::try_from(payload).unwrap_or(usize::MAX)
    }
}

/// A transfer that has begun.
struct Flight {
    header: Header,
    /// See [`Prepared::ahead`].
    ahead: usize,
    deadline: Option<Instant>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("transfers", &self.number).finish_non_exhaustive()
    }
}

impl Sender {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let tuner = Tuner::new(shared.wires.data().len(), shared.options.probe);
        let (stages, handles) = (Stages::default(), gpu::Handles::default());
        Self { shared, number: 0, stages, handles, tuner, offerless: 0 }
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

    /// Sends transfers one after the other. Up to `most` are under way at once: the next
    /// header travels while the receiver still has to do with the one before. They arrive in the
    /// order in which they were sent.
    pub fn pipeline<'a>(&mut self, most: usize) -> Pipeline<'_, 'a> {
        Pipeline::new(self, most)
    }

    fn transfer(
        &mut self,
        arrays: &[Array<'_>],
        options: &TransferOptions<'_>,
    ) -> Result<Outcome, ChannelError> {
        let prepared = self.prepare(arrays, options)?;
        let flight = self.begin(prepared, arrays, options)?;
        self.complete(&flight, arrays, options)
    }

    /// Makes the header.
    fn prepare(
        &mut self,
        arrays: &[Array<'_>],
        options: &TransferOptions<'_>,
    ) -> Result<Prepared, ChannelError> {
        let deadline = options.deadline(&self.shared.options);
        let total = arrays.iter().map(Array::bytes).sum();
        let has_gpu = arrays.iter().any(|array| array.memory.device().is_some());
        let offer = match self.is_offered(total, has_gpu) {
            true => self.offer(arrays, options),
            false => Offer::None(Reason::Small),
        };
        let is_small = matches!(offer, Offer::None(_)) && total <= self.most_behind_a_header();
        let offer = if is_small { Offer::None(Reason::Small) } else { offer };
        if matches!(offer, Offer::Places(_)) || arrays.iter().any(|array| array.memory.device().is_none()) {
            options.wait()?;
        }
        let crc = if is_small && options.checksum { self.checksum(arrays, options)? } else { 0 };
        let size = self.shared.options.piece.max(4096);
        let pieces = usize::try_from(total).unwrap_or(usize::MAX).div_ceil(size).max(1);
        let header = Header {
            number: self.number,
            flags: if options.checksum { CHECKED } else { 0 } | if is_small { INLINE } else { 0 },
            streams: self.tuner.count(total).min(u16::try_from(pieces).unwrap_or(u16::MAX)),
            piece: size as u32,
            total,
            crc,
            arrays: arrays.iter().map(|array| array.about.clone()).collect(),
            offer,
        };
        let (header, bytes) = encode(header)?;
        self.number += 1;
        Ok(Prepared { header, bytes, deadline })
    }

    /// Returns the most bytes that travel behind their header: no more than a piece, for which the
    /// receiver would first have to ask.
    fn most_behind_a_header(&self) -> u64 {
        (self.shared.options.piece as u64).clamp(WORTH_A_COPY, SMALL)
    }

    /// Whether the receiver is asked to copy so many bytes.
    fn is_offered(&mut self, total: u64, has_gpu: bool) -> bool {
        if total > self.most_behind_a_header() {
            return true;
        }
        // A copy between GPUs takes less than four copies through pinned memory and a connection.
        let is_worth_it = total > if has_gpu { 0 } else { WORTH_A_COPY };
        if is_worth_it && self.offerless > 0 {
            self.offerless -= 1;
            return false;
        }
        is_worth_it
    }

    /// Sends the header, and what travels behind it.
    fn begin(
        &mut self,
        prepared: Prepared,
        arrays: &[Array<'_>],
        options: &TransferOptions<'_>,
    ) -> Result<Flight, ChannelError> {
        let ahead = prepared.ahead();
        let Prepared { header, bytes, deadline } = prepared;
        let first = self.shared.wires.data()[0].as_ref();
        let send = |parts: &mut [IoSlice<'_>]| {
            write_all_soon(first, parts, deadline, self.shared.options.spin)
                .map_err(|error| lost("sending a header", error).at(0, header.total))
        };
        // The header goes with the first bytes.
        let mut begin = Some(&bytes[..]);
        if header.has(INLINE) {
            self.small(arrays, options, |parts| {
                let parts = begin.take().into_iter().chain(parts.iter().copied());
                send(&mut parts.map(IoSlice::new).collect::<Vec<_>>())
            })?;
        }
        if let Some(bytes) = begin {
            send(&mut [IoSlice::new(bytes)])?;
        }
        Ok(Flight { header, ahead, deadline })
    }

    /// Does what the receiver asks for, until it has the arrays. All earlier transfers have ended.
    fn complete(
        &mut self,
        flight: &Flight,
        arrays: &[Array<'_>],
        options: &TransferOptions<'_>,
    ) -> Result<Outcome, ChannelError> {
        let Flight { header, deadline, .. } = flight;
        let (total, deadline) = (header.total, *deadline);
        let mut via = if header.has(INLINE) { Via::Header } else { Via::Copy };
        let (mut moved, mut began) = (0, None);
        let has_gpu = arrays.iter().any(|array| array.memory.device().is_some());
        loop {
            let spin = match has_gpu && via == Via::Copy {
                true => self.shared.options.spin_for_copy(total),
                false => self.shared.options.spin,
            };
            let answer =
                self.answer(header.number, spin, deadline).map_err(|error| error.at(moved, total))?;
            match answer {
                Answer::Go { reason } if via == Via::Copy => {
                    via = Via::Connections { count: header.streams, reason };
                    self.offerless = OFFERLESS;
                    began = Some(Instant::now());
                    self.pieces(arrays, header, options, deadline)?;
                    moved = total;
                }
                Answer::Need { allocations } if via == Via::Copy => {
                    self.pass(arrays, &header.offer, &allocations, deadline)?;
                }
                Answer::Refused { errno, text } if moved == 0 => {
                    return Err(ChannelError::Refused { errno: errno.into(), reason: text });
                }
                Answer::Done { copied } if copied == (via == Via::Copy) => {
                    if let Some(began) = began {
                        self.tuner.learn(header.streams, total, began.elapsed());
                    }
                    if copied {
                        self.offerless = 0;
                    }
                    options.show(total, total);
                    return Ok(Outcome { bytes: total, via });
                }
                _ => return Err(ChannelError::Protocol("an answer out of turn".into())),
            }
        }
    }

    /// Gives the bytes of a small transfer to `send`: with a GPU part by part, else all at once.
    fn small(
        &self,
        arrays: &[Array<'_>],
        options: &TransferOptions<'_>,
        mut send: impl FnMut(&[&[u8]]) -> Result<(), ChannelError>,
    ) -> Result<(), ChannelError> {
        if arrays.iter().all(|array| array.memory.device().is_none()) {
            return send(&arrays.iter().map(|array| host(&array.memory)).collect::<Vec<_>>());
        }
        let mut lane = Lane::new(&self.stages, STAGED, options.after);
        let mut pieces = sources(arrays, STAGED).into_iter();
        outgoing::for_each(|| pieces.next(), &mut lane, |_, parts| send(parts))
    }

    /// Returns the checksum of a small transfer, which stands before its bytes.
    fn checksum(&self, arrays: &[Array<'_>], options: &TransferOptions<'_>) -> Result<u32, ChannelError> {
        let mut hasher = crc32fast::Hasher::new();
        self.small(arrays, options, |parts| {
            parts.iter().for_each(|part| hasher.update(part));
            Ok(())
        })?;
        Ok(hasher.finalize())
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
        let mut offers = gpu::Offers::new(&mut self.handles);
        let places = arrays.iter().map(|array| match &array.memory {
            Memory::Host(bytes) => Ok(Place::Process(bytes.as_ptr().addr() as u64)),
            Memory::Gpu { .. } if local.same_process => Err(Reason::SameProcess),
            Memory::Gpu { device, address, len } => offers.of(device, *address, *len).map(Place::Gpu),
        });
        Ok(Offer::Places(places.collect::<Result<_, _>>()?))
    }

    fn answer(&self, number: u64, spin: Duration, deadline: Option<Instant>) -> Result<Answer, ChannelError> {
        let wire = self.shared.wires.answers();
        let waiting = |error| lost("waiting for the receiver", error);
        let mut bytes = [0; PROLOGUE];
        read_exact_soon(wire, &mut bytes, deadline, spin).map_err(waiting)?;
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
        let (Offer::Places(places), Ok(local)) = (offer, self.shared.local()) else { return Err(wrong()) };
        let all: Vec<(_, &Offered)> = arrays
            .iter()
            .zip(places)
            .filter_map(|(array, place)| Some((array.memory.device()?, place)))
            .flat_map(|(device, place)| place.allocations().iter().map(move |offered| (device, offered)))
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
        Memory::Host(bytes) => bytes,
        Memory::Gpu { .. } => &[],
    }
}

pub(crate) fn crc_of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.for_each(|part| hasher.update(part));
    hasher.finalize()
}
