//! Plain TCP clients of `gpunet-echo server`, compared with the same clients of a plain server.

mod echo;
mod load;
mod plain;

use super::Run;
use crate::outcome::Outcome;
use crate::process::Profile;
use crate::report::{Axis, Role, Row, counted};
use crate::sockets::are_cores_few;
use clap::{Args, ValueEnum};
use echo::Echo;
use load::SIZE;
use plain::{Plain, Threads};
use std::net::SocketAddr;
use std::time::Duration;

/// Connections whose round trips are measured, one after the other.
const CONNECTIONS: usize = 8;
/// Connections of a server with many.
const COUNTS: [usize; 4] = [1, 8, 32, 64];
/// Client threads that connect.
const CONNECTORS: [usize; 3] = [1, 4, 16];
/// Milliseconds of silence.
const PAUSES: [u64; 4] = [1, 5, 20, 200];
/// Numbers of blocks of the echo server, in addition to its default.
const BLOCKS: [u32; 4] = [1, 2, 4, 16];

/// What to measure.
#[derive(Clone, Debug, Default, Args)]
pub struct ClientsArgs {
    /// Measure these parts only.
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,
    /// Note after the rows of a gpunet server how busy its threads were, percent of a core.
    #[arg(long)]
    threads: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Round trips of 64 B: of the first and of later connections, and of many in turn.
    Latency,
    /// Bytes that come back.
    Bandwidth,
    /// Connect, a byte there and back, close.
    Connects,
    /// First messages after a silence.
    Silence,
}

/// Measures an echo server as plain TCP clients see it.
pub fn clients(run: &mut Run<'_>, args: &ClientsArgs) -> Outcome<()> {
    for &part in Part::value_variants() {
        if args.parts.is_empty() || args.parts.contains(&part) {
            match part {
                Part::Latency => {
                    latency(run, args)?;
                    in_turn(run, args)?;
                }
                Part::Bandwidth => bandwidth(run, args)?,
                Part::Connects => connects(run, args)?,
                Part::Silence => silence(run)?,
            }
        }
    }
    Ok(())
}

/// The numbers of blocks that the echo server is measured with; `None` is its default.
fn shapes() -> impl Iterator<Item = Option<u32>> {
    BLOCKS.into_iter().map(Some).chain([None])
}

fn name(blocks: Option<u32>) -> String {
    match blocks {
        Some(blocks) => format!("gpunet-echo, {}", counted(blocks, "block")),
        None => "gpunet-echo, its defaults".to_owned(),
    }
}

/// Measures plain servers with these threads, and then echo servers with these blocks, one at a
/// time.
fn each_server(
    run: &mut Run<'_>,
    plain: &[Threads],
    blocks: impl IntoIterator<Item = Option<u32>>,
    args: &ClientsArgs,
    one: impl Fn(&mut Run<'_>, Role, &str, &Server) -> Outcome<()>,
) -> Outcome<()> {
    for &threads in plain {
        let server = Plain::start(threads)?;
        one(run, Role::Reference, &threads.name(), &Server { addr: server.addr, process: None })?;
    }
    for blocks in blocks {
        let server = Echo::start(run, blocks)?;
        let process = args.threads.then(|| server.process());
        one(run, Role::Gpunet, &name(blocks), &Server { addr: server.addr, process })?;
    }
    Ok(())
}

/// A server that is measured.
struct Server {
    addr: SocketAddr,
    /// Its process, if it is to be noted how busy the threads were.
    process: Option<u32>,
}

impl Server {
    /// Runs a load, and notes how busy the server's threads were.
    fn under<T>(
        &self,
        run: &mut Run<'_>,
        what: &str,
        load: impl FnOnce(SocketAddr) -> Outcome<T>,
    ) -> Outcome<T> {
        let profile = self.process.map(Profile::begin).transpose()?;
        let result = load(self.addr)?;
        if let Some(profile) = profile {
            run.recorder.note(format!("{what}: {}", profile.end()?));
        }
        Ok(result)
    }
}

fn table(run: &mut Run<'_>, what: &str, axis: Axis, rows: usize) -> Outcome<()> {
    let title = format!("{}, plain TCP clients: {what}", run.device);
    let setting = vec![
        ("device", run.device.to_owned()),
        (
            "server",
            "a process of its own, gpunet-echo server; the plain one has its threads in this process"
                .to_owned(),
        ),
        ("clients", "threads of this process that spin, kernel TCP on loopback".to_owned()),
    ];
    run.recorder.table("clients", title, axis, setting, rows)
}

fn latency(run: &mut Run<'_>, args: &ClientsArgs) -> Outcome<()> {
    let rounds = run.effort.of(2000, 10_000, 50_000);
    table(run, &format!("{SIZE} B round trip, one connection busy"), Axis::None, 14)?;
    let one = |run: &mut Run<'_>, role, name: &str, server: &Server| -> Outcome<()> {
        let load = |addr| load::latency(addr, CONNECTIONS, rounds);
        let samples = server.under(run, name, load)?;
        let median = |samples: &[u64]| {
            let mut samples = samples.to_vec();
            samples.sort_unstable();
            samples[samples.len() / 2]
        };
        run.recorder.row(Row::times(role, format!("{name}, first connection"), &samples[0]).at(name, 0));
        let Some(slowest) = samples.iter().skip(1).max_by_key(|samples| median(samples)) else {
            return Ok(());
        };
        let row = Row::times(role, format!("{name}, the slowest of the next {}", CONNECTIONS - 1), slowest);
        run.recorder.row(row.at(name, 1));
        Ok(())
    };
    each_server(run, &[Threads::Each], shapes(), args, one)
}

