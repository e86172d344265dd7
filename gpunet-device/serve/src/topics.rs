//! Topics: how the turn of one connection gives a turn to others, whichever block serves them.

use crate::memory::{Carve, Memory};
use crate::word::fence;
use gpunet_device::Group;

/// Notifications of all topics are counted in the first word, those of a topic in a word of its
/// own.
const ALL: usize = 0;

/// The topics of a server ([`crate::Service::topics`]). A connection subscribes to one; whoever
/// notifies a topic gives each of its subscribers a turn.
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
    words: Memory,
    len: u32,
}

impl Topics {
    pub(crate) fn carve(carve: &mut Carve, len: u32) -> Self {
        Self { words: carve.take((1 + len as usize) * 8), len }
    }

    /// How many topics there are: 0 to one less are their numbers.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.len
    }

    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Gives each subscriber of a topic a turn, that of the caller's connection included: within
    /// microseconds on a GPU, a millisecond on a CPU, if its block is idle. Notifications between
    /// two turns of a subscriber are one. A topic that does not exist has no subscribers.
    ///
    /// # Cooperation
    /// All lanes call it. What they have stored before is there for the turns.
    pub fn notify<G: Group>(self, g: &G, topic: u32) {
        g.sync();
        if topic >= self.len || !g.is_leader() {
            return;
        }
        for word in [8 + topic as usize * 8, ALL] {
            // Ordering: Release fence before each word, pairs with the Acquire fence in
            // `Topics::has_news`: who sees a count of all sees the count of the topic, and what the
            // group has stored before.
            fence();
            let word = self.words.u64(word);
            loop {
                let count = word.get();
                if word.replace(count, count.wrapping_add(1)) {
                    break;
                }
            }
        }
    }

    /// Notifications of all topics so far. By any lane; it loads one word.
    #[inline(always)]
    pub(crate) fn all(self) -> u64 {
        self.words.u64(ALL).get()
    }

    /// Returns whether something was notified since `seen`, which becomes what is counted now. All
    /// lanes; begins and ends with a barrier.
    pub(crate) fn has_news<G: Group>(self, g: &G, seen: &mut u64) -> bool {
        let mut now = 0;
        if g.is_leader() {
            now = self.all();
            // Ordering: Acquire fence, pairs with the Release fences in `Topics::notify`; the
            // broadcast hands it on to all lanes.
            fence();
        }
        let now = g.broadcast(now);
        core::mem::replace(seen, now) != now
    }

    /// How often a topic was notified. By any lane: lanes may see different counts.
    pub(crate) fn count(self, topic: u32) -> u64 {
        if topic < self.len { self.words.u64(8 + topic as usize * 8).get() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::for_test;
    use gpunet_device::group::Solo;

    #[test]
    fn every_notification_counts() {
        let mut measure = Carve::measure();
        let _ = Topics::carve(&mut measure, 3);
        let topics = Topics::carve(&mut Carve::new(for_test(measure.used()), 1), 3);
        std::thread::scope(|scope| {
            for block in 0..4 {
                scope.spawn(move || (0..5000).for_each(|_| topics.notify(&Solo::new(block, 4), 1)));
            }
        });
        let (g, mut seen) = (Solo::new(0, 1), 0);
        assert!(topics.has_news(&g, &mut seen) && !topics.has_news(&g, &mut seen));
        assert_eq!([0, 1, 2, 3].map(|topic| topics.count(topic)), [0, 20_000, 0, 0]);
        topics.notify(&g, 3);
        assert!(!topics.has_news(&g, &mut seen), "there is no such topic");
    }
}
