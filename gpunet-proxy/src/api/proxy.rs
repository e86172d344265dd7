//! A proxy as programs see it: in this process, or as a daemon.

use crate::api::attachment::Attachment;
use crate::attached::local;
use crate::attached::placement;
use crate::attached::prepare::Wanted;
use crate::attached::remote::{DaemonInfo, Remote};
use crate::attached::session;
use crate::engine::runtime::{self, Runtime};
use crate::model::config::Config;
use crate::model::error::{AttachError, DaemonError, EmbedError, OpenError, SnapshotError};
use crate::model::snapshot::Snapshot;
use crate::os::places;
use gpu_usermap::cuda::Device;
use std::path::Path;
use std::sync::Arc;

/// A running proxy, in this process or as a daemon.
///
/// Clones share it. A proxy in this process stops when its last clone and its last attachment are
/// dropped.
///
/// # Examples
/// ```
/// use gpunet_proxy::{Config, embed};
///
/// let proxy = embed(Config::small())?;
/// assert!(proxy.daemon().is_none(), "it runs in this process");
///
/// // Clones share the proxy, so these two reach each other over the `peer` transport.
/// let other = proxy.clone();
/// let (server, client) = (proxy.attach_cpu()?, other.attach_cpu()?);
/// assert_eq!(proxy.snapshot()?.clients.len(), 2);
/// # drop((server, client));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Proxy {
    pub(crate) side: Side,
}

/// Where a proxy's threads are.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// In this process.
    Embedded(Arc<Runtime>),
    /// In a daemon.
    Daemon(Arc<Remote>),
}

/// Starts a proxy in this process.
///
/// It runs on threads of its own (data threads, one control thread with a private tokio runtime,
/// one heartbeat thread), so it works with and without a runtime of the caller's.
///
/// # Errors
/// [`EmbedError`], when a setting is invalid or the system refuses a thread.
///
/// # Examples
/// ```
/// let proxy = gpunet_proxy::embed(gpunet_proxy::Config::small())?;
/// let attachment = proxy.attach_cpu()?;
/// assert_eq!(attachment.close().undelivered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn embed(config: Config) -> Result<Proxy, EmbedError> {
    Ok(Proxy { side: Side::Embedded(runtime::start(config)?) })
}

/// Joins the daemon that listens at `path`.
///
/// The result is a [`Proxy`] like an embedded one: attachments, kernels and host programs see no
/// difference. Each attachment has a connection of its own. Only the settings `sockets`,
/// `controls`, `shared_rings`, `device_rings` and `placement` are the program's, and the daemon
/// refuses more than it allows; the others are the daemon's.
///
/// If the daemon ends, all sockets report ENETDOWN at once. Attaching again (with the same `Proxy`,
/// or after a new `attach`) works as soon as a daemon runs again.
///
/// The call blocks until the daemon has answered.
///
/// # Errors
/// [`DaemonError`], when no daemon listens at `path`, it does not serve this program, or a setting
/// is invalid.
///
/// # Examples
/// ```no_run
/// use gpunet_proxy::{Config, DaemonError, attach, places};
///
/// match attach(&places::daemon_path(), Config::default()) {
///     Ok(proxy) => println!("{:?}", proxy.daemon()),
///     Err(DaemonError::NotThere { path, .. }) => println!("start gpunetd: nobody listens at {}", path.display()),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attach(path: &Path, config: Config) -> Result<Proxy, DaemonError> {
    Ok(Proxy { side: Side::Daemon(Arc::new(Remote::reach(path, config)?)) })
}

/// Joins the daemon at `path` if one listens there, else starts a proxy in this process.
///
/// Without a path it uses [`places::daemon_path`]. The log and [`Proxy::daemon`] say which of the
/// two happened.
///
/// # Errors
/// [`OpenError`]. A daemon that refuses is an error, not a reason to start a proxy here: a program
/// that the administrator has excluded, or whose version does not fit, must not bypass the daemon
/// unnoticed.
///
/// # Examples
/// ```
/// use gpunet_proxy::{Config, open};
/// use std::path::Path;
///
/// let proxy = open(Some(Path::new("/run/my-program/gpunetd.sock")), Config::small())?;
/// match proxy.daemon() {
///     Some(daemon) => println!("attached to gpunetd {}, process {}", daemon.version, daemon.pid),
///     None => println!("the proxy runs in this process"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open(path: Option<&Path>, config: Config) -> Result<Proxy, OpenError> {
    let path = path.map_or_else(places::daemon_path, Path::to_owned);
    match attach(&path, config.clone()) {
        Ok(proxy) => {
            tracing::info!(path = %path.display(), "attached to a daemon");
            Ok(proxy)
        }
        Err(DaemonError::NotThere { .. }) => {
            tracing::info!(path = %path.display(), "no daemon there: the proxy runs in this process");
            Ok(embed(config)?)
        }
        Err(error) => Err(error.into()),
    }
}

