//! Sockets of host programs: of an attachment, and of a proxy.

use crate::api::attachment::Attachment;
use crate::api::proxy::Proxy;
use crate::host::Host;
use crate::model::error::AttachError;

impl Proxy {
    /// Makes sockets for this program: an attachment of its own, of the sizes in [`Proxy::config`].
    ///
    /// # Errors
    /// [`AttachError`], when there is not enough memory, the system refuses a thread, or the daemon
    /// refuses.
    ///
    /// # Examples
    /// ```
    /// # let proxy = gpunet_proxy::embed(gpunet_proxy::Config::small())?;
    /// let host = proxy.host()?;
    /// assert_eq!(host.usage().sockets, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn host(&self) -> Result<Host, AttachError> {
        let attachment = self.attach_cpu()?;
        let host = attachment.host()?;
        host.keep(attachment.owned);
        Ok(host)
    }
}

impl Attachment {
    /// Makes sockets for this program in the socket table of the attachment's kernels, so that a
    /// task and a kernel can be the two ends of a `peer` stream.
    ///
    /// Only the CPU device can do this: the CPU cannot reach the words of a GPU's `peer` streams.
    /// When the attachment is closed, calls on these sockets fail with ECANCELED.
    ///
    /// # Errors
    /// [`AttachError::HostOnGpu`], when the device is a GPU; [`AttachError::TooMany`], when all
    /// launch numbers are in use; [`AttachError::Thread`], when the system refuses a thread.
    ///
    /// # Examples
    /// ```
    /// # let proxy = gpunet_proxy::embed(gpunet_proxy::Config::small())?;
    /// let attachment = proxy.attach_cpu()?;
    /// let host = attachment.host()?; // connects to what the attachment's kernels bind
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn host(&self) -> Result<Host, AttachError> {
        Host::start(self.device())
    }
}
