//! How the host program's sockets are opened and closed: a slot, a request to the proxy, an entry
//! in the device's table.

use super::HostLaunch;
use super::error::SocketError;
use crate::attached::device::AttachedDevice;
use crate::attached::socket_table::listener_entry;
use crate::model::ids::next_host_request;
use crate::model::message::Answer;
use gpunet_abi::control::{Descriptor, Reply, Request};
use gpunet_abi::entry::{Entry, Kind};
use gpunet_abi::opened::Opened;
use gpunet_abi::recycle::{self, SlotRing};
use gpunet_abi::region::{DEVICE, RegionOffset, SHARED};
use gpunet_abi::{Direction, Error, Handle, Options, SockAddr};
use gpunet_core::ids::HostRequestId;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// The recycling ring of the host program's slots.
struct HostRing<'a>(&'a AttachedDevice);

impl SlotRing for HostRing<'_> {
    // Ordering: Relaxed; `advance` decides.
    fn taken(&self) -> u64 {
        self.0.host_slots.taken.load(Ordering::Relaxed)
    }

    // Ordering: AcqRel among this program's threads: the cell is read before (release), and the
    // thread that takes a slot sees what its last user left in the table (acquire).
    fn advance(&self, ticket: u64, count: u64) -> Result<(), u64> {
        let taken = &self.0.host_slots.taken;
        taken.compare_exchange(ticket, ticket + count, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }

    // Pairs with the publish in the proxy's `recycle`: the ring cells below it are visible.
    fn reclaimed(&self) -> u64 {
        self.0.memory.host_reclaimed().observe()
    }

    fn cell(&self, ticket: u64) -> u32 {
        self.0.memory.host_cell(ticket)
    }
}

/// A socket that is being opened. Dropped, it is given up, and closed if it was opened after all.
#[derive(Debug)]
pub(super) struct Opening {
    shared: Arc<AttachedDevice>,
    id: HostRequestId,
    handle: Handle,
    /// `None` once the reply was taken.
    reply: Option<oneshot::Receiver<Reply>>,
}

impl Opening {
    /// Takes a slot and asks the proxy to open it. `name` enters the slot in the request, which has
    /// the socket's options.
    pub(super) fn ask(
        shared: &Arc<AttachedDevice>,
        host: &HostLaunch,
        mut request: Request,
        name: impl FnOnce(&mut Request, Handle),
    ) -> Result<Self, SocketError> {
        let slot = recycle::take(&HostRing(shared)).ok_or(SocketError::TooManyHostSockets)?;
        let geometry = shared.memory.geometry();
        if !(geometry.sockets..geometry.slots()).contains(&slot) {
            // Not what a proxy of this version wrote.
            return Err(SocketError::Failed(Error::Protocol));
        }
        // As a device does before a request names the slot. Nobody else writes these words now.
        shared.memory.published_words().get(slot as usize).set(0);
        shared.memory.lines_sent_words().get(slot as usize).set(0);
        shared.memory.consumed_words().get(slot as usize).set(0);
        let handle = shared.table.make(slot, host.id(), &request.options).map_err(SocketError::Memory)?;
        // The slot's last socket may have been closed with directions that stayed locked.
        for direction in [Direction::Send, Direction::Recv] {
            host.tell_taken(handle, direction, false);
        }
        name(&mut request, handle);
        request.launch = host.id().0;
        let (sender, reply) = oneshot::channel();
        let keep = shared.clone();
        let answer: Answer = Box::new(move |reply: &Reply| {
            if sender.send(*reply).is_err() {
                discard(&keep, handle, reply);
            }
        });
        let id = next_host_request();
        shared.link.ask(id, request, answer);
        Ok(Self { shared: shared.clone(), id, handle, reply: Some(reply) })
    }

    /// The handle of the socket.
    pub(super) const fn handle(&self) -> Handle {
        self.handle
    }

    /// The attachment.
    pub(super) const fn shared(&self) -> &Arc<AttachedDevice> {
        &self.shared
    }

