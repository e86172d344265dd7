//! A proxy that several processes attach to.
//!
//! [`start`] embeds a proxy and serves a listening socket on a thread of its own
//! (`gpunet-sessions`, a tokio runtime with one task per connection), so that no client delays the
//! control plane. Other threads make the regions, which takes a while for hundreds of megabytes.
//! Files: this one (starting, stopping), `connections` (their limits), `admit` (a client's identity
//! and limits), `session` (the dialogue with an attached client), `outbox` (frames that other
//! threads send to it), `operators` (snapshots for operators), `logs` (the memory in which programs
//! record), `meter` (what metrics say of it).
//!
//! Clients are not trusted. Every frame is bounded, and the daemon or its control plane checks what
//! it names; a violation closes that connection and no other. Threads of a client's user take and
//! close the client's descriptors (`user_work`). The daemon reads from a client no faster than it
//! serves its requests. It stops reading from a client that does not read, and keeps for it only
//! the answers to its open requests; it does not disconnect such a client, since a program that was
//! stopped for a while behaves the same. A connection that ends without a detach counts as a dead
//! process.

mod admit;
mod connections;
mod logs;
mod meter;
mod operators;
mod outbox;
mod session;

pub use crate::attached::session::logs::{ClientLog, LogsError, logs};
pub use crate::attached::session::snapshot;
pub use meter::{KernelCounter, KernelRecords};

use crate::engine::runtime::{self, Runtime};
use crate::model::access::{Access, Accounts, Descriptors, RingMemory};
use crate::model::config::Config;
use crate::model::error::EmbedError;
use crate::model::message::{ANSWER_TIMEOUT, Message, answer_to};
use crate::model::snapshot::Snapshot;
use crate::os::descriptors::{self, hint};
use crate::os::peer::set_accepts_descriptors;
use crate::os::readiness::watch;
use crate::os::thread_pool::ThreadPool;
use crate::os::user_work::UserWork;
use connections::{Bounds, Connections};
use gpu_usermap::threads;
use logs::Logs;
use meter::Meter;
use operators::Operators;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, timeout};

/// Connections that have not attached (yet): a program needs one at a time. Together with
/// [`LOOKING`], they fit into the descriptors that the daemon reserves for itself.
const PENDING: Bounds = Bounds { each: 64, all: 144, kept: 48, root: 48 };
/// Connections that ask for snapshots: an operator needs one or two.
const LOOKING: Bounds = Bounds { each: 8, all: 24, kept: 12, root: 8 };
/// How often the sessions' thread shows that it lives.
const PULSE: Duration = Duration::from_millis(250);
/// How long to wait before the next accept when descriptors have run out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Why a daemon could not start.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::Access;
/// use gpunet_proxy::daemon::{StartError, start};
/// use gpunet_proxy::Config;
///
/// // A TCP socket is none that a daemon can serve.
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let refused = start(listener.into(), Config::small(), Access::default());
/// assert!(matches!(refused, Err(StartError::Listener(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its proxy could not start.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// The listener cannot be served.
    #[error("cannot serve the listening socket: {0}; it must be a Unix socket of type SOCK_SEQPACKET{hint}", hint = hint(.0))]
    Listener(io::Error),
    /// The operating system refused a thread.
    #[error("cannot start a thread for sessions: {0}{hint}", hint = hint(.0))]
    Thread(io::Error),
}

/// A running daemon. Dropping it stops it at once; [`Daemon::drain`] lets the sockets flush first.
///
/// # Examples
/// ```no_run
/// use gpunet_proxy::Config;
/// use gpunet_proxy::access::Access;
/// use gpunet_proxy::daemon;
/// use std::time::Duration;
///
/// # fn serve(listener: std::os::fd::OwnedFd, stop: std::sync::mpsc::Receiver<()>) -> Result<(), Box<dyn std::error::Error>> {
/// let daemon = daemon::start(listener, Config::default(), Access::default())?;
/// while stop.recv_timeout(Duration::from_secs(1)).is_err() {
///     assert!(daemon.is_alive(), "a thread is stuck");
/// }
/// let drained = daemon.drain(Duration::from_secs(30));
/// println!("{} bytes were lost", drained.undelivered);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Daemon {
    state: Arc<DaemonState>,
    thread: Option<JoinHandle<()>>,
}

/// How a daemon ended.
///
/// # Examples
/// ```no_run
/// # fn end(daemon: gpunet_proxy::daemon::Daemon) {
/// let drained = daemon.drain(std::time::Duration::from_secs(30));
/// if drained.unfinished > 0 {
///     eprintln!("{} streams were cut off", drained.unfinished);
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Bytes that a send had accepted and that did not reach the peer, over all attachments that
    /// existed when the drain began.
    pub undelivered: u64,
    /// Their streams that had not ended when the time was over.
    pub unfinished: u64,
}

/// What the sessions are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Serve, by the rules of that number.
    Serve(u64),
    /// Accept no new attachments, and let the sockets flush.
    Drain,
    /// End at once.
    Stop,
}

