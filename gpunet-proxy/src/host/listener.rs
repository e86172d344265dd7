//! Listeners of host programs.

use super::ask::{Asking, tell};
use super::reactor::WaitId;
use super::{Core, Stream};
use crate::socket::SocketError;
use gpunet_abi::Error;
use gpunet_device::cpu::deferred::{self, Opening};
use gpunet_device::cpu::watch::Watch;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::Mutex;

/// A socket that accepts connections for tokio tasks, over every transport that its options allow.
///
/// Kernels have [`gpunet_device::Listener`]. What the host program opens for kernels is a
/// [`ListeningSocket`](crate::socket::ListeningSocket).
///
/// Dropping it closes it: connections that were not accepted are refused or reset.
///
/// # Examples
/// A server with one task for each connection:
///
/// ```no_run
/// use gpunet_proxy::abi::Options;
///
/// # async fn serve(host: gpunet_proxy::Host) -> Result<(), Box<dyn std::error::Error>> {
/// let listener = host.bind("0.0.0.0:7777".parse()?, Options::DEFAULT, 128).await?;
/// loop {
///     let (mut stream, peer) = listener.accept().await?;
///     println!("{peer} by {:?}", stream.transport());
///     tokio::spawn(async move {
///         let (read, write) = stream.split();
///         tokio::io::copy(read, write).await
///     });
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    /// The accept request under way. It outlives the future that made it, so a connection that was
    /// taken for a dropped future goes to the next one. The lock keeps the order of the accepting
    /// tasks.
    asking: Mutex<Option<Asking>>,
    device: gpunet_device::Listener,
    addr: SocketAddr,
    id: WaitId,
    core: Arc<Core>,
}

impl Listener {
    pub(super) fn new(core: &Arc<Core>, device: gpunet_device::Listener) -> Result<Self, SocketError> {
        let addr = device.local_addr().to_std().ok_or(Error::Protocol)?;
        Ok(Self { asking: Mutex::new(None), device, addr, id: core.reactor.id(), core: core.clone() })
    }

    /// Accepts the connection that has waited longest.
    ///
    /// Any number of tasks may accept at the same time. The future is cancel safe: if it is
    /// dropped, the next accept takes the connection.
    ///
    /// A connection for which there is no ring memory or file descriptor stays in the backlog, and
    /// the accept waits.
    ///
    /// # Errors
    /// [`SocketError::TooManySockets`], when there is no socket slot for it (the connection stays
    /// in the backlog); [`SocketError::Failed`] with ENETDOWN, or with ECANCELED after
    /// [`Host::close`](super::Host::close).
    ///
    /// # Examples
    /// ```
    /// use gpunet_proxy::abi::Options;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = gpunet_proxy::embed(gpunet_proxy::Config::small())?.host()?;
    /// let listener = host.bind("127.0.0.1:0".parse()?, Options::DEFAULT, 128).await?;
    /// let client = std::net::TcpStream::connect(listener.local_addr()?)?;
    /// let (stream, peer) = listener.accept().await?;
    /// assert_eq!(peer, client.local_addr()?);
    /// # drop(stream);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn accept(&self) -> Result<(Stream, SocketAddr), SocketError> {
        let mut asking = self.asking.lock().await;
        loop {
            if asking.is_none() {
                self.await_ready().await?;
                let opening = Opening::accept(self.core.net, self.device.handle())?;
                *asking = Some(Asking::new(&self.core, opening));
            }
            let Some(pending) = asking.as_mut() else { continue };
            let (opening, reply) = (pending.opening(), (&mut *pending).await);
            *asking = None;
            match reply.and_then(|reply| Ok((opening.stream(&reply)?, reply))) {
                Ok((stream, reply)) => {
                    let stream = Stream::new(&self.core, stream, &reply.descriptor);
                    let peer = stream.peer()?;
                    return Ok((stream, peer));
                }
                // Another listener of that address, or a client that went away, was faster; or
                // there is no ring memory or descriptor for it now, and the listener is not ready
                // until there may be.
                Err(Error::WouldBlock | Error::NoBuffers | Error::TooManyFiles) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns once a connection is waiting.
    async fn await_ready(&self) -> Result<(), Error> {
        let watch = Watch::connections(self.core.net, &self.device);
        poll_fn(|cx| {
            if watch.is_over() {
                return Poll::Ready(Ok(()));
            }
            match self.core.reactor.register(self.id, Some(watch), cx.waker()) {
                Err(error) => Poll::Ready(Err(error)),
                // Checked again after the registration: see `reactor`.
                Ok(()) if watch.is_over() => Poll::Ready(Ok(())),
                Ok(()) => Poll::Pending,
            }
        })
        .await
    }

    /// Returns the address that it listens at, with the actual port.
    ///
    /// # Errors
    /// None; the signature is that of tokio's listeners.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.core.reactor.forget(self.id);
        if let Ok(close) = deferred::close(self.core.net, self.device.handle()) {
            tell(&self.core.shared, close);
        }
    }
}
