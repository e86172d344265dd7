//! The connection of a client, and why a session ends early.

use crate::daemon::admit::Refusal;
use crate::os::client_socket::ClientSocket;
use crate::os::user_work::UserWork;
use crate::wire::{self, BadFrame, Incoming, MAX_FRAME, Packet, Sent, ToProgram};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

/// How long receiving a descriptor may take. A longer wait would depend on the client's user, and
/// the session would not notice the end of the connection during it.
const DESCRIPTOR_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may take to read the last frame of its connection.
pub(super) const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a client's connection is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error(transparent)]
    Frame(#[from] BadFrame),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Breach(&'static str),
}

/// A frame of the client's agent that nothing asked for.
pub(super) const UNEXPECTED: SessionError = SessionError::Breach("an answer of its agent that cannot be");
pub(super) const TOO_MANY: SessionError =
    SessionError::Breach("more requests without an answer than it has sockets for");
pub(super) const TWICE: SessionError = SessionError::Breach("two requests of one number");

/// The connection of a client.
pub(super) struct ClientConnection {
    pub(super) socket: AsyncFd<Arc<ClientSocket>>,
    pub(super) buffer: Box<[u8]>,
    pub(super) work: Arc<UserWork>,
    pub(super) uid: u32,
}

impl ClientConnection {
    /// The next packet; `None` at the end.
    pub(super) async fn recv(&mut self) -> io::Result<Option<Incoming>> {
        let buffer = &mut self.buffer;
        self.socket.async_io(Interest::READABLE, |socket| wire::recv_plain(socket.as_fd(), buffer)).await
    }

    /// Receives the next packet, which has descriptors, and passes it to `check`, both on a thread
    /// of its user.
    pub(super) async fn take<T: Send + 'static>(
        &self,
        check: impl FnOnce(Packet) -> Result<T, SessionError> + Send + 'static,
    ) -> Result<T, SessionError> {
        if !self.socket.get_ref().takes_descriptors() {
            return Err(SessionError::Breach("a descriptor that it was not asked for"));
        }
        let socket = self.socket.get_ref().clone();
        let taken = self.work.run(self.uid, move || {
            let packet = wire::recv(socket.as_fd(), &mut vec![0; MAX_FRAME])?;
            packet.ok_or(SessionError::Breach("no frame")).and_then(check)
        });
        match timeout(DESCRIPTOR_TIMEOUT, taken).await {
            Ok(taken) => taken.unwrap_or(Err(SessionError::Breach("nobody takes what it sends"))),
            Err(_) => Err(SessionError::Breach("a descriptor that takes too long")),
        }
    }

    pub(super) async fn send(&self, bytes: &[u8], fds: &[Sent]) -> io::Result<()> {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        self.socket.async_io(Interest::WRITABLE, |socket| wire::send(socket.as_fd(), bytes, &fds)).await
    }

    pub(super) async fn refuse(&self, refusal: Refusal) {
        let Refusal { errno, reason } = refusal;
        let bytes = wire::encode_first(&ToProgram::Refused { errno, reason });
        let _ = timeout(GOODBYE_TIMEOUT, self.send(&bytes, &[])).await;
    }
}
