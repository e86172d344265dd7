//! The demonstration: a server and clients in one process. Every answer is checked.

use crate::args::Args;
use crate::client::{Answer, Client, ClientError};
use crate::error::Error;
use crate::server::Serving;
use gpunet_app::cli::print;
use gpunet_app::interrupt::Interrupt;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long each load runs.
const LOAD_FOR: Duration = Duration::from_secs(2);
/// Keys of a client.
const KEYS: u64 = 1000;

/// One load.
#[derive(Debug, Serialize)]
struct Row {
    load: &'static str,
    clients: u32,
    pipeline: u32,
    requests: u64,
    requests_per_second: u64,
    p50_us: f64,
    p99_us: f64,
}

/// The results of the demonstration.
#[derive(Debug, Serialize)]
struct Report {
    server: crate::server::Totals,
    checks: u32,
    rows: Vec<Row>,
    search: crate::search::Report,
}

/// Runs the demonstration.
pub fn run(args: &Args, interrupt: &Interrupt) -> Result<(), Error> {
    let mut serving = Serving::start(args, &[SocketAddr::from(([127, 0, 0, 1], 0))])?;
    let addr = serving.running.addr();
    let checks = check_commands(addr)?;
    let mut rows = Vec::new();
    for (load, is_set, pipeline) in
        [("SET 64 B", true, 1), ("GET 64 B", false, 1), ("SET 64 B", true, 16), ("GET 64 B", false, 16)]
    {
        rows.push(drive(addr, args.clients, load, is_set, pipeline)?);
        serving.print_log();
        if interrupt.asked() {
            return Err(Error::Interrupted);
        }
    }
    let search = crate::search::run(addr, args.vectors as usize, args.dim as usize)?;
    let report = Report { server: serving.stop()?, checks, rows, search };
    if args.json {
        print(&format_args!("{}\n", serde_json::to_string(&report).unwrap_or_default()));
        return Ok(());
    }
    print(&format_args!("load        clients  pipeline    requests  requests/s   p50 us   p99 us\n"));
    for row in &report.rows {
        print(&format_args!(
            "{:10}  {:7}  {:8}  {:10}  {:10}  {:7.1}  {:7.1}\n",
            row.load,
            row.clients,
            row.pipeline,
            row.requests,
            row.requests_per_second,
            row.p50_us,
            row.p99_us
        ));
    }
    let search = &report.search;
    print(&format_args!(
        "VSIM of {} vectors of {} halves: {:.0} us (p50), {:.0} us (slowest); {} cores of this machine: {:.0} us (p50), {:.2} times as long; {} added a second\n",
        search.vectors,
        search.dim,
        search.vsim_p50_us,
        search.vsim_slowest_us,
        search.cores,
        search.cores_p50_us,
        search.ratio,
        search.added_per_second
    ));
    print(&format_args!(
        "every answer was checked: {} commands, {} connections, {} protocol errors\n",
        report.server.commands, report.server.connections, report.server.protocol_errors
    ));
    Ok(())
}

