//! Litmus tests: a reader counts what it must not see, and counts all of it if the writer breaks
//! the rules.

use super::Direction;
use super::device::TestDevice;

/// Rounds with a writer that breaks the rules.
pub const BROKEN: u64 = 100;

/// What is counted.
pub struct Litmus {
    /// What it is called.
    pub what: &'static str,
    /// How many of them a round has.
    pub each: u64,
    /// Rounds on a GPU, and of CPU threads, which may have to share a core.
    pub rounds: [u64; 2],
}

impl Litmus {
    /// Runs the test each way, and returns its rounds. `count` runs so many rounds one way, with a
    /// writer that breaks the rules or not, and returns what was counted.
    pub fn run(
        &self,
        device: &TestDevice,
        count: impl Fn(Direction, u64, bool) -> Result<u64, String>,
    ) -> Result<u64, String> {
        let rounds = self.rounds[usize::from(!device.is_gpu())];
        for direction in [Direction::FromDevice, Direction::ToDevice, Direction::BetweenBlocks] {
            let judged = count(direction, rounds, false)
                .and_then(|wrong| self.judge(wrong, count(direction, BROKEN, true)?, rounds));
            judged.map_err(|why| format!("{}: {why}", direction.name()))?;
        }
        Ok(rounds)
    }

    fn judge(&self, wrong: u64, broken: u64, rounds: u64) -> Result<(), String> {
        let Self { what, each, .. } = self;
        let all = BROKEN * each;
        if broken != all {
            return Err(format!(
                "the test does not work: a writer that breaks the rules leaves {all} {what}, {broken} were counted"
            ));
        }
        if wrong != 0 {
            return Err(format!("{wrong} {what} in {rounds} rounds of {each}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_fails_and_so_does_a_test_that_counts_none() {
        let litmus = Litmus { what: "stale words", each: 1024, rounds: [10, 10] };
        let all = BROKEN * 1024;
        assert_eq!(litmus.judge(0, all, 10), Ok(()));
        assert_eq!(litmus.judge(3, all, 10).expect_err("stale"), "3 stale words in 10 rounds of 1024");
        assert!(litmus.judge(0, 0, 10).expect_err("blind").starts_with("the test does not work"));
        assert!(litmus.judge(0, all - 1, 10).is_err());
    }
}
