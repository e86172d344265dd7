//! `gpunet-echo server` against peers that are not gpunet.

use crate::cgroup::MemoryCgroup;
use crate::process::{Output, command, finish};
use crate::program::{ECHO, json, run, serve, stop};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("the server takes connections");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
    stream
}

/// Sends, shuts down writing, and reads until the end.
fn exchange(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(addr);
    stream.write_all(bytes).expect("the server reads");
    stream.shutdown(Shutdown::Write).expect("a connected stream can be shut down");
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("the server ends the connection in good order");
    back
}

fn noise(len: usize, mut state: u32) -> Vec<u8> {
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn hello_comes_back_and_the_end_too() {
    let server = serve(&["127.0.0.1:0"]);
    assert_eq!(exchange(server.addr, b"hello"), b"hello");
    assert_eq!(exchange(server.addr, b""), b"");
    let Output { status, out: totals, .. } = stop(server);
    assert!(status.success(), "{status:?}");
    assert!(totals.contains("2 connections") && totals.contains("5 bytes"), "{totals}");
}

#[test]
fn without_the_memory_for_its_rings_it_does_not_start() {
    let group = match MemoryCgroup::new(100 << 20) {
        Ok(group) => group,
        Err(why) => {
            // Not by `eprintln!`: the test harness keeps what a passing test prints to itself.
            let _ = writeln!(std::io::stderr(), "NOT RUN: a server in a memory cgroup: {why}");
            return;
        }
    };
    let inside = |args: &[&str]| {
        let mut command = group.command(&command(ECHO, args));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().expect("the program starts"))
    };
    let Output { status, out, err } = inside(&["server", "127.0.0.1:0", "--device", "cpu"]);
    assert_eq!(status.code(), Some(1), "{out}{err}");
    assert!(!out.contains("listening"), "{out}");
    assert!(err.contains("memory cgroup") && err.contains("raise that limit"), "{err}");
    let probe = inside(&["probe"]).out;
    assert!(
        probe.contains("left of the 100 MiB") && probe.contains("gpunet-echo server: cannot start"),
        "{probe}"
    );
}

#[test]
fn more_than_any_ring_holds_comes_back_to_a_peer_that_reads_late() {
    let server = serve(&["127.0.0.1:0"]);
    let bytes = noise(5_000_000, 1);
    let stream = connect(server.addr);
    let mut write = stream.try_clone().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || {
        write.write_all(&sent).unwrap();
        write.shutdown(Shutdown::Write).unwrap();
    });
    std::thread::sleep(Duration::from_millis(300));
    let mut back = Vec::new();
    (&stream).read_to_end(&mut back).unwrap();
    writer.join().unwrap();
    assert!(back == bytes, "{} bytes back", back.len());
    assert!(stop(server).status.success());
}

#[test]
fn peers_that_end_their_streams_in_the_middle_of_a_turn_get_all_their_bytes() {
    const PEERS: usize = 60;
    const LARGEST: usize = 500_000;
    // More than a round of the server takes, on blocks of which many have several peers. Lanes make
    // rounds longer.
    let server = serve(&["127.0.0.1:0", "--blocks", "8", "--threads", "2"]);
    let bytes = noise(LARGEST, 4);
    std::thread::scope(|scope| {
        for peer in 0..PEERS {
            let (addr, bytes) = (server.addr, &bytes);
            scope.spawn(move || {
                for round in 0..8 {
                    let sent = &bytes[..(64 << 10) + (peer * 8 + round) * 104_729 % (LARGEST - (64 << 10))];
                    let stream = connect(addr);
                    let mut back = Vec::with_capacity(sent.len());
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            (&stream).write_all(sent).expect("the server reads");
                            stream.shutdown(Shutdown::Write).expect("a connected stream can be shut down");
                        });
                        (&stream)
                            .read_to_end(&mut back)
                            .expect("the server ends the connection in good order");
                    });
                    assert!(back == sent, "peer {peer}: {} of {} bytes back", back.len(), sent.len());
                }
            });
        }
    });
    assert!(stop(server).status.success());
}

