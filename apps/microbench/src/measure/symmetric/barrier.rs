//! Barriers of all members, one block each.

use super::collectives::{Operation, times};
use super::{Run, each, plain, settings, team};
use crate::outcome::Outcome;
use crate::report::{Axis, Role, Row, counted};
use crate::{floor, foreign};
use gpunet_bench_kernel::Called;

/// Threads of a block, on a GPU.
const THREADS: u32 = 128;

pub(super) fn measure(run: &mut Run<'_>, devices: &[String], counts: &[u32]) -> Outcome<()> {
    let rounds = run.effort.of(200, 5000, 20_000);
    let two = team(run, devices, 2)?;
    let title = format!("barrier, {}", two.title());
    let mut setting = settings(&two, THREADS);
    setting.retain(|(name, _)| *name != "members");
    setting.push(("figures", "the best of three tries".to_owned()));
    setting.push(("a call", "one after the other, member 0's time".to_owned()));
    run.recorder.table("symmetric", title, Axis::TimeByMembers, setting, 3 * counts.len())?;
    // Each member must receive from every other one, which takes at least the time of one flag.
    let flags = floor::ping_pong([two.bench(0), two.bench(1)], THREADS, 0, rounds)?;
    for &members in counts {
        let row = Row { name: format!("{members} members: a flag, one way"), ..flags.clone() };
        run.recorder.row(row.at("a flag, one way", u64::from(members)));
        if two.are_cpus() {
            let row = floor::best(|| plain::barrier(members, rounds))?;
            run.recorder.row(row.at("std::sync::Barrier", u64::from(members)));
        } else if two.are_different_gpus() && members as usize <= devices.len() {
            foreign::nvshmem_team(run.recorder, members, foreign::Of::Barrier);
        }
    }
    drop(two);
    each(run, devices, counts, |run, members| {
        let operation = Operation { called: Called::Barrier, elements: 1, rounds, threads: THREADS };
        let name = format!("{}, barrier", counted(members.size() as u64, "member"));
        let row = floor::best(|| Ok(Row::times(Role::Gpunet, name.as_str(), &times(members, operation)?)))?;
        run.recorder.row(row.at("barrier", members.size() as u64));
        Ok(())
    })
}
