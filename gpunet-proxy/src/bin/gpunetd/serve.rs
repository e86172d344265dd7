//! The daemon's life: start, signals, end.

use crate::args::Cli;
use crate::log::Limiter;
use crate::settings::{self, Loaded, RELOADED};
use crate::values::Metrics;
use crate::{metrics, socket, supervisor};
use gpu_usermap::threads;
use gpunet_proxy::daemon::{self, Daemon};
use gpunet_proxy::descriptors::{self, hint};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock, mpsc};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

/// Why the daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listening socket could not be made.
    #[error(transparent)]
    Socket(#[from] socket::SocketError),
    /// The proxy did not start.
    #[error(transparent)]
    Start(#[from] daemon::StartError),
    /// Metrics cannot be served.
    #[error("cannot serve metrics at {addr}: {source}; give --metrics another port, or off{hint}", hint = hint(.source))]
    Metrics {
        /// Where.
        addr: std::net::SocketAddr,
        /// The system's answer.
        r#source: io::Error,
    },
    /// A thread has panicked.
    #[error(
        "a thread of the proxy has ended, so nobody is served any more: its panic is above; gpunetd ends, and can be \
         started again"
    )]
    Failed,
    /// The operating system refused something else.
    #[error("cannot {what}: {source}{hint}", hint = hint(.source))]
    System {
        /// What it was to do.
        what: &'static str,
        /// Its answer.
        r#source: io::Error,
    },
}

/// The daemon, until it is drained.
pub type Running = Arc<RwLock<Option<Daemon>>>;

/// Runs the daemon until a signal ends it.
///
/// # Errors
/// [`ServeError`], when it cannot start, or has failed.
pub fn run(cli: &Cli, loaded: Loaded, limiter: &Limiter) -> Result<ExitCode, ServeError> {
    // First, so that no descriptor of ours takes the place of a passed one.
    let endpoint = socket::open(&loaded.settings.listen_path, loaded.settings.socket_mode)?;
    raise_descriptor_limit();
    let runtime = descriptors::runtime();
    let runtime = runtime.map_err(|source| ServeError::System { what: "start a runtime", source })?;
    let code = runtime.block_on(serve(cli, loaded, endpoint, limiter));
    // A drain that was interrupted has a thread that still waits for it.
    runtime.shutdown_background();
    code
}

async fn serve(
    cli: &Cli,
    mut loaded: Loaded,
    endpoint: socket::Endpoint,
    limiter: &Limiter,
) -> Result<ExitCode, ServeError> {
    // Before the start, so that a signal during the start ends it in order.
    let system = |what| move |source| ServeError::System { what, source };
    let mut signals = Signals::new().map_err(system("take signals"))?;
    // Not when it is needed: the system may refuse a thread then.
    let drains = start_drains().map_err(system("start a thread to end on"))?;
    let socket::Endpoint { listener, mut place } = endpoint;
    let metrics_listener = match loaded.settings.metrics {
        Metrics::Off => None,
        Metrics::At(addr) => {
            let bound = tokio::net::TcpListener::bind(addr).await;
            Some(bound.map_err(|source| ServeError::Metrics { addr, source })?)
        }
    };
    let daemon = daemon::start(listener, loaded.settings.config(), loaded.access.clone())?;
    let daemon: Running = Arc::new(RwLock::new(Some(daemon)));
    if let Some(listener) = metrics_listener {
        let addr = listener.local_addr().map(|addr| addr.to_string()).unwrap_or_default();
        tracing::info!(addr, "metrics");
        tokio::spawn(metrics::serve(listener, daemon.clone()));
    }
    let status = match &place {
        Some(_) => format!("clients attach at {}", loaded.settings.listen_path.display()),
        None => "clients attach at the socket of systemd".to_owned(),
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), pid = std::process::id(), "{status}");
    supervisor::ready(&status);
    if let Some(shortage) = settings::memory_shortage() {
        tracing::warn!("{shortage}");
    }

    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watchdog = supervisor::watchdog();
    // Twice within systemd's interval, as it recommends.
    let mut checks = tokio::time::interval(watchdog.map_or(Duration::from_secs(1), |period| period / 2));
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut lived = true;
    loop {
        tokio::select! {
            told = signals.next() => match told {
                SignalRequest::End => break,
                SignalRequest::Reload => {
                    supervisor::reloading();
                    reload(cli, &mut loaded, &daemon);
                    supervisor::ready(&status);
                }
            },
            _ = second.tick() => limiter.tell(),
            _ = checks.tick() => {
                if read(&daemon, Daemon::has_failed).unwrap_or(false) {
                    return Err(ServeError::Failed);
                }
                let lives = read(&daemon, Daemon::is_alive).unwrap_or(false);
                if lives && watchdog.is_some() {
                    supervisor::alive();
                }
                if lived && !lives {
                    tracing::error!("a thread of the proxy takes no turns: sockets report ENETDOWN");
                }
                lived = lives;
            }
        }
    }
    let bound = Duration::from_secs(loaded.settings.drain_s);
    supervisor::stopping(bound + Duration::from_secs(5));
    // From now on programs find no daemon, or the next one.
    if let Some(place) = &mut place {
        place.remove();
    }
    let code = drain(&daemon, bound, &drains, &mut signals).await;
    limiter.tell();
    Ok(code)
}

