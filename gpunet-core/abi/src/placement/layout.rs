//! The two regions of an attachment, byte by byte.
//!
//! **Shared region** (pinned host memory, mapped by proxy and device): header, the dense words the
//! proxy scans, the lines the device polls, control slots, the recycling ring, then ring memory.
//! **Device region** (GPU memory; the heap for the CPU device): the device's own socket table, then
//! ring memory for streams between two sockets of that device.

use crate::placement::panic_record::PanicRecord;
use crate::poll::poll_group::{GroupWords, PollEntry};
use crate::request::claim::Posted;
use crate::request::control::{ControlSlot, Descriptor};
use crate::stream::line;
use crate::table::entry::{Entry, OwnWords};
use crate::types::region::{REGIONS, Region};
use crate::types::waiting;

pub use crate::stream::socket_line::SocketLine;
pub use crate::types::link::SHARDS;

/// Every part starts on such a boundary.
pub const PAGE: u64 = 4096;
/// Launches of an attachment at a time.
pub const LAUNCHES: u32 = 64;
/// Bytes of a [`Context`](crate::Context), which holds the layouts.
pub(crate) const CONTEXT_LEN: u64 = 384;

/// Slots for sockets that the host program opens, if a handle can name them all. A host cannot take
/// slots from those of a GPU's threads, because the bus has no compare-exchange.
pub const HOST_SOCKETS: u32 = 256;
/// Slots that a handle can name.
const MAX_SLOTS: u32 = 1 << 16;

/// How many of each thing an attachment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Geometry {
    /// Socket slots for kernels, at most 65,536.
    pub sockets: u32,
    /// Control slots: requests in flight at a time.
    pub controls: u32,
    /// Data threads of the proxy.
    pub shards: u32,
    /// Socket slots for the host program: those after the kernels'.
    pub host_sockets: u32,
    /// Bytes of ring memory in the shared region.
    pub shared_rings: u64,
    /// Bytes of ring memory in the device region.
    pub device_rings: u64,
}

impl Geometry {
    /// Makes a geometry, rounding ring memory up to whole pages.
    #[must_use]
    pub const fn new(sockets: u32, controls: u32, shards: u32, shared_rings: u64, device_rings: u64) -> Self {
        Self {
            sockets,
            controls,
            shards,
            host_sockets: if sockets < MAX_SLOTS - HOST_SOCKETS {
                HOST_SOCKETS
            } else {
                MAX_SLOTS.saturating_sub(sockets)
            },
            shared_rings: round_up(shared_rings),
            device_rings: round_up(device_rings),
        }
    }

    /// All socket slots: first the kernels', then the host program's.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.sockets + self.host_sockets
    }
}

/// The start of the shared region.
///
/// | field | writer | reader |
/// |---|---|---|
/// | magic, version, geometry | proxy, once | device |
/// | heartbeat | proxy | device (is the proxy alive?) |
/// | epoch | proxy (and CPU thread blocks for peer streams) | device polls, CPU futex |
/// | reclaimed | proxy | device: slots pushed into the recycling ring so far |
/// | host_reclaimed | proxy | host program: the same of its own slots |
/// | pollers | CPU thread blocks | proxy and CPU blocks: how many sleep on `epoch` |
/// | sleeping | data thread i | CPU thread blocks: ring its eventfd |
/// | cancel | host, and a CPU thread block that panics | device: launch i is cancelled |
/// | stream_operations | host program | data thread i: it must not sleep for long |
/// | taken | host program | proxy, for operators |
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct SharedHeader {
    /// [`crate::MAGIC`].
    pub magic: u32,
    /// [`crate::VERSION`].
    pub version: u32,
    /// The sizes below were computed from this.
    pub geometry: Geometry,
    reserved: [u64; 3],
    /// Counts up while the proxy lives; [`HEARTBEAT_DOWN`] once it stopped.
    pub heartbeat: u64,
    reserved1: [u64; 7],
    /// An [`Epoch`](crate::epoch::Epoch): counts changes that a poll could wait for. The low half
    /// is the futex CPU blocks sleep on.
    pub epoch: u64,
    reserved2: [u64; 7],
    /// Slots pushed into the recycling ring.
    pub reclaimed: u64,
    reserved3: [u64; 7],
    /// Slots of the host program pushed into its recycling ring.
    pub host_reclaimed: u64,
    reserved5: [u64; 7],
    /// CPU thread blocks that sleep on `epoch`.
    pub pollers: u32,
    reserved4: [u32; 15],
    /// Per data thread: 1 while it sleeps and wants its eventfd rung.
    pub sleeping: [SleepLine; SHARDS],
    /// Per launch: not 0 once the host cancelled it, or a CPU thread block of it panicked.
    pub cancel: [u64; LAUNCHES as usize],
    /// Per data thread: how many operations of CUDA streams are under way on sockets whose bytes it
    /// moves. A stream stores a word and rings no doorbell.
    pub stream_operations: [u64; SHARDS],
    /// Two bits for each socket of the host program: the [`Direction`](crate::Direction)s that it
    /// has taken.
    pub taken: [u64; TAKEN_WORDS],
}

