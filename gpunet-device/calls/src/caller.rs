//! The kernel's side: a group that calls.
#![allow(unsafe_code)]

use crate::answer::{Place, end_of_wait, of_wait, receive};
use crate::function::{Failure, Function};
use crate::layout::{Calls, Shape, TAKEN};
use crate::plain::Plain;
use crate::wire::{self, NO_TICKET, REQUEST_HEAD};
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use gpunet_device::abi::atomic::{AtomicU64, Ordering};
use gpunet_device::abi::waiting::{Awaited, Call};
use gpunet_device::abi::{Word, device_scope};
use gpunet_device::group::Front;
use gpunet_device::internal::{Deadline, Lane, WaitGuard, by_leader, store_units};
use gpunet_device::{Group, Net, Timeout};

/// No channel.
const HOMELESS: u32 = u32::MAX;
/// The ticket of an answer that was taken or given up.
const DONE: u32 = u32::MAX;

/// A call that was started: the right to its answer. Only [`Caller::wait`] and
/// [`Caller::give_up`] make its place free for another call.
#[must_use = "its place stays taken until it is waited for or given up"]
#[repr(C)]
pub struct Ticket<A> {
    channel: u32,
    slot: u32,
    number: u64,
    answer: PhantomData<fn() -> A>,
}

impl<A> Ticket<A> {
    /// That of no call.
    pub const DONE: Self = Self { channel: 0, slot: DONE, number: 0, answer: PhantomData };

    /// Returns whether the answer was taken, or given up.
    #[must_use]
    #[inline(always)]
    pub const fn is_done(&self) -> bool {
        self.slot == DONE
    }
}

impl<A> fmt::Debug for Ticket<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("channel", &self.channel).field("number", &self.number).finish()
    }
}

/// What a group calls by: a channel of its own, from [`Caller::open`] to [`Caller::close`].
///
/// # Cooperation
/// All lanes of the group that has opened it call it, with the same arguments, and get the same
/// results. Every call that waits is a [`Group::sync`].
#[derive(Debug)]
#[must_use = "its channel stays taken until it is closed"]
#[repr(C)]
pub struct Caller {
    calls: Calls,
    net: Net,
    /// The number of the next request.
    next: u64,
    /// The first number for which the caller has not seen room.
    room: u64,
    /// Tickets in use.
    busy: u64,
    channel: u32,
    reserved: u32,
}

impl Caller {
    /// One without a channel: every call fails with [`Failure::NoChannel`].
    #[doc(hidden)]
    #[inline(always)]
    pub const fn none(net: Net) -> Self {
        Self { calls: Calls::OFF, net, next: 0, room: 0, busy: 0, channel: HOMELESS, reserved: 0 }
    }

    /// Takes a channel that no other caller has. If there is none, every call fails with
    /// [`Failure::NoChannel`].
    ///
    /// # Cooperation
    /// All lanes of the group call it. It is a [`Group::sync`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Net, Timeout};
    /// # use gpunet_calls::{Caller, Calls, Failure, Function};
    /// const ADD: Function<[u32; 2], u32> = Function::new(1);
    ///
    /// fn work<G: Group>(g: &G, net: Net, calls: Calls) -> Result<u32, Failure> {
    ///     let mut caller = Caller::open(g, net, calls);
    ///     // One after another:
    ///     let three = caller.call(g, ADD, [1, 2], Timeout::secs(1))?;
    ///     // Two in flight:
    ///     let mut a = caller.start(g, ADD, [three, 1], Timeout::secs(1))?;
    ///     let mut b = caller.start(g, ADD, [three, 2], Timeout::secs(1))?;
    ///     let sum = caller.wait(g, &mut a, Timeout::secs(1))? + caller.wait(g, &mut b, Timeout::secs(1))?;
    ///     caller.close(g);
    ///     Ok(sum)
    /// }
    /// ```
    #[inline(always)]
    pub fn open<G: Group>(g: &G, net: Net, calls: Calls) -> Self {
        let mut caller = Self { calls, ..Self::none(net) };
        if calls.is_on() {
            let (channel, next) = if g.is_leader() { take_channel(calls, g.index()) } else { (HOMELESS, 0) };
            caller.channel = g.broadcast(channel.into()) as u32;
            caller.next = g.broadcast(next);
            caller.room = caller.next;
        }
        caller
    }

