//! What attackers do. Each plays one round, and is played again until it is killed; it may fail.

use crate::innocent::meeting;
use crate::raw::{AgentAnswer, MAGIC, Raw, ToDaemon, Want, Wish, bytes, gpu, hello, wish};
use crate::support::SOLO;
use crate::support::world::LOOPBACK;
use gpu_usermap::PinnedRegion;
use gpunet_device::abi::SockAddr;
use gpunet_device::abi::control::{Op, Request};
use gpunet_device::{Error, Listener, Options, Stream, Timeout, TransportKind};
use gpunet_proxy::{Config, attach, daemon};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The user that may attach, and one that may not.
pub const ALLOWED: u32 = 4242;
pub const STRANGER: u32 = 4243;

/// The file beside the daemon's socket that says where an innocent client listens over peer.
pub const PEER_LISTENER: &str = "peer-listener";

pub struct Attack {
    pub name: &'static str,
    pub user: u32,
    pub play: fn(&Path),
}

pub const ATTACKS: &[Attack] = &[
    Attack { name: "descriptors passed", user: STRANGER, play: descriptors_passed },
    Attack { name: "connections", user: STRANGER, play: connections },
    Attack { name: "backlogs", user: ALLOWED, play: backlog },
    Attack { name: "binds", user: ALLOWED, play: binds },
    Attack { name: "descriptors taken", user: ALLOWED, play: descriptors },
    Attack { name: "attach and die", user: ALLOWED, play: attachments },
    Attack { name: "last slots", user: ALLOWED, play: last_slots },
    Attack { name: "large rings", user: ALLOWED, play: large_rings },
    Attack { name: "garbage", user: ALLOWED, play: garbage },
    Attack { name: "scribbled words", user: ALLOWED, play: scribble },
    Attack { name: "no reader", user: ALLOWED, play: no_reader },
    Attack { name: "snapshots", user: ALLOWED, play: snapshots },
    Attack { name: "lying agents", user: ALLOWED, play: lying_agents },
    Attack { name: "roots of teams", user: STRANGER, play: roots },
    Attack { name: "meetings of teams", user: STRANGER, play: meetings },
    Attack { name: "snapshots unread", user: ALLOWED, play: unread_snapshots },
    Attack { name: "all memory", user: ALLOWED, play: all_memory },
    Attack { name: "ask and die", user: ALLOWED, play: ask_and_die },
];

const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(4096, 4096);

fn with_sockets(path: &Path, sockets: u32) -> Raw {
    let raw = Raw::connect(path);
    raw.send(&hello(&Want::Attach(Wish { sockets, ..wish() })));
    assert!(raw.first().is_some());
    raw
}

/// A socket whose last close takes an hour, unless its peer is closed.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (far, _) = listener.accept().expect("a connection");
    near.set_nonblocking(true).expect("a socket");
    while near.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&near, Some(Duration::from_secs(3600))).expect("a socket");
    (near, far)
}

/// Passes sockets whose last close takes an hour.
fn descriptors_passed(path: &Path) {
    let (near, far) = lingering();
    let raw = Raw::connect(path);
    let sent = raw.send_with(b"x", &[near.as_fd()]).is_ok();
    if sent {
        // The last close is the daemon's, and it takes as long as this program lives.
        std::mem::forget(far);
    } else {
        // The attacker's own close is not to wait.
        set_socket_linger(&near, None).expect("a socket");
    }
}

/// Connects to the sockets of all teams, and passes sockets whose last close takes an hour, where
/// the kernel lets it.
fn roots(_: &Path) {
    let (near, _far) = lingering();
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("this is Linux");
    let names = sockets.lines().filter_map(|line| line.rsplit_once('@')).map(|(_, name)| name);
    let mut all = Vec::new();
    for name in names.filter(|name| name.starts_with("gpunet-team-")) {
        let to = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
        for n in 0..200 {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let made =
                socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
            if rustix::net::connect(&made, &to).is_ok() {
                let raw = Raw(made);
                let _ = n % 2 == 0 && raw.send_with(b"x", &[near.as_fd()]).is_ok();
                all.push(raw);
            }
        }
    }
    drop(all);
    set_socket_linger(&near, None).expect("a socket");
}

/// Connects to where a team meets, and says half a hello or nothing.
fn meetings(path: &Path) {
    let at = std::fs::read_to_string(meeting(path)).expect("it is there").parse().expect("an address");
    let mut all = Vec::new();
    for n in 0..300 {
        let Ok(mut socket) = TcpStream::connect_timeout(&at, Duration::from_millis(100)) else { continue };
        // It leaves nothing behind.
        set_socket_linger(&socket, Some(Duration::ZERO)).expect("a socket");
        let _ = n % 3 == 0 && socket.write_all(&[40, 0]).is_ok();
        all.push(socket);
    }
}

