//! Work for several workers: who pushes wakes one that is idle.

use crate::bells::Bells;
use crate::memory::{Carve, Memory};
use crate::word::Word64;
use crate::{Context, Service, WorkQueue, Worker};
use gpunet_device::{Group, Result};

/// A [`WorkQueue`] of several workers ([`Service::workers`]), any of which takes an item.
///
/// An item wakes one worker that has nothing to do. If all are busy, it wakes nobody: a worker
/// looks for more when it has done something.
///
/// # Examples
///
/// A worker that does one thing after another:
///
/// ```
/// # use gpunet_device::{Group, Result};
/// # use gpunet_serve::{Service, WorkPool, Worker};
/// # fn work<G: Group, S: Service>(g: &G, worker: &mut Worker<'_, S>, jobs: WorkPool<2>) -> Result<()> {
/// loop {
///     match jobs.pop_or_idle(g, worker)? {
///         Some([bell, seed]) => { /* ... */ }
///         None if worker.wait(g, u64::MAX)? => {}
///         None => return Ok(()),
///     }
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WorkPool<const N: usize> {
    queue: WorkQueue<N>,
    /// A bit for each worker that is idle. They are read and written under the queue's lock.
    idle: Memory,
    bells: Bells,
}

/// Workers whose bits are in a word.
const BITS: usize = 64;

impl<const N: usize> WorkPool<N> {
    /// A pool of at most `capacity` items that wait, in memory that all blocks carve alike.
    #[must_use]
    pub fn new(carve: &mut Carve, capacity: usize) -> Self {
        // At most all blocks are workers.
        let words = carve.blocks().div_ceil(BITS);
        let (idle, bells) = (carve.take(words * 8), Bells::of(carve));
        Self { queue: WorkQueue::new(carve, capacity), idle, bells }
    }

    /// The items that wait, without the workers: who pushes here wakes nobody.
    #[must_use]
    pub const fn queue(self) -> WorkQueue<N> {
        self.queue
    }

