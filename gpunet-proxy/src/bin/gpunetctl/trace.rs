//! What the kernels of a client record, as a file for trace viewers.

use crate::Error;
use crate::args::TraceArgs;
use crate::logs::{ASKS, LAST_ROUNDS, LOOKS, ask, tell_missing};
use gpu_usermap::threads;
use gpunet_proxy::daemon::ClientLog;
use gpunet_proxy::descriptors;
use gpunet_records::{ChromeTrace, TraceCounts};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Writes the trace of what is there and, to follow, of what comes.
pub fn run(path: &Path, args: &TraceArgs) -> Result<(), Error> {
    let mut log = ask(path, args.client)?;
    // Before the file is there: from now on it is ended in order.
    let stop = stop_on_signals().map_err(Error::Signals)?;
    let failed = |source| Error::File { path: args.out.clone(), source };
    let file = File::create(&args.out).map_err(failed)?;
    let name = format!("{} ({}), client {}", log.command, log.device, args.client);
    let mut trace = ChromeTrace::begin(BufWriter::new(file), log.pid, &name).with_others(args.records);
    let followed = follow(path, args, &mut log, &mut trace, &stop);
    for _ in 0..LAST_ROUNDS {
        // Ordering: Relaxed; a polled flag, which orders nothing.
        if take(&mut log, args, &mut trace) == 0 || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let counts = trace.finish().map_err(failed)?;
    tell(&counts);
    tell_missing(log.found());
    match followed {
        // What is there of it is in the file.
        Ok(()) => Ok(()),
        Err(Stopped::Daemon(error)) => Err(error),
        Err(Stopped::File(error)) => Err(failed(error)),
    }
}

/// Why a trace is not followed to its end.
enum Stopped {
    Daemon(Error),
    File(io::Error),
}

fn follow(
    path: &Path,
    args: &TraceArgs,
    log: &mut ClientLog,
    trace: &mut ChromeTrace<impl Write>,
    stop: &AtomicBool,
) -> Result<(), Stopped> {
    let began = Instant::now();
    let is_over = |log: &ClientLog| {
        let late = args.seconds.is_some_and(|seconds| began.elapsed() >= Duration::from_secs_f64(seconds));
        // Ordering: Relaxed; a polled flag, which orders nothing.
        !args.follow || late || log.has_ended || stop.load(Ordering::Relaxed)
    };
    let mut asked = Instant::now();
    while !is_over(log) {
        if take(log, args, trace) == 0 {
            // Whoever reads the file meanwhile sees what has come.
            trace.flush().map_err(Stopped::File)?;
            std::thread::sleep(LOOKS);
        }
        trace.check().map_err(Stopped::File)?;
        if asked.elapsed() >= ASKS {
            log.join(ask(path, args.client).map_err(Stopped::Daemon)?);
            asked = Instant::now();
        }
    }
    Ok(())
}

/// Adds what has come. Returns how many records there were.
fn take(log: &mut ClientLog, args: &TraceArgs, trace: &mut ChromeTrace<impl Write>) -> u64 {
    let count = log.poll_rings(|record, text| {
        if args.block.is_none_or(|block| block == record.head.block) {
            trace.put(record, text);
        }
    });
    trace.missing(log.found());
    count
}

/// Says what is in the trace, and what is not.
fn tell(counts: &TraceCounts) {
    let TraceCounts { events, unpaired, unfinished, unnamed, untracked, moved } = *counts;
    let mut text = format!("gpunetctl: {events} events");
    for (count, what) in [
        (unpaired, "ends or spans without their other half"),
        (unfinished, "spans that have not ended"),
        (unnamed, "records whose format is unknown or does not suit them"),
        (untracked, "records of groups beyond the first 65536"),
        (moved, "records with a time before an earlier one's"),
    ] {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    // Not eprintln!, which panics when standard error is closed.
    let _ = writeln!(io::stderr(), "{text}");
}

/// From now on Ctrl-C, SIGTERM and SIGHUP set the flag that is returned; a second one ends the
/// program.
fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let (stop, runtime) = (Arc::new(AtomicBool::new(false)), descriptors::runtime()?);
    let [mut interrupt, mut terminate, mut hangup]: [Signal; 3] = {
        let _entered = runtime.enter();
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]
    };
    let flag = stop.clone();
    let wait = move || {
        runtime.block_on(async {
            loop {
                let code = tokio::select! {
                    _ = interrupt.recv() => 130,
                    _ = terminate.recv() => 143,
                    _ = hangup.recv() => 129,
                };
                // Ordering: Relaxed, as where it is read.
                if flag.swap(true, Ordering::Relaxed) {
                    std::process::exit(code);
                }
            }
        });
    };
    threads::spawn("gpunetctl-stop", wait)?;
    Ok(stop)
}
