//! The floors, which show what the hardware can do: data and flag between two devices of this
//! process, without sockets.

use crate::bench::{Bench, Windows};
use crate::outcome::Outcome;
use crate::report::{Role, Row};
use gpunet_bench_kernel::{Bare, Copy};
use std::time::{Duration, Instant};

const NAMES: [&str; 2] = ["pinned memory", "the receiver's memory"];

/// Returns the best of three tries, because other programs may use a processor during one of them.
pub fn best(mut once: impl FnMut() -> Outcome<Row>) -> Outcome<Row> {
    let mut best = once()?;
    for _ in 1..3 {
        let row = once()?;
        if row.is_better_than(&best) {
            best = row;
        }
    }
    Ok(best)
}

/// Measures round trips of `size` bytes and a flag in the receiver's memory, copied out; 0 for
/// flags alone. The second end measures. Returns the best of three tries.
pub fn ping_pong(ends: [&Bench; 2], threads: u32, size: u64, rounds: u64) -> Outcome<Row> {
    best(|| ping_pong_once(ends, threads, size, Shape::CopiedOut, rounds))
}

/// As [`ping_pong`], but the bytes stay where they have arrived.
pub fn one_copy(ends: [&Bench; 2], threads: u32, size: u64, rounds: u64) -> Outcome<Row> {
    best(|| ping_pong_once(ends, threads, size, Shape::Stays, rounds))
}

/// As [`ping_pong`], with a flag for every four bytes.
pub fn ping_pong_by_units(ends: [&Bench; 2], threads: u32, size: u64, rounds: u64) -> Outcome<Row> {
    best(|| ping_pong_once(ends, threads, size, Shape::Units, rounds))
}

/// The way in which data and flags travel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Data, then a flag; the receiver copies the data out.
    CopiedOut,
    /// Data, then a flag; the data stays.
    Stays,
    /// A flag for every four bytes; copied out.
    Units,
}

fn ping_pong_once(ends: [&Bench; 2], threads: u32, size: u64, shape: Shape, rounds: u64) -> Outcome<Row> {
    let (flag, data) = (0, 4096);
    let windows = Windows::between(ends, data + 2 * size as usize)?;
    ends.into_iter().try_for_each(|bench| bench.prepare::<Bare>(threads))?;
    let mut running = Vec::new();
    for (end, bench) in ends.into_iter().enumerate() {
        let job = bench.job((size as usize).next_multiple_of(4), rounds as usize)?;
        let launch = bench.start(1, bench.threads(threads), |_| Bare {
            near_flag: windows.near(end, flag).cast(),
            far_flag: windows.far(end, flag).cast(),
            near_data: windows.near(end, data),
            far_data: windows.far(end, data),
            own: job.buffer().as_ptr(),
            size,
            units: u64::from(shape == Shape::Units),
            copies_out: u64::from(shape != Shape::Stays),
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
    let what = match size {
        0 => "flags alone".to_owned(),
        _ if shape == Shape::Units => format!("{size} B, a flag beside each 4 B"),
        _ if shape == Shape::Stays => format!("{size} B and flag"),
        _ => format!("{size} B and flag, copied out"),
    };
    let place = NAMES[usize::from(windows.on_gpus)];
    Ok(Row::one_way(Role::Floor, format!("{what}, {place}"), &words))
}

/// Measures copies by blocks of the second end: into the first end's memory, as a sender copies,
/// and within their own memory, as a receiver does.
pub fn copy(ends: [&Bench; 2], blocks: u32, threads: u32, times: u64) -> Outcome<[Row; 2]> {
    let len = 4 << 20;
    ends[1].prepare::<Copy>(threads)?;
    let windows = Windows::between(ends, len * blocks as usize)?;
    let copies = |dst: *mut u8, place: &str| -> Outcome<Row> {
        let job = ends[1].job(len * blocks as usize, blocks as usize)?;
        let started = Instant::now();
        let launch = ends[1].start(blocks, ends[1].threads(threads), |_| Copy {
            src: job.buffer().as_ptr(),
            dst,
            len: len as u64,
            times,
            results: job.results(),
        })?;
        let words = ends[1].finish(launch, &job)?;
        let time = together(ends[1].is_gpu(), &words, started.elapsed());
        let does = if blocks == 1 { "block copies" } else { "blocks copy" };
        let name = format!("{blocks} {does} into {place}");
        Ok(Row::rate(Role::Floor, name, len as u64 * times * u64::from(blocks), time))
    };
    let far = copies(windows.far(1, 0), NAMES[usize::from(windows.on_gpus)])?;
    Ok([
        far,
        copies(
            windows.near(1, 0),
            if blocks == 1 { "its own end's memory" } else { "their own end's memory" },
        )?,
    ])
}

/// Returns how long all blocks took together. On a GPU all run at the same time, so it is the time
/// of the slowest, by its own clock. On the CPU there may be more blocks than cores, which then
/// take turns, so it is the time of the launch.
fn together(on_gpu: bool, blocks: &[u64], launch: Duration) -> Duration {
    let longest = blocks.iter().copied().max().unwrap_or(0);
    if on_gpu { Duration::from_nanos(longest.max(1)) } else { launch }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_take_turns_take_as_long_as_the_launch() {
        let launch = Duration::from_nanos(25);
        assert_eq!(together(false, &[10, 11], launch), launch);
        assert_eq!(together(true, &[10, 11], launch), Duration::from_nanos(11));
    }

    #[test]
    fn of_three_tries_the_best_is_taken() {
        let mut times = [30_000, 10_000, 20_000].into_iter();
        let row = best(|| Ok(Row::all_times(Role::Floor, "", &[times.next().unwrap()]))).unwrap();
        assert!((row.figure.typical() - 10.0).abs() < 0.1, "{row:?}");
        let mut seconds = [3, 1, 2].into_iter();
        let rate =
            || Ok(Row::rate(Role::Floor, "", 1_000_000_000, Duration::from_secs(seconds.next().unwrap())));
        assert!((best(rate).unwrap().figure.typical() - 1.0).abs() < 1e-9);
        assert!(best(|| Err("no".into())).is_err());
    }
}
