//! Sockets of a device that others have opened, by their handles.

use super::open::Opening;
use super::{HostLaunch, HostSockets, PendingSocket, SocketError};
use crate::attached::device::AttachedDevice;
use crate::attached::socket_table::Found;
use gpunet_abi::control::{Op, Request};
use gpunet_abi::entry::Kind;
use gpunet_abi::{Error, Handle, Options, TransportKind};
use std::net::SocketAddr;
use std::sync::Arc;

/// A socket in the table of a device, whoever has opened it: a kernel, or the program that
/// [left](super::Socket::into_handle) it to the kernels.
///
/// It does not own the socket: dropping it changes nothing, and the socket may be closed by a
/// kernel or the end of its launch at any time.
///
/// # Examples
/// ```
/// use gpunet_proxy::abi::Options;
///
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let number = attachment.listen_blocking("127.0.0.1:0".parse()?, Options::DEFAULT, 8)?.into_handle();
/// // ... kernels accept at it ...
/// let listener = attachment.socket(number)?;
/// println!("it listens at {:?}", listener.local_addr());
/// listener.close();
/// assert!(attachment.socket(number).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TableSocket {
    device: Arc<AttachedDevice>,
    host: Arc<HostLaunch>,
    handle: Handle,
    found: Found,
}

impl HostSockets {
    /// See [`Attachment::socket`](crate::Attachment::socket).
    pub(crate) fn find(&self, handle: Handle) -> Result<TableSocket, SocketError> {
        let (device, host) = (self.device().clone(), self.launch()?.clone());
        let found = device.table.find(handle).map_err(SocketError::Memory)?;
        match found {
            Some(found) if matches!(found.kind, Kind::Stream | Kind::Listener) => {
                Ok(TableSocket { device, host, handle, found })
            }
            _ => Err(SocketError::Failed(Error::BadHandle)),
        }
    }
}

impl TableSocket {
    /// The handle by which kernels of this device use the socket.
    #[must_use]
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns whether it is a listener; else it is a connected stream.
    #[must_use]
    pub fn is_listener(&self) -> bool {
        self.found.kind == Kind::Listener
    }

    /// Returns whether it is open still.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.device.table.is_open(self.handle).unwrap_or(false)
    }

    /// Returns the transport that carries the stream; `None` for a listener.
    #[must_use]
    pub const fn transport(&self) -> Option<TransportKind> {
        self.found.transport
    }

    /// Returns this end's address.
    #[must_use]
    pub const fn local_addr(&self) -> Option<SocketAddr> {
        self.found.local
    }

    /// Returns the peer's address; `None` for a listener.
    #[must_use]
    pub const fn peer_addr(&self) -> Option<SocketAddr> {
        self.found.peer
    }

    /// Accepts a connection at a listener, as
    /// [`ListeningSocket::accept`](super::ListeningSocket::accept). The socket has default options.
    ///
    /// # Errors
    /// As there; [`Error::InvalidArgument`] for a stream.
    pub fn accept(&self) -> PendingSocket {
        let opening = match self.is_listener() {
            true => accepting(&self.device, &self.host, self.handle, Options::DEFAULT),
            false => Err(SocketError::Failed(Error::InvalidArgument)),
        };
        PendingSocket::new(opening.map(|opening| (opening, self.host.clone())), Options::DEFAULT)
    }

    /// Closes the socket; if launches that run know it, when the last of them has ended. What was
    /// sent is still delivered. Does nothing if it is closed.
    pub fn close(self) {
        self.device.close_when_unknown(self.handle, &self.host);
    }
}

/// Asks for a connection at a listener.
pub(super) fn accepting(
    device: &Arc<AttachedDevice>,
    host: &HostLaunch,
    listener: Handle,
    options: Options,
) -> Result<Opening, SocketError> {
    let mut request = Request::new(Op::Accept, listener.slot(), listener.generation(), 0);
    (request.options, request.value) = (options, Request::UNCOUNTED);
    Opening::ask(device, host, request, |request, handle| {
        (request.target, request.target_generation) = (handle.slot(), handle.generation());
    })
}
