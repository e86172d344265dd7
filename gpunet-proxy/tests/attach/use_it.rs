//! What works embedded works attached.

use crate::support::client::client;
use crate::support::daemon::{Served, TempDir, listener};
use crate::support::world::{Home, listen};
use crate::support::{Memory, SOLO, World, bounded, pauses_seed, small, until};
use gpunet_device::group::Solo;
use gpunet_device::{Buffer, Error, Handle, Kernel, Net, Options, Stream, TransportKind};
use gpunet_proxy::{DaemonError, FinishPolicy, OpenError, attach, open};
use std::io::{Read, Write};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);

#[test]
fn two_attachments_talk_over_tcp() {
    bounded(|| {
        let served = Served::new(small());
        let (a, b) = (served.attach(small()), served.attach(small()));
        assert_eq!(a.daemon().expect("a daemon").pid, std::process::id());
        let (one, two) = (a.attach_cpu().expect("attached"), b.attach_cpu().expect("attached"));
        served.expect_clients(2);
        let (one_token, two_token) = (one.token().expect("a number"), two.token().expect("a number"));
        let (one_net, two_net) = (one_token.net(), two_token.net());
        let listener = listen(one_net, TCP);
        let addr = listener.local_addr();
        let bytes = Memory::filled(1, 0, 1 << 20);
        let connect = move || {
            let mut stream = Stream::connect_with(&SOLO, two_net, addr, TCP).expect("connected");
            let back = Memory::new(1 << 20);
            for at in (0..1 << 20).step_by(1 << 16) {
                stream.send_all(&SOLO, bytes.buffer().skip(at).first(1 << 16)).expect("sent");
                stream.recv_exact(&SOLO, back.buffer().skip(at).first(1 << 16)).expect("back");
            }
            assert!(back.holds(0, 1 << 20, 1, 0));
            stream.close(&SOLO).expect("open");
        };
        let client = std::thread::spawn(connect);
        let mut stream = listener.accept(&SOLO).expect("accepted");
        let room = Memory::new(1 << 16);
        loop {
            match stream.recv(&SOLO, room.buffer()).expect("data") {
                0 => break,
                n => stream.send_all(&SOLO, room.buffer().first(n)).expect("sent"),
            }
        }
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        client.join().expect("no panic");
        assert_eq!(one_token.finish(FinishPolicy::Close).left_open, 0);
        assert_eq!(two_token.finish(FinishPolicy::Close).left_open, 0);
        for attachment in [one, two] {
            until("all free", || attachment.usage().sockets == 0);
            let usage = attachment.usage();
            assert_eq!((usage.requests, usage.free_ring_bytes), (0, usage.ring_bytes));
            assert_eq!((attachment.stats().opened, attachment.stats().closed), (1, 1));
            let report = attachment.close();
            assert_eq!((report.undelivered, report.unfinished), (0, 0));
        }
        served.expect_clients(0);
    });
}

/// Sends back what one connection sends.
#[derive(Clone, Copy)]
struct Echo {
    net: Net,
    listener: Handle,
    room: Buffer,
}

impl Kernel for Echo {
    const ENTRY: &'static str = "echo";

    fn run<G: gpunet_device::Group>(self, group: &G) {
        let listener = gpunet_device::Listener::from_handle(group, self.net, self.listener).expect("open");
        let mut stream = listener.accept(group).expect("accepted");
        loop {
            match stream.recv(group, self.room).expect("data") {
                0 => break,
                n => stream.send_all(group, self.room.first(n)).expect("sent"),
            }
        }
        stream.close(group).expect("open");
    }
}

#[test]
fn a_kernel_serves_a_foreign_program() {
    bounded(|| {
        let served = Served::new(small());
        let proxy = served.attach(small());
        let attachment = proxy.attach_cpu().expect("attached");
        let token = attachment.token().expect("a number");
        let listener = listen(token.net(), TCP);
        let program = attachment.load("", 1).expect("nothing to load");
        let room = attachment.alloc(4096).expect("memory");
        // SAFETY: the buffer outlives the kernel, which alone uses it.
        let launch = unsafe {
            let room = room.buffer();
            let listener = listener.handle();
            attachment.launch(&program, 1, 4, move |net| Echo { net, listener, room })
        };
        let launch = launch.expect("started");
        let mut peer = client(listener.local_addr());
        peer.write_all(b"hello").expect("sent");
        let mut back = [0; 5];
        peer.read_exact(&mut back).expect("an answer");
        assert_eq!(&back, b"hello");
        drop(peer);
        assert_eq!(launch.finish(FinishPolicy::Close).expect("no fault").left_open, 0);
        let left = token.finish(FinishPolicy::Close);
        assert_eq!(left.left_open, 1, "the listener");
        assert_eq!(attachment.close().undelivered, 0);
    });
}

/// What `finish`, `usage` and `close` report of a launch that leaves a stream with data behind.
fn reports(home: Home) -> (usize, usize, usize, u64, u64) {
    let world = World::at(home, small());
    let listener = listen(world.net(), TCP);
    let mut peer = client(listener.local_addr());
    let mut stream = listener.accept(&SOLO).expect("accepted");
    let memory = Memory::filled(3, 0, 1000);
    stream.send_all(&SOLO, memory.buffer()).expect("room");
    let before = world.attachment().usage();
    let (_, attachment, token) = world.apart();
    let left = token.finish(FinishPolicy::Reset).left_open;
    until("the reset is done", || attachment.usage().sockets == 0);
    let after = attachment.usage();
    let mut all = Vec::new();
    let _ = peer.read_to_end(&mut all);
    let report = attachment.close();
    (before.sockets, left, after.sockets, after.ring_bytes - after.free_ring_bytes, report.unfinished)
}