/// As many connections as there can be, some of which say something.
fn connections(path: &Path) {
    let all: Vec<_> = (0..500)
        .map(|n| {
            let raw = Raw::connect(path);
            match n % 4 {
                0 => raw.try_send(MAGIC),
                1 => raw.try_send(&hello(&Want::Probe)),
                _ => {}
            }
            raw
        })
        .collect();
    drop(all);
}

/// Fills a backlog and closes it.
fn backlog(path: &Path) {
    let raw = with_sockets(path, 1 << 16);
    let mut bind = Request::new(Op::Bind, 0, 1, 0);
    (bind.flags, bind.backlog, bind.address, bind.options) = (Request::LISTEN, u32::MAX, LOOPBACK, PEER);
    raw.ask(0, &bind);
    let reply = raw.reply();
    for slot in 1..=20_000 {
        let mut connect = Request::new(Op::Connect, slot, 1, 0);
        (connect.address, connect.options) = (reply.descriptor.local, PEER);
        raw.ask(slot, &connect);
    }
    raw.ask(0, &Request::new(Op::Close, 0, 1, 0));
    (0..20_000).for_each(|_| drop(raw.next()));
}

/// Binds as fast as it can.
fn binds(path: &Path) {
    let raw = with_sockets(path, 4096);
    for generation in 1..4 {
        for slot in 0..4096 {
            let mut bind = Request::new(Op::Bind, slot, generation, 0);
            (bind.flags, bind.address) = (Request::LISTEN, LOOPBACK);
            raw.ask(slot, &bind);
        }
        (0..4096).for_each(|_| drop(raw.next()));
    }
}