#[test]
fn a_peer_that_never_reads_holds_up_no_other() {
    let server = serve(&["127.0.0.1:0", "--blocks", "1"]);
    let stuck = connect(server.addr);
    stuck.set_nonblocking(true).unwrap();
    let (junk, mut idle) = (noise(1 << 16, 2), 0);
    // Until nothing fits any more, anywhere between here and here.
    while idle < 20 {
        match (&stuck).write(&junk) {
            Ok(n) => idle = if n > 0 { 0 } else { idle + 1 },
            Err(_) => {
                idle += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    for _ in 0..20 {
        assert_eq!(exchange(server.addr, b"hello"), b"hello");
    }
    drop(stuck);
    assert_eq!(exchange(server.addr, b"still there"), b"still there");
    assert!(stop(server).status.success());
}

#[test]
fn a_newcomer_is_served_while_the_only_connection_is_busy() {
    let server = serve(&["127.0.0.1:0", "--blocks", "1"]);
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let mut busy = connect(server.addr);
    let talk = std::thread::spawn(move || {
        let mut messages = 0u64;
        // For as long as the others have not ended.
        while is_over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let (out, mut back) = (noise(64, messages as u32), [0; 64]);
            busy.write_all(&out).unwrap();
            busy.read_exact(&mut back).unwrap();
            assert!(back[..] == out[..], "message {messages}");
            messages += 1;
        }
        messages
    });
    for _ in 0..20 {
        assert_eq!(exchange(server.addr, b"hello"), b"hello");
    }
    drop(over);
    assert!(talk.join().unwrap() > 0);
    let Output { status, out: totals, .. } = stop(server);
    assert!(
        status.success() && totals.contains("21 connections") && totals.contains(" 0 errors"),
        "{totals}"
    );
}

#[test]
fn a_peer_that_resets_leaves_the_others_alone() {
    let server = serve(&["127.0.0.1:0", "--blocks", "1"]);
    let mut other = connect(server.addr);
    other.write_all(b"before").unwrap();
    for _ in 0..20 {
        let mut rude = connect(server.addr);
        rude.write_all(&noise(100_000, 3)).unwrap();
        // Unread input makes this a reset.
        std::thread::sleep(Duration::from_millis(10));
        drop(rude);
    }
    other.write_all(b" and after").unwrap();
    other.shutdown(Shutdown::Write).unwrap();
    let mut back = String::new();
    other.read_to_string(&mut back).unwrap();
    assert_eq!(back, "before and after");
    assert!(stop(server).status.success());
}

#[test]
fn two_hundred_connections_are_served_at_once() {
    let server = serve(&["127.0.0.1:0", "--blocks", "3"]);
    let mut streams: Vec<_> = (0..200).map(|_| connect(server.addr)).collect();
    for round in 0..3u32 {
        for (at, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&noise(700, 1000 * round + at as u32)).unwrap();
        }
        // Every one of them is open and has its answer before any of them ends; last come, first
        // read.
        for (at, stream) in streams.iter_mut().enumerate().rev() {
            let mut back = vec![0; 700];
            stream.read_exact(&mut back).unwrap_or_else(|error| panic!("connection {at}: {error}"));
            assert!(back == noise(700, 1000 * round + at as u32), "connection {at}");
        }
    }
    for mut stream in streams {
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    }
    let Output { status, out: totals, .. } = stop(server);
    assert!(status.success() && totals.contains("200 connections"), "{totals}");
}

#[test]
fn more_connections_than_the_server_takes_wait_for_their_turn() {
    let server = serve(&["127.0.0.1:0", "--blocks", "2", "--connections", "4"]);
    let first: Vec<_> = (0..4).map(|_| connect(server.addr)).collect();
    for stream in &first {
        let (mut stream, mut back) = (stream, [0; 2]);
        stream.write_all(b"in").unwrap();
        stream.read_exact(&mut back).unwrap();
    }
    let mut late = connect(server.addr);
    late.write_all(b"late").unwrap();
    late.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(late.read(&mut [0; 4]).is_err(), "all places are taken");
    drop(first);
    late.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut back = [0; 4];
    late.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"late");
    assert!(stop(server).status.success());
}

