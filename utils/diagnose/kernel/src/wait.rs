//! Waits for a word, with a deadline.

use gpunet_device::{Error, Group, now_ns};

/// Polls between two reads of the clock.
const LOOKS: u32 = 256;

/// No word has this value: bit 63 of a stream word is 0.
const OVER: u64 = u64::MAX;

/// Waits until `look` returns `wanted` or more, and returns the value to every lane.
///
/// # Cooperation
/// All lanes; the leader looks.
///
/// # Errors
/// [`Error::TimedOut`] once the device's clock is past `deadline`.
#[inline(always)]
pub fn until<G: Group>(g: &G, look: impl Fn() -> u64, wanted: u64, deadline: u64) -> Result<u64, Error> {
    let mut seen = OVER;
    if g.is_leader() {
        let mut looks = 0;
        loop {
            seen = look();
            if seen >= wanted {
                break;
            }
            looks += 1;
            if looks == LOOKS {
                looks = 0;
                pause();
                if now_ns() > deadline {
                    seen = OVER;
                    break;
                }
            }
        }
    }
    let seen = g.broadcast(seen);
    if seen == OVER { Err(Error::TimedOut) } else { Ok(seen) }
}

/// Yields, because there may be fewer cores than spinning threads.
#[cfg(not(target_arch = "nvptx64"))]
pub fn pause() {
    std::thread::yield_now();
}

/// A block keeps its place on the multiprocessor, so there is nothing to yield.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub fn pause() {}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_device::group::Solo;

    #[test]
    fn a_word_that_never_comes_ends_the_wait() {
        let g = Solo::new(0, 1);
        assert_eq!(until(&g, || 4, 5, now_ns() + 1_000_000), Err(Error::TimedOut));
        assert_eq!(until(&g, || 6, 5, 0), Ok(6));
    }
}