/// Opens sockets until there are no more, and holds them for a moment.
fn descriptors(path: &Path) {
    let config = Config { sockets: 8192, shared_rings: 128 << 20, ..Config::small() };
    let attachment = attach(path, config).expect("allowed").attach_cpu().expect("attached");
    let token = attachment.token().expect("a number");
    let mut open = Vec::new();
    loop {
        match Listener::bind(&SOLO, token.net(), LOOPBACK) {
            Ok(listener) => open.push(listener),
            Err(Error::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            Err(_) => break,
        }
    }
    std::thread::sleep(Duration::from_millis(200));
}

fn attachments(path: &Path) {
    let all: Vec<_> = (0..40).map(|_| with_sockets(path, 1024)).collect();
    drop(all);
}

/// Idle streams in the last slots of many attachments that say they are GPUs.
fn last_slots(path: &Path) {
    let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = SockAddr::from_std(plain.local_addr().expect("an address"));
    let all: Vec<_> = (0..40)
        .map(|_| {
            let raw = Raw::connect(path);
            raw.send(&hello(&Want::Attach(Wish { sockets: 1 << 14, device: gpu(), ..wish() })));
            assert!(raw.first().is_some());
            let mut connect = Request::new(Op::Connect, (1 << 14) - 1, 1, 0);
            connect.address = to;
            connect.options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
            raw.ask(0, &connect);
            raw
        })
        .collect();
    std::thread::sleep(Duration::from_secs(2));
    drop(all);
}

/// Connects with the largest rings, which nobody accepts.
fn large_rings(path: &Path) {
    let proxy = attach(path, Config::small()).expect("allowed");
    let [one, other] = [(); 2].map(|()| proxy.attach_cpu().expect("attached"));
    let [token, far] = [&one, &other].map(|attachment| attachment.token().expect("a number"));
    let large = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(1 << 28, 1 << 28);
    let listener = Listener::bind_with(&SOLO, far.net(), LOOPBACK, PEER, 64).expect("a port");
    for _ in 0..20 {
        let options = large.with_timeouts(Timeout::ms(1), Timeout::ms(1));
        let _ = Stream::connect_with(&SOLO, token.net(), listener.local_addr(), options);
    }
}

fn garbage(path: &Path) {
    for seed in 0u32..200 {
        let noise: Vec<u8> =
            (0..1 + seed * 7).map(|i| (i.wrapping_mul(2_654_435_761) ^ seed) as u8).collect();
        Raw::connect(path).try_send(&noise);
        let raw = with_sockets(path, 16);
        raw.try_send(&noise);
        raw.try_send(&bytes(&ToDaemon::Agent(AgentAnswer::Mapped { arena: seed })));
    }
}

/// Writes into the shared region what nobody who keeps to the contract writes, while streams are
/// open.
fn scribble(path: &Path) {
    const SOCKETS: u32 = 64;
    let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = SockAddr::from_std(plain.local_addr().expect("an address"));
    let seed = RandomState::new().build_hasher().finish();
    let mut numbers = (1u64..).map(|n| (seed ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    let mut number = move || numbers.next().expect("endless").wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let raw = Raw::connect(path);
    raw.send(&hello(&Want::Attach(Wish { sockets: SOCKETS, shared_rings: 1 << 20, ..wish() })));
    let mut fds = raw.descriptors().into_iter();
    let region = PinnedRegion::from_trusted_fd(fds.next().expect("a region")).expect("shared memory");
    let doorbells: Vec<_> = fds.collect();
    for slot in 0..SOCKETS {
        let mut connect = Request::new(Op::Connect, slot, 1, 0);
        (connect.address, connect.options) = (to, Options::DEFAULT.with_rings(4096, 4096));
        raw.ask(slot, &connect);
    }
    let mut peers: Vec<_> = (0..SOCKETS).map(|_| plain.accept().expect("a connection").0).collect();
    // What is before the rings: the header, the words, the control slots, the lines.
    let words = (region.len() as u64 - (1 << 20)) / 8;
    for round in 0..100_000 {
        let (at, what) = (number(), number());
        // The words that the daemon looks at come after the header: published, consumed, requests,
        // given up.
        let at = if round % 4 == 0 { at % words } else { 512 + at % (4 * 512) };
        let word = region.base().as_ptr().cast::<u64>().wrapping_add(at as usize);
        // Anything; a small step; small, with the marks of an end or of an error.
        let value = |now: u64| match what % 4 {
            0 => what,
            1 => now.wrapping_add(what >> 8 & 0xfff),
            2 => what >> 8 & 0x1fff,
            _ => what >> 8 & 0x1fff | (what & 3) << 61,
        };
        // SAFETY: an aligned word of the region, which stays mapped; all its users access it by
        // atomic operations, or as plain integers that they do not believe.
        let word = unsafe { AtomicU64::from_ptr(word) };
        word.store(value(word.load(Ordering::Relaxed)), Ordering::Relaxed);
        if round % 256 == 0 {
            let peer = &mut peers[at as usize % SOCKETS as usize];
            let _ = peer.set_nonblocking(true).and_then(|()| peer.write(&[1; 512]));
            let _ = rustix::io::write(&doorbells[at as usize % doorbells.len()], &1u64.to_le_bytes());
        }
    }
}

/// Connects to an innocent listener over peer, and answers wrongly to what its agent is asked then.
fn lying_agents(path: &Path) {
    let at = std::fs::read_to_string(path.with_file_name(PEER_LISTENER)).expect("somebody listens");
    let to = SockAddr::from_std(at.parse().expect("an address"));
    for round in 0..100 {
        let raw = Raw::attached(path);
        raw.give_up_after(Duration::from_millis(500));
        raw.connect_peer(to);
        let Some((_, arena)) = raw.asked() else { continue };
        let failed = || AgentAnswer::Failed { arena, reason: "a lie".to_owned() };
        let answers = match round % 6 {
            0 => vec![failed()],
            1 => vec![failed(), AgentAnswer::Unmapped { arena }],
            2 => vec![AgentAnswer::Mapped { arena }],
            3 => vec![AgentAnswer::Mapped { arena }, failed()],
            4 => vec![AgentAnswer::Unmapped { arena }, AgentAnswer::Unmapped { arena }],
            _ => Vec::new(),
        };
        answers.into_iter().for_each(|answer| raw.answer(answer));
        if round % 2 == 0 {
            raw.try_send(&bytes(&ToDaemon::Detach));
        }
    }
}

/// Asks and does not read.
fn no_reader(path: &Path) {
    let raw = with_sockets(path, 1 << 14);
    raw.give_up_after(Duration::from_millis(100));
    for call in 0..20_000 {
        raw.send(&bytes(&ToDaemon::Usage { call }));
    }
}

fn snapshots(path: &Path) {
    (0..1000).for_each(|_| drop(daemon::snapshot(path)));
}

/// Asks for many snapshots of many sockets at once and reads none of them.
fn unread_snapshots(path: &Path) {
    let raw = with_sockets(path, 4096);
    for slot in 0..4096 {
        let mut bind = Request::new(Op::Bind, slot, 1, 0);
        bind.address = LOOPBACK;
        raw.ask(slot, &bind);
        drop(raw.next());
    }
    let looking: Vec<_> = (0..8)
        .map(|_| {
            let raw = Raw::connect(path);
            raw.send(&hello(&Want::Admin));
            raw
        })
        .collect();
    for raw in &looking {
        raw.give_up_after(Duration::from_millis(100));
        (0..200).for_each(|_| raw.try_send(&bytes(&ToDaemon::Snapshot)));
    }
}

/// Takes ring memory until there is no more, and holds it for a moment.
fn all_memory(path: &Path) {
    let proxy = attach(path, Config { shared_rings: 128 << 20, ..Config::small() }).expect("allowed");
    let held: Vec<_> = std::iter::from_fn(|| proxy.attach_cpu().ok()).collect();
    std::thread::sleep(Duration::from_millis(500));
    drop(held);
}

/// Leaves a long queue of requests behind.
fn ask_and_die(path: &Path) {
    let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = SockAddr::from_std(plain.local_addr().expect("an address"));
    let raw = with_sockets(path, 1 << 14);
    for slot in 0..1 << 14 {
        let mut connect = Request::new(Op::Connect, slot, 1, 0);
        (connect.address, connect.options) = (to, Options::DEFAULT.with_rings(4096, 4096));
        raw.ask(slot, &connect);
    }
}
