//! Units of lines between device and CPU and between two blocks: none comes in pieces, and pieces
//! would be counted.

use super::device::TestDevice;
use super::ends::{Ends, play};
use super::litmus::{BROKEN, Litmus};
use super::{Direction, Found, LIMIT};
use gpunet_diagnose_kernel::Lines;

/// Units of a line: 256 bytes of a message.
const UNITS: u64 = 64;
const TEST: Litmus = Litmus { what: "torn units", each: UNITS, rounds: [100_000, 1_000] };
const ENDS: Ends<Lines> =
    Ends { roles: [Lines::write, Lines::read], names: ["the writing block", "the reading block"] };
/// Where things lie.
const ACK: usize = 0;
const LINE: usize = 256;
const SIZE: usize = LINE + UNITS as usize * 8;

pub fn run(device: &TestDevice) -> Result<Found, String> {
    let rounds = TEST.run(device, |direction, rounds, broken| one(device, direction, rounds, broken))?;
    Ok(Found::Right(format!(
        "0 torn units in 3 x {rounds} rounds of {UNITS} units (device to CPU, CPU to device, block to block); with the bytes \
         of another round all {} are counted",
        BROKEN * UNITS
    )))
}

fn one(device: &TestDevice, direction: Direction, rounds: u64, broken: bool) -> Result<u64, String> {
    let job = device.job(SIZE, SIZE)?;
    let ([written, torn], _) = play(device, job, direction, &ENDS, |job, roles, _, shared| Lines {
        line: shared(LINE, UNITS as usize * 8).cast(),
        ack: shared(ACK, 8).cast(),
        units: UNITS,
        rounds,
        broken: u32::from(broken),
        roles,
        limit_ns: LIMIT.as_nanos() as u64,
        results: job.results(),
    })?;
    if written == rounds { Ok(torn) } else { Err(format!("{written} rounds of {rounds} were written")) }
}
