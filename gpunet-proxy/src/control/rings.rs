//! Ring memory: which region a stream's rings lie in, and how a network card finds them.

use super::shortage::Shortage;
use super::tables::AttachmentEntry;
use crate::model::message::{Ring, Rings};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::{DEVICE, SHARED};
use gpunet_core::slab::Slab;
use gpunet_core::verbs::{self, Memory, RingMemory};
use std::sync::Arc;

/// Descriptors of the stream whose rings these are: one of TCP, two of rc.
fn descriptors_of(rings: Rings) -> u64 {
    1 + u64::from(rings.registered)
}

impl AttachmentEntry {
    /// The region for the rings of a driven stream over rc: the device's own memory where a network
    /// card reaches it, else the memory shared with the proxy.
    pub(super) fn rc_region(&self) -> u8 {
        if self.card_reaches_device && self.state.card.is_some() { DEVICE } else { SHARED }
    }

    /// The region for the rings of a direct stream.
    pub(super) fn direct_region(&self) -> u8 {
        if self.state.polled { DEVICE } else { SHARED }
    }

    fn slab(&mut self, region: u8) -> &mut Slab {
        match &mut self.local {
            Some(local) if region == DEVICE => local,
            _ => &mut self.shared,
        }
    }

    /// Takes two rings of these sizes (log2 of bytes): one to send from, one to receive into.
    pub(super) fn take_rings(&mut self, region: u8, send: u8, recv: u8) -> Option<Rings> {
        let slab = self.slab(region);
        let first = slab.take(send)?;
        let Some(second) = slab.take(recv) else {
            slab.give(first, send);
            return None;
        };
        let ring = |offset, log2| Ring { offset, log2 };
        let (send, recv) = (ring(first, send), ring(second, recv));
        Some(Rings { region, send, recv, registered: false, driven: false })
    }

    /// Returns whether two rings of these sizes would fit if no other stream had any and all ring memory were
    /// allocated.
    pub(super) fn could_hold(&self, region: u8, send: u8, recv: u8) -> bool {
        Slab::could_hold(self.ring_memory(region), &[send, recv])
    }

    /// Returns whether at least half of a region's ring memory is free.
    pub(super) fn has_spare_rings(&mut self, region: u8) -> bool {
        self.slab(region).free_bytes() >= self.ring_memory(region) / 2
    }

    /// Returns whether a stream over that transport could have rings of these sizes if there were no other stream.
    pub(super) fn could_carry(&self, kind: TransportKind, send: u8, recv: u8) -> bool {
        match kind {
            TransportKind::Auto | TransportKind::Tcp => self.could_hold(SHARED, send, recv),
            TransportKind::Rc => self.could_hold(self.rc_region(), send, recv),
            // Between two attachments, the pair gets memory of its own.
            TransportKind::Peer => true,
        }
    }

    /// Takes two rings for a driven stream over that transport, and counts its descriptors in the owner's account.
    /// Rings for rc are registered with a network card, which counts there, too.
    ///
    /// # Errors
    /// What there is too little of.
    pub(super) fn take_driven(&mut self, kind: TransportKind, send: u8, recv: u8) -> Result<Rings, Shortage> {
        let card = kind == TransportKind::Rc;
        let region = if card { self.rc_region() } else { SHARED };
        let mut rings = self.take_rings(region, send, recv).ok_or_else(|| self.no_rings(region))?;
        let Some(account) = self.state.account.clone() else { return Ok(rings) };
        if card {
            if account.take_registered(rings.bytes()).is_err() {
                self.give_rings(rings);
                return Err(Shortage::Registered);
            }
            rings.registered = true;
            self.registered_bytes += rings.bytes();
        }
        if account.take_descriptors(descriptors_of(rings)).is_err() {
            self.give_rings(rings);
            return Err(Shortage::UserDescriptors);
        }
        rings.driven = true;
        self.descriptors += descriptors_of(rings);
        Ok(rings)
    }

    /// The shortage to report if no rings can be taken.
    pub(super) fn no_rings(&self, region: u8) -> Shortage {
        let is_shared = region == SHARED || self.local.is_none();
        if is_shared && self.is_growing() { Shortage::Growing } else { Shortage::Rings { region } }
    }

    /// Gives back rings that nothing uses any more.
    pub(super) fn give_rings(&mut self, rings: Rings) {
        hand_off::at(HandOff::GivenBack);
        if let (Some(account), true) = (&self.state.account, rings.registered) {
            account.give_registered(rings.bytes());
            self.registered_bytes -= rings.bytes();
        }
        if rings.driven {
            self.give_descriptors(descriptors_of(rings));
        }
        let slab = self.slab(rings.region);
        slab.give(rings.send.offset, rings.send.log2);
        slab.give(rings.recv.offset, rings.recv.log2);
    }

    /// Rings as a network card sees them.
    pub(super) fn memory_of(&self, rings: Rings) -> Memory {
        let owner = u64::from(self.state.id.0);
        let memory = &self.state.memory;
        match &self.state.card {
            Some(card) if rings.region == DEVICE => {
                let ring = |ring: Ring| verbs::Ring {
                    address: card.address + ring.offset,
                    len: ring.capacity(),
                    memory: match &card.dmabuf {
                        Some((fd, start)) => {
                            RingMemory::DmaBuf { fd: fd.clone(), offset: start + ring.offset }
                        }
                        None => RingMemory::Mapped,
                    },
                };
                let (send_ring, recv_ring) = (ring(rings.send), ring(rings.recv));
                Memory { send_ring, recv_ring, owner, keep: card.keep.clone() }
            }
            _ => {
                let ring = |ring: Ring| verbs::Ring {
                    address: memory.span(ring.offset, ring.capacity(), 0, 1).first.ptr as u64,
                    len: ring.capacity(),
                    memory: RingMemory::Mapped,
                };
                let (send_ring, recv_ring) = (ring(rings.send), ring(rings.recv));
                let keep: Arc<_> = memory.region().clone();
                Memory { send_ring, recv_ring, owner, keep }
            }
        }
    }

    /// The network card has refused the device's memory: from now on rings lie in the shared region.
    pub(super) fn refuse_device_rings(&mut self, why: &std::io::Error) {
        if std::mem::replace(&mut self.card_reaches_device, false) {
            tracing::warn!(%why, "the network card does not reach the device's memory: rings in host memory");
        }
    }
}
