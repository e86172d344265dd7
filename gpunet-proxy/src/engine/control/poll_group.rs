//! Poll groups: the memory of their lists. What is pushed there is `gpunet_core::memory`'s.

use super::at::At;
use super::tables::AttachmentEntry;
use super::tables::slots::Role;
use crate::model::message::Ring;
use gpunet_abi::control::{Reply, Request};
use gpunet_abi::options::{MAX_RING_LOG2, MIN_RING_LOG2};
use gpunet_abi::region::{RegionOffset, SHARED};
use gpunet_abi::{Error, Handle};
use gpunet_core::ids::{LaunchId, RequestId};
use gpunet_core::memory::GroupLists;

impl At<'_> {
    /// Makes the request's slot a poll group.
    pub(super) fn open_group(&mut self, id: RequestId, request: &Request) {
        match self.make_group(request) {
            Ok(reply) => self.reply(id, &reply),
            Err(error) => {
                self.refuse_slot(request.slot, request.generation);
                self.reply_result(id, Err(error));
            }
        }
    }

    /// Closes the poll group in a slot: its lists' memory and the slot come back.
    pub(super) fn close_group(&mut self, slot: u32) {
        let socket = self.slots.id(slot);
        let Role::Group(lists) = self.slots[slot].role else { return };
        // A block that has missed the close reads what stands there next, and believes nothing of
        // it: its claims fail.
        self.state.memory.close_group(Handle::new(slot, socket.generation));
        self.shared.give(lists.offset, lists.log2);
        self.recycle(slot);
        self.serve_starved();
    }
}

impl AttachmentEntry {
    fn make_group(&mut self, request: &Request) -> Result<Reply, Error> {
        let geometry = self.state.memory.geometry();
        let capacity = u32::try_from(request.value).unwrap_or(u32::MAX).clamp(1, geometry.slots().max(1));
        let lists = GroupLists::new(geometry.shards, capacity);
        let log2 = (lists.bytes().next_power_of_two().ilog2() as u8).max(MIN_RING_LOG2);
        if log2 > MAX_RING_LOG2 {
            return Err(Error::NoBuffers);
        }
        let offset = self.shared.take(log2).ok_or(Error::NoBuffers)?;
        let group = Handle::new(request.slot, request.generation);
        self.state.memory.open_group(group, offset, lists);
        self.opening(request.slot, request.generation, LaunchId(request.launch));
        self.slots[request.slot].role = Role::Group(Ring { offset, log2 });
        let mut reply = Reply::new(0, u64::from(capacity));
        reply.descriptor.recv_ring = RegionOffset::new(SHARED, offset);
        (reply.descriptor.recv_log2, reply.descriptor.send_log2) = (lists.cells as u32, lists.lists as u32);
        Ok(reply)
    }
}
