//! What programs bring to a daemon is given back, whichever way they end: descriptors, threads, memory.
//! One test, in a process of its own, so that the counts are exact.

#[path = "../attach/raw.rs"]
#[allow(dead_code, reason = "shared with the suite")]
mod raw;
#[path = "../support/mod.rs"]
mod support;

use gpunet_device::{Options, SockAddr, Stream, TransportKind};
use gpunet_proxy::attach;
use raw::{AgentAnswer, First, Raw, ToDaemon, Want, Wish, bytes, hello, wish};
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::daemon::Served;
use support::world::listen;
use support::{Memory, SOLO, bounded, small, until};

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);
const DAEMON: &str = "GPUNET_TEST_ATTACH_TO";
const CONNECT: &str = "GPUNET_TEST_CONNECT_TO";

/// The process's descriptors, and its mappings of regions.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this is Linux");
    let regions = maps.lines().filter(|line| line.contains("/memfd:gpunet")).count();
    (std::fs::read_dir("/proc/self/fd").expect("this is Linux").count(), regions)
}

/// What is held once nothing is on its way back any more: large regions are freed by another thread.
fn settled() -> (usize, usize) {
    let mut last = held();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = held();
        if now == last {
            return now;
        }
        last = now;
    }
}

#[test]
fn everything_comes_back() {
    // The program that is killed is this one, started again.
    if let (Some(daemon), Ok(peer)) = (std::env::var_os(DAEMON), std::env::var(CONNECT)) {
        return program(Path::new(&daemon), &peer);
    }
    bounded(|| {
        let served = Served::new(small());
        // The first of everything leaves what its runtime keeps.
        for phase in [killed, closed, aborted, strange] {
            phase(&served);
        }
        served.expect_clients(0);
        for (name, phase) in [
            ("killed", killed as fn(&Served)),
            ("closed", closed),
            ("aborted", aborted),
            ("strange", strange),
        ] {
            let before = settled();
            (0..5).for_each(|_| phase(&served));
            served.expect_clients(0);
            until(&format!("{name}: {before:?} descriptors and regions again"), || held() == before);
        }
    });
}

/// Sends, opens a listener, says so, and waits to be killed.
fn program(daemon: &Path, peer: &str) {
    let attachment = attach(daemon, small()).expect("a daemon").attach_cpu().expect("attached");
    let token = attachment.token().expect("a number");
    let addr = SockAddr::from_std(peer.parse().expect("an address"));
    let mut stream = Stream::connect_with(&SOLO, token.net(), addr, TCP).expect("connected");
    let _listener = listen(token.net(), TCP);
    stream.send_all(&SOLO, Memory::filled(7, 0, 10_000).buffer()).expect("sent");
    let _ = stream.recv(&SOLO, Memory::new(1).buffer());
    unreachable!("it was to be killed");
}

fn killed(served: &Served) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .env(DAEMON, &served.path)
        .env(CONNECT, listener.local_addr().expect("an address").to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("this program again");
    let (mut peer, _) = listener.accept().expect("a connection");
    peer.read_exact(&mut [0; 10_000]).expect("what it sent");
    child.kill().expect("SIGKILL");
    child.wait().expect("dead");
    assert!(peer.read(&mut [0]).is_err());
}

fn closed(served: &Served) {
    let attachment = served.attach(small()).attach_cpu().expect("attached");
    assert_eq!(attachment.close().undelivered, 0);
}

fn aborted(served: &Served) {
    let proxy = served.attach(small());
    let attachment = proxy.attach_cpu().expect("attached");
    proxy.abort();
    drop(attachment);
}

fn strange(served: &Served) {
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    for count in [0, 1, 17, 18, 40] {
        let fds: Vec<BorrowedFd<'_>> = (0..count).map(|_| null.as_fd()).collect();
        let raw = Raw::connect(&served.path);
        if raw.offer(&hello(&Want::Probe), &fds) {
            raw.expect_closed();
        }
        for raw in [Raw::attached(&served.path), Raw::attached_gpu(&served.path)] {
            if raw.offer(&[0xff, 1], &fds) {
                raw.expect_closed();
            }
        }
    }
    let card = Wish { card: Some((1 << 40, 0, 1 << 30)), device_rings: 1 << 16, ..wish() };
    let raw = Raw::connect(&served.path);
    raw.send(&hello(&Want::Attach(card)));
    assert!(matches!(raw.first(), Some(First::SendCard)));
    raw.send_with(&bytes(&ToDaemon::Card), &[null.as_fd()]).expect("sent");
    assert!(matches!(raw.first(), Some(First::Refused { .. })));
    let raw = Raw::attached_gpu(&served.path);
    let provided = bytes(&ToDaemon::Agent(AgentAnswer::Provided { arena: 0, len: 1 }));
    raw.send_with(&provided, &[null.as_fd()]).expect("sent");
    raw.expect_closed();
}
