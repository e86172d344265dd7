//! Bytes through rings: both ways between device and CPU, and between two blocks.

use super::device::TestDevice;
use super::ends::{Ends, play};
use super::{Direction, Found, LIMIT, pattern};
use gpunet_diagnose_kernel::Ring;

const ENDS: Ends<Ring> =
    Ends { roles: [Ring::send, Ring::receive], names: ["the sending block", "the receiving block"] };
/// Bytes of a case: odd, and several times the larger ring.
const TOTAL: usize = 50_021;
/// Rings: the smallest of a socket, and one in which pieces seldom meet the end.
const RINGS: [usize; 2] = [4096, 16384];
/// How far the source is off a 16-byte border: alike, by one, in the middle, by one less than a
/// chunk.
const SHIFTS: [usize; 4] = [0, 1, 7, 15];
/// Room for the bytes of one side, a shift included.
const ROOM: usize = 52_224;
/// Where things lie: words on lines of their own, the ring, two sides' bytes.
const PUBLISHED: usize = 0;
const CONSUMED: usize = 256;
const RING: usize = 4096;
const SOURCE: usize = RING + 16384;
const TARGET: usize = SOURCE + ROOM;
const SIZE: usize = TARGET + ROOM;

pub fn run(device: &TestDevice) -> Result<Found, String> {
    let mut cases = 0;
    for direction in [Direction::ToDevice, Direction::FromDevice, Direction::BetweenBlocks] {
        for capacity in RINGS {
            for shift in SHIFTS {
                let case = || format!("{}, ring {capacity}, offset {shift}", direction.name());
                one(device, direction, capacity, shift).map_err(|why| format!("{}: {why}", case()))?;
                cases += 1;
            }
        }
    }
    let place = if device.is_gpu() { "pinned and in GPU memory" } else { "in memory" };
    Ok(Found::Right(format!(
        "{} bytes in {cases} cases (rings {place}, both ways and between blocks), CRC-32 right at both ends",
        cases * TOTAL
    )))
}

fn one(device: &TestDevice, direction: Direction, capacity: usize, shift: usize) -> Result<(), String> {
    let bytes = pattern::bytes((capacity + shift) as u64, TOTAL);
    let mut job = device.job(SIZE, SIZE)?;
    if direction == Direction::ToDevice {
        job.fill_shared(SOURCE + shift, &bytes);
    } else {
        job.fill_own(SOURCE + shift, &bytes)?;
    }
    // Both ends' bytes are the end's own; ring and words are shared.
    let ([sent, received], job) = play(device, job, direction, &ENDS, |job, roles, own, shared| Ring {
        src: own(SOURCE + shift, TOTAL),
        dst: own(TARGET, TOTAL),
        base: shared(RING, capacity),
        capacity: capacity as u64,
        published: shared(PUBLISHED, 8).cast(),
        consumed: shared(CONSUMED, 8).cast(),
        total: TOTAL as u64,
        seed: (capacity * 16 + shift) as u64,
        roles,
        near: u32::from(direction == Direction::BetweenBlocks),
        limit_ns: LIMIT.as_nanos() as u64,
        results: job.results(),
    })?;
    let arrived = match direction {
        Direction::FromDevice => job.read_shared(TARGET, TOTAL),
        _ => job.read_own(TARGET, TOTAL)?,
    };
    compare(&bytes, sent, received, &arrived)
}

/// The CRC of the pattern and of what arrived, computed by the CPU; those of both ends by the
/// kernel's own code.
fn compare(bytes: &[u8], sent: u64, received: u64, arrived: &[u8]) -> Result<(), String> {
    let right = u64::from(crc32fast::hash(bytes));
    if sent != right {
        return Err(format!("the sender computes CRC {sent:08x} of bytes whose CRC is {right:08x}"));
    }
    if let Some(at) = bytes.iter().zip(arrived).position(|(was, is)| was != is) {
        return Err(format!("byte {at} arrived as {:02x} and was {:02x}", arrived[at], bytes[at]));
    }
    if received != right {
        return Err(format!(
            "the receiver computes CRC {received:08x}, the CPU {right:08x} of the same memory afterwards: the \
             receiver read bytes before they were there"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_and_a_wrong_crc_are_told() {
        let bytes = pattern::bytes(1, 100);
        let crc = u64::from(crc32fast::hash(&bytes));
        assert_eq!(compare(&bytes, crc, crc, &bytes), Ok(()));
        let mut torn = bytes.clone();
        torn[37] ^= 0x40;
        assert!(compare(&bytes, crc, crc, &torn).expect_err("torn").starts_with("byte 37 arrived"));
        assert!(compare(&bytes, crc, crc ^ 1, &bytes).expect_err("early").contains("before they were there"));
        assert!(compare(&bytes, crc ^ 1, crc, &bytes).expect_err("sender").starts_with("the sender"));
    }
}
