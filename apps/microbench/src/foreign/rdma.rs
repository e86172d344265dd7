//! rstream of librdmacm and perftest, where they are installed: the peers of rc.

use super::{is_installed, run};
use crate::process::start_bound;
use crate::report::{Percentiles, Recorder, Role, Row};
use rustix::process::Signal;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// How long a server that says nothing takes until it listens.
const UNTIL_IT_LISTENS: Duration = Duration::from_millis(500);

/// Round trips of rstream, and of ib_write_lat.
pub fn latency(recorder: &mut Recorder, address: IpAddr, sizes: &[u64]) {
    each(recorder, "rstream", |recorder| {
        for &size in sizes {
            let iterations = if size > 100_000 { 100 } else { 500 };
            let row = rstream(address, size, 1, iterations)?;
            // One transfer there and one back, iterations times: rstream says what one of them took.
            recorder.row(
                Row::percentiles(Role::Peer, format!("{size} B, rstream (mean)"), mean(row.us))
                    .at("rstream", size),
            );
        }
        Ok(())
    });
    each(recorder, "ib_write_lat", |recorder| {
        for &size in sizes {
            let fields = perftest("ib_write_lat", address, size, 500)?;
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
                Row::percentiles(Role::Peer, format!("{size} B, ib_write_lat (typical)"), times)
                    .at("ib_write_lat", size),
            );
        }
        Ok(())
    });
}

/// One stream of rstream, and of ib_write_bw.
pub fn bandwidth(recorder: &mut Recorder, address: IpAddr) {
    let size = 1 << 20;
    each(recorder, "rstream", |recorder| {
        let told = rstream(address, size, 64, 1)?;
        let row = Row::rate(
            Role::Peer,
            "1 MiB a call, rstream",
            (told.gbits * 1e9 / 8.0) as u64,
            Duration::from_secs(1),
        );
        recorder.row(row.at("rstream", 1));
        Ok(())
    });
    each(recorder, "ib_write_bw", |recorder| {
        // bytes, iterations, peak and average MiB/s, Mpps
        let fields = perftest("ib_write_bw", address, size, 100)?;
        let mib = fields.get(3).copied().ok_or("a short line")?;
        let row =
            Row::rate(Role::Peer, "1 MiB, ib_write_bw", (mib * 1048576.0) as u64, Duration::from_secs(1));
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

/// A mean is all that the program gives.
fn mean(us: f64) -> Percentiles {
    Percentiles { samples: 1, p50_us: us, p90_us: us, p99_us: us, max_us: us }
}

/// A server, as long as it is wanted.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(command: &mut Command) -> Result<Server, String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Server(start_bound(command, Signal::KILL).map_err(|error| error.to_string())?);
    std::thread::sleep(UNTIL_IT_LISTENS);
    Ok(server)
}

/// What rstream says of a test.
struct Told {
    gbits: f64,
    us: f64,
}

fn rstream(address: IpAddr, size: u64, transfers: u32, iterations: u32) -> Result<Told, String> {
    let shape = [("-S", size.to_string()), ("-C", transfers.to_string()), ("-I", iterations.to_string())];
    let options: Vec<String> = shape.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    let address = address.to_string();
    let _server = serve(Command::new("rstream").args(["-b", &address]).args(&options))?;
    let said = run(Command::new("rstream").args(["-s", &address]).args(&options), LIMIT)?;
    // name bytes xfers iters total time Gb/sec usec/xfer
    let line = said.lines().find(|line| line.starts_with("custom")).ok_or("no line of results")?;
    let mut last = line.split_whitespace().rev();
    let mut number = || last.next().and_then(|word| word.parse::<f64>().ok()).ok_or_else(|| line.to_owned());
    let us = number()?;
    Ok(Told { gbits: number()?, us })
}

/// The numbers of perftest's line of results.
fn perftest(program: &str, address: IpAddr, size: u64, rounds: u32) -> Result<Vec<f64>, String> {
    let options = ["-F", "-R", "-s", &size.to_string(), "-n", &rounds.to_string()].map(str::to_owned);
    let _server = serve(Command::new(program).args(&options))?;
    let said = run(Command::new(program).args(&options).arg(address.to_string()), LIMIT)?;
    let line = said.lines().skip_while(|line| !line.contains("#bytes")).nth(1).ok_or("no line of results")?;
    Ok(line.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}
