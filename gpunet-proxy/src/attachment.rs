//! A device's sockets, seen from the host.

use crate::agent::{Agent, SharedAgent, embedded_agent};
use crate::attached::{Attached, ClientInfo, Inbox, Stats, Totals, Usage};
use crate::descriptors::hint;
use crate::device_memory::{AllocError, DeviceBuffer, DeviceMemory, bytes_of};
use crate::embed::{Inner, Proxy, Side};
use crate::launches::Launches;
use crate::link::Link;
use crate::placement::{self, Plan};
use crate::session::DaemonError;
use crate::shard;
use crate::socket_table::SocketTable;
use crate::token::TooManyLaunches;
use gpu_usermap::cuda::{CopyError, Device, Registration};
use gpu_usermap::{PinnedRegion, RegionError};
use gpunet_abi::context::Context;
use gpunet_abi::layout::{DeviceLayout, Geometry, LAUNCHES, SHARDS, SharedLayout};
use gpunet_abi::{MAGIC, VERSION};
use gpunet_core::memory::SharedMemory;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Why a device could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No pinned memory of that size.
    #[error("cannot make the shared region ({bytes} bytes): {source}{hint}", hint = region_hint(.source))]
    Region {
        /// Size asked for.
        bytes: u64,
        /// The system's answer.
        r#source: RegionError,
    },
    /// The proxy was stopped.
    #[error("the proxy has stopped")]
    Stopped,
    /// The region is shorter than its layout.
    #[error("the shared region is too short for its layout")]
    Layout,
    /// CUDA could not register the region.
    #[error("CUDA cannot register the shared region: {0}")]
    Register(gpu_usermap::cuda::RegisterError),
    /// The device has no room for its part of the sockets.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// All launch numbers of the attachment are in use.
    #[error(transparent)]
    TooMany(#[from] TooManyLaunches),
    /// A host's sockets among those of a GPU.
    #[error("a host program cannot share a GPU's sockets; make its own with Proxy::host")]
    HostOnGpu,
    /// The operating system refused a thread.
    #[error("cannot start a thread: {0}{hint}", hint = hint(.0))]
    Thread(std::io::Error),
    /// Rings of rc streams cannot lie where the settings want them.
    #[error("rings of rc streams: {0}; set Config::placement to auto")]
    Placement(String),
    /// CUDA could not copy the launch contexts.
    #[error("CUDA cannot copy to the device: {0}")]
    Copy(CopyError),
    /// The operating system refused the descriptors that wake data threads.
    #[error("cannot make a doorbell: {0}; see `ulimit -n`")]
    Doorbell(std::io::Error),
    /// The daemon is not there any more, or does not give this program an attachment.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

/// What to do about it, where the failure does not say so itself.
fn region_hint(error: &RegionError) -> &'static str {
    match error {
        RegionError::DescriptorLimit { .. } => "",
        _ => "; ask for less ring memory in Config",
    }
}

/// How an attachment ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Bytes that a send accepted and that did not reach the peer's side, over the attachment's
    /// whole life.
    pub undelivered: u64,
    /// Streams that had not ended when the bound was over.
    pub unfinished: u64,
}

/// The sockets of one device: its regions and its place in the proxy.
///
/// Dropping it closes it. [`Attachment::close`] does the same and reports.
#[derive(Debug)]
pub struct Attachment {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) link: Link,
    /// The region that device and proxy share, as this process maps it.
    pub(crate) memory: Arc<SharedMemory>,
    /// The launches that run, and what they know of closed sockets.
    pub(crate) launches: Mutex<Launches>,
    /// The device's socket table.
    pub(crate) table: SocketTable,
    /// The launches' contexts, in the device's address space.
    pub(crate) contexts: u64,
    /// CUDA's side; `None` for the CPU device.
    device: Option<Device>,
    // Dropped last, in this order: what the agent has mapped; the registration before the region it registers (inside
    // `memory`, and kept by the registration itself), the device's own memory before the device.
    _agent: SharedAgent,
    registration: Option<Registration>,
    _own: Arc<DeviceMemory>,
    _doorbells: Arc<[OwnedFd]>,
}

impl Shared {
    /// Where the GPU finds the record for its panics; `None` for the CPU device, whose panics are caught.
    pub(crate) fn panic_record_address(&self) -> Option<u64> {
        self.registration.as_ref().map(|region| region.device_ptr() + self.memory.layout().panic)
    }
}

/// What an attachment is to be, before there is anybody who makes it.
pub(crate) struct Wanted<'a> {
    pub(crate) device: Option<&'a Device>,
    pub(crate) plan: Plan,
    pub(crate) device_rings: u64,
}

