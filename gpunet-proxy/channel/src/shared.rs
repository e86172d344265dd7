//! What both halves of a channel have, and what a transfer can be told.

use crate::array::Memory;
use crate::error::{ChannelError, Reason};
use crate::gpu::Stage;
use crate::local::Local;
use crate::wire::Wires;
use gpu_usermap::cuda::{CudaStream, Device};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The settings of a channel. The two ends need not have the same.
///
/// # Examples
/// ```
/// use gpunet_channel::ChannelOptions;
///
/// let options = ChannelOptions { streams: 4, ..ChannelOptions::default() };
/// # assert!(options.rendezvous);
/// ```
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// How many connections carry transfers at most, 1 to 64; that of the end that connects counts.
    /// One more carries answers. By default as many as half the CPUs, at most 8.
    pub streams: usize,
    /// The bytes of a piece, 4 KiB to 64 MiB; 1 MiB by default.
    pub piece: usize,
    /// How long opening the channel may take, and a transfer that has begun. `None`, the default
    /// for transfers, is for ever; opening then has ten seconds.
    pub timeout: Option<Duration>,
    /// Whether bytes are copied from memory to memory where that is possible. It shows this
    /// process's memory to the other end's, which is of the same user and machine.
    pub rendezvous: bool,
    /// The most bytes for which [`Receiver::recv`](crate::Receiver::recv) allocates memory; 64 GiB
    /// by default.
    pub most: u64,
    /// The most bytes of the other end's GPU memory that stay mapped between transfers; 8 GiB by
    /// default.
    pub mapped: u64,
    /// How long they stay mapped without being used; 10 seconds by default. A receiver that waits
    /// for a transfer sees to it.
    pub idle: Duration,
    /// Whether the first large transfers over connections try how many of them are best; with false
    /// all of [`streams`](Self::streams) are used. True by default.
    pub probe: bool,
    /// How long a call polls for what is due in microseconds (an answer, the next header, more of a
    /// transfer that has begun, room for it) before it sleeps. A sender whose GPU's memory is being
    /// copied polls for longer, 10 us for each MiB and at most 20 ms: being woken takes longer than
    /// many copies. By default 100 us, and 0 with fewer than four CPUs; 0: never.
    pub spin: Duration,
    /// The GPU by which this end copies out of the other end's GPU memory into its own CPU memory.
    /// Without one, and before a GPU's array was received, such transfers go by the connections.
    pub device: Option<Device>,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            streams: (cpus / 2).clamp(1, 8),
            piece: 1 << 20,
            timeout: None,
            rendezvous: true,
            most: 64 << 30,
            mapped: 8 << 30,
            idle: Duration::from_secs(10),
            probe: true,
            spin: if cpus < 4 { Duration::ZERO } else { Duration::from_micros(100) },
            device: None,
        }
    }
}

impl ChannelOptions {
    /// Returns how long a sender polls for the answer to a copy of so many bytes by a GPU: as long
    /// as it takes at 100 GB/s, at most 20 ms. Between GPUs it is done by then, or takes so long
    /// that being woken is a small part of it.
    pub(crate) fn spin_for_copy(&self, bytes: u64) -> Duration {
        const MOST: Duration = Duration::from_millis(20);
        if self.spin.is_zero() { self.spin } else { self.spin + Duration::from_nanos(bytes / 100).min(MOST) }
    }
}

/// What one transfer is to be, beside its arrays.
///
/// # Examples
/// ```
/// use gpunet_channel::TransferOptions;
///
/// let show = |done: u64, total: u64| eprintln!("{done} of {total} bytes");
/// let options = TransferOptions { checksum: true, progress: Some(&show), ..TransferOptions::default() };
/// # assert!(options.checksum);
/// ```
#[derive(Clone, Copy, Default)]
pub struct TransferOptions<'a> {
    /// The sender has a checksum made of each piece, and the receiver checks it. The bytes then go
    /// by the connections. Of the receiver this is not asked.
    pub checksum: bool,
    /// Called with the bytes that are through, and all of the transfer's, by any thread.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
    /// The transfer uses the arrays' memory only after everything that is on this stream now. The
    /// copies wait for it; so does the calling thread, for memory of the CPU, and before it offers
    /// memory to another process, whose copies know no stream of this one.
    pub after: Option<&'a CudaStream>,
    /// When the transfer must have ended, if that is before the channel's timeout.
    pub deadline: Option<Instant>,
}

impl std::fmt::Debug for TransferOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransferOptions")
            .field("checksum", &self.checksum)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl TransferOptions<'_> {
    pub(crate) fn deadline(&self, options: &ChannelOptions) -> Option<Instant> {
        let by_channel = options.timeout.map(|timeout| Instant::now() + timeout);
        [self.deadline, by_channel].into_iter().flatten().min()
    }

    pub(crate) fn wait(&self) -> Result<(), ChannelError> {
        let Some(stream) = self.after else { return Ok(()) };
        stream.synchronize().map_err(|error| ChannelError::Cuda(error.to_string()))
    }

    pub(crate) fn show(&self, done: u64, total: u64) {
        if let Some(progress) = self.progress {
            progress(done, total);
        }
    }
}

/// How the bytes of a transfer went.
///
/// # Examples
/// ```
/// use gpunet_channel::{Reason, Via};
///
/// let via = Via::Connections { count: 4, reason: Reason::OtherMachine };
/// assert_eq!(via.to_string(), "4 connections (the two ends are on different machines)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Via {
    /// Behind the header, on the first connection: a small transfer.
    Header,
    /// In pieces.
    Connections {
        /// How many connections.
        count: u16,
        /// Why they were not copied from memory to memory.
        reason: Reason,
    },
    /// By one copy from memory to memory.
    Copy,
}

