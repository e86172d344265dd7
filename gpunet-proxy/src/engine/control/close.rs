//! Closing sockets: streams, their ends, and when slot and rings come back.

use super::Control;
use super::at::At;
use super::tables::slots::Role;
use super::tables::{Partner, StreamEntry, StreamMemory};
use crate::model::message::{Command, Ring};
use gpunet_abi::control::Request;
use gpunet_abi::{Error, Status};
use gpunet_core::connection::Counts;
use gpunet_core::ids::SocketId;

impl At<'_> {
    /// Closes whatever stands in the request's slot.
    pub(super) fn close(&mut self, request: &Request) {
        let slot = request.slot;
        if self.state.memory.is_host_slot(slot) {
            // A device takes what it closes out of its poll group. The host only makes the handle
            // stale.
            self.state.memory.tell_pollers(slot, None);
        }
        match &mut self.slots[slot].role {
            Role::Stream(stream) => {
                stream.final_positions = Some((request.send_position, request.recv_position));
                self.close_stream(slot, None);
            }
            Role::Listener(_) => self.close_listener(slot, Some(request.recv_position)),
            Role::Bound(_) => self.recycle(slot),
            Role::Group(_) => self.close_group(slot),
            Role::Free => self.refuse_slot(slot, request.generation),
            Role::Opening | Role::Prepared | Role::Retired(_) => {}
        }
    }

    /// Closes a stream; `linger_ms` overrides the socket's own.
    pub(super) fn close_stream(&mut self, slot: u32, linger_ms: Option<i32>) {
        let Role::Stream(stream) = &mut self.slots[slot].role else { return };
        if std::mem::replace(&mut stream.closed, true) {
            return;
        }
        let linger_ms = linger_ms.unwrap_or(stream.linger_ms);
        let Some(thread) = stream.thread else {
            return self.close_direct(slot, linger_ms);
        };
        let linger_ns = self.control.linger_ns(linger_ms);
        self.control.threads.link(thread).send(Command::Close { attachment: self.state.id, slot, linger_ns });
    }

    /// Closes one end of a direct stream. Its slot and the other's come back when both are closed,
    /// and so do the rings: until then the other end reads what is in them.
    fn close_direct(&mut self, slot: u32, linger_ms: i32) {
        let Role::Stream(ours) = self.slots[slot].role else { return };
        let Some(partner) = ours.partner else { return };
        let there = self.control.attachments.get(partner.attachment);
        match there.and_then(|there| Some((there, *there.slots.stream(partner.socket)?))) {
            Some((there, theirs)) if !theirs.closed => {
                // A device that closes has set END in its words; a reset or a dead kernel has not.
                let status = Status::open(partner.socket.generation);
                let status = if linger_ms == 0 {
                    status.with_error(Error::ConnectionReset)
                } else {
                    status.with(Status::EOF | Status::NO_SEND)
                };
                there.state.memory.set_status(partner.socket.slot, status);
                if let StreamMemory::Arena(rings) = theirs.memory {
                    self.control.arenas.wake(partner.attachment, &rings);
                }
            }
            Some((_, theirs)) => {
                let (lost_here, lost_there) = match (ours.final_positions, theirs.final_positions) {
                    (Some(ours_at), Some(theirs_at)) => {
                        let (sent, received) = ours.memory.rings();
                        (unread(ours_at.0, theirs_at.1, sent), unread(theirs_at.0, ours_at.1, received))
                    }
                    // A kernel that left its end behind did not say what it read.
                    _ => (0, 0),
                };
                self.end_direct(slot, &ours, lost_here);
                if let Some(mut there) = self.control.at(partner.attachment) {
                    there.end_direct(partner.socket.slot, &theirs, lost_there);
                    there.check_detach();
                }
                self.check_detach();
            }
            // The other end's attachment is gone.
            None => {
                self.end_direct(slot, &ours, 0);
                self.check_detach();
            }
        }
    }

    /// Both ends of a direct stream are closed, or the other's attachment is gone: ends this one.
    fn end_direct(&mut self, slot: u32, stream: &StreamEntry, lost: u64) {
        self.state.totals.close(lost);
        self.warn_undelivered(slot, lost);
        let (sent, received) = stream.final_positions.unwrap_or_default();
        self.control.past.add(stream.transport, Counts { sent, received, ..Counts::default() });
        self.end_stream(slot, stream);
    }

    /// A data thread is done with a stream.
    pub(super) fn handle_finished(&mut self, socket: SocketId, counts: Counts) {
        if let Some(&stream) = self.slots.stream(socket) {
            self.control.past.add(stream.transport, counts);
            self.control.threads.release(&stream);
            self.end_stream(socket.slot, &stream);
            self.check_detach();
        }
    }

    /// Ends a stream that the proxy no longer uses: gives rings and slot back, or retires them.
    fn end_stream(&mut self, slot: u32, stream: &StreamEntry) {
        if self.is_retiring(slot, stream) {
            self.slots[slot].role = Role::Retired(Some(*stream));
        } else {
            self.free_stream(slot, stream);
        }
    }

    /// Frees a retired stream that the host has released, and its other end if that has waited for
    /// it.
    pub(super) fn release_stream(&mut self, slot: u32, stream: &StreamEntry) {
        if self.is_retiring(slot, stream) {
            // The other end goes first.
            return;
        }
        // An end on another device is not retired here.
        let other = stream.partner.and_then(|partner| Some((partner.socket.slot, self.retired(partner)?)));
        self.free_stream(slot, stream);
        if let Some((slot, other)) = other {
            self.free_stream(slot, &other);
        }
    }

    /// Gives back the slot and the rings of a stream that has ended. The ends of a direct stream
    /// share rings; the last end gives them back.
    pub(super) fn free_stream(&mut self, slot: u32, stream: &StreamEntry) {
        let is_last = stream.partner.is_none_or(|partner| !self.control.holds_rings(partner));
        match stream.memory {
            StreamMemory::Arena(rings) => {
                let id = self.state.id;
                self.control.give_arena_rings(id, &rings, is_last);
            }
            StreamMemory::Own(rings) if is_last => self.give_rings(rings),
            StreamMemory::Own(_) => {}
        }
        self.recycle(slot);
        self.serve_starved();
    }
}

impl Control {
    /// How long a socket with that linger time may take to deliver what it has sent.
    pub(super) fn linger_ns(&self, linger_ms: i32) -> u64 {
        u64::try_from(linger_ms).map_or(self.linger.as_nanos() as u64, |ms| ms * 1_000_000)
    }

    /// Returns whether that end of a direct stream still exists, open, closed or retired.
    fn holds_rings(&self, end: Partner) -> bool {
        let attachment = self.attachments.get(end.attachment);
        let entry = attachment.and_then(|attachment| attachment.slots.socket(end.socket));
        entry.is_some_and(|entry| matches!(entry.role, Role::Stream(_) | Role::Retired(Some(_))))
    }
}

/// Bytes of a ring that its reader never read, according to the positions at close, bounded by the
/// ring's capacity.
fn unread(sent: u64, consumed: u64, ring: Ring) -> u64 {
    sent.saturating_sub(consumed).min(ring.capacity())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_claims_to_have_sent_is_bounded_by_its_ring() {
        let ring = Ring { offset: 0, log2: 12 };
        assert_eq!(unread(100, 60, ring), 40);
        assert_eq!(unread(60, 100, ring), 0);
        assert_eq!(unread(u64::MAX, 0, ring), 4096);
    }
}