/// The device's side of an attachment, before the proxy knows of it.
pub(crate) struct Prepared {
    memory: Arc<SharedMemory>,
    registration: Option<Registration>,
    own: Arc<DeviceMemory>,
    contexts: u64,
    doorbells: Arc<[OwnedFd]>,
    device: Option<Device>,
    agent: SharedAgent,
}

impl Prepared {
    /// Registers the shared region with the device and writes the launches' contexts into its memory.
    pub(crate) fn new(
        device: Option<&Device>,
        memory: Arc<SharedMemory>,
        own: Arc<DeviceMemory>,
        doorbells: Arc<[OwnedFd]>,
        heartbeat: Duration,
    ) -> Result<Self, AttachError> {
        let region = memory.region().clone();
        let registration = device.map(|device| device.register(region.clone())).transpose();
        let registration = registration.map_err(AttachError::Register)?;
        let shared = registration.as_ref().map_or(region.base().as_ptr() as u64, Registration::device_ptr);
        let (geometry, shared_layout) = (*memory.geometry(), *memory.layout());
        let device_layout = DeviceLayout::new(&geometry);
        let mut bells = [-1; SHARDS];
        if device.is_none() {
            for (number, bell) in bells.iter_mut().zip(&*doorbells) {
                *number = bell.as_raw_fd();
            }
        }
        for launch in 0..LAUNCHES {
            let context = Context {
                magic: MAGIC,
                version: VERSION,
                launch,
                sockets: geometry.sockets,
                controls: geometry.controls,
                shards: geometry.shards,
                shared,
                device: own.address(),
                shared_layout,
                device_layout,
                heartbeat_timeout_ns: heartbeat.as_nanos() as u64,
                doorbells: bells,
            };
            let offset = device_layout.contexts as usize + launch as usize * size_of::<Context>();
            own.write(offset, bytes_of(&context)).map_err(AttachError::Copy)?;
        }
        let contexts = own.address() + device_layout.contexts;
        let device = device.cloned();
        let agent = SharedAgent::new(Agent::new(device.clone(), own.clone(), device_layout, memory.clone()));
        Ok(Self { memory, registration, own, contexts, doorbells, device, agent })
    }

    /// The agent of this attachment.
    pub(crate) fn agent(&self) -> SharedAgent {
        self.agent.clone()
    }

    pub(crate) fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// The attachment, once the proxy serves it.
    pub(crate) fn attachment(self, link: Link) -> Attachment {
        let Self { memory, registration, own, contexts, doorbells, device, agent } = self;
        let geometry = memory.geometry();
        let table = SocketTable::new(own.clone(), DeviceLayout::new(geometry), geometry.sockets);
        let shared = Shared {
            link,
            memory,
            launches: Mutex::default(),
            table,
            contexts,
            device,
            _agent: agent,
            registration,
            _own: own,
            _doorbells: doorbells,
        };
        Attachment { shared: Arc::new(shared) }
    }
}

/// Makes the eventfds of one attachment: one for each data thread. Each attachment has its own: one
/// that a hostile client has as well must not be another's.
pub(crate) fn doorbells(shards: usize) -> std::io::Result<Arc<[OwnedFd]>> {
    (0..shards).map(|_| shard::new_bell()).collect()
}

impl Proxy {
    /// Attaches the CPU device: kernels run as threads of this process.
    ///
    /// # Errors
    /// [`AttachError::Region`], when there is not enough memory; [`AttachError::Daemon`], when a daemon
    /// does not allow it.
    pub fn attach_cpu(&self) -> Result<Attachment, AttachError> {
        self.attach(None)
    }

    /// Attaches a CUDA device: kernels run there as PTX.
    ///
    /// # Errors
    /// [`AttachError`], when memory or registration fails.
    pub fn attach_cuda(&self, device: &Device) -> Result<Attachment, AttachError> {
        self.attach(Some(device))
    }

    fn attach(&self, device: Option<&Device>) -> Result<Attachment, AttachError> {
        let config = self.config();
        let plan = placement::plan(config, device)?;
        let device_rings = if device.is_some() || plan.in_device_memory() { config.device_rings } else { 0 };
        let wanted = Wanted { device, plan, device_rings };
        match &self.side {
            Side::Embedded(inner) => inner.attach(&wanted),
            Side::Daemon(remote) => remote.attach(&wanted),
        }
    }
}