/// What the sessions share.
struct DaemonState {
    proxy: Arc<Runtime>,
    accounts: Accounts,
    access: Mutex<Access>,
    phase: watch::Sender<Phase>,
    pending: Arc<Connections>,
    looking: Arc<Connections>,
    operators: Operators,
    logs: Logs,
    meter: Mutex<Meter>,
    /// Where memory of attachments is made and given back.
    pool: ThreadPool,
    work: Arc<UserWork>,
    started: Instant,
    /// When the sessions' thread last updated its pulse, in milliseconds after the start.
    pulse: AtomicU64,
    drained: Mutex<Drained>,
}

impl std::fmt::Debug for DaemonState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DaemonState").field("phase", &*self.phase.borrow()).finish_non_exhaustive()
    }
}

impl DaemonState {
    fn age_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Counts what an attachment lost when the daemon drained.
    fn count(&self, undelivered: u64, unfinished: u64) {
        let mut drained = lock(&self.drained);
        drained.undelivered += undelivered;
        drained.unfinished += unfinished;
    }
}

impl DaemonState {
    fn new(proxy: Arc<Runtime>, pool: ThreadPool, accounts: Accounts, access: Access) -> Self {
        Self {
            proxy,
            accounts,
            access: Mutex::new(access),
            phase: watch::Sender::new(Phase::Serve(0)),
            pending: Connections::new(PENDING),
            looking: Connections::new(LOOKING),
            operators: Operators::default(),
            logs: Logs::default(),
            meter: Mutex::default(),
            pool,
            work: Arc::default(),
            started: Instant::now(),
            pulse: AtomicU64::new(0),
            drained: Mutex::default(),
        }
    }
}

/// Starts a daemon that serves `listener`, a listening Unix socket of type SOCK_SEQPACKET.
///
/// `config` sets how its proxy runs, and `access` who may attach, with which limits. The sizes in
/// `config` are ignored: each attachment brings its own.
///
/// # Errors
/// [`StartError`], when a setting is invalid, `listener` is not such a socket, or the system
/// refuses a thread.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::Access;
/// use gpunet_proxy::{Config, attach, daemon};
/// use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
///
/// # let path = std::env::temp_dir().join(format!("gpunet-doc-{}.sock", std::process::id()));
/// let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
/// bind(&listener, &SocketAddrUnix::new(&path)?)?;
/// listen(&listener, 128)?;
/// let daemon = daemon::start(listener, Config::default(), Access::default())?;
///
/// // The daemon's own user may attach even if the access rules name no user.
/// let attachment = attach(&path, Config::small())?.attach_cpu()?;
/// assert_eq!(daemon.snapshot().expect("an answer").clients.len(), 1);
/// # drop(attachment);
/// # drop(daemon);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn start(listener: OwnedFd, config: Config, access: Access) -> Result<Daemon, StartError> {
    rustix::io::ioctl_fionbio(&listener, true).map_err(|errno| StartError::Listener(errno.into()))?;
    let kind = rustix::net::sockopt::socket_type(&listener);
    if kind.map_err(|errno| StartError::Listener(errno.into()))? != rustix::net::SocketType::SEQPACKET {
        return Err(StartError::Listener(io::ErrorKind::InvalidInput.into()));
    }
    // Before Linux 6.16 this is not possible: see `ClientSocket`.
    let _ = set_accepts_descriptors(listener.as_fd(), false);
    let proxy = runtime::start(config)?;
    let runtime = descriptors::runtime().map_err(StartError::Thread)?;
    let limit = getrlimit(Resource::Nofile).current;
    let accounts = Accounts::new(Descriptors::of_process(limit.unwrap_or(u64::MAX)), RingMemory::here());
    let (pool, _) = ThreadPool::start("gpunet-attach").map_err(StartError::Thread)?;
    let state = Arc::new(DaemonState::new(proxy, pool, accounts, access));
    let listener = {
        let _entered = runtime.enter();
        watch(listener).map_err(StartError::Listener)?
    };
    let serving = state.clone();
    let serve = move || runtime.block_on(tokio::task::LocalSet::new().run_until(serve(serving, listener)));
    let thread = threads::spawn("gpunet-sessions", serve);
    let thread = Some(thread.map_err(StartError::Thread)?);
    Ok(Daemon { state, thread })
}

impl Daemon {
    /// Returns what the daemon holds now, or `None` if its control plane does not answer. Blocks
    /// until it has.
    #[must_use]
    pub fn snapshot(&self) -> Option<Snapshot> {
        let mut snapshot = self.state.proxy.snapshot().ok()?;
        snapshot.uptime_ms = self.state.age_ms();
        Some(snapshot)
    }

