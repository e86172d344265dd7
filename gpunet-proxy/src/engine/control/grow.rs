//! Ring memory that is allocated while an attachment is already in use.
//!
//! Allocating hundreds of megabytes takes a tenth of a second, and a program that attaches need not
//! wait for it: an attachment begins with a little, and a thread allocates the rest piece by piece.
//! Until then, calls that need more memory wait: connects as deferred requests, accepts in their
//! queue.

use super::Control;
use super::at::At;
use super::tables::AttachmentEntry;
use super::tables::pending::Wait;
use crate::engine::control_queue::ControlSender;
use crate::model::attachment_state::{AttachmentState, first_rings};
use crate::model::message::Message;
use crate::os::thread_pool::ThreadPool;
use gpunet_abi::control::{Op, Request};
use gpunet_abi::options::TransportKind;
use gpunet_abi::region::SHARED;
use gpunet_core::ids::{LaunchId, RequestId};
use std::sync::{Arc, Weak};

/// Bytes that are allocated at a time.
const PIECE: u64 = 32 << 20;

impl Control {
    /// Begins to allocate the rest of a new attachment's ring memory.
    pub(super) fn grow(&self, state: &Arc<AttachmentState>) {
        let geometry = state.memory.geometry();
        let have = first_rings(geometry);
        if have < geometry.shared_rings {
            allocate_on(&self.pool, Arc::downgrade(state), self.messages.clone(), have);
        }
    }
}

impl At<'_> {
    pub(super) fn handle_grown(&mut self, rings: u64, last: bool) {
        self.extend_shared(rings, last);
        let deferred: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, waiting)| matches!(waiting.what, Wait::Deferred { .. }))
            .map(|(&id, _)| id)
            .collect();
        for id in deferred {
            let Some(waiting) = self.requests.remove(&id) else { continue };
            if let Wait::Deferred { request } = waiting.what {
                self.handle_request(id, &request);
            }
        }
        let slots = self.slots.used();
        let listeners: Vec<u32> = slots.filter(|&slot| self.slots.listener(slot).is_some()).collect();
        for slot in listeners {
            self.serve(slot);
        }
    }

    /// Defers a connect until there is ring memory for it, if more is being allocated; returns
    /// whether it did.
    pub(super) fn defer(&mut self, id: RequestId, op: Op, request: &Request) -> bool {
        let options = &request.options;
        let (send, recv) = self.driven_sizes(TransportKind::Tcp, options);
        let waits = self.is_growing() && !self.has_room(send, recv) && self.could_hold(SHARED, send, recv);
        if op != Op::Connect || !waits {
            return false;
        }
        self.wait(id, LaunchId(request.launch), Wait::Deferred { request: Box::new(*request) });
        true
    }
}

/// Allocates an attachment's ring memory from byte `have` on, a piece at a time: others' memory is
/// made in between.
fn allocate_on(pool: &ThreadPool, state: Weak<AttachmentState>, messages: ControlSender, have: u64) {
    let again = pool.clone();
    pool.run(move || {
        let Some(attachment) = state.upgrade() else { return };
        let memory = &attachment.memory;
        let (start, total) = (memory.layout().rings, memory.geometry().shared_rings);
        let next = (have + PIECE).min(total);
        let grown = memory.region().grow((start + have) as usize, (start + next) as usize);
        if let Err(error) = &grown {
            tracing::error!(%error, have, wanted = total, "an attachment gets less ring memory");
        }
        let have = if grown.is_ok() { next } else { have };
        let last = grown.is_err() || have == total;
        let is_heard = messages.send(Message::Grown { attachment: attachment.id, rings: have, last }).is_ok();
        if is_heard && !last {
            allocate_on(&again, state, messages, have);
        }
    });
}

impl AttachmentEntry {
    /// Returns whether two rings of these sizes (log2) are free.
    fn has_room(&mut self, send: u8, recv: u8) -> bool {
        let rings = self.take_rings(SHARED, send, recv);
        if let Some(rings) = rings {
            self.give_rings(rings);
        }
        rings.is_some()
    }
}
