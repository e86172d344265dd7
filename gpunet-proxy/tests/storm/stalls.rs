//! Who has stopped holds up nobody else.

use crate::daemon::{Running, gpunetd, until};
use crate::parent::{Storm, send};
use crate::support::{Killed, Memory, SOLO};
use gpunet_device::{Error, Listener, Net, Options, SockAddr, Stream, Timeout, TransportKind};
use gpunet_proxy::snapshot::State;
use gpunet_proxy::{Config, FinishPolicy, attach};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Where a caller finds the daemon, and whom it calls.
pub const DAEMON: &str = "GPUNET_STORM_DAEMON";
const CALL: &str = "GPUNET_STORM_CALL";
const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer);
/// Longer than an accept takes for which a connect waits, shorter than a process may take to map
/// memory.
const SOON: Timeout = Timeout::secs(5);

/// Not a test: the program that connects, and waits for the end.
pub fn call() -> ! {
    let path = std::env::var_os(DAEMON).expect("a path");
    let addr = std::env::var(CALL).expect("an address").parse().expect("an address");
    let attachment =
        attach(Path::new(&path), Config::small()).expect("a daemon").attach_cpu().expect("attached");
    let token = attachment.token().expect("a number");
    let mut stream =
        Stream::connect_with(&SOLO, token.net(), SockAddr::from_std(addr), PEER).expect("connected");
    assert_eq!(stream.recv(&SOLO, Memory::new(1).buffer()), Ok(0));
    std::process::exit(0);
}

fn opening(path: &Path) -> usize {
    let snapshot = gpunet_proxy::daemon::snapshot(path).expect("it answers");
    snapshot.sockets.iter().filter(|socket| socket.state == State::Opening).count()
}

/// Returns whether a thread ends soon. Much sooner, if nothing holds it up; later only on a machine
/// that is busy otherwise.
fn finishes(thread: &std::thread::JoinHandle<()>) -> bool {
    let start = std::time::Instant::now();
    while !thread.is_finished() && start.elapsed() < std::time::Duration::from_secs(10) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    thread.is_finished()
}

/// Waits until all threads of a child have stopped: one that runs on another processor goes on
/// after kill(2) has returned.
fn until_stopped(child: &std::process::Child) {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).expect("a child").expect("it has changed");
    assert!(status.stopped(), "{status:?}");
}

/// A daemon that stands still for longer than the heartbeat (SIGSTOP, and SIGCONT after four
/// seconds) ends the waits of its programs by ENETDOWN; and when it goes on, nothing is lost.
#[test]
fn a_daemon_that_stood_still_swallows_no_connection_and_no_control_slot() {
    const CONTROLS: u32 = 8;
    // One is kept for calls that do not wait.
    const ACCEPTS: u32 = CONTROLS - 1;
    let storm = Storm::new(1, false);
    let daemon = Running::start(&mut gpunetd(&storm.dir));
    let config = Config { controls: CONTROLS, ..Config::small() };
    let attachment =
        attach(&storm.dir.join("d.sock"), config).expect("a daemon").attach_cpu().expect("attached");
    let token = attachment.token().expect("a number");
    let net: Net = token.net();
    let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp);
    let listener =
        Listener::bind_with(&SOLO, net, SockAddr::v4([127, 0, 0, 1], 0), tcp, 16).expect("a free port");
    let addr = listener.local_addr().to_std().expect("an address");

    let waits: Vec<_> =
        (0..ACCEPTS).map(|_| std::thread::spawn(move || listener.accept(&SOLO).err())).collect();
    until("all accepts wait", || attachment.usage().requests == ACCEPTS as usize);
    send(daemon.child.id(), Signal::STOP);
    until_stopped(&daemon.child);
    let stopped = std::time::Instant::now();
    // The kernel takes it into the backlog.
    let mut client = std::net::TcpStream::connect(addr).expect("connected");
    for wait in waits {
        assert_eq!(wait.join().expect("no panic"), Some(Error::NetworkDown));
    }
    std::thread::sleep(std::time::Duration::from_secs(4).saturating_sub(stopped.elapsed()));
    send(daemon.child.id(), Signal::CONT);

    // The client is served by who accepts now, and as many can wait as before.
    let mut stream = listener.accept_timeout(&SOLO, SOON).expect("the client's connection");
    client.write_all(b"hello").expect("sent");
    let memory = Memory::new(5);
    assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(5));
    stream.close(&SOLO).expect("open");
    drop(client);
    let waits: Vec<_> =
        (0..ACCEPTS).map(|_| std::thread::spawn(move || listener.accept(&SOLO).err())).collect();
    until("all accepts wait again", || attachment.usage().requests == ACCEPTS as usize);
    listener.close(&SOLO).expect("open");
    for wait in waits {
        assert_eq!(wait.join().expect("no panic"), Some(Error::BadHandle));
    }
    assert_eq!(token.finish(FinishPolicy::Close).left_open, 0);
    // In the next launch, too.
    let token = attachment.token().expect("a number");
    for _ in 0..2 * CONTROLS {
        Listener::bind(&SOLO, token.net(), SockAddr::v4([127, 0, 0, 1], 0))
            .and_then(|listener| listener.close(&SOLO))
            .expect("a free port");
    }
    assert_eq!(token.finish(FinishPolicy::Close).left_open, 0);
    until("everything is free", || attachment.usage().sockets == 0);
    let report = attachment.close();
    assert_eq!((report.undelivered, report.unfinished), (0, 0));
    crate::parent::sane(&daemon);
}

