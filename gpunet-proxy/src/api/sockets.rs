//! Sockets that the host program opens on an attachment's device.

use crate::api::attachment::Attachment;
use crate::socket::{ListeningSocket, PendingSocket, Socket, SocketError, TableSocket};
use gpunet_abi::{Handle, Options};
use std::net::SocketAddr;

impl Attachment {
    /// Connects a socket of this device to `addr`. The attempt begins at once.
    ///
    /// Cancel safe: a dropped future keeps no socket.
    ///
    /// # Errors
    /// As [`Host::connect`](crate::Host::connect). [`SocketError::TooManyHostSockets`], when all of
    /// the 256 slots for sockets of the host program are in use.
    pub fn connect(&self, addr: SocketAddr, options: Options) -> PendingSocket {
        self.sockets.connect(addr, options)
    }

    /// As [`Attachment::connect`], for programs without an executor: blocks until the connection is
    /// established or has failed.
    ///
    /// # Errors
    /// As [`Attachment::connect`].
    pub fn connect_blocking(&self, addr: SocketAddr, options: Options) -> Result<Socket, SocketError> {
        self.connect(addr, options).wait()
    }

    /// Listens at `addr` with a socket of this device; port 0 takes a free one. Accepted sockets
    /// inherit the options.
    ///
    /// # Errors
    /// As [`Host::bind`](crate::Host::bind). [`SocketError::TooManyHostSockets`].
    pub async fn listen(
        &self,
        addr: SocketAddr,
        options: Options,
        backlog: u32,
    ) -> Result<ListeningSocket, SocketError> {
        self.sockets.listen(addr, options, backlog).await
    }

    /// As [`Attachment::listen`], blocking for a turn of the control thread.
    ///
    /// # Errors
    /// As [`Attachment::listen`].
    pub fn listen_blocking(
        &self,
        addr: SocketAddr,
        options: Options,
        backlog: u32,
    ) -> Result<ListeningSocket, SocketError> {
        self.sockets.listen_blocking(addr, options, backlog)
    }

    /// Finds a socket of this device by its handle: a stream or a listener that a kernel has
    /// opened, or that the program has left to the kernels.
    ///
    /// # Errors
    /// [`SocketError::Failed`] with [`Error::BadHandle`](gpunet_abi::Error::BadHandle), when the
    /// handle names no connected stream and no listener.
    pub fn socket(&self, handle: Handle) -> Result<TableSocket, SocketError> {
        self.sockets.find(handle)
    }
}