/// Calls `what` with the daemon, unless it is being drained.
pub fn read<T>(daemon: &Running, what: impl FnOnce(&Daemon) -> T) -> Option<T> {
    daemon.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(what)
}

/// Reloads the settings. If they are invalid, nothing changes.
fn reload(cli: &Cli, loaded: &mut Loaded, daemon: &Running) {
    let new = match settings::load(cli) {
        Ok(new) => new,
        Err(error) => {
            tracing::error!("not reloaded, the settings stay as they are: {error}");
            return;
        }
    };
    let access = new.access != loaded.access;
    if access {
        read(daemon, |daemon| daemon.set_access(new.access.clone()));
    }
    let changed = loaded.settings.differ(&new.settings);
    let restart: Vec<_> = changed.into_iter().filter(|key| !RELOADED.contains(key)).collect();
    if !restart.is_empty() {
        tracing::warn!(keys = restart.join(", "), "these settings have changed and need a restart");
    }
    // Settings that need a restart stay, so that the next reload reports them again.
    loaded.settings.drain_s = new.settings.drain_s;
    loaded.access = new.access;
    let access = if access { "other limits from now on" } else { "the same limits" };
    tracing::info!(drain_s = loaded.settings.drain_s, "reloaded: {access}");
}

/// A drain that is to be done.
struct Drain {
    daemon: Running,
    bound: Duration,
    done: oneshot::Sender<daemon::Drained>,
}

/// Starts the thread that drains the daemon.
fn start_drains() -> io::Result<mpsc::Sender<Drain>> {
    let (drains, told) = mpsc::channel::<Drain>();
    let work = move || {
        for Drain { daemon, bound, done } in told {
            let daemon = daemon.write().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(daemon) = daemon {
                // The result is not awaited after a second signal.
                let _ = done.send(daemon.drain(bound));
            }
        }
    };
    threads::spawn("gpunetd-drain", work)?;
    Ok(drains)
}

/// Waits until what was accepted is sent, `bound` at most or until another signal comes.
async fn drain(
    daemon: &Running,
    bound: Duration,
    drains: &mpsc::Sender<Drain>,
    signals: &mut Signals,
) -> ExitCode {
    tracing::info!(seconds = bound.as_secs(), "ending: no more clients, streams send what was accepted");
    let (done, drained) = oneshot::channel();
    let _ = drains.send(Drain { daemon: daemon.clone(), bound, done });
    tokio::select! {
        drained = drained => match drained {
            Ok(drained) if drained.undelivered == 0 && drained.unfinished == 0 => {
                tracing::info!("ended, everything is delivered");
                ExitCode::SUCCESS
            }
            Ok(drained) => {
                let daemon::Drained { undelivered, unfinished, .. } = drained;
                tracing::warn!(undelivered, unfinished, "ended, bytes were not delivered");
                ExitCode::SUCCESS
            }
            Err(_) => {
                tracing::error!("the proxy failed while it ended");
                ExitCode::FAILURE
            }
        },
        () = signals.end() => {
            tracing::warn!("ended at once, what was accepted and not sent is lost");
            ExitCode::FAILURE
        }
    }
}

/// The signals that the daemon handles.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignalRequest {
    End,
    Reload,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::End,
            _ = self.interrupt.recv() => SignalRequest::End,
            _ = self.hangup.recv() => SignalRequest::Reload,
        }
    }

    /// The next signal to end; others are ignored.
    async fn end(&mut self) {
        while self.next().await != SignalRequest::End {}
    }
}

fn raise_descriptor_limit() {
    // Every TCP stream is a descriptor. A lower hard limit is intended: connections beyond it are
    // refused.
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "cannot raise the limit of file descriptors");
    }
}
