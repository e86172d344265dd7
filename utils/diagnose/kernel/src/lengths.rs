//! Pieces of many lengths.

/// Gives lengths that begin and end everywhere in a 16-byte chunk: a few bytes, about a chunk, some
/// hundreds.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    state: u64,
}

impl Lengths {
    pub const fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(2).wrapping_add(1) }
    }

    /// The next length, 1 to 4,096.
    #[inline(always)]
    pub fn next(&mut self) -> u64 {
        // Knuth's MMIX constants; the high bits are the good ones.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = self.state >> 33;
        // Computed: of a table, the compiler would make non-coherent loads.
        let most = 16 << (2 * (random % 5));
        1 + (random >> 3) % most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_of_all_kinds_and_the_same_for_a_seed() {
        let take = |seed| {
            let mut lengths = Lengths::new(seed);
            (0..1000).map(|_| lengths.next()).collect::<Vec<_>>()
        };
        let some = take(1);
        assert!(some.iter().all(|&len| (1..=4096).contains(&len)));
        assert!((0..16).all(|rest| some.iter().any(|len| len % 16 == rest)));
        assert!(some.iter().any(|&len| len > 2048));
        assert_eq!(some, take(1));
        assert_ne!(some, take(2));
    }
}
