//! Frames to a client, from any thread.

use crate::model::agent::{AgentLink, FromAgent, ToAgent};
use crate::os::client_socket::ClientSocket;
use crate::wire::{AgentAnswer, AgentRequest, Sent, ToProgram, is_gpu_export};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// A frame on its way to a client.
pub(super) struct Outgoing {
    pub(super) frame: ToProgram,
    pub(super) fds: Vec<Sent>,
}

/// Posts frames to a client; never waits. A client that does not read, so that the queue fills, is
/// disconnected.
#[derive(Clone)]
pub(super) struct Outbox {
    queue: mpsc::Sender<Outgoing>,
    socket: Arc<ClientSocket>,
}

impl Outbox {
    /// A queue of `len` frames for the client behind `socket`.
    pub(super) fn new(socket: Arc<ClientSocket>, len: usize) -> (Self, mpsc::Receiver<Outgoing>) {
        let (queue, frames) = mpsc::channel(len);
        (Self { queue, socket }, frames)
    }

    pub(super) fn post(&self, frame: ToProgram, fds: Vec<Sent>) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Outgoing { frame, fds }) {
            tracing::warn!("a client does not read what it is told: cut");
            // The session reads the end of it.
            self.socket.shut_down();
        }
    }
}

/// Requests to the agent of a client that it has not answered. No other answers are accepted.
#[derive(Clone, Default)]
pub(super) struct AgentRequests(Arc<Mutex<HashMap<u32, OpenRequests>>>);

/// The open requests about one arena. They are counted, because a request may be sent twice: an
/// agent may answer as often as it was asked.
#[derive(Clone, Copy, Default)]
struct OpenRequests {
    /// How many bytes it is to provide.
    provide: Option<u64>,
    maps: u32,
    /// How many rings it is to clear.
    clears: u32,
    unmaps: u32,
}

impl OpenRequests {
    /// Takes out a request to provide, to map or to clear, in this order; `None` if there is none.
    fn take_any(&mut self) -> Option<()> {
        self.provide.take().map(drop).or_else(|| take(&mut self.maps)).or_else(|| take(&mut self.clears))
    }

    const fn is_empty(&self) -> bool {
        self.provide.is_none() && self.maps == 0 && self.clears == 0 && self.unmaps == 0
    }
}

/// Takes out one of several requests; `None` if there is none.
fn take(count: &mut u32) -> Option<()> {
    *count = count.checked_sub(1)?;
    Some(())
}

/// The link to a client's agent.
pub(super) fn agent_link(outbox: Outbox, agent_requests: AgentRequests) -> AgentLink {
    Box::new(move |request| {
        agent_requests.note(&request);
        let (frame, fds) = AgentRequest::of(request);
        outbox.post(ToProgram::Agent(frame), fds);
    })
}

impl AgentRequests {
    fn note(&self, request: &ToAgent) {
        let mut agent_requests = super::lock(&self.0);
        match request {
            ToAgent::Provide { arena, len } => agent_requests.entry(*arena).or_default().provide = Some(*len),
            ToAgent::Map(map) => agent_requests.entry(map.arena).or_default().maps += 1,
            ToAgent::Clear { arena, .. } => agent_requests.entry(*arena).or_default().clears += 1,
            ToAgent::Unmap { arena } => agent_requests.entry(*arena).or_default().unmaps += 1,
        }
    }

    /// Checks an answer for the control plane. Returns `None` if nothing asked for it, or if its
    /// descriptor is not what it should be.
    pub(super) fn check(&self, answer: AgentAnswer, fds: Vec<OwnedFd>) -> Option<FromAgent> {
        let (AgentAnswer::Provided { arena, .. }
        | AgentAnswer::Mapped { arena }
        | AgentAnswer::Failed { arena, .. }
        | AgentAnswer::Cleared { arena, .. }
        | AgentAnswer::Unmapped { arena }) = answer;
        let mut agent_requests = super::lock(&self.0);
        let open = agent_requests.get_mut(&arena)?;
        let answer = match answer {
            AgentAnswer::Provided { len, .. } => {
                let wanted = open.provide.take()?;
                let fd = fds.into_iter().next()?;
                // Its length cannot be queried; CUDA refuses to map more than there is.
                if len < wanted || !is_gpu_export(fd.as_fd()) {
                    return None;
                }
                FromAgent::Provided { arena, fd, len }
            }
            AgentAnswer::Mapped { .. } => {
                take(&mut open.maps)?;
                FromAgent::Mapped { arena }
            }
            AgentAnswer::Failed { reason, .. } => {
                open.take_any()?;
                let reason =
                    reason.chars().take(crate::attached::session::MAX_REASON).filter(|c| !c.is_control());
                FromAgent::Failed { arena, reason: reason.collect() }
            }
            AgentAnswer::Cleared { ring, .. } => {
                take(&mut open.clears)?;
                FromAgent::Cleared { arena, ring }
            }
            AgentAnswer::Unmapped { .. } => {
                take(&mut open.unmaps)?;
                FromAgent::Unmapped { arena }
            }
        };
        if open.is_empty() {
            agent_requests.remove(&arena);
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::agent::{MapArena, Part};

    #[test]
    fn an_agent_is_believed_what_it_was_asked_once() {
        let agent_requests = AgentRequests::default();
        let mapped = || AgentAnswer::Mapped { arena: 4 };
        assert!(agent_requests.check(mapped(), Vec::new()).is_none());
        let own = (2, Part::Own);
        let map = MapArena { arena: 4, own: own.clone(), peer: own, peer_polls: false };
        agent_requests.note(&ToAgent::Map(map));
        agent_requests.note(&ToAgent::Unmap { arena: 4 });
        assert!(agent_requests.check(AgentAnswer::Mapped { arena: 5 }, Vec::new()).is_none());
        assert!(agent_requests.check(mapped(), Vec::new()).is_some());
        assert!(agent_requests.check(mapped(), Vec::new()).is_none());
        assert!(agent_requests.check(AgentAnswer::Unmapped { arena: 4 }, Vec::new()).is_some());
        assert!(super::super::lock(&agent_requests.0).is_empty());
    }

    #[test]
    fn an_agent_that_was_asked_twice_may_answer_twice() {
        let agent_requests = AgentRequests::default();
        let unmapped = || agent_requests.check(AgentAnswer::Unmapped { arena: 4 }, Vec::new());
        (0..2).for_each(|_| agent_requests.note(&ToAgent::Unmap { arena: 4 }));
        assert!(unmapped().is_some());
        assert!(unmapped().is_some());
        assert!(unmapped().is_none());
    }

    #[test]
    fn only_gpu_memory_can_be_provided() {
        let agent_requests = AgentRequests::default();
        agent_requests.note(&ToAgent::Provide { arena: 1, len: 4096 });
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let answer = AgentAnswer::Provided { arena: 1, len: 4096 };
        assert!(agent_requests.check(answer, vec![null.into()]).is_none());
    }
}
