//! Ten thousand sockets open through one gpunetd, a hundred connections of which are busy: two
//! processes, half of the connections through memory, half over TCP. Counts are checked, and every
//! byte; times and sizes are printed only.

#[path = "../gpunetd/daemon.rs"]
#[allow(dead_code, reason = "its suite uses all of it")]
mod daemon;
#[path = "../support/mod.rs"]
mod support;

use daemon::{Running, TempDir, gpunetd};
use gpunet_device::{Buffer, Error, Handle, Listener, Net, Options, SockAddr, Stream, TransportKind};
use gpunet_proxy::snapshot::{Snapshot, State, Transport};
use gpunet_proxy::{Attachment, Config, FinishPolicy, attach};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::process::{Program, say, wait};
use support::{SOLO, not_run, pattern, until};

/// Connections of each transport: twice as many sockets.
const EACH: usize = 2500;
/// Connections of each transport that are busy, and threads that keep them so.
const BUSY: usize = 50;
const THREADS: usize = 4;
const BUSY_FOR: Duration = Duration::from_secs(2);
const MESSAGE: usize = 64;
/// Descriptors that the daemon needs: a TCP socket for each end, and room to spare.
const DESCRIPTORS: u64 = 6000;
/// No program lives longer.
const LIFE: Duration = Duration::from_secs(100);

const ROLE: &str = "GPUNET_SCALE_ROLE";
const DAEMON: &str = "GPUNET_SCALE_DAEMON";
const ADDR: &str = "GPUNET_SCALE_ADDR";

fn options(kind: TransportKind) -> Options {
    Options::DEFAULT.with_transport(kind).with_rings(4096, 4096)
}

fn start_program(role: &str, daemon: &Path, addr: &str) -> Program {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "program", "--nocapture"]).env(ROLE, role).env(DAEMON, daemon).env(ADDR, addr);
    Program::start(&mut command)
}

/// Not a test: each of the two processes.
#[test]
fn program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    std::thread::spawn(|| {
        std::thread::sleep(LIFE);
        std::process::exit(9);
    });
    let path: PathBuf = std::env::var_os(DAEMON).expect("a path").into();
    let sockets = 2 * EACH as u32 + 64;
    let config = Config { sockets, controls: 64, shared_rings: 32 << 20, ..Config::small() };
    let attachment = attach(&path, config).expect("a daemon").attach_cpu().expect("attached");
    let token = attachment.token().expect("a number");
    match role.as_str() {
        "server" => serve(&attachment, token.net()),
        _ => connect(&attachment, token.net()),
    }
    assert_eq!(token.finish(FinishPolicy::Close).left_open, 0);
    assert_eq!(attachment.close().unfinished, 0);
    say("closed");
    std::process::exit(0);
}

fn room(bytes: &mut [u8]) -> Buffer {
    // SAFETY: the caller's bytes, which it does not use while the call goes on.
    unsafe { Buffer::from_raw_parts(bytes.as_mut_ptr(), bytes.len()) }
}

/// Uses the stream of a handle.
fn with<R>(net: Net, handle: Handle, act: impl FnOnce(&mut Stream) -> R) -> R {
    act(&mut Stream::from_handle(&SOLO, net, handle).expect("open"))
}

/// Returns whether a connection is one of the busy ones.
fn is_busy(number: usize) -> bool {
    number % EACH < BUSY
}

fn close_all(attachment: &Attachment, net: Net, handles: &[Handle]) {
    for &handle in handles {
        Stream::from_handle(&SOLO, net, handle).and_then(|stream| stream.close(&SOLO)).expect("open");
    }
    until("all but the listener are closed", || attachment.usage().sockets <= 1);
}

fn serve(attachment: &Attachment, net: Net) {
    let home = SockAddr::v4([127, 0, 0, 1], 0);
    let listener =
        Listener::bind_with(&SOLO, net, home, options(TransportKind::Auto), 128).expect("a free port");
    say(listener.local_addr().to_std().expect("an address"));
    let mut handles = vec![None; 2 * EACH];
    for _ in 0..2 * EACH {
        let mut stream = listener.accept(&SOLO).expect("accepted");
        // The first bytes say which it is.
        let mut number = [0; 8];
        assert_eq!(stream.recv_exact(&SOLO, room(&mut number)), Ok(8));
        handles[u64::from_le_bytes(number) as usize] = Some(stream.handle());
    }
    let handles: Vec<Handle> = handles.into_iter().map(|handle| handle.expect("each came once")).collect();
    say("open");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let busy = (0..2 * EACH).filter(|&number| is_busy(number) && number % THREADS == thread);
            let mut streams: Vec<Handle> = busy.map(|number| handles[number]).collect();
            scope.spawn(move || {
                let mut bytes = [0; MESSAGE];
                // In turn, as the other side sends, until the end of each.
                while !streams.is_empty() {
                    streams.retain(|&handle| {
                        with(net, handle, |stream| {
                            let got = stream.recv_exact(&SOLO, room(&mut bytes)).expect("data");
                            assert!(got == MESSAGE || got == 0, "{got}");
                            if got > 0 {
                                stream.send_all(&SOLO, room(&mut bytes)).expect("sent");
                            }
                            got > 0
                        })
                    });
                }
            });
        }
    });
    say("idle");
    wait();
    close_all(attachment, net, &handles);
    listener.close(&SOLO).expect("open");
}

