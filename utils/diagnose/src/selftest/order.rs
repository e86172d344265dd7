//! Message passing between device and CPU and between two blocks: no word is stale, and stale ones
//! would be counted.

use super::device::TestDevice;
use super::ends::{Ends, play};
use super::litmus::{BROKEN, Litmus};
use super::{Direction, Found, LIMIT};
use gpunet_diagnose_kernel::Order;

/// Words of data: 64 lines of 128 bytes.
const WORDS: u64 = 1024;
const TEST: Litmus = Litmus { what: "stale words", each: WORDS, rounds: [20_000, 1_000] };
const ENDS: Ends<Order> =
    Ends { roles: [Order::write, Order::read], names: ["the writing block", "the reading block"] };
/// Where things lie.
const FLAG: usize = 0;
const ACK: usize = 256;
const DATA: usize = 4096;
const OWN: usize = DATA + WORDS as usize * 8;
/// Two blocks have their own words each.
const SIZE: usize = OWN + 2 * WORDS as usize * 8;

pub fn run(device: &TestDevice) -> Result<Found, String> {
    let rounds = TEST.run(device, |direction, rounds, broken| one(device, direction, rounds, broken))?;
    Ok(Found::Right(format!(
        "0 stale words in 3 x {rounds} rounds of {WORDS} words (device to CPU, CPU to device, block to block); \
         with the word before the data all {} are counted",
        BROKEN * WORDS
    )))
}

fn one(device: &TestDevice, direction: Direction, rounds: u64, broken: bool) -> Result<u64, String> {
    let job = device.job(SIZE, SIZE)?;
    let ([written, stale], _) = play(device, job, direction, &ENDS, |job, roles, own, shared| Order {
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
    })?;
    if written == rounds { Ok(stale) } else { Err(format!("{written} rounds of {rounds} were written")) }
}
