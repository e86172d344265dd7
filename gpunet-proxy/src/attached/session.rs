//! The program's end of an attachment to a daemon.
//!
//! A connection carries one attachment. Any thread may post frames. A thread of the session reads
//! what the daemon sends: it completes pending requests and calls, and carries out the daemon's
//! requests to the attachment's agent (these may wait for CUDA; nothing else is urgent). Files:
//! `connect` (the first frames), this one (everything after), `logs` (what kernels of other
//! programs have recorded).

mod connect;
#[allow(unsafe_code)]
pub(crate) mod logs;

pub use connect::snapshot;
pub(crate) use connect::{Connection, next};

use crate::attached::agent::SharedAgent;
use crate::model::agent::FromAgent;
use crate::model::attachment_state::{Stats, Usage};
use crate::model::launch::{FinishPolicy, Finished};
use crate::model::message::ANSWER_TIMEOUT;
use crate::model::message::Answer;
use crate::os::doorbell;
use crate::os::plain::{bytes_of, from_bytes};
use crate::wire::{
    self, AgentAnswer, AgentRequest, BadFrame, CallId, MAX_FRAME, Packet, ToDaemon, ToProgram,
};
use crossbeam_channel::{Receiver, Sender};
use gpu_usermap::{PinnedRegion, threads};
use gpunet_abi::Handle;
use gpunet_abi::control::{Reply, Request};
use gpunet_core::ids::{HostRequestId, LaunchId};
use gpunet_core::memory::SharedMemory;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{Shutdown, shutdown};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// One attachment's connection.
pub(crate) struct ProgramSession {
    socket: OwnedFd,
    /// Wakes the session's thread when a frame could not be sent at once.
    bell: OwnedFd,
    memory: Arc<SharedMemory>,
    linger: Duration,
    state: Mutex<State>,
    thread: OnceLock<ThreadId>,
}

#[derive(Default)]
struct State {
    /// Requests of host programs that have no answer yet.
    requests: HashMap<HostRequestId, Answer>,
    /// Calls that have no answer yet.
    calls: HashMap<CallId, Call>,
    last_call: CallId,
    /// Frames that are not sent yet.
    outgoing: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    /// The program has asked for the end.
    leaving: bool,
    detaching: Option<Sender<()>>,
    /// The connection has ended.
    over: bool,
    /// The totals that the daemon reported last.
    stats: Stats,
}

/// The waiter for the answer to a call.
enum Call {
    Finish(Sender<Finished>),
    Usage(Sender<(Usage, Stats)>),
    Records(Sender<Result<OwnedFd, String>>),
}

impl std::fmt::Debug for ProgramSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("over", &self.lock().over).finish_non_exhaustive()
    }
}

impl ProgramSession {
    /// Takes over a connection after the welcome, and starts its thread.
    pub(crate) fn start(
        socket: OwnedFd,
        memory: Arc<SharedMemory>,
        linger: Duration,
        agent: SharedAgent,
    ) -> io::Result<Arc<Self>> {
        let bell = doorbell::new()?;
        let (state, thread) = (Mutex::default(), OnceLock::new());
        let session = Arc::new(Self { socket, bell, memory, linger, state, thread });
        let reader = session.clone();
        threads::spawn("gpunet-session", move || reader.run(&agent))?;
        Ok(session)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that is called under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the daemon lets a closed stream flush.
    pub(crate) fn linger(&self) -> Duration {
        self.linger
    }

    /// Reaps what a launch left. If the daemon is gone, the receiver is disconnected.
    pub(crate) fn finish_launch(
        &self,
        launch: LaunchId,
        policy: FinishPolicy,
        fresh: &[Handle],
    ) -> Receiver<Finished> {
        let (done, report) = crossbeam_channel::bounded(1);
        let (policy, fresh) = (policy.into(), wire::handles(fresh));
        self.call(Call::Finish(done), |call| ToDaemon::FinishLaunch {
            call,
            launch: launch.0,
            policy,
            fresh,
        });
        report
    }

    pub(crate) fn abort_launch(&self, launch: LaunchId) {
        self.post(&mut self.lock(), &ToDaemon::AbortLaunch { launch: launch.0 }, None);
    }

    pub(crate) fn release(&self, handles: &[Handle]) {
        self.post(&mut self.lock(), &ToDaemon::Release { handles: wire::handles(handles) }, None);
    }

    pub(crate) fn reset_all(&self) {
        self.post(&mut self.lock(), &ToDaemon::ResetAll, None);
    }

    /// What the attachment holds, and its totals.
    pub(crate) fn usage(&self) -> (Usage, Stats) {
        let (done, usage) = crossbeam_channel::bounded(1);
        self.call(Call::Usage(done), |call| ToDaemon::Usage { call });
        usage.recv_timeout(ANSWER_TIMEOUT).unwrap_or_else(|_| (Usage::default(), self.lock().stats))
    }

    /// Memory of that length in which kernels record, which the daemon keeps when this program has
    /// ended.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn records(&self, len: usize) -> Result<Arc<PinnedRegion>, String> {
        let (done, made) = crossbeam_channel::bounded(1);
        self.call(Call::Records(done), |call| ToDaemon::Records { call, len: len as u64 });
        let fd = made.recv_timeout(ANSWER_TIMEOUT).map_err(|_| "the daemon does not answer".to_owned())??;
        let region = PinnedRegion::from_trusted_fd(fd).map_err(|error| error.to_string())?;
        if region.len() < len { Err("the daemon has made too little".to_owned()) } else { Ok(region) }
    }

