//! A program that is attached, as gpunetctl shows it.

use crate::daemon::{GPUNETCTL, Running, TempDir, clean, gpunetd, output, text};
use gpunet_proxy::abi::Options;
use gpunet_proxy::device::{Error, Group, Kernel, Listener, Net, SockAddr};
use gpunet_proxy::{Config, FinishPolicy};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn its_sockets_are_shown_and_drained() {
    let dir = TempDir::new();
    let mut daemon = Running::start(&mut gpunetd(&dir));
    let proxy = gpunet_proxy::attach(&dir.join("d.sock"), Config::small()).expect("attached");
    let host = proxy.host().expect("a host");
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = host.bind(any, Options::DEFAULT, 16).await.expect("bound");
    let addr = listener.local_addr().expect("bound");
    let mut foreign = tokio::net::TcpStream::connect(addr).await.expect("connected");
    let (mut stream, _) = listener.accept().await.expect("accepted");
    stream.write_all(&[7; 1000]).await.expect("sent");
    foreign.read_exact(&mut [0; 1000]).await.expect("received");

    let ctl = |args: &[&str]| {
        text(&output(clean(GPUNETCTL).arg("--path").arg(dir.join("d.sock")).args(args)).stdout)
    };
    let table = ctl(&["ss"]);
    eprintln!("{table}\n{}", ctl(&["clients"]));
    let line =
        |state: &str| table.lines().find(|line| line.starts_with(state)).unwrap_or_default().to_owned();
    assert!(line("listen").contains(&addr.to_string()), "{table}");
    for word in [&addr.to_string(), "tcp", "pinned", " 1000 ", &format!("{}/", std::process::id())] {
        assert!(line("established").contains(word), "{word}: {table}");
    }
    assert_eq!(ctl(&["ss", "--listening"]).lines().count(), 2);

    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

#[test]
fn what_the_host_program_has_taken_is_shown_and_ends_with_it() {
    let dir = TempDir::new();
    let daemon = Running::start(&mut gpunetd(&dir));
    let attachment = || {
        let proxy = gpunet_proxy::attach(&dir.join("d.sock"), Config::small()).expect("attached");
        proxy.attach_cpu().expect("attached")
    };
    let (ours, other) = (attachment(), attachment());
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = other.listen_blocking(any, Options::DEFAULT, 4).expect("listening");
    let socket = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept_blocking().expect("a connection").into_handle());
        let socket = ours.connect_blocking(listener.local_addr(), Options::DEFAULT).expect("connected");
        accepted.join().expect("no panic");
        socket
    });
    let snapshot = || {
        let json = clean(GPUNETCTL).arg("--path").arg(dir.join("d.sock")).args(["ss", "--json"]).output();
        let json = text(&json.expect("it runs").stdout);
        serde_json::from_str::<gpunet_proxy::snapshot::Snapshot>(&json).expect("JSON")
    };
    // Of the sockets that are no listeners, the sending directions that are taken, and the
    // receiving ones.
    let taken = || {
        let all = snapshot().sockets;
        assert!(all.iter().all(|socket| socket.host), "{all:?}");
        (
            all.iter().filter(|socket| socket.send_taken).count(),
            all.iter().filter(|socket| socket.recv_taken).count(),
        )
    };
    assert_eq!(taken(), (0, 0));
    let (sender, receiver) = (socket.take_send().expect("free"), socket.take_recv().expect("free"));
    assert_eq!(taken(), (1, 1));
    let shown = text(&output(clean(GPUNETCTL).arg("--path").arg(dir.join("d.sock")).arg("ss")).stdout);
    assert!(shown.contains(" send,recv ") && shown.contains(" open "), "{shown}");
    sender.give_back().expect("unknown");
    assert_eq!(taken(), (0, 1));
    // Whatever the program said last goes with its attachment.
    let client = snapshot().sockets.iter().find(|socket| socket.recv_taken).expect("one").client;
    drop(ours);
    drop((receiver, socket));
    assert!(snapshot().sockets.iter().all(|socket| socket.client != client && !socket.recv_taken));
    drop((other, daemon));
}

/// Waits for a connection that nobody makes.
#[derive(Clone, Copy)]
#[repr(C)]
struct Stall {
    net: Net,
}

impl Kernel for Stall {
    const ENTRY: &'static str = "stall";
    fn run<G: Group>(self, g: &G) {
        if g.index() == 1 {
            let any = SockAddr::v4([127, 0, 0, 1], 0);
            let listener = Listener::bind(g, self.net, any).expect("bound");
            assert_eq!(listener.accept(g).map(drop), Err(Error::Canceled));
        }
    }
}

#[test]
fn what_a_block_waits_for_is_shown_while_it_waits() {
    let dir = TempDir::new();
    let daemon = Running::start(&mut gpunetd(&dir));
    let proxy = gpunet_proxy::attach(&dir.join("d.sock"), Config::small()).expect("attached");
    let attachment = proxy.attach_cpu().expect("attached");
    let program = attachment.load("", 2).expect("loaded");
    // SAFETY: the kernel is given no memory.
    let launch = unsafe { attachment.launch(&program, 2, 2, |net| Stall { net }) }.expect("launched");
    let top = |args: &[&str]| {
        text(&output(clean(GPUNETCTL).arg("--path").arg(dir.join("d.sock")).arg("top").args(args)).stdout)
    };
    // It is shown once it has waited for a while. Before, it may have waited for replies.
    let begun = Instant::now();
    let table = loop {
        let table = top(&[]);
        if table.contains("accept") || begun.elapsed() > Duration::from_secs(30) {
            break table;
        }
    };
    let cells: Vec<_> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    let (launch_number, block, call) = (cells[3], cells[4], cells[5]);
    assert_eq!(
        (cells[0], launch_number, block, call),
        (&*std::process::id().to_string(), "0", "1", "accept")
    );
    assert!(table.contains("listens at 127.0.0.1:"), "{table}");
    launch.cancel();
    launch.finish(FinishPolicy::Close).expect("ended");
    assert_eq!(top(&["--json"]), "[]\n", "nobody waits any more");
    drop((attachment, daemon));
}
