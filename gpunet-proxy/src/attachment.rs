//! A device's sockets, seen from the host.

pub(crate) mod local;
pub(crate) mod prepare;
pub(crate) mod remote;

use crate::agent::SharedAgent;
use crate::device_memory::{AllocError, DeviceBuffer, DeviceMemory};
use crate::launches::Launches;
use crate::link::Link;
use crate::model::attachment_state::{Stats, Usage};
use crate::socket_table::SocketTable;
use gpu_usermap::cuda::{Device, Registration};
use gpunet_core::memory::SharedMemory;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

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
    /// Bytes that a send accepted and that did not reach the peer's side, over the attachment's
    /// whole life.
    pub undelivered: u64,
    /// Streams that had not ended when the bound was over.
    pub unfinished: u64,
}

/// The sockets of one device: its regions and its place in the proxy.
///
/// Dropping it closes it. [`Attachment::close`] does the same and reports.
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

    /// Totals since the attachment was made. Those of a daemon that is gone are what it told last.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.link.stats()
    }

    /// What the attachment holds at this moment, as the control thread knows it; nothing once the
    /// proxy has stopped. Waits for its answer, which takes a turn of that thread.
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
