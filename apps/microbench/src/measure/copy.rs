//! The copy routine between device and pinned memory.

use super::Run;
use crate::bench::{Bench, Pinned};
use crate::effort::Effort;
use crate::foreign;
use crate::outcome::Outcome;
use crate::report::{Axis, Role, Row, counted};
use gpunet_bench_kernel::Copy;
use std::time::Duration;

const LEN: usize = 4 << 20;
/// The widest alignment that matters, bytes: that of an access.
const ACCESS: usize = 16;

/// Measures one block in both directions at all alignments, and many aligned blocks.
pub fn copy(run: &mut Run<'_>) -> Outcome<()> {
    let bench = run.open()?;
    let threads: &[u32] = match (bench.is_gpu(), run.effort) {
        (false, _) => &[1],
        (true, Effort::Quick) => &[512],
        (true, _) => &[128, 256, 512, 1024],
    };
    let offsets: Vec<usize> = match run.effort {
        Effort::Quick => vec![0, 1, 8],
        _ => (0..ACCESS).collect(),
    };
    let setting = vec![("device", bench.title()), ("blocks", "one".to_owned())];
    let title = format!("{}, {} MiB between device and pinned memory", bench.title(), LEN >> 20);
    let many = if bench.is_gpu() { bench.processors() } else { 1 };
    let pinned = bench.pinned(LEN.max(many as usize * (1 << 20)) + 4096)?;
    run.recorder.table("copy", title, Axis::RateByOffset, setting, 4 + 2 * offsets.len() * threads.len())?;
    for out in [true, false] {
        if many > 1 {
            let shape = CopyShape { blocks: many, threads: 512, offset: 0, len: 1 << 20 };
            run.recorder.row(one(&bench, &pinned, shape, out, run.effort, Role::Floor)?);
        }
    }
    if bench.is_gpu() {
        foreign::between_gpu_and_cpu(run.recorder, foreign::Of::Bandwidth);
    }
    for &threads in threads {
        for &offset in &offsets {
            for out in [true, false] {
                let shape = CopyShape { blocks: 1, threads, offset, len: LEN };
                let row = one(&bench, &pinned, shape, out, run.effort, Role::Gpunet)?;
                run.recorder.row(
                    row.at(format!("{}, {}", direction(out), counted(threads, "thread")), offset as u64),
                );
            }
        }
    }
    Ok(())
}

struct CopyShape {
    blocks: u32,
    threads: u32,
    /// The difference between the ends' alignments.
    offset: usize,
    /// Bytes of a block.
    len: usize,
}

const fn direction(out: bool) -> &'static str {
    if out { "device -> pinned" } else { "pinned -> device" }
}

fn one(
    bench: &Bench,
    pinned: &Pinned,
    shape: CopyShape,
    out: bool,
    effort: Effort,
    role: Role,
) -> Outcome<Row> {
    let CopyShape { blocks, threads, offset, len } = shape;
    let times = effort.of(20, 50, 100);
    let job = bench.job(blocks as usize * len + 64, blocks as usize)?;
    let (device, host) = (job.buffer().as_ptr(), pinned.device(offset));
    let (src, dst) = if out { (device, host) } else { (host, device) };
    let copy = |_| Copy { src, dst, len: len as u64, times, results: job.results() };
    let launch = bench.start(blocks, bench.threads(threads), copy)?;
    let words = bench.finish(launch, &job)?;
    let longest = words.into_iter().max().unwrap_or(1).max(1);
    let direction = direction(out);
    let aligned = if offset == 0 { "aligned".to_owned() } else { format!("{offset} B off") };
    let name = match blocks {
        1 => format!("{direction}, {}, {aligned}", counted(threads, "thread")),
        _ => format!("{direction}, {blocks} blocks of {threads}, {aligned}"),
    };
    Ok(Row::rate(role, name, (len * blocks as usize) as u64 * times, Duration::from_nanos(longest)))
}
