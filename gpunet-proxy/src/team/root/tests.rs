//! Members that do not come from the rendezvous to the root's socket, and other programs there.

use super::*;
use crate::team::frames::{Answer, DeviceKind, Hello, decode_greeting, encode_greeting};
use crate::team::{Parent, Team, form};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, sendmsg, socket_with,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

mod liars;
mod strangers;

fn options() -> TeamOptions {
    TeamOptions { signals: 4, timeout: Duration::from_secs(20) }
}

fn listener() -> TeamListener {
    TeamListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port")
}

/// Sends a hello as a member of a team of `size`.
fn hello(id: TeamId, rank: u32, size: u32) -> TcpStream {
    let mut socket = TcpStream::connect(id.address()).expect("connected");
    let machine = crate::os::same_host::MachineId::here().expect("on Linux").to_string();
    let (device, nonce) = (DeviceKind::Cpu, id.nonce());
    let hello = Hello { nonce, rank, size, signals: 4, secret: 0, machine, device };
    socket.write_all(&encode_greeting(&hello)).expect("sent");
    socket
}

fn answer(socket: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("an answer");
        bytes.extend(byte);
        if let Some(answer) = decode_greeting(&bytes).expect("a greeting") {
            return answer;
        }
    }
}

/// The answer to a member when all are there.
struct Told {
    name: String,
    key: u128,
}

fn told(socket: &mut TcpStream) -> Told {
    let Answer::Formed { socket: name, key, .. } = answer(socket) else { panic!("no team") };
    Told { name, key }
}

/// Connects to the root's other socket.
fn connect(name: &str) -> OwnedFd {
    let made = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let made = made.expect("a socket");
    let to = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    rustix::net::connect(&made, &to).expect("connected");
    made
}

/// Connects, and identifies the member.
fn here(name: &str, key: u128, rank: u32) -> OwnedFd {
    let made = connect(name);
    wire::send(made.as_fd(), &wire::encode(&ToRoot::Here { key, rank }), &[]).expect("sent");
    made
}

/// Returns the root's next message; `None` if it has closed the connection.
fn receive(socket: &OwnedFd) -> Option<ToMember> {
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    let heard = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit)).expect("it waits");
    assert!(heard > 0, "the root does nothing");
    let packet = wire::recv(socket.as_fd(), &mut vec![0; MAX_FRAME]).expect("open");
    packet.map(|packet| wire::decode(packet).expect("a frame").0)
}

/// Starts members that join as they should. Returns their results.
fn join(id: TeamId, ranks: std::ops::Range<u32>, size: u32) -> Receiver<Result<Team, TeamError>> {
    let (got, results) = std::sync::mpsc::channel();
    for rank in ranks {
        let got = got.clone();
        std::thread::spawn(move || {
            let _ = got.send(form(None, id, (Rank(rank), size), options(), Parent::default()));
        });
    }
    results
}

/// Asserts that all of them get this failure soon.
fn assert_all_fail(results: &Receiver<Result<Team, TeamError>>, count: usize, why: &TeamFailure) {
    for _ in 0..count {
        let result = results.recv_timeout(Duration::from_secs(15)).expect("an answer");
        assert_eq!(result.expect_err("no team").failure(), Some(why));
    }
}

/// Returns a socket whose last close takes an hour, and its peer, whose drop ends that close.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (far, _) = listener.accept().expect("a connection");
    near.set_nonblocking(true).expect("a socket");
    while near.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&near, Some(Duration::from_secs(3600))).expect("a socket");
    (near, far)
}

/// Passes a descriptor several times with some bytes, and closes its own: on a thread, because that
/// may be the last close.
fn pass(to: &OwnedFd, bytes: Vec<u8>, passed: impl Into<OwnedFd>, count: usize) -> io::Result<()> {
    let (to, passed) = (to.try_clone().expect("a number"), passed.into());
    let (done, sent) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let fds = vec![passed.as_fd(); count];
        let mut space = [std::mem::MaybeUninit::uninit(); 512];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        let sent = sendmsg(&to, &[io::IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL);
        if sent.is_err() {
            let _ = set_socket_linger(&passed, None);
        }
        let _ = done.send(sent.map(drop).map_err(io::Error::from));
    });
    sent.recv().expect("no panic")
}

#[test]
fn one_who_dies_between_the_meeting_and_its_socket_is_dead_for_all() {
    for waits_for_the_answer in [false, true] {
        let listener = listener();
        let id = listener.id();
        listener.start(2, &options(), None).expect("started");
        let mut socket = hello(id, 1, 2);
        let other = std::thread::spawn(move || {
            if waits_for_the_answer {
                answer(&mut socket);
            }
            drop(socket);
        });
        let team = form(None, id, (Rank(0), 2), options(), Parent::default());
        other.join().expect("no panic");
        let why = team.expect_err("no team").failure().cloned();
        assert_eq!(why, Some(TeamFailure::Died { rank: Rank(1) }));
    }
}