/// Words of [`SharedHeader::taken`].
pub const TAKEN_WORDS: usize = HOST_SOCKETS as usize * 2 / u64::BITS as usize;

/// One data thread's sleeping flag, on a line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SleepLine {
    /// 1 while the thread sleeps.
    pub flag: u32,
}

/// The heartbeat of a proxy that has stopped for good.
pub const HEARTBEAT_DOWN: u64 = u64::MAX;

const _: () = assert!(size_of::<SharedHeader>() == 4096);

/// Offsets in the shared region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SharedLayout {
    /// `u64` per socket: published. Device writes, proxy scans.
    pub published: u64,
    /// `u64` per socket: consumed. Device writes, proxy scans.
    pub consumed: u64,
    /// `u64` per socket: the generation of the driven stream that the device has closed. Device
    /// writes, proxy scans.
    pub closed: u64,
    /// `u64` per control slot: request sequence. Device writes, proxy scans.
    pub requests: u64,
    /// `u64` per control slot: sequence given up. Device writes, proxy scans.
    pub abandons: u64,
    /// [`ControlSlot`]s.
    pub controls: u64,
    /// [`SocketLine`] per socket. Proxy writes, device polls.
    pub lines: u64,
    /// A [`Status`](crate::Status) per socket. Proxy writes, device polls.
    pub statuses: u64,
    /// `u32` per socket of kernels: slots that are free again, in order. Proxy writes, device
    /// reads.
    pub reclaim: u64,
    /// `u32` per socket of the host program: the same. Proxy writes, host program reads.
    pub host_reclaim: u64,
    /// [`Descriptor`] per socket: of a stream that was accepted ahead. Proxy writes, device reads.
    pub accepted: u64,
    /// `u64` per socket: 0, or the number + 1 of the launch that has taken the stream that was
    /// accepted ahead. Device writes, proxy reads.
    pub takers: u64,
    /// A [`WatchWord`](crate::poll_group::WatchWord) per socket: the group that wants to know of
    /// changes. Device writes, proxy reads.
    pub watches: u64,
    /// `u64` per socket: how many [lines](mod@line) it has sent, as shown now and then. Device
    /// writes, proxy reads for operators.
    pub lines_sent: u64,
    /// [`waiting::BLOCKS`] `u64` per launch: what its blocks wait for ([`waiting`]). Device writes,
    /// proxy reads for operators.
    pub waits: u64,
    /// A [`PanicRecord`]. A GPU writes, the host reads.
    pub panic: u64,
    /// [`line::PER_PAGE`] bytes for each page of ring memory: lines of streams whose rings lie
    /// there. Their sender writes, their receiver reads.
    pub ring_lines: u64,
    /// Ring memory.
    pub rings: u64,
    /// Length of the region.
    pub len: u64,
}

impl SharedLayout {
    /// Lays the region out.
    #[must_use]
    pub const fn new(geometry: &Geometry) -> Self {
        let sockets = geometry.slots() as u64;
        let controls = geometry.controls as u64;
        let published = size_of::<SharedHeader>() as u64;
        let consumed = published + round_up(sockets * 8);
        let closed = consumed + round_up(sockets * 8);
        let requests = closed + round_up(sockets * 8);
        let abandons = requests + round_up(controls * 8);
        let slots = abandons + round_up(controls * 8);
        let lines = slots + round_up(controls * size_of::<ControlSlot>() as u64);
        let statuses = lines + round_up(sockets * size_of::<SocketLine>() as u64);
        let reclaim = statuses + round_up(sockets * 8);
        let host_reclaim = reclaim + round_up(geometry.sockets as u64 * 4);
        let accepted = host_reclaim + round_up(geometry.host_sockets as u64 * 4);
        let takers = accepted + round_up(sockets * size_of::<Descriptor>() as u64);
        let watches = takers + round_up(sockets * 8);
        let lines_sent = watches + round_up(sockets * 8);
        let waits = lines_sent + round_up(sockets * 8);
        let panic = waits + round_up(LAUNCHES as u64 * waiting::BLOCKS as u64 * 8);
        let ring_lines = panic + round_up(size_of::<PanicRecord>() as u64);
        let rings = ring_lines + round_up(line::room(geometry.shared_rings));
        Self {
            published,
            consumed,
            closed,
            requests,
            abandons,
            controls: slots,
            lines,
            statuses,
            reclaim,
            host_reclaim,
            accepted,
            takers,
            watches,
            lines_sent,
            waits,
            panic,
            ring_lines,
            rings,
            len: rings + geometry.shared_rings,
        }
    }

    /// The line of messages of the ring at offset `ring`.
    #[must_use]
    pub const fn line_of(&self, ring: u64) -> u64 {
        self.ring_lines + line::room(ring - self.rings) + line::PER_PAGE
    }
}

