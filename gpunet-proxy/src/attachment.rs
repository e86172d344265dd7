//! A device's sockets, as the host sees them.

pub(crate) mod local;
pub(crate) mod prepare;
pub(crate) mod remote;

use crate::agent::SharedAgent;
use crate::device_memory::{AllocError, DeviceBuffer, DeviceMemory};
use crate::launches::Launches;
use crate::link::Link;
use crate::model::attachment_state::{Stats, Usage};
use crate::queue::QueueStreams;
use crate::socket::{HostLaunch, HostSlots};
use crate::socket_table::SocketTable;
use gpu_usermap::cuda::{Device, Registration};
use gpunet_core::ids::LaunchId;
use gpunet_core::memory::SharedMemory;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};

/// How an attachment ended.
///
/// # Examples
/// ```
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let report = attachment.close();
/// if report.unfinished > 0 {
///     eprintln!("{} streams were cut off, and {} bytes lost", report.unfinished, report.undelivered);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Bytes that a send accepted and that did not reach the peer, over the attachment's whole life.
    pub undelivered: u64,
    /// Streams that had not ended when the linger time was over.
    pub unfinished: u64,
}

/// The sockets of one device: its regions, slots and launches in a proxy.
///
/// Dropping it closes it, as [`Attachment::close`] does, which also reports what was lost. The drop blocks,
/// except inside a tokio runtime, where a thread finishes the work.
///
/// # Examples
/// ```
/// use gpunet_proxy::{Config, embed};
///
/// let attachment = embed(Config::small())?.attach_cpu()?;
/// let message = attachment.alloc(4096)?; // for the kernels
/// // ... launch kernels, wait for them ...
/// let report = attachment.close();
/// assert_eq!((report.undelivered, report.unfinished), (0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Attachment {
    pub(crate) shared: Arc<Shared>,
    /// The launch that the host program's sockets belong to, from the first on. Dropped when they are closed.
    pub(crate) host_launch: OnceLock<Arc<HostLaunch>>,
    /// Streams for its queues, from the first one on.
    pub(crate) queue_streams: OnceLock<Arc<QueueStreams>>,
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
    /// The slots for sockets that the host program opens.
    pub(crate) host_slots: HostSlots,
    /// The number of the launch that they belong to, once there is one.
    pub(crate) host_launch: OnceLock<LaunchId>,
    /// The launches' contexts, in the device's address space.
    pub(crate) contexts: u64,
    /// CUDA's side; `None` for the CPU device.
    device: Option<Device>,
    // Dropped last, in this order: what the agent has mapped; the registration before the region it registers (inside
    // `memory`, and kept by the registration itself), the device's own memory before the device.
    _agent: SharedAgent,
    registration: Option<Registration>,
    _own: Arc<DeviceMemory>,
    /// They wake the data threads.
    pub(crate) doorbells: Arc<[OwnedFd]>,
}

impl Shared {
    /// Where the GPU finds the record for its panics; `None` for the CPU device, whose panics are caught.
    pub(crate) fn panic_record_address(&self) -> Option<u64> {
        self.registration.as_ref().map(|region| region.device_ptr() + self.memory.layout().panic)
    }
}

impl Attachment {
    /// Returns "cpu", or the GPU's name.
    #[must_use]
    pub fn device_name(&self) -> &str {
        self.shared.device.as_ref().map_or("cpu", Device::name)
    }

    /// Returns the CUDA device, or `None` for the CPU device.
    #[must_use]
    pub fn cuda(&self) -> Option<&Device> {
        self.shared.device.as_ref()
    }

    /// Allocates `len` bytes of zeroed memory for kernels of this device.
    ///
    /// # Errors
    /// [`AllocError`], when the GPU (for the CPU device, the machine) does not have the memory; a GPU also
    /// refuses 0 bytes.
    ///
    /// # Examples
    /// ```
    /// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
    /// let mut buffer = attachment.alloc(5)?;
    /// buffer.write(0, b"hello")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc(&self, len: usize) -> Result<DeviceBuffer, AllocError> {
        DeviceBuffer::new(self.cuda(), len)
    }

    /// Returns the totals since the attachment was made. After a daemon has ended, they stay as it last
    /// reported them.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.link.stats()
    }

    /// Returns what the attachment holds now, as the control thread knows it; all zero once the proxy has
    /// stopped.
    ///
    /// Blocks for a turn of the control thread.
    ///
    /// # Examples
    /// ```
    /// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
    /// let usage = attachment.usage();
    /// println!("{} sockets, {} of {} bytes free", usage.sockets, usage.free_ring_bytes, usage.ring_bytes);
    /// # assert_eq!(usage.sockets, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.shared.link.usage()
    }

    /// Closes all sockets, waits until what was accepted is sent, and frees the attachment's memory.
    ///
    /// Blocks for at most [`Config::linger`](crate::Config::linger) (a daemon's own setting); async code uses
    /// [`Attachment::close_async`]. Finish all launches first: kernels that still run are cancelled.
    #[must_use]
    pub fn close(self) -> CloseReport {
        let shared = self.shared.clone();
        drop(self);
        let stats = shared.link.stats();
        CloseReport { undelivered: stats.undelivered, unfinished: stats.opened.saturating_sub(stats.closed) }
    }
}

impl Attachment {
    /// Closes as [`Attachment::close`] does, without blocking. If the future is dropped, the close
    /// continues.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
    /// let report = attachment.close_async().await;
    /// assert_eq!(report.undelivered, 0);
    /// # Ok(())
    /// # }
    /// ```
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