    /// Returns whether it has a channel.
    #[must_use]
    #[inline(always)]
    pub const fn is_open(&self) -> bool {
        self.calls.is_on() && self.channel != HOMELESS
    }

    /// Waits with this context from now on.
    #[doc(hidden)]
    #[inline(always)]
    pub const fn set_net(&mut self, net: Net) {
        self.net = net;
    }

    #[inline(always)]
    pub(crate) const fn shape(&self) -> Shape {
        self.calls.shape()
    }

    /// Calls a function and waits for its answer. If it has not come after `timeout` it is given
    /// up. The time counts from the call on, also while the host has not read earlier requests.
    ///
    /// # Errors
    /// [`Failure`].
    #[inline(always)]
    pub fn call<G: Group, Q: Plain, A: Plain>(
        &mut self,
        g: &G,
        function: Function<Q, A>,
        request: Q,
        timeout: Timeout,
    ) -> Result<A, Failure> {
        let limit = self.limit(timeout);
        let mut ticket = self.start(g, function, request, timeout)?;
        let result = self.wait(g, &mut ticket, limit.left());
        self.give_up(ticket);
        result
    }

    /// The limit of a call that first waits for room, and then for the answer. If there is room the
    /// clock is not read.
    #[doc(hidden)]
    #[inline(always)]
    pub fn limit(&self, timeout: Timeout) -> Limit {
        let deadline = if self.next < self.room { Deadline::NEVER } else { Deadline::of(timeout) };
        Limit { timeout, deadline }
    }

    /// Calls a function, and returns at once what its answer is waited for by. It waits only while
    /// the host has not yet read the requests before, at most `timeout`.
    ///
    /// # Errors
    /// [`Failure::TooMany`], [`Failure::NoChannel`], [`Failure::Sizes`], [`Failure::HostGone`],
    /// [`Failure::Wait`]. Nothing was called then.
    #[inline(always)]
    pub fn start<G: Group, Q: Plain, A: Plain>(
        &mut self,
        g: &G,
        function: Function<Q, A>,
        request: Q,
        timeout: Timeout,
    ) -> Result<Ticket<A>, Failure> {
        let slot = self.free_slot()?;
        let number = self.put(g, function, request, slot, timeout)?;
        Ok(self.take_slot(slot, number))
    }

    /// Calls a function whose answer nobody wants. Nothing says whether it ran: the function may
    /// not exist, or panic.
    ///
    /// # Errors
    /// As [`Caller::start`].
    #[inline(always)]
    pub fn tell<G: Group, Q: Plain, A: Plain>(
        &mut self,
        g: &G,
        function: Function<Q, A>,
        request: Q,
        timeout: Timeout,
    ) -> Result<(), Failure> {
        self.put(g, function, request, NO_TICKET, timeout).map(|_| ())
    }

    /// Waits for an answer. [`Timeout::NON_BLOCKING`] looks once. After [`Failure::Wait`] the
    /// ticket is still valid; after any other result its place is free again.
    ///
    /// # Errors
    /// [`Failure`].
    #[inline(always)]
    pub fn wait<G: Group, A: Plain>(
        &mut self,
        g: &G,
        ticket: &mut Ticket<A>,
        timeout: Timeout,
    ) -> Result<A, Failure> {
        self.wait_by(ticket, |place| {
            let mut answer = MaybeUninit::<A>::uninit();
            receive(g, place, timeout, answer.as_mut_ptr())?;
            // SAFETY: `receive` has written all words of the answer, and every pattern of bits is a
            // value of a plain type.
            Ok(unsafe { answer.assume_init() })
        })
    }

