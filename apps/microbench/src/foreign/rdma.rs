//! rstream of librdmacm and perftest, where they are installed: the references of rc.

use super::{RunError, has_crashed, is_installed, persist, run};
use crate::process::{Owned, start_bound};
use crate::report::{Percentiles, Recorder, Role, Row};
use rustix::process::Signal;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// How long to wait for a server that does not report when it listens.
const UNTIL_IT_LISTENS: Duration = Duration::from_millis(500);

/// Records round trips of rstream and of ib_write_lat.
pub fn latency(recorder: &mut Recorder, address: IpAddr, sizes: &[u64]) {
    each(recorder, "rstream", |recorder| {
        for &size in sizes {
            let iterations = if size > 100_000 { 100 } else { 500 };
            let row = persist(recorder, "rstream", || rstream(address, size, 1, iterations))?;
            // One transfer there and one back, `iterations` times: rstream prints the time of one
            // transfer.
            recorder.row(
                Row::percentiles(Role::Reference, format!("{size} B, rstream (mean)"), mean(row.us))
                    .at("rstream", size),
            );
        }
        Ok(())
    });
    write_latency(recorder, "ib_write_lat", address, sizes);
}

/// Records the times of a program of perftest, which may have another path.
fn write_latency(recorder: &mut Recorder, program: &str, address: IpAddr, sizes: &[u64]) {
    each(recorder, program, |recorder| {
        for &size in sizes {
            let fields = persist(recorder, program, || perftest(program, address, size, 500))?;
            // bytes, iterations, t_min, t_max, t_typical, t_avg, t_stdev, 99 %, 99.9 %
            let at = |index: usize| fields.get(index).copied().ok_or("a short line");
            let times = Percentiles {
                samples: at(1)? as u64,
                p50_us: at(4)?,
                p90_us: at(5)?,
                p99_us: at(7)?,
                max_us: at(3)?,
            };
            recorder.row(
                Row::percentiles(Role::Reference, format!("{size} B, ib_write_lat (typical)"), times)
                    .at("ib_write_lat", size),
            );
        }
        Ok(())
    });
}

/// Records one stream of rstream and of ib_write_bw.
pub fn bandwidth(recorder: &mut Recorder, address: IpAddr) {
    let size = 1 << 20;
    each(recorder, "rstream", |recorder| {
        let told = persist(recorder, "rstream", || rstream(address, size, 64, 1))?;
        let row = Row::rate(
            Role::Reference,
            "1 MiB a call, rstream",
            (told.gbits * 1e9 / 8.0) as u64,
            Duration::from_secs(1),
        );
        recorder.row(row.at("rstream", 1));
        Ok(())
    });
    each(recorder, "ib_write_bw", |recorder| {
        // bytes, iterations, peak and average MiB/s, Mpps
        let program = "ib_write_bw";
        let fields = persist(recorder, program, || perftest(program, address, size, 100))?;
        let mib = fields.get(3).copied().ok_or("a short line")?;
        let row = Row::rate(
            Role::Reference,
            "1 MiB, ib_write_bw",
            (mib * 1048576.0) as u64,
            Duration::from_secs(1),
        );
        recorder.row(row.at("ib_write_bw", 1));
        Ok(())
    });
}

fn each(recorder: &mut Recorder, program: &str, body: impl FnOnce(&mut Recorder) -> Result<(), String>) {
    if recorder.without_foreign {
        return;
    }
    if !is_installed(program) {
        return recorder.note(format!("without {program}: it is not installed"));
    }
    if let Err(why) = body(recorder) {
        recorder.note(format!("without {program}: {why}"));
    }
}

/// Makes percentiles of a mean, because the program gives only that.
fn mean(us: f64) -> Percentiles {
    Percentiles { samples: 1, p50_us: us, p90_us: us, p99_us: us, max_us: us }
}

/// Returns the result of a client of `server`. If both have failed, a crash of the server counts.
fn judge<T>(server: &mut Owned, result: Result<T, RunError>) -> Result<T, RunError> {
    let crashed = server.0.try_wait().ok().flatten().filter(|status| has_crashed(*status));
    match (result, crashed) {
        (Err(RunError::Failed(_)), Some(status)) => {
            Err(RunError::Crashed(format!("{status}, the server of the two")))
        }
        (result, _) => result,
    }
}

