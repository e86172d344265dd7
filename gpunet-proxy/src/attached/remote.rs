//! Attaching to a daemon.

use super::device::OwnedDevice;
use super::prepare::{Prepared, Wanted, can_share};
use crate::attached::link::Link;
use crate::attached::placement;
use crate::attached::session::{Connection, ProgramSession};
use crate::model::attachment_state::own_command;
use crate::model::config::Config;
use crate::model::error::{AttachError, DaemonError};
use crate::wire::{AttachRequest, CardRepr, DaemonRepr, DeviceRepr, Hello, Sizes, ToProgram};
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::Device;
use gpunet_abi::layout::{DeviceLayout, Geometry, SHARDS};
use gpunet_core::memory::SharedMemory;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// A daemon that serves this program.
///
/// # Examples
/// ```no_run
/// # use gpunet_proxy::{Config, attach, places};
/// let proxy = attach(&places::daemon_path(), Config::default())?;
/// if let Some(daemon) = proxy.daemon() {
///     println!("gpunetd {} lets a closed stream flush for {:?}", daemon.version, daemon.linger);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DaemonInfo {
    /// Where it listens.
    pub path: PathBuf,
    /// Its process, as it reports.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Its data threads.
    pub data_threads: u32,
    /// A device that sees no heartbeat for this long reports ENETDOWN.
    pub heartbeat: Duration,
    /// How long a closed stream may take to flush what was accepted.
    pub linger: Duration,
}

/// The connection of one program to a daemon.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) config: Config,
    pub(crate) info: DaemonInfo,
    sessions: Mutex<Vec<Weak<ProgramSession>>>,
    stopped: AtomicBool,
}

impl Remote {
    /// Asks the daemon at `path` what it is.
    pub(crate) fn reach(path: &Path, config: Config) -> Result<Self, DaemonError> {
        config.check()?;
        let (_, daemon) = Connection::ready(path, &Hello::Probe)?;
        let info = DaemonInfo {
            path: path.to_owned(),
            pid: daemon.pid,
            version: daemon.version,
            data_threads: daemon.shards,
            heartbeat: Duration::from_millis(daemon.heartbeat_ms),
            linger: Duration::from_millis(daemon.linger_ms),
        };
        Ok(Self { config, info, sessions: Mutex::default(), stopped: AtomicBool::new(false) })
    }

    /// Closes all connections of this program: its sockets report ENETDOWN at once.
    pub(crate) fn stop(&self) {
        // Ordering: Relaxed; nothing else is read after it.
        self.stopped.store(true, Ordering::Relaxed);
        let sessions = std::mem::take(&mut *self.sessions.lock().unwrap_or_else(PoisonError::into_inner));
        sessions.iter().filter_map(Weak::upgrade).for_each(|session| session.hang_up());
    }

    pub(crate) fn attach(&self, wanted: &Wanted<'_>) -> Result<OwnedDevice, AttachError> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(AttachError::Stopped);
        }
        let (config, device) = (&self.config, wanted.device);
        // The size of the device's own memory does not depend on the number of data threads.
        let geometry = config.geometry(wanted.device_rings);
        let len = DeviceLayout::new(&geometry).len;
        let (own, card) = placement::allocate(wanted.plan, config, device, len as usize)?;
        let (card_is, card_fd) = match &card {
            None => (None, None),
            Some(card) => {
                let Some((fd, offset)) = &card.dmabuf else {
                    let why = "peer-mem works in the process that runs the proxy, and that is a daemon";
                    return Err(AttachError::Placement(why.to_owned()));
                };
                (Some(CardRepr { address: card.address, offset: *offset, len }), Some(fd.as_fd()))
            }
        };
        let request = AttachRequest {
            sockets: config.sockets,
            controls: config.controls,
            shared_rings: geometry.shared_rings,
            device_rings: geometry.device_rings,
            device: device_is(device),
            command: own_command(),
            card: card_is,
        };
        let connection = Connection::open(&self.info.path, &Hello::Attach(request), card_fd)?;
        let Welcome { socket, memory, doorbells, daemon } = self.welcome(connection, &geometry)?;
        let heartbeat = Duration::from_millis(daemon.heartbeat_ms);
        let prepared = Prepared::new(device, memory, Arc::new(own), doorbells, heartbeat)?;
        let linger = Duration::from_millis(daemon.linger_ms);
        let session = ProgramSession::start(socket, prepared.memory().clone(), linger, prepared.agent())
            .map_err(AttachError::Thread)?;
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&session));
        drop(sessions);
        Ok(prepared.attached(Link::Remote(session)))
    }

    /// Checks what the daemon has made.
    fn welcome(&self, connection: Connection, wanted: &Geometry) -> Result<Welcome, AttachError> {
        let strange = |what: &str| {
            AttachError::from(DaemonError::Strange { path: self.info.path.clone(), what: what.to_owned() })
        };
        let Connection { socket, answer: ToProgram::Welcome { daemon, geometry }, fds } = connection else {
            return Err(strange("its answer is of the wrong kind"));
        };
        let Sizes { sockets, controls, shards, shared_rings, device_rings } = geometry;
        let geometry = Geometry::new(sockets, controls, shards, shared_rings, device_rings);
        let asked = (wanted.sockets, wanted.controls, wanted.shared_rings, wanted.device_rings);
        if (sockets, controls, shared_rings, device_rings) != asked || !(1..=SHARDS as u32).contains(&shards)
        {
            return Err(strange("it made an attachment of another size"));
        }
        let mut fds = fds.into_iter();
        let region = fds.next().ok_or_else(|| strange("it sent no region"))?;
        let region = PinnedRegion::from_trusted_fd(region)
            .map_err(|error| strange(&format!("it sent an invalid region: {error}")))?;
        let memory = SharedMemory::attach(region, geometry)
            .ok_or_else(|| strange("its region has another layout; are both of one version?"))?;
        Ok(Welcome { socket, memory: Arc::new(memory), doorbells: fds.collect(), daemon })
    }
}

/// What a daemon has made for an attachment.
struct Welcome {
    socket: OwnedFd,
    memory: Arc<SharedMemory>,
    doorbells: Arc<[OwnedFd]>,
    daemon: DaemonRepr,
}

fn device_is(device: Option<&Device>) -> DeviceRepr {
    match device {
        None => DeviceRepr::Cpu,
        Some(device) => DeviceRepr::Cuda {
            name: device.name().to_owned(),
            uuid: device.uuid(),
            shareable: can_share(device),
        },
    }
}
