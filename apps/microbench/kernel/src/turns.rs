//! A kernel that takes turns in the order of queues: it makes messages before they are sent, and
//! checks them after they came.

use crate::Results;
use crate::pairs::byte;
use gpunet_device::abi::Word;
use gpunet_device::{Buffer, Group, Kernel, kernel_entry};

/// Block 0 fills `from` with message `turn` once the word `fill` has come to that turn, and
/// publishes it in `filled`; block 1 checks every byte of `to` by `check` and `checked`. Turns are
/// counted from 1. A block ends when its word has come to [`STOP`](Turns::STOP). `results`: word 0
/// the messages that were filled; word 1 those that were checked; word 2 those with a wrong byte;
/// word 3 those of word 2 whose wrong bytes are all of the message before; word 4 the first wrong
/// one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Turns {
    /// Where messages are made: [`LONGEST`](Turns::LONGEST) bytes.
    pub from: Buffer,
    /// Where they come: as many bytes.
    pub to: Buffer,
    /// Words that a queue writes, or the host.
    pub fill: *mut u64,
    /// Written by block 0.
    pub filled: *mut u64,
    /// Written by a queue.
    pub check: *mut u64,
    /// Written by block 1.
    pub checked: *mut u64,
    /// Counts.
    pub results: Results,
}

// SAFETY: addresses of memory shared with the host, which guarantees them.
unsafe impl Send for Turns {}

impl Kernel for Turns {
    const ENTRY: &'static str = "gpunet_turns";

    fn run<G: Group>(self, g: &G) {
        // SAFETY: the launcher gave four aligned words that both sides access atomically.
        let word = |ptr| unsafe { Word::from_ptr(ptr) };
        match g.index() {
            0 => {
                let count = each_turn(g, word(self.fill), word(self.filled), |turn| self.make(g, turn));
                self.results.set(g, 0, count);
            }
            1 => self.check_all(g, word(self.check), word(self.checked)),
            _ => {}
        }
    }
}
kernel_entry!(turns, "gpunet_turns", Turns);

impl Turns {
    /// Bytes of the longest message.
    pub const LONGEST: usize = 4096;
    /// What a word holds when no turn comes any more.
    pub const STOP: u64 = 1 << 60;
    /// Bytes of the shortest message.
    pub const SHORTEST: usize = 64;

    /// Bytes of a message.
    #[must_use]
    #[inline(always)]
    pub const fn len_of(turn: u64) -> usize {
        let mixed = (turn ^ (turn >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        Self::SHORTEST + mixed as usize % (Self::LONGEST - Self::SHORTEST + 1)
    }

    fn make<G: Group>(&self, g: &G, turn: u64) {
        let (message, mut at) = (self.from.first(Self::len_of(turn)), g.rank() as usize);
        while at < message.len() {
            // SAFETY: inside the buffer, in this block's turn; each lane has a share of its own.
            unsafe { message.as_ptr().wrapping_add(at).write(byte(turn, at as u64)) };
            at += g.size() as usize;
        }
    }

    fn check_all<G: Group>(&self, g: &G, go: Word, done: Word) {
        let (mut wrong, mut stale, mut first) = (0, 0, 0);
        let count = each_turn(g, go, done, |turn| {
            let (of_this, of_before) = self.wrong_bytes(g, turn);
            if of_this > 0 {
                wrong += 1;
                stale += u64::from(of_before == of_this);
                first = if first == 0 { turn } else { first };
            }
        });
        [count, wrong, stale, first].into_iter().enumerate().for_each(|(at, word)| {
            self.results.set(g, 1 + at, word);
        });
    }

    /// How many bytes are wrong, and how many of these are those of the message before.
    fn wrong_bytes<G: Group>(&self, g: &G, turn: u64) -> (u32, u32) {
        let (message, mut at) = (self.to.first(Self::len_of(turn)), g.rank() as usize);
        let (mut wrong, mut before) = (0, 0);
        while at < message.len() {
            // An ordinary load, as kernels have: a cache that keeps old bytes is found, too.
            // SAFETY: inside the buffer, in this block's turn.
            let got = unsafe { message.as_ptr().wrapping_add(at).read() };
            if got != byte(turn, at as u64) {
                wrong += 1;
                before += u32::from(got == byte(turn - 1, at as u64));
            }
            at += g.size() as usize;
        }
        (g.sum(wrong), g.sum(before))
    }
}

/// Takes turns until the host stops it; returns how many.
#[inline(always)]
fn each_turn<G: Group>(g: &G, go: Word, done: Word, mut work: impl FnMut(u64)) -> u64 {
    let mut turn = 1;
    loop {
        let mut goes_on = 0;
        if g.is_leader() {
            goes_on = u64::from(is_called(go, turn));
        }
        // What was written before the word is visible to all lanes then.
        if g.broadcast(goes_on) == 0 {
            return turn - 1;
        }
        g.sync();
        work(turn);
        g.sync();
        if g.is_leader() {
            done.publish(turn);
        }
        turn += 1;
    }
}

/// Waits for the turn; returns false if it will not come.
fn is_called(go: Word, turn: u64) -> bool {
    loop {
        match go.observe() {
            Turns::STOP.. => return false,
            called if called >= turn => return true,
            _ => relax(),
        }
    }
}

/// Lets others go on.
#[cfg(target_arch = "nvptx64")]
fn relax() {
    core::hint::spin_loop();
}

/// Lets others go on: where cores are few, they need this one.
#[cfg(not(target_arch = "nvptx64"))]
fn relax() {
    std::thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_device::group::Solo;

    /// What is checked in `memory` as that turn's message.
    fn wrong_bytes(memory: &mut [u8], turn: u64) -> (u32, u32) {
        let mut words = [0; 4];
        let [fill, filled, check, checked] = words.each_mut().map(core::ptr::from_mut);
        // SAFETY: `memory` and `words` outlive the kernel, which is not run, and which alone uses
        // them.
        let to = unsafe { Buffer::from_raw_parts(memory.as_mut_ptr(), memory.len()) };
        // SAFETY: no words.
        let results = unsafe { Results::new(fill, 0) };
        let turns = Turns { from: to, to, fill, filled, check, checked, results };
        let group = Solo::new(0, 1);
        turns.wrong_bytes(&group, turn)
    }

    fn message(turn: u64) -> Vec<u8> {
        (0..Turns::LONGEST as u64).map(|at| byte(turn, at)).collect()
    }

    #[test]
    fn a_wrong_byte_is_found_and_one_of_the_message_before_is_known() {
        let (turn, len) = (7, Turns::len_of(7) as u32);
        assert_eq!(wrong_bytes(&mut message(turn), turn), (0, 0));
        let mut changed = message(turn);
        changed[len as usize - 1] ^= 1;
        assert_eq!(wrong_bytes(&mut changed, turn).0, 1);
        let (wrong, stale) = wrong_bytes(&mut message(turn - 1), turn);
        assert!(wrong == stale && wrong > len / 2, "{wrong} of {len}");
    }

    #[test]
    fn lengths_are_from_the_shortest_to_the_longest() {
        let lengths: Vec<_> = (1..=100_000).map(Turns::len_of).collect();
        assert_eq!(lengths.iter().min(), Some(&Turns::SHORTEST));
        assert_eq!(lengths.iter().max(), Some(&Turns::LONGEST));
    }
}
