//! One connection of a client, from its hello to its end: `greeting` is how it begins, `leave` how its
//! attachment ends; what an attached client says is served here.

mod greeting;
mod leave;

pub(super) use greeting::{Visit, serve};

use gpunet_core::ids::{HostRequestId, LaunchId, RequestId};
use leave::Leave;

use super::admit::Refusal;
use super::outbox::{Asked, Out, Outbox};
use super::{Desk, Order, ending, lock};
use crate::access::{Account, Credentials};
use crate::client_socket::ClientSocket;
use crate::model::attachment_state::{Stats, Usage};
use crate::model::launch::{Finished, MOST_HANDLES};
use crate::model::message::{Done, Message};
use crate::plain::{bytes_of, from_bytes};
use crate::user_work::UserWork;
use crate::wire::{self, BadFrame, CallId, Frame, Incoming, MAX_FRAME, Packet, Sent, ToDaemon, ToProgram};
use gpunet_abi::control::{Reply, Request};
use gpunet_abi::{Error, Handle};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

/// A hello comes at once, or not at all.
const HELLO: Duration = Duration::from_secs(5);
/// How long a descriptor may take to be taken. One that takes longer hangs in its user's hands, and the connection's end
/// would not be heard meanwhile.
const TAKE: Duration = Duration::from_secs(5);
/// How long a client may take to read what ends its connection.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Calls (usage, finish, reset, snapshot) that may come at once, in the time they bring, and how long
/// each brings: the control plane looks at every socket for them.
const BURST: Duration = Duration::from_millis(200);
const CALL: Duration = Duration::from_millis(1);
/// Beyond two for each socket: calls without an answer, and requests to the client's agent.
const MARGIN: usize = 1024;
/// A piece of a snapshot.
const PIECE: usize = MAX_FRAME - 1024;

/// Why a client is cut.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error(transparent)]
    Frame(#[from] BadFrame),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Breach(&'static str),
}

/// What a client's agent was not asked for.
const UNASKED: Cut = Cut::Breach("an answer of its agent that cannot be");
const TOO_MANY: Cut = Cut::Breach("more requests without an answer than it has sockets for");
const TWICE: Cut = Cut::Breach("two requests of one number");

/// A connection.
struct Wire {
    socket: AsyncFd<Arc<ClientSocket>>,
    buffer: Box<[u8]>,
    work: Arc<UserWork>,
    uid: u32,
}

impl Wire {
    /// The next packet; `None` at the end.
    async fn recv(&mut self) -> io::Result<Option<Incoming>> {
        let buffer = &mut self.buffer;
        self.socket.async_io(Interest::READABLE, |socket| wire::recv_plain(socket.as_fd(), buffer)).await
    }

    /// Takes the packet with descriptors that is the next one, and has `check` done with it, both on a thread of its
    /// user.
    async fn take<T: Send + 'static>(
        &self,
        check: impl FnOnce(Packet) -> Result<T, Cut> + Send + 'static,
    ) -> Result<T, Cut> {
        if !self.socket.get_ref().takes_descriptors() {
            return Err(Cut::Breach("a descriptor that it was not asked for"));
        }
        let socket = self.socket.get_ref().clone();
        let taken = self.work.run(self.uid, move || {
            let packet = wire::recv(socket.as_fd(), &mut vec![0; MAX_FRAME])?;
            packet.ok_or(Cut::Breach("no frame")).and_then(check)
        });
        match timeout(TAKE, taken).await {
            Ok(taken) => taken.unwrap_or(Err(Cut::Breach("nobody takes what it sends"))),
            Err(_) => Err(Cut::Breach("a descriptor that takes too long")),
        }
    }

    async fn send(&self, bytes: &[u8], fds: &[Sent]) -> io::Result<()> {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        self.socket.async_io(Interest::WRITABLE, |socket| wire::send(socket.as_fd(), bytes, &fds)).await
    }

    async fn refuse(&self, refusal: Refusal) {
        let Refusal { errno, reason } = refusal;
        let bytes = wire::encode_first(&ToProgram::Refused { errno, reason });
        let _ = timeout(LAST_WORDS, self.send(&bytes, &[])).await;
    }
}

