//! The kernel's side: a group that calls.
#![allow(unsafe_code)]

use crate::function::{Failure, Function};
use crate::layout::{Calls, TAKEN};
use crate::plain::Plain;
use crate::wire::{self, ANSWER_HEAD, NO_TICKET, REQUEST_HEAD, Status};
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use gpunet_device::abi::atomic::{AtomicU64, Ordering, fence};
use gpunet_device::abi::waiting::{Awaited, Call};
use gpunet_device::abi::{Word, device_scope};
use gpunet_device::group::Front;
use gpunet_device::internal::{
    Deadline, Lane, WaitGuard, by_leader, load_published, load_units, store_units, yield_core,
};
use gpunet_device::{Error, Group, Net, Timeout};

/// No channel.
const HOMELESS: u32 = u32::MAX;
/// The ticket of an answer that was taken or given up.
const DONE: u32 = u32::MAX;
/// In place of a status: the wait ended, and the length is its errno.
const WAIT_ENDED: u16 = u16::MAX;
/// Lanes of a warp.
const LANES: usize = 32;
/// Looks at units that are stored already, until something else must be wrong.
const LOOKS: u32 = 1 << 20;

/// A call that was started: the right to its answer. Only [`Caller::wait`] and
/// [`Caller::give_up`] make its place free for another call.
#[must_use = "its place stays taken until it is waited for or given up"]
pub struct Ticket<A> {
    channel: u32,
    slot: u32,
    number: u64,
    answer: PhantomData<fn() -> A>,
}

impl<A> Ticket<A> {
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
pub struct Caller {
    calls: Calls,
    net: Net,
    channel: u32,
    /// The number of the next request.
    next: u64,
    /// The first number for which the caller has not seen room.
    room: u64,
    /// Tickets in use.
    busy: u64,
}

impl Caller {
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
        let mut caller = Self { calls, net, channel: HOMELESS, next: 0, room: 0, busy: 0 };
        if calls.is_on() {
            let (channel, next) = if g.is_leader() { take_channel(calls, g.index()) } else { (HOMELESS, 0) };
            caller.channel = g.broadcast(channel.into()) as u32;
            caller.next = g.broadcast(next);
            caller.room = caller.next;
        }
        caller
    }