#[test]
fn one_who_dies_while_others_are_still_to_come_is_dead_for_all_who_are_there() {
    let listener = listener();
    let id = listener.id();
    listener.start(3, &options(), None).expect("started");
    let first = std::thread::spawn(move || form(None, id, (Rank(0), 3), options(), Parent::default()));
    drop(hello(id, 1, 3));
    // Member 2 never comes, and the others do not wait for it until the timeout.
    let team = first.join().expect("no panic");
    assert_eq!(team.expect_err("no team").failure(), Some(&TeamFailure::Died { rank: Rank(1) }));
}

#[test]
fn nobody_waits_at_the_meeting_of_a_part_for_one_whose_death_the_team_knows() {
    let listener = listener();
    let id = listener.id();
    let died = TeamFailure::Died { rank: Rank(7) };
    let known = died.clone();
    // The root's thread keeps its `known_failure` until it ends.
    let (kept, ended) = std::sync::mpsc::channel::<()>();
    let known_failure = move || {
        let _ = &kept;
        Some(known.clone())
    };
    let patient = TeamOptions { timeout: Duration::from_secs(3600), ..options() };
    listener.start_part(2, &patient, None, Vec::new(), Box::new(known_failure)).expect("started");
    let team = form(None, id, (Rank(0), 2), options(), Parent::default());
    assert_eq!(team.expect_err("no team").failure(), Some(&died));
    // It ends soon, although the other member never comes to be told.
    assert!(
        ended.recv_timeout(Duration::from_secs(60)).is_err_and(|end| end == RecvTimeoutError::Disconnected)
    );
}

#[test]
fn nobody_looks_for_the_meeting_of_a_part_whose_first_member_is_dead() {
    let (died, id) = (TeamFailure::Died { rank: Rank(7) }, listener().id());
    let known = || Some(died.clone());
    let team =
        form(None, id, (Rank(1), 2), options(), Parent { known_failure: Some(&known), ..Parent::default() });
    assert_eq!(team.expect_err("no team").failure(), Some(&died));
}

#[test]
fn one_who_has_no_key_is_nobody() {
    let listener = listener();
    let id = listener.id();
    listener.start(2, &options(), None).expect("started");
    let mut socket = hello(id, 1, 2);
    let first = std::thread::spawn(move || form(None, id, (Rank(0), 2), options(), Parent::default()));
    let Told { name, key } = told(&mut socket);
    // A wrong key, and a rank that does not exist: both are refused.
    for (key, rank) in [(key ^ 1, 1), (key, 2)] {
        assert!(receive(&here(&name, key, rank)).is_none(), "it is sent away");
    }
    // The member itself is dead then, and only this ends the team.
    drop(socket);
    let team = first.join().expect("no panic");
    assert_eq!(team.expect_err("no team").failure(), Some(&TeamFailure::Died { rank: Rank(1) }));
}

#[test]
fn what_one_member_is_not_able_to_do_none_does_and_the_team_goes_on() {
    let listener = listener();
    let id = listener.id();
    listener.start(2, &options(), None).expect("started");
    std::thread::scope(|scope| {
        for rank in 0..2 {
            scope.spawn(move || {
                let team =
                    form(None, id, (Rank(rank), 2), options(), Parent::default()).expect("a team of two");
                let able = if rank == 1 { Err("there is no memory".to_owned()) } else { Ok(()) };
                let what = crate::team::Collective::Commit { len: 9, added: 0 };
                let error = team.inner.local.member.together_if(able, what);
                let cannot =
                    TeamFailure::CannotMap { rank: Rank(1), reason: "there is no memory".to_owned() };
                assert_eq!(error.expect_err("nobody commits").failure(), Some(&cannot));
                team.barrier().expect("the team goes on");
                team.leave().expect("both leave");
            });
        }
    });
}

/// Returns whether the `poll` that a thread is in has a limit, its third argument.
fn has_limit(thread: i32) -> Option<bool> {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).expect("on Linux");
    let mut words = call.split(' ');
    words.next().filter(|call| *call == libc::SYS_ppoll.to_string())?;
    words.nth(2).map(|limit| limit != "0x0")
}

#[test]
fn a_team_that_does_nothing_sleeps_until_it_is_spoken_to() {
    let listener = listener();
    let (id, begins) = (listener.id(), std::sync::mpsc::channel());
    let root = listener.root(2, &options(), None, Vec::new(), Box::new(|| None)).expect("a root");
    let serving = std::thread::spawn(move || {
        begins.0.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("the test waits");
        root.run();
    });
    let thread = begins.1.recv().expect("it begins");
    let until_limited = |expected| {
        while has_limit(thread) != Some(expected) {
            std::thread::yield_now();
        }
    };
    until_limited(true);
    let teams = join(id, 0..2, 2);
    let [first, second] = [0, 1].map(|_| teams.recv().expect("an answer").expect("a team"));
    until_limited(false);
    // It wakes for operations, and when members leave.
    std::thread::scope(|scope| {
        scope.spawn(|| first.barrier().expect("both come"));
        second.barrier().expect("both come");
    });
    until_limited(false);
    drop(first);
    until_limited(false);
    second.barrier().expect_err("one has left");
    // A connection that sends nothing is closed after a time.
    let stranger = TcpStream::connect(id.address()).expect("connected");
    until_limited(true);
    drop(stranger);
    until_limited(false);
    drop(second);
    serving.join().expect("it ends with the last member");
}