#[test]
fn five_hundred_short_connections_leave_nothing_behind() {
    // Fewer places than connections: a place that leaked would be missed.
    let server = serve(&["127.0.0.1:0", "--connections", "16"]);
    let _idle = connect(server.addr);
    for at in 0..500u32 {
        let bytes = noise(1 + at as usize % 3000, at);
        assert!(exchange(server.addr, &bytes) == bytes, "connection {at}");
    }
    let Output { status, out: totals, .. } = stop(server);
    assert!(
        status.success() && totals.contains("501 connections") && totals.contains("0 errors"),
        "{totals}"
    );
}

#[test]
fn ipv6_works_like_ipv4() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("NOT RUN: this machine has no IPv6 loopback");
        return;
    }
    let server = serve(&["[::1]:0"]);
    assert!(server.addr.is_ipv6());
    assert_eq!(exchange(server.addr, b"hello"), b"hello");
    assert!(stop(server).status.success());
}

#[test]
fn the_client_kernel_is_a_good_peer_from_another_process() {
    let server = serve(&["127.0.0.1:0"]);
    let addr = server.addr.to_string();
    let report =
        json(&["client", &addr, "--json", "--device", "cpu", "--size", "64,300000", "--count", "10"]);
    assert_eq!((&report["errors"], &report["messages"]), (&0.into(), &80.into()), "{report}");
    let Output { status, out: totals, .. } = stop(server);
    assert!(status.success() && totals.contains("8 connections"), "{totals}");
}

#[test]
fn a_taken_port_is_said_clearly() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let Output { status, out, err } = run(&["server", &addr, "--device", "cpu"]);
    assert_eq!(status.code(), Some(1), "{out}{err}");
    assert!(err.contains("address in use") && err.contains(&addr) && err.lines().count() == 1, "{err}");
}

#[test]
fn an_interrupted_server_lets_go_of_idle_connections() {
    let server = serve(&["127.0.0.1:0"]);
    let mut idle: Vec<_> = (0..10).map(|_| connect(server.addr)).collect();
    for stream in &mut idle {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    let Output { status, out: totals, .. } = stop(server);
    assert_eq!(status.code(), Some(0));
    assert!(totals.contains("10 connections") && totals.contains("10 bytes"), "{totals}");
}

/// Runs a foreign client with "hello" on its standard input.
fn foreign(program: &str, args: &[&str]) -> Option<String> {
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("NOT RUN: {program} is not installed");
        return None;
    };
    child.stdin.take().expect("piped").write_all(b"hello").expect("the program reads");
    Some(finish(child).out)
}

#[test]
fn nc_gets_its_bytes_back_while_others_idle() {
    let server = serve(&["127.0.0.1:0", "--blocks", "1"]);
    let _idle: Vec<_> = (0..30).map(|_| connect(server.addr)).collect();
    let port = server.addr.port().to_string();
    // -N: shut down writing at the end of the input, as `printf hello | nc -N` does.
    if let Some(back) = foreign("nc", &["-N", "127.0.0.1", &port]) {
        assert_eq!(back, "hello");
    }
    // Without -N nc waits for the server's end; -q 1 makes it leave by itself.
    if let Some(back) = foreign("nc", &["-q", "1", "127.0.0.1", &port]) {
        assert_eq!(back, "hello");
    }
    assert!(stop(server).status.success());
}

#[test]
fn socat_gets_its_bytes_back() {
    let server = serve(&["127.0.0.1:0"]);
    if let Some(back) = foreign("socat", &["-", &format!("TCP:{}", server.addr)]) {
        assert_eq!(back, "hello");
    }
    assert!(stop(server).status.success());
}
