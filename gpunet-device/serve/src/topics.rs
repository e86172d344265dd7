//! Topics: how the turn of one connection gives a turn to others, whichever block serves them.

use crate::bells::Bells;
use crate::memory::{Carve, Memory};
use crate::word::{Word64, full_fence};
use gpunet_device::Group;

/// The topics of a server ([`crate::Service::topics`]). A connection subscribes to one; whoever
/// notifies a topic rings the bells of its subscribers.
///
/// A notification carries no data: what there is to say lies in a structure that the blocks share.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Result};
/// # use gpunet_serve::{Service, Turn};
/// # fn example<G: Group, S: Service>(g: &G, turn: &mut Turn<'_, S>) {
/// *turn.subscription = Some(3); // this connection gets turns when topic 3 is notified, beginning with one at once
/// turn.topics.notify(g, 3); // all subscribers of topic 3 get one
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Topics {
    /// For each topic a bit for each place.
    bits: Memory,
    len: u32,
    /// Words of each topic.
    words: u32,
    bells: Bells,
}

impl Topics {
    pub(crate) fn carve(carve: &mut Carve, len: u32, bells: Bells) -> Self {
        let words = carve.places().div_ceil(64);
        Self { bits: carve.take(len as usize * words * 8), len, words: words as u32, bells }
    }

    /// How many topics there are: 0 to one less are their numbers.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Gives each subscriber of a topic a turn, that of the caller's connection included: within
    /// microseconds, if its block is idle. Notifications between two turns of a subscriber are one.
    /// A topic that does not exist has no subscribers.
    ///
    /// # Cooperation
    /// All lanes call it, and share the work. What they have stored before is there for the turns.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn notify<G: Group>(&self, g: &G, topic: u32) {
        g.sync();
        if topic >= self.len {
            return;
        }
        // Ordering: SeqCst, pairs with the fence in `Topics::subscribe`: either the bit of a new
        // subscriber is found, or its first turn finds what was stored before this call.
        full_fence();
        let mut at = g.rank();
        while at < self.words {
            let mut bits = self.word(topic, at).get();
            while bits != 0 {
                self.bells.ring_place(at as usize * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
            at += g.size();
        }
    }

    /// Enters a place as a subscriber, which is to have a turn at once; or strikes it out. By one
    /// lane.
    pub(crate) fn subscribe(&self, place: usize, topic: u32, is_in: bool) {
        if topic >= self.len {
            return;
        }
        let (word, bit) = (self.word(topic, place as u32 / 64), 1 << (place % 64));
        loop {
            let found = word.get();
            if word.replace(found, if is_in { found | bit } else { found & !bit }) {
                break;
            }
        }
        full_fence();
    }

    fn word(&self, topic: u32, at: u32) -> Word64 {
        self.bits.u64((topic as usize * self.words as usize + at as usize) * 8)
    }
}