    /// Posts a request; `answer` is called on the session's thread, or dropped if there will be
    /// none.
    pub(crate) fn ask(&self, id: HostRequestId, request: &Request, answer: Answer) {
        let request = bytes_of(request).to_vec();
        let mut state = self.lock();
        if state.over {
            // Dropping an answer may call this session again.
            drop(state);
            return drop(answer);
        }
        state.requests.insert(id, answer);
        self.post(&mut state, &ToDaemon::Ask { id, request }, None);
    }

    pub(crate) fn abandon(&self, id: HostRequestId) {
        self.post(&mut self.lock(), &ToDaemon::Abandon { id }, None);
    }

    /// Asks for the attachment's end; `done` is answered when it has ended, or dropped.
    pub(crate) fn detach(&self, done: Sender<()>) {
        let mut state = self.lock();
        state.leaving = true;
        // On its own thread nothing may wait for a frame that this thread is to read.
        if !state.over && self.thread.get() != Some(&std::thread::current().id()) {
            state.detaching = Some(done);
        }
        self.post(&mut state, &ToDaemon::Detach, None);
    }

    /// Ends the connection at once; the thread does the rest.
    pub(crate) fn hang_up(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    fn call(&self, waiting: Call, frame: impl FnOnce(CallId) -> ToDaemon) {
        let mut state = self.lock();
        if state.over {
            return;
        }
        let call = state.last_call.next();
        state.last_call = call;
        state.calls.insert(call, waiting);
        self.post(&mut state, &frame(call), None);
    }

    /// Sends a frame, or queues it for the session's thread while the daemon's socket is full.
    fn post(&self, state: &mut State, frame: &ToDaemon, fd: Option<OwnedFd>) {
        if state.over {
            return;
        }
        state.outgoing.push_back((wire::encode(frame), fd));
        if !self.flush(state) {
            doorbell::ring(&self.bell);
        }
    }

    /// Sends the queued frames; returns whether none is left.
    fn flush(&self, state: &mut State) -> bool {
        while let Some((bytes, fd)) = state.outgoing.front() {
            let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
            match wire::send(self.socket.as_fd(), bytes, &fds) {
                Ok(()) => drop(state.outgoing.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => {
                    // The daemon is gone; the thread will read the end, too.
                    state.outgoing.clear();
                    self.hang_up();
                }
            }
        }
        true
    }

    /// The thread's body: until the attachment or the daemon is gone.
    fn run(&self, agent: &SharedAgent) {
        let _ = self.thread.set(std::thread::current().id());
        let _ended = Ended(self);
        let mut buffer = vec![0; MAX_FRAME];
        let ended = loop {
            match wire::recv(self.socket.as_fd(), &mut buffer) {
                Ok(None) => break "it has closed the connection".to_owned(),
                Ok(Some(packet)) if packet.lost => {
                    if let Err(why) = self.decline(&packet) {
                        break why.to_string();
                    }
                }
                Ok(Some(packet)) => match wire::decode(packet) {
                    Ok((ToProgram::Detached { stats }, _)) => {
                        let mut state = self.lock();
                        state.stats = stats.into();
                        if state.leaving {
                            return;
                        }
                        break "it is stopping".to_owned();
                    }
                    Ok((frame, fds)) => self.handle(frame, fds, agent),
                    Err(error) => break error.to_string(),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(),
                Err(error) => break error.to_string(),
            }
        };
        if !self.lock().leaving {
            tracing::error!(reason = ended, "the daemon is gone: sockets report ENETDOWN");
        }
        self.hang_up();
        // The daemon is gone or has forgotten this attachment: no other thread writes the heartbeat
        // now.
        self.memory.beat_down();
    }

    /// Drops everything that waits for an answer.
    fn end(&self) {
        let mut state = self.lock();
        state.over = true;
        let questions = (std::mem::take(&mut state.requests), std::mem::take(&mut state.calls));
        let dropped = (questions, std::mem::take(&mut state.outgoing), state.detaching.take());
        drop(state);
        // Outside the lock: dropping an answer may call this session again.
        drop(dropped);
    }

    /// Waits until there is something to read, or to send again.
    fn wait(&self) {
        let flushed = self.flush(&mut self.lock());
        let wanted = if flushed { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut fds = [
            PollFd::from_borrowed_fd(self.socket.as_fd(), wanted),
            PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
        ];
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, None);
        if !fds[1].revents().is_empty() {
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        }
    }

    fn handle(&self, frame: ToProgram, fds: Vec<OwnedFd>, agent: &SharedAgent) {
        match frame {
            ToProgram::Reply { id, reply } => {
                let answer = self.lock().requests.remove(&id);
                let reply = from_bytes::<Reply>(&reply);
                if let (Some(answer), Some(reply)) = (answer, reply) {
                    answer(&reply);
                }
            }
            ToProgram::Finished { call, closed, kept, more } => {
                if let Some(Call::Finish(done)) = self.lock().calls.remove(&call) {
                    let closed = wire::from_handles(&closed);
                    let _ = done.send(Finished { closed, kept: kept as usize, more });
                }
            }
            ToProgram::Usage { call, usage, stats } => {
                let mut state = self.lock();
                state.stats = stats.into();
                if let Some(Call::Usage(done)) = state.calls.remove(&call) {
                    let _ = done.send((usage.into(), state.stats));
                }
            }
            ToProgram::Records { call, refused } => {
                if let Some(Call::Records(done)) = self.lock().calls.remove(&call) {
                    let made = refused.map_or_else(|| fds.into_iter().next().ok_or_else(String::new), Err);
                    let _ = done.send(made);
                }
            }
            ToProgram::Agent(request) => self.serve(request, fds, agent),
            // Sent once, or not to this kind of connection.
            ToProgram::Refused { .. }
            | ToProgram::Ready(_)
            | ToProgram::SendCard
            | ToProgram::Welcome { .. }
            | ToProgram::Detached { .. }
            | ToProgram::Logs { .. }
            | ToProgram::Snapshot { .. } => tracing::warn!("the daemon said something out of turn"),
        }
    }

    /// Carries out a request to the attachment's agent.
    fn serve(&self, request: AgentRequest, fds: Vec<OwnedFd>, agent: &SharedAgent) {
        self.answer(match request.request(fds) {
            Ok(request) => agent.handle(request),
            Err((arena, reason)) => FromAgent::Failed { arena, reason },
        });
    }

    /// Declines a request whose descriptors are lost.
    ///
    /// # Errors
    /// The packet has no request that can be declined.
    fn decline(&self, packet: &Packet) -> Result<(), BadFrame> {
        match wire::without_descriptors(&packet.bytes)? {
            ToProgram::Agent(AgentRequest::Map { arena, .. }) => {
                let reason = BadFrame::NoDescriptor.to_string();
                tracing::warn!(reason, "a device has no direct stream to another");
                self.answer(FromAgent::Failed { arena, reason });
                Ok(())
            }
            ToProgram::Records { call, .. } => {
                if let Some(Call::Records(done)) = self.lock().calls.remove(&call) {
                    let _ = done.send(Err(BadFrame::NoDescriptor.to_string()));
                }
                Ok(())
            }
            _ => Err(BadFrame::NoDescriptor),
        }
    }

    fn answer(&self, answer: FromAgent) {
        let (answer, fd) = match answer {
            FromAgent::Provided { arena, fd, len } => (AgentAnswer::Provided { arena, len }, Some(fd)),
            FromAgent::Mapped { arena } => (AgentAnswer::Mapped { arena }, None),
            FromAgent::Cleared { arena, ring } => (AgentAnswer::Cleared { arena, ring }, None),
            FromAgent::Failed { arena, reason } => {
                let reason = reason.chars().take(MAX_REASON).collect();
                (AgentAnswer::Failed { arena, reason }, None)
            }
            FromAgent::Unmapped { arena } => (AgentAnswer::Unmapped { arena }, None),
        };
        self.post(&mut self.lock(), &ToDaemon::Agent(answer), fd);
    }
}

/// Cleans up when the session's thread ends, by return or by panic: from then on no thread reads
/// the connection.
struct Ended<'a>(&'a ProgramSession);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.hang_up();
            self.0.memory.beat_down();
        }
        self.0.end();
    }
}

/// The longest reason that an agent gives.
pub(crate) const MAX_REASON: usize = 512;