/// Passes a result of the control thread on to a task.
fn answer_to<T: Send + 'static>(waiting: oneshot::Sender<T>) -> Done<T> {
    Box::new(move |result| {
        // The task may have given up.
        let _ = waiting.send(result);
    })
}

/// The handles that a client names, if they are no more than a frame has room for in an answer.
fn few_handles(raw: &[i32]) -> Result<Vec<Handle>, Cut> {
    if raw.len() > MOST_HANDLES {
        return Err(Cut::Breach("more handles than a call may name"));
    }
    Ok(wire::from_handles(raw))
}

/// Waits until another call may be made.
async fn pace(next: &mut Instant) {
    let now = Instant::now();
    *next = (*next).max(now.checked_sub(BURST).unwrap_or(now)) + CALL;
    if *next > now {
        sleep_until(*next).await;
    }
}

/// An attached client.
struct Session {
    desk: Arc<Desk>,
    who: Credentials,
    account: Arc<Account>,
    wire: Wire,
    outbox: Outbox,
    frames: mpsc::Receiver<Out>,
    asked: Asked,
    /// Requests whose answers have not left yet, and whether they were given up.
    requests: HashMap<HostRequestId, bool>,
    /// Calls whose answers have not left yet.
    calls: HashSet<CallId>,
    limit: usize,
    paced: Instant,
    /// A reset is on its way to the control plane; another one would change nothing.
    resetting: Arc<AtomicBool>,
    left: Leave,
}

/// What comes next for a session.
enum Next {
    Read(io::Result<Option<Incoming>>),
    Write(Option<Out>),
    Order,
}

impl Session {
    async fn run(mut self, mut orders: watch::Receiver<Order>) {
        // It may have come while the client was told that it has attached.
        if !matches!(*orders.borrow(), Order::Serve(_)) {
            return self.drain().await;
        }
        loop {
            let next = tokio::select! {
                packet = self.wire.recv() => Next::Read(packet),
                out = self.frames.recv() => Next::Write(out),
                _ = orders.changed() => Next::Order,
            };
            let handled = match next {
                Next::Read(Ok(Some(packet))) => tokio::select! {
                    handled = self.handle(packet) => match handled {
                        Ok(false) => Ok(()),
                        Ok(true) => return self.detach(orders).await,
                        Err(cut) => Err(cut),
                    },
                    () = ending(&mut orders) => return self.drain().await,
                },
                Next::Read(Ok(None)) => return self.gone(&"it has ended").await,
                Next::Read(Err(error)) => Err(error.into()),
                Next::Write(Some(out)) => tokio::select! {
                    sent = self.write(out) => sent.map_err(Cut::from),
                    // Whether it reads or not.
                    () = ending(&mut orders) => return self.drain().await,
                },
                // The session has a sender itself.
                Next::Write(None) => Ok(()),
                Next::Order if matches!(*orders.borrow_and_update(), Order::Serve(_)) => {
                    self.follow_rules();
                    Ok(())
                }
                Next::Order => return self.drain().await,
            };
            if let Err(cut) = handled {
                return self.gone(&cut).await;
            }
        }
    }

    /// Takes over limits that have changed.
    fn follow_rules(&self) {
        match lock(&self.desk.access).limits_for(&self.who) {
            Some(limits) => self.account.set_limits(limits),
            None => tracing::warn!(
                uid = self.who.uid,
                pid = self.who.pid,
                "a user that may not attach any more: its attachment stays"
            ),
        }
    }

