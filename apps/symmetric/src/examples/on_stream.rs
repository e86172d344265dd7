//! A kernel and a queue that take turns: NVSHMEM's on-stream.

use super::check;
use crate::error::Error;
use crate::member::Member;
use gpunet_symmetric_kernel::{OnStream, SUMMED, TOLD};

/// Turns of kernel and queue.
const ROUNDS: u64 = 5;

/// The initial number of a member at a place.
fn number(rank: u32, at: usize) -> u32 {
    (at as u32 + rank) % 8
}

/// Computes the result by a plain loop over the numbers of all members: how often 1 is subtracted
/// from each.
fn turns(size: u32, elements: usize, threshold: u64) -> u32 {
    let sum = |taken: u32| -> u64 {
        let numbers = (0..size).flat_map(|rank| (0..elements).map(move |at| number(rank, at)));
        numbers.map(|number| u64::from(number.saturating_sub(taken))).sum()
    };
    (0..ROUNDS).fold(0, |taken, _| taken + u32::from(sum(taken) > threshold))
}

pub(super) fn run(member: &Member, elements: usize) -> Result<(), Error> {
    let team = &member.team;
    let (own, size) = (team.rank(), team.size());
    let threshold = elements as u64 * u64::from(size);
    let mut input = team.alloc::<u32>(elements)?;
    input.write(0, &(0..elements).map(|at| number(own.0, at)).collect::<Vec<_>>())?;
    let memory = (input, team.alloc::<u64>(1)?, team.alloc::<u64>(size as usize)?);
    let (input, partial, gathered) = &memory;
    let run = |rounds| {
        member.run(1, &memory, |team, results, (input, partial, gathered)| {
            let (input, partial, gathered) = (member.ptr(input), member.ptr(partial), member.ptr(gathered));
            OnStream { team, input, partial, gathered, results, rounds, threshold }
        })
    };
    let mut queue = member.queue()?;
    // A driver loads code at its first use, and would wait for a waiting stream then.
    queue.barrier(team).map_err(Error::Queue)?;
    queue.synchronize().map_err(Error::Queue)?;
    run(0)?;
    // All of the queue's operations are enqueued before the kernel begins.
    for round in 1..=ROUNDS {
        queue.wait_until(team, SUMMED, own, round).map_err(Error::Queue)?;
        queue.all_gather(gathered, partial).map_err(Error::Queue)?;
        queue.signal(team, TOLD, round, own).map_err(Error::Queue)?;
    }
    run(ROUNDS)?;
    queue.synchronize().map_err(Error::Queue)?;
    let taken = turns(size, elements, threshold);
    check("the numbers", input, |at| number(own.0, at).saturating_sub(taken))
}
