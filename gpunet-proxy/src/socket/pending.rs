//! Sockets that are being opened.

use super::open::Opening;
use super::{HostLaunch, Socket, SocketError};
use gpunet_abi::control::Reply;
use gpunet_abi::{Error, Options};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A socket that is being opened: by [`Attachment::connect`](crate::Attachment::connect), or by
/// [`ListeningSocket::accept`](super::ListeningSocket::accept).
///
/// It is a future, and holds neither the attachment nor the listener.
#[derive(Debug)]
#[must_use = "a socket that nobody waits for is closed"]
pub struct PendingSocket {
    /// Taken when it completes.
    asked: Option<Result<(Opening, Arc<HostLaunch>), SocketError>>,
    options: Options,
}

impl PendingSocket {
    pub(super) const fn new(
        asked: Result<(Opening, Arc<HostLaunch>), SocketError>,
        options: Options,
    ) -> Self {
        Self { asked: Some(asked), options }
    }

    /// Gives the attempt up. The future completes soon: with the socket, if it was open by then,
    /// else with ECANCELED. So a program that stops waiting for a connection loses none.
    ///
    /// # Examples
    /// ```
    /// use gpunet_proxy::abi::{Error, Options};
    /// use gpunet_proxy::socket::SocketError;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
    /// let listener = attachment.listen_blocking("127.0.0.1:0".parse()?, Options::DEFAULT, 8)?;
    /// let pending = listener.accept();
    /// pending.abandon();
    /// // Nobody has connected.
    /// assert!(matches!(pending.wait(), Err(SocketError::Failed(Error::Canceled))));
    /// # Ok(())
    /// # }
    /// ```
    pub fn abandon(&self) {
        if let Some(Ok((opening, _))) = &self.asked {
            opening.abandon();
        }
    }

    /// Blocks until it completes.
    ///
    /// # Errors
    /// As the call that began it.
    pub fn wait(mut self) -> Result<Socket, SocketError> {
        let (opening, host) =
            self.asked.take().unwrap_or_else(|| Err(SocketError::Failed(Error::InvalidArgument)))?;
        let (opening, reply) = opening.wait()?;
        socket(&opening, host, self.options, &reply)
    }
}

impl Future for PendingSocket {
    type Output = Result<Socket, SocketError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = match &mut self.asked {
            Some(Ok((opening, _))) => ready!(Pin::new(opening).poll(cx)),
            Some(Err(_)) | None => Err(SocketError::Failed(Error::InvalidArgument)),
        };
        let (opening, host) = match self.asked.take() {
            Some(asked) => asked?,
            None => return Poll::Ready(Err(SocketError::Failed(Error::InvalidArgument))),
        };
        Poll::Ready(reply.and_then(|reply| socket(&opening, host, self.options, &reply)))
    }
}

fn socket(
    opening: &Opening,
    host: Arc<HostLaunch>,
    options: Options,
    reply: &Reply,
) -> Result<Socket, SocketError> {
    Socket::new(opening.shared(), host, opening.handle(), options, reply)
}
