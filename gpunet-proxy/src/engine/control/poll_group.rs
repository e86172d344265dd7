//! Poll groups: the memory of their lists. What is pushed there is `gpunet_core::memory`'s.

use super::Control;
use super::tables::AttachmentEntry;
use super::tables::slots::Role;
use crate::model::message::Ring;
use gpunet_abi::control::{Reply, Request};
use gpunet_abi::options::{MAX_RING_LOG2, MIN_RING_LOG2};
use gpunet_abi::region::{RegionOffset, SHARED};
use gpunet_abi::{Error, Handle};
use gpunet_core::ids::{AttachmentId, LaunchId, RequestId};
use gpunet_core::memory::GroupLists;

impl Control {
    /// Makes the request's slot a poll group.
    pub(super) fn open_group(&mut self, attachment_id: AttachmentId, id: RequestId, request: &Request) {
        let Some(attachment) = self.attachment(attachment_id) else { return };
        let result = attachment.make_group(request);
        match result {
            Ok(reply) => attachment.reply(id, &reply),
            Err(error) => {
                attachment.refuse_slot(request.slot, request.generation);
                attachment.reply_result(id, Err(error));
            }
        }
    }

    /// Closes the poll group in a slot: its lists' memory and the slot come back.
    pub(super) fn close_group(&mut self, attachment_id: AttachmentId, slot: u32) {
        let Some(attachment) = self.attachment(attachment_id) else { return };
        let entry = &attachment.slots[slot as usize];
        let Role::Group(lists) = entry.role else { return };
        // A block that has missed the close reads what stands there next, and believes nothing of it: its claims fail.
        attachment.state.memory.close_group(Handle::new(slot, entry.generation));
        attachment.shared.give(lists.offset, lists.log2);
        attachment.recycle(slot);
        self.serve_starved(attachment_id);
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
        self.slots[request.slot as usize].role = Role::Group(Ring { offset, log2 });
        let mut reply = Reply::new(0, u64::from(capacity));
        reply.descriptor.recv_ring = RegionOffset::new(SHARED, offset);
        (reply.descriptor.recv_log2, reply.descriptor.send_log2) = (lists.cells as u32, lists.lists as u32);
        Ok(reply)
    }
}