impl Proxy {
    /// Returns the settings that the proxy runs with; for a daemon, those that this program asks
    /// for.
    #[must_use]
    pub fn config(&self) -> &Config {
        match &self.side {
            Side::Embedded(runtime) => &runtime.config,
            Side::Daemon(remote) => &remote.config,
        }
    }

    /// Returns the daemon, or `None` if the proxy runs in this process.
    #[must_use]
    pub fn daemon(&self) -> Option<&DaemonInfo> {
        match &self.side {
            Side::Embedded(_) => None,
            Side::Daemon(remote) => Some(&remote.info),
        }
    }

    /// Returns what the proxy holds now: attachments and sockets, with transport, placement and
    /// totals. A daemon shows what this user may see.
    ///
    /// Blocks until the control plane, or the daemon, has answered.
    ///
    /// # Errors
    /// [`SnapshotError::Stopped`] after [`Proxy::abort`], in this process;
    /// [`SnapshotError::NoAnswer`], when the control plane does not answer;
    /// [`SnapshotError::Daemon`], when the daemon cannot be asked.
    ///
    /// # Examples
    /// ```
    /// # let proxy = gpunet_proxy::embed(gpunet_proxy::Config::small())?;
    /// let _attachment = proxy.attach_cpu()?;
    /// for client in proxy.snapshot()?.clients {
    ///     println!("{} ({}): {} sockets", client.command, client.device, client.sockets);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        match &self.side {
            Side::Embedded(runtime) => runtime.snapshot(),
            Side::Daemon(remote) => Ok(session::snapshot(&remote.info.path)?),
        }
    }

    /// Stops the proxy at once, without flushing. For an orderly end, close the attachments.
    ///
    /// Every socket of every attachment reports ENETDOWN, and calls of kernels that wait return it.
    /// A daemon continues to run; to it, this program seems to have been killed.
    ///
    /// # Examples
    /// ```
    /// use gpunet_proxy::{AttachError, SnapshotError};
    /// # let proxy = gpunet_proxy::embed(gpunet_proxy::Config::small())?;
    ///
    /// proxy.abort();
    /// assert!(matches!(proxy.attach_cpu(), Err(AttachError::Stopped)));
    /// assert!(matches!(proxy.snapshot(), Err(SnapshotError::Stopped)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(&self) {
        match &self.side {
            Side::Embedded(runtime) => runtime.stop(),
            Side::Daemon(remote) => remote.stop(),
        }
    }
}

impl Proxy {
    /// Attaches the CPU device: kernels run as threads of this process.
    ///
    /// # Errors
    /// [`AttachError::Region`], when there is not enough memory; [`AttachError::Daemon`], when the
    /// daemon refuses; [`AttachError::Stopped`] after [`Proxy::abort`].
    ///
    /// # Examples
    /// ```
    /// # let proxy = gpunet_proxy::embed(gpunet_proxy::Config::small())?;
    /// let attachment = proxy.attach_cpu()?;
    /// assert_eq!(attachment.device_name(), "cpu");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attach_cpu(&self) -> Result<Attachment, AttachError> {
        self.attach(None)
    }

    /// Attaches a CUDA device: kernels run there as PTX.
    ///
    /// # Errors
    /// [`AttachError`], when memory cannot be had or registered, or the daemon refuses.
    ///
    /// # Examples
    /// ```no_run
    /// use gpu_usermap::cuda::Cuda;
    ///
    /// let gpu = Cuda::load()?.device(0)?;
    /// let proxy = gpunet_proxy::embed(gpunet_proxy::Config::default())?;
    /// let attachment = proxy.attach_cuda(&gpu)?;
    /// println!("{} has sockets", attachment.device_name());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attach_cuda(&self, device: &Device) -> Result<Attachment, AttachError> {
        self.attach(Some(device))
    }

    fn attach(&self, device: Option<&Device>) -> Result<Attachment, AttachError> {
        let config = self.config();
        let plan = placement::plan(config, device)?;
        let device_rings = if device.is_some() || plan.in_device_memory() { config.device_rings } else { 0 };
        let wanted = Wanted { device, plan, device_rings };
        match &self.side {
            Side::Embedded(runtime) => local::attach(runtime, &wanted).map(Attachment::new),
            Side::Daemon(remote) => remote.attach(&wanted).map(Attachment::new),
        }
    }
}