    /// Calls a function and waits for its answer, at most `timeout` for all. If it does not come in
    /// time it is given up.
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
        let mut ticket = self.start(g, function, request, timeout)?;
        let result = self.wait(g, &mut ticket, timeout);
        self.give_up(ticket);
        result
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
        let slot = self.busy.trailing_ones();
        if slot >= self.calls.shape().tickets() {
            return Err(if self.channel == HOMELESS { Failure::NoChannel } else { Failure::TooMany });
        }
        let number = self.put(g, function, request, slot, timeout)?;
        self.busy |= 1 << slot;
        Ok(Ticket { channel: self.channel, slot, number, answer: PhantomData })
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
        if ticket.is_done() || ticket.channel != self.channel {
            return Err(Failure::NoTicket);
        }
        let mut answer = MaybeUninit::<A>::uninit();
        let result = receive(g, self.calls, self.net, ticket, timeout, answer.as_mut_ptr());
        if !matches!(result, Err(Failure::Wait(_))) {
            self.busy &= !(1 << ticket.slot);
            ticket.slot = DONE;
            // Who answers has copied the request, and those before it.
            let room = ticket.number + 1 + u64::from(self.calls.shape().tickets());
            if matches!(result, Ok(())) && room > self.room {
                self.room = room;
            }
        }
        // SAFETY: `receive` has written all words of the answer, and every pattern of bits is a
        // value of a plain type.
        result.map(|()| unsafe { answer.assume_init() })
    }

    /// Gives an answer up: its place is free for another call. The function may still run, and its
    /// answer is dropped.
    #[inline(always)]
    pub fn give_up<A: Plain>(&mut self, ticket: Ticket<A>) {
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

    /// Stores a request, once there is room for it. Returns its number.
    #[inline(always)]
    fn put<G: Group, Q: Plain, A: Plain>(
        &mut self,
        g: &G,
        function: Function<Q, A>,
        request: Q,
        slot: u32,
        timeout: Timeout,
    ) -> Result<u64, Failure> {
        let shape = self.calls.shape();
        if self.channel == HOMELESS {
            return Err(Failure::NoChannel);
        }
        if size_of::<Q>() > shape.request() || size_of::<A>() > shape.answer() {
            return Err(Failure::Sizes);
        }
        if self.next >= self.room {
            self.room = find_room(g, self.calls, self.net, self.channel, self.next, timeout)?;
        }
        let lane = Lane::of(g);
        if let Some(front) = g.front(lane) {
            let (tag, place) =
                (wire::request_tag(shape.lap(self.next)), self.calls.request(self.channel, self.next));
            let units = const { REQUEST_HEAD + size_of::<Q>() / 4 };
            let lengths = wire::lengths(size_of::<Q>(), size_of::<A>());
            let from = (&raw const request).cast::<u32>();
            let word = |at: usize| match at {
                0 => function.number(),
                1 => lengths,
                2 => slot,
                // SAFETY: a word of the request, which has no padding.
                at if at < units => unsafe { from.wrapping_add(at - REQUEST_HEAD).read_unaligned() },
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

/// Looks whether a wait for the host is to end. By the leader.
#[inline(always)]
fn end_of_wait(calls: Calls, net: Net, guard: &mut WaitGuard, timeout: Timeout) -> Result<(), Error> {
    if timeout.is_non_blocking() || !net.is_attached() {
        return Err(Error::WouldBlock);
    }
    if guard.is_due() {
        if calls.closed().peek() != 0 {
            return Err(Error::ConnectionAborted);
        }
        guard.check()?;
    }
    yield_core();
    Ok(())
}

/// The failure that the end of a wait is.
#[inline(always)]
fn of_wait(error: Error) -> Failure {
    if error == Error::ConnectionAborted { Failure::HostGone } else { Failure::Wait(error) }
}

/// Waits for an answer, and writes its words to `to`. All lanes call it, each with its own `to`.
///
/// A lane's loads from the host's memory take their trips nearly one after the other, those of a
/// warp take theirs at once. So the first warp polls for head and payload together, and gives both
/// to all; a lane alone polls for the head.
#[inline(always)]
fn receive<G: Group, A: Plain>(
    g: &G,
    calls: Calls,
    net: Net,
    ticket: &Ticket<A>,
    timeout: Timeout,
    to: *mut A,
) -> Result<(), Failure> {
    let (place, tag) = (calls.answer(ticket.channel, ticket.slot), wire::answer_tag(ticket.number));
    let words = const { size_of::<A>() / 4 };
    let lane = Lane::of(g);
    let is_shared = G::Front::IS_WARP && g.has_front(lane);
    let front = if is_shared { g.front(lane) } else { None };
    // The pair of units of this lane.
    let (mut mine, mut head) = (0, 0);
    if front.is_some() || (!is_shared && lane.is_leader()) {
        let (first, rank) = (first_pairs(is_shared, words), front.map_or(0, |front| front.rank()));
        let first_of = |value| front.map_or(value, |front| front.first_of(value));
        let mut guard = WaitGuard::new(net, Deadline::of(timeout)).waiting_for(Awaited::new(Call::Host));
        let mut ended = 0;
        loop {
            let there;
            (mine, there) = if rank < first { load_pair(place, rank, tag) } else { (0, 3) };
            head = first_of(mine);
            let is_complete = is_complete(rank, there, head);
            if front.map_or(is_complete, |front| front.all(is_complete)) {
                // A status that no host writes is that of a wait here.
                if status_of(head) == WAIT_ENDED {
                    head = 0;
                }
                break;
            }
            // What came before the end is taken: it is looked for once more.
            if ended != 0 {
                head = u64::from(wire::answer_head(ended as usize, WAIT_ENDED));
                break;
            }
            let mut errno = 0;
            if rank == 0
                && let Err(error) = end_of_wait(calls, net, &mut guard, timeout)
            {
                errno = error.errno() as u64;
            }
            ended = first_of(errno);
        }
    }
    let head = g.broadcast(head);
    let (len, status) = (head as u16, status_of(head));
    if status == WAIT_ENDED {
        return Err(of_wait(Error::from_errno(len.into())));
    }
    if status != Status::Answered as u16 {
        return Err(Failure::of(status, (head >> 32) as u32));
    }
    if usize::from(len) != size_of::<A>() {
        return Err(Failure::Malformed);
    }
    let to = to.cast::<u32>();
    if is_shared {
        share_all(g, front, (place, tag), mine, (to, words))
    } else {
        // All have loaded before the next call's answer can come to this place.
        let lost = u32::from(!load_all(place, tag, to, words));
        if g.sum(lost) == 0 { Ok(()) } else { Err(Failure::Malformed) }
    }
}

/// How many pairs of units hold an answer of so many words.
const fn pairs_of(words: usize) -> usize {
    (ANSWER_HEAD + words).div_ceil(2)
}

/// How many pairs are polled for: the first only, or one by each lane of a warp.
#[inline(always)]
const fn first_pairs(is_shared: bool, words: usize) -> usize {
    if !is_shared {
        1
    } else if pairs_of(words) < LANES {
        pairs_of(words)
    } else {
        LANES
    }
}

/// Loads a pair of units: their words, and which of them have the tag: bit 0 and bit 1.
#[inline(always)]
fn load_pair(place: *mut u64, pair: usize, tag: u32) -> (u64, u32) {
    // SAFETY: a pair of the ticket's place.
    let units = unsafe { load_units(place.wrapping_add(pair * 2)) };
    let there = u32::from(has_tag(units[0], tag)) | u32::from(has_tag(units[1], tag)) << 1;
    (units[0] & u64::from(u32::MAX) | units[1] << 32, there)
}

/// Returns whether those units of a pair are there that the head names. An answer without a payload
/// leaves all but the first as they were.
#[inline(always)]
fn is_complete(pair: usize, there: u32, head: u64) -> bool {
    let units = ANSWER_HEAD + head_words(head);
    (there & 1 != 0 || (pair > 0 && pair * 2 >= units)) && (there & 2 != 0 || pair * 2 + 1 >= units)
}

/// Writes the words of an answer whose head is there. Its first warp has loaded the first pairs,
/// `mine` of each lane; it gives all lanes one after another, and loads more. All lanes call it.
#[inline(always)]
fn share_all<G: Group>(
    g: &G,
    front: Option<G::Front>,
    (place, tag): (*mut u64, u32),
    mut mine: u64,
    (to, words): (*mut u32, usize),
) -> Result<(), Failure> {
    let (mut base, pairs) = (0, pairs_of(words));
    loop {
        let mut at = 0;
        while at < LANES && base + at < pairs {
            let both = g.broadcast(front.map_or(0, |front| front.of(at, mine)));
            let first = (base + at) * 2;
            for (unit, word) in [(first, both as u32), (first + 1, (both >> 32) as u32)] {
                if unit >= ANSWER_HEAD && unit < ANSWER_HEAD + words {
                    // SAFETY: a word of the answer.
                    unsafe { to.wrapping_add(unit - ANSWER_HEAD).write_unaligned(word) };
                }
            }
            at += 1;
        }
        base += LANES;
        if base >= pairs {
            return Ok(());
        }
        let mut is_lost = false;
        if let Some(front) = front
            && base + front.rank() < pairs
        {
            let (pair, last) = (base + front.rank(), ANSWER_HEAD + words);
            is_lost = true;
            for _ in 0..LOOKS {
                let there;
                (mine, there) = load_pair(place, pair, tag);
                if there & 1 != 0 && (there & 2 != 0 || pair * 2 + 1 >= last) {
                    is_lost = false;
                    break;
                }
            }
        }
        if g.sum(is_lost.into()) != 0 {
            return Err(Failure::Malformed);
        }
    }
}

/// Loads the words of an answer whose head is there. Returns whether all have its tag, as they have
/// if the host has stored them.
#[inline(always)]
fn load_all(place: *mut u64, tag: u32, to: *mut u32, words: usize) -> bool {
    // Ordering: Acquire fence, after the load of the head, pairs with the Release store of it in
    // `Answers::store`: the words before it are visible, and plain loads find them.
    fence(Ordering::Acquire);
    let (mut pair, mut all_there) = (0, true);
    while pair < pairs_of(words) {
        // SAFETY: a pair of the ticket's place, which the host leaves alone until the next call.
        let units = unsafe { load_published(place.wrapping_add(pair * 2)) };
        for (half, unit) in units.into_iter().enumerate() {
            let at = pair * 2 + half;
            if at >= ANSWER_HEAD && at < ANSWER_HEAD + words {
                all_there &= has_tag(unit, tag);
                // SAFETY: a word of the answer.
                unsafe { to.wrapping_add(at - ANSWER_HEAD).write_unaligned(unit as u32) };
            }
        }
        pair += 1;
    }
    all_there
}

#[inline(always)]
const fn has_tag(unit: u64, tag: u32) -> bool {
    (unit >> 32) as u32 == tag
}

#[inline(always)]
const fn status_of(head: u64) -> u16 {
    (head >> 16) as u16
}

/// How many words the payload has, by the head of its answer.
#[inline(always)]
const fn head_words(head: u64) -> usize {
    head as u16 as usize / 4
}
