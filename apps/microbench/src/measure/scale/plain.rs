//! Many plain sockets, few of them busy.

use super::{MANY, SAMPLES, SIZE, Scene, memory};
use crate::measure::Run;
use crate::outcome::Outcome;
use crate::pair::waits;
use crate::process;
use crate::report::{Role, Row};
use crate::sockets::{Kind, Socket, join, spawn};
use std::io::Result;
use std::time::{Duration, Instant};

/// Returns the name of the line in the chart.
pub fn series(kind: Kind, spin: bool) -> String {
    format!("{}, {}", kind.name(), waits(spin))
}

/// Measures the scene's busy pairs among `sockets` sockets.
pub fn record(run: &mut Run<'_>, kind: Kind, scene: &Scene, sockets: u64) -> Outcome<()> {
    let before = process::resident_afresh()?;
    let silent = scene.silent(sockets) / 2;
    let crowd = Socket::pairs(kind, silent as usize)?;
    let grown = process::resident()?.saturating_sub(before);
    // Each spinning thread needs a processor.
    let ways: &[bool] = if scene.busy == 1 { &[true, false] } else { &[false] };
    for &spin in ways {
        let pairs = Socket::pairs(kind, scene.busy as usize)?;
        let samples = busy(pairs, spin, scene.duration)?;
        let name = format!("{sockets} sockets, round trip, {}", series(kind, spin));
        run.recorder.row(Row::all_times(Role::Reference, name, &samples).at(series(kind, spin), sockets));
    }
    if scene.busy == 1 && sockets >= MANY {
        let what = format!("this process's memory, {}", kind.name());
        memory(run, Role::Reference, &what, sockets, grown as f64 / silent as f64);
    }
    drop(crowd);
    Ok(())
}

/// Runs round trips of all pairs for `duration`, with two threads per pair.
fn busy(pairs: Vec<[Socket; 2]>, spin: bool, duration: Duration) -> Result<Vec<u64>> {
    std::thread::scope(|scope| {
        let mut ends = Vec::new();
        for [mut client, mut server] in pairs {
            client.spin(spin)?;
            server.spin(spin)?;
            let server = spawn(scope, move || server.echo(SIZE as usize))?;
            let client = spawn(scope, move || {
                let (mut message, mut samples) = ([1; SIZE as usize], Vec::new());
                let start = Instant::now();
                while start.elapsed() < duration {
                    let ns = client.round_trip(&mut message)?;
                    if samples.len() < SAMPLES as usize {
                        samples.push(ns);
                    }
                }
                Ok(samples)
            })?;
            ends.push((server, client));
        }
        let mut all = Vec::new();
        for (server, client) in ends {
            let samples = join(client)?;
            // The first tenth of each is warm-up.
            all.extend(&samples[samples.len() / 10..]);
            join(server)?;
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_threads_are_busy() {
        for spin in [false, true] {
            let pairs = Socket::pairs(Kind::Unix, 2).unwrap();
            assert!(!busy(pairs, spin, Duration::from_millis(1)).unwrap().is_empty());
        }
    }
}