    /// Returns what the daemon holds, as [`Daemon::snapshot`], for a task of a tokio runtime to
    /// wait for.
    pub fn request_snapshot(&self) -> impl Future<Output = Option<Snapshot>> + Send + use<> {
        let (done, snapshot) = oneshot::channel();
        let _ = self.state.proxy.messages.send(Message::Snapshot { of: None, done: answer_to(done) });
        let uptime_ms = self.state.age_ms();
        async move {
            let snapshot = timeout(ANSWER_TIMEOUT, snapshot).await.ok()?.ok()?;
            Some(Snapshot { uptime_ms, ..snapshot })
        }
    }

    /// Returns what the kernels of all clients have recorded, for a task of a tokio runtime to wait
    /// for: each client that has rings of records, by its number. Calls read one after another, and
    /// each finds what has come since the last.
    pub fn request_kernel_records(&self) -> impl Future<Output = Option<Vec<KernelRecords>>> + Send + use<> {
        let state = self.state.clone();
        let pool = state.pool.clone();
        async move { pool.call(move || lock(&state.meter).read(state.logs.all())).await }
    }

    /// Replaces the access rules. Existing attachments stay, with the new limits.
    ///
    /// # Examples
    /// ```no_run
    /// # fn reload(daemon: &gpunet_proxy::daemon::Daemon) -> Result<(), Box<dyn std::error::Error>> {
    /// use gpunet_proxy::access::Access;
    ///
    /// let access: Access = toml::from_str(&std::fs::read_to_string("access.toml")?)?;
    /// daemon.set_access(access);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_access(&self, access: Access) {
        *lock(&self.state.access) = access;
        self.state.phase.send_modify(|phase| {
            if let Phase::Serve(rules) = phase {
                *rules += 1;
            }
        });
    }

    /// Returns whether all threads of the daemon make progress.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let bound = self.state.proxy.config.heartbeat.max(4 * PULSE);
        let serves = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        // Ordering: Relaxed; nothing else is read after it.
        let silent_ms = self.state.age_ms().saturating_sub(self.state.pulse.load(Ordering::Relaxed));
        serves && silent_ms < bound.as_millis() as u64 && self.state.proxy.heart.beats(bound)
    }

    /// Returns whether a thread of the daemon has ended by a panic. The daemon then no longer
    /// serves any client, and does not recover.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let is_served = matches!(*self.state.phase.borrow(), Phase::Serve(_));
        self.state.proxy.has_failed() || (is_served && ended)
    }

    /// Accepts no new attachments, ends the existing ones, and stops the daemon.
    ///
    /// Their devices report ENETDOWN at once. What they had sent is still delivered: the call
    /// blocks until then, for at most `bound`.
    #[must_use]
    pub fn drain(mut self, bound: Duration) -> Drained {
        let deadline = Instant::now() + bound;
        self.state.phase.send_replace(Phase::Drain);
        // The sessions' thread ends with the last of them.
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            let _ = self.thread.take().map(JoinHandle::join);
        } else {
            self.count_unfinished();
        }
        *lock(&self.state.drained)
    }

    /// Counts the streams that are cut off when the bound expires.
    fn count_unfinished(&self) {
        let clients = self.snapshot().map_or(Vec::new(), |snapshot| snapshot.clients);
        for client in clients {
            self.state.count(client.undelivered, client.opened.saturating_sub(client.closed));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.state.proxy.stop();
        self.state.phase.send_replace(Phase::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is called under these locks panics halfway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sessions' thread: accepts until the daemon drains, and waits for the sessions unless it
/// stops.
async fn serve(state: Arc<DaemonState>, listener: AsyncFd<OwnedFd>) {
    let mut phase = state.phase.subscribe();
    let mut sessions = JoinSet::new();
    let mut pulse = tokio::time::interval(PULSE);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = listener.async_io(tokio::io::Interest::READABLE, |fd| Ok(accept_with(fd, flags)?));
        tokio::select! {
            accepted = accept => match accepted {
                // A connection beyond the bounds is rejected here, which takes a moment only.
                Ok(socket) => {
                    if let Some(pending) = session::PendingConnection::enter(&state, socket) {
                        sessions.spawn_local(session::serve(state.clone(), pending));
                    }
                }
                Err(error) => {
                    if error.kind() != io::ErrorKind::ConnectionAborted {
                        tracing::warn!(%error, "cannot accept a program; see `ulimit -n`");
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
            Some(_) = sessions.join_next() => {}
            // Ordering: Relaxed; a sign of life orders nothing.
            _ = pulse.tick() => {
                state.pulse.store(state.age_ms(), Ordering::Relaxed);
                state.logs.forget_old();
            }
            () = ending(&mut phase) => break,
        }
    }
    drop(listener);
    tokio::select! {
        _ = phase.wait_for(|phase| *phase == Phase::Stop) => {}
        () = async { while sessions.join_next().await.is_some() {} } => {}
    }
}

/// Returns once the daemon drains or stops.
async fn ending(phase: &mut watch::Receiver<Phase>) {
    let _ = phase.wait_for(|phase| matches!(phase, Phase::Drain | Phase::Stop)).await;
}

#[cfg(test)]
mod tests;
