//! A test with two ends: one on the device and one on the CPU, which runs the same code, or two
//! blocks of the device.

use super::Direction;
use super::device::{Job, TestDevice, of_host, outcome};
use gpunet_device::group::Solo;
use gpunet_device::{Error, Kernel};
use gpunet_diagnose_kernel::{FIRST, SECOND};

/// The address of a part of a job's memory, for the end that uses it.
pub type At<'a> = &'a dyn Fn(usize, usize) -> *mut u8;

/// What an end does; its result.
type Role<K> = fn(&K, &Solo) -> Result<u64, Error>;

/// The two ends of a test.
pub struct Ends<K> {
    /// What they do.
    pub roles: [Role<K>; 2],
    /// The blocks, where blocks play them.
    pub names: [&'static str; 2],
}

/// Plays a test and returns the results of both ends, and the memory. `make` makes the kernel of
/// one end, from the roles of the launch, the end's own memory, and the memory that both share: the
/// device's own if both ends are blocks.
pub fn play<K: Kernel>(
    device: &TestDevice,
    job: Job,
    direction: Direction,
    ends: &Ends<K>,
    make: impl Fn(&Job, u32, At<'_>, At<'_>) -> K,
) -> Result<([u64; 2], Job), String> {
    let (roles, blocks) = match direction {
        Direction::FromDevice => (FIRST, 1),
        Direction::ToDevice => (SECOND, 1),
        Direction::BetweenBlocks => (FIRST | SECOND, 2),
    };
    let kernel = |_, job: &Job| match direction {
        Direction::BetweenBlocks => {
            make(job, roles, &|at, len| job.own(at, len), &|at, len| job.own(at, len))
        }
        _ => make(job, roles, &|at, len| job.own(at, len), &|at, len| job.device(at, len)),
    };
    let host = |job: &Job| {
        let role = match direction {
            Direction::FromDevice => ends.roles[1],
            Direction::ToDevice => ends.roles[0],
            Direction::BetweenBlocks => return None,
        };
        let end = make(job, roles, &|at, len| job.host(at, len), &|at, len| job.host(at, len));
        Some(role(&end, &Solo::new(0, 1)))
    };
    let (mine, words, job) = device.run(job, blocks, kernel, host)?;
    let mine = mine.map(of_host).transpose()?;
    let first = match (direction, mine) {
        (Direction::ToDevice, Some(first)) => first,
        _ => outcome(&words, 0, ends.names[0])?,
    };
    let second = match (direction, mine) {
        (Direction::FromDevice, Some(second)) => second,
        _ => outcome(&words, 1, ends.names[1])?,
    };
    Ok(([first, second], job))
}