    /// Appends an item, and wakes a worker that is idle, if one is. Returns whether there was room
    /// for the item.
    ///
    /// # Cooperation
    /// As [`WorkQueue::push`].
    ///
    /// # Errors
    /// As [`WorkQueue::push`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn push<G: Group>(self, g: &G, context: &Context, item: [u64; N]) -> Result<bool> {
        let mut woken = None;
        let has_room = self.queue.push_and(g, context, item, || woken = self.take_idle())?;
        // The leader knows it, and rings alone.
        if let Some(worker) = woken {
            self.bells.ring_worker_alone(worker);
        }
        Ok(has_room)
    }

    /// Takes the oldest item, for a worker that is busy.
    ///
    /// # Cooperation
    /// As [`WorkQueue::pop`].
    ///
    /// # Errors
    /// As [`WorkQueue::pop`].
    pub fn pop<G: Group>(self, g: &G, context: &Context) -> Result<Option<[u64; N]>> {
        self.queue.pop(g, context)
    }

    /// Takes the oldest item, for a worker that has nothing else to do. If there is none, the
    /// worker is idle from then on: one of the next items ends its [`Worker::wait`]. It is idle
    /// until this gives it an item.
    ///
    /// A worker that is woken may find that another one was sooner: then it is idle again.
    ///
    /// # Cooperation
    /// As [`WorkQueue::pop`].
    ///
    /// # Errors
    /// As [`WorkQueue::pop`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn pop_or_idle<G: Group, S: Service>(
        self,
        g: &G,
        worker: &Worker<'_, S>,
    ) -> Result<Option<[u64; N]>> {
        self.pop_as(g, &worker.context, worker.number())
    }

    #[inline(always)]
    fn pop_as<G: Group>(self, g: &G, context: &Context, worker: u32) -> Result<Option<[u64; N]>> {
        self.queue.pop_and(g, context, |has_item| self.set_idle(worker, !has_item))
    }

    fn word(self, index: usize) -> Word64 {
        self.idle.u64(index * 8)
    }

    /// Takes the first worker that is idle. By one lane, under the lock.
    fn take_idle(self) -> Option<u32> {
        let mut index = 0;
        while index < self.idle.len() / 8 {
            let bits = self.word(index).get();
            if bits != 0 {
                self.word(index).set(bits & (bits - 1));
                return Some((index * BITS) as u32 + bits.trailing_zeros());
            }
            index += 1;
        }
        None
    }

    /// By one lane, under the lock.
    fn set_idle(self, worker: u32, is_idle: bool) {
        let (word, bit) = (self.word(worker as usize / BITS), 1u64 << (worker as usize % BITS));
        let others = word.get() & !bit;
        word.set(if is_idle { others | bit } else { others });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{for_test, no_net};
    use gpunet_device::group::{Lanes, Solo};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::vec::Vec;

    const CONTEXT: Context = Context { net: no_net(), now: 0 };
    const BLOCKS: usize = 130;

    fn pool(capacity: usize) -> WorkPool<1> {
        WorkPool::new(&mut Carve::new(for_test(4096), BLOCKS), capacity)
    }

    #[test]
    fn an_item_takes_one_idle_worker_from_the_list() {
        let (g, pool) = (Solo::new(0, 1), pool(4));
        for worker in [129, 3, 64] {
            assert_eq!(pool.pop_as(&g, &CONTEXT, worker), Ok(None));
        }
        let take = || pool.take_idle();
        assert_eq!([take(), take(), take(), take()], [Some(3), Some(64), Some(129), None]);
        assert_eq!(pool.pop_as(&g, &CONTEXT, 7), Ok(None));
        // Woken by something else, it finds an item of others, and is busy.
        assert!(pool.queue().push(&g, &CONTEXT, [5]).unwrap());
        assert_eq!(pool.pop_as(&g, &CONTEXT, 7), Ok(Some([5])));
        assert_eq!(take(), None);
    }

    /// Workers that sleep until they are taken from the list, and a wake that is lost would hang.
    #[test]
    fn no_item_stays_while_a_worker_sleeps() {
        const ITEMS: u64 = 3000;
        for lanes in [1, 3] {
            let (pool, taken) = (pool(8), Mutex::new(Vec::new()));
            let rings: Vec<AtomicU32> = (0..3).map(|_| AtomicU32::new(0)).collect();
            let pushed = |g: &_, item| {
                let mut woken = None;
                let has_room = pool.queue.push_and(g, &CONTEXT, [item], || woken = pool.take_idle()).unwrap();
                if let Some(worker) = woken {
                    rings[worker as usize].fetch_add(1, Ordering::SeqCst);
                }
                has_room
            };
            std::thread::scope(|scope| {
                for worker in 0..rings.len() as u32 {
                    for g in Lanes::group(worker, 3, lanes) {
                        let (rings, taken) = (&rings, &taken);
                        scope.spawn(move || {
                            loop {
                                match pool.pop_as(&g, &CONTEXT, worker).unwrap() {
                                    Some([u64::MAX]) => return,
                                    Some([item]) if g.is_leader() => taken.lock().unwrap().push(item),
                                    Some(_) => {}
                                    None => {
                                        let ring = &rings[worker as usize];
                                        while g.is_leader() && ring.swap(0, Ordering::SeqCst) == 0 {
                                            std::thread::yield_now();
                                        }
                                        g.sync();
                                    }
                                }
                            }
                        });
                    }
                }
                let g = Solo::new(3, 4);
                // The ends come last: each worker takes one.
                for item in (0..ITEMS).chain(rings.iter().map(|_| u64::MAX)) {
                    while !pushed(&g, item) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut taken = taken.into_inner().unwrap();
            taken.sort_unstable();
            assert!(taken.into_iter().eq(0..ITEMS));
        }
    }
}
