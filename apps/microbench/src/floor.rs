//! What the hardware gives: data and flag between two devices of this process, without sockets.

use crate::bench::{Bench, Outcome, Windows};
use crate::report::{Role, Row};
use gpunet_bench_kernel::{Bare, Copy};
use std::time::Duration;

const NAMES: [&str; 2] = ["pinned memory", "the receiver's memory"];

/// Round trips of `size` bytes and a flag, in the receiver's memory, copied out; 0 for flags alone.
/// The second end measures.
pub fn ping_pong(ends: [&Bench; 2], threads: u32, size: u64, rounds: u64) -> Outcome<Row> {
    let (flag, data) = (0, 4096);
    let windows = Windows::between(ends, data + size as usize)?;
    ends.into_iter().try_for_each(|bench| bench.prepare(threads))?;
    let mut running = Vec::new();
    for (end, bench) in ends.into_iter().enumerate() {
        let job = bench.job(size as usize, rounds as usize)?;
        let launch = bench.start(1, bench.threads(threads), |_| Bare {
            near_flag: windows.near(end, flag).cast(),
            far_flag: windows.far(end, flag).cast(),
            near_data: windows.near(end, data),
            far_data: windows.far(end, data),
            own: job.buffer().as_ptr(),
            size,
            rounds,
            begins: end as u64,
            results: job.results(),
        })?;
        running.push((launch, job));
    }
    let mut words = Vec::new();
    for (bench, (launch, job)) in ends.into_iter().zip(running) {
        words = bench.finish(launch, &job)?;
    }
    let what = if size == 0 { "flags alone".to_owned() } else { format!("{size} B and flag, copied out") };
    let place = NAMES[usize::from(windows.on_gpus)];
    Ok(Row::one_way(Role::Floor, format!("{what}, {place}"), &words))
}

/// Blocks of the second end that copy into the first one's memory, as a sender does, and within their
/// own, as a receiver does.
pub fn copy(ends: [&Bench; 2], blocks: u32, threads: u32, times: u64) -> Outcome<[Row; 2]> {
    let len = 4 << 20;
    let windows = Windows::between(ends, len * blocks as usize)?;
    let copies = |dst: *mut u8, place: &str| -> Outcome<Row> {
        let job = ends[1].job(len * blocks as usize, blocks as usize)?;
        let launch = ends[1].start(blocks, ends[1].threads(threads), |_| Copy {
            src: job.buffer().as_ptr(),
            dst,
            len: len as u64,
            times,
            results: job.results(),
        })?;
        let words = ends[1].finish(launch, &job)?;
        let longest = Duration::from_nanos(words.into_iter().max().unwrap_or(1).max(1));
        let name = format!("{blocks} blocks copy into {place}");
        Ok(Row::rate(Role::Floor, name, len as u64 * times * u64::from(blocks), longest))
    };
    let far = copies(windows.far(1, 0), NAMES[usize::from(windows.on_gpus)])?;
    Ok([far, copies(windows.near(1, 0), "their own end's memory")?])
}
