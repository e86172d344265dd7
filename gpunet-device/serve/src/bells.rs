//! Bells: how a connection is given a turn from outside, and how a worker is woken.
//!
//! ```text
//! who rings                                     block
//!   stores what there is to say                   (asleep, or polling its sockets)
//!   counts the connection's word up               the wake word differs from what it knows:
//!   counts the wake word of its block up            it takes the new value for known,
//!   (CPU) wakes the block if it sleeps              finds connections whose words differ,
//!                                                   and gives each a turn, which looks
//! ```
//!
//! Connection word and wake word exist once for each agent that rings: the device (all kernels of
//! it, by read-modify-write) and the host program. So no word has two writing agents.
//!
//! **No ring is lost.** A block takes a wake word for known *before* it looks at the connections'
//! words, and what it has found of a connection for seen *before* that one's turn. Each step of who
//! rings is ordered before the next one by a release, and each step of the block before the next by
//! an acquire; also that from the connections' words to the turn, because the wake word of another
//! ring may have led there. So a ring is either counted in what the block has found, and then the
//! turn that follows finds what was stored; or its wake word differs from what the block knows when
//! it waits next, and the wait ends. A CPU block that sleeps follows Dekker's pattern
//! ([`gpunet_device::WakeWords`]): it sets its flag, passes a full fence, compares the words, and
//! sleeps only while the kernel finds them unchanged; who rings counts up, passes a full fence, and
//! looks at the flag.
//!
//! A GPU polls its own memory. The host's words lie in host memory: one of the blocks that wait
//! loads there how often the host has rung, together with the epoch, and relays it ([`HostRelay`]).
#![allow(unsafe_code)]

use crate::memory::{BellMemory, Carve, Memory};
use crate::word::{Word64, fence};
use gpunet_device::abi::atomic::{self, Ordering};
use gpunet_device::abi::hand_off::{self, HandOff};
use gpunet_device::abi::{Word, device_scope};
use gpunet_device::{Group, RelayedWord, WakeWords};

/// Gives the connection that has given it away a turn, from anywhere: [`Bells::ring`] in a kernel,
/// `Ringer::ring` of `gpunet-serve-host` in the host program.
///
/// It is plain data, and fits into a word. After the end of its connection it does nothing: the
/// next connection in the same place has another one. (A ring at the very moment of the end may
/// give the next one a turn. As any other, that turn looks what there is.)
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Result};
/// # use gpunet_serve::{Next, Service, Turn, WorkQueue};
/// # fn example<G: Group, S: Service>(g: &G, turn: &mut Turn<'_, S>, work: WorkQueue<1>) -> Result<Next> {
/// let bell = turn.bell();
/// if work.push(g, &turn.context, [bell.raw()])? {
///     turn.bells.ring_workers(g);
/// }
/// Ok(Next::Bell)
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bell(u64);

impl Bell {
    pub(crate) const fn new(place: usize, generation: u32) -> Self {
        Self((generation as u64) << 32 | place as u64 & 0xffff_ffff)
    }

    /// The bell in a word.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The bell that was in a word. One that no connection has given away does nothing.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The number of its connection's place: below [`Carve::places`], and no other connection's
    /// while this one is open.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as u32 as usize
    }

    const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// How many blocks serve connections, how many a launch has, and how many connections each serves.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Shape {
    pub(crate) serving: u32,
    pub(crate) blocks: u32,
    pub(crate) room: u32,
    pub(crate) reserved: u32,
}

impl Shape {
    const fn places(self) -> usize {
        self.serving as usize * self.room as usize
    }

    /// The block whose connection has the place, if there is such a place.
    const fn block_of(self, place: usize) -> Option<usize> {
        if place < self.places() { Some(place / self.room as usize) } else { None }
    }
}

/// A wake word has a line of its own.
const LINE: usize = 64;

/// The words of a place, in the device's memory and once more in the host's: how often it was rung
/// for by that agent, and the generation of its connection, which its block writes to both.
mod place {
    pub const RUNG: usize = 0;
    pub const GENERATION: usize = 8;
    pub const LEN: usize = 16;
}