    /// Gives an answer up: its place is free for another call. The function may still run, and its
    /// answer is dropped.
    #[inline(always)]
    pub fn give_up<A>(&mut self, ticket: Ticket<A>) {
        if !ticket.is_done() && ticket.channel == self.channel {
            self.busy &= !(1 << ticket.slot);
        }
    }

    /// Gives the channel back, for another group. Answers that have not come are given up.
    ///
    /// # Cooperation
    /// All lanes call it. It is a [`Group::sync`].
    #[inline(always)]
    pub fn close<G: Group>(self, g: &G) {
        if self.channel != HOMELESS {
            g.sync();
            if g.is_leader() {
                // SAFETY: an aligned word of the device's memory, by the contract of `Calls::new`.
                let holder = unsafe { Word::from_ptr(self.calls.holder(self.channel)) };
                // Ordering: Release, pairs with the Acquire of `take_channel` by the channel's next
                // caller; the barrier has brought the stores of all lanes.
                device_scope::publish(holder, self.next);
            }
        }
    }

    /// Stores a request that is a value. Returns its number.
    #[inline(always)]
    fn put<G: Group, Q: Plain, A: Plain>(
        &mut self,
        g: &G,
        function: Function<Q, A>,
        request: Q,
        slot: u32,
        timeout: Timeout,
    ) -> Result<u64, Failure> {
        let head = Head { function: function.number(), len: size_of::<Q>(), answer: size_of::<A>(), slot };
        let from = (&raw const request).cast::<u32>();
        // SAFETY: a word of the request, which has no padding.
        let word = |at: usize| unsafe { from.wrapping_add(at).read_unaligned() };
        self.put_words(g, head, word, timeout)
    }

    /// Stores a request, once there is room for it. Returns its number. `word` gives a word of the
    /// payload, to the front's lanes.
    #[inline(always)]
    pub(crate) fn put_words<G: Group>(
        &mut self,
        g: &G,
        head: Head,
        word: impl Fn(usize) -> u32,
        timeout: Timeout,
    ) -> Result<u64, Failure> {
        let shape = self.calls.shape();
        if self.channel == HOMELESS {
            return Err(Failure::NoChannel);
        }
        if head.len > shape.request() || head.answer > shape.answer() {
            return Err(Failure::Sizes);
        }
        if self.next >= self.room {
            self.room = find_room(g, self.calls, self.net, self.channel, self.next, timeout)?;
        }
        let lane = Lane::of(g);
        if let Some(front) = g.front(lane) {
            let (tag, place) =
                (wire::request_tag(shape.lap(self.next)), self.calls.request(self.channel, self.next));
            let units = REQUEST_HEAD + wire::words(head.len);
            let lengths = wire::lengths(head.len, head.answer);
            let word = |at: usize| match at {
                0 => head.function,
                1 => lengths,
                2 => head.slot,
                at if at < units => word(at - REQUEST_HEAD),
                _ => 0,
            };
            let (mut pair, step) = (front.rank(), lanes::<G>(lane));
            while pair * 2 < units {
                let both = [wire::unit(word(pair * 2), tag), wire::unit(word(pair * 2 + 1), tag)];
                // SAFETY: a pair of a place of this caller's channel that the host has read.
                unsafe { store_units(place.wrapping_add(pair * 2), both) };
                pair += step;
            }
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    /// A ticket that is not in use.
    #[inline(always)]
    pub(crate) fn free_slot(&self) -> Result<u32, Failure> {
        let slot = self.busy.trailing_ones();
        if slot < self.calls.shape().tickets() {
            return Ok(slot);
        }
        Err(if self.channel == HOMELESS { Failure::NoChannel } else { Failure::TooMany })
    }

    /// The ticket of request `number`, which is in use from now on.
    #[inline(always)]
    pub(crate) const fn take_slot<A>(&mut self, slot: u32, number: u64) -> Ticket<A> {
        self.busy |= 1 << slot;
        Ticket { channel: self.channel, slot, number, answer: PhantomData }
    }

    /// Waits for a ticket's answer by `receive`, and makes its place free if it has ended.
    #[inline(always)]
    pub(crate) fn wait_by<A, R>(
        &mut self,
        ticket: &mut Ticket<A>,
        receive: impl FnOnce(Place) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        if ticket.is_done() || ticket.channel != self.channel || ticket.slot >= self.calls.shape().tickets() {
            return Err(Failure::NoTicket);
        }
        let Ticket { channel, slot, number, .. } = *ticket;
        let result = receive(Place { calls: self.calls, net: self.net, channel, slot, number });
        if !matches!(result, Err(Failure::Wait(_))) {
            self.busy &= !(1 << ticket.slot);
            ticket.slot = DONE;
            // Who answers has copied the request, and those before it.
            let room = ticket.number + 1 + u64::from(self.calls.shape().tickets());
            if result.is_ok() && room > self.room {
                self.room = room;
            }
        }
        result
    }
}

/// How long the waits of one call may take together.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    timeout: Timeout,
    /// Never, if there is only one wait.
    deadline: Deadline,
}

impl Limit {
    /// The limit of several waits that begin now.
    #[inline(always)]
    #[must_use]
    pub fn of(timeout: Timeout) -> Self {
        Self { timeout, deadline: Deadline::of(timeout) }
    }

