//! Which data thread a stream belongs to: the one with the fewest, from its open to its end.

use super::ShardLink;
use crate::model::snapshot::Thread;
use gpunet_abi::Link;

/// The number of a data thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadIndex(u32);

impl ThreadIndex {
    /// What a device is told of a stream of that thread.
    pub(super) const fn link(self) -> Link {
        Link::driven(self.0)
    }
}

/// The data threads, and how many streams of all attachments each has.
///
/// A stream counts from [`DataThreads::assign`] to [`DataThreads::release`]: as long as its slot has the role of a
/// stream.
pub(super) struct DataThreads {
    links: Vec<ShardLink>,
    open: Vec<u32>,
}

impl DataThreads {
    /// At least one, and none has a stream.
    pub(super) fn new(links: Vec<ShardLink>) -> Self {
        let open = vec![0; links.len()];
        Self { links, open }
    }

    /// Chooses the thread of a new stream: the one with the fewest, of several the first.
    pub(super) fn assign(&mut self) -> ThreadIndex {
        let fewest = self.open.iter().enumerate().min_by_key(|&(_, open)| open);
        let index = fewest.map_or(0, |(index, _)| index);
        self.open[index] += 1;
        ThreadIndex(index as u32)
    }

    /// A stream of that thread has ended.
    pub(super) fn release(&mut self, thread: ThreadIndex) {
        self.open[thread.0 as usize] -= 1;
    }

    /// How to reach that thread.
    pub(super) fn link(&self, thread: ThreadIndex) -> &ShardLink {
        &self.links[thread.0 as usize]
    }

    /// How to reach each of them.
    pub(super) fn links(&self) -> impl Iterator<Item = &ShardLink> {
        self.links.iter()
    }

    /// Their streams and loads.
    pub(super) fn snapshot(&self) -> Vec<Thread> {
        let threads = (0..).zip(self.links.iter().zip(&self.open));
        threads
            .map(|(index, (link, &streams))| Thread { index, streams, busy_ns: link.load.busy_ns() })
            .collect()
    }

    /// How many streams each has.
    #[cfg(test)]
    pub(super) fn open(&self) -> &[u32] {
        &self.open
    }
}

#[cfg(test)]
mod tests {
    use super::super::plane::shard_links;
    use super::*;

    #[test]
    fn a_stream_goes_to_the_thread_with_the_fewest_and_of_several_to_the_first() {
        let mut threads = DataThreads::new(shard_links(3));
        let one = threads.assign();
        threads.release(one);
        let given: Vec<u32> = (0..7).map(|_| threads.assign().0).collect();
        assert_eq!(one, ThreadIndex(0), "a stream alone is on thread 0");
        assert_eq!(given, [0, 1, 2, 0, 1, 2, 0]);
        for thread in [1, 1, 2] {
            threads.release(ThreadIndex(thread));
        }
        assert_eq!(threads.open(), [3, 0, 1]);
        assert_eq!([threads.assign().0, threads.assign().0, threads.assign().0], [1, 1, 2]);
        assert_eq!(threads.snapshot().iter().map(|thread| thread.streams).sum::<u32>(), 7);
    }

    #[test]
    fn a_device_is_told_the_thread() {
        assert_eq!(ThreadIndex(2).link().data_thread(), Some(2));
    }
}