/// The start of the device region: the device's own allocation state.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct DeviceHeader {
    /// Slots taken from the recycling ring so far (compare-exchange among the device's threads).
    pub taken: u64,
    /// By launch number, a byte each: how often a launch of that number has ended. Written by the
    /// host.
    pub ended: [u64; LAUNCHES as usize / 8],
    /// How many launches have ended. Written by the host, after `ended`.
    pub finished: u64,
    reserved: [u64; 6],
    /// Of a GPU: the [`Epoch`](crate::epoch::Epoch) that the relay read last in host memory.
    pub relayed_epoch: u64,
    /// Until when, by the device's clock, the relay has its turn; 0: nobody has. Changed by
    /// compare-exchange.
    pub relay_turn: u64,
}

const _: () = assert!(size_of::<DeviceHeader>() == 4096);

/// Offsets in the device region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DeviceLayout {
    /// [`Context`](crate::Context) per launch. Host writes once, kernels read.
    pub contexts: u64,
    /// `u32` per control slot: a value of [`crate::claim`].
    pub claims: u64,
    /// [`Posted`] per control slot: the last request of its holder.
    pub posted: u64,
    /// `u32` per socket: a [`crate::entry::SlotState`]. The host reads all of them at once.
    pub states: u64,
    /// `u64` per socket: a bit for each launch that knows the socket.
    pub users: u64,
    /// [`Entry`] per socket.
    pub entries: u64,
    /// [`OwnWords`] per socket: its published and consumed words when the other end is a socket of
    /// the same device.
    pub words: u64,
    /// [`PollEntry`] per socket: what its poll group knows of it.
    pub polls: u64,
    /// [`GroupWords`] per socket: of those that are poll groups.
    pub groups: u64,
    /// [`Region`] per region number: where this device has the parts of arenas. Written by the
    /// attachment's agent.
    pub regions: u64,
    /// [`line::PER_PAGE`] bytes for each page of ring memory, as in the shared region.
    pub ring_lines: u64,
    /// Ring memory.
    pub rings: u64,
    /// Length of the region.
    pub len: u64,
}

impl DeviceLayout {
    /// Lays the region out.
    #[must_use]
    pub const fn new(geometry: &Geometry) -> Self {
        let sockets = geometry.slots() as u64;
        let controls = geometry.controls as u64;
        let contexts = size_of::<DeviceHeader>() as u64;
        let claims = contexts + round_up(LAUNCHES as u64 * CONTEXT_LEN);
        let posted = claims + round_up(controls * 4);
        let states = posted + round_up(controls * size_of::<Posted>() as u64);
        let users = states + round_up(sockets * 4);
        let entries = users + round_up(sockets * 8);
        let words = entries + round_up(sockets * size_of::<Entry>() as u64);
        let polls = words + round_up(sockets * size_of::<OwnWords>() as u64);
        let groups = polls + round_up(sockets * size_of::<PollEntry>() as u64);
        let regions = groups + round_up(sockets * size_of::<GroupWords>() as u64);
        let ring_lines = regions + round_up((REGIONS * size_of::<Region>()) as u64);
        let rings = ring_lines + round_up(line::room(geometry.device_rings));
        let len = rings + geometry.device_rings;
        Self {
            contexts,
            claims,
            posted,
            states,
            users,
            entries,
            words,
            polls,
            groups,
            regions,
            ring_lines,
            rings,
            len,
        }
    }

    /// The line of messages of the ring at offset `ring`.
    #[must_use]
    pub const fn line_of(&self, ring: u64) -> u64 {
        self.ring_lines + line::room(ring - self.rings) + line::PER_PAGE
    }
}

const fn round_up(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE) * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_page_aligned_and_do_not_overlap() {
        let geometry = Geometry::new(1000, 128, 1, 1 << 20, 1 << 20);
        let s = SharedLayout::new(&geometry);
        let order = [
            0,
            s.published,
            s.consumed,
            s.closed,
            s.requests,
            s.abandons,
            s.controls,
            s.lines,
            s.statuses,
            s.reclaim,
            s.host_reclaim,
            s.accepted,
            s.takers,
            s.watches,
            s.lines_sent,
            s.waits,
            s.panic,
            s.ring_lines,
            s.rings,
            s.len,
        ];
        assert!(order.windows(2).all(|w| w[0] < w[1] && w[1] % PAGE == 0));
        assert!(s.consumed - s.published >= 8000);
        let d = DeviceLayout::new(&geometry);
        let order = [
            0,
            d.contexts,
            d.claims,
            d.posted,
            d.states,
            d.users,
            d.entries,
            d.words,
            d.polls,
            d.groups,
            d.regions,
            d.ring_lines,
            d.rings,
            d.len,
        ];
        assert!(order.windows(2).all(|w| w[0] < w[1] && w[1] % PAGE == 0));
        assert!(d.words - d.entries >= 256_000);
    }
}
