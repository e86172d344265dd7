//! Plain TCP clients of `gpunet-echo server`, compared with the same clients of a plain server.

mod load;
mod plain;

use super::Run;
use super::server::Server;
use crate::outcome::Outcome;
use crate::process::more_descriptors;
use crate::report::{Axis, Role, Row, counted};
use crate::sockets::are_cores_few;
use clap::{Args, ValueEnum};
use load::SIZE;
use plain::Threads;
pub use plain::{PlainServerArgs, plain_server};
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
const BLOCKS: [u32; 5] = [1, 2, 4, 8, 16];
/// Connections beside which silence is measured once more, and what else has descriptors.
const SILENT: u64 = 1000;
const DESCRIPTORS: u64 = 100;

/// What to measure.
#[derive(Clone, Debug, Default, Args)]
pub struct ClientsArgs {
    /// Measure these parts only.
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,
    /// Note after each row how busy the server's threads were, percent of a core.
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
                Part::Silence => silence(run, args)?,
            }
        }
    }
    Ok(())
}

/// Returns the nanoseconds of round trips of 64 B of one client of an echo server.
pub fn echo_round_trips(addr: SocketAddr, rounds: u64) -> Outcome<Vec<u64>> {
    Ok(load::latency(addr, 1, rounds)?.into_iter().flatten().collect())
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

/// The plain servers of one busy connection at a time. If there are more spinning threads than
/// cores, they take the cores from each other.
fn plain_of_one() -> Vec<Threads> {
    let each = if are_cores_few() { None } else { Some(Threads::Each) };
    [Threads::EachBlocks, Threads::Shared(1)].into_iter().chain(each).collect()
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
        one(
            run,
            Role::Reference,
            &threads.name(),
            &Server::plain(&threads.to_string())?.noted(args.threads),
        )?;
    }
    for blocks in blocks {
        one(run, Role::Gpunet, &name(blocks), &Server::echo(run, blocks)?.noted(args.threads))?;
    }
    Ok(())
}

fn table(run: &mut Run<'_>, what: &str, axis: Axis, rows: usize) -> Outcome<()> {
    let title = format!("{}, plain TCP clients: {what}", run.device);
    let setting = vec![
        ("device", run.device.to_owned()),
        ("server", "a process of its own: gpunet-echo server, or a plain one".to_owned()),
        ("clients", "threads of this process that spin, kernel TCP on loopback".to_owned()),
    ];
    run.recorder.table("clients", title, axis, setting, rows)
}

fn latency(run: &mut Run<'_>, args: &ClientsArgs) -> Outcome<()> {
    let rounds = run.effort.of(2000, 10_000, 50_000);
    table(run, &format!("{SIZE} B round trip, one connection busy"), Axis::None, 2 * (3 + BLOCKS.len() + 1))?;
    let one = |run: &mut Run<'_>, role, name: &str, server: &Server| -> Outcome<()> {
        let samples = server.under(run, name, |addr| load::latency(addr, CONNECTIONS, rounds))?;
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
    each_server(run, &plain_of_one(), shapes(), args, one)
}

fn in_turn(run: &mut Run<'_>, args: &ClientsArgs) -> Outcome<()> {
    let rounds = run.effort.of(2000, 10_000, 50_000);
    let what = format!("{SIZE} B round trip, one connection after the other");
    table(run, &what, Axis::TimeByConnections, 6 * COUNTS.len())?;
    let one = |run: &mut Run<'_>, role, name: &str, server: &Server| -> Outcome<()> {
        for connections in COUNTS {
            let what = format!("{}, {name}", counted(connections as u64, "connection"));
            let samples = server.under(run, &what, |addr| load::in_turn(addr, connections, rounds))?;
            run.recorder.row(Row::times(role, what, &samples).at(name, connections as u64));
        }
        Ok(())
    };
    each_server(run, &plain_of_one(), [Some(1), Some(8), None], args, one)
}

fn bandwidth(run: &mut Run<'_>, args: &ClientsArgs) -> Outcome<()> {
    let time = Duration::from_millis(run.effort.of(300, 1000, 3000));
    table(run, "bytes that come back", Axis::RateByConnections, 7 * COUNTS.len())?;
    let one = |run: &mut Run<'_>, role, name: &str, server: &Server| -> Outcome<()> {
        for connections in COUNTS {
            let what = format!("{}, {name}", counted(connections as u64, "connection"));
            let (bytes, took) = server.under(run, &what, |addr| load::bandwidth(addr, connections, time))?;
            run.recorder.row(Row::rate(role, what, bytes, took).at(name, connections as u64));
        }
        Ok(())
    };
    let plain: Vec<_> = plain_of_one().into_iter().chain([Threads::Shared(4)]).collect();
    each_server(run, &plain, [Some(1), Some(4), None], args, one)
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

fn silence(run: &mut Run<'_>, args: &ClientsArgs) -> Outcome<()> {
    let rounds = run.effort.of(20, 50, 200);
    let few = more_descriptors() < SILENT + DESCRIPTORS;
    for beside in [0, SILENT] {
        if beside > 0 && few {
            run.recorder
                .note(format!("not beside {SILENT} silent connections: there are too few descriptors"));
            continue;
        }
        let what = match beside {
            0 => String::new(),
            silent => format!(", beside {silent} silent connections"),
        };
        let what = format!("{SIZE} B round trip after a silence, a blocking client{what}");
        table(run, &what, Axis::TimeByInterval, 2 * PAUSES.len())?;
        let one = |run: &mut Run<'_>, role, name: &str, server: &Server| -> Outcome<()> {
            let _silent = load::silent(server.addr, beside as usize)?;
            for pause in PAUSES {
                let (what, pause_for) = (format!("{name}, after {pause} ms"), Duration::from_millis(pause));
                let samples =
                    server.under(run, &what, |addr| load::after_silence(addr, pause_for, rounds))?;
                let row = Row::all_times(role, what, &samples);
                run.recorder.row(row.at(name, pause));
            }
            Ok(())
        };
        each_server(run, &[Threads::EachBlocks], [None], args, one)?;
    }
    Ok(())
}
