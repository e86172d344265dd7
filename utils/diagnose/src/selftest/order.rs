//! Message passing between device and CPU and between two blocks: no word is stale, and stale ones would be counted.

use super::device::{Job, TestDevice, of_host, outcome};
use super::{Direction, Found, LIMIT};
use gpunet_device::group::Solo;
use gpunet_diagnose_kernel::Order;

/// Words of data: 64 lines of 128 bytes.
const WORDS: u64 = 1024;
/// Rounds on a GPU, and of CPU threads, which may have to share a core.
const ROUNDS: [u64; 2] = [20_000, 1_000];
/// Rounds with a writer that breaks the rules.
const BROKEN: u64 = 100;
/// Where things lie.
const FLAG: usize = 0;
const ACK: usize = 256;
const DATA: usize = 4096;
const OWN: usize = DATA + WORDS as usize * 8;
/// Two blocks have their own words each.
const SIZE: usize = OWN + 2 * WORDS as usize * 8;

pub fn run(device: &TestDevice) -> Result<Found, String> {
    let rounds = ROUNDS[usize::from(!device.is_gpu())];
    for direction in [Direction::FromDevice, Direction::ToDevice, Direction::BetweenBlocks] {
        let stale = |rounds, broken| {
            one(device, direction, rounds, broken).map_err(|why| format!("{}: {why}", direction.name()))
        };
        judge(stale(rounds, false)?, stale(BROKEN, true)?, rounds)
            .map_err(|why| format!("{}: {why}", direction.name()))?;
    }
    Ok(Found::Right(format!(
        "0 stale words in 3 x {rounds} rounds of {WORDS} words (device to CPU, CPU to device, block to block); \
         with the word before the data all {} are counted",
        BROKEN * WORDS
    )))
}

fn judge(stale: u64, broken: u64, rounds: u64) -> Result<(), String> {
    if broken != BROKEN * WORDS {
        return Err(format!(
            "the test does not work: a writer that breaks the rules leaves {} stale words, {broken} were counted",
            BROKEN * WORDS
        ));
    }
    if stale != 0 {
        return Err(format!("{stale} stale words in {rounds} rounds of {WORDS}"));
    }
    Ok(())
}

fn one(device: &TestDevice, direction: Direction, rounds: u64, broken: bool) -> Result<u64, String> {
    let job = device.job(SIZE, SIZE)?;
    let roles = match direction {
        Direction::FromDevice => Order::WRITES,
        Direction::ToDevice => Order::READS,
        Direction::BetweenBlocks => Order::WRITES | Order::READS,
    };
    let order =
        |job: &Job, own: &dyn Fn(usize, usize) -> *mut u8, shared: &dyn Fn(usize, usize) -> *mut u8| Order {
            data: shared(DATA, WORDS as usize * 8),
            own: own(OWN, 2 * WORDS as usize * 8),
            flag: shared(FLAG, 8).cast(),
            ack: shared(ACK, 8).cast(),
            words: WORDS,
            rounds,
            broken: u32::from(broken),
            near: u32::from(direction == Direction::BetweenBlocks),
            roles,
            reserved: 0,
            limit_ns: LIMIT.as_nanos() as u64,
            results: job.results(),
        };
    let kernel = |_, job: &Job| match direction {
        Direction::BetweenBlocks => order(job, &|at, len| job.own(at, len), &|at, len| job.own(at, len)),
        _ => order(job, &|at, len| job.own(at, len), &|at, len| job.device(at, len)),
    };
    let host = |job: &Job| {
        let order = order(job, &|at, len| job.host(at, len), &|at, len| job.host(at, len));
        let alone = Solo::new(0, 1);
        match direction {
            Direction::FromDevice => Some(order.read(&alone)),
            Direction::ToDevice => Some(order.write(&alone)),
            Direction::BetweenBlocks => None,
        }
    };
    let blocks = if direction == Direction::BetweenBlocks { 2 } else { 1 };
    let (mine, words, _) = device.run(job, blocks, kernel, host)?;
    let mine = mine.map(of_host).transpose()?;
    let written = match (direction, mine) {
        (Direction::ToDevice, Some(rounds)) => rounds,
        _ => outcome(&words, 0, "the writing block")?,
    };
    let stale = match (direction, mine) {
        (Direction::FromDevice, Some(stale)) => stale,
        _ => outcome(&words, 1, "the reading block")?,
    };
    if written == rounds { Ok(stale) } else { Err(format!("{written} rounds of {rounds} were written")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_words_fail_and_so_does_a_test_that_counts_none() {
        let all = BROKEN * WORDS;
        assert_eq!(judge(0, all, 10), Ok(()));
        assert!(judge(3, all, 10).expect_err("stale").starts_with("3 stale words"));
        assert!(judge(0, 0, 10).expect_err("blind").starts_with("the test does not work"));
        assert!(judge(0, all - 1, 10).is_err());
    }
}
