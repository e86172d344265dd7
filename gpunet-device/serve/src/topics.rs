//! Topics: sets of bells, for news that concern many connections.

use crate::memory::{Carve, Memory};
use crate::word::{Word64, fence, full_fence};
use crate::{Bell, Bells};
use gpunet_device::Group;

/// Sets of bells, which are numbered. A connection puts its bell into some of them; whoever has
/// news rings all bells of one.
///
/// A notification carries no data: what there is to say lies in a structure that the blocks share.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Result};
/// # use gpunet_serve::{Service, Topics, Turn};
/// # fn example<G: Group, S: Service>(g: &G, turn: &mut Turn<'_, S>, topics: Topics) {
/// let bell = turn.bell();
/// topics.subscribe(g, 3, bell); // and then it looks what was said before
/// topics.notify(g, turn.bells, 3); // all subscribers of topic 3 get a turn
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Topics {
    /// For each topic a bit for each place.
    bits: Memory,
    /// For each place the bell whose bits these are.
    bells: Memory,
    len: u32,
    /// Words of each topic.
    words: u32,
}

impl Topics {
    /// Makes `len` topics: 0 to one less are their numbers.
    #[must_use]
    pub fn new(carve: &mut Carve, len: u32) -> Self {
        let words = carve.places().div_ceil(64);
        let bits = carve.take(len as usize * words * 8);
        Self { bits, bells: carve.take(carve.places() * 8), len, words: words as u32 }
    }

    /// How many topics there are.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts the bell of the calling connection ([`crate::Turn::bell`]) into a topic, until the
    /// connection ends. Its service looks at the news after that: what was said before rings for
    /// nobody.
    ///
    /// A topic that does not exist stays without subscribers.
    ///
    /// # Cooperation
    /// All lanes call it. Ends with a barrier.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn subscribe<G: Group>(&self, g: &G, topic: u32, bell: Bell) {
        g.sync();
        if bell.place() * 8 < self.bells.len() && topic < self.len {
            let owner = self.bell(bell.place());
            if owner.get() != bell.raw() {
                // The bits are those of an earlier connection.
                let mut other = g.rank();
                while other < self.len {
                    self.change(other, bell.place(), false);
                    other += g.size();
                }
            }
            g.sync();
            if g.is_leader() {
                owner.set(bell.raw());
                // Ordering: Release, pairs with the Acquire fence in `notify`: who finds the bit
                // finds the bell.
                fence();
                self.change(topic, bell.place(), true);
                // Ordering: SeqCst, pairs with the fence in `notify`.
                full_fence();
            }
        }
        g.sync();
    }

    /// Takes the bell of the calling connection out of a topic.
    ///
    /// # Cooperation
    /// As [`Topics::subscribe`].
    pub fn unsubscribe<G: Group>(&self, g: &G, topic: u32, bell: Bell) {
        g.sync();
        let is_in = bell.place() * 8 < self.bells.len() && topic < self.len;
        if is_in && g.is_leader() && self.bell(bell.place()).get() == bell.raw() {
            self.change(topic, bell.place(), false);
        }
        g.sync();
    }

    /// Gives each subscriber of a topic a turn, that of the caller's connection included: within
    /// microseconds, if its block is idle. Notifications between two turns of a subscriber are one.
    ///
    /// # Cooperation
    /// All lanes call it, and share the work. What they have stored before is there for the turns.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn notify<G: Group>(&self, g: &G, bells: &Bells, topic: u32) {
        g.sync();
        if topic >= self.len {
            return;
        }
        // Ordering: SeqCst, pairs with the fence in `Topics::subscribe`: either the bit of a new
        // subscriber is found, or its service finds what was stored before this call.
        full_fence();
        let mut at = g.rank();
        while at < self.words {
            let mut bits = self.word(topic, at).get();
            if bits != 0 {
                // Ordering: Acquire, pairs with the Release fence in `subscribe`.
                fence();
            }
            while bits != 0 {
                let place = at as usize * 64 + bits.trailing_zeros() as usize;
                // One of a connection that has ended does nothing.
                bells.ring_alone(Bell::from_raw(self.bell(place).get()));
                bits &= bits - 1;
            }
            at += g.size();
        }
    }

    /// Sets or clears a place's bit. By one lane.
    fn change(&self, topic: u32, place: usize, is_in: bool) {
        let (word, bit) = (self.word(topic, place as u32 / 64), 1 << (place % 64));
        loop {
            let found = word.get();
            let wanted = if is_in { found | bit } else { found & !bit };
            if found == wanted || word.replace(found, wanted) {
                break;
            }
        }
    }

    fn bell(&self, place: usize) -> Word64 {
        self.bells.u64(place * 8)
    }

    fn word(&self, topic: u32, at: u32) -> Word64 {
        self.bits.u64((topic as usize * self.words as usize + at as usize) * 8)
    }
}
