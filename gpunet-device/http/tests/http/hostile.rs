//! Clients that mean harm, while another one is served.

use crate::api::{Api, Serving, serve_by};
use crate::client::Client;
use gpunet_http::Limits;
use gpunet_serve_host::ServerSettings;
use std::io::Read;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SETTINGS: ServerSettings = ServerSettings { stall_ns: 500_000_000, ..ServerSettings::DEFAULT };
const LIMITS: Limits = Limits { request_ns: 500_000_000, ..Limits::DEFAULT };

fn server() -> Serving {
    serve_by((1, 2), Api { limits: LIMITS, ..Api::DEFAULT }, SETTINGS)
}

/// Runs a client that must be served all the time, beside the hostile ones. It is, before and after
/// them, too.
fn beside(addr: SocketAddr, hostile: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let innocent = scope.spawn(|| {
            let mut client = Client::connect(addr);
            let mut requests = 0;
            while !is_over.load(Ordering::Relaxed) || requests < 100 {
                assert_eq!(client.get("/").text(), "hello\n");
                requests += 1;
                if requests % 50 == 0 {
                    client = Client::connect(addr);
                }
            }
        });
        // It ends the other one also if it fails.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(hostile));
        is_over.store(true, Ordering::Relaxed);
        innocent.join().expect("the innocent client is served");
        result.unwrap_or_else(|failure| std::panic::resume_unwind(failure));
    });
}

/// Sends until the server has had enough; returns the status that it says.
fn endless(addr: SocketAddr, start: &str, more: &str) -> u16 {
    let mut client = Client::connect(addr);
    client.send(start);
    let mut writer = client.stream().try_clone().expect("a second handle");
    let more = more.repeat(100);
    let sender = std::thread::spawn(move || {
        use std::io::Write;
        while writer.write_all(more.as_bytes()).is_ok() {}
    });
    let status = client.answer(false).expect("an answer").status;
    // The server ends its side, whatever else is sent.
    let _ = client.reader.read_to_end(&mut Vec::new());
    let _ = client.stream().shutdown(Shutdown::Both);
    sender.join().expect("an end");
    status
}

#[test]
fn what_never_ends_is_cut() {
    let limits = Limits { body: 100_000, ..Limits::DEFAULT };
    let server = serve_by((1, 2), Api { limits, ..Api::DEFAULT }, SETTINGS);
    let addr = server.addr();
    beside(addr, || {
        let post = "POST /echo HTTP/1.1\r\nHost: a\r\n";
        let chunked = format!("{post}Transfer-Encoding: chunked\r\n\r\n");
        for (start, more, status) in [
            ("GET /", "a", 414),
            ("", "\r\n", 414),
            ("GET / HTTP/1.1\r\nHost: a\r\n", "A: b\r\n", 431),
            ("GET / HTTP/1.1\r\nHost: a\r\nA: ", "b", 431),
            (&format!("{chunked}1;"), "a", 400),
            (&chunked, "1;aaaaaaaaaaaaaaaaaaaaaaaa\r\na\r\n", 400),
            (&chunked, "1\r\na\r\n", 413),
            (&format!("{chunked}0\r\n"), "A: b\r\n", 431),
            (&format!("{post}Content-Length: 100001\r\n\r\n"), "a", 413),
        ] {
            assert_eq!(endless(addr, start, more), status, "{start:?} {more:?}");
        }
    });
}

#[test]
fn many_slow_clients_delay_nobody() {
    let server = server();
    let addr = server.addr();
    beside(addr, || {
        let request = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n";
        let mut clients: Vec<_> = (0..100).map(|_| Client::connect(addr)).collect();
        // A byte at a time; the time of none is prolonged by it.
        for byte in request.as_bytes().chunks(1) {
            clients.iter_mut().for_each(|client| client.send(byte));
            std::thread::sleep(Duration::from_millis(10));
        }
        for client in &mut clients {
            assert_eq!(client.answer(false).expect("an answer").status, 408);
            assert_eq!(client.answer(false), None);
        }
    });
}

