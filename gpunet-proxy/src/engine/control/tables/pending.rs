//! The requests of an attachment that have no answer yet, and how they get one.

use super::AttachmentEntry;
use gpunet_abi::Error;
use gpunet_abi::control::{Reply, Request};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_core::ids::{LaunchId, RequestId};
use gpunet_core::transport::Connect;
use gpunet_core::transport::peer::Ticket;
use gpunet_core::wait_queue::WaitKey;
use tokio::sync::oneshot;

/// A request that has no answer yet.
pub(in crate::engine::control) struct PendingRequest {
    pub(in crate::engine::control) launch: LaunchId,
    pub(in crate::engine::control) what: Wait,
}

/// The event that a request waits for.
pub(in crate::engine::control) enum Wait {
    /// A connection at a listener.
    Accept { listener: u32, place: WaitKey },
    /// A driven stream that is being opened. Dropping the sender gives the attempt up; its task
    /// then reports when its rings are free.
    Attempt { _stop: oneshot::Sender<()> },
    /// A connect in a peer listener's backlog.
    Queued { slot: u32, connect: Box<Connect> },
    /// A connect or an accept that waits for memory that both attachments share.
    Joining { join: u64 },
    /// A connect for which there is no ring memory yet.
    Deferred { request: Box<Request> },
    /// A data thread's answer.
    Query,
}

impl AttachmentEntry {
    /// Notes that a request waits.
    pub(in crate::engine::control) fn wait(&mut self, id: RequestId, launch: LaunchId, what: Wait) {
        self.requests.insert(id, PendingRequest { launch, what });
    }

    /// Returns whether that request still waits.
    pub(in crate::engine::control) fn waits(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    /// The connect of that ticket, if it waits in a listener's backlog.
    pub(in crate::engine::control) fn queued(&self, ticket: Ticket) -> Option<&Connect> {
        match &self.requests.get(&ticket.request)?.what {
            Wait::Queued { connect, .. } if connect.ticket == ticket => Some(connect),
            _ => None,
        }
    }

    /// The pending request in the place of `id`: the one of the same control slot, whatever its
    /// sequence number.
    pub(in crate::engine::control) fn waiting_in_place_of(&self, id: RequestId) -> Option<RequestId> {
        let (first, last) = match id {
            RequestId::Device { control, .. } => {
                (RequestId::Device { control, seq: 0 }, RequestId::Device { control, seq: u64::MAX })
            }
            RequestId::Host(_) => (id, id),
        };
        self.requests.range(first..=last).next().map(|(&waiting, _)| waiting)
    }

    /// Answers a control request.
    pub(in crate::engine::control) fn reply(&mut self, id: RequestId, reply: &Reply) {
        self.requests.remove(&id);
        match id {
            RequestId::Host(id) => {
                if let Some(answer) = self.answers.remove(&id) {
                    answer(reply);
                }
            }
            RequestId::Device { control, seq } => {
                if !self.dead {
                    self.state.memory.write_reply(control, seq, reply);
                    hand_off::at(HandOff::Answered);
                }
            }
        }
    }

    /// Answers a control request with an error or with success.
    pub(in crate::engine::control) fn reply_result(&mut self, id: RequestId, result: Result<(), Error>) {
        let errno = result.map_or_else(|e| e.errno() as u32, |()| 0);
        self.reply(id, &Reply::new(errno, 0));
    }
}