fn serve(command: &mut Command) -> Result<Owned, RunError> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Owned(start_bound(command, Signal::KILL).map_err(|error| error.to_string())?);
    std::thread::sleep(UNTIL_IT_LISTENS);
    Ok(server)
}

/// The figures that rstream prints for a test.
struct RstreamResult {
    gbits: f64,
    us: f64,
}

fn rstream(address: IpAddr, size: u64, transfers: u32, iterations: u32) -> Result<RstreamResult, RunError> {
    let shape = [("-S", size.to_string()), ("-C", transfers.to_string()), ("-I", iterations.to_string())];
    let options: Vec<String> = shape.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    let address = address.to_string();
    let mut server = serve(Command::new("rstream").args(["-b", &address]).args(&options))?;
    let said = judge(&mut server, run(Command::new("rstream").args(["-s", &address]).args(&options), LIMIT))?;
    // name bytes xfers iters total time Gb/sec usec/xfer
    let line = said.lines().find(|line| line.starts_with("custom")).ok_or("no line of results")?;
    let mut last = line.split_whitespace().rev();
    let mut number = || last.next().and_then(|word| word.parse::<f64>().ok()).ok_or_else(|| line.to_owned());
    let us = number()?;
    Ok(RstreamResult { gbits: number()?, us })
}

/// Runs a program of perftest. Returns the numbers of its line of results.
fn perftest(program: &str, address: IpAddr, size: u64, rounds: u32) -> Result<Vec<f64>, RunError> {
    let options = ["-F", "-R", "-s", &size.to_string(), "-n", &rounds.to_string()].map(str::to_owned);
    let mut server = serve(Command::new(program).args(&options))?;
    let said = judge(&mut server, run(Command::new(program).args(&options).arg(address.to_string()), LIMIT))?;
    let line = said.lines().skip_while(|line| !line.contains("#bytes")).nth(1).ok_or("no line of results")?;
    Ok(line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Axis;
    use crate::scratch::Scratch;

    /// Returns the number of rows and the notes that a perftest program leaves if it crashes in its
    /// first `crashes` runs in this role.
    fn told(role: &str, crashes: u32) -> (usize, Vec<String>) {
        let folder = format!("gpunet-bench-crash-{role}-{crashes}-{}", std::process::id());
        let folder = Scratch::folder(std::env::temp_dir().join(folder)).expect("a folder");
        let (program, runs) = (folder.path().join("ib_write_lat"), folder.path().join("runs"));
        // With an address it is the client. The script counts a run, and then crashes or does its
        // work.
        let script = format!(
            "#!/bin/bash\n\
             case $* in *127.0.0.1*) role=client;; *) role=server;; esac\n\
             if [ $role = {role} ]; then\n\
             echo >>{runs}; [ $(wc -l <{runs}) -gt {crashes} ] || kill -SEGV $$\n\
             fi\n\
             [ $role = client ] || exec sleep 100\n\
             [ $(wc -l <{runs}) -gt {crashes} ] || exit 1\n\
             echo '#bytes #iterations t_min[usec]'; echo ' 64 500 1.0 9.0 2.0 2.5 0.1 4.0 5.0'\n",
            runs = runs.display()
        );
        // Another process writes it. If this one did, a process that another test forks at the same
        // time would have the file open, and no process could run it.
        let write = "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"";
        let written = Command::new("sh").args(["-c", write, "-", &script]).arg(&program).status();
        assert!(written.expect("a shell").success());
        let mut recorder = Recorder::new(String::new(), None, false);
        recorder.table("latency", "a table", Axis::None, Vec::new(), 1).expect("heard");
        let address = IpAddr::from([127, 0, 0, 1]);
        write_latency(&mut recorder, program.to_str().expect("a path of text"), address, &[64]);
        let table = recorder.report().tables.last().expect("a table");
        (table.rows.len(), table.notes.clone())
    }

    #[test]
    fn a_program_that_crashes_is_tried_again() {
        for role in ["client", "server"] {
            let (rows, notes) = told(role, 2);
            assert_eq!((rows, notes.len()), (1, 2), "{role}: {notes:?}");
            assert!(notes.iter().all(|note| note.contains("crashed and is tried again")), "{notes:?}");
        }
    }

    #[test]
    fn a_program_that_always_crashes_is_left_out() {
        let (rows, notes) = told("client", u32::MAX);
        let last = notes.last().expect("it says so");
        assert!(last.starts_with("without ") && last.contains("it crashed 3 times: signal: 11"), "{last}");
        assert_eq!(rows, 0);
    }
}
