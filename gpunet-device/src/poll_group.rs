//! Poll groups: blocks wait for many sockets, and each event goes to one of them.
//!
//! [`PollGroup`] is what epoll is on Linux. Where [`crate::poll()`] examines every socket of its
//! set in each call, a wait costs the same for ten sockets as for ten thousand, and any number of
//! groups of threads may wait. How it works is in [`gpunet_abi::poll_group`].
//!
//! | file | holds |
//! |---|---|
//! | `event` | [`Event`] and [`Events`] |
//! | `wait` | [`PollGroup::wait`] |
//! | `settle` | a socket that a block holds is looked at: delivered, or armed |
//! | `change` | add, modify, remove, rearm |
//!
//! What groups and sockets are to each other lies in the table below: `member`, `lists`,
//! `membership`.

mod change;
mod event;
mod settle;
mod wait;

pub use event::{Event, Events};

use crate::group::outcome::by_leader;
use crate::socket::close::close;
use crate::socket::request;
use crate::table::lists::List;
use crate::table::member::Stack;
use crate::table::slots::{self, Caller};
use crate::wait::deadline::Deadline;
use crate::{Group, Net};
use gpunet_abi::control::{Op, Reply};
use gpunet_abi::entry::Kind;
use gpunet_abi::poll_group::{LISTS, list_bytes};
use gpunet_abi::{Error, Handle, Options, Result};

/// A set of sockets that groups of threads wait for, in the sense of epoll: level-triggered, and
/// each event is one group's.
///
/// A delivered socket belongs to the group of threads that got it: nobody else gets an event of it
/// before that group waits again, rearms it, or takes it out. So a group may read and write the
/// socket without a lock. If there is more to read then, the socket is delivered again, to
/// whichever group waits.
///
/// A socket is in one poll group at most. It leaves the group when it is closed. Dropping a
/// `PollGroup` does nothing; see [`PollGroup::close`]. Any number of groups of threads, and
/// kernels, share one by its handle.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Buffer, Group, Handle, Listener, Net, PollGroup, RecvHalf, Result, Timeout};
/// # use gpunet_device::{poll::POLLIN, poll_group::Events};
/// /// Counts the bytes of all connections; `memory` has room for the events.
/// fn serve<G: Group>(g: &G, net: Net, listener: Listener, memory: Buffer) -> Result<u64> {
///     let group = PollGroup::create(g, net, 1000)?;
///     group.add(g, listener.handle(), POLLIN, 0)?;
///     let (mut events, mut total) = (Events::new(memory), 0);
///     loop {
///         group.wait(g, &mut events, Timeout::NEVER)?;
///         for index in 0..events.len() {
///             let event = events.get(index);
///             if event.token == 0 {
///                 let stream = listener.try_accept(g)?;
///                 group.add(g, stream.handle(), POLLIN, 1)?;
///             } else if let Some(handle) = Handle::from_raw(event.handle) {
///                 let mut half = RecvHalf::from_handle(g, net, handle)?;
///                 let n = half.try_peek(g, usize::MAX)?.len();
///                 half.release(g, n);
///                 total += n as u64;
///                 if n == 0 {
///                     return Ok(total); // the first connection has ended
///                 }
///             }
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PollGroup {
    net: Net,
    handle: Handle,
}

impl PollGroup {
    /// Makes a poll group for up to `capacity` sockets; 0: as many as the attachment has.
    ///
    /// Its lists take about 32 bytes of ring memory for each socket. A launch that is finished
    /// closes it like a socket.
    ///
    /// # Cooperation
    /// All lanes call it with the same arguments and get the same group.
    ///
    /// # Errors
    /// TooManySockets; NoBuffers, when ring memory is short; Canceled; NetworkDown; Protocol.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, PollGroup, Result};
    /// # fn example<G: Group>(g: &G, net: Net) -> Result<()> {
    /// let group = PollGroup::create(g, net, 1000)?;
    /// group.close(g)
    /// # }
    /// ```
    #[inline(never)]
    pub fn create<G: Group>(g: &G, net: Net, capacity: u32) -> Result<Self> {
        let raw = by_leader(g, || create(net, Caller::of(g), capacity))?;
        match Handle::from_raw(raw as i32) {
            Some(handle) => Ok(Self { net, handle }),
            None => Err(Error::Protocol),
        }
    }