/// What a block knows of the wake words: touched by its leader alone.
mod known {
    pub const DEVICE: usize = 8;
    pub const HOST: usize = 16;
    pub const CHANGES: usize = 24;
}

/// In the first line of the memory that the host shares: how often it has rung.
const CHANGES: usize = 0;
/// In a block's line of it, beside the wake word: a CPU block sleeps.
const SLEEPING: usize = 8;

/// The words by which the host rings: memory that host and device share.
#[derive(Clone, Copy, Debug)]
pub struct HostBells {
    memory: Memory,
    shape: Shape,
}

impl HostBells {
    /// Bytes for a server of `blocks` blocks. The last `workers` of them serve no connections, the
    /// others `room` each.
    #[must_use]
    pub const fn bytes(blocks: usize, workers: u32, room: u32) -> usize {
        let serving = (blocks as u32).saturating_sub(workers) as usize;
        (LINE * (1 + blocks) + serving * room as usize * place::LEN).next_multiple_of(LINE)
    }

    /// The words in that memory: zeros at first.
    #[must_use]
    pub const fn new(memory: Memory, blocks: usize, workers: u32, room: u32) -> Self {
        let serving = (blocks as u32).saturating_sub(workers);
        Self { memory, shape: Shape { serving, blocks: blocks as u32, room, reserved: 0 } }
    }

    /// Rings. The host calls it, from any thread; it waits for nothing.
    pub fn ring(self, bell: Bell) {
        let Some(block) = self.shape.block_of(bell.place()) else { return };
        if self.word(bell.place(), place::GENERATION).get() == bell.generation() as u64 {
            count_up(self.word(bell.place(), place::RUNG));
            self.wake(block);
        }
    }

    /// Wakes all workers. The host calls it.
    pub fn ring_workers(self) {
        (self.shape.serving..self.shape.blocks).for_each(|block| self.wake(block as usize));
    }

    fn wake(self, block: usize) {
        // Ordering: Release fence before each, pairs with the Acquire loads in `Doorbell::look` and
        // the Acquire fence of who relays: who sees it finds the ring, and what was stored before.
        fence();
        self.wake_word(block).count_up();
        fence();
        self.changes().count_up();
        // SAFETY: a word and a flag of this memory, which stays mapped.
        unsafe { WakeWords::wake(self.sleeping(block), word_of(self.wake_word(block))) };
    }

    /// How often the host has rung for any block.
    fn changes(self) -> Word64 {
        self.memory.u64(CHANGES)
    }

    fn word(self, place: usize, which: usize) -> Word64 {
        self.memory.u64(LINE * (1 + self.shape.blocks as usize) + place::LEN * place + which)
    }

    fn wake_word(self, block: usize) -> Word64 {
        self.memory.u64(LINE * (1 + block))
    }

    fn sleeping(self, block: usize) -> *mut u32 {
        self.memory.part(LINE * (1 + block) + SLEEPING, 4).as_ptr().cast()
    }
}

/// The bells of a server, for who rings in a kernel: in a turn ([`crate::Turn::bells`]), in a
/// worker ([`crate::Worker`]), or in another kernel of the same device that was given it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bells {
    /// Two words for each place.
    places: Memory,
    /// For each block a line with its wake word, and what it knows.
    wakes: Memory,
    host: HostBells,
}

impl Bells {
    /// The bells of the server whose memory is divided, for structures that ring. Outside of a
    /// server they ring for nobody.
    #[must_use]
    pub const fn of(carve: &Carve) -> Self {
        let BellMemory { places, wakes, host, shape: [blocks, serving, room] } = carve.bells;
        let shape = Shape { serving, blocks, room, reserved: 0 };
        Self { places, wakes, host: HostBells { memory: host, shape } }
    }

    pub(crate) fn carve(carve: &mut Carve, host: HostBells) -> Self {
        let shape = host.shape;
        let places = carve.take(shape.places() * place::LEN);
        let wakes = carve.take(shape.blocks as usize * LINE);
        let numbers = [shape.blocks, shape.serving, shape.room];
        carve.bells = BellMemory { places, wakes, host: host.memory, shape: numbers };
        Self { places, wakes, host }
    }

