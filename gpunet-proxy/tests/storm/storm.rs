//! Workers die and stop, the daemon and the others go on.

use crate::daemon::{Running, TempDir, gpunetd};
use crate::parent::{Held, Kind, LONG, Storm, sane, seed, send};
use gpunet_proxy::snapshot::Totals;
use rustix::process::Signal;
use std::time::{Duration, Instant};

const WORKERS: usize = 6;
const FOREIGN: usize = 2;
/// Foreign clients' connections that come and go, at least: the bytes of all of them pass through
/// data threads.
const CONNECTIONS: u64 = 2000;
const THREADS: usize = 3;
/// No more are stopped at a time.
const STOPPED: usize = 2;
/// `watch::STALLED` is shorter.
const LONG_STOP: Duration = Duration::from_millis(6000);

/// How long it blows: `GPUNET_STORM_SECONDS`, else 8 s.
fn time() -> Duration {
    let given = std::env::var("GPUNET_STORM_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(given.unwrap_or(8))
}

#[test]
fn those_who_live_lose_nothing_and_the_daemon_keeps_nothing() {
    let seed = seed();
    eprintln!("GPUNET_STORM_SEED={seed}");
    let mut storm = Storm::new(seed, false);
    let mut daemon =
        Running::start(gpunetd(&storm.dir).args(["--threads", &THREADS.to_string(), "--linger-s", "5"]));
    let at_first = Held::of(daemon.child.id());
    (0..WORKERS).for_each(|number| storm.add(Kind::of(number)));
    (0..FOREIGN).for_each(|_| storm.add(Kind::Foreign));
    storm.until("all work", |report| report.done > 0);

    let start = Instant::now();
    // All the time one is stopped for longer than any two others may stand still.
    let mut sleeper = None;
    let mut most = [0; THREADS];
    while start.elapsed() < time() || storm.foreign_done() < CONNECTIONS {
        if sleeper.is_none_or(|pid| storm.workers.iter().all(|w| w.pid != pid || w.until.is_none())) {
            sleeper = storm.stop_one(LONG_STOP);
        }
        blow(&mut storm, &daemon);
        std::thread::sleep(Duration::from_millis(storm.rng.range(10, 150)));
        storm.go_on(false);
        storm.check();
        for (most, streams) in most.iter_mut().zip(streams(&storm)) {
            *most = streams.max(*most);
        }
    }
    eprintln!("{} foreign connections in {:?}", storm.foreign_done(), start.elapsed());
    eprintln!("most streams at a time, by data thread: {most:?}");
    assert!(most.iter().all(|&streams| streams > 1), "each thread has its part");
    storm.go_on(true);
    storm.end();
    eprintln!("{}", storm.sum());

    empty(&storm, daemon.child.id(), &at_first);
    sane(&daemon);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

/// One more blow.
fn blow(storm: &mut Storm, daemon: &Running) {
    match storm.rng.next() % 20 {
        0..=4 => {
            let one = storm.rng.range(0, storm.workers.len() as u64) as usize;
            let kind = storm.kill(one);
            storm.add(kind);
        }
        5..=9 if storm.workers.iter().filter(|worker| worker.until.is_some()).count() < STOPPED => {
            let time = Duration::from_millis(storm.rng.range(50, 3000));
            storm.stop_one(time);
        }
        10..=11 => {
            // The daemon, for less than its heartbeat.
            daemon.signal(Signal::STOP);
            std::thread::sleep(Duration::from_millis(storm.rng.range(10, 300)));
            send(daemon.child.id(), Signal::CONT);
        }
        _ => {}
    }
}

/// How many streams each data thread has.
fn streams(storm: &Storm) -> Vec<u32> {
    let snapshot = gpunet_proxy::daemon::snapshot(&storm.dir.join("d.sock")).expect("it answers");
    snapshot.threads.iter().map(|thread| thread.streams).collect()
}

/// The daemon has no client and no socket, and holds what it held at first. (Threads of its
/// runtimes for what blocks stay for ten seconds after their last work, which a snapshot is.)
fn empty(storm: &Storm, daemon: u32, at_first: &Held) {
    let totals = deserted(&storm.dir);
    let (start, then) = (Instant::now(), at_first.counts());
    loop {
        let held = Held::of(daemon);
        let now = held.counts();
        if now.0 <= then.0 && now.1 <= then.1 && now.2 <= then.2 {
            return eprintln!("descriptors, memory, threads: {then:?} at first, {now:?} now: {totals:?}");
        }
        assert!(start.elapsed() < LONG, "left {held:#?}\nat first {at_first:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a daemon has no client, no socket and no stream.
pub fn deserted(dir: &TempDir) -> Totals {
    let start = Instant::now();
    loop {
        let snapshot = gpunet_proxy::daemon::snapshot(&dir.join("d.sock")).expect("it answers");
        let totals = snapshot.totals;
        let left = (snapshot.clients.len(), snapshot.sockets.len(), totals.opened - totals.closed);
        if left == (0, 0, 0) {
            return totals;
        }
        assert!(start.elapsed() < LONG, "clients, sockets and streams left: {left:?}: {snapshot:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
