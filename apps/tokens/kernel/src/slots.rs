//! A place in memory for the request of each connection: what the server's block and the block of
//! the model that has it tell each other.
//!
//! ```text
//! the block that serves the connection          a block of the model
//!   writes prompt, settings and number
//!   pushes the place into the queue  ---------->  pops it, reads the place
//!                                                 writes tokens behind each other
//!   observes how far they go  <------------------ publishes how many there are, rings the bell
//!   says that it needs no more  ----------------> ends the request at the next step
//!                                    <----------- publishes that it has ended
//! ```
//!
//! Each word has one writer at a time. A place takes the next request when the model has ended the
//! last one; from then on the model does not touch it. The request of a client that goes while it
//! waits is taken out of the queue: the block that serves the connection then writes the model's
//! word, that it has ended.
#![allow(unsafe_code)]

use gpunet_device::Group;
use gpunet_serve::raw::Word64;
use gpunet_serve::{Bytes, Carve, Memory};
use gpunet_tokens_model::CONTEXT;

/// Sequences at which an answer ends, at most: four of the request, as in the API of OpenAI, and
/// the end of a line in a chat.
pub(crate) const MAX_STOPS: usize = 5;
/// Bytes of such a sequence, at most.
pub(crate) const MAX_STOP: usize = 32;

/// Where things are in a place.
mod at {
    use super::{CONTEXT, MAX_STOP, MAX_STOPS};

    // Written by the block that serves the connection.
    /// The number of the request.
    pub(super) const NUMBER: usize = 0;
    /// Bytes of the prompt; above them the most tokens of the answer.
    pub(super) const LENGTHS: usize = 8;
    /// The bits of the temperature; above them, whether it ignores the end of the text.
    pub(super) const TEMPERATURE: usize = 16;
    pub(super) const SEED: usize = 24;
    /// The number of a request that needs no more tokens.
    pub(super) const STOPPED: usize = 32;
    /// The lengths of the stop sequences.
    pub(super) const STOPS: usize = 64;

    // Written by the block of the model.
    /// [`super::Progress`]; of a request that has left the queue, by the block of the connection.
    pub(super) const PROGRESS: usize = 128;
    /// When the last token was stored.
    pub(super) const STORED: usize = 136;

    // Bytes; the first two are the server's.
    pub(super) const STOP_TEXTS: usize = 192;
    pub(super) const PROMPT: usize = STOP_TEXTS + MAX_STOPS * MAX_STOP;
    pub(super) const OUTPUT: usize = PROMPT + CONTEXT;
    pub(super) const LEN: usize = (OUTPUT + CONTEXT).next_multiple_of(64);
}

/// What a request asks of the model, beside its prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Bytes of the prompt.
    pub(crate) prompt: usize,
    /// Tokens of the answer, at most.
    pub(crate) most: usize,
    pub(crate) temperature: f32,
    pub(crate) seed: u64,
    /// It goes on when the model has ended the text.
    pub(crate) ignores_end: bool,
}

/// How the model's work for a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The model has ended the text.
    Text,
    /// There are as many tokens as were wanted.
    Length,
    /// It was stopped.
    Stopped,
    /// The model has refused the step.
    Failed,
}

/// How far the model has come with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The number of the request.
    pub(crate) number: u32,
    /// Tokens so far.
    pub(crate) count: usize,
    pub(crate) end: Option<End>,
}

impl Progress {
    const fn word(self) -> u64 {
        let end = match self.end {
            None => 0,
            Some(End::Text) => 1,
            Some(End::Length) => 2,
            Some(End::Stopped) => 3,
            Some(End::Failed) => 4,
        };
        (self.number as u64) << 32 | end << 24 | self.count as u64
    }

    const fn of(word: u64) -> Self {
        let end = match word >> 24 & 0xff {
            0 => None,
            1 => Some(End::Text),
            2 => Some(End::Length),
            3 => Some(End::Stopped),
            _ => Some(End::Failed),
        };
        Self { number: (word >> 32) as u32, count: (word & 0xff_ffff) as usize, end }
    }
}

/// The places of all connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    memory: Memory,
}

impl Slots {
    pub(crate) fn new(carve: &mut Carve) -> Self {
        let len = carve.places() * at::LEN;
        // SAFETY: every block carves it alike. `at` has aligned words, each of which one block
        // writes at a time; bytes are written as the module's description says.
        Self { memory: unsafe { carve.memory(len) } }
    }

    /// The place of the connection that has this place among the server's connections.
    ///
    /// # Panics
    /// There is no such connection.
    pub(crate) fn at(self, place: usize) -> Slot {
        Slot { memory: self.memory.part(place * at::LEN, at::LEN) }
    }
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    memory: Memory,
}