impl Inner {
    fn attach(self: &Arc<Self>, wanted: &Wanted<'_>) -> Result<Attachment, AttachError> {
        if self.messages.is_closed() {
            return Err(AttachError::Stopped);
        }
        let (config, device) = (&self.config, wanted.device);
        let geometry = config.geometry(wanted.device_rings);
        let memory = shared_memory(geometry)?;
        let len = DeviceLayout::new(&geometry).len as usize;
        let (own, card) = placement::allocate(wanted.plan, config, device, len)?;
        let doorbells = doorbells(self.shards.len()).map_err(AttachError::Doorbell)?;
        let prepared = Prepared::new(device, memory, Arc::new(own), doorbells.clone(), config.heartbeat)?;
        let id = self.next_id();
        let attached = Arc::new(Attached {
            id,
            memory: prepared.memory.clone(),
            polled: device.is_some(),
            shareable: device.is_some_and(can_share),
            agent: embedded_agent(id, prepared.agent(), self.messages.clone()),
            card,
            totals: Totals::default(),
            inbox: Inbox::new(geometry.controls),
            doorbells,
            account: None,
            client: ClientInfo::own(device.map_or("cpu", Device::name)),
            since: Instant::now(),
            _quota: None,
        });
        self.add(&attached);
        Ok(prepared.attachment(Link::Local { proxy: self.clone(), attached }))
    }
}

/// Ring memory that an attachment begins with; the rest is made while it is in use already.
const FIRST_RINGS: u64 = 4 << 20;

/// Ring memory in the shared region that exists from the start.
pub(crate) fn first_rings(geometry: &Geometry) -> u64 {
    geometry.shared_rings.min(FIRST_RINGS)
}

/// Makes and lays out the region that a device and the proxy share: its beginning.
pub(crate) fn shared_memory(geometry: Geometry) -> Result<Arc<SharedMemory>, AttachError> {
    let bytes = SharedLayout::new(&geometry).len;
    let first = SharedLayout::new(&geometry).rings + first_rings(&geometry);
    let region = PinnedRegion::create_growing("gpunet", bytes as usize, first as usize)
        .map_err(|source| AttachError::Region { bytes, source })?;
    Ok(Arc::new(SharedMemory::format(region, geometry).ok_or(AttachError::Layout)?))
}

/// Says whether other processes and other GPUs may map this device's memory.
pub(crate) fn can_share(device: &Device) -> bool {
    match device.can_share() {
        Ok(()) => true,
        Err(why) => {
            tracing::info!(device = device.name(), %why, "no direct streams in this GPU's memory");
            false
        }
    }
}

impl Attachment {
    /// Says what the device is: "cpu", or the GPU's name.
    #[must_use]
    pub fn device_name(&self) -> &str {
        self.shared.device.as_ref().map_or("cpu", Device::name)
    }

    /// The CUDA device, unless this is the CPU device.
    #[must_use]
    pub fn cuda(&self) -> Option<&Device> {
        self.shared.device.as_ref()
    }

    /// Memory for kernels of this device to work in; a byte at least.
    ///
    /// # Errors
    /// [`AllocError`], when the GPU has no such memory, or for the CPU device this machine.
    pub fn alloc(&self, len: usize) -> Result<DeviceBuffer, AllocError> {
        DeviceBuffer::new(self.cuda(), len)
    }

    /// Totals since the attachment was made. Those of a daemon that is gone are what it told last.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.link.stats()
    }

    /// What the attachment holds at this moment, as the control thread knows it; nothing once the
    /// proxy has stopped. Waits for its answer, which takes a turn of that thread.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.shared.link.usage()
    }

    /// Closes all sockets in good order, waits until what was accepted is sent (at most the linger
    /// bound), and gives everything back. Blocks; async code uses [`Attachment::close_async`].
    ///
    /// Kernels that still use it are cancelled; their tokens are to be finished before.
    #[must_use]
    pub fn close(self) -> CloseReport {
        let shared = self.shared.clone();
        drop(self);
        let stats = shared.link.stats();
        CloseReport { undelivered: stats.undelivered, unfinished: stats.opened.saturating_sub(stats.closed) }
    }
}

impl Attachment {
    /// As [`Attachment::close`], for async code: nothing blocks meanwhile, and the close goes on when
    /// the future is dropped.
    pub async fn close_async(self) -> CloseReport {
        let (done, report) = tokio::sync::oneshot::channel();
        let close = move || {
            let _ = done.send(self.close());
        };
        match std::thread::Builder::new().name("gpunet-close".to_owned()).spawn(close) {
            Ok(_) => report.await.unwrap_or_default(),
            Err(error) => {
                // Dropped with the thread's body: the proxy closes it all the same.
                tracing::warn!(%error, "no thread to wait for a close");
                CloseReport::default()
            }
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let shared = self.shared.clone();
        shared.memory.cancel_all();
        let wait = shared.link.detach();
        let finish = move || {
            wait();
            drop(shared);
        };
        if tokio::runtime::Handle::try_current().is_err() {
            return finish();
        }
        // An async context must not be held up. The thread keeps the proxy running meanwhile.
        if let Err(error) = std::thread::Builder::new().name("gpunet-close".to_owned()).spawn(finish) {
            tracing::warn!(%error, "no thread to wait for a close: what is not sent yet may be lost");
        }
    }
}
