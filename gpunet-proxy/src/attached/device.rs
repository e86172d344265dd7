//! A device while it is attached: what launches, sockets, queues and hosts take.

use crate::attached::agent::SharedAgent;
use crate::attached::device_memory::DeviceMemory;
use crate::attached::launches::Launches;
use crate::attached::link::Link;
use crate::attached::socket_table::{HostSlots, SocketTable};
use crate::model::ids::next_host_request;
use gpu_usermap::cuda::{Device, Registration};
use gpu_usermap::threads;
use gpunet_abi::Handle;
use gpunet_abi::control::{Op, Request};
use gpunet_abi::entry::Entry;
use gpunet_abi::position::StreamWord;
use gpunet_core::ids::LaunchId;
use gpunet_core::memory::SharedMemory;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

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
    /// Bytes that a send accepted and that did not reach the peer, over the attachment's whole
    /// life.
    pub undelivered: u64,
    /// Streams that had not ended when the linger time was over.
    pub unfinished: u64,
}

/// The program's side of an attachment: its regions, its socket table, its launches, and the link
/// to the proxy.
#[derive(Debug)]
pub(crate) struct AttachedDevice {
    pub(crate) link: Link,
    /// The region that device and proxy share, as this process maps it.
    pub(crate) memory: Arc<SharedMemory>,
    /// The launches that run, and what they know of closed sockets.
    pub(super) launches: Mutex<Launches>,
    /// The device's socket table.
    pub(crate) table: SocketTable,
    /// The slots for sockets that the host program opens.
    pub(crate) host_slots: HostSlots,
    /// The number of the launch that they belong to, once there is one.
    pub(crate) host_launch: OnceLock<LaunchId>,
    /// The launches' contexts, in the device's address space.
    pub(crate) contexts: u64,
    /// CUDA's side; `None` for the CPU device.
    pub(super) device: Option<Device>,
    // Dropped last, in this order: what the agent has mapped; the registration before the region it
    // registers (inside `memory`, and kept by the registration itself), the device's own memory
    // before the device.
    pub(super) _agent: SharedAgent,
    pub(super) registration: Option<Registration>,
    pub(super) _own: Arc<DeviceMemory>,
    /// They wake the data threads.
    pub(crate) doorbells: Arc<[OwnedFd]>,
}

impl AttachedDevice {
    /// The CUDA device; `None` for the CPU device.
    pub(crate) const fn cuda(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    pub(crate) fn launches(&self) -> MutexGuard<'_, Launches> {
        // Nothing that is called under the lock panics.
        self.launches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the attachment has ended, once it has.
    pub(crate) fn report(&self) -> CloseReport {
        let stats = self.link.stats();
        CloseReport { undelivered: stats.undelivered, unfinished: stats.opened.saturating_sub(stats.closed) }
    }

    /// Where the GPU finds the record for its panics; `None` for the CPU device, whose panics are
    /// caught.
    pub(crate) fn panic_record_address(&self) -> Option<u64> {
        self.registration.as_ref().map(|region| region.device_ptr() + self.memory.layout().panic)
    }

    /// Closes a socket of the host program that no running launch knows. What was published is
    /// delivered.
    pub(crate) fn close_socket(&self, handle: Handle) {
        let position = |offset| self.table.entry_word(handle, offset).map(|word| StreamWord(word).position());
        let ended = self.table.end(handle);
        if !matches!(ended, Ok(true)) {
            // A kernel has closed it, or the device's memory is gone and with it the attachment.
            return;
        }
        let mut request = Request::new(Op::Close, handle.slot(), handle.generation(), 0);
        request.send_position = position(offset_of!(Entry, send.position)).unwrap_or_default();
        request.recv_position = position(offset_of!(Entry, recv.position)).unwrap_or_default();
        self.link.ask(next_host_request(), request, Box::new(|_| {}));
    }
}

/// The right to an attached device: dropping it detaches the device.
///
/// The drop blocks, except inside a tokio runtime, where a thread finishes the work.
#[derive(Debug)]
pub(crate) struct OwnedDevice(Arc<AttachedDevice>);

impl OwnedDevice {
    pub(super) fn new(device: AttachedDevice) -> Self {
        Self(Arc::new(device))
    }

    pub(crate) const fn device(&self) -> &Arc<AttachedDevice> {
        &self.0
    }

    /// Closes all sockets, and waits until what was accepted is sent.
    pub(crate) fn close(self) -> CloseReport {
        let device = self.0.clone();
        drop(self);
        device.report()
    }
}

impl Drop for OwnedDevice {
    fn drop(&mut self) {
        let shared = self.0.clone();
        shared.memory.cancel_all();
        let wait = shared.link.detach();
        let finish = move || {
            wait();
            drop(shared);
        };
        if tokio::runtime::Handle::try_current().is_err() {
            return finish();
        }
        // An async context must not block. The thread keeps the proxy running until the close has
        // ended.
        if let Err(error) = threads::spawn("gpunet-close", finish) {
            tracing::warn!(%error, "no thread to wait for a close: what is not sent yet may be lost");
        }
    }
}

/// Closes on a thread of its own. If the future is dropped, the close continues.
pub(crate) async fn close_on_thread(close: impl FnOnce() -> CloseReport + Send + 'static) -> CloseReport {
    let (done, report) = tokio::sync::oneshot::channel();
    let close = move || {
        let _ = done.send(close());
    };
    match threads::spawn("gpunet-close", close) {
        Ok(_) => report.await.unwrap_or_default(),
        Err(error) => {
            // Dropped with the thread's body: the proxy closes it nevertheless.
            tracing::warn!(%error, "no thread to wait for a close");
            CloseReport::default()
        }
    }
}