    async fn write(&mut self, out: Out) -> io::Result<()> {
        match &out.frame {
            ToProgram::Reply { id, .. } => drop(self.requests.remove(id)),
            ToProgram::Finished { call, .. } | ToProgram::UsageIs { call, .. } => {
                self.calls.remove(call);
            }
            _ => {}
        }
        debug_assert_eq!(out.frame.descriptors(), out.fds.len());
        self.wire.send(&wire::encode(&out.frame), &out.fds).await
    }

    /// Refuses a request or call beyond those that may wait for an answer.
    fn check_room(&self) -> Result<(), Cut> {
        if self.requests.len() + self.calls.len() < self.limit { Ok(()) } else { Err(TOO_MANY) }
    }

    /// Notes a request that will be answered.
    fn enter_request(&mut self, id: HostRequestId) -> Result<(), Cut> {
        self.check_room()?;
        if self.requests.insert(id, false).is_none() { Ok(()) } else { Err(TWICE) }
    }

    /// Does what the client says; returns whether it wants to end.
    async fn handle(&mut self, packet: Incoming) -> Result<bool, Cut> {
        let Incoming::Plain(packet) = packet else {
            return self.take_memory().await.map(|()| false);
        };
        let (frame, _) = wire::decode::<ToDaemon>(packet)?;
        let (attachment, outbox) = (self.left.attachment.id, self.outbox.clone());
        let message = match frame {
            ToDaemon::Ask { id, request } => {
                let request = from_bytes::<Request>(&request).ok_or(Cut::Breach("half a request"))?;
                self.enter_request(id)?;
                let answer = Box::new(move |reply: &Reply| {
                    let reply = bytes_of(reply).to_vec();
                    outbox.post(ToProgram::Reply { id, reply }, Vec::new());
                });
                Message::Ask { attachment, id, request: Box::new(request), answer }
            }
            ToDaemon::Abandon { id } => {
                // One that was answered meanwhile is none any more.
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
                let fresh = few_handles(&fresh)?;
                let (launch, policy) = (LaunchId(launch), policy.into());
                Message::FinishLaunch { attachment, launch, policy, fresh, done }
            }
            ToDaemon::AbortLaunch { launch } => {
                pace(&mut self.paced).await;
                Message::AbortLaunch { attachment, launch: LaunchId(launch) }
            }
            ToDaemon::Release { handles } => {
                pace(&mut self.paced).await;
                Message::Release { attachment, handles: few_handles(&handles)? }
            }
            ToDaemon::Usage { call } => {
                self.enter_call(call).await?;
                let state = Arc::downgrade(&self.left.attachment);
                let done = Box::new(move |usage: Usage| {
                    let Some(state) = state.upgrade() else { return };
                    let (usage, stats) = (usage.into(), state.totals.snapshot().into());
                    outbox.post(ToProgram::UsageIs { call, usage, stats }, Vec::new());
                });
                Message::Usage { attachment, done }
            }
            ToDaemon::ResetAll => {
                // Ordering: Relaxed; the flag only bounds how many messages there are.
                if self.resetting.swap(true, Ordering::Relaxed) {
                    return Ok(false);
                }
                pace(&mut self.paced).await;
                let _ = self.desk.proxy.messages.send(Message::ResetAll { attachment });
                let resetting = self.resetting.clone();
                // Answered after it.
                Message::Usage {
                    attachment,
                    done: Box::new(move |_| resetting.store(false, Ordering::Relaxed)),
                }
            }
            ToDaemon::Agent(answer) => {
                let answer = self.asked.check(answer, Vec::new()).ok_or(UNASKED)?;
                Message::Agent { attachment, answer }
            }
            ToDaemon::Detach => return Ok(true),
            ToDaemon::Snapshot => return Err(Cut::Breach("only an admin looks")),
            // One without its descriptor is no frame.
            ToDaemon::Card => return Err(UNASKED),
        };
        let _ = self.desk.proxy.messages.send(message);
        Ok(false)
    }

