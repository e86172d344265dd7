//! The daemon dies, again and again; programs join the next one.

use crate::daemon::{Running, gpunetd};
use crate::parent::{Kind, Storm, sane, seed};
use rustix::process::Signal;
use std::time::Duration;

const WORKERS: usize = 3;
const RESTARTS: u64 = 20;

fn start(storm: &Storm) -> Running {
    Running::start(gpunetd(&storm.dir).args(["--heartbeat-ms", "1000"]))
}

#[test]
fn programs_outlive_twenty_daemons() {
    let seed = seed();
    eprintln!("GPUNET_STORM_SEED={seed}");
    let mut storm = Storm::new(seed, true);
    let mut daemon = start(&storm);
    (0..WORKERS).for_each(|number| storm.add(Kind::of(number)));
    for round in 1..=RESTARTS {
        storm.until("all are attached and work", |report| report.attached >= round);
        let before: Vec<u64> = storm.workers.iter().map(|w| storm.report(w.pid).bytes).collect();
        let least = before.into_iter().max().unwrap_or(0);
        if round % 4 == 0 {
            storm.until("all get on", |report| report.bytes > least);
        }
        std::thread::sleep(Duration::from_millis(storm.rng.range(20, 200)));
        // Mostly it dies; now and then it ends in good order.
        daemon.signal(if round % 5 == 0 { Signal::TERM } else { Signal::KILL });
        let code = daemon.end();
        assert!(code == 0 || code == -9, "{code}: {}", daemon.log());
        sane(&daemon);
        daemon = start(&storm);
    }
    storm.until("all are attached", |report| report.attached > RESTARTS);
    storm.end();
    eprintln!("{}", storm.sum());
    sane(&daemon);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}