    /// Gives the bell's connection a turn: within microseconds, if its block is idle. Rings between
    /// two turns are one.
    ///
    /// # Cooperation
    /// All lanes call it. What they have stored before is there for the turn.
    pub fn ring<G: Group>(&self, g: &G, bell: Bell) {
        g.sync();
        if g.is_leader() {
            self.ring_alone(bell);
        }
    }

    /// Rings the bells of `count` connections, lanes side by side; `bell` says which.
    ///
    /// # Cooperation
    /// As [`Bells::ring`]. One lane asks for each.
    pub fn ring_each<G: Group>(&self, g: &G, count: usize, bell: impl Fn(usize) -> Option<Bell>) {
        g.sync();
        let mut at = g.rank() as usize;
        while at < count {
            if let Some(bell) = bell(at) {
                self.ring_alone(bell);
            }
            at += g.size() as usize;
        }
    }

    /// Wakes all workers of the server: the blocks that [`crate::Service::workers`] tells of.
    ///
    /// # Cooperation
    /// As [`Bells::ring`].
    pub fn ring_workers<G: Group>(&self, g: &G) {
        g.sync();
        if g.is_leader() {
            let shape = self.host.shape;
            (shape.serving..shape.blocks).for_each(|block| self.wake(block as usize));
        }
    }

    /// Wakes a worker, by one lane.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn ring_worker_alone(&self, worker: u32) {
        let block = self.host.shape.serving + worker;
        if block < self.host.shape.blocks {
            self.wake(block as usize);
        }
    }

    /// Which of the workers a block is.
    pub(crate) const fn worker_of(&self, block: u32) -> u32 {
        block.saturating_sub(self.host.shape.serving)
    }

    /// Wakes all other blocks that serve connections: each calls [`crate::Service::help`] before
    /// its next turns, if its service [helps](crate::Service::HELPS).
    ///
    /// # Cooperation
    /// As [`Bells::ring`]. Lanes wake side by side.
    pub fn ring_blocks<G: Group>(&self, g: &G) {
        g.sync();
        let mut block = g.rank();
        while block < self.host.shape.serving {
            if block != g.index() {
                self.wake(block as usize);
            }
            block += g.size();
        }
    }

    /// As [`Bells::ring`], by one lane.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn ring_alone(&self, bell: Bell) {
        let Some(block) = self.host.shape.block_of(bell.place()) else { return };
        if self.generation(bell.place()) == bell.generation() {
            count_up(self.rung(bell.place()));
            self.wake(block);
        }
    }

    fn wake(&self, block: usize) {
        // Ordering: Release fence, pairs with the Acquire fence in `Doorbell::look`: who sees it
        // finds the ring, and what was stored before.
        fence();
        self.wake_word(block).count_up();
        // SAFETY: a word of the launch's memory, and a flag of the host's; both are mapped while
        // the launch runs.
        unsafe { WakeWords::wake(self.host.sleeping(block), word_of(self.wake_word(block))) };
    }

    fn rung(&self, place: usize) -> Word64 {
        self.places.u64(place * place::LEN + place::RUNG)
    }

    fn wake_word(&self, block: usize) -> Word64 {
        self.wakes.u64(LINE * block)
    }

    fn known(&self, block: usize, what: usize) -> Word64 {
        self.wakes.u64(LINE * block + what)
    }

    fn generation(&self, place: usize) -> u32 {
        self.places.u64(place * place::LEN + place::GENERATION).get() as u32
    }

    /// Returns whether the bell's connection is still open, as far as is known: for who works for
    /// it. It need not be asked before a ring.
    ///
    /// # Cooperation
    /// All lanes call it and get the same.
    #[must_use]
    pub fn is_open<G: Group>(&self, g: &G, bell: Bell) -> bool {
        let is_open = self.host.shape.block_of(bell.place()).is_some()
            && self.generation(bell.place()) == bell.generation();
        g.broadcast(u64::from(is_open)) != 0
    }

    /// A connection has the place from now on, or its connection has ended: bells of earlier ones
    /// do nothing any more. By one lane.
    pub(crate) fn renew(&self, place: usize) {
        let generation = self.generation(place).wrapping_add(1) as u64;
        self.places.u64(place * place::LEN + place::GENERATION).set(generation);
        self.host.word(place, place::GENERATION).set(generation);
    }

    /// The bell of the connection in a place. By any lane of its block.
    pub(crate) fn bell(&self, place: usize) -> Bell {
        Bell::new(place, self.generation(place))
    }

    /// How often the place was rung for, by the device and by the host, who is asked only if
    /// `by_host`. By any lane, after [`Doorbell::look`] and before [`Bells::observe_counts`].
    pub(crate) fn counts(&self, place: usize, by_host: bool) -> [Option<u64>; 2] {
        let host = if by_host { Some(self.host.word(place, place::RUNG).get()) } else { None };
        [Some(self.rung(place).get()), host]
    }
}

