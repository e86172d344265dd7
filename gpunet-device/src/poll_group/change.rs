//! The calls that change the sockets of a poll group: add, modify, remove, rearm.

use super::PollGroup;
use super::settle::packed;
use crate::group::outcome::by_leader;
use crate::socket::half::wake_own_pollers;
use crate::table::lists::{self, List};
use crate::table::member::{Member, Stack, queue};
use crate::table::membership::{forget, raise, take_out};
use crate::table::{entry, slots};
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Group, Net, platform};
use gpunet_abi::entry::Kind;
use gpunet_abi::poll_group::{Phase, PollState, ReadyEntry};
use gpunet_abi::ready_list::{self, CLAIMS};
use gpunet_abi::{Error, Handle, Result};

impl PollGroup {
    /// Adds a socket: an open stream or a listener. `events` are bits of [`crate::poll::POLLIN`],
    /// [`POLLOUT`](crate::poll::POLLOUT) and [`POLLRDHUP`](crate::poll::POLLRDHUP); errors and
    /// hang-ups are delivered unasked. `token` comes back with each event.
    ///
    /// # Cooperation
    /// All lanes call it with the same arguments.
    ///
    /// # Errors
    /// BadHandle; NotConnected for a socket that is neither a stream nor a listener; AlreadyExists
    /// when it is in a poll group; NoSpace when the group is full; Canceled; NetworkDown; Protocol.
    ///
    /// # Examples
    ///
    /// See [`PollGroup`].
    pub fn add<G: Group>(&self, g: &G, socket: Handle, events: i16, token: u64) -> Result<()> {
        g.sync();
        by_leader(g, || add(self, socket, events, token))?;
        Ok(())
    }

    /// Changes the events and the token of a socket of the group, and arms the socket, whichever
    /// block has its event.
    ///
    /// # Cooperation
    /// All lanes call it with the same arguments.
    ///
    /// # Errors
    /// BadHandle; NotFound when it is not in this group; Canceled; NetworkDown.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, PollGroup, Result, Stream, poll::{POLLIN, POLLOUT}};
    /// # fn example<G: Group>(g: &G, group: PollGroup, stream: &Stream) -> Result<()> {
    /// // Not all could be sent: waits for space, too.
    /// group.modify(g, stream.handle(), POLLIN | POLLOUT, 7)
    /// # }
    /// ```
    pub fn modify<G: Group>(&self, g: &G, socket: Handle, events: i16, token: u64) -> Result<()> {
        g.sync();
        by_leader(g, || {
            self.find(socket)?.set_token(token);
            self.queue_again(socket, |state| state.with_events(packed(events)))
        })?;
        Ok(())
    }

    /// Arms a socket whose event was delivered, before its group of threads waits again: for
    /// example when it has passed the socket on.
    ///
    /// # Cooperation
    /// All lanes call it with the same handle.
    ///
    /// # Errors
    /// As [`PollGroup::modify`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, PollGroup, Result, Stream};
    /// # fn example<G: Group>(g: &G, group: PollGroup, stream: &Stream) -> Result<()> {
    /// // This block goes on with something else for a while.
    /// group.rearm(g, stream.handle())
    /// # }
    /// ```
    pub fn rearm<G: Group>(&self, g: &G, socket: Handle) -> Result<()> {
        g.sync();
        by_leader(g, || self.find(socket).and_then(|_| self.queue_again(socket, |state| state)))?;
        Ok(())
    }

    /// Takes a socket out of the group. Closing it does the same.
    ///
    /// # Cooperation
    /// All lanes call it with the same handle.
    ///
    /// # Errors
    /// As [`PollGroup::modify`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, PollGroup, Result, Stream};
    /// # fn example<G: Group>(g: &G, group: PollGroup, stream: &Stream) -> Result<()> {
    /// group.remove(g, stream.handle())
    /// # }
    /// ```
    pub fn remove<G: Group>(&self, g: &G, socket: Handle) -> Result<()> {
        g.sync();
        by_leader(g, || {
            self.find(socket)?;
            forget(self.net, socket);
            Ok(0)
        })?;
        Ok(())
    }

    /// The socket, if it is in this group. By one lane.
    fn find(&self, socket: Handle) -> Result<Member> {
        self.check()?;
        if socket.slot() >= self.net.context().slots {
            return Err(Error::BadHandle);
        }
        let member = Member { net: self.net, slot: socket.slot() };
        let state = member.state();
        let is_here = state.phase() != Phase::None && state.generation() == socket.generation();
        if is_here && member.group() == self.handle.raw() { Ok(member) } else { Err(Error::NotFound) }
    }

    /// Makes some block look at a socket, with a changed state.
    fn queue_again(&self, socket: Handle, change: impl Fn(PollState) -> PollState) -> Result<u64> {
        let member = Member { net: self.net, slot: socket.slot() };
        let is_same =
            |state: PollState| state.phase() != Phase::None && state.generation() == socket.generation();
        // A loop: how much stack a function needs that calls itself nobody knows on a GPU.
        loop {
            // The block that is storing the watch word needs only some more instructions.
            member.change_settled(|state| is_same(state).then_some(state))?.ok_or(Error::NotFound)?;
            let changed = queue(member, |state| {
                (is_same(state) && state.phase() != Phase::Changing).then(|| change(state))
            });
            if changed {
                break;
            }
            self.find(socket)?;
        }
        wake_own_pollers(self.net, self.handle.slot());
        Ok(0)
    }
}