/// Sends one command of each kind, and compares each answer with that of Redis.
fn check_commands(addr: SocketAddr) -> Result<u32, ClientError> {
    let mut client = Client::connect(addr)?;
    let large: Vec<u8> = (0..1u32 << 20).map(|at| ((at * 31) >> 3) as u8).collect();
    let (ok, none) = (Answer::ok(), Answer::Bulk(None));
    let error = |text: &str| Answer::Error(text.to_owned());
    let steps: Vec<(Vec<&[u8]>, Answer)> = vec![
        (vec![b"PING"], Answer::Status("PONG".to_owned())),
        (vec![b"ECHO", b"hello"], Answer::bulk("hello")),
        (vec![b"FLUSHALL"], ok.clone()),
        (vec![b"SET", b"key", b"value"], ok.clone()),
        (vec![b"GET", b"key"], Answer::bulk("value")),
        (vec![b"SET", b"key", b"other", b"NX"], none.clone()),
        (vec![b"SET", b"new", b"other", b"XX"], none.clone()),
        (vec![b"APPEND", b"key", b" and more"], Answer::Integer(14)),
        (vec![b"STRLEN", b"key"], Answer::Integer(14)),
        (vec![b"MSET", b"a", b"1", b"b\0\r\n", b"2"], ok.clone()),
        (
            vec![b"MGET", b"a", b"no", b"b\0\r\n"],
            Answer::Array(vec![Answer::bulk("1"), none.clone(), Answer::bulk("2")]),
        ),
        (vec![b"INCR", b"a"], Answer::Integer(2)),
        (vec![b"DECR", b"a"], Answer::Integer(1)),
        (vec![b"INCR", b"key"], error("ERR value is not an integer or out of range")),
        (vec![b"EXISTS", b"a", b"a", b"no"], Answer::Integer(2)),
        (vec![b"SET", b"short", b"lived", b"EX", b"100"], ok.clone()),
        (vec![b"TTL", b"short"], Answer::Integer(100)),
        (vec![b"EXPIRE", b"a", b"-1"], Answer::Integer(1)),
        (vec![b"DBSIZE"], Answer::Integer(3)),
        (vec![b"DEL", b"key", b"no"], Answer::Integer(1)),
        (vec![b"SET", b"large", &large], ok.clone()),
        (vec![b"GET", b"large"], Answer::bulk(large.clone())),
        (vec![b"GET"], error("ERR wrong number of arguments for 'get' command")),
        (vec![b"SELECT", b"16"], error("ERR DB index is out of range")),
        (vec![b"VADD", b"vectors", b"VALUES", b"2", b"1", b"0", b"east"], Answer::Integer(1)),
        (vec![b"VADD", b"vectors", b"VALUES", b"2", b"0", b"2", b"north", b"NOQUANT"], Answer::Integer(1)),
        (vec![b"VADD", b"vectors", b"VALUES", b"2", b"-1", b"0", b"west"], Answer::Integer(1)),
        (vec![b"VCARD", b"vectors"], Answer::Integer(3)),
        (vec![b"VDIM", b"vectors"], Answer::Integer(2)),
        (
            vec![b"VSIM", b"vectors", b"ELE", b"east", b"WITHSCORES", b"COUNT", b"2"],
            Answer::Array(["east", "1", "north", "0.5"].map(Answer::bulk).into()),
        ),
        (vec![b"VEMB", b"vectors", b"north"], Answer::Array(["0", "2"].map(Answer::bulk).into())),
        (vec![b"VREM", b"vectors", b"east"], Answer::Integer(1)),
        (
            vec![b"VSIM", b"vectors", b"FP32", b"\0\0\0\0\0\0\x80\x3f"],
            Answer::Array(["north", "west"].map(Answer::bulk).into()),
        ),
        (
            vec![b"GET", b"vectors"],
            error("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ),
        (vec![b"FLUSHALL"], ok),
        (vec![b"DBSIZE"], Answer::Integer(0)),
    ];
    for (arguments, expected) in &steps {
        client.expect(arguments, expected)?;
    }
    Ok(steps.len() as u32)
}

/// Loads the server from `clients` connections, each with `pipeline` requests in flight. Four
/// threads drive them.
fn drive(
    addr: SocketAddr,
    clients: u32,
    load: &'static str,
    is_set: bool,
    pipeline: u32,
) -> Result<Row, ClientError> {
    let started = Instant::now();
    let threads: Vec<_> = (0..clients.min(4))
        .map(|thread| {
            let mine = (thread..clients).step_by(4).collect::<Vec<_>>();
            std::thread::spawn(move || drive_some(addr, &mine, is_set, pipeline))
        })
        .collect();
    let mut times = Vec::new();
    for thread in threads {
        times.extend(thread.join().unwrap_or_else(|_| unreachable!("the clients do not panic"))?);
    }
    let elapsed = started.elapsed();
    times.sort_unstable();
    let at =
        |share: f64| times.get((times.len() as f64 * share) as usize).map_or(0.0, |ns| *ns as f64 / 1000.0);
    let requests = times.len() as u64 * u64::from(pipeline);
    let requests_per_second = (requests as f64 / elapsed.as_secs_f64()) as u64;
    Ok(Row { load, clients, pipeline, requests, requests_per_second, p50_us: at(0.5), p99_us: at(0.99) })
}

/// Drives some connections. Returns the round-trip times of their batches in nanoseconds.
fn drive_some(
    addr: SocketAddr,
    clients: &[u32],
    is_set: bool,
    pipeline: u32,
) -> Result<Vec<u64>, ClientError> {
    let mut connections = clients.iter().map(|_| Client::connect(addr)).collect::<Result<Vec<_>, _>>()?;
    let key = |client: u32, number: u64| format!("key:{client}:{}", number % KEYS).into_bytes();
    // The value of a key contains the client and the number, so that a mixed-up answer is found.
    let value = |client: u32, number: u64| format!("{client:08}:{:055}", number % KEYS).into_bytes();
    let (started, mut times, mut number) = (Instant::now(), Vec::new(), 0);
    if !is_set {
        for (connection, &client) in connections.iter_mut().zip(clients) {
            for number in 0..KEYS {
                connection.queue(&[b"SET", &key(client, number), &value(client, number)]);
            }
            connection.flush()?;
            for _ in 0..KEYS {
                connection.check(&[b"SET"], &Answer::ok())?;
            }
        }
    }
    while started.elapsed() < LOAD_FOR {
        let sent = Instant::now();
        for (connection, &client) in connections.iter_mut().zip(clients) {
            for at in number..number + u64::from(pipeline) {
                match is_set {
                    true => connection.queue(&[b"SET", &key(client, at), &value(client, at)]),
                    false => connection.queue(&[b"GET", &key(client, at)]),
                }
            }
            connection.flush()?;
        }
        for (connection, &client) in connections.iter_mut().zip(clients) {
            for at in number..number + u64::from(pipeline) {
                let expected = if is_set { Answer::ok() } else { Answer::bulk(value(client, at)) };
                connection.check(&[if is_set { b"SET" } else { b"GET" }, &key(client, at)], &expected)?;
            }
            times.push(sent.elapsed().as_nanos() as u64);
        }
        number += u64::from(pipeline);
    }
    Ok(times)
}