fn connect(attachment: &Attachment, net: Net) {
    let addr = SockAddr::from_std(std::env::var(ADDR).expect("an address").parse().expect("an address"));
    let mut handles = Vec::with_capacity(2 * EACH);
    for number in 0..2 * EACH {
        let kind = if number < EACH { TransportKind::Peer } else { TransportKind::Tcp };
        let mut stream = loop {
            match Stream::connect_with(&SOLO, net, addr, options(kind)) {
                Ok(stream) => break stream,
                // Faster than a user may connect.
                Err(Error::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => panic!("connection {number}: {error}"),
            }
        };
        stream.send_all(&SOLO, room(&mut (number as u64).to_le_bytes())).expect("sent");
        handles.push(stream.handle());
    }
    say("open");
    wait();
    let (stop, messages) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let busy = (0..2 * EACH).filter(|&number| is_busy(number) && number % THREADS == thread);
            let busy: Vec<(usize, Handle)> = busy.map(|number| (number, handles[number])).collect();
            let (stop, messages) = (&stop, &messages);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    let message = |number: usize| -> [u8; MESSAGE] {
                        std::array::from_fn(|i| pattern(number as u64, round * MESSAGE + i))
                    };
                    for &(number, handle) in &busy {
                        with(net, handle, |stream| stream.send_all(&SOLO, room(&mut message(number))))
                            .expect("sent");
                    }
                    for &(number, handle) in &busy {
                        let mut back = [0; MESSAGE];
                        let got = with(net, handle, |stream| stream.recv_exact(&SOLO, room(&mut back)));
                        assert_eq!((got, back), (Ok(MESSAGE), message(number)), "of connection {number}");
                        messages.fetch_add(1, Ordering::Relaxed);
                    }
                    round += 1;
                }
                for &(_, handle) in &busy {
                    with(net, handle, |stream| stream.shutdown(&SOLO, gpunet_device::Shutdown::Write));
                }
            });
        }
        std::thread::sleep(BUSY_FOR);
        stop.store(true, Ordering::Relaxed);
    });
    say(messages.load(Ordering::Relaxed));
    wait();
    // It has no listener.
    for &handle in &handles {
        Stream::from_handle(&SOLO, net, handle).and_then(|stream| stream.close(&SOLO)).expect("open");
    }
    until("all are closed", || attachment.usage().sockets == 0);
}

/// Kilobytes, by their name in /proc/PID/status.
fn memory(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// CPU time so far.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|&at| fields.get(at)?.parse::<u64>().ok()).sum();
    // USER_HZ is 100 on every Linux.
    Duration::from_millis(10 * ticks)
}

fn more_descriptors() -> bool {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= DESCRIPTORS) {
        return true;
    }
    let wanted = maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok() && wanted == DESCRIPTORS
}

#[test]
fn ten_thousand_sockets() {
    if !more_descriptors() {
        return not_run("ten_thousand_sockets", "fewer descriptors than 6,000 (ulimit -Hn)");
    }
    let dir = TempDir::new();
    let path = dir.join("d.sock");
    let mut daemon = Running::start(gpunetd(&dir).args(["--threads", "2", "--linger-s", "10"]));
    let pid = daemon.child.id();
    let look = || gpunet_proxy::daemon::snapshot(&path).expect("it answers");
    let count = |snapshot: &Snapshot, transport| {
        let of = |socket: &&gpunet_proxy::snapshot::Socket| {
            socket.transport == transport && socket.state == State::Established
        };
        snapshot.sockets.iter().filter(of).count()
    };
    let empty = memory(pid, "VmRSS:");

    let start = Instant::now();
    let mut server = start_program("server", &path, "");
    let addr = server.hear();
    let mut client = start_program("client", &path, &addr);
    assert_eq!((client.hear(), server.hear()), ("open".to_owned(), "open".to_owned()));
    let opened = start.elapsed();
    let snapshot = look();
    assert_eq!((snapshot.clients.len(), snapshot.sockets.len()), (2, 4 * EACH + 1));
    assert_eq!((count(&snapshot, Transport::Peer), count(&snapshot, Transport::Tcp)), (2 * EACH, 2 * EACH));
    let full = memory(pid, "VmRSS:");

    let before = cpu(pid);
    client.go_on();
    let messages: u64 = client.hear().parse().expect("a number");
    let busy = cpu(pid) - before;
    assert!(messages as usize >= 2 * BUSY);
    assert_eq!(server.hear(), "idle");
    // A direct stream's totals come lazily; those of TCP are exact, and each went there and back.
    let carried = look().totals.tcp;
    assert_eq!(carried.sent, carried.received);

    let before = cpu(pid);
    std::thread::sleep(Duration::from_secs(1));
    let idle = cpu(pid) - before;
    let start = Instant::now();
    client.go_on();
    server.go_on();
    assert_eq!((client.hear(), server.hear()), ("closed".to_owned(), "closed".to_owned()));
    let closed = start.elapsed();
    daemon::until("all is closed", || {
        let snapshot = look();
        let totals = snapshot.totals;
        (snapshot.clients.len(), snapshot.sockets.len(), totals.opened - totals.closed) == (0, 0, 0)
    });
    assert_eq!(look().totals.opened, 4 * EACH as u64);
    eprintln!(
        "{} sockets opened in {opened:.1?}, closed in {closed:.1?}; the daemon's memory: {empty} KiB, then \
         {full} KiB ({} bytes a socket, rings and words included); {messages} messages of {MESSAGE} bytes \
         there and back on {} connections in {BUSY_FOR:?}, of which the daemon took {busy:?} of CPU time; idle \
         {idle:?} in a second; afterwards {} KiB",
        4 * EACH,
        (full - empty) * 1024 / (4 * EACH as u64),
        2 * BUSY,
        memory(pid, "VmRSS:"),
    );
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}