impl std::fmt::Display for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header => f.write_str("behind the header"),
            Self::Connections { count: 1, reason } => write!(f, "1 connection ({reason})"),
            Self::Connections { count, reason } => write!(f, "{count} connections ({reason})"),
            Self::Copy => f.write_str("one copy"),
        }
    }
}

/// What became of a transfer.
///
/// # Examples
/// ```
/// # fn example(sender: &mut gpunet_channel::Sender, weights: &[f32]) -> Result<(), gpunet_channel::ChannelError> {
/// let outcome = sender.send(&gpunet_channel::Array::of(weights))?;
/// println!("{} bytes by {}", outcome.bytes, outcome.via);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The bytes of all arrays.
    pub bytes: u64,
    /// How they went.
    pub via: Via,
}

/// Ends a channel from another thread. It keeps nothing of the channel.
///
/// # Examples
/// ```
/// # fn example(mut channel: gpunet_channel::Channel, mut weights: Vec<f32>) {
/// let ender = channel.ender();
/// let receiving = std::thread::spawn(move || {
///     channel.recv_into(&mut gpunet_channel::ArrayMut::of(&mut weights)).map(|outcome| outcome.bytes)
/// });
/// ender.end("the program ends");
/// assert!(receiving.join().unwrap().is_err());
/// # }
/// ```
#[derive(Clone)]
pub struct Ender(pub(crate) Weak<Shared>);

impl std::fmt::Debug for Ender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ender").finish_non_exhaustive()
    }
}

impl Ender {
    /// Ends both directions, here and at the other end. Transfers that are under way fail as if a
    /// connection was lost, and later ones with [`ChannelError::Broken`], which has `why`.
    pub fn end(&self, why: &str) {
        if let Some(shared) = self.0.upgrade() {
            let _ = shared.settle::<()>(Err(ChannelError::Broken(why.to_owned())));
        }
    }
}

/// What both halves have.
pub(crate) struct Shared {
    pub(crate) wires: Wires,
    pub(crate) local: Result<Local, Reason>,
    pub(crate) options: ChannelOptions,
}

impl Shared {
    /// Ends the channel unless the error leaves it as it is. From here on the other end uses no
    /// memory of this one.
    pub(crate) fn settle<T>(&self, result: Result<T, ChannelError>) -> Result<T, ChannelError> {
        if let Err(error) = &result
            && !error.leaves_the_channel()
        {
            if let Ok(local) = &self.local {
                local.shut_down();
            }
            self.wires.abort(error);
        }
        result
    }

    /// Returns the connection to the other end's process, or why there is none.
    pub(crate) fn local(&self) -> Result<&Local, Reason> {
        self.local.as_ref().map_err(|reason| *reason)
    }
}

/// What goes through pinned memory, and not in pieces, goes in parts of so many bytes at least:
/// while the copy engine has one, the CPU has the one before, and the last one is copied when all
/// else is done.
pub(crate) const STAGED: usize = 256 << 10;

/// Returns the size of such parts for a transfer of so many bytes in pieces of `piece`. The driver
/// takes the calls of a process one at a time: with many parts, the threads wait for each other.
pub(crate) fn part_size(total: u64, piece: usize) -> usize {
    let sixteenth = usize::try_from(total / 16).unwrap_or(usize::MAX);
    sixteenth.next_multiple_of(4096).max(STAGED).min(piece)
}

/// Pinned memory that is not in use.
pub(crate) type Stages = Mutex<Vec<Stage>>;

/// One thread's pinned memory: taken when it first needs some, and given back at its end.
pub(crate) struct Lane<'a> {
    stages: &'a Stages,
    stage: Option<Stage>,
    size: usize,
    after: Option<&'a CudaStream>,
}

impl<'a> Lane<'a> {
    /// Makes one whose copies begin after what is on a stream.
    pub(crate) fn new(stages: &'a Stages, size: usize, after: Option<&'a CudaStream>) -> Self {
        Self { stages, stage: None, size, after }
    }

    /// Returns the stage for a piece, if the piece has to do with a GPU.
    pub(crate) fn stage<H>(&mut self, segments: &[Memory<H>]) -> Result<Option<&mut Stage>, ChannelError> {
        let Some(device) = segments.iter().find_map(Memory::device) else { return Ok(None) };
        // One serves for all GPUs: an address says on which it is.
        if self.stage.is_none() {
            let mut idle = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
            let at = idle.iter().position(|stage| stage.fits(device, self.size));
            let found = at.map(|at| idle.swap_remove(at));
            drop(idle);
            let mut stage = match found {
                Some(stage) => stage,
                None => Stage::new(device, self.size)?,
            };
            if let Some(after) = self.after {
                stage.wait_for(after)?;
            }
            self.stage = Some(stage);
        }
        Ok(self.stage.as_mut())
    }

    /// Returns the stage that was taken last.
    pub(crate) fn current(&mut self) -> Option<&mut Stage> {
        self.stage.as_mut()
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        let Some(mut stage) = self.stage.take() else { return };
        // A copy that was left under way, by an error, uses memory of the caller.
        if stage.wait(0).is_ok() && stage.wait(1).is_ok() {
            self.stages.lock().unwrap_or_else(PoisonError::into_inner).push(stage);
        }
    }
}