impl Slot {
    fn word(self, at: usize) -> Word64 {
        self.memory.u64(at)
    }

    /// The number of the next request of this place, if the model has ended the last one.
    ///
    /// # Cooperation
    /// All lanes of the block that serves the connection.
    pub(crate) fn next_number<G: Group>(self, g: &G) -> Option<u32> {
        let last = g.broadcast(self.word(at::NUMBER).get()) as u32;
        let is_free = last == 0 || {
            let progress = self.progress(g);
            progress.number == last && progress.end.is_some()
        };
        // 0 is no request.
        if is_free { Some(last.wrapping_add(1).max(1)) } else { None }
    }

    /// Appends bytes to the prompt, which has `len` so far. All lanes; what does not fit is cut.
    pub(crate) fn put_prompt<G: Group>(self, g: &G, len: usize, bytes: Bytes<'_>) {
        let room = CONTEXT.saturating_sub(len);
        self.memory.part(at::PROMPT + len.min(CONTEXT), room).fill(g, bytes.first(room));
    }

    /// Sets a stop sequence. All lanes; `which` is below [`MAX_STOPS`], and it has [`MAX_STOP`]
    /// bytes at most.
    pub(crate) fn put_stop<G: Group>(self, g: &G, which: usize, text: Bytes<'_>) {
        self.memory.part(at::STOP_TEXTS + which * MAX_STOP, MAX_STOP).fill(g, text.first(MAX_STOP));
        if g.is_leader() {
            self.word(at::STOPS + 8 * which).set(text.len() as u64);
        }
    }

    /// Writes what the request asks, behind the prompt and the stop sequences. All lanes.
    pub(crate) fn submit<G: Group>(self, g: &G, number: u32, settings: &Settings) {
        if g.is_leader() {
            self.word(at::LENGTHS).set((settings.most as u64) << 32 | settings.prompt as u64);
            let temperature = u64::from(settings.temperature.to_bits());
            self.word(at::TEMPERATURE).set(u64::from(settings.ignores_end) << 32 | temperature);
            self.word(at::SEED).set(settings.seed);
            self.word(at::NUMBER).set(number.into());
        }
    }

    /// Takes the request back that has not been given to the model. All lanes.
    pub(crate) fn withdraw<G: Group>(self, g: &G, number: u32) {
        if g.is_leader() {
            self.word(at::NUMBER).set((number - 1).into());
        }
    }

    /// Ends the request that was taken out of the queue, so that the model never comes to it. All
    /// lanes.
    pub(crate) fn take_back<G: Group>(self, g: &G, number: u32) {
        if g.is_leader() {
            self.publish(Progress { number, count: 0, end: Some(End::Stopped) });
        }
    }

    /// Tells the model that the request needs no more tokens. All lanes.
    pub(crate) fn stop<G: Group>(self, g: &G, number: u32) {
        if g.is_leader() {
            self.word(at::STOPPED).set(number.into());
        }
    }

    /// The stop sequences.
    pub(crate) fn stops(self, count: usize) -> Stops {
        Stops { slot: self, count }
    }

    /// How far the model is.
    ///
    /// # Cooperation
    /// All lanes, and all get the same. Those tokens are there for all of them then.
    pub(crate) fn progress<G: Group>(self, g: &G) -> Progress {
        // Ordering: Acquire, pairs with the Release of `publish`; the broadcast hands it on.
        let word = if g.is_leader() { self.word(at::PROGRESS).observe() } else { 0 };
        Progress::of(g.broadcast(word))
    }

    /// The first `count` tokens of the answer, which are there.
    pub(crate) fn output<'a>(self, count: usize) -> Bytes<'a> {
        self.memory.part(at::OUTPUT, count.min(CONTEXT)).stable_bytes()
    }

    /// When the last of them was stored, by the device's clock. By the leader.
    pub(crate) fn stored_at(self) -> u64 {
        self.word(at::STORED).get()
    }
}

/// The model's side: one lane of its block for each place.
impl Slot {
    pub(crate) fn settings(self) -> Settings {
        let lengths = self.word(at::LENGTHS).get();
        let temperature = self.word(at::TEMPERATURE).get();
        Settings {
            prompt: (lengths as u32 as usize).min(CONTEXT),
            most: (lengths >> 32) as usize,
            temperature: f32::from_bits(temperature as u32),
            seed: self.word(at::SEED).get(),
            ignores_end: temperature >> 32 != 0,
        }
    }