    /// Takes the memory that the client's agent provides.
    async fn take_memory(&self) -> Result<(), Cut> {
        let asked = self.asked.clone();
        let check = move |packet| {
            let (frame, fds) = wire::decode::<ToDaemon>(packet)?;
            let ToDaemon::Agent(answer) = frame else { return Err(UNASKED) };
            asked.check(answer, fds).ok_or(UNASKED)
        };
        let answer = self.wire.take(check).await?;
        let _ = self.desk.proxy.messages.send(Message::Agent { attachment: self.left.attachment.id, answer });
        Ok(())
    }

    /// Notes a call that will be answered, and waits until it may be made.
    async fn enter_call(&mut self, call: CallId) -> Result<(), Cut> {
        self.check_room()?;
        if !self.calls.insert(call) {
            return Err(TWICE);
        }
        pace(&mut self.paced).await;
        Ok(())
    }

    /// The client wants to end: closes everything in good order, and tells it.
    async fn detach(mut self, mut orders: watch::Receiver<Order>) {
        let before = self.left.attachment.totals.snapshot();
        let mut done = self.left.detach(Error::Canceled);
        tokio::select! {
            _ = &mut done => {
                tracing::info!(id = self.left.attachment.id.0, pid = self.who.pid, "detached");
                self.say_goodbye().await;
            }
            // Also while the client does not read.
            () = ending(&mut orders) => self.finish_drain(before, done).await,
            () = self.serve_agent() => self.gone(&"it ended while it was detached").await,
        }
    }

    /// Passes on what the client's agent is asked and answers, until the client is gone. Nothing else is of interest.
    async fn serve_agent(&mut self) {
        loop {
            tokio::select! {
                packet = self.wire.recv() => match packet {
                    Ok(Some(Incoming::WithDescriptors)) => {
                        // It lies there until it is taken.
                        if self.take_memory().await.is_err() {
                            return;
                        }
                    }
                    Ok(Some(Incoming::Plain(packet))) => {
                        if let Ok((ToDaemon::Agent(answer), _)) = wire::decode(packet)
                            && let Some(answer) = self.asked.check(answer, Vec::new())
                        {
                            let attachment = self.left.attachment.id;
                            let _ = self.desk.proxy.messages.send(Message::Agent { attachment, answer });
                        }
                    }
                    Ok(None) | Err(_) => return,
                },
                Some(out) = self.frames.recv() => {
                    // A client that is gone is read to be so.
                    let _ = self.write(out).await;
                }
            }
        }
    }

    /// Forgets the attachment, and then tells the client: what it had is its to take again.
    async fn say_goodbye(self) {
        let stats = self.left.attachment.totals.snapshot().into();
        self.left.forget().await;
        let bytes = wire::encode(&ToProgram::Detached { stats });
        let _ = timeout(LAST_WORDS, self.wire.send(&bytes, &[])).await;
    }

    /// The daemon wants to end.
    async fn drain(mut self) {
        let before = self.left.attachment.totals.snapshot();
        let done = self.left.detach(Error::NetworkDown);
        self.finish_drain(before, done).await;
    }

    async fn finish_drain(mut self, before: Stats, done: oneshot::Receiver<()>) {
        self.left.silence();
        let _ = done.await;
        let after = self.left.attachment.totals.snapshot();
        self.desk.count(after.undelivered - before.undelivered, after.opened.saturating_sub(after.closed));
        self.say_goodbye().await;
    }

    /// The client is gone, or is to go.
    async fn gone(mut self, why: &(dyn std::fmt::Display + Sync)) {
        let client = &self.left.attachment.client;
        tracing::info!(id = self.left.attachment.id.0, pid = client.pid, command = client.command, %why, "gone");
        // From here on the client, if it lives, is on its own.
        self.wire.socket.get_ref().shut_down();
        self.left.leave_alone();
        let _ = self.left.gone().await;
        self.left.forget().await;
    }
}