#[test]
fn who_never_reads_is_cut() {
    let server = server();
    let addr = server.addr();
    beside(addr, || {
        let paths = ["/events/1000000000", "/stream/1000000000", "/length/1000000000"];
        let mut clients: Vec<_> = (0..30)
            .map(|number| {
                let mut client = Client::connect(addr);
                client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", paths[number % 3]));
                client
            })
            .collect();
        // And those who ask for more and more.
        let flood = "GET /length/10000 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
        for _ in 0..3 {
            let client = Client::connect(addr);
            client.stream().set_nonblocking(true).expect("an option");
            let mut client = client;
            client.send(&flood);
            clients.push(client);
        }
        // Letters fill what a system keeps for a client at once, events after many.
        let streams = || clients.iter().enumerate().filter(|(number, _)| number % 3 != 0 && *number < 30);
        for (_, client) in streams() {
            while !is_closed(client) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
    let counters = server.running.stop().expect("it ends well");
    assert!(counters.iter().map(|block| block.limited).sum::<u64>() >= 20);
}

/// Returns whether the server has ended a connection of which nobody reads.
fn is_closed(client: &Client) -> bool {
    let info = std::fs::read_to_string("/proc/net/tcp").expect("the connections");
    let port = format!("0100007F:{:04X} ", client.stream().local_addr().expect("an address").port());
    // The third word is the state; 01 is an open connection.
    let line =
        info.lines().find(|line| line.split_whitespace().nth(1).is_some_and(|local| port.starts_with(local)));
    line.is_none_or(|line| line.split_whitespace().nth(3) != Some("01"))
}

#[test]
fn resets_at_any_place_leave_nothing() {
    let server = server();
    let addr = server.addr();
    beside(addr, || {
        for round in 0..200usize {
            let mut client = Client::connect(addr);
            let request = [
                "GET /stream/1000000 HTTP/1.1\r\nHost: a\r\n\r\n",
                "GET /events/1000000 HTTP/1.1\r\nHost: a\r\n\r\n",
                "POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc",
                "POST /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nabc",
                "GET / HT",
            ][round % 5];
            client.send(request);
            if round % 5 < 2 {
                client.head().expect("a head");
                client.chunk().expect("a chunk");
            }
            let socket = socket2::SockRef::from(client.stream());
            socket.set_linger(Some(Duration::ZERO)).expect("an option");
        }
        // What they held is free.
        let body = "a".repeat(1 << 20);
        for _ in 0..10 {
            let mut client = Client::connect(addr);
            client.send(format!(
                "POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
            assert_eq!(client.answer(false).expect("an answer").status, 200);
        }
    });
}

#[test]
fn who_has_said_all_is_answered_and_who_lies_is_told() {
    let server = server();
    let addr = server.addr();
    beside(addr, || {
        for (request, status) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
            ("GET /length/3000000 HTTP/1.1\r\nHost: a\r\n\r\n", 200),
            ("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc", 400),
            ("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc", 400),
            ("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 400),
            ("GET /events/1000000 HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ] {
            let found = crate::client::answers(addr, request.as_bytes());
            assert_eq!(found.iter().map(|answer| answer.status).collect::<Vec<_>>(), [status], "{request:?}");
        }
    });
}

#[test]
fn requests_have_no_more_memory_than_there_is() {
    let server = serve_by((1, 1), Api { heap: 4 << 20, ..Api::DEFAULT }, ServerSettings::DEFAULT);
    let addr = server.addr();
    beside(addr, || {
        let mut clients: Vec<_> = (0..20).map(|_| Client::connect(addr)).collect();
        let body = "a".repeat(900_000);
        let mut statuses = Vec::new();
        for client in &mut clients {
            client.send(format!("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n{body}"));
        }
        for client in &mut clients {
            client.send(&body[..100_000]);
            statuses.push(client.answer(false).expect("an answer").status);
        }
        assert!(statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
        assert!(statuses.contains(&200) && statuses.contains(&503), "{statuses:?}");
    });
}