fn in_turn(run: &mut Run<'_>, args: &ClientsArgs) -> Outcome<()> {
    let rounds = run.effort.of(2000, 10_000, 50_000);
    let what = format!("{SIZE} B round trip, one connection after the other");
    table(run, &what, Axis::TimeByConnections, 4 * COUNTS.len())?;
    let one = |run: &mut Run<'_>, role, name: &str, server: &Server| -> Outcome<()> {
        for connections in COUNTS {
            let what = format!("{}, {name}", counted(connections as u64, "connection"));
            let samples = server.under(run, &what, |addr| load::in_turn(addr, connections, rounds))?;
            run.recorder.row(Row::times(role, what, &samples).at(name, connections as u64));
        }
        Ok(())
    };
    each_server(run, &[Threads::EachBlocks, Threads::Shared(1)], [Some(1), None], args, one)
}

fn bandwidth(run: &mut Run<'_>, args: &ClientsArgs) -> Outcome<()> {
    let time = Duration::from_millis(run.effort.of(300, 1000, 3000));
    table(run, "bytes that come back", Axis::RateByConnections, 6 * COUNTS.len())?;
    let one = |run: &mut Run<'_>, role, name: &str, server: &Server| -> Outcome<()> {
        for connections in COUNTS {
            let what = format!("{}, {name}", counted(connections as u64, "connection"));
            let load = |addr| load::bandwidth(addr, connections, time);
            let (bytes, took) = server.under(run, &what, load)?;
            run.recorder.row(Row::rate(role, what, bytes, took).at(name, connections as u64));
        }
        Ok(())
    };
    // If there are more spinning threads than cores, they take the cores from each other.
    let each = if are_cores_few() { Threads::EachBlocks } else { Threads::Each };
    each_server(run, &[each, Threads::Shared(1), Threads::Shared(4)], [Some(1), Some(4), None], args, one)
}

fn connects(run: &mut Run<'_>, args: &ClientsArgs) -> Outcome<()> {
    let rounds = run.effort.of(1000, 5000, 50_000);
    table(run, "connect, a byte there and back, close", Axis::ConnectsByClients, 4 * CONNECTORS.len())?;
    let one = |run: &mut Run<'_>, role, name: &str, server: &Server| -> Outcome<()> {
        for threads in CONNECTORS {
            let what = format!("{name}, {}", counted(threads as u64, "client thread"));
            let rate = server.under(run, &what, |addr| load::connects(addr, threads, rounds))?;
            run.recorder.row(Row::number(role, what, rate, "connections a second").at(name, threads as u64));
        }
        Ok(())
    };
    each_server(run, &[Threads::EachBlocks, Threads::Shared(4)], [Some(1), None], args, one)
}

fn silence(run: &mut Run<'_>) -> Outcome<()> {
    let rounds = run.effort.of(20, 50, 200);
    table(run, &format!("{SIZE} B round trip after a silence, a blocking client"), Axis::TimeByInterval, 8)?;
    let plain = Plain::start(Threads::EachBlocks)?;
    let server = Echo::start(run, None)?;
    let servers =
        [(Role::Reference, Threads::EachBlocks.name(), plain.addr), (Role::Gpunet, name(None), server.addr)];
    for pause in PAUSES {
        for (role, name, addr) in &servers {
            let samples = load::after_silence(*addr, Duration::from_millis(pause), rounds)?;
            let row = Row::all_times(*role, format!("{name}, after {pause} ms"), &samples);
            run.recorder.row(row.at(name.clone(), pause));
        }
    }
    Ok(())
}