#[test]
fn reports_are_those_of_an_embedded_proxy() {
    bounded(|| assert_eq!(reports(Home::Daemon), reports(Home::Embedded)));
}

#[test]
fn a_host_program_uses_tokio_over_a_daemon() {
    bounded(|| {
        let served = Served::new(small());
        let (here, there) = (served.attach(small()), served.attach(small()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (server, client) = (here.host().expect("attached"), there.host().expect("attached"));
            let listener = server.bind("127.0.0.1:0".parse().unwrap(), TCP, 16).await.expect("a port");
            let addr = listener.local_addr().expect("an address");
            let (connected, accepted) = tokio::join!(client.connect(addr, TCP), listener.accept());
            let (mut connected, (mut accepted, _)) =
                (connected.expect("connected"), accepted.expect("accepted"));
            connected.write_all(b"question").await.expect("sent");
            connected.shutdown().await.expect("open");
            let mut heard = Vec::new();
            accepted.read_to_end(&mut heard).await.expect("data");
            assert_eq!(heard, b"question");
            // A wait that is given up leaves nothing behind.
            let never = listener.accept();
            assert!(tokio::time::timeout(Duration::from_millis(20), never).await.is_err());
            drop((connected, accepted, listener));
            // The other program's connect is another conversation: this answer comes after the
            // close.
            let _ = server.usage();
            // Nobody listens there any more.
            let refused = client.connect(addr, TCP).await.unwrap_err();
            assert_eq!(refused.errno(), Error::ConnectionRefused.errno());
            assert_eq!(server.close().await.undelivered, 0);
            assert_eq!(client.close().await.undelivered, 0);
        });
        served.expect_clients(0);
    });
}

#[test]
fn open_attaches_where_a_daemon_answers_and_embeds_where_none_is() {
    bounded(|| {
        let mut served = Served::new(small());
        let proxy = open(Some(&served.path), small()).expect("a proxy");
        assert!(proxy.daemon().is_some());
        served.kill();
        let proxy = open(Some(&served.path), small()).expect("a proxy");
        assert!(proxy.daemon().is_none());
        let nowhere = TempDir::new();
        let proxy = open(Some(&nowhere.path().join("sock")), small()).expect("a proxy");
        assert!(proxy.daemon().is_none());
        assert!(matches!(attach(&served.path, small()), Err(DaemonError::NotThere { .. })));
        // What is there and is no daemon is an error, not a reason to go on without it.
        let _deaf = listener(&served.path);
        let other = std::os::unix::net::UnixListener::bind(nowhere.path().join("stream")).expect("a socket");
        let refused = open(Some(&nowhere.path().join("stream")), small()).unwrap_err();
        assert!(matches!(refused, OpenError::Daemon(DaemonError::Connect { .. })), "{refused}");
        drop(other);
    });
}

#[test]
fn an_attachment_takes_less_than_10_ms() {
    use gpunet_proxy::Config;
    use std::time::Instant;
    if pauses_seed().is_some() {
        println!("NOT RUN: threads pause");
        return;
    }
    bounded(|| {
        let served = Served::new(small());
        let config = Config { sockets: 64, controls: 32, shared_rings: 1 << 20, ..small() };
        let proxy = served.attach(config);
        let times = (0..10).map(|_| {
            let start = Instant::now();
            let attachment = proxy.attach_cpu().expect("attached");
            let took = start.elapsed();
            drop(attachment);
            took
        });
        let best = times.min().expect("some");
        assert!(best < Duration::from_millis(10), "{best:?}");
    });
}

#[test]
fn a_drained_daemon_delivers_what_was_sent_and_tells_its_clients() {
    bounded(|| {
        let mut served = Served::new(small());
        let proxy = served.attach(small());
        let attachment = proxy.attach_cpu().expect("attached");
        let token = attachment.token().expect("a number");
        let listener = listen(token.net(), TCP);
        let mut peer = client(listener.local_addr());
        let mut stream = listener.accept(&SOLO).expect("accepted");
        stream.send_all(&SOLO, Memory::filled(5, 0, 100_000).buffer()).expect("room");
        let read = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).map(|_| all)
        });
        let drained = served.daemon.take().expect("it runs").drain(Duration::from_secs(10));
        assert_eq!((drained.undelivered, drained.unfinished), (0, 0));
        assert_eq!(read.join().expect("no panic").expect("an orderly end").len(), 100_000);
        let addr = listener.local_addr();
        let refused = Stream::connect_with(&SOLO, token.net(), addr, TCP).map(|_| ());
        assert_eq!(refused, Err(Error::NetworkDown));
        assert!(attach(&served.path, small()).is_err());
        let (usage, stats) = (attachment.usage(), attachment.stats());
        assert_eq!((usage.sockets, stats.opened, stats.closed), (0, 1, 1));
    });
}

#[test]
fn a_program_can_leave_and_come_back() {
    bounded(|| {
        let served = Served::new(small());
        for _ in 0..3 {
            let proxy = served.attach(small());
            let attachment = proxy.attach_cpu().expect("attached");
            let token = attachment.token().expect("a number");
            let net = token.net();
            let waits = std::thread::spawn(move || {
                let listener = listen(net, TCP);
                listener.accept(&Solo::new(0, 1)).map(|_| ())
            });
            until("the accept waits", || attachment.usage().requests == 1);
            proxy.abort();
            assert_eq!(waits.join().expect("no panic"), Err(Error::NetworkDown));
            assert!(proxy.attach_cpu().is_err());
        }
        served.expect_clients(0);
    });
}
