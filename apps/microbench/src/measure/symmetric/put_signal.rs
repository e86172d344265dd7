//! Ping-pong by `put_signal`.

use super::{Run, settings, team};
use crate::bench::{Members, pointer};
use crate::outcome::Outcome;
use crate::report::{Axis, Role, Row};
use crate::{floor, foreign};
use gpunet_bench_kernel::PutSignal;
use gpunet_device::SymmetricPtr;
use std::cell::Cell;

/// Threads of a block, on a GPU, for messages of up to 8 KiB and above.
const THREADS: [u32; 2] = [128, 512];

const fn threads(size: u64) -> u32 {
    THREADS[(size > 8192) as usize]
}

pub(super) fn measure(run: &mut Run<'_>, devices: &[String]) -> Outcome<()> {
    let members = team(run, devices, 2)?;
    let sizes = run.effort.of(
        vec![8, 64, 4096],
        vec![8, 64, 256, 1024, 4096, 65536],
        (0..=20).map(|log2| 1 << log2).collect(),
    );
    let rounds = |size: u64| run.effort.of(500, 6000, 20_000) / if size > 16_384 { 4 } else { 1 };
    let title = format!("put_signal, {}, one way (half of a round trip)", members.title());
    let mut setting = settings(&members, THREADS[0]);
    setting.push(("figures", "the best of three tries".to_owned()));
    run.recorder.table("symmetric", title, Axis::TimeBySize, setting, 2 * sizes.len())?;
    let ends = [members.bench(0), members.bench(1)];
    for &size in &sizes {
        let row = floor::one_copy(ends, threads(size), size, rounds(size))?;
        run.recorder.row(row.at("data and flag", size));
    }
    if members.are_different_gpus() {
        foreign::nvshmem(run.recorder, foreign::Of::Latency);
    }
    let largest = sizes.iter().copied().max().unwrap_or(1) as usize;
    let [to, from] = [members.alloc::<u8>(largest)?, members.alloc::<u8>(largest)?];
    let before = Cell::new(0);
    for &size in &sizes {
        let pointers = |member: usize| {
            let part = |pointer: SymmetricPtr<u8>| pointer.slice(0, size as usize);
            (part(pointer(&to[member])), part(pointer(&from[member])))
        };
        let row = floor::best(|| once(&members, size, rounds(size), &before, pointers))?;
        run.recorder.row(row.at("put_signal", size));
    }
    Ok(())
}

fn once(
    members: &Members,
    size: u64,
    rounds: u64,
    before: &Cell<u64>,
    pointers: impl Fn(usize) -> (SymmetricPtr<u8>, SymmetricPtr<u8>),
) -> Outcome<Row> {
    let words = members.play(2, (1, threads(size)), rounds as usize, |member, team, results| {
        let (to, from) = pointers(member);
        PutSignal { team, to, from, before: before.get(), rounds, results }
    })?;
    before.set(before.get() + rounds);
    Ok(Row::one_way(Role::Gpunet, format!("{size} B, put_signal"), &words[0]))
}
