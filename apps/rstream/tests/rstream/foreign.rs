//! One end a kernel, the other a plain TCP program that speaks the protocol, or breaks it.

use crate::process::{Output, Server};
use crate::program::{run_on_cpu, serve};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A program at the other end: the protocol of rstream, on std's sockets.
struct Peer {
    stream: TcpStream,
    is_client: bool,
    /// The next byte of each direction. It outlives a connection, as with rstream.
    sent: u8,
    received: u8,
    /// Which of the bytes sent from now on is made wrong.
    flip: Option<usize>,
}

impl Peer {
    fn new(stream: TcpStream, is_client: bool) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
        stream.set_nodelay(true).expect("a TCP socket has this option");
        Self { stream, is_client, sent: 0, received: 0, flip: None }
    }

    fn connect(addr: SocketAddr) -> Self {
        Self::new(TcpStream::connect(addr).expect("the server takes connections"), true)
    }

    fn send(&mut self, size: usize) -> io::Result<()> {
        let mut bytes: Vec<u8> = (0..size).map(|at| self.sent.wrapping_add(at as u8)).collect();
        self.sent = self.sent.wrapping_add(size as u8);
        match self.flip {
            Some(at) if at < size => {
                bytes[at] ^= 0x20;
                self.flip = None;
            }
            Some(at) => self.flip = Some(at - size),
            None => {}
        }
        self.stream.write_all(&bytes)
    }

    fn receive(&mut self, size: usize) -> io::Result<()> {
        let mut bytes = vec![0; size];
        self.stream.read_exact(&mut bytes)?;
        for (at, byte) in bytes.iter().enumerate() {
            assert_eq!(*byte, self.received.wrapping_add(at as u8), "byte {at} of a transfer of {size}");
        }
        self.received = self.received.wrapping_add(size as u8);
        Ok(())
    }

    fn transfer(&mut self, sending: bool, size: usize, count: usize) -> io::Result<()> {
        (0..count).try_for_each(|_| if sending { self.send(size) } else { self.receive(size) })
    }

    /// One test: the sync bytes, then `iterations` times `count` transfers there and back.
    fn test(&mut self, size: usize, count: usize, iterations: usize) -> io::Result<()> {
        let rounds = [(16, 1)].into_iter().chain((0..iterations).map(|_| (size, count)));
        for (size, count) in rounds {
            self.transfer(self.is_client, size, count)?;
            self.transfer(!self.is_client, size, count)?;
        }
        Ok(())
    }

    /// Expects nothing more before the other end ends the stream.
    fn expect_end(&mut self) {
        assert_eq!(self.stream.read(&mut [0; 64]).expect("the other end ends in good order"), 0);
    }
}

const SIZES: [(usize, usize, usize); 6] =
    [(1, 40, 3), (64, 30, 3), (1000, 10, 2), (64 << 10, 4, 2), (1 << 20, 2, 2), ((1 << 20) + 7, 1, 2)];

fn arguments((size, count, iterations): (usize, usize, usize)) -> Vec<String> {
    let numbers = [("-S", size), ("-C", count), ("-I", iterations)];
    let options = numbers.into_iter().flat_map(|(name, number)| [name.to_owned(), number.to_string()]);
    options.chain(["--verify", "--transport", "tcp"].map(str::to_owned)).collect()
}

