//! gpunet-hello-http beside hyper.

use super::load::{self, Question};
use super::{Server, name, shapes, table};
use crate::foreign::hyper;
use crate::measure::Run;
use crate::outcome::Outcome;
use crate::report::{Role, Row, counted};
use std::time::Duration;

const HELLO: Question = Question {
    request: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    begins: b"HTTP/1.1 200",
    ends: b"\r\n\r\nhello\n",
};
/// Connections that ask at the same time.
const CONNECTIONS: [usize; 2] = [8, 64];
/// Threads of hyper, each with a runtime.
const THREADS: [u32; 2] = [1, 4];

/// Measures round trips of one connection, and answers a second.
pub fn measure(run: &mut Run<'_>) -> Outcome<()> {
    let shapes = shapes(run);
    let each = 1 + CONNECTIONS.len();
    table(run, "HTTP servers: GET / on open connections", each * (shapes.len() + THREADS.len()))?;
    match hyper::find(run.recorder.without_foreign) {
        Err(why) => run.recorder.note(format!("without hyper: {why}")),
        Ok(program) => {
            for threads in THREADS {
                let server = Server::start(&mut hyper::command(&program, threads))?;
                one(run, Role::Reference, &format!("hyper, {}", counted(threads, "thread")), &server)?;
            }
        }
    }
    for blocks in shapes {
        let server = Server::program(run, "gpunet-hello-http", &["127.0.0.1:0"], blocks)?;
        one(run, Role::Gpunet, &name("gpunet-hello-http", blocks), &server)?;
    }
    Ok(())
}

fn one(run: &mut Run<'_>, role: Role, name: &str, server: &Server) -> Outcome<()> {
    let samples = load::round_trips(server.addr, HELLO, run.effort.of(5000, 20_000, 100_000))?;
    run.recorder.row(Row::times(role, format!("round trip of one client, {name}"), &samples).at(name, 1));
    let time = Duration::from_millis(run.effort.of(300, 1000, 3000));
    for connections in CONNECTIONS {
        let rate = load::rate(server.addr, HELLO, connections, time)?;
        let what = format!("{}, {name}", counted(connections as u64, "connection"));
        let row = Row::number(role, what, rate, "requests a second");
        run.recorder.row(row.at(name, connections as u64));
    }
    Ok(())
}
