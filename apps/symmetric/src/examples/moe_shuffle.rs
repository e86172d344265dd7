//! `moe-shuffle`: tokens travel to their experts and back.

use super::check;
use crate::error::Error;
use crate::member::Member;
use gpunet_symmetric_kernel::{MoeShuffle, expert};

/// Elements of a token.
const HIDDEN: usize = 64;
/// The most tokens of a member: the memory for arriving rows has room for those of all members.
const MOST_TOKENS: usize = 256;
/// Experts of each member.
const EXPERTS: usize = 3;
/// Experts of each token, and their weights.
const WEIGHTS: [f32; 2] = [0.75, 0.25];
/// Launches, each with other routes.
const LAUNCHES: u64 = 2;

/// The rule for the tokens of all members and their experts, which every member knows.
#[derive(Clone, Copy)]
struct Batch {
    experts: usize,
    launch: usize,
}

impl Batch {
    /// An element of a token: a small integer, so that all later results are exact.
    fn token(self, rank: usize, token: usize, at: usize) -> f32 {
        ((rank * 31 + token * 7 + at * 3 + self.launch) % 256) as f32
    }

    /// The expert of a row: low numbers are chosen more often.
    fn route(self, rank: usize, row: usize) -> usize {
        let mixed = (rank * 1_000_003 + row * 7919 + self.launch * 104_729).wrapping_mul(0x9e37_79b9) >> 7;
        (mixed % self.experts) * (mixed / self.experts % 8) / 8
    }

    /// A token after its experts, in the order in which the kernel adds them up.
    fn combined(self, rank: usize, token: usize, at: usize) -> f32 {
        let row = |choice| token * WEIGHTS.len() + choice;
        (0..).zip(WEIGHTS).fold(0.0, |sum, (choice, weight)| {
            let number = self.route(rank, row(choice)) as u32;
            sum + weight * expert(number, self.token(rank, token, at))
        })
    }
}

pub(super) fn run(member: &Member, elements: usize) -> Result<(), Error> {
    let (rank, size) = (member.team.rank().0 as usize, member.team.size() as usize);
    let tokens = (elements / HIDDEN).clamp(1, MOST_TOKENS);
    let (rows, experts) = (tokens * WEIGHTS.len(), size * EXPERTS);
    let (floats, numbers) = (|len| member.team.alloc::<f32>(len), |len| member.team.alloc::<u32>(len));
    // Every launch uses the same memory, as a model's layer does.
    let mut input = [floats(tokens * HIDDEN)?, floats(rows)?];
    let mut routes = numbers(rows)?;
    let plan = [numbers(rows)?, numbers(experts)?, numbers(experts * size)?, numbers(experts)?];
    let origins = member.team.alloc::<u64>(rows * size)?;
    let work = [floats(rows * size * HIDDEN)?, floats(rows * HIDDEN)?, floats(tokens * HIDDEN)?];
    input[1].write(0, &WEIGHTS.repeat(tokens))?;
    for before in 0..LAUNCHES {
        let batch = Batch { experts, launch: before as usize };
        let own = (0..tokens * HIDDEN).map(|at| batch.token(rank, at / HIDDEN, at % HIDDEN));
        input[0].write(0, &own.collect::<Vec<_>>())?;
        routes.write(0, &(0..rows).map(|row| batch.route(rank, row) as u32).collect::<Vec<_>>())?;
        let memory = (&input, &routes, &plan, &origins, &work);
        member.run(member.blocks, &memory, |team, results, (input, routes, plan, origins, work)| {
            let [tokens, weights] = input.each_ref().map(|part| member.ptr(part));
            let [places, counts, all_counts, starts] = plan.each_ref().map(|part| member.ptr(part));
            let [received, returned, combined] = work.each_ref().map(|part| member.ptr(part));
            let (routes, origins) = (member.ptr(routes), member.ptr(origins));
            let (hidden, top) = (HIDDEN as u64, WEIGHTS.len() as u64);
            MoeShuffle {
                team,
                tokens,
                routes,
                weights,
                places,
                counts,
                all_counts,
                starts,
                received,
                origins,
                returned,
                combined,
                results,
                hidden,
                top,
                before,
            }
        })?;
        check("the counts", &plan[2], |at| {
            let (from, expert) = (at / experts, at % experts);
            (0..rows).filter(|&row| batch.route(from, row) == expert).count() as u32
        })?;
        check("the tokens", &work[2], |at| batch.combined(rank, at / HIDDEN, at % HIDDEN))?;
    }
    Ok(())
}
