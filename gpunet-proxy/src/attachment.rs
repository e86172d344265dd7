//! A device's sockets, seen from the host.

use crate::agent::{Agent, AgentLink, ToAgent};
use crate::attached::{Attached, Inbox, Stats, Totals, Usage};
use crate::device_memory::{DeviceBuffer, DeviceMemory, bytes_of};
use crate::embed::{Inner, Proxy};
use crate::message::Message;
use crate::placement;
use crate::token::TooManyLaunches;
use gpu_usermap::cuda::{CopyError, CudaError, Device, Registration};
use gpu_usermap::{PinnedRegion, RegionError};
use gpunet_abi::context::Context;
use gpunet_abi::layout::{DeviceLayout, LAUNCHES, SHARDS, SharedLayout};
use gpunet_abi::{MAGIC, VERSION};
use gpunet_core::memory::SharedMemory;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Why a device could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No pinned memory of that size.
    #[error("cannot make the shared region ({bytes} bytes): {source}; ask for less ring memory in Config")]
    Region {
        /// Size asked for.
        bytes: u64,
        /// The system's answer.
        source: RegionError,
    },
    /// The proxy was stopped.
    #[error("the proxy has stopped")]
    Stopped,
    /// The region is shorter than its layout.
    #[error("the shared region is too short for its layout")]
    Layout,
    /// CUDA could not register the region.
    #[error("CUDA cannot register the shared region: {0}")]
    Register(#[from] gpu_usermap::cuda::RegisterError),
    /// CUDA could not allocate the device's own memory.
    #[error("CUDA cannot allocate device memory: {0}")]
    Cuda(#[from] CudaError),
    /// All launch numbers of the attachment are in use.
    #[error(transparent)]
    TooMany(#[from] TooManyLaunches),
    /// A host's sockets among those of a GPU.
    #[error("a host program cannot share a GPU's sockets; make its own with Proxy::host")]
    HostOnGpu,
    /// The operating system refused a thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// Rings of rc streams cannot lie where the settings want them.
    #[error("rings of rc streams: {0}; set Config::placement to auto")]
    Placement(String),
    /// CUDA could not copy the launch contexts.
    #[error("CUDA cannot copy to the device: {0}")]
    Copy(#[from] CopyError),
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
    pub(crate) attached: Arc<Attached>,
    pub(crate) proxy: Arc<Inner>,
    /// A bit for each launch number in use.
    pub(crate) launches: Mutex<u64>,
    /// The launches' contexts, in the device's address space.
    pub(crate) contexts: u64,
    /// CUDA's side; `None` for the CPU device.
    device: Option<Device>,
    // Dropped last, in this order: the registration before the region it registers (inside
    // `attached`), the device's own memory before the device.
    _registration: Option<Registration>,
    _memory: Arc<DeviceMemory>,
}

impl Shared {
    /// See [`Attachment::usage`].
    pub(crate) fn usage(&self) -> Usage {
        let (done, usage) = crossbeam_channel::bounded(1);
        let _ = self.proxy.messages.send(Message::Usage { device: self.attached.id, done });
        usage.recv_timeout(Duration::from_secs(10)).unwrap_or_default()
    }
}

impl Proxy {
    /// Attaches the CPU device: kernels run as threads of this process.
    ///
    /// # Errors
    /// [`AttachError::Region`], when there is not enough memory.
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
        let inner = &self.inner;
        if inner.messages.is_closed() {
            return Err(AttachError::Stopped);
        }
        let config = &inner.config;
        let plan = placement::plan(config, device)?;
        let device_rings = if device.is_some() || plan.in_device_memory() { config.device_rings } else { 0 };
        let geometry = config.geometry(device_rings);
        let (shared_layout, device_layout) = (SharedLayout::new(&geometry), DeviceLayout::new(&geometry));
        let region = PinnedRegion::create("gpunet", shared_layout.len as usize)
            .map_err(|source| AttachError::Region { bytes: shared_layout.len, source })?;
        let memory = SharedMemory::format(region.clone(), geometry).ok_or(AttachError::Layout)?;
        let registration = device.map(|device| device.register(region.clone())).transpose()?;
        let (own, card) = placement::allocate(plan, config, device, device_layout.len as usize)?;
        let shared = registration.as_ref().map_or(region.base().as_ptr() as u64, Registration::device_ptr);
        let mut doorbells = [-1; SHARDS];
        if device.is_none() {
            for (bell, shard) in doorbells.iter_mut().zip(&inner.shards) {
                *bell = shard.bell.as_raw_fd();
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
                heartbeat_timeout_ns: inner.config.heartbeat.as_nanos() as u64,
                doorbells,
            };
            let offset = device_layout.contexts as usize + launch as usize * size_of::<Context>();
            own.write(offset, bytes_of(&context))?;
        }
        let (id, memory, own) = (inner.next_id(), Arc::new(memory), Arc::new(own));
        let agent = Agent::new(device.cloned(), own.clone(), device_layout, memory.clone());
        let attached = Arc::new(Attached {
            id,
            memory,
            polled: device.is_some(),
            shareable: device.is_some_and(|device| device.can_share().is_ok()),
            agent: agent_thread(agent, id, inner.messages.clone()),
            card,
            totals: Totals::default(),
            inbox: Inbox::new(geometry.controls),
        });
        inner.add(&attached);
        let shared = Shared {
            attached,
            proxy: inner.clone(),
            launches: Mutex::new(0),
            contexts: own.address() + device_layout.contexts,
            device: device.cloned(),
            _registration: registration,
            _memory: own,
        };
        Ok(Attachment { shared: Arc::new(shared) })
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

    /// Memory for kernels of this device to work in.
    ///
    /// # Errors
    /// [`CudaError`], when the GPU has no such memory.
    pub fn alloc(&self, len: usize) -> Result<DeviceBuffer, CudaError> {
        DeviceBuffer::new(self.cuda(), len)
    }

    /// Totals since the attachment was made.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.attached.totals.snapshot()
    }

    /// What the attachment holds at this moment, as the control thread knows it; nothing once the
    /// proxy has stopped. Waits for its answer, which takes a turn of that thread.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.shared.usage()
    }

    /// Closes all sockets in good order, waits until what was accepted is sent (at most the linger
    /// bound), and gives everything back. Blocks; async code uses [`Attachment::close_async`].
    ///
    /// Kernels that still use it are cancelled; their tokens are to be finished before.
    #[must_use]
    pub fn close(self) -> CloseReport {
        let shared = self.shared.clone();
        drop(self);
        let stats = shared.attached.totals.snapshot();
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
        let (done, wait) = crossbeam_channel::bounded(1);
        shared.attached.memory.cancel_all();
        let id = shared.attached.id;
        let sent = shared.proxy.messages.send(Message::Detach { device: id, done });
        let bound = shared.proxy.config.linger + Duration::from_secs(5);
        let finish = move || {
            if sent.is_ok() {
                let _ = wait.recv_timeout(bound);
            }
            shared.proxy.heart.remove(id);
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

/// Starts an attachment's agent in this process, at the first request; it ends with the link.
fn agent_thread(agent: Agent, device: u32, messages: UnboundedSender<Message>) -> AgentLink {
    let agent = Mutex::new(Some(agent));
    let (requests, inbox) = crossbeam_channel::unbounded::<ToAgent>();
    Box::new(move |request| {
        let _ = requests.send(request);
        let Some(mut agent) = agent.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() else {
            return;
        };
        let (inbox, messages) = (inbox.clone(), messages.clone());
        let body = move || {
            for request in inbox {
                let _ = messages.send(Message::Agent { device, answer: agent.handle(request) });
            }
        };
        if let Err(error) = std::thread::Builder::new().name("gpunet-agent".to_owned()).spawn(body) {
            tracing::warn!(%error, "no thread for an attachment's agent: no streams to other attachments");
        }
    })
}
