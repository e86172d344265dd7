//! Units of lines between device and CPU and between two blocks: none comes in pieces, and pieces would be counted.

use super::device::{Job, TestDevice, of_host, outcome};
use super::{Direction, Found, LIMIT};
use gpunet_device::group::Solo;
use gpunet_diagnose_kernel::Lines;

/// Units of a line: 256 bytes of a message.
const UNITS: u64 = 64;
/// Rounds on a GPU, and of CPU threads, which may have to share a core.
const ROUNDS: [u64; 2] = [100_000, 1_000];
/// Rounds with a writer that breaks the rules.
const BROKEN: u64 = 100;
/// Where things lie.
const ACK: usize = 0;
const LINE: usize = 256;
const SIZE: usize = LINE + UNITS as usize * 8;

pub fn run(device: &TestDevice) -> Result<Found, String> {
    let rounds = ROUNDS[usize::from(!device.is_gpu())];
    for direction in [Direction::FromDevice, Direction::ToDevice, Direction::BetweenBlocks] {
        let torn = |rounds, broken| {
            one(device, direction, rounds, broken).map_err(|why| format!("{}: {why}", direction.name()))
        };
        judge(torn(rounds, false)?, torn(BROKEN, true)?, rounds)
            .map_err(|why| format!("{}: {why}", direction.name()))?;
    }
    Ok(Found::Right(format!(
        "0 torn units in 3 x {rounds} rounds of {UNITS} units (device to CPU, CPU to device, block to block); with the bytes \
         of another round all {} are counted",
        BROKEN * UNITS
    )))
}

fn judge(torn: u64, broken: u64, rounds: u64) -> Result<(), String> {
    if broken != BROKEN * UNITS {
        return Err(format!(
            "the test does not work: a writer that breaks the rules leaves {} torn units, {broken} were counted",
            BROKEN * UNITS
        ));
    }
    if torn != 0 {
        return Err(format!("{torn} torn units in {rounds} rounds of {UNITS}"));
    }
    Ok(())
}

fn one(device: &TestDevice, direction: Direction, rounds: u64, broken: bool) -> Result<u64, String> {
    let job = device.job(SIZE, SIZE)?;
    let roles = match direction {
        Direction::FromDevice => Lines::WRITES,
        Direction::ToDevice => Lines::READS,
        Direction::BetweenBlocks => Lines::WRITES | Lines::READS,
    };
    let lines = |job: &Job, shared: &dyn Fn(usize, usize) -> *mut u8| Lines {
        line: shared(LINE, UNITS as usize * 8).cast(),
        ack: shared(ACK, 8).cast(),
        units: UNITS,
        rounds,
        broken: u32::from(broken),
        roles,
        limit_ns: LIMIT.as_nanos() as u64,
        results: job.results(),
    };
    let kernel = |_, job: &Job| match direction {
        Direction::BetweenBlocks => lines(job, &|at, len| job.own(at, len)),
        _ => lines(job, &|at, len| job.device(at, len)),
    };
    let host = |job: &Job| {
        let (lines, alone) = (lines(job, &|at, len| job.host(at, len)), Solo::new(0, 1));
        match direction {
            Direction::FromDevice => Some(lines.read(&alone)),
            Direction::ToDevice => Some(lines.write(&alone)),
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
    let torn = match (direction, mine) {
        (Direction::FromDevice, Some(torn)) => torn,
        _ => outcome(&words, 1, "the reading block")?,
    };
    if written == rounds { Ok(torn) } else { Err(format!("{written} rounds of {rounds} were written")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_units_fail_and_so_does_a_test_that_counts_none() {
        let all = BROKEN * UNITS;
        assert_eq!(judge(0, all, 10), Ok(()));
        assert!(judge(3, all, 10).expect_err("torn").starts_with("3 torn units"));
        assert!(judge(0, 0, 10).expect_err("blind").starts_with("the test does not work"));
    }
}
