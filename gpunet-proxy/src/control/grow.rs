//! Ring memory that is made while an attachment is in use already.
//!
//! To allocate hundreds of megabytes takes a tenth of a second, and a program that attaches need not wait
//! for it: an attachment begins with a little, and a thread makes the rest piece by piece. What wants more
//! meanwhile than there is waits: connects as requests that are looked at again, accepts in their queue.

use super::Control;
use super::tables::{Device, Wait};
use crate::model::attachment_state::AttachmentState;
use crate::model::message::Message;
use crate::region::first_rings;
use gpunet_abi::control::{Op, Request};
use gpunet_abi::region::SHARED;
use gpunet_core::ids::{AttachmentId, RequestId};
use std::sync::Arc;

/// Bytes made at a time.
const PIECE: u64 = 32 << 20;

impl Control {
    /// Begins to make the ring memory of a new attachment that is not there yet.
    pub(super) fn grow(&self, attached: &Arc<AttachmentState>) {
        let geometry = attached.memory.geometry();
        let (start, total) = (attached.memory.layout().rings, geometry.shared_rings);
        let mut have = first_rings(geometry);
        if have == total {
            return;
        }
        let (attached, messages) = (Arc::downgrade(attached), self.messages.clone());
        tokio::task::spawn_blocking(move || {
            while have < total {
                let Some(attached) = attached.upgrade() else { return };
                let next = (have + PIECE).min(total);
                let grown = attached.memory.region().grow((start + have) as usize, (start + next) as usize);
                if let Err(error) = &grown {
                    tracing::error!(%error, have, wanted = total, "an attachment gets less ring memory");
                }
                have = if grown.is_ok() { next } else { have };
                let last = grown.is_err() || have == total;
                let _ = messages.send(Message::Grown { device: attached.id, rings: have, last });
                if last {
                    return;
                }
            }
        });
    }

    pub(super) fn handle_grown(&mut self, device_id: AttachmentId, rings: u64, last: bool) {
        let Some(device) = self.device(device_id) else { return };
        device.extend_shared(rings, last);
        let deferred: Vec<u32> = device
            .requests
            .iter()
            .filter(|(_, waiting)| matches!(waiting.what, Wait::Deferred { .. }))
            .map(|(&control, _)| control)
            .collect();
        for control in deferred {
            let Some(device) = self.device(device_id) else { return };
            let Some(waiting) = device.requests.remove(&control) else { continue };
            if let Wait::Deferred { request } = waiting.what {
                self.handle_request(device_id, RequestId { control, seq: waiting.seq }, &request);
            }
        }
        let Some(device) = self.device(device_id) else { return };
        let listeners = device.slots.used().filter(|&slot| device.is_listener(slot)).collect::<Vec<_>>();
        for slot in listeners {
            self.serve(device_id, slot);
        }
    }

    /// Keeps a connect until there is ring memory for it, if more is being made; says whether it did.
    pub(super) fn defer(
        &mut self,
        device_id: AttachmentId,
        id: RequestId,
        op: Op,
        request: &Request,
    ) -> bool {
        let Some(device) = self.device(device_id) else { return false };
        let options = &request.options;
        let (send, recv) = (options.send_log2, options.recv_log2);
        let waits =
            device.is_growing() && !device.has_room(send, recv) && device.could_hold(SHARED, send, recv);
        if op != Op::Connect || !waits {
            return false;
        }
        device.wait(id, request.launch, Wait::Deferred { request: Box::new(*request) });
        true
    }
}

impl Device {
    /// Says whether two rings of these sizes (log2) can be had.
    fn has_room(&mut self, send: u8, recv: u8) -> bool {
        let rings = self.take_rings(SHARED, send, recv);
        if let Some(rings) = rings {
            self.give_rings(rings);
        }
        rings.is_some()
    }
}