/// A launch is finished while the daemon stands still, and nobody waits for that: its sockets are
/// closed, and their slots free, when it goes on.
#[test]
fn a_finish_that_is_answered_late_frees_everything() {
    let storm = Storm::new(1, false);
    let daemon = Running::start(&mut gpunetd(&storm.dir));
    let config = Config { sockets: 4, ..Config::small() };
    let attachment =
        attach(&storm.dir.join("d.sock"), config).expect("a daemon").attach_cpu().expect("attached");
    let bind_all = |net: Net| {
        for _ in 0..4 {
            Listener::bind(&SOLO, net, SockAddr::v4([127, 0, 0, 1], 0)).expect("a free slot");
        }
    };
    let token = attachment.token().expect("a number");
    bind_all(token.net());
    send(daemon.child.id(), Signal::STOP);
    until_stopped(&daemon.child);
    // It gives up after ten seconds.
    assert_eq!(token.finish(FinishPolicy::Close).left_open, 0);
    // The number is in use until the daemon has closed what has it.
    let other = attachment.token().expect("another number");
    send(daemon.child.id(), Signal::CONT);
    until("everything is free", || attachment.usage().sockets == 0);
    bind_all(other.net());
    assert_eq!(other.finish(FinishPolicy::Close).left_open, 4);
    until("everything is free again", || attachment.usage().sockets == 0);
    let report = attachment.close();
    assert_eq!((report.undelivered, report.unfinished), (0, 0));
    crate::parent::sane(&daemon);
}

#[test]
fn an_accept_does_not_wait_for_a_program_that_has_stopped() {
    let storm = Storm::new(1, false);
    let path = storm.dir.join("d.sock");
    let daemon = Running::start(&mut gpunetd(&storm.dir));
    let proxy = attach(&path, Config::small()).expect("a daemon");
    let (here, there) = (proxy.attach_cpu().expect("attached"), proxy.attach_cpu().expect("attached"));
    let (here_token, there_token) = (here.token().expect("a number"), there.token().expect("a number"));
    let (net, other): (Net, Net) = (here_token.net(), there_token.net());
    let listener =
        Listener::bind_with(&SOLO, net, SockAddr::v4([127, 0, 0, 1], 0), PEER, 16).expect("a free port");
    let addr = listener.local_addr();

    let caller = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "worker", "--nocapture"])
        .env(DAEMON, &path)
        .env(CALL, addr.to_std().expect("an address").to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("this program again");
    let mut caller = Killed(caller);
    until("the caller waits", || opening(&path) == 1);
    send(caller.id(), Signal::STOP);
    let second = std::thread::spawn(move || {
        let stream = Stream::connect_with(&SOLO, other, addr, PEER).expect("connected");
        stream.close(&SOLO).expect("open");
    });
    until("the second waits, too", || opening(&path) == 2);

    // A signal takes its time: the caller may have been ready before it stopped, and then its
    // connection comes before the second's, or right after it. Neither may keep the second waiting.
    let mut accepted = vec![listener.accept_timeout(&SOLO, SOON).expect("a connection")];
    if !finishes(&second) {
        accepted.push(listener.accept_timeout(&SOLO, SOON).expect("the second's connection"));
    }
    second.join().expect("no panic");
    send(caller.id(), Signal::CONT);
    if accepted.len() == 1 {
        accepted.push(listener.accept_timeout(&SOLO, SOON).expect("the caller's connection"));
    }
    accepted.into_iter().for_each(|stream| stream.close(&SOLO).expect("open"));
    assert!(caller.wait().expect("it ends").success());
    crate::parent::sane(&daemon);
}