    /// Byte `index` of the prompt.
    pub(crate) fn prompt(self, index: usize) -> u8 {
        self.memory.part(at::PROMPT, CONTEXT).stable_bytes().get(index)
    }

    pub(crate) fn is_stopped(self, number: u32) -> bool {
        self.word(at::STOPPED).get() as u32 == number
    }

    /// Stores a token of the answer.
    pub(crate) fn store<G: Group>(self, lane: &G, index: usize, token: u8, now: u64) {
        self.memory.part(at::OUTPUT, CONTEXT).part(index, 1).fill(lane, Bytes::from(&[token]));
        self.word(at::STORED).set(now);
    }

    /// Publishes how far the request is.
    pub(crate) fn publish(self, progress: Progress) {
        // Ordering: Release, pairs with the Acquire in `progress`: who sees the count finds the
        // tokens.
        self.word(at::PROGRESS).publish(progress.word());
    }
}

/// The sequences at which an answer ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stops {
    slot: Slot,
    count: usize,
}

impl Stops {
    pub(crate) const fn len(self) -> usize {
        self.count
    }

    pub(crate) fn get<'a>(self, which: usize) -> Bytes<'a> {
        let len = self.slot.word(at::STOPS + 8 * which).get() as usize;
        let text = self.slot.memory.part(at::STOP_TEXTS + which * MAX_STOP, MAX_STOP);
        text.stable_bytes().first(len)
    }
}

/// A place in memory of its own.
#[cfg(test)]
pub(crate) fn for_test() -> Slot {
    let cells = std::vec![[0u128; 4]; at::LEN / 64 + 1].leak();
    let ptr = cells.as_mut_ptr().cast::<u8>();
    let ptr = ptr.wrapping_add(ptr.align_offset(64));
    // SAFETY: leaked, so it lives for ever; each test has its own.
    let buffer = unsafe { gpunet_device::Buffer::from_raw_parts(ptr, at::LEN) };
    // SAFETY: as above, zeros and 64-aligned.
    Slot { memory: unsafe { Memory::new(buffer) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_device::group::Solo;

    #[test]
    fn progress_is_a_word() {
        for end in [None, Some(End::Text), Some(End::Length), Some(End::Stopped), Some(End::Failed)] {
            for (number, count) in [(1, 0), (u32::MAX, CONTEXT), (7, 1)] {
                let progress = Progress { number, count, end };
                assert_eq!(Progress::of(progress.word()), progress);
            }
        }
    }

    #[test]
    fn a_place_takes_a_request_when_the_last_one_has_ended() {
        let (g, slot) = (Solo::new(0, 1), for_test());
        let settings = Settings { prompt: 2, most: 9, temperature: 0.5, seed: 1 << 40, ignores_end: true };
        assert_eq!(slot.next_number(&g), Some(1));
        slot.put_prompt(&g, 0, Bytes::from(b"ab"));
        slot.submit(&g, 1, &settings);
        assert_eq!((slot.settings(), slot.prompt(1)), (settings, b'b'));
        assert_eq!(slot.next_number(&g), None);
        slot.store(&g, 0, b'x', 5);
        slot.publish(Progress { number: 1, count: 1, end: None });
        assert_eq!(slot.next_number(&g), None);
        assert!(slot.output(slot.progress(&g).count) == b"x" && slot.stored_at() == 5);
        slot.stop(&g, 1);
        assert!(slot.is_stopped(1) && !slot.is_stopped(2));
        slot.publish(Progress { number: 1, count: 1, end: Some(End::Stopped) });
        assert_eq!(slot.next_number(&g), Some(2));
    }

    #[test]
    fn a_place_is_free_when_its_request_is_taken_back() {
        let (g, slot) = (Solo::new(0, 1), for_test());
        let settings = Settings { prompt: 0, most: 1, temperature: 0.0, seed: 0, ignores_end: false };
        slot.submit(&g, 1, &settings);
        assert_eq!(slot.next_number(&g), None);
        slot.take_back(&g, 1);
        // The next one has another number, so nothing that was said of this one is for it.
        assert_eq!(slot.next_number(&g), Some(2));
    }

    #[test]
    fn what_is_too_long_for_a_place_is_cut() {
        let (g, slot) = (Solo::new(0, 1), for_test());
        slot.put_prompt(&g, CONTEXT - 1, Bytes::from(b"ab"));
        slot.put_prompt(&g, CONTEXT + 7, Bytes::from(b"ab"));
        assert_eq!((slot.prompt(CONTEXT - 1), slot.prompt(CONTEXT)), (b'a', 0));
        assert!(slot.output(CONTEXT) == [0; CONTEXT]);
    }
}
