//! One connection of a client, from its hello to its end. `greeting` handles the beginning,
//! `teardown` the end of its attachment, `connection` the transport. The frames of an attached
//! client are served here.

mod connection;
mod greeting;
mod teardown;

pub(super) use greeting::{PendingConnection, serve};

use connection::{ClientConnection, GOODBYE_TIMEOUT, SessionError, TOO_MANY, TWICE, UNEXPECTED};
use teardown::Teardown;

use super::logs::Logs;
use super::outbox::{AgentRequests, Outbox, Outgoing};
use super::{DaemonState, Phase, ending, lock};
use crate::model::access::Account;
use crate::model::attachment_state::{Stats, Usage};
use crate::model::launch::{Finished, MOST_HANDLES};
use crate::model::message::Message;
use crate::os::peer::Credentials;
use crate::os::plain::{bytes_of, from_bytes};
use crate::wire::{self, CallId, Frame, Incoming, MAX_FRAME, Sent, ToDaemon, ToProgram};
use gpu_usermap::PinnedRegion;
use gpunet_abi::control::{Reply, Request};
use gpunet_abi::{Error, Handle};
use gpunet_core::ids::{HostRequestId, LaunchId, RequestId};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

/// How long a client may take to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Calls (usage, finish, reset) are paced, because the control plane scans every socket for them:
/// one per interval, and a burst of as many as fit into this time.
const CALL_BURST: Duration = Duration::from_millis(200);
const CALL_INTERVAL: Duration = Duration::from_millis(1);
/// Unanswered calls and requests to the client's agent that a client may have beyond two for each
/// socket.
const UNANSWERED_MARGIN: usize = 1024;
/// A piece of a snapshot.
const SNAPSHOT_CHUNK: usize = MAX_FRAME - 1024;

/// The valid handles among those that a client names. Fails if there are more than a frame of the
/// answer has room for.
fn check_handles(raw: &[i32]) -> Result<Vec<Handle>, SessionError> {
    if raw.len() > MOST_HANDLES {
        return Err(SessionError::Breach("more handles than a call may name"));
    }
    Ok(wire::from_handles(raw))
}

/// Waits until another call may be made.
async fn pace(next: &mut Instant) {
    let now = Instant::now();
    *next = (*next).max(now.checked_sub(CALL_BURST).unwrap_or(now)) + CALL_INTERVAL;
    if *next > now {
        sleep_until(*next).await;
    }
}

/// An attached client.
struct DaemonSession {
    daemon: Arc<DaemonState>,
    who: Credentials,
    account: Arc<Account>,
    connection: ClientConnection,
    outbox: Outbox,
    frames: mpsc::Receiver<Outgoing>,
    agent_requests: AgentRequests,
    /// Requests whose answers have not left yet, and whether they were given up.
    requests: HashMap<HostRequestId, bool>,
    /// Calls whose answers have not left yet.
    calls: HashSet<CallId>,
    limit: usize,
    paced: Instant,
    /// A reset is on its way to the control plane; another one would change nothing.
    resetting: Arc<AtomicBool>,
    teardown: Teardown,
}

/// The next event of a session.
enum Next {
    Read(io::Result<Option<Incoming>>),
    Write(Option<Outgoing>),
    Phase,
}

impl DaemonSession {
    async fn run(mut self, mut phase: watch::Receiver<Phase>) {
        // The daemon may have begun to shut down while the client received its confirmation.
        if !matches!(*phase.borrow(), Phase::Serve(_)) {
            return self.drain().await;
        }
        loop {
            let next = tokio::select! {
                packet = self.connection.recv() => Next::Read(packet),
                out = self.frames.recv() => Next::Write(out),
                _ = phase.changed() => Next::Phase,
            };
            let handled = match next {
                Next::Read(Ok(Some(packet))) => tokio::select! {
                    handled = self.handle(packet) => match handled {
                        Ok(false) => Ok(()),
                        Ok(true) => return self.detach(phase).await,
                        Err(error) => Err(error),
                    },
                    () = ending(&mut phase) => return self.drain().await,
                },
                Next::Read(Ok(None)) => return self.gone(&"it has ended").await,
                Next::Read(Err(error)) => Err(error.into()),
                Next::Write(Some(out)) => tokio::select! {
                    sent = self.write(out) => sent.map_err(SessionError::from),
                    // Also while the client does not read.
                    () = ending(&mut phase) => return self.drain().await,
                },
                // Never: the session itself holds a sender.
                Next::Write(None) => Ok(()),
                Next::Phase if matches!(*phase.borrow_and_update(), Phase::Serve(_)) => {
                    self.follow_rules();
                    Ok(())
                }
                Next::Phase => return self.drain().await,
            };
            if let Err(error) = handled {
                return self.gone(&error).await;
            }
        }
    }

    /// Applies limits that have changed.
    fn follow_rules(&self) {
        match lock(&self.daemon.access).limits_for(&self.who) {
            Some(limits) => self.account.set_limits(limits),
            None => tracing::warn!(
                uid = self.who.uid,
                pid = self.who.pid,
                "a user that may not attach any more: its attachment stays"
            ),
        }
    }