    fn replied(&mut self, reply: Option<Reply>) -> Result<Reply, SocketError> {
        self.reply = None;
        let Some(reply) = reply else {
            // There will be no reply: the proxy is gone.
            let _ = self.shared.table.end(self.handle);
            return Err(SocketError::Failed(Error::NetworkDown));
        };
        if reply.errno == 0 {
            return Ok(reply);
        }
        let _ = self.shared.table.end(self.handle);
        Err(Error::from_errno(reply.errno as i32).into())
    }

    /// Blocks until the reply comes.
    pub(super) fn wait(mut self) -> Result<(Self, Reply), SocketError> {
        let reply = self.reply.take().and_then(|reply| reply.blocking_recv().ok());
        let reply = self.replied(reply)?;
        Ok((self, reply))
    }

    /// Asks for a reply now: ECANCELED, unless the socket is open by then.
    pub(super) fn abandon(&self) {
        if self.reply.is_some() {
            self.shared.link.abandon(self.id);
        }
    }
}

impl Future for Opening {
    type Output = Result<Reply, SocketError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(reply) = &mut self.reply else {
            return Poll::Ready(Err(SocketError::Failed(Error::InvalidArgument)));
        };
        match Pin::new(reply).poll(cx) {
            Poll::Ready(reply) => Poll::Ready(self.replied(reply.ok())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let Some(mut reply) = self.reply.take() else { return };
        // From here on the reply is either in the channel or goes back to its sender.
        reply.close();
        match reply.try_recv() {
            Ok(reply) => discard(&self.shared, self.handle, &reply),
            Err(_) => self.shared.link.abandon(self.id),
        }
    }
}

/// Closes what a reply opened that nobody waits for.
fn discard(shared: &AttachedDevice, handle: Handle, reply: &Reply) {
    if reply.errno == 0 {
        shared.close_socket(handle);
    } else {
        let _ = shared.table.end(handle);
    }
}

impl AttachedDevice {
    /// Enters a stream in the table, as the proxy describes it.
    pub(super) fn enter_stream(
        &self,
        handle: Handle,
        host: &HostLaunch,
        options: Options,
        d: &Descriptor,
    ) -> Result<Opened, SocketError> {
        let geometry = self.memory.geometry();
        let resolve = |place, len| self.table.resolve(place, len);
        let entered = Opened::of(d, geometry.slots(), geometry.shards, resolve)
            .map_err(SocketError::from)
            .map(Opened::without_units)
            .and_then(|opened| {
                let mut entry = Entry::fresh(handle.generation(), options);
                (entry.send, entry.recv, entry.remote_part) = (opened.send, opened.recv, opened.remote_part);
                (entry.local, entry.peer) = (d.local, d.peer);
                (entry.link, entry.transport) = (d.link, d.transport);
                self.clear_line(d.recv_line)?;
                self.table.enter(handle, Kind::Stream, host.id(), &entry).map_err(SocketError::Memory)?;
                Ok(opened)
            });
        entered.inspect_err(|_| self.close_socket(handle))
    }

    /// Sets the line of a receive ring to zero before it is first read. In an arena, this is done
    /// when rings are given back.
    fn clear_line(&self, line: RegionOffset) -> Result<(), SocketError> {
        match line.region() {
            SHARED if line.0 != 0 => {
                self.memory.clear_line(line.offset());
                Ok(())
            }
            DEVICE => self.table.clear_line(line.offset()).map_err(SocketError::Memory),
            _ => Ok(()),
        }
    }

    /// Enters a listener in the table.
    pub(super) fn enter_listener(
        &self,
        handle: Handle,
        host: &HostLaunch,
        options: Options,
        local: SockAddr,
    ) -> Result<(), SocketError> {
        let entry = listener_entry(handle.generation(), options, local);
        let entered =
            self.table.enter(handle, Kind::Listener, host.id(), &entry).map_err(SocketError::Memory);
        entered.inspect_err(|_| self.close_socket(handle))
    }

    /// Closes a socket of the host program, or lets the end of the last launch that knows it do so.
    pub(super) fn close_when_unknown(&self, handle: Handle, host: &HostLaunch) {
        let users = self.table.users(handle).unwrap_or_default();
        let mut launches = self.launches();
        match launches.running(users, host.id()) {
            0 => {
                drop(launches);
                self.close_socket(handle);
            }
            users => launches.close_after(handle, users),
        }
    }
}
