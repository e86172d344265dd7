//! Ring memory: which region a stream's rings lie in, and how a network card finds them.

use super::tables::AttachmentEntry;
use super::tables::shortage::Shortage;
use crate::model::message::{Ring, Rings};
use gpunet_abi::Options;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::options::{AUTO_RING, DEFAULT_RING_LOG2, MIN_RING_LOG2, TransportKind};
use gpunet_abi::region::{DEVICE, SHARED};
use gpunet_core::slab::Slab;
use gpunet_core::verbs::{self, Memory, RingMemory};
use std::sync::Arc;

/// The largest ring that the proxy chooses, log2: 1 MiB. A server on a GPU sends 1 MiB rings back
/// as fast as a plain program does, 64 KiB rings at two fifths of that (`gpunet-bench clients
/// bandwidth`): while a block copies one part of a ring, the data thread must find room in another.
const MAX_AUTO_LOG2: u8 = 20;

/// A ring that the proxy chooses takes at most this part of the memory that is not reserved.
const AUTO_SHARE: u64 = 32;

/// The size of a ring (log2) that the proxy chooses when `free` of `total` bytes are free and
/// `unused` of `sockets` socket slots: half of the memory is reserved in equal shares for all
/// sockets, the other half goes to the sockets that come first.
fn automatic_ring(total: u64, free: u64, sockets: u64, unused: u64) -> u8 {
    let equal = (total / (4 * sockets.max(1))).max(1 << MIN_RING_LOG2).ilog2();
    let claimed = unused * (2 << equal);
    let share = (free.saturating_sub(claimed) / AUTO_SHARE).max(1 << equal);
    // At most 63.
    (share.ilog2() as u8).min(MAX_AUTO_LOG2)
}

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
        if self.state.polled && self.local.is_some() { DEVICE } else { SHARED }
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

    /// Returns whether two rings of these sizes would fit if no other stream had any and all ring
    /// memory were allocated.
    pub(super) fn could_hold(&self, region: u8, send: u8, recv: u8) -> bool {
        Slab::could_hold(self.ring_memory(region), &[send, recv])
    }

    /// Returns whether at least half of a region's ring memory is free.
    pub(super) fn has_spare_rings(&mut self, region: u8) -> bool {
        self.slab(region).free_bytes() >= self.ring_memory(region) / 2
    }

    /// The sizes of the rings (log2) that a driven stream with these options is to have.
    pub(super) fn driven_sizes(&self, kind: TransportKind, options: &Options) -> (u8, u8) {
        let chosen = match kind {
            // A network card's registrations are scarce, and counted.
            TransportKind::Rc => self.automatic_ring(self.rc_region()).min(DEFAULT_RING_LOG2),
            _ => self.automatic_ring(SHARED),
        };
        let size = |asked| if asked == AUTO_RING { chosen } else { asked };
        (size(options.send_log2), size(options.recv_log2))
    }

    /// The size of a ring (log2) for a direct stream within this attachment that names none. The
    /// ring lies in the memory of its reader, which can take all that has arrived at once.
    pub(super) fn direct_ring(&self) -> u8 {
        self.automatic_ring(self.direct_region()).min(DEFAULT_RING_LOG2)
    }

    fn automatic_ring(&self, region: u8) -> u8 {
        let (total, free) = (self.ring_memory(region), self.free_ring_memory(region));
        let sockets = self.kernel_slots();
        automatic_ring(total, free, sockets as u64, sockets.saturating_sub(self.used) as u64)
    }

    /// Takes rings of these sizes, or, where [`AUTO_RING`] was `asked` for, smaller ones: there may
    /// be no piece that large.
    pub(super) fn take_up_to(
        &mut self,
        region: u8,
        (mut send, mut recv): (u8, u8),
        asked: (u8, u8),
    ) -> Option<Rings> {
        loop {
            let rings = self.take_rings(region, send, recv);
            // Memory that is still being allocated has room for them.
            if rings.is_some() || self.grows(region) {
                return rings;
            }
            let smaller = |log2, asked| if asked == AUTO_RING { MIN_RING_LOG2.max(log2 - 1) } else { log2 };
            let next = (smaller(send, asked.0), smaller(recv, asked.1));
            if next == (send, recv) {
                return None;
            }
            (send, recv) = next;
        }
    }

    /// Returns whether a stream over that transport could have its rings if there were no other
    /// stream.
    pub(super) fn could_carry(&self, kind: TransportKind, options: &Options) -> bool {
        let least = |asked| if asked == AUTO_RING { MIN_RING_LOG2 } else { asked };
        let (send, recv) = (least(options.send_log2), least(options.recv_log2));
        match kind {
            TransportKind::Auto | TransportKind::Tcp => self.could_hold(SHARED, send, recv),
            TransportKind::Rc => self.could_hold(self.rc_region(), send, recv),
            // Between two attachments, the pair gets memory of its own.
            TransportKind::Peer => true,
        }
    }

    /// Takes two rings for a driven stream over that transport, and counts its descriptors in the
    /// owner's account. Rings for rc are registered with a network card, which counts there, too.
    ///
    /// # Errors
    /// What there is too little of.
    pub(super) fn take_driven(&mut self, kind: TransportKind, options: &Options) -> Result<Rings, Shortage> {
        let card = kind == TransportKind::Rc;
        let region = if card { self.rc_region() } else { SHARED };
        let sizes = self.driven_sizes(kind, options);
        let rings = self.take_up_to(region, sizes, (options.send_log2, options.recv_log2));
        let mut rings = rings.ok_or_else(|| self.no_rings(region))?;
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
        if self.grows(region) { Shortage::Growing } else { Shortage::Rings { region } }
    }

    /// Returns whether more ring memory of that region is being allocated.
    fn grows(&self, region: u8) -> bool {
        self.is_growing() && (region == SHARED || self.local.is_none())
    }

    /// Gives back rings that are no longer in use.
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

    /// The network card has refused the device's memory: from now on rings lie in the shared
    /// region.
    pub(super) fn refuse_device_rings(&mut self, why: &std::io::Error) {
        if std::mem::replace(&mut self.card_reaches_device, false) {
            tracing::warn!(%why, "the network card does not reach the device's memory: rings in host memory");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::automatic_ring;

    const MIB: u64 = 1 << 20;

    #[test]
    fn few_sockets_get_large_rings_and_every_socket_its_share() {
        assert_eq!(automatic_ring(256 * MIB, 256 * MIB, 4096, 4096), 20, "1 MiB, at most");
        assert_eq!(automatic_ring(256 * MIB, 128 * MIB, 4096, 4096), 14, "its equal share alone");
        assert_eq!(automatic_ring(16 * MIB, 16 * MIB, 1024, 1024), 18);
        assert_eq!(automatic_ring(8192, 8192, 4096, 4096), 12, "4 KiB, at least");
        assert_eq!(automatic_ring(64 * MIB, 0, 1, 0), 20);
    }

    #[test]
    fn all_sockets_find_room_at_the_same_time() {
        for (total, sockets) in [(256 * MIB, 4096), (256 * MIB, 1024), (16 * MIB, 1024), (MIB, 7)] {
            let mut free = total;
            for open in 0..sockets {
                let ring = automatic_ring(total, free, sockets, sockets - open);
                assert!(2 << ring <= free, "{open} of {sockets} sockets in {total} bytes");
                free -= 2 << ring;
            }
        }
    }
}
