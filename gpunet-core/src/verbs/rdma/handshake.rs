//! A connection on its way.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::super::{Depth, DeviceInfo, Endpoint, Handshake, Keys, Memory, Pending};
use super::connection::Connection;
use super::context::Context;
use super::counts::Kind;
use super::endpoint::RdmaEndpoint;
use super::error::errno;
use super::event::{Event, Parameters};
use super::objects::CompletionQueue;
use super::parts::{Queues, Stage};
use super::stack::Stack;
use super::wait::expect;

/// Most private data of a request over InfiniBand and RoCE. iWARP takes more; callers shall not
/// come to rely on that.
const MOST_REQUEST_DATA: usize = 56;

/// A handshake whose device is known.
pub(super) struct RdmaHandshake {
    connection: Connection,
    context: Arc<Context>,
    /// Our own when connecting, the client's when accepting.
    parameters: Parameters,
    local: SocketAddr,
    peer: SocketAddr,
    stack: Arc<Stack>,
    depth: Depth,
}

impl RdmaHandshake {
    pub(super) fn new(
        connection: Connection,
        context: Arc<Context>,
        parameters: Parameters,
        stack: Arc<Stack>,
    ) -> Self {
        let (local, peer) = (connection.parts().id.local(), connection.parts().id.peer());
        let depth = Depth { sends: 0, receives: 0 };
        Self { connection, context, parameters, local, peer, stack, depth }
    }

    async fn connected(mut self, private_data: Vec<u8>) -> io::Result<(Box<dyn Endpoint>, Vec<u8>)> {
        let parts = self.connection.parts_mut();
        if parts.stage != Stage::Fresh || parts.queues.is_none() {
            return Err(errno(libc::EINVAL));
        }
        if private_data.len() > MOST_REQUEST_DATA {
            return Err(errno(libc::EINVAL));
        }
        // From now on the peer may write, whatever the call returns.
        parts.stage = Stage::Connecting;
        parts.id.connect(self.parameters, &private_data)?;
        let event = expect(&mut parts.id, Event::is_established).await?;
        Ok((self.into_endpoint(), event.private_data))
    }

    async fn accepted(mut self, private_data: Vec<u8>) -> io::Result<Box<dyn Endpoint>> {
        let parts = self.connection.parts_mut();
        if parts.stage != Stage::Requested || parts.queues.is_none() {
            return Err(errno(libc::EINVAL));
        }
        if !parts.id.is_pending() {
            return Err(errno(libc::ECONNABORTED));
        }
        parts.stage = Stage::Connecting;
        parts.id.accept(self.parameters, &private_data)?;
        expect(&mut parts.id, Event::is_established).await?;
        Ok(self.into_endpoint())
    }

    fn into_endpoint(mut self) -> Box<dyn Endpoint> {
        self.connection.parts_mut().stage = Stage::Open;
        Box::new(RdmaEndpoint::new(self.connection, self.depth, self.context.info.iwarp))
    }
}

impl Handshake for RdmaHandshake {
    fn local(&self) -> SocketAddr {
        self.local
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn device(&self) -> &DeviceInfo {
        &self.context.info
    }

    fn prepare(&mut self, memory: &Memory, depth: Depth) -> io::Result<Keys> {
        let parts = self.connection.parts_mut();
        if parts.queues.is_some() {
            return Err(errno(libc::EALREADY));
        }
        let lease = self.stack.pool.lease(&self.context, memory, depth.receives)?;
        let completions = CompletionQueue::new(&self.context, depth.sends.saturating_add(depth.receives))?;
        let protection = lease.domain().protection();
        parts.id.create_queue_pair(protection, &completions, depth)?;
        let counted = self.stack.pool.counts().token(Kind::QueuePair);
        let keys = lease.domain().keys();
        parts.queues = Some(Queues { completions, lease, sends: 0, receives: 0, _counted: counted });
        for slot in 0..depth.receives {
            parts.post_receive(slot as usize)?;
        }
        self.depth = depth;
        Ok(keys)
    }

    fn connect(self: Box<Self>, private_data: &[u8]) -> Pending<(Box<dyn Endpoint>, Vec<u8>)> {
        Box::pin(self.connected(private_data.to_vec()))
    }

    fn accept(self: Box<Self>, private_data: &[u8]) -> Pending<Box<dyn Endpoint>> {
        Box::pin(self.accepted(private_data.to_vec()))
    }

    fn reject(self: Box<Self>) {
        // As dropping does for one that was asked and not answered.
    }
}
