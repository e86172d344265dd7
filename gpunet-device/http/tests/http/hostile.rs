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
        let streams = clients.iter().enumerate().filter(|(number, _)| number % 3 != 0 && *number < 30);
        for (_, client) in streams {
            // A reset overtakes what nobody reads. /proc/net/tcp would at times leave a connection
            // out, as others come and go.
            while client.stream().take_error().expect("a socket").is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
    let counters = server.running.stop().expect("it ends well");
    assert!(counters.iter().map(|block| block.limited).sum::<u64>() >= 20);
}

#[test]
fn resets_at_any_place_leave_nothing() {
    // A busy machine may take longer than `LIMITS` for a long body.
    let server = serve_by((1, 2), Api::DEFAULT, SETTINGS);
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

/// More connections than the blocks have places. None of them says anything, and half go by a
/// reset. Who comes then is served.
#[test]
fn five_thousand_connections_are_served_or_wait() {
    /// A process has descriptors for so many at once, as systems set it: client and server are one.
    const AT_ONCE: usize = 250;
    let settings = ServerSettings { room: 64, idle_ns: 100_000_000, ..SETTINGS };
    let server = serve_by((2, 1), Api { limits: LIMITS, ..Api::DEFAULT }, settings);
    let addr = server.addr();
    beside_new(addr, || {
        for _ in 0..5000 / AT_ONCE {
            let clients: Vec<_> = (0..AT_ONCE).map(|_| Client::connect(addr)).collect();
            for (number, client) in clients.iter().enumerate() {
                if number % 2 == 0 {
                    let socket = socket2::SockRef::from(client.stream());
                    socket.set_linger(Some(Duration::ZERO)).expect("an option");
                }
            }
        }
    });
    let mut client = Client::connect(addr);
    assert_eq!(client.get("/").text(), "hello\n");
    drop(client);
    let counters = server.running.stop().expect("it ends well");
    // What a connection has is that of its place, and all places are free again.
    assert!(counters.iter().all(|block| block.open == 0), "{counters:?}");
    let accepted = counters.iter().map(|block| block.accepted).sum::<u64>();
    assert!(accepted > 2500, "those without a reset were accepted: {accepted}");
}

/// As [`beside`], with a client that connects anew each time: it waits until there is a place.
fn beside_new(addr: SocketAddr, hostile: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let innocent = scope.spawn(|| {
            let mut requests = 0;
            while !is_over.load(Ordering::Relaxed) || requests < 10 {
                assert_eq!(Client::connect(addr).get("/").text(), "hello\n");
                requests += 1;
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(hostile));
        is_over.store(true, Ordering::Relaxed);
        innocent.join().expect("the innocent client is served");
        result.unwrap_or_else(|failure| std::panic::resume_unwind(failure));
    });
}

#[test]
fn silent_connections_end_and_busy_ones_do_not() {
    let settings = ServerSettings { idle_ns: 300_000_000, ..SETTINGS };
    let server = serve_by((1, 1), Api { limits: LIMITS, pause_ns: 50_000_000, ..Api::DEFAULT }, settings);
    let addr = server.addr();
    // Where a machine is busy, one may be silent for too long before it asks.
    let ask = |path: &str| {
        let answered = (0..100).find_map(|_| {
            let mut client = Client::connect(addr);
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client.answer(false).map(|answer| (client, answer))
        });
        answered.expect("an answer")
    };
    let mut silent: Vec<_> = (0..10).map(|_| Client::connect(addr)).collect();
    // Half of them have asked for something before.
    for _ in 0..10 {
        let (client, answer) = ask("/");
        assert_eq!(answer.text(), "hello\n");
        silent.push(client);
    }
    // This one is answered for longer than it may be silent.
    let (_busy, events) = ask("/events/20");
    assert_eq!(events.text().matches("data: event").count(), 20);
    for client in &mut silent {
        assert_eq!(client.answer(false), None);
    }
}