fn server(test: (usize, usize, usize)) -> Server {
    let arguments = arguments(test);
    serve(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Runs a client against `serve`, which gets the first connection.
fn client(test: (usize, usize, usize), serve: impl FnOnce(Peer) + Send + 'static) -> Output {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = listener.local_addr().expect("a listener has an address").to_string();
    let server: JoinHandle<()> =
        thread::spawn(move || serve(Peer::new(listener.accept().expect("the client connects").0, false)));
    let arguments = arguments(test);
    let arguments: Vec<_> =
        ["client", &addr].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let output = run_on_cpu(&arguments);
    server.join().expect("the server finds all bytes right");
    output
}

#[test]
fn a_plain_tcp_program_is_a_good_client() {
    for test @ (size, count, iterations) in SIZES {
        let server = server(test);
        let mut peer = Peer::connect(server.addr);
        peer.test(size, count, iterations).expect("the server speaks the protocol");
        peer.expect_end();
        let server = server.finish();
        assert!(server.status.success(), "{test:?}: {}{}", server.out, server.err);
    }
}

#[test]
fn a_plain_tcp_program_is_a_good_server() {
    for test @ (size, count, iterations) in SIZES {
        let output = client(test, move |mut peer| {
            peer.test(size, count, iterations).expect("the client speaks the protocol");
            peer.expect_end();
        });
        assert!(output.status.success(), "{test:?}: {}{}", output.out, output.err);
        assert!(output.out.contains("1 connections good"), "{}", output.out);
    }
}

/// The four sizes of the default run, with how often each is repeated.
const LISTED: [(usize, usize); 4] = [(64, 100_000), (4096, 10_000), (65_536, 1000), (1 << 20, 100)];

#[test]
fn the_default_run_goes_on_counting_over_its_second_connection() {
    let server = serve(&["--all", "--verify", "--transport", "tcp"]);
    let mut peer = Peer::connect(server.addr);
    LISTED.iter().for_each(|&(size, repeats)| peer.test(size, 1, repeats).expect("a latency test"));
    peer.expect_end();
    peer.stream = Peer::connect(server.addr).stream;
    LISTED.iter().for_each(|&(size, repeats)| peer.test(size, repeats, 1).expect("a bandwidth test"));
    peer.expect_end();
    let server = server.finish();
    assert!(server.status.success(), "{}{}", server.out, server.err);
    assert!(server.out.contains("2 connections good") && server.out.contains("1m_bw"), "{}", server.out);
}

#[test]
fn the_first_of_two_connections_may_fail_and_a_later_client_is_served() {
    let server = serve(&["--all", "--verify", "--transport", "tcp", "--connections", "0"]);
    for _ in 0..2 {
        let mut peer = Peer::connect(server.addr);
        peer.flip = Some(3);
        assert!(peer.test(64, 1, 1).is_err(), "the server ends it");
    }
    server.interrupt();
    let server = server.finish();
    assert_eq!(server.status.code(), Some(1), "{}{}", server.out, server.err);
    assert!(server.err.matches("failed at byte 3").count() == 2, "{}", server.err);
}

#[test]
fn a_flipped_bit_is_caught_by_the_server_and_named() {
    // In the sync bytes, at a transfer's first and last byte, in the middle of the second
    // iteration.
    for flip in [5, 16, 16 + 9999, 16 + 40_000 + 12_345] {
        let server = server((10_000, 4, 2));
        let mut peer = Peer::connect(server.addr);
        peer.flip = Some(flip);
        assert!(peer.test(10_000, 4, 2).is_err(), "the server ends it");
        let server = server.finish();
        assert_eq!(server.status.code(), Some(1), "{flip}: {}{}", server.out, server.err);
        assert!(server.err.contains(&format!("byte {flip} ")), "{flip}: {}", server.err);
    }
}

#[test]
fn a_flipped_bit_is_caught_by_the_client_and_named() {
    let flip = 16 + 70_000 + 1;
    let output = client((70_000, 3, 1), move |mut peer| {
        peer.flip = Some(flip);
        let _ = peer.test(70_000, 3, 1);
    });
    assert_eq!(output.status.code(), Some(1), "{}{}", output.out, output.err);
    assert!(output.err.contains(&format!("byte {flip} ")), "{}", output.err);
}

#[test]
fn without_verify_nobody_looks() {
    let server = serve(&["-S", "1000", "-C", "2", "--transport", "tcp"]);
    let mut peer = Peer::connect(server.addr);
    peer.flip = Some(500);
    peer.test(1000, 2, 1).expect("the server takes what comes");
    assert!(server.finish().status.success());
}

#[test]
fn a_peer_that_leaves_or_sends_too_much_is_said() {
    let leaves = server((1000, 5, 1));
    let mut peer = Peer::connect(leaves.addr);
    peer.send(16).expect("the server reads");
    peer.receive(16).expect("the server answers");
    peer.send(1500).expect("the server reads");
    drop(peer);
    let left = leaves.finish();
    assert_eq!(left.status.code(), Some(1), "{}{}", left.out, left.err);
    assert!(left.err.contains("ended its stream") && left.err.contains("1516 received"), "{}", left.err);

    let output = client((100, 1, 1), |mut peer| {
        peer.test(100, 1, 1).and_then(|()| peer.send(7)).expect("the client takes it");
        // The client looks once, when it has all it wanted.
        let _ = peer.stream.read(&mut [0]);
    });
    // Where the seven bytes come later than that look, there is nothing to be said.
    assert!(output.status.success() || output.err.contains("7 more bytes"), "{}", output.err);
}

#[test]
fn a_refused_connection_is_said_clearly() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = gone.local_addr().expect("a listener has an address").to_string();
    drop(gone);
    let output = run_on_cpu(&["client", &addr, "--transport", "tcp"]);
    assert_eq!(output.status.code(), Some(1), "{}", output.out);
    assert!(output.err.contains("connection refused"), "{}", output.err);
}
