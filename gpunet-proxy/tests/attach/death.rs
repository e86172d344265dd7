//! A program that dies, a daemon that dies.

use crate::support::client::client;
use crate::support::daemon::Served;
use crate::support::pair::connect;
use crate::support::world::listen;
use crate::support::{Killed, Memory, SOLO, bounded, pattern, small, until};
use gpunet_device::{Error, Options, SockAddr, Stream, TransportKind};
use gpunet_proxy::{Attachment, FinishPolicy, attach};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);
/// What the program that is killed has sent.
const SENT: usize = 200_000;
/// Where it is told what to do.
const DAEMON: &str = "GPUNET_TEST_ATTACH_TO";
const CONNECT: &str = "GPUNET_TEST_CONNECT_TO";

/// Not a test: the program that is killed. It sends, says so, and waits.
#[test]
fn program() {
    let (Some(daemon), Ok(peer)) = (std::env::var_os(DAEMON), std::env::var(CONNECT)) else { return };
    let proxy = attach(Path::new(&daemon), small()).expect("attached");
    let attachment = proxy.attach_cpu().expect("attached");
    let token = attachment.token().expect("a number");
    let addr = SockAddr::from_std(peer.parse().expect("an address"));
    let mut stream = Stream::connect_with(&SOLO, token.net(), addr, TCP).expect("connected");
    let _listener = listen(token.net(), TCP);
    stream.send_all(&SOLO, Memory::filled(7, 0, SENT).buffer()).expect("sent");
    println!("sent");
    // Waits for data that never come.
    let _ = stream.recv(&SOLO, Memory::new(1).buffer());
    unreachable!("it was to be killed");
}