    /// The poll group that a handle names.
    ///
    /// # Errors
    /// BadHandle when it is stale; InvalidArgument when it names a socket.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Error, Group, Handle, Net, PollGroup, Result, poll_group::Events, Timeout};
    /// # fn example<G: Group>(g: &G, net: Net, raw: i32, mut events: Events) -> Result<()> {
    /// // One block made the group and left `raw`, the handle's number, in memory.
    /// let handle = Handle::from_raw(raw).ok_or(Error::BadHandle)?;
    /// PollGroup::from_handle(g, net, handle)?.wait(g, &mut events, Timeout::NEVER)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_handle<G: Group>(g: &G, net: Net, handle: Handle) -> Result<Self> {
        g.sync();
        let group = Self { net, handle };
        by_leader(g, || group.check().map(|()| 0))?;
        Ok(group)
    }

    /// The group's handle, by which other groups of threads and later kernels find it.
    #[must_use]
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// Closes the poll group. Its sockets stay open; waits end with BadHandle.
    ///
    /// # Cooperation
    /// All lanes call it.
    ///
    /// # Errors
    /// BadHandle when it is closed already; TimedOut; NetworkDown.
    ///
    /// # Examples
    ///
    /// See [`PollGroup::create`].
    #[inline(never)]
    pub fn close<G: Group>(self, g: &G) -> Result<()> {
        g.sync();
        by_leader(g, || close(self.net, self.handle, Kind::Group))?;
        Ok(())
    }

    /// Checks that the handle names an open poll group. By one lane.
    ///
    /// # Errors
    /// BadHandle; InvalidArgument; NetworkDown.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.net.is_attached() {
            return Err(Error::NetworkDown);
        }
        match slots::kind_of(self.net, self.handle)? {
            Kind::Group => Ok(()),
            _ => Err(Error::InvalidArgument),
        }
    }
}

/// The leader's part of [`PollGroup::create`].
#[inline(never)]
fn create(net: Net, caller: Caller, capacity: u32) -> Result<u64> {
    if !net.is_attached() {
        return Err(Error::NetworkDown);
    }
    let slots = net.context().slots;
    let capacity = if capacity == 0 || capacity > slots { slots } else { capacity };
    let (mut request, mut reply) = (request::fresh(net, Op::Group), Reply::new(0, 0));
    request.value = u64::from(capacity);
    let handle =
        request::open(net, caller, &Options::DEFAULT, true, Deadline::NEVER, &mut request, &mut reply)?;
    let (cells, lists) = (reply.descriptor.recv_log2, reply.descriptor.send_log2);
    let at = net.resolve(reply.descriptor.recv_ring, list_bytes(lists as usize, u64::from(cells)));
    let at = match at {
        Some(at) if at.is_multiple_of(64) && (1..=LISTS as u32).contains(&lists) && cells > 0 => at,
        // What no proxy answers.
        _ => return Err(Error::Protocol),
    };
    let words = net.group_words(handle.slot());
    // SAFETY: fields of the device region; the slot is this block's, and nobody waits for the group
    // yet.
    unsafe {
        (&raw mut (*words).lists_at).write_volatile(at);
        (&raw mut (*words).cells).write_volatile(cells);
        (&raw mut (*words).lists).write_volatile(lists);
        (&raw mut (*words).capacity).write_volatile(capacity);
        (&raw mut (*words).members).write_volatile(0);
        (&raw mut (*words).direct_below).write_volatile(0);
        (&raw mut (*words).relayed).write_volatile(0);
        (&raw mut (*words).relay_turn).write_volatile(0);
        (&raw mut (*words).swept).write_volatile(net.finished().peek() as u32);
    }
    for index in 0..LISTS {
        List::of(net, handle, index).begin();
    }
    Stack::of(net, handle).begin();
    if slots::turn_into(net, handle, Kind::Group) { Ok(handle.raw() as u64) } else { Err(Error::BadHandle) }
}
