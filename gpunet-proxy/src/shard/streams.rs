//! The streams of one attachment that a data thread drives.

use super::stream::Stream;
use gpunet_core::memory::WordArray;

/// A dense list of streams, found by slot as well: to go through it costs what there is, wherever the slots lie.
#[derive(Default)]
pub(super) struct Streams {
    live: Vec<Live>,
    /// By slot: where in the list its stream is. As long as the highest slot that ever had one.
    positions: Vec<u32>,
}

/// No stream in that slot.
const NONE: u32 = u32::MAX;

/// A stream, and the words that its device wrote for it when somebody last looked.
struct Live {
    slot: u32,
    published: u64,
    consumed: u64,
    stream: Box<Stream>,
}

impl Streams {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    fn position(&self, slot: u32) -> Option<usize> {
        self.positions.get(slot as usize).filter(|&&at| at != NONE).map(|&at| at as usize)
    }

    /// The stream in that slot.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Stream> {
        let at = self.position(slot)?;
        Some(&mut self.live[at].stream)
    }

    /// All of them, with their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Stream)> {
        self.live.iter().map(|live| (live.slot, &*live.stream))
    }

    /// Enters a stream in a slot that has none.
    pub(super) fn insert(&mut self, slot: u32, stream: Box<Stream>) {
        if self.positions.len() <= slot as usize {
            self.positions.resize(slot as usize + 1, NONE);
        }
        self.positions[slot as usize] = self.live.len() as u32;
        // Words of the slot's earlier life must not look new, nor those of this one look seen.
        self.live.push(Live { slot, published: u64::MAX, consumed: u64::MAX, stream });
    }

    /// Takes the stream out of that slot.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Stream>> {
        let at = self.position(slot)?;
        self.positions[slot as usize] = NONE;
        let gone = self.live.swap_remove(at);
        if let Some(moved) = self.live.get(at) {
            self.positions[moved.slot as usize] = at as u32;
        }
        Some(gone.stream)
    }

    /// Looks at the words of the stream in that slot.
    pub(super) fn look(&mut self, slot: u32, words: &Words, changed: &mut impl FnMut(u32, &mut Stream)) {
        if let Some(at) = self.position(slot) {
            self.live[at].look(words, changed);
        }
    }

    /// Looks at the words of those streams of the list.
    pub(super) fn look_at(
        &mut self,
        which: std::ops::Range<usize>,
        words: &Words,
        changed: &mut impl FnMut(u32, &mut Stream),
    ) {
        self.live[which].iter_mut().for_each(|live| live.look(words, changed));
    }
}

/// The words that a device writes for its streams.
pub(super) struct Words {
    pub(super) published: WordArray,
    pub(super) consumed: WordArray,
}

impl Live {
    /// Calls `changed` if one of the words differs from what it was. The values are hints; who uses one observes the
    /// word again.
    fn look(&mut self, words: &Words, changed: &mut impl FnMut(u32, &mut Stream)) {
        let published = words.published.get(self.slot as usize).peek();
        let consumed = words.consumed.get(self.slot as usize).peek();
        if (published, consumed) != (self.published, self.consumed) {
            (self.published, self.consumed) = (published, consumed);
            changed(self.slot, &mut self.stream);
        }
    }
}
