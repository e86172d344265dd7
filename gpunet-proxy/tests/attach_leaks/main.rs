//! What programs bring to a daemon is given back, whichever way they end: descriptors, threads,
//! memory. One test, in a process of its own, so that the counts are exact.

#[path = "../attach/raw.rs"]
#[allow(dead_code, reason = "shared with the suite")]
mod raw;
#[path = "../support/mod.rs"]
mod support;

use gpunet_device::cpu::GracePeriod;
use gpunet_device::poll::{POLLIN, poll};
use gpunet_device::{
    Buffer, Error, Group, Handle, Kernel, Listener, Net, Options, SockAddr, Stream, Timeout, TransportKind,
};
use gpunet_proxy::{FinishPolicy, attach};
use raw::{AgentAnswer, First, Raw, ToDaemon, Want, Wish, bytes, hello, wish};
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::daemon::Served;
use support::pair::connect;
use support::world::listen;
use support::{Memory, PollMemory, SOLO, bounded, small, until};

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);
const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer);
const DAEMON: &str = "GPUNET_TEST_ATTACH_TO";
const CONNECT: &str = "GPUNET_TEST_CONNECT_TO";

/// The process's descriptors, and its mappings of regions.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this is Linux");
    let regions = maps.lines().filter(|line| line.contains("/memfd:gpunet")).count();
    (std::fs::read_dir("/proc/self/fd").expect("this is Linux").count(), regions)
}

/// What is held once nothing is on its way back any more: large regions are freed by another
/// thread.
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
            until(&format!("{name}: {before:?} descriptors and regions again"), || {
                // Where this machine is busy, some was on its way back yet when it was counted.
                let now = held();
                now.0 <= before.0 && now.1 <= before.1
            });
        }
        peers(&served);
    });
}

/// Serves one peer after another, beside a block that polls and one that receives, both in vain.
#[derive(Clone, Copy)]
struct Server {
    net: Net,
    listener: Handle,
    idle: Handle,
    room: Buffer,
}

impl Kernel for Server {
    const ENTRY: &'static str = "server";

    fn run<G: Group>(self, group: &G) {
        match group.index() {
            0 => {
                let listener = Listener::from_handle(group, self.net, self.listener).expect("open");
                while let Ok(mut stream) = listener.accept(group) {
                    let _ = stream.recv_exact(group, self.room.first(64));
                    let _ = stream.send_all(group, self.room.first(64));
                    let _ = stream.recv(group, self.room);
                    stream.close(group).expect("open");
                }
            }
            1 => {
                let memory = PollMemory::new(&[(self.idle.raw(), POLLIN)]);
                assert_eq!(poll(group, self.net, memory.set(), Timeout::NEVER), Err(Error::Canceled));
            }
            _ => {
                let mut idle = Stream::from_handle(group, self.net, self.idle).expect("open");
                assert_eq!(idle.recv(group, self.room.skip(64)), Err(Error::Canceled));
            }
        }
    }
}

/// The process's mappings, and its addresses in MiB.
fn mapped() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this is Linux");
    let pages = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let pages: usize = pages.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
    (maps.lines().count(), (pages * 4096) >> 20)
}

/// Peers that come and go take neither mappings nor addresses of a program whose launch goes on.
fn peers(served: &Served) {
    const WARM_UP: usize = 20;
    const PEERS: usize = 300;
    let attachment = served.attached();
    let token = attachment.token().expect("a number");
    let listener = listen(token.net(), PEER);
    // A peer that stays.
    let other = served.attached();
    let other_token = other.token().expect("a number");
    let [_, idle] = connect(other_token.net(), &listener, PEER).map(|stream| stream.handle());
    let program = attachment.load("", 1).expect("nothing to load");
    let room = attachment.alloc(128).expect("memory");
    // SAFETY: the buffer outlives the kernel, which alone uses it.
    let launch = unsafe {
        let room = room.buffer();
        let listener = listener.handle();
        attachment.launch(&program, 3, 1, move |net| Server { net, listener, idle, room })
    };
    let launch = launch.expect("started");
    let mut before = (0, 0);
    for number in 0..WARM_UP + PEERS {
        if number == WARM_UP {
            served.expect_clients(2);
            before = mapped();
        }
        let peer = served.attached();
        let token = peer.token().expect("a number");
        let mut stream =
            Stream::connect_with(&SOLO, token.net(), listener.local_addr(), PEER).expect("connected");
        let memory = Memory::filled(number as u64, 0, 64);
        stream.send_all(&SOLO, memory.buffer()).expect("sent");
        let back = Memory::new(64);
        assert_eq!(stream.recv_exact(&SOLO, back.buffer()), Ok(64));
        assert!(back.holds(0, 64, number as u64, 0));
        // Every other one leaves its stream to the daemon.
        if number % 2 == 0 {
            stream.close(&SOLO).expect("open");
        }
    }
    served.expect_clients(2);
    let after = mapped();
    println!("mappings and MiB of addresses: {before:?}, and {after:?} after {PEERS} peers");
    assert!(after.0 <= before.0 + 64, "{before:?} mappings, then {after:?}");
    if GracePeriod::can_end() {
        // Each had an arena of more than 4 MiB.
        assert!(after.1 <= before.1 + 400, "{before:?} MiB of addresses, then {after:?}");
    } else {
        support::not_run(
            "the addresses of peers that are gone",
            "they are used again only with membarrier(2)",
        );
    }
    launch.cancel();
    launch.finish(FinishPolicy::Close).expect("no fault");
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
    let attachment = served.attached();
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
