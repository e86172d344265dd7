//! Work that goes from blocks to blocks: bounded queues of small items.

use crate::Context;
use crate::lock::Lock;
use crate::memory::{Carve, Memory};
use gpunet_device::{Group, Result};

/// Where things are in a queue: its lock, how many items were pushed and popped so far, the items.
mod at {
    pub const LOCK: usize = 0;
    pub const PUSHED: usize = 8;
    pub const POPPED: usize = 16;
    pub const ITEMS: usize = 24;
}

/// A bounded queue of items of `N` numbers each, in the order in which they were pushed. Any block
/// pushes and pops; each item is popped once.
///
/// It wakes nobody: who pushes rings the bell of who pops ([`crate::Bells`]). A full queue takes
/// nothing, so the one who pushes decides what a client gets whose request finds no room.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Result};
/// # use gpunet_serve::{Next, Service, Turn, WorkQueue};
/// # fn example<G: Group, S: Service>(g: &G, turn: &mut Turn<'_, S>, jobs: WorkQueue<2>, seed: u64) -> Result<Next> {
/// let bell = turn.bell();
/// if !jobs.push(g, &turn.context, [bell.raw(), seed])? {
///     turn.output.put(g, b"busy\n");
///     return Ok(Next::Close);
/// }
/// turn.bells.ring_workers(g);
/// Ok(Next::Bell)
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WorkQueue<const N: usize> {
    memory: Memory,
    capacity: u32,
}

impl<const N: usize> WorkQueue<N> {
    /// A queue of at most `capacity` items, in memory that all blocks carve alike.
    #[must_use]
    pub fn new(carve: &mut Carve, capacity: usize) -> Self {
        Self { memory: carve.take(Self::bytes(capacity)), capacity: capacity as u32 }
    }

    const fn bytes(capacity: usize) -> usize {
        at::ITEMS + capacity * N * 8
    }

