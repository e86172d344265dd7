//! gpunet-kv beside redis-server.

use super::load::{self, Question};
use super::{Server, name, shapes, table};
use crate::foreign::redis::{self, Redis};
use crate::measure::Run;
use crate::outcome::Outcome;
use crate::report::{Role, Row};
use std::net::SocketAddr;

const SET: Question =
    Question { request: b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$3\r\nxyz\r\n", begins: b"+OK", ends: b"\r\n" };
const GET: Question =
    Question { request: b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", begins: b"$3\r\n", ends: b"xyz\r\n" };
/// Clients of redis-benchmark, which is its default.
const CLIENTS: u32 = 50;
/// How many requests a client sends before it reads the answers.
const PIPELINES: [u32; 2] = [1, 16];

/// Measures one client's round trips, and what redis-benchmark says.
pub fn measure(run: &mut Run<'_>) -> Outcome<()> {
    let redis =
        if run.recorder.without_foreign { Err("--without-foreign".to_owned()) } else { Redis::start() };
    let shapes = shapes(run);
    table(run, "key-value servers: round trip of one client", 2 * (shapes.len() + 1))?;
    match &redis {
        Ok(redis) => round_trips(run, Role::Reference, "redis-server", redis.addr)?,
        Err(why) => run.recorder.note(format!("without redis-server: {why}")),
    }
    for &blocks in &shapes {
        let server = Server::program(run, "gpunet-kv", &["127.0.0.1:0"], blocks)?;
        round_trips(run, Role::Gpunet, &name("gpunet-kv", blocks), server.addr)?;
    }
    table(run, &format!("key-value servers: redis-benchmark, {CLIENTS} clients"), 4 * (shapes.len() + 1))?;
    if let Err(why) = redis::has_benchmark(run.recorder.without_foreign) {
        run.recorder.note(format!("without redis-benchmark: {why}"));
        return Ok(());
    }
    match &redis {
        Ok(redis) => rates(run, Role::Reference, "redis-server", redis.addr)?,
        Err(why) => run.recorder.note(format!("without redis-server: {why}")),
    }
    drop(redis);
    for &blocks in &shapes {
        let server = Server::program(run, "gpunet-kv", &["127.0.0.1:0"], blocks)?;
        rates(run, Role::Gpunet, &name("gpunet-kv", blocks), server.addr)?;
    }
    Ok(())
}

fn round_trips(run: &mut Run<'_>, role: Role, server: &str, addr: SocketAddr) -> Outcome<()> {
    let rounds = run.effort.of(5000, 20_000, 100_000);
    load::once(addr, SET)?;
    for (place, what, question) in [(0, "GET", GET), (1, "SET", SET)] {
        let samples = load::round_trips(addr, question, rounds)?;
        run.recorder.row(Row::times(role, format!("{what}, {server}"), &samples).at(server, place));
    }
    Ok(())
}

fn rates(run: &mut Run<'_>, role: Role, server: &str, addr: SocketAddr) -> Outcome<()> {
    let requests = run.effort.of(50_000, 200_000, 1_000_000);
    for pipeline in PIPELINES {
        let rates = match redis::benchmark(addr, CLIENTS, pipeline, requests * u64::from(pipeline.min(4))) {
            Ok(rates) => rates,
            Err(why) => {
                run.recorder.note(format!("{server}, -P {pipeline}: redis-benchmark failed: {why}"));
                continue;
            }
        };
        for (what, rate) in rates {
            // Rows of the same request and pipeline are compared.
            let place = 2 * u64::from(pipeline) + u64::from(what == "SET");
            let how = if pipeline == 1 { String::new() } else { format!(", -P {pipeline}") };
            let row = Row::number(role, format!("{what}{how}, {server}"), rate, "requests a second");
            run.recorder.row(row.at(server, place));
        }
    }
    Ok(())
}