    async fn write(&mut self, out: Outgoing) -> io::Result<()> {
        match &out.frame {
            ToProgram::Reply { id, .. } => drop(self.requests.remove(id)),
            ToProgram::Finished { call, .. }
            | ToProgram::Usage { call, .. }
            | ToProgram::Records { call, .. } => {
                self.calls.remove(call);
            }
            _ => {}
        }
        debug_assert_eq!(out.frame.descriptors(), out.fds.len());
        self.connection.send(&wire::encode(&out.frame), &out.fds).await
    }

    /// Fails if as many requests and calls wait for an answer as may.
    fn check_room(&self) -> Result<(), SessionError> {
        if self.requests.len() + self.calls.len() < self.limit { Ok(()) } else { Err(TOO_MANY) }
    }

    /// Notes a request that will be answered.
    fn enter_request(&mut self, id: HostRequestId) -> Result<(), SessionError> {
        self.check_room()?;
        if self.requests.insert(id, false).is_none() { Ok(()) } else { Err(TWICE) }
    }

    /// Handles a frame of the client; returns whether the client wants to detach.
    async fn handle(&mut self, packet: Incoming) -> Result<bool, SessionError> {
        let Incoming::Plain(packet) = packet else {
            return self.take_memory().await.map(|()| false);
        };
        let (frame, _) = wire::decode::<ToDaemon>(packet)?;
        let (attachment, outbox) = (self.teardown.attachment.id, self.outbox.clone());
        let message = match frame {
            ToDaemon::Ask { id, request } => {
                let request =
                    from_bytes::<Request>(&request).ok_or(SessionError::Breach("half a request"))?;
                self.enter_request(id)?;
                let answer = Box::new(move |reply: &Reply| {
                    let reply = bytes_of(reply).to_vec();
                    outbox.post(ToProgram::Reply { id, reply }, Vec::new());
                });
                Message::Ask { attachment, id, request: Box::new(request), answer }
            }
            ToDaemon::Abandon { id } => {
                // A request that was answered in the meantime is no longer in the map.
                let waits = self.requests.get_mut(&id);
                if waits.is_none_or(|abandoned| std::mem::replace(abandoned, true)) {
                    return Ok(false);
                }
                Message::Abandon { attachment, id: RequestId::Host(id) }
            }
            ToDaemon::FinishLaunch { call, launch, policy, fresh } => {
                self.enter_call(call).await?;
                let done = Box::new(move |Finished { closed, kept, more }| {
                    let (closed, kept) = (wire::handles(&closed), kept as u64);
                    outbox.post(ToProgram::Finished { call, closed, kept, more }, Vec::new());
                });
                let fresh = check_handles(&fresh)?;
                let (launch, policy) = (LaunchId(launch), policy.into());
                Message::FinishLaunch { attachment, launch, policy, fresh, done }
            }
            ToDaemon::AbortLaunch { launch } => {
                pace(&mut self.paced).await;
                Message::AbortLaunch { attachment, launch: LaunchId(launch) }
            }
            ToDaemon::Release { handles } => {
                pace(&mut self.paced).await;
                Message::Release { attachment, handles: check_handles(&handles)? }
            }
            ToDaemon::Usage { call } => {
                self.enter_call(call).await?;
                let state = Arc::downgrade(&self.teardown.attachment);
                let done = Box::new(move |usage: Usage| {
                    let Some(state) = state.upgrade() else { return };
                    let (usage, stats) = (usage.into(), state.totals.snapshot().into());
                    outbox.post(ToProgram::Usage { call, usage, stats }, Vec::new());
                });
                Message::Usage { attachment, done }
            }
            ToDaemon::ResetAll => {
                // Ordering: Relaxed; the flag only bounds how many messages there are.
                if self.resetting.swap(true, Ordering::Relaxed) {
                    return Ok(false);
                }
                pace(&mut self.paced).await;
                let _ = self.daemon.proxy.messages.send(Message::ResetAll { attachment });
                let resetting = self.resetting.clone();
                // Answered after it.
                Message::Usage {
                    attachment,
                    done: Box::new(move |_| resetting.store(false, Ordering::Relaxed)),
                }
            }
            ToDaemon::Agent(answer) => {
                let answer = self.agent_requests.check(answer, Vec::new()).ok_or(UNEXPECTED)?;
                Message::Agent { attachment, answer }
            }
            ToDaemon::Detach => return Ok(true),
            ToDaemon::Snapshot => return Err(SessionError::Breach("only an admin looks")),
            ToDaemon::Records { call, len } => {
                self.enter_call(call).await?;
                self.make_records(call, len).await;
                return Ok(false);
            }
            ToDaemon::Logs { .. } => return Err(SessionError::Breach("only an admin looks")),
            // Without its descriptor it is not a valid frame.
            ToDaemon::Card => return Err(UNEXPECTED),
        };
        let _ = self.daemon.proxy.messages.send(message);
        Ok(false)
    }