/// The leader's part of [`PollGroup::add`].
#[inline(never)]
fn add(group: &PollGroup, socket: Handle, events: i16, token: u64) -> Result<u64> {
    group.check()?;
    let net = group.net;
    let is_stream = match slots::use_handle(net, socket)? {
        Kind::Stream => true,
        Kind::Listener => false,
        _ => return Err(Error::NotConnected),
    };
    make_room(group)?;
    let member = Member { net, slot: socket.slot() };
    let is_direct = is_stream && entry::link_of(net.entry(socket.slot())).is_direct();
    enter(group, socket, |state| state.added(socket.generation(), packed(events), is_direct))?;
    let words = net.group_words(group.handle.slot());
    // SAFETY: field addresses in the device region.
    let (members, below) = unsafe { (&raw mut (*words).members, &raw mut (*words).direct_below) };
    let capacity = lists::capacity(net, group.handle);
    if !raise(members, |count| (count < capacity).then_some(count + 1)) {
        member.change(|state| Some(state.removed()));
        return Err(Error::NoSpace);
    }
    member.set_token(token);
    member.set_group(group.handle.raw());
    if is_direct {
        raise(below, |below| (below <= socket.slot()).then_some(socket.slot() + 1));
    }
    queue(member, Some);
    // A close of the socket or of the group may have come too early to find it.
    if let Err(closed) = slots::kind_of(net, socket).and_then(|_| slots::kind_of(net, group.handle)) {
        forget(net, socket);
        return Err(closed);
    }
    wake_own_pollers(net, group.handle.slot());
    Ok(0)
}

/// Changes the state of a socket that is to join a group, and is in no other.
///
/// # Errors
/// AlreadyExists, when it is in a group; Canceled; NetworkDown.
fn enter(group: &PollGroup, socket: Handle, added: impl Fn(PollState) -> PollState) -> Result<()> {
    let net = group.net;
    let member = Member { net, slot: socket.slot() };
    let mut guard = WaitGuard::new(net, Deadline::NEVER);
    loop {
        let is_free = |state: PollState| {
            // On the stack of another group, it would not be pushed to this one's.
            state.phase() == Phase::None && (!state.is_stacked() || member.group() == group.handle.raw())
        };
        if member.change(|state| is_free(state).then(|| added(state))).is_some() {
            return Ok(());
        }
        let state = member.state();
        match state.phase() {
            Phase::None => {
                if let Some(last) = Handle::from_raw(member.group()) {
                    Stack::of(net, last).take_off(socket.slot());
                }
            }
            // The block that adds it, takes it out, or stores its watch word is nearly done.
            Phase::Changing => {}
            _ if !is_left_behind(member, state, socket) => return Err(Error::AlreadyExists),
            _ => take_out(member, |state| is_left_behind(member, state, socket)),
        }
        if guard.is_due() {
            guard.check()?;
        }
        platform::back_off();
    }
}

/// Returns whether a state was left by a socket before `socket` in its slot, which the host has
/// closed, or by a group that is gone: the proxy closes that of a launch that has ended, and a
/// block that was cancelled may leave sockets in one that it closes.
///
/// It may also be that of the next socket of the slot, if `socket` was closed meanwhile: that one
/// is open.
fn is_left_behind(member: Member, state: PollState, socket: Handle) -> bool {
    let group = Handle::from_raw(member.group());
    let watched = Handle::new(member.slot, state.generation());
    let is_older = state.generation() != socket.generation() && slots::kind_of(member.net, watched).is_err();
    is_older || group.is_none_or(|group| slots::kind_of(member.net, group) != Ok(Kind::Group))
}

/// Takes entries out of lists that are filled with those of sockets that have left the group,
/// because nobody waits.
fn make_room(group: &PollGroup) -> Result<()> {
    let (net, handle) = (group.net, group.handle);
    for index in 0..lists::count(net, handle) {
        let list = List::of(net, handle, index);
        while list.unclaimed() > u64::from(lists::capacity(net, handle)) {
            let mut entries = [0; CLAIMS];
            let count = ready_list::claim(&list, CLAIMS, &mut entries).map_err(|_| Error::Protocol)?;
            if count == 0 {
                break;
            }
            for entry in entries.iter().take(count).map(|&entry| ReadyEntry(entry)) {
                if let Some((member, _)) = claimed(net, handle, entry)? {
                    queue(member, |state| (state.phase() == Phase::Held).then_some(state));
                }
            }
        }
    }
    Ok(())
}

/// What an entry that the caller has claimed is about: a socket of the group that is armed, now
/// held by the caller.
///
/// # Errors
/// Protocol, when it names a slot that does not exist.
pub(super) fn claimed(net: Net, group: Handle, entry: ReadyEntry) -> Result<Option<(Member, PollState)>> {
    if entry.slot() >= net.context().slots {
        return Err(Error::Protocol);
    }
    let member = Member { net, slot: entry.slot() };
    let change = |state: PollState| {
        // Another socket, or one that was armed anew: late.
        if !state.is_pending() || !entry.is_about(member.arm()) || member.group() != group.raw() {
            return None;
        }
        let state = state.claimed();
        Some(if state.phase() == Phase::Armed { state.held(member.caller()) } else { state })
    };
    Ok(match member.change(change) {
        Some((old, new)) if old.phase() == Phase::Armed => Some((member, new)),
        _ => None,
    })
}