    /// Appends an item; returns whether there was room for it.
    ///
    /// # Cooperation
    /// All lanes call it with the same item. What they have stored before is there for the block
    /// that pops the item.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn push<G: Group>(self, g: &G, context: &Context, item: [u64; N]) -> Result<bool> {
        self.push_and(g, context, item, || ())
    }

    /// As [`WorkQueue::push`]; if there was room, the leader also calls `and` before it gives the
    /// lock back.
    #[inline(always)]
    pub(crate) fn push_and<G: Group>(
        self,
        g: &G,
        context: &Context,
        item: [u64; N],
        and: impl FnOnce(),
    ) -> Result<bool> {
        let lock = Lock::at(self.memory, at::LOCK);
        lock.acquire(g, context.net)?;
        let (pushed, popped) = self.counts();
        let has_room = pushed.wrapping_sub(popped) < self.capacity as u64;
        // All lanes have read the counts.
        g.sync();
        if has_room && g.is_leader() {
            self.store(pushed, item);
            self.memory.u64(at::PUSHED).set(pushed.wrapping_add(1));
            and();
        }
        lock.release(g);
        Ok(has_room)
    }

    /// Takes the oldest item, if there is one.
    ///
    /// # Cooperation
    /// All lanes call it and get the same item.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn pop<G: Group>(self, g: &G, context: &Context) -> Result<Option<[u64; N]>> {
        // Who looks often takes no lock for it.
        if self.is_empty(g) {
            return Ok(None);
        }
        self.pop_and(g, context, |_| ())
    }

    /// As [`WorkQueue::pop`], but it always takes the lock. The leader calls `and` before it gives
    /// it back, with whether there was an item.
    #[inline(always)]
    pub(crate) fn pop_and<G: Group>(
        self,
        g: &G,
        context: &Context,
        and: impl FnOnce(bool),
    ) -> Result<Option<[u64; N]>> {
        let lock = Lock::at(self.memory, at::LOCK);
        lock.acquire(g, context.net)?;
        let (pushed, popped) = self.counts();
        let has_item = pushed != popped;
        let item = if has_item { self.load(popped) } else { [0; N] };
        // All lanes have read the item.
        g.sync();
        if g.is_leader() {
            if has_item {
                self.memory.u64(at::POPPED).set(popped.wrapping_add(1));
            }
            and(has_item);
        }
        lock.release(g);
        Ok(has_item.then_some(item))
    }

    /// Takes the oldest item out for which `is_it` returns true, wherever it stands: for work that
    /// nobody wants any more. Returns whether there was one; what was popped is not found.
    ///
    /// It looks at all items, and moves those before the one that it takes out.
    ///
    /// # Cooperation
    /// All lanes call it and get the same answer. Each looks at some of the items: `is_it` returns
    /// the same on all lanes, and calls nothing of the group.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::{Group, Result};
    /// # use gpunet_serve::{Bell, Context, WorkQueue};
    /// # fn closed<G: Group>(g: &G, context: &Context, jobs: WorkQueue<2>, bell: Bell) -> Result<()> {
    /// while jobs.remove(g, context, |[of, _]| of == bell.raw())? {}
    /// # Ok(())
    /// # }
    /// ```
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn remove<G: Group>(
        self,
        g: &G,
        context: &Context,
        is_it: impl Fn([u64; N]) -> bool,
    ) -> Result<bool> {
        if self.is_empty(g) {
            return Ok(false);
        }
        let lock = Lock::at(self.memory, at::LOCK);
        lock.acquire(g, context.net)?;
        let (pushed, popped) = self.counts();
        let (rank, size) = (u64::from(g.rank()), u64::from(g.size()));
        let mut first = popped;
        let found = loop {
            if first >= pushed {
                break None;
            }
            let number = first + rank;
            let is_here = number < pushed && is_it(self.load(number));
            if g.sum(is_here.into()) > 0 {
                let mut oldest = first;
                while g.is_leader() && !is_it(self.load(oldest)) {
                    oldest += 1;
                }
                break Some(g.broadcast(oldest));
            }
            first += size;
        };
        // Those before it move up, the last of them first.
        let mut end = found.unwrap_or(popped);
        while end > popped {
            let item = (end - popped > rank).then(|| (end - rank, self.load(end - 1 - rank)));
            // All lanes have read theirs.
            g.sync();
            if let Some((number, item)) = item {
                self.store(number, item);
            }
            // And stored them.
            g.sync();
            end = end.saturating_sub(size).max(popped);
        }
        // All lanes have met since they read the counts.
        if found.is_some() && g.is_leader() {
            self.memory.u64(at::POPPED).set(popped.wrapping_add(1));
        }
        lock.release(g);
        Ok(found.is_some())
    }

    fn load(self, number: u64) -> [u64; N] {
        let mut item = [0; N];
        for (index, word) in item.iter_mut().enumerate() {
            *word = self.memory.u64(self.item(number) + index * 8).get();
        }
        item
    }

    fn store(self, number: u64, item: [u64; N]) {
        for (index, word) in item.into_iter().enumerate() {
            self.memory.u64(self.item(number) + index * 8).set(word);
        }
    }

    /// How many items wait, as far as is known without the lock.
    ///
    /// # Cooperation
    /// All lanes call it and get the same number.
    #[must_use]
    pub fn len<G: Group>(self, g: &G) -> usize {
        let (pushed, popped) = self.counts();
        let waiting = pushed.wrapping_sub(popped).min(self.capacity as u64);
        g.broadcast(waiting) as usize
    }

    /// Returns whether no item waits, as far as is known without the lock.
    ///
    /// # Cooperation
    /// As [`WorkQueue::len`].
    #[must_use]
    pub fn is_empty<G: Group>(self, g: &G) -> bool {
        self.len(g) == 0
    }

    /// How many items it takes.
    #[must_use]
    pub const fn capacity(self) -> usize {
        self.capacity as usize
    }

    fn counts(self) -> (u64, u64) {
        // What was popped is loaded first, so that it is never ahead of what was pushed.
        let popped = self.memory.u64(at::POPPED).get();
        (self.memory.u64(at::PUSHED).get(), popped)
    }

    fn item(self, number: u64) -> usize {
        at::ITEMS + (number % self.capacity as u64) as usize * N * 8
    }
}

/// A [`WorkQueue`] for each connection, by [`crate::Bell::place`]: for answers that a worker makes.
///
/// What is pushed for a connection that has ended meanwhile is found by the next one in its place:
/// an item holds the bell that it is for, and who pops compares.
#[derive(Clone, Copy, Debug)]
pub struct WorkQueues<const N: usize> {
    memory: Memory,
    capacity: u32,
}

impl<const N: usize> WorkQueues<N> {
    /// Queues of at most `capacity` items each, in memory that all blocks carve alike.
    #[must_use]
    pub fn new(carve: &mut Carve, capacity: usize) -> Self {
        let len = carve.places() * Self::stride(capacity);
        Self { memory: carve.take(len), capacity: capacity as u32 }
    }

    const fn stride(capacity: usize) -> usize {
        WorkQueue::<N>::bytes(capacity).next_multiple_of(64)
    }

