//! A listening identifier.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::super::{Listening, Request};
use super::cm::Id;
use super::connection::Connection;
use super::error::errno;
use super::event::Event;
use super::handshake::RdmaHandshake;
use super::parts::{Parts, Stage};
use super::stack::Stack;

/// Takes the requests that come to an address.
///
/// They wait in the kernel, in order and up to the backlog, until the listener takes them.
pub(super) struct RdmaListening {
    id: Id,
    stack: Arc<Stack>,
}

impl RdmaListening {
    pub(super) fn new(stack: Arc<Stack>, addr: SocketAddr, backlog: u32) -> io::Result<Self> {
        if addr.port() == 0 {
            return Err(errno(libc::EINVAL));
        }
        let mut id = Id::new(stack.library, Some(stack.pool.counts()))?;
        id.bind(addr)?;
        // 0 would be the system's largest.
        id.listen(i32::try_from(backlog.max(1)).unwrap_or(i32::MAX))?;
        Ok(Self { id, stack })
    }
}

impl RdmaListening {
    /// The request that an event brought; `None` when its client has gone.
    fn request(&self, event: Event, mut id: Id) -> io::Result<Option<Request>> {
        id.set_ack_timeout();
        let parts = Parts { id, queues: None, stage: Stage::Requested };
        let mut connection = Connection::new(parts, Arc::clone(&self.stack.janitor_thread.janitor));
        let parts = connection.parts_mut();
        // Any event after the request means that the client has gone.
        if parts.has_ended()? || !parts.id.is_pending() {
            return Ok(None);
        }
        let context = self.stack.pool.device(&connection.parts().id)?;
        let handshake = RdmaHandshake::new(connection, context, event.parameters, Arc::clone(&self.stack));
        Ok(Some(Request { handshake: Box::new(handshake), private_data: event.private_data }))
    }
}

impl Listening for RdmaListening {
    fn next(&mut self) -> io::Result<Request> {
        loop {
            let (event, id) = self.id.next_request(self.stack.pool.counts())?;
            // Other events of a listener concern devices: it continues with the remaining devices.
            let Some(id) = id else { continue };
            match self.request(event, id) {
                Ok(Some(request)) => return Ok(request),
                Ok(None) => {}
                // Its client is refused by the drop. Those behind it raise no event again.
                Err(error) => tracing::warn!(%error, "a connection request is refused"),
            }
        }
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.id.as_fd()
    }
}
