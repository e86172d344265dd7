//! A value that the blocks of a device share.

use crate::Context;
use crate::lock::Lock;
use crate::memory::{Carve, Memory};
use gpunet_device::{Group, Result};

/// `N` numbers that blocks read and change together, under a lock: a cell for small shared state.
/// Zeros at first.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Result};
/// # use gpunet_serve::{Context, Shared};
/// # fn example<G: Group>(g: &G, context: &Context, visits: Shared<2>) -> Result<u64> {
/// // How many requests all blocks have had, and when the last one came.
/// let [count, _] = visits.update(g, context, |[count, _]| [count + 1, context.now])?;
/// # Ok(count)
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Shared<const N: usize> {
    memory: Memory,
}

impl<const N: usize> Shared<N> {
    /// A cell in memory that all blocks have carved alike.
    #[must_use]
    pub fn new(carve: &mut Carve) -> Self {
        Self { memory: carve.take(8 + N * 8) }
    }

    /// Replaces the numbers by what `change` makes of them; returns the new ones.
    ///
    /// # Cooperation
    /// All lanes call it; `change` is called by all with the same numbers and gives the same.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub fn update<G: Group>(
        self,
        g: &G,
        context: &Context,
        change: impl FnOnce([u64; N]) -> [u64; N],
    ) -> Result<[u64; N]> {
        let lock = Lock::at(self.memory, 0);
        lock.acquire(g, context.net)?;
        let new = change(self.numbers());
        // All lanes have read the old ones.
        g.sync();
        if g.is_leader() {
            for (at, value) in new.into_iter().enumerate() {
                self.memory.u64(8 + at * 8).set(value);
            }
        }
        lock.release(g);
        Ok(new)
    }

    /// The numbers, without the lock: each is one that was there, but together they may be of two
    /// changes.
    ///
    /// # Cooperation
    /// All lanes call it and get the same numbers.
    #[must_use]
    pub fn peek<G: Group>(self, g: &G) -> [u64; N] {
        self.numbers().map(|number| g.broadcast(number))
    }

    fn numbers(self) -> [u64; N] {
        let mut values = [0; N];
        for (at, value) in values.iter_mut().enumerate() {
            *value = self.memory.u64(8 + at * 8).get();
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{for_test, no_net};
    use gpunet_device::group::Solo;

    #[test]
    fn no_change_is_lost() {
        let cell = Shared::<2>::new(&mut Carve::new(for_test(64), 1));
        let context = Context { net: no_net(), now: 0 };
        std::thread::scope(|scope| {
            for index in 0..3 {
                scope.spawn(move || {
                    for _ in 0..5000 {
                        let [a, b] =
                            cell.update(&Solo::new(index, 3), &context, |[a, b]| [a + 1, b + 2]).unwrap();
                        assert_eq!(2 * a, b);
                    }
                });
            }
        });
        assert_eq!(cell.peek(&Solo::new(0, 3)), [15_000, 30_000]);
    }
}
