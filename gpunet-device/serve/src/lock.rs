//! A spin lock for the blocks of one device.

use crate::memory::{Carve, Memory};
use crate::word::Word32;
use gpunet_device::{Error, Group, Net, Result};

#[cfg(all(loom, not(target_arch = "nvptx64")))]
use gpunet_device::abi::atomic::yield_now;
#[cfg(not(any(loom, target_arch = "nvptx64")))]
use std::thread::yield_now;

/// Rounds after which a waiting CPU thread gives its core away: the holder may wait for it. In a
/// model at once.
#[cfg(not(target_arch = "nvptx64"))]
const ROUNDS_BEFORE_YIELD: u32 = if cfg!(loom) { 0 } else { 64 };
/// Rounds between two looks at whether the launch is over.
#[cfg(not(target_arch = "nvptx64"))]
const ROUNDS_BEFORE_CHECK: u32 = 1 << 14;

/// A lock that one group of the launch holds at a time. Who holds it waits for nothing. Blocks of a
/// GPU get it in the order in which they ask for it.
///
/// [`crate::Shared`] has the safe use of it.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    word: Word32,
}

impl Lock {
    /// A lock in memory that all blocks have carved alike.
    #[must_use]
    pub fn new(carve: &mut Carve) -> Self {
        Self::at(carve.take(4), 0)
    }

    /// A lock in four bytes of `memory`.
    #[must_use]
    pub fn at(memory: Memory, at: usize) -> Self {
        Self { word: memory.u32(at) }
    }

    /// Takes it.
    ///
    /// # Cooperation
    /// All lanes call it, and see on return what the last holder's lanes wrote.
    ///
    /// # Errors
    /// Canceled, NetworkDown: the launch is over, and who holds the lock may have died.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn acquire<G: Group>(self, g: &G, net: Net) -> Result<()> {
        let taken = if g.is_leader() { self.acquire_alone(g, net) } else { Ok(()) };
        // On a GPU there is nothing to hand on but what the leader has acquired.
        #[cfg(target_arch = "nvptx64")]
        {
            g.sync();
            taken
        }
        #[cfg(not(target_arch = "nvptx64"))]
        match g.broadcast(taken.err().map_or(0, |error| error.errno() as u64)) {
            0 => Ok(()),
            errno => Err(Error::from_errno(errno as i32)),
        }
    }

    /// Takes it if nobody has it. Returns whether it did.
    ///
    /// # Cooperation
    /// As [`Lock::acquire`].
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn try_acquire<G: Group>(self, g: &G) -> bool {
        g.broadcast(u64::from(g.is_leader() && self.word.try_lock())) != 0
    }

    /// Gives it back.
    ///
    /// # Cooperation
    /// All lanes call it, each after its own writes.
    pub fn release<G: Group>(self, g: &G) {
        g.sync();
        if g.is_leader() {
            self.release_alone();
        }
    }

    /// As [`Lock::acquire`], by one lane for itself.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn acquire_alone<G: Group>(self, g: &G, net: Net) -> Result<()> {
        #[cfg(target_arch = "nvptx64")]
        {
            // A block that holds it runs, and if it fails, everything ends.
            let _ = (g, net);
            self.word.lock();
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let mut round = 0u32;
            while !self.word.try_lock() {
                round += 1;
                wait_a_little(g, net, round)?;
            }
        }
        Ok(())
    }

    /// As [`Lock::release`], by one lane for itself.
    pub fn release_alone(self) {
        self.word.unlock();
    }
}

/// A moment's pause between two looks at what another group does; one lane sees whether the launch
/// is over. `round` counts the pauses.
///
/// # Cooperation
/// All lanes call it.
///
/// # Errors
/// Canceled, NetworkDown: the launch is over.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn pause<G: Group>(g: &G, net: Net, round: u32) -> Result<()> {
    let over = if g.is_leader() { wait_a_little(g, net, round) } else { Ok(()) };
    match g.broadcast(over.err().map_or(0, |error| error.errno() as u64)) {
        0 => Ok(()),
        errno => Err(Error::from_errno(errno as i32)),
    }
}

/// A GPU's block that is waited for runs, and if it fails, everything ends.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn wait_a_little<G: Group>(_g: &G, _net: Net, _round: u32) -> Result<()> {
    crate::word::nap(100);
    Ok(())
}

/// A CPU thread that holds a lock may have been suspended, or have panicked.
#[cfg(not(target_arch = "nvptx64"))]
fn wait_a_little<G: Group>(g: &G, net: Net, round: u32) -> Result<()> {
    if round < ROUNDS_BEFORE_YIELD {
        core::hint::spin_loop();
        return Ok(());
    }
    yield_now();
    if round.is_multiple_of(ROUNDS_BEFORE_CHECK) && net.is_attached() {
        gpunet_device::poll(
            &g.thread(),
            net,
            crate::readiness::nothing(),
            gpunet_device::Timeout::NON_BLOCKING,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::for_test;
    use gpunet_device::group::Solo;

    #[test]
    fn one_group_at_a_time_has_it() {
        let memory = for_test(64);
        std::thread::scope(|scope| {
            for index in 0..4 {
                scope.spawn(move || {
                    let (g, lock) = (Solo::new(index, 4), Lock::at(memory, 0));
                    let count = memory.u64(8);
                    for _ in 0..10_000 {
                        lock.acquire(&g, crate::memory::no_net()).unwrap();
                        count.set(count.get() + 1);
                        lock.release(&g);
                    }
                });
            }
        });
        assert_eq!(memory.u64(8).get(), 40_000);
    }
}
