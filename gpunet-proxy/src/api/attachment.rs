//! A device's sockets, as the host sees them.

use crate::attached::device::{AttachedDevice, CloseReport, OwnedDevice, close_on_thread};
use crate::attached::device_memory::{AllocError, DeviceBuffer};
use crate::model::attachment_state::{Stats, Usage};
use crate::queue::QueueStreams;
use crate::socket::HostSockets;
use gpu_usermap::cuda::Device;
use gpu_usermap::{PinnedRegion, RegionError};
use std::sync::{Arc, OnceLock};

/// The sockets of one device: its regions, slots and launches in a proxy.
///
/// Dropping it closes it, as [`Attachment::close`] does, which also reports what was lost. The drop
/// blocks, except inside a tokio runtime, where a thread finishes the work.
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
    pub(crate) owned: OwnedDevice,
    /// The sockets that the host program opens on it.
    pub(crate) sockets: HostSockets,
    /// Streams for its queues, from the first one on.
    pub(crate) queue_streams: OnceLock<Arc<QueueStreams>>,
}

impl Attachment {
    /// The attachment of a device that the proxy serves.
    pub(crate) fn new(owned: OwnedDevice) -> Self {
        let sockets = HostSockets::new(owned.device().clone());
        Self { owned, sockets, queue_streams: OnceLock::new() }
    }

    /// What launches, sockets, queues and hosts take.
    pub(crate) const fn device(&self) -> &Arc<AttachedDevice> {
        self.owned.device()
    }
}

impl Attachment {
    /// Returns "cpu", or the GPU's name.
    #[must_use]
    pub fn device_name(&self) -> &str {
        self.cuda().map_or("cpu", Device::name)
    }

    /// Returns the CUDA device, or `None` for the CPU device.
    #[must_use]
    pub fn cuda(&self) -> Option<&Device> {
        self.device().cuda()
    }

    /// Allocates `len` bytes of zeroed memory for kernels of this device.
    ///
    /// # Errors
    /// [`AllocError`], when the GPU (for the CPU device, the machine) does not have the memory; a
    /// GPU also refuses 0 bytes.
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

    /// Makes pinned memory in which kernels record, for `gpunet-records-host`.
    ///
    /// A daemon makes it if there is one, and keeps it for a while when this program has ended:
    /// `gpunetctl logs` reads it. If the daemon refuses, the memory is this program's own, and a
    /// warning says so.
    ///
    /// # Errors
    /// [`RegionError`], when there is no memory.
    pub fn records_memory(&self, len: usize) -> Result<Arc<PinnedRegion>, RegionError> {
        match self.device().link.records(len) {
            Some(Ok(region)) => return Ok(region),
            Some(Err(reason)) => {
                tracing::warn!(%reason, "the daemon keeps no records of this program: `gpunetctl logs` has none");
            }
            None => {}
        }
        PinnedRegion::create("gpunet-records", len)
    }

    /// Returns the totals since the attachment was made. After a daemon has ended, they stay as it
    /// last reported them.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.device().link.stats()
    }

    /// Returns what the attachment holds now, as the control thread knows it; all zero once the
    /// proxy has stopped.
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
        self.device().link.usage()
    }

    /// Closes all sockets, waits until what was accepted is sent, and frees the attachment's
    /// memory.
    ///
    /// Blocks for at most [`Config::linger`](crate::Config::linger) (a daemon's own setting); async
    /// code uses [`Attachment::close_async`]. Finish all launches first: kernels that still run are
    /// cancelled.
    #[must_use]
    pub fn close(self) -> CloseReport {
        let device = self.owned.device().clone();
        drop(self);
        device.report()
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
        close_on_thread(move || self.close()).await
    }
}
