//! The examples: the memory, kernels and checks of each.

mod jacobi;
mod moe_shuffle;
mod on_stream;
mod thread_group;

use crate::args::{Args, Example};
use crate::error::Error;
use crate::member::Member;
use gpunet_proxy::device::team::Element;
use gpunet_proxy::team::Symmetric;
use gpunet_symmetric_kernel::{Collectives, Hello, PutBlock, Ring, RingBroadcast, RingReduce};
use std::fmt::Debug;

/// Runs an example as one member. All members run the same.
///
/// # Errors
/// [`Error`], also for an element that differs.
pub fn run(example: Example, member: &Member, args: &Args) -> Result<(), Error> {
    let (elements, chunk) = (args.elements as usize, args.chunk);
    match example {
        Example::Hello => hello(member),
        Example::Ring => ring(member),
        Example::PutBlock => put_block(member, elements),
        Example::RingBcast => ring_broadcast(member, elements, chunk),
        Example::RingReduce => ring_reduce(member, elements, chunk),
        Example::OnStream => on_stream::run(member, elements),
        Example::Collectives => collectives(member, elements),
        Example::ThreadGroup => thread_group::run(member, elements),
        Example::MoeShuffle => moe_shuffle::run(member, elements),
        Example::Jacobi => jacobi::run(member, elements),
        Example::All => example.each().into_iter().try_for_each(|example| run(example, member, args)),
    }
}

/// Checks all elements of this member's part.
///
/// # Errors
/// The first that differs.
pub fn check<T: Element + Default + PartialEq + Debug>(
    what: &'static str,
    memory: &Symmetric<'_, T>,
    expected: impl Fn(usize) -> T,
) -> Result<(), Error> {
    let mut all = vec![T::default(); memory.len()];
    memory.read(0, &mut all)?;
    match (0..).zip(&all).find(|(at, element)| **element != expected(*at)) {
        None => Ok(()),
        Some((at, element)) => {
            let (found, expected) = (format!("{element:?}"), format!("{:?}", expected(at)));
            Err(Error::Differs { what, at, found, expected })
        }
    }
}

fn left_of(member: &Member) -> u32 {
    member.team.rank().left_of(member.team.size()).0
}

fn hello(member: &Member) -> Result<(), Error> {
    let size = member.team.size();
    let members = member.team.alloc::<u64>(size as usize)?;
    member.run(1, &members, |team, results, members| Hello {
        team,
        members: member.ptr(members),
        results,
    })?;
    check("the members", &members, |at| u64::from(size) << 32 | at as u64)
}

fn ring(member: &Member) -> Result<(), Error> {
    let number = member.team.alloc::<u64>(1)?;
    member.run(1, &number, |team, results, number| Ring { team, number: member.ptr(number), results })?;
    check("the number", &number, |_| u64::from(left_of(member)))
}

fn put_block(member: &Member, elements: usize) -> Result<(), Error> {
    let value = |rank: u32, at: usize| rank << 24 ^ at as u32;
    let mut from = member.team.alloc::<u32>(elements)?;
    let own: Vec<u32> = (0..elements).map(|at| value(member.team.rank().0, at)).collect();
    from.write(0, &own)?;
    let memory = (from, member.team.alloc::<u32>(elements)?);
    let (blocks, launches) = (member.blocks, 3);
    for launch in 0..launches {
        let before = u64::from(launch * blocks);
        member.run(blocks, &memory, |team, results, (from, to)| {
            let (from, to) = (member.ptr(from), member.ptr(to));
            PutBlock { team, from, to, results, before }
        })?;
    }
    check("what was put", &memory.1, |at| value(left_of(member), at))
}

fn ring_broadcast(member: &Member, elements: usize, chunk: u64) -> Result<(), Error> {
    let value = |at: usize| at as u32 ^ 0x5a5a;
    let mut data = member.team.alloc::<u32>(elements)?;
    if member.team.rank().0 == 0 {
        data.write(0, &(0..elements).map(value).collect::<Vec<_>>())?;
    }
    member.run(1, &data, |team, results, data| {
        let data = member.ptr(data);
        RingBroadcast { team, data, results, chunk, before: 0 }
    })?;
    check("the broadcast", &data, value)
}

fn ring_reduce(member: &Member, elements: usize, chunk: u64) -> Result<(), Error> {
    let (rank, size) = (u64::from(member.team.rank().0), u64::from(member.team.size()));
    let mut data = member.team.alloc::<u64>(elements)?;
    data.write(0, &(0..elements as u64).map(|at| at * (rank + 1)).collect::<Vec<_>>())?;
    let memory = (data, member.team.alloc::<u64>(elements)?);
    member.run(member.blocks, &memory, |team, results, (data, work)| {
        let (data, work) = (member.ptr(data), member.ptr(work));
        RingReduce { team, data, work, results, chunk, before: 0 }
    })?;
    check("the sum", &memory.0, |at| at as u64 * (size * (size + 1) / 2))
}

fn collectives(member: &Member, elements: usize) -> Result<(), Error> {
    let (rank, size) = (member.team.rank().0 as usize, member.team.size() as usize);
    let part = (elements / size).max(1);
    // Small integers, whose sums are exact.
    let value = |rank: usize, at: usize| ((rank * 7 + at) % 1000) as f32;
    let alloc = |len| member.team.alloc::<f32>(len);
    let mut from = alloc(part * size)?;
    from.write(0, &(0..part * size).map(|at| value(rank, at)).collect::<Vec<_>>())?;
    let [gathered, exchanged, reduced, told] =
        [alloc(part * size)?, alloc(part * size)?, alloc(part * size)?, alloc(part * size)?];
    let memory = [from, gathered, exchanged, reduced, told];
    member.run(1, &memory, |team, results, memory| {
        let [from, gathered, exchanged, reduced, told] = memory.each_ref().map(|part| member.ptr(part));
        Collectives { team, from, gathered, exchanged, reduced, told, results }
    })?;
    let [_, gathered, exchanged, reduced, told] = &memory;
    check("all_gather", gathered, |at| value(at / part, at % part))?;
    check("all_to_all", exchanged, |at| value(at / part, rank * part + at % part))?;
    check("reduce", reduced, |at| (0..size).map(|rank| value(rank, at)).sum())?;
    check("broadcast", told, |at| value(size - 1, at))
}