    /// How long the next wait may take. It is never [`Timeout::NON_BLOCKING`] unless the whole
    /// call is: a wait whose time is over says that it has timed out.
    #[must_use]
    #[inline(always)]
    pub fn left(self) -> Timeout {
        let left = self.deadline.left_of(self.timeout);
        if left.is_non_blocking() && !self.timeout.is_non_blocking() { Timeout::ns(1) } else { left }
    }
}

/// What a request says beside its payload; lengths in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) function: u32,
    pub(crate) len: usize,
    pub(crate) answer: usize,
    pub(crate) slot: u32,
}

/// How many lanes store the pairs of a request's units.
#[inline(always)]
fn lanes<G: Group>(lane: Lane) -> usize {
    if G::Front::IS_WARP { if lane.size() < 32 { lane.size() as usize } else { 32 } } else { 1 }
}

/// Takes a channel: the group's own if it is free. By the leader.
#[inline(always)]
fn take_channel(calls: Calls, group: u32) -> (u32, u64) {
    let channels = calls.shape().channels();
    // There is at least one.
    let (mut channel, mut tried) = (group.checked_rem(channels).unwrap_or(0), 0);
    while tried < channels {
        // SAFETY: an aligned word of the device's memory, by the contract of `Calls::new`; the
        // reference lives for one round.
        let holder = unsafe { AtomicU64::from_ptr(calls.holder(channel)) };
        // Ordering: Relaxed; the exchange below decides.
        let next = holder.load(Ordering::Relaxed);
        if next & TAKEN == 0 {
            // Ordering: Acquire, pairs with the Release of `Caller::close` by the channel's last
            // caller: what this one stores comes after what that one has stored in the same places.
            let taken = holder.compare_exchange(next, next | TAKEN, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return (channel, next);
            }
        }
        channel = if channel + 1 == channels { 0 } else { channel + 1 };
        tried += 1;
    }
    (HOMELESS, 0)
}

/// Waits until the host has read what lies at the place of request `next`; returns the first number
/// for which there is no room. All lanes call it.
#[cold]
#[inline(never)]
fn find_room<G: Group>(
    g: &G,
    calls: Calls,
    net: Net,
    channel: u32,
    next: u64,
    timeout: Timeout,
) -> Result<u64, Failure> {
    let found = by_leader(g, || {
        let mut guard = WaitGuard::new(net, Deadline::of(timeout)).waiting_for(Awaited::new(Call::Host));
        loop {
            // Ordering: Acquire, pairs with the Release of `Requests::take`: what is stored in the
            // place comes after the host's loads of it.
            let room = calls.taken(channel).observe().saturating_add(calls.shape().tickets().into());
            if room > next {
                return Ok(room);
            }
            end_of_wait(calls, net, &mut guard, timeout)?;
        }
    });
    found.map_err(of_wait)
}
