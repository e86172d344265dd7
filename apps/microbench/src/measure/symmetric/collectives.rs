//! Collectives of all members, one block each.

use super::{Run, plain, settings};
use crate::bench::{Members, pointer};
use crate::effort::Effort;
use crate::outcome::Outcome;
use crate::report::{Axis, Role, Row};
use crate::{floor, foreign};
use gpunet_app::cli::spell;
use gpunet_bench_kernel::{Called, Collective};

/// Threads of a block, on a GPU.
const THREADS: u32 = 512;
/// The number of tries. The best one counts, also for floors and references.
const TRIES: usize = 3;
/// Bytes of an element.
const ELEMENT: u64 = 4;

/// The collective that all members call.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub called: Called,
    /// Elements of a source.
    pub elements: usize,
    pub rounds: u64,
    pub threads: u32,
}

/// Returns the nanoseconds of each call at member 0.
pub(super) fn times(members: &Members, operation: Operation) -> Outcome<Vec<u64>> {
    let Operation { called, elements, rounds, threads } = operation;
    let to = members.alloc::<f32>(elements * members.size())?;
    let from = members.alloc::<f32>(elements)?;
    let mut words =
        members.play(members.size(), (1, threads), rounds as usize, |member, team, results| {
            let (to, from) = (pointer(&to[member]), pointer(&from[member]));
            Collective { team, to, from, called: called as u64, rounds, results }
        })?;
    Ok(words.swap_remove(0))
}

fn rounds(effort: Effort, size: u64) -> u64 {
    effort.of(100, 2000, 5000) / if size > 65_536 { 4 } else { 1 }
}

pub(super) fn all_gather(run: &mut Run<'_>, members: &Members) -> Outcome<()> {
    let sizes = run.effort.of(vec![4096, 65_536], by_two(4096, 65_536), by_two(1024, 1 << 20));
    let title =
        format!("all_gather of {} members, {}, by the bytes of a source", members.size(), members.title());
    table(run, members, title, 3 * sizes.len())?;
    references(run, members, &sizes, foreign::Of::AllGather, plain::all_gather)?;
    gpunet(run, members, &sizes, [(Called::AllGather, "all_gather")]).map(drop)
}

pub(super) fn reduce(run: &mut Run<'_>, members: &Members) -> Outcome<()> {
    let sizes = run.effort.of(vec![4096, 65_536], by_two(1024, 1 << 18), by_two(256, 1 << 20));
    let title = format!("reduce (sum of f32) of {} members, {}, by bytes", members.size(), members.title());
    table(run, members, title, 5 * sizes.len())?;
    references(run, members, &sizes, foreign::Of::Reduce, plain::reduce)?;
    let ways = [
        (Called::Reduce, "reduce"),
        (Called::OneShot, "reduce, one-shot"),
        (Called::TwoShot, "reduce, two-shot"),
    ];
    let [_, one, two] = gpunet(run, members, &sizes, ways)?;
    let faster: Vec<bool> = one.iter().zip(&two).map(|(one, two)| two < one).collect();
    run.recorder.note(match switch(&sizes, &faster) {
        Some(size) => format!("two-shot is the faster way from {} on", spell(size)),
        None => "one-shot is the faster way for the largest size".to_owned(),
    });
    Ok(())
}

/// Returns the size from which on the second way is always faster.
fn switch(sizes: &[u64], is_faster: &[bool]) -> Option<u64> {
    let slower = is_faster.iter().rposition(|is_faster| !is_faster);
    sizes.get(slower.map_or(0, |at| at + 1)).copied()
}

fn by_two(first: u64, last: u64) -> Vec<u64> {
    std::iter::successors(Some(first), |size| Some(size * 2)).take_while(|size| *size <= last).collect()
}

fn table(run: &mut Run<'_>, members: &Members, title: String, rows: usize) -> Outcome<()> {
    let mut setting = settings(members, THREADS);
    setting.push(("figures", format!("the best of {TRIES} tries")));
    setting.push(("a call", "one after the other, one block of each member, member 0's time".to_owned()));
    run.recorder.table("symmetric", title, Axis::TimeBySize, setting, rows)
}

/// Records the floor and the references.
fn references(
    run: &mut Run<'_>,
    members: &Members,
    sizes: &[u64],
    of: foreign::Of,
    plain: impl Fn(u32, usize, u64) -> Outcome<Row>,
) -> Outcome<()> {
    let count = members.size() as u32;
    for &size in sizes {
        let row = floor::best(|| {
            let samples = times(members, operation(run.effort, Called::Copies, size))?;
            let name = format!("{}, a copy to each member, nobody waits", spell(size));
            Ok(Row::times(Role::Floor, name, &samples))
        })?;
        run.recorder.row(row.at("copies alone", size));
    }
    if members.are_cpus() {
        for &size in sizes {
            let (elements, rounds) = ((size / ELEMENT) as usize, rounds(run.effort, size));
            let row = floor::best(|| plain(count, elements, rounds))?;
            let row = Row { name: format!("{}, {}", spell(size), row.name), ..row };
            run.recorder.row(row.at("plain threads", size));
        }
    } else if members.are_different_gpus() {
        foreign::nvshmem_team(run.recorder, count, of);
        foreign::nccl_team(run.recorder, count, of);
    }
    Ok(())
}

/// Records the times of gpunet's calls, in turn, so that other work of the machine affects all of
/// them alike. Returns the typical times of each.
fn gpunet<const N: usize>(
    run: &mut Run<'_>,
    members: &Members,
    sizes: &[u64],
    calls: [(Called, &str); N],
) -> Outcome<[Vec<f64>; N]> {
    let mut best = [const { Vec::<Row>::new() }; N];
    for &size in sizes {
        for _ in 0..TRIES {
            for (best, (called, name)) in best.iter_mut().zip(calls) {
                let samples = times(members, operation(run.effort, called, size))?;
                let row = Row::times(Role::Gpunet, format!("{}, {name}", spell(size)), &samples);
                let row = row.at(name, size);
                match best.last_mut().filter(|best| best.x == Some(size)) {
                    Some(best) if row.is_better_than(best) => *best = row,
                    Some(_) => {}
                    None => best.push(row),
                }
            }
        }
    }
    best.iter().flatten().for_each(|row| run.recorder.row(row.clone()));
    Ok(best.map(|rows| rows.iter().map(|row| row.figure.typical()).collect()))
}

fn operation(effort: Effort, called: Called, size: u64) -> Operation {
    let (elements, rounds) = ((size / ELEMENT) as usize, rounds(effort, size));
    Operation { called, elements, rounds, threads: THREADS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_way_wins_from_the_size_after_its_last_defeat() {
        let sizes = [1, 2, 4, 8];
        assert_eq!(switch(&sizes, &[false, true, false, true]), Some(8));
        assert_eq!(switch(&sizes, &[true; 4]), Some(1));
        assert_eq!(switch(&sizes, &[true, true, true, false]), None);
    }
}