    /// The queue of the connection in a place.
    ///
    /// # Panics
    /// There is no such place.
    #[must_use]
    pub fn at(self, place: usize) -> WorkQueue<N> {
        let stride = Self::stride(self.capacity as usize);
        WorkQueue { memory: self.memory.part(place * stride, stride), capacity: self.capacity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{for_test, no_net};
    use gpunet_device::group::{Lanes, Solo};
    use std::vec::Vec;

    const CONTEXT: Context = Context { net: no_net(), now: 0 };

    fn queue(capacity: usize) -> WorkQueue<2> {
        WorkQueue::new(&mut Carve::new(for_test(4096), 1), capacity)
    }

    #[test]
    fn a_full_queue_takes_nothing_and_keeps_the_order() {
        let (g, queue) = (Solo::new(0, 1), queue(3));
        assert_eq!(queue.pop(&g, &CONTEXT), Ok(None));
        for round in 0..5 {
            let taken: Vec<bool> =
                (0..4).map(|item| queue.push(&g, &CONTEXT, [round, item]).unwrap()).collect();
            assert_eq!((taken, queue.len(&g)), (std::vec![true, true, true, false], 3));
            for item in 0..3 {
                assert_eq!(queue.pop(&g, &CONTEXT), Ok(Some([round, item])));
            }
            assert!(queue.is_empty(&g) && queue.pop(&g, &CONTEXT) == Ok(None));
        }
    }

    #[test]
    fn each_item_is_popped_once() {
        const ITEMS: u64 = 5000;
        let queue = queue(7);
        let mut popped: Vec<u64> = std::thread::scope(|scope| {
            for block in 0..2 {
                scope.spawn(move || {
                    for item in 0..ITEMS {
                        while !queue
                            .push(&Solo::new(block, 4), &CONTEXT, [2 * item + block as u64, !item])
                            .unwrap()
                        {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let poppers: Vec<_> = (2..4)
                .map(|block| {
                    scope.spawn(move || {
                        let mut popped = Vec::new();
                        while popped.len() < ITEMS as usize {
                            match queue.pop(&Solo::new(block, 4), &CONTEXT).unwrap() {
                                Some([item, check]) => {
                                    assert_eq!(check, !(item / 2), "an item is of one push");
                                    popped.push(item);
                                }
                                None => std::thread::yield_now(),
                            }
                        }
                        popped
                    })
                })
                .collect();
            poppers.into_iter().flat_map(|popper| popper.join().unwrap()).collect()
        });
        popped.sort_unstable();
        assert!(popped.into_iter().eq(0..2 * ITEMS));
    }

    fn against_a_list(g: &impl Group, queue: WorkQueue<2>) {
        let (mut expected, mut seed) = (std::collections::VecDeque::new(), 1u64);
        for round in 0..400 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let draw = (seed >> 33) as usize;
            match draw % 4 {
                0 => assert_eq!(queue.pop(g, &CONTEXT), Ok(expected.pop_front())),
                1 if !expected.is_empty() => {
                    // Several may have this first number.
                    let [wanted, _] = expected[draw / 4 % expected.len()];
                    let at = expected.iter().position(|[first, _]| *first == wanted);
                    expected.remove(at.unwrap_or(0));
                    assert_eq!(queue.remove(g, &CONTEXT, |[first, _]| first == wanted), Ok(true));
                }
                1 => assert_eq!(queue.remove(g, &CONTEXT, |_| true), Ok(false)),
                _ => {
                    let has_room = expected.len() < 7;
                    let item = [draw as u64 / 4 % 3, round];
                    assert_eq!(queue.push(g, &CONTEXT, item), Ok(has_room));
                    expected.extend(has_room.then_some(item));
                }
            }
            assert_eq!(queue.remove(g, &CONTEXT, |[first, _]| first == 9), Ok(false));
            assert_eq!(queue.len(g), expected.len());
        }
    }

    /// Beside a plain list, with blocks of several lanes and a ring that wraps around.
    #[test]
    fn what_nobody_wants_is_taken_out_and_the_rest_keeps_its_order() {
        for lanes in [1, 3, 8] {
            let queue = queue(7);
            std::thread::scope(|scope| {
                for g in Lanes::group(0, 1, lanes) {
                    scope.spawn(move || against_a_list(&g, queue));
                }
            });
        }
    }

    #[test]
    fn each_place_has_a_queue_of_its_own() {
        let mut measure = Carve::measure().with_places(5);
        let _ = WorkQueues::<1>::new(&mut measure, 4);
        let queues = WorkQueues::<1>::new(&mut Carve::new(for_test(measure.used()), 1).with_places(5), 4);
        let g = Solo::new(0, 1);
        for place in 0..5 {
            assert!(queues.at(place).push(&g, &CONTEXT, [place as u64]).unwrap());
        }
        for place in 0..5 {
            assert_eq!(queues.at(place).pop(&g, &CONTEXT), Ok(Some([place as u64])));
        }
    }
}
