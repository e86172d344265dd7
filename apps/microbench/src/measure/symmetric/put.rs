//! Puts, by the number of blocks and by the bytes of a call.

use super::{Run, settings, team};
use crate::bench::{Members, pointer};
use crate::foreign;
use crate::outcome::Outcome;
use crate::report::{Axis, Role, Row, counted};
use gpunet_app::cli::spell;
use gpunet_bench_kernel::{PutWay, Puts};
use gpunet_proxy::team::Symmetric;
use std::time::Duration;

/// Bytes of a call, where many blocks put.
const LEN: u64 = 1 << 20;
/// Threads of a block, on a GPU.
const THREADS: [u32; 2] = [512, 1024];
/// The number of rounds. The best one counts. Each round measures all rows in turn, so that other
/// work of the machine affects all of them alike.
const TRIES: usize = 5;

pub(super) fn measure(run: &mut Run<'_>, devices: &[String], blocks: &[u32]) -> Outcome<()> {
    let members = team(run, devices, 2)?;
    by_blocks(run, &members, blocks)?;
    by_size(run, &members)
}

/// Puts of member 0 to member 1.
#[derive(Clone, Copy)]
struct Shape {
    blocks: u32,
    threads: u32,
    len: u64,
    times: u64,
}

/// Memory of both members.
struct Memory<'team> {
    to: Vec<Symmetric<'team, u8>>,
    from: Vec<Symmetric<'team, u8>>,
}

impl<'team> Memory<'team> {
    fn of(members: &'team Members, len: u64) -> Outcome<Self> {
        Ok(Self { to: members.alloc(len as usize)?, from: members.alloc(len as usize)? })
    }
}

/// Returns the way of bare copies between these members, and its name.
fn bare(members: &Members) -> (PutWay, &'static str) {
    if members.bench(0).is_gpu() { (PutWay::Copy, "bare copies") } else { (PutWay::Memcpy, "memcpy") }
}

fn by_blocks(run: &mut Run<'_>, members: &Members, blocks: &[u32]) -> Outcome<()> {
    let is_gpu = members.bench(0).is_gpu();
    let counts = match (blocks, is_gpu) {
        ([], true) => run.effort.of(vec![1, 16], vec![1, 4, 16, 32], vec![1, 2, 4, 8, 16, 32, 64]),
        ([], false) => vec![1, 2],
        (named, _) => named.to_vec(),
    };
    let threads = if is_gpu { &THREADS[..] } else { &THREADS[..1] };
    let title = format!("put, {}, {} a call", members.title(), spell(LEN));
    let mut setting = settings(members, THREADS[0]);
    setting.push(("figures", format!("the best of {TRIES}, floors and puts in turn")));
    let rows = 2 * counts.len() * threads.len();
    run.recorder.table("symmetric", title, Axis::RateByBlocks, setting, rows)?;
    let most = counts.iter().copied().max().unwrap_or(1);
    let memory = Memory::of(members, LEN * u64::from(most))?;
    let times = run.effort.of(20, 400, 1000);
    let shapes = || threads.iter().flat_map(|&threads| counts.iter().map(move |&blocks| (threads, blocks)));
    let mut pairs = Vec::new();
    for (threads, blocks) in shapes() {
        let shape = Shape { blocks, threads, len: LEN, times };
        pairs.push((shape, in_turn(members, &memory, shape)?));
    }
    let of = |threads: u32| if is_gpu { format!(", {threads} threads") } else { String::new() };
    let (_, bare) = bare(members);
    for (shape, [floor, _]) in &pairs {
        let name = format!("{}, {bare}{}", counted(shape.blocks, "block"), of(shape.threads));
        let series = format!("{bare}{}", of(shape.threads));
        run.recorder.row(shape.row(Role::Floor, name, *floor).at(series, u64::from(shape.blocks)));
    }
    if members.are_different_gpus() {
        foreign::nvshmem(run.recorder, foreign::Of::Bandwidth);
    }
    for (shape, [_, put]) in &pairs {
        let name = format!("{}, put{}", counted(shape.blocks, "block"), of(shape.threads));
        let series = format!("put{}", of(shape.threads));
        run.recorder.row(shape.row(Role::Gpunet, name, *put).at(series, u64::from(shape.blocks)));
    }
    Ok(())
}

fn by_size(run: &mut Run<'_>, members: &Members) -> Outcome<()> {
    let sizes: Vec<u64> = match run.effort {
        crate::effort::Effort::Quick => vec![64, 4096, 1 << 20],
        _ => vec![64, 256, 1024, 4096, 16_384, 65_536, 1 << 18, 1 << 20, 4 << 20],
    };
    let threads = THREADS[0];
    let title = format!("put, {}, one block by the bytes of a call", members.title());
    let mut setting = settings(members, threads);
    setting.push(("figures", format!("the best of {TRIES}, floors and puts in turn")));
    run.recorder.table("symmetric", title, Axis::RateBySize, setting, 2 * sizes.len())?;
    let memory = Memory::of(members, sizes.iter().copied().max().unwrap_or(1))?;
    let bytes: u64 = run.effort.of(8 << 20, 256 << 20, 1 << 30);
    let mut pairs = Vec::new();
    for &len in &sizes {
        let shape = Shape { blocks: 1, threads, len, times: (bytes / len).clamp(8, 100_000) };
        pairs.push((shape, in_turn(members, &memory, shape)?));
    }
    let (_, bare) = bare(members);
    for (shape, [floor, _]) in &pairs {
        let row = shape.row(Role::Floor, format!("{}, {bare}", spell(shape.len)), *floor);
        run.recorder.row(row.at(bare, shape.len));
    }
    for (shape, [_, put]) in &pairs {
        let row = shape.row(Role::Gpunet, format!("{}, put", spell(shape.len)), *put);
        run.recorder.row(row.at("put", shape.len));
    }
    Ok(())
}

/// Returns the shortest times of bare copies and of puts.
fn in_turn(members: &Members, memory: &Memory<'_>, shape: Shape) -> Outcome<[Duration; 2]> {
    let mut best = [Duration::MAX; 2];
    for _ in 0..TRIES {
        for (best, way) in best.iter_mut().zip([bare(members).0, PutWay::Put]) {
            *best = (*best).min(once(members, memory, shape, way)?);
        }
    }
    Ok(best)
}

fn once(members: &Members, memory: &Memory<'_>, shape: Shape, way: PutWay) -> Outcome<Duration> {
    let Shape { blocks, threads, len, times } = shape;
    let words = members.play(1, (blocks, threads), 2 * blocks as usize, |member, team, results| {
        let (to, from) = (pointer(&memory.to[member]), pointer(&memory.from[member]));
        Puts { team, to, from, member: 1, len, times, way: way as u64, results }
    })?;
    Ok(together(&words[0]))
}

/// Returns the time from the first block's start to the last one's end, from the two words that
/// each leaves.
fn together(blocks: &[u64]) -> Duration {
    let began = blocks.iter().step_by(2).min().copied().unwrap_or(0);
    let ended = blocks.iter().skip(1).step_by(2).max().copied().unwrap_or(1);
    Duration::from_nanos(ended.saturating_sub(began).max(1))
}

impl Shape {
    fn row(self, role: Role, name: String, time: Duration) -> Row {
        Row::rate(role, name, self.len * self.times * u64::from(self.blocks), time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_from_the_first_start_to_the_last_end() {
        assert_eq!(together(&[10, 30, 5, 20]), Duration::from_nanos(25));
    }
}