impl Bells {
    /// Makes visible what was stored before the rings that the calling lane has found counted: the
    /// wake words that it knows may be of other rings.
    pub(crate) fn observe_counts(&self, by_host: bool) {
        // Ordering: Acquire fence, pairs with the Release fence in `count_up`, by the word that was
        // counted up; for the host's words at system scope.
        if by_host {
            atomic::fence(Ordering::Acquire);
        } else {
            fence();
        }
    }
}

/// Counts a ring. All who are one agent with the caller may do so at the same time.
fn count_up(word: Word64) {
    // Ordering: Release fence, pairs with the Acquire fence in `Bells::observe_counts`.
    fence();
    word.count_up();
    hand_off::at(HandOff::Published);
}

fn word_of(word: Word64) -> Word {
    // SAFETY: as aligned and as mapped as the other; it is accessed atomically.
    unsafe { Word::from_ptr(word.as_ptr()) }
}

/// A block's side of the bells. Equal on all lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doorbell {
    bells: Bells,
    relay: HostRelay,
    block: usize,
}

/// Who has rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rung {
    pub(crate) by_device: bool,
    pub(crate) by_host: bool,
}

impl Doorbell {
    pub(crate) const fn new(bells: Bells, relay: HostRelay, block: usize) -> Self {
        Self { bells, relay, block }
    }

    /// What ends a wait of the block, as far as it knows: its own word, and the host's if
    /// `by_host`. All lanes, after a barrier; the leader's are used.
    pub(crate) fn words(&self, by_host: bool) -> WakeWords {
        let (bells, block) = (&self.bells, self.block);
        let device = (word_of(bells.wake_word(block)), bells.known(block, known::DEVICE).get());
        let host = (word_of(bells.host.wake_word(block)), bells.known(block, known::HOST).get());
        let second = if by_host { host } else { device };
        // SAFETY: words and flag are mapped while the launch runs, and this block alone sleeps by
        // the flag.
        let words = unsafe { WakeWords::new([device, second], bells.host.sleeping(block)) };
        if !by_host {
            return words;
        }
        let relayed = self.relay.word(bells.host, bells.known(block, known::CHANGES).get());
        // SAFETY: the words of the relay are mapped as the others, and the blocks of the launch
        // alone change its own ones.
        unsafe { words.relayed(relayed) }
    }

