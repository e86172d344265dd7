//! Faults that must end well: launches that leave sockets, dead handles, panics, a program that is
//! stopped.

mod child;
mod tcp_ends;

use super::{Run, settings};
use crate::bench::{Bench, Job, Pinned};
use crate::outcome::Outcome;
use crate::pair::TIMEOUT;
use crate::report::{Axis, Role, Row};
pub use child::{AttendArgs, attend};
use gpunet_bench_kernel::{Leave, Stale, Twice, failed};
use gpunet_device::abi::Word;
use gpunet_device::{Error, Options, SockAddr, TransportKind};
use gpunet_proxy::{Config, FinishPolicy, Launch};
use std::time::{Duration, Instant};
use tcp_ends::{MARK, TcpEnds, UNREAD};

/// Threads of a block, on a GPU.
const THREADS: u32 = 64;
/// An event that has not happened within this time is reported as a failure.
const SOON: Duration = Duration::from_secs(20);
/// Dead handles of earlier rounds that are tried again.
const OLD: usize = 48;

/// The result of a part: a number and its unit.
type Shown = Outcome<(f64, &'static str)>;

/// Provokes all faults; returns whether all of them ended well.
pub fn faults(run: &mut Run<'_>) -> Outcome<bool> {
    let bench = run.open()?;
    let title = format!("{}, faults that must end well", bench.title());
    run.recorder.table("faults", title, Axis::None, settings(&bench, THREADS), 6)?;
    let rounds = run.effort.of(3, 10, 50);
    let mut good = true;
    let mut take = |run: &mut Run<'_>, name: &str, shown: Shown| match shown {
        Ok((value, unit)) => run.recorder.row(Row::number(Role::Gpunet, name, value, unit)),
        Err(error) => {
            good = false;
            run.recorder.note(format!("WRONG {name}: {error}"));
        }
    };
    for (name, closes) in [
        ("a launch leaves its sockets while another waits on them", false),
        ("a launch closes its sockets while another waits on them", true),
    ] {
        let shown = two_launches(&bench, closes, rounds);
        take(run, name, shown);
    }
    let shown = unopened(run, rounds);
    take(run, "launches leave sockets that were never opened", shown);
    let shown = twice(&bench, run.effort.of(1000, 10_000, 100_000));
    take(run, "broadcasts of two values of one block", shown);
    drop(bench);
    let shown = child::stopped(run);
    take(run, "the program is stopped for 4 s while its kernel waits, and goes on", shown);
    let shown = child::panics(run);
    take(run, "a block panics: until its clients are reset", shown);
    run.recorder.note(if good { "all ended well" } else { "SOME DID NOT END WELL" });
    Ok(good)
}

/// Words that a round's kernels and this program share.
struct Words(Pinned);

impl Words {
    const HANDLES: usize = 64;
    const BLOCKS: usize = 32;

    fn new(bench: &Bench) -> Outcome<Self> {
        Ok(Self(bench.pinned(8 * (Self::HANDLES + Self::BLOCKS + 3))?))
    }

    fn handle(index: usize) -> usize {
        8 * index
    }

    fn wait(block: usize) -> usize {
        8 * (Self::HANDLES + block)
    }

    const TOLD: usize = 8 * (Self::HANDLES + Self::BLOCKS);
    const LEAVE: usize = Self::TOLD + 8;
    const USE: usize = Self::TOLD + 16;

    fn device(&self, at: usize) -> *mut u64 {
        self.0.device(at).cast()
    }

    fn word(&self, at: usize) -> Word {
        self.0.word(at)
    }
}

