//! For tests: a control plane that handles each message when the test sends it.

use super::at::At;
use super::{Control, ShardLink};
use crate::engine::control_queue::{ControlReceiver, ControlSender, control_queue};
use crate::engine::region::shared_memory;
use crate::model::access::{Account, Limits};
use crate::model::agent::{AgentLink, FromAgent, ToAgent};
use crate::model::attachment_state::{AttachmentState, ClientInfo, Inbox, Totals};
use crate::model::config::{Config, Rdma};
use crate::model::message::Message;
use crate::os::doorbell::{self, Bell, one_for_each};
use crate::os::thread_pool::ThreadPool;
use gpunet_abi::control::{Reply, Request};
use gpunet_core::ids::{AttachmentId, HostRequestId};
use std::sync::{Arc, mpsc};
use std::time::Instant;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

/// Runs a test. Its clock passes over the time in which nothing happens.
pub(super) fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), test);
}

/// Data threads of a [`Plane`].
const THREADS: usize = 3;

/// Links of data threads that do not run.
pub(super) fn shard_links(count: usize) -> Vec<ShardLink> {
    let link = || {
        let (commands, _) = crossbeam_channel::unbounded();
        ShardLink { commands, bell: Arc::new(Bell::new().expect("an eventfd")), load: Arc::default() }
    };
    std::iter::repeat_with(link).take(count).collect()
}

/// A control plane without threads, and its queue.
pub(super) struct Plane {
    pub(super) control: Control,
    pub(super) inbox: ControlReceiver,
    messages: ControlSender,
}

impl Plane {
    pub(super) fn new() -> Self {
        let (messages, inbox) = control_queue();
        let config = Config { rdma: Rdma::Off, ..Config::small() };
        let control = Control::new(shard_links(THREADS), messages.clone(), ThreadPool::none(), &config);
        Self { control, inbox, messages }
    }

    /// An attachment of a user of its own. Its agent carries out requests at once.
    pub(super) fn attach(&mut self, id: AttachmentId, shareable: bool) -> Arc<Account> {
        let answers = self.messages.clone();
        let agent = move |request| {
            let answer = match request {
                ToAgent::Map(map) => FromAgent::Mapped { arena: map.arena },
                ToAgent::Unmap { arena } => FromAgent::Unmapped { arena },
                // The exported memory does not matter here.
                ToAgent::Provide { arena, len } if shareable => {
                    FromAgent::Provided { arena, fd: doorbell::new().expect("an eventfd"), len }
                }
                other => other.failed("it has no memory of its own"),
            };
            answers.send(Message::Agent { attachment: id, answer }).expect("somebody listens");
        };
        self.attach_with(id, shareable, Box::new(agent))
    }

    /// An attachment of a user of its own, which only notes what its agent is asked.
    pub(super) fn attach_passive(&mut self, id: AttachmentId) -> (mpsc::Receiver<ToAgent>, Arc<Account>) {
        let (asked, requests) = mpsc::channel();
        let agent = move |request| asked.send(request).expect("somebody listens");
        (requests, self.attach_with(id, false, Box::new(agent)))
    }

    /// An existing attachment.
    pub(super) fn at(&mut self, id: AttachmentId) -> At<'_> {
        self.control.at(id).expect("attached")
    }

    fn attach_with(&mut self, id: AttachmentId, shareable: bool, agent: AgentLink) -> Arc<Account> {
        let account = Arc::new(Account::new(id.0, Limits::default()));
        let config = Config { sockets: 1024, controls: 1, shared_rings: 1 << 16, ..Config::small() };
        let geometry = config.geometry(0);
        self.control.handle(Message::Attach(Arc::new(AttachmentState {
            id,
            memory: shared_memory(geometry).expect("memory"),
            polled: false,
            shareable,
            agent,
            card: None,
            totals: Totals::default(),
            inbox: Inbox::new(geometry.controls),
            doorbells: one_for_each(THREADS).expect("an eventfd"),
            account: Some(account.clone()),
            client: ClientInfo::own("cpu"),
            since: Instant::now(),
            _quota: None,
        })));
        account
    }

    /// Sends a request as a host program does; the reply arrives on the channel.
    pub(super) fn ask(
        &mut self,
        attachment: AttachmentId,
        id: HostRequestId,
        request: Request,
    ) -> mpsc::Receiver<Reply> {
        let (replies, reply) = mpsc::channel();
        let answer = Box::new(move |reply: &Reply| replies.send(*reply).expect("somebody listens"));
        self.control.handle(Message::Ask { attachment, id, request: Box::new(request), answer });
        reply
    }
}
