//! How the program's side of an attachment reaches the proxy: by messages to its threads, or by
//! frames to a daemon.

use crate::attached::session::ProgramSession;
use crate::engine::runtime::Runtime;
use crate::model::attachment_state::{AttachmentState, Stats, Usage};
use crate::model::launch::{FinishPolicy, Finished};
use crate::model::message::{ANSWER_TIMEOUT, Answer, Message, send_to};
use crossbeam_channel::Receiver;
use gpu_usermap::PinnedRegion;
use gpunet_abi::control::Request;
use gpunet_abi::{Error, Handle};
use gpunet_core::ids::{HostRequestId, LaunchId, RequestId};
use std::sync::Arc;
use std::time::Duration;

/// How much longer than the linger bound a detach may take.
const MARGIN: Duration = Duration::from_secs(5);

/// The program's requests to the proxy. If the proxy has stopped, calls return empty results, and
/// answers are dropped.
#[derive(Debug)]
pub(crate) enum Link {
    /// The proxy is in this process.
    Local { proxy: Arc<Runtime>, attachment: Arc<AttachmentState> },
    /// It is a daemon.
    Remote(Arc<ProgramSession>),
}

impl Link {
    /// Reaps what a launch left, and `fresh`, which only the device knows of. If the proxy has
    /// stopped, the receiver is disconnected.
    pub(crate) fn finish_launch(
        &self,
        launch: LaunchId,
        policy: FinishPolicy,
        fresh: Vec<Handle>,
    ) -> Receiver<Finished> {
        match self {
            Self::Local { proxy, attachment } => {
                let (done, report) = crossbeam_channel::bounded(1);
                let (attachment, done) = (attachment.id, send_to(done));
                let _ =
                    proxy.messages.send(Message::FinishLaunch { attachment, launch, policy, fresh, done });
                report
            }
            Self::Remote(session) => session.finish_launch(launch, policy, &fresh),
        }
    }

    /// Resets the sockets of a launch that has failed and is finished later; never waits.
    pub(crate) fn abort_launch(&self, launch: LaunchId) {
        match self {
            Self::Local { proxy, attachment } => {
                let _ = proxy.messages.send(Message::AbortLaunch { attachment: attachment.id, launch });
            }
            Self::Remote(session) => session.abort_launch(launch),
        }
    }

    /// Gives sockets back that were closed for a launch, and that no running launch knows; never
    /// waits.
    pub(crate) fn release(&self, handles: Vec<Handle>) {
        match self {
            Self::Local { proxy, attachment } => {
                let _ = proxy.messages.send(Message::Release { attachment: attachment.id, handles });
            }
            Self::Remote(session) => session.release(&handles),
        }
    }

    /// Memory in which kernels record that a daemon keeps when this program has ended; `None`: the
    /// proxy is in this process.
    ///
    /// # Errors
    /// The daemon's reason.
    pub(crate) fn records(&self, len: usize) -> Option<Result<Arc<PinnedRegion>, String>> {
        match self {
            Self::Local { .. } => None,
            Self::Remote(session) => Some(session.records(len)),
        }
    }

    /// Waits until the proxy has handled all earlier requests.
    pub(crate) fn settle(&self) {
        // It handles one message after another.
        let _ = self.usage();
    }

    /// Resets all sockets of the device.
    pub(crate) fn reset_all(&self) {
        match self {
            Self::Local { proxy, attachment } => {
                let _ = proxy.messages.send(Message::ResetAll { attachment: attachment.id });
            }
            Self::Remote(session) => session.reset_all(),
        }
    }

    /// What the attachment holds.
    pub(crate) fn usage(&self) -> Usage {
        match self {
            Self::Local { proxy, attachment } => {
                let (done, usage) = crossbeam_channel::bounded(1);
                let _ =
                    proxy.messages.send(Message::Usage { attachment: attachment.id, done: send_to(done) });
                usage.recv_timeout(ANSWER_TIMEOUT).unwrap_or_default()
            }
            Self::Remote(session) => session.usage().0,
        }
    }

    /// Totals; those reported last if the daemon is gone.
    pub(crate) fn stats(&self) -> Stats {
        match self {
            Self::Local { attachment, .. } => attachment.totals.snapshot(),
            Self::Remote(session) => session.usage().1,
        }
    }

    /// Posts a host program's request; never waits.
    pub(crate) fn ask(&self, id: HostRequestId, request: Request, answer: Answer) {
        match self {
            Self::Local { proxy, attachment } => {
                let (attachment, request) = (attachment.id, Box::new(request));
                // If the proxy has stopped, the answer is dropped with the message.
                let _ = proxy.messages.send(Message::Ask { attachment, id, request, answer });
            }
            Self::Remote(session) => session.ask(id, &request, answer),
        }
    }

    /// Gives up a host program's request; never waits.
    pub(crate) fn abandon(&self, id: HostRequestId) {
        match self {
            Self::Local { proxy, attachment } => {
                let (attachment, id) = (attachment.id, RequestId::Host(id));
                let _ = proxy.messages.send(Message::Abandon { attachment, id });
            }
            Self::Remote(session) => session.abandon(id),
        }
    }

    /// Asks to close everything of the attachment; the returned function waits until that is done.
    pub(crate) fn detach(&self) -> impl FnOnce() + Send + 'static {
        let (done, wait) = crossbeam_channel::bounded(1);
        let (bound, proxy) = match self {
            Self::Local { proxy, attachment } => {
                let _ = proxy.messages.send(Message::Detach {
                    attachment: attachment.id,
                    why: Error::Canceled,
                    done: send_to(done),
                });
                (proxy.config.linger + MARGIN, Ok((proxy.clone(), attachment.id)))
            }
            Self::Remote(session) => {
                session.detach(done);
                (session.linger() + MARGIN, Err(session.clone()))
            }
        };
        move || {
            let _ = wait.recv_timeout(bound);
            match proxy {
                Ok((proxy, id)) => proxy.heart.remove(id),
                Err(session) => session.hang_up(),
            }
        }
    }
}