    /// Takes what was rung so far for known; returns who has rung since the last call. All lanes;
    /// begins and ends with a barrier. What was stored before a ring that counts is there for all
    /// of them.
    pub(crate) fn look<G: Group>(&self, g: &G, host: HostLook) -> Rung {
        let (bells, block) = (&self.bells, self.block);
        let mut found = 0;
        if g.is_leader() {
            // Loads of the device's memory, all of them before one is looked at.
            let known = |what| bells.known(block, what);
            let (wake, changes) = (bells.wake_word(block).get(), self.relay.copy().peek());
            let (known_wake, known_changes) = (known(known::DEVICE).get(), known(known::CHANGES).get());
            // Ordering: Acquire fence, pairs with the Release fence in `Bells::wake`, and with the
            // publish of the copy; the broadcast hands it on to all lanes.
            fence();
            known(known::DEVICE).set(wake);
            found |= u64::from(wake != known_wake);
            let may_be_host = match host {
                HostLook::No => false,
                // A CPU block waits by its own wake word.
                HostLook::Copy | HostLook::Word if !is_relayed() => true,
                HostLook::Copy | HostLook::Word => {
                    let changes = if host == HostLook::Copy { changes } else { self.relay.ask(bells.host) };
                    // Before the wake word: a ring that comes between the two is looked at once
                    // more.
                    known(known::CHANGES).set(changes);
                    changes != known_changes
                }
            };
            if may_be_host {
                let known_host = known(known::HOST);
                // Ordering: Acquire at system scope, pairs with the Release fence in
                // `HostBells::wake`.
                let wake = word_of(bells.host.wake_word(block)).observe();
                found |= u64::from(wake != known_host.get()) << 1;
                known_host.set(wake);
            }
            hand_off::at(HandOff::Observed);
        }
        let found = g.broadcast(found);
        Rung { by_device: found & 1 != 0, by_host: found & 2 != 0 }
    }
}

/// How a look finds out whether the host has rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostLook {
    /// Not at all: nobody has given it a bell.
    No,
    /// On a GPU by the copy, after a wait that has renewed it.
    Copy,
    /// By a load of the host's memory.
    Word,
}

/// How late a block that does not wait, because its sockets have always something to do, asks
/// whether the host has rung: a load of host memory takes a GPU 1 to 2 us.
const ASK_EVERY_NS: u64 = 20_000;

/// When a block has last learned how often the host has rung.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastAsked(u64);

impl LastAsked {
    /// How to look at `now`, if a wait before has learned of the host's rings or not.
    pub(crate) fn next_look(&mut self, now: u64, has_waited: bool) -> HostLook {
        let is_due = now.saturating_sub(self.0) >= ASK_EVERY_NS;
        if has_waited || is_due {
            self.0 = now;
        }
        if !has_waited && is_due { HostLook::Word } else { HostLook::Copy }
    }
}

/// Returns whether blocks go by the copy of the host's count: those of a GPU, and those of a CPU
/// that a test makes wait so.
fn is_relayed() -> bool {
    cfg!(target_arch = "nvptx64") || hand_off::blocks_poll()
}

/// How often the host has rung, for the blocks of a GPU: one of those that wait loads it from host
/// memory, the others a copy. A release of a block waits until no load of host memory is in flight
/// near it, so not all may load there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostRelay {
    /// The copy, and until when a block has the turn to renew it; 0: none has.
    memory: Memory,
}

impl HostRelay {
    pub(crate) fn carve(carve: &mut Carve) -> Self {
        Self { memory: carve.take(16) }
    }

    fn copy(self) -> Word {
        word_of(self.memory.u64(0))
    }

    fn word(self, host: HostBells, seen: u64) -> RelayedWord {
        let [copy, turn] = [0, 8].map(|at| self.memory.u64(at).as_ptr());
        RelayedWord { host: word_of(host.changes()), copy, turn, seen }
    }

    /// How often the host has rung by now. By one lane.
    fn ask(self, host: HostBells) -> u64 {
        let copy = self.copy().peek();
        // Ordering: Acquire at system scope, pairs with the Release fence in `HostBells::wake`.
        let changes = word_of(host.changes()).observe();
        if changes != copy {
            // One that has looked earlier may set the copy back: who relays next sets it right, and
            // a block that sees a count twice looks twice.
            device_scope::publish(self.copy(), changes);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_never_waits_asks_now_and_then() {
        let mut last = LastAsked::default();
        let mut look = |now, has_waited| last.next_look(now, has_waited);
        assert_eq!(look(1_000_000, false), HostLook::Word);
        assert_eq!(look(1_019_999, false), HostLook::Copy);
        assert_eq!(look(1_020_000, false), HostLook::Word);
        assert_eq!(look(1_039_000, true), HostLook::Copy, "it has just learned of it");
        assert_eq!(look(1_058_000, false), HostLook::Copy);
        assert_eq!(look(1_059_000, false), HostLook::Word);
    }
}