/// Waits until `so` returns true, or `launch` fails.
fn until(what: &str, launch: &Launch, mut so: impl FnMut() -> bool) -> Outcome<()> {
    let limit = Instant::now() + SOON;
    while !so() {
        launch.is_finished()?;
        if Instant::now() > limit {
            return Err(format!("not within {} s: {what}", SOON.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn options() -> Options {
    Options::DEFAULT.with_rings(64 << 10, 64 << 10).with_transport(TransportKind::Tcp)
}

/// Has one launch open sockets, and another one's blocks wait on them when the first leaves or
/// closes them.
fn two_launches(bench: &Bench, closes: bool, rounds: u64) -> Shown {
    let ends = TcpEnds::start()?;
    let mut old = Vec::new();
    for _ in 0..rounds {
        let handles = one_round(bench, &ends, closes, &old)?;
        old.splice(0..0, handles);
        old.truncate(OLD);
        if let Some(wrong) = ends.wrong() {
            return Err(wrong.into());
        }
    }
    Ok((rounds as f64, "rounds right"))
}

/// Runs one round. Returns the handles that are dead now.
fn one_round(bench: &Bench, ends: &TcpEnds, closes: bool, old: &[u64]) -> Outcome<Vec<u64>> {
    let blocks = if bench.is_gpu() { 16 } else { 4 };
    let threads = bench.threads(THREADS);
    let (left, count) = (blocks as usize, blocks as usize + old.len());
    let words = Words::new(bench)?;
    for (index, handle) in old.iter().enumerate() {
        words.word(Words::handle(left + index)).publish(*handle);
    }
    let mut own = bench.job(64, 1)?;
    // A block that sends without a pause continues while its socket is finished with. On a socket
    // that is closed it must wait, so the other end does not read.
    own.fill(if closes { UNREAD } else { MARK })?;
    let mut others = bench.job(left * (Stale::BUFFER + Stale::MESSAGE), 4 * left)?;
    others.fill(MARK)?;
    let addr = SockAddr::from(ends.addr());

    bench.prepare::<Stale>(threads)?;
    let leave = bench.start(1, threads, |net| Leave {
        net,
        addr,
        options: options(),
        sockets: u64::from(blocks),
        unopened: 0,
        closes: u32::from(closes),
        buffer: own.buffer().first(1),
        handles: words.device(0),
        told: words.device(Words::TOLD),
        go: words.device(Words::LEAVE),
        results: own.results(),
    })?;
    until("the first launch opens its sockets", &leave, || words.word(Words::TOLD).observe() == 1)?;
    let stale = bench.start(blocks, threads, |net| Stale {
        net,
        addr,
        options: options().with_timeouts(TIMEOUT, TIMEOUT),
        handles: words.device(0),
        count: count as u64,
        buffer: others.buffer().first(left * Stale::BUFFER),
        message: others.buffer().skip(left * Stale::BUFFER),
        rounds: 64,
        waits: words.device(Words::wait(0)),
        go: words.device(Words::USE),
        results: others.results(),
    })?;
    let all = |state| (0..left).all(|block| words.word(Words::wait(block)).observe() >= state);
    until("all blocks wait", &stale, || all(1))?;
    // Sending blocks fill rings.
    std::thread::sleep(Duration::from_millis(20));
    words.word(Words::LEAVE).publish(1);
    Bench::no_failure(&bench.finish(leave, &own)?)?;
    until("the waits for dead sockets end", &stale, || all(2))?;
    let held = bench.attachment().usage().sockets;
    // Listeners have no rings into which a block could still be copying.
    let streams = left - left / Stale::WAYS;
    if !closes && held < streams {
        return Err(format!("{held} of {streams} streams are kept while a launch knows their rings").into());
    }
    ends.let_go();
    words.word(Words::USE).publish(1);
    check(&bench.finish(stale, &others)?)?;
    let limit = Instant::now() + SOON;
    while bench.attachment().usage().sockets > 0 {
        if Instant::now() > limit {
            return Err(format!("sockets that were not freed: {:?}", bench.attachment().usage()).into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok((0..left).map(|index| words.word(Words::handle(index)).observe()).collect())
}

/// Checks the results of the blocks that waited.
fn check(words: &[u64]) -> Outcome<()> {
    for (block, words) in words.chunks_exact(4).enumerate() {
        let &[ended, taken, _, outcome] = words else { continue };
        if failed(ended) != Some(Error::BadHandle.errno()) {
            let how =
                failed(ended).map_or_else(|| ended.to_string(), |errno| Error::from_errno(errno).to_string());
            return Err(format!("block {block}: a wait for a dead socket ended with {how}").into());
        }
        if taken > 0 {
            return Err(format!("block {block}: {taken} dead handles were taken for open ones").into());
        }
        if let Some(errno) = failed(outcome) {
            return Err(format!("block {block}, its own stream: {}", Error::from_errno(errno)).into());
        }
    }
    Ok(())
}

/// Runs launches, one after another, that each leave all slots taken.
fn unopened(run: &Run<'_>, rounds: u64) -> Shown {
    let config = Config { sockets: 16, ..Config::small() };
    let bench = Bench::attach(&run.proxy.open(config)?, run.device)?;
    let words = Words::new(&bench)?;
    words.word(Words::LEAVE).publish(1);
    for round in 0..rounds {
        let job = bench.job(64, 1)?;
        let launch = bench.start(1, bench.threads(THREADS), |net| leaves_unopened(net, &words, &job))?;
        let opened = bench.finish_with(launch, &job, FinishPolicy::Close)?[0];
        if let Some(errno) = failed(opened) {
            return Err(format!("launch {round}: {}", Error::from_errno(errno)).into());
        }
    }
    Ok((rounds as f64, "launches, each with all 16 slots"))
}

fn leaves_unopened(net: gpunet_device::Net, words: &Words, job: &Job) -> Leave {
    Leave {
        net,
        addr: SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 1))),
        options: options(),
        sockets: 16,
        unopened: 1,
        closes: 0,
        buffer: job.buffer(),
        handles: words.device(0),
        told: words.device(Words::TOLD),
        go: words.device(Words::LEAVE),
        results: job.results(),
    }
}

/// Checks broadcasts and sums of two values of one block, in turn.
fn twice(bench: &Bench, rounds: u64) -> Shown {
    let blocks = if bench.is_gpu() { 8 } else { 2 };
    for threads in if bench.is_gpu() { vec![32, 33, 256] } else { vec![1, 3] } {
        let job = bench.job(64, blocks as usize)?;
        let launch = bench.start(blocks, threads, |_| Twice { rounds, results: job.results() })?;
        let wrong: u64 = bench.finish(launch, &job)?.iter().sum();
        if wrong > 0 {
            return Err(format!("{wrong} values were wrong in blocks of {threads} threads").into());
        }
    }
    Ok((4.0 * rounds as f64, "broadcasts and sums a block, all right"))
}
