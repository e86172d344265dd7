//! Descriptors: they tell a device where the rings and words of a stream lie.

use super::Control;
use super::tables::Assignment;
use super::tables::AttachmentEntry;
use super::tables::regions::ArenaRings;
use crate::model::config::Lines;
use crate::model::message::{Ring, Rings};
use gpunet_abi::Link;
use gpunet_abi::Options;
use gpunet_abi::SockAddr;
use gpunet_abi::arena::PartLayout;
use gpunet_abi::control::Descriptor;
use gpunet_abi::entry::OwnWords;
use gpunet_abi::layout::{DeviceLayout, SocketLine};
use gpunet_abi::line;
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::{DEVICE, RegionOffset, SHARED};
use gpunet_core::transport::Opened;
use std::mem::offset_of;
use std::net::SocketAddr;

/// In place of a line: the stream has none.
const NO_LINE: RegionOffset = RegionOffset(0);

/// What a direct stream has for small messages, beside rings that are large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasLines {
    None,
    Lines,
    Units,
}

impl HasLines {
    /// The flag in a descriptor.
    const fn flag(self) -> u32 {
        match self {
            Self::Units => Descriptor::UNITS,
            Self::None | Self::Lines => 0,
        }
    }
}

impl Control {
    /// What a stream between two devices has, by the options of its ends; `polls`: one of them is a
    /// GPU.
    pub(super) fn has_lines(&self, ends: [&Options; 2], polls: bool) -> HasLines {
        match self.lines {
            lines if !lines.has(ends, polls) => HasLines::None,
            Lines::Units => HasLines::Units,
            _ => HasLines::Lines,
        }
    }
}

/// The line of a ring, which lies at `offset`, if the stream has lines and the ring is large
/// enough.
fn line_at(lines: HasLines, region: u8, offset: u64, ring: Ring) -> RegionOffset {
    if lines != HasLines::None && line::fits(ring.capacity()) {
        RegionOffset::new(region, offset)
    } else {
        NO_LINE
    }
}

impl AttachmentEntry {
    /// Where the rings and words of a driven stream lie.
    pub(super) fn driven_descriptor(
        &self,
        slot: u32,
        thread: Assignment,
        rings: Rings,
        opened: &Opened,
    ) -> Descriptor {
        let layout = self.state.memory.layout();
        let line = layout.lines + u64::from(slot) * size_of::<SocketLine>() as u64;
        let index = u64::from(slot) * 8;
        Descriptor {
            transport: opened.kind as u32,
            link: thread.link(),
            send_ring: RegionOffset::new(rings.region, rings.send.offset),
            recv_ring: RegionOffset::new(rings.region, rings.recv.offset),
            published: RegionOffset::new(SHARED, layout.published + index),
            released: RegionOffset::new(SHARED, line + offset_of!(SocketLine, released) as u64),
            landed: RegionOffset::new(SHARED, line + offset_of!(SocketLine, landed) as u64),
            consumed: RegionOffset::new(SHARED, layout.consumed + index),
            send_line: NO_LINE,
            recv_line: NO_LINE,
            send_log2: u32::from(rings.send.log2),
            recv_log2: u32::from(rings.recv.log2),
            local: SockAddr::from_std(opened.local),
            peer: SockAddr::from_std(opened.peer),
        }
    }

    /// Where the rings and words of one end of a stream in an arena lie: what it polls is in its
    /// own part, what it writes in the peer's. `own` and `peer` are this device's region numbers of
    /// the two parts; with `peer_polls`, the peer needs no wake-up.
    pub(super) fn arena_descriptor(
        &self,
        [own, peer]: [u8; 2],
        layout: &PartLayout,
        peer_polls: bool,
        rings: &ArenaRings,
        lines: HasLines,
        addrs: (SocketAddr, SocketAddr),
    ) -> Descriptor {
        let mine = |field: usize| RegionOffset::new(peer, layout.line(rings.send.offset) + field as u64);
        let theirs = |field: usize| RegionOffset::new(own, layout.line(rings.recv.offset) + field as u64);
        Descriptor {
            transport: TransportKind::Peer as u32,
            link: if peer_polls { Link::POLLED } else { Link::REMOTE },
            send_ring: RegionOffset::new(peer, rings.send.offset),
            recv_ring: RegionOffset::new(own, rings.recv.offset),
            published: mine(offset_of!(SocketLine, landed)),
            consumed: mine(offset_of!(SocketLine, released)),
            landed: theirs(offset_of!(SocketLine, landed)),
            released: theirs(offset_of!(SocketLine, released)),
            send_line: line_at(lines, peer, layout.line_of(rings.send.offset), rings.send),
            recv_line: line_at(lines, own, layout.line_of(rings.recv.offset), rings.recv),
            send_log2: u32::from(rings.send.log2) | lines.flag(),
            recv_log2: u32::from(rings.recv.log2),
            local: SockAddr::from_std(addrs.0),
            peer: SockAddr::from_std(addrs.1),
        }
    }

    /// Where the rings and words of one end of a direct stream lie: each end polls the words that
    /// the other end writes.
    pub(super) fn direct_descriptor(
        &self,
        slot: u32,
        partner: u32,
        rings: Rings,
        lines: HasLines,
        addrs: (SocketAddr, SocketAddr),
    ) -> Descriptor {
        let device = DeviceLayout::new(self.state.memory.geometry());
        let words = device.words;
        let line = |ring: Ring| {
            let at = if rings.region == DEVICE {
                device.line_of(ring.offset)
            } else {
                self.state.memory.layout().line_of(ring.offset)
            };
            line_at(lines, rings.region, at, ring)
        };
        let own = |of: u32, offset: usize| {
            RegionOffset::new(DEVICE, words + u64::from(of) * size_of::<OwnWords>() as u64 + offset as u64)
        };
        Descriptor {
            transport: TransportKind::Peer as u32,
            link: Link::same_device(partner),
            send_ring: RegionOffset::new(rings.region, rings.send.offset),
            recv_ring: RegionOffset::new(rings.region, rings.recv.offset),
            published: own(slot, offset_of!(OwnWords, published)),
            consumed: own(slot, offset_of!(OwnWords, consumed)),
            landed: own(partner, offset_of!(OwnWords, published)),
            released: own(partner, offset_of!(OwnWords, consumed)),
            send_line: line(rings.send),
            recv_line: line(rings.recv),
            send_log2: u32::from(rings.send.log2) | lines.flag(),
            recv_log2: u32::from(rings.recv.log2),
            local: SockAddr::from_std(addrs.0),
            peer: SockAddr::from_std(addrs.1),
        }
    }
}