    /// Makes memory in which the client's kernels record, and sends it.
    async fn make_records(&self, call: CallId, len: u64) {
        let made = match Logs::check(len) {
            Ok(len) => {
                let create = move || PinnedRegion::create("gpunet-records", len);
                match self.daemon.pool.call(create).await {
                    Some(made) => made.map_err(|error| error.to_string()),
                    None => Err("the daemon is stopping".to_owned()),
                }
            }
            Err(reason) => Err(reason),
        };
        let kept = made.and_then(|region| {
            self.daemon.logs.keep(&self.teardown.attachment, &region)?;
            Ok(region)
        });
        let (refused, fds): (_, Vec<Sent>) = match kept {
            Ok(region) => (None, vec![region]),
            Err(reason) => (Some(reason), Vec::new()),
        };
        self.outbox.post(ToProgram::Records { call, refused }, fds);
    }

    /// Takes the memory that the client's agent provides.
    async fn take_memory(&self) -> Result<(), SessionError> {
        let agent_requests = self.agent_requests.clone();
        let check = move |packet| {
            let (frame, fds) = wire::decode::<ToDaemon>(packet)?;
            let ToDaemon::Agent(answer) = frame else { return Err(UNEXPECTED) };
            agent_requests.check(answer, fds).ok_or(UNEXPECTED)
        };
        let answer = self.connection.take(check).await?;
        let _ = self
            .daemon
            .proxy
            .messages
            .send(Message::Agent { attachment: self.teardown.attachment.id, answer });
        Ok(())
    }

    /// Notes a call that will be answered, and waits until it may be made.
    async fn enter_call(&mut self, call: CallId) -> Result<(), SessionError> {
        self.check_room()?;
        if !self.calls.insert(call) {
            return Err(TWICE);
        }
        pace(&mut self.paced).await;
        Ok(())
    }

    /// Handles a detach: closes all sockets with their data delivered, and reports to the client.
    async fn detach(mut self, mut phase: watch::Receiver<Phase>) {
        let before = self.teardown.attachment.totals.snapshot();
        let mut done = self.teardown.detach(Error::Canceled);
        tokio::select! {
            _ = &mut done => {
                tracing::info!(id = self.teardown.attachment.id.0, pid = self.who.pid, "detached");
                self.say_goodbye().await;
            }
            // Also while the client does not read.
            () = ending(&mut phase) => self.finish_drain(before, done).await,
            () = self.serve_agent() => self.gone(&"it ended while it was detached").await,
        }
    }

    /// Passes on requests to the client's agent and its answers until the client is gone. Ignores
    /// everything else.
    async fn serve_agent(&mut self) {
        loop {
            tokio::select! {
                packet = self.connection.recv() => match packet {
                    Ok(Some(Incoming::WithDescriptors)) => {
                        // The packet stays in the queue until it is taken.
                        if self.take_memory().await.is_err() {
                            return;
                        }
                    }
                    Ok(Some(Incoming::Plain(packet))) => {
                        if let Ok((ToDaemon::Agent(answer), _)) = wire::decode(packet)
                            && let Some(answer) = self.agent_requests.check(answer, Vec::new())
                        {
                            let attachment = self.teardown.attachment.id;
                            let _ = self.daemon.proxy.messages.send(Message::Agent { attachment, answer });
                        }
                    }
                    Ok(None) | Err(_) => return,
                },
                Some(out) = self.frames.recv() => {
                    // If the client is gone, the next read fails.
                    let _ = self.write(out).await;
                }
            }
        }
    }

    /// Forgets the attachment and then reports to the client, which may use the quota again at
    /// once.
    async fn say_goodbye(self) {
        let stats = self.teardown.attachment.totals.snapshot().into();
        self.teardown.forget().await;
        let bytes = wire::encode(&ToProgram::Detached { stats });
        let _ = timeout(GOODBYE_TIMEOUT, self.connection.send(&bytes, &[])).await;
    }

    /// The daemon drains.
    async fn drain(mut self) {
        let before = self.teardown.attachment.totals.snapshot();
        let done = self.teardown.detach(Error::NetworkDown);
        self.finish_drain(before, done).await;
    }

    async fn finish_drain(mut self, before: Stats, done: oneshot::Receiver<()>) {
        self.teardown.mark_down();
        let _ = done.await;
        let after = self.teardown.attachment.totals.snapshot();
        self.daemon.count(after.undelivered - before.undelivered, after.opened.saturating_sub(after.closed));
        self.say_goodbye().await;
    }

    /// Ends the session: the client is gone, or has broken the protocol.
    async fn gone(mut self, why: &(dyn std::fmt::Display + Sync)) {
        let client = &self.teardown.attachment.client;
        tracing::info!(id = self.teardown.attachment.id.0, pid = client.pid, command = client.command, %why, "gone");
        // From here on the client, if it still runs, is on its own.
        self.connection.socket.get_ref().shut_down();
        self.teardown.stop_heartbeat();
        let _ = self.teardown.gone().await;
        self.teardown.forget().await;
    }
}
