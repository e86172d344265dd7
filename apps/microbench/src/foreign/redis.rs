//! redis-server and redis-benchmark, where they are installed.

use super::{is_installed, run};
use crate::process::{Owned, start_bound};
use rustix::process::Signal;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start, and a run of redis-benchmark until its end.
const START: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);

/// A redis-server that keeps nothing on disk. It ends when it is dropped.
pub struct Redis {
    pub addr: SocketAddr,
    _process: Owned,
}

impl Redis {
    /// Starts one at a free port of this machine, or says why not.
    pub fn start() -> Result<Self, String> {
        check("redis-server")?;
        let text = |error: std::io::Error| error.to_string();
        // Redis chooses no port itself, so another program may take this one first.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
        let addr = free.map_err(text)?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &addr.port().to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
        command.current_dir(std::env::temp_dir());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Owned(start_bound(&mut command, Signal::KILL).map_err(text)?);
        let started = Instant::now();
        while TcpStream::connect(addr).is_err() {
            if let Some(status) = process.0.try_wait().map_err(text)? {
                return Err(format!("redis-server ended at once: {status}"));
            }
            if started.elapsed() > START {
                return Err(format!("redis-server does not listen after {} s", START.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self { addr, _process: process })
    }
}

/// Returns why redis-benchmark cannot be run.
pub fn has_benchmark(without_foreign: bool) -> Result<(), String> {
    if without_foreign { Err("--without-foreign".to_owned()) } else { check("redis-benchmark") }
}

fn check(program: &str) -> Result<(), String> {
    if is_installed(program) { Ok(()) } else { Err(format!("{program} is not installed")) }
}

/// Returns the requests a second of SET and of GET, of random keys.
pub fn benchmark(
    addr: SocketAddr,
    clients: u32,
    pipeline: u32,
    requests: u64,
) -> Result<[(&'static str, f64); 2], String> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string()]);
    command.args(["-c", &clients.to_string(), "-P", &pipeline.to_string(), "-n", &requests.to_string()]);
    command.args(["-t", "set,get", "-r", "100000", "--csv"]);
    let said = run(&mut command, LIMIT).map_err(|error| error.to_string())?;
    Ok([("SET", rate(&said, "SET")?), ("GET", rate(&said, "GET")?)])
}

/// Returns the rate of a command from its line, `"GET","83000.00",...`.
fn rate(said: &str, command: &str) -> Result<f64, String> {
    let mut lines = said.lines().map(|line| line.split(',').map(|cell| cell.trim().trim_matches('"')));
    let cell = lines.find_map(|mut cells| if cells.next() == Some(command) { cells.next() } else { None });
    let rate = cell.and_then(|cell| cell.parse::<f64>().ok());
    rate.filter(|rate| rate.is_finite() && *rate > 0.0).ok_or_else(|| {
        format!("it printed no rate of {command}: {:?}", said.lines().last().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_its_command() {
        let said = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"83333.34\",\"0.4\"\n\"GET\",\"1000.00\",\"0.3\"\n";
        assert_eq!((rate(said, "SET"), rate(said, "GET")), (Ok(83333.34), Ok(1000.0)));
        for said in ["", "\"SET\"\n", "\"SET\",\"none\"\n", "\"SET\",\"0.00\"\n", "Error: refused\n"] {
            assert!(rate(said, "SET").unwrap_err().starts_with("it printed no rate of SET"), "{said}");
        }
    }
}