fn start(daemon: &Path, peer: &TcpListener) -> Killed {
    let test = std::env::current_exe().expect("this program");
    let child = Command::new(test)
        .args(["--exact", "death::program", "--nocapture"])
        .env(DAEMON, daemon)
        .env(CONNECT, peer.local_addr().expect("an address").to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program again");
    Killed(child)
}

/// Waits until the program has sent all.
fn await_sent(child: &mut Child) {
    let mut said = Vec::new();
    let stdout = child.stdout.as_mut().expect("a pipe");
    let mut byte = [0];
    while !said.ends_with(b"sent\n") {
        assert_eq!(stdout.read(&mut byte).expect("a pipe"), 1, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
}

/// Reads all that comes, and then the error that ends it.
fn read_to_reset(peer: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let error = peer.read_to_end(&mut all).expect_err("no orderly end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    all
}

/// A second is promised; a busy machine that runs other tests meanwhile may take longer.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn what_a_killed_program_sent_arrives_and_then_its_peer_sees_a_reset() {
    bounded(|| {
        let served = Served::new(small());
        for _ in 0..3 {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let mut child = start(&served.path, &listener);
            let (mut peer, _) = listener.accept().expect("a connection");
            await_sent(&mut child);
            let clients = served.daemon().snapshot().expect("it answers").clients;
            assert_eq!(clients.len(), 1);
            assert_eq!((clients[0].pid, clients[0].sockets, clients[0].opened), (child.id(), 2, 1));
            assert!(clients[0].command.starts_with("attach-"), "{}", clients[0].command);
            let killed = Instant::now();
            drop(child);
            let all = read_to_reset(&mut peer);
            assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
            assert_eq!(all.len(), SENT);
            assert!(all.iter().enumerate().all(|(at, &byte)| byte == pattern(7, at)));
            served.expect_clients(0);
            assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
        }
    });
}

#[test]
fn a_peer_that_does_not_read_does_not_keep_a_dead_program() {
    bounded(|| {
        let served = Served::new(small());
        let proxy = served.attach(small());
        let attachment = proxy.attach_cpu().expect("attached");
        let token = attachment.token().expect("a number");
        let listener = listen(token.net(), TCP);
        let _peer = crate::support::client::narrow_client(listener.local_addr());
        let mut stream = listener.accept(&SOLO).expect("accepted");
        let piece = Memory::new(1 << 20);
        // As much as there is room for, in the ring and in the kernel: nothing is taken at three
        // looks in a row.
        let mut looks = 0;
        until("nobody takes more", || {
            looks = if stream.try_send(&SOLO, piece.buffer()).is_ok() { 0 } else { looks + 1 };
            looks == 3
        });
        let gone = Instant::now();
        proxy.abort();
        served.expect_clients(0);
        assert!(gone.elapsed() < SOON, "{:?}", gone.elapsed());
    });
}

#[test]
fn a_program_that_closed_before_it_died_has_closed_in_order() {
    bounded(|| {
        let served = Served::new(small());
        let proxy = served.attach(small());
        let attachment = proxy.attach_cpu().expect("attached");
        let token = attachment.token().expect("a number");
        let listener = listen(token.net(), TCP);
        let mut peer = client(listener.local_addr());
        let mut stream = listener.accept(&SOLO).expect("accepted");
        stream.send_all(&SOLO, Memory::filled(2, 0, 50_000).buffer()).expect("room");
        stream.close(&SOLO).expect("open");
        proxy.abort();
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an orderly end");
        assert_eq!(all.len(), 50_000);
        served.expect_clients(0);
    });
}

#[test]
fn two_programs_die_and_the_third_does_not_notice() {
    bounded(|| {
        let served = Served::new(small());
        let proxy = served.attach(small());
        let attachment = proxy.attach_cpu().expect("attached");
        let token = attachment.token().expect("a number");
        let listener = listen(token.net(), TCP);
        let mut peer = client(listener.local_addr());
        let mut stream = listener.accept(&SOLO).expect("accepted");
        let others: Vec<_> = (0..2).map(|_| served.attach(small())).collect();
        let attachments: Vec<_> = others.iter().map(|proxy| proxy.attach_cpu().expect("attached")).collect();
        served.expect_clients(3);
        let memory = Memory::new(5);
        let mut echo = |stream: &mut Stream| {
            peer.write_all(b"hello").expect("open");
            stream.recv_exact(&SOLO, memory.buffer()).expect("open");
            assert_eq!(memory.copy(0, 5), b"hello");
        };
        echo(&mut stream);
        others.iter().for_each(gpunet_proxy::Proxy::abort);
        // While they end, and afterwards.
        until("the others are gone", || {
            echo(&mut stream);
            served.daemon().snapshot().is_some_and(|snapshot| snapshot.clients.len() == 1)
        });
        (0..10).for_each(|_| echo(&mut stream));
        drop(attachments);
        assert_eq!(token.finish(FinishPolicy::Close).left_open, 2);
        assert_eq!(attachment.close().undelivered, 0);
    });
}

fn waits(attachment: &Attachment) -> std::thread::JoinHandle<Result<(), Error>> {
    let token = attachment.token().expect("a number");
    let blocked = std::thread::spawn(move || {
        let listener = listen(token.net(), TCP);
        listener.accept(&SOLO).map(|_| ())
    });
    until("the accept waits", || attachment.usage().requests == 1);
    blocked
}

#[test]
fn a_daemon_that_ends_gives_network_down_at_once_and_can_be_joined_again() {
    bounded(|| {
        let mut served = Served::new(small());
        let proxy = served.attach(small());
        let attachment = proxy.attach_cpu().expect("attached");
        let blocked = waits(&attachment);
        let host = proxy.host().expect("attached");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(host.bind("127.0.0.1:0".parse().unwrap(), TCP, 4)).expect("a port");
        let accepts = runtime.spawn(async move { listener.accept().await.map(|_| ()) });
        let token = attachment.token().expect("a number");
        let start = Instant::now();
        served.kill();
        assert_eq!(blocked.join().expect("no panic"), Err(Error::NetworkDown));
        let ended = runtime.block_on(accepts).expect("no panic");
        assert_eq!(ended.unwrap_err().errno(), Error::NetworkDown.errno());
        let _ = token.finish(FinishPolicy::Close);
        let _ = attachment.usage();
        let refused = runtime.block_on(host.connect("127.0.0.1:1".parse().unwrap(), TCP)).unwrap_err();
        assert_eq!(refused.errno(), Error::NetworkDown.errno());
        drop(attachment);
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        assert!(proxy.attach_cpu().is_err());
        // Another daemon at the same place serves the same proxy.
        let access = gpunet_proxy::access::Access::default();
        let again = crate::support::daemon::listener(&served.path);
        served.daemon = Some(gpunet_proxy::daemon::start(again, small(), access).expect("a daemon"));
        let attachment = proxy.attach_cpu().expect("attached again");
        assert_eq!(attachment.close().undelivered, 0);
        drop(host);
    });
}

#[test]
fn streams_between_two_sockets_of_a_dead_program_are_free_at_once() {
    bounded(|| {
        let served = Served::new(small());
        let proxy = served.attach(small());
        let attachment = proxy.attach_cpu().expect("attached");
        let token = attachment.token().expect("a number");
        let net = token.net();
        let peer = Options::DEFAULT.with_transport(TransportKind::Peer);
        let listener = listen(net, peer);
        // Open ends, and one whose other end is closed already, either way round.
        for closes in [None, Some(true), Some(false)] {
            let [connected, accepted] = connect(net, &listener, peer);
            if let Some(connecting) = closes {
                let stream = if connecting { connected } else { accepted };
                stream.close(&SOLO).expect("open");
            }
        }
        until("six sockets", || attachment.usage().sockets == 7);
        let gone = Instant::now();
        proxy.abort();
        served.expect_clients(0);
        assert!(gone.elapsed() < SOON, "{:?}", gone.elapsed());
    });
}
