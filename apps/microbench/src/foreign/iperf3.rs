//! iperf3, where it is installed: what it moves over TCP between two processes.

use super::{RunError, is_installed, run};
use crate::process::{Owned, start_bound};
use crate::report::{Recorder, Role, Row, counted};
use rustix::process::Signal;
use serde::Deserialize;
use std::net::{IpAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to listen, and a client beyond the time that it measures.
const START: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(20);

/// Records the rate of as many streams as there are pairs.
pub fn bandwidth(recorder: &mut Recorder, address: IpAddr, counts: &[u32], seconds: u64) {
    if recorder.without_foreign {
        return;
    }
    if !is_installed("iperf3") {
        return recorder.note("without iperf3: it is not installed");
    }
    for &streams in counts {
        match rate(address, streams, seconds) {
            Ok(bits) => {
                let name = format!("{}, iperf3", counted(streams, "stream"));
                let second = Duration::from_secs(1);
                let row = Row::rate(Role::Reference, name, (bits / 8.0) as u64, second);
                recorder.row(row.at("iperf3", u64::from(streams)));
            }
            Err(why) => recorder.note(format!("without iperf3, {}: {why}", counted(streams, "stream"))),
        }
    }
}

/// Returns the bits a second that arrive.
fn rate(address: IpAddr, streams: u32, seconds: u64) -> Result<f64, String> {
    let text = |error: std::io::Error| error.to_string();
    // iperf3 chooses no port itself, so another program may take this one first.
    let free = TcpListener::bind((address, 0)).and_then(|socket| socket.local_addr()).map_err(text)?;
    let [host, port] = [address.to_string(), free.port().to_string()];
    let mut server = Command::new("iperf3");
    server.args(["--server", "--bind", &host, "--port", &port]);
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Owned(start_bound(&mut server, Signal::KILL).map_err(text)?);
    let mut client = Command::new("iperf3");
    client.args(["--client", &host, "--port", &port, "--json", "--time", &seconds.to_string()]);
    client.args(["--parallel", &streams.to_string()]);
    let begin = Instant::now();
    loop {
        let said = run(&mut client, LIMIT + Duration::from_secs(seconds));
        match said.and_then(|said| Ok(received(&said)?)) {
            Ok(bits) => return Ok(bits),
            // The server may not listen yet, or be busy with the client before.
            Err(RunError::Failed(_)) if begin.elapsed() < START => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Returns the bits a second of all streams, as the receiver counts them.
fn received(said: &str) -> Result<f64, String> {
    #[derive(Deserialize)]
    struct Said {
        error: Option<String>,
        #[serde(default)]
        end: End,
    }
    #[derive(Default, Deserialize)]
    struct End {
        sum_received: Option<Sum>,
    }
    #[derive(Deserialize)]
    struct Sum {
        bits_per_second: f64,
    }
    let said: Said = serde_json::from_str(said).map_err(|error| format!("its output: {error}"))?;
    if let Some(error) = said.error {
        return Err(error);
    }
    said.end.sum_received.map(|sum| sum.bits_per_second).ok_or_else(|| "it printed no sum".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_sum_counts() {
        let said = r#"{"start": {}, "end": {"sum_sent": {"bits_per_second": 9}, "sum_received": {"bits_per_second": 8.5e10}}}"#;
        assert_eq!(received(said), Ok(8.5e10));
        let error = r#"{"start": {}, "end": {}, "error": "unable to connect"}"#;
        assert_eq!(received(error), Err("unable to connect".to_owned()));
        assert_eq!(received(r#"{"end": {}}"#), Err("it printed no sum".to_owned()));
        assert!(received("iperf3: error").unwrap_err().contains("its output"));
    }
}
