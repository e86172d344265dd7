//! Members that do not come from the meeting to the root's socket, and strangers there.

use super::*;
use crate::team::form;
use crate::team::frames::{Answer, DeviceKind, Hello, decode_greeting, encode_greeting};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::RecvTimeoutError;

fn options() -> TeamOptions {
    TeamOptions { signals: 4, timeout: Duration::from_secs(20) }
}

fn listener() -> TeamListener {
    TeamListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port")
}

/// Says hello as member 1 of two.
fn hello(id: TeamId) -> TcpStream {
    let mut socket = TcpStream::connect(id.address()).expect("connected");
    let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("on Linux");
    let (device, nonce) = (DeviceKind::Cpu, id.nonce());
    let hello = Hello { nonce, rank: 1, size: 2, signals: 4, machine, device };
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

#[test]
fn one_who_dies_between_the_meeting_and_its_socket_is_dead_for_all() {
    for waits_for_the_answer in [false, true] {
        let listener = listener();
        let id = listener.id();
        listener.start(2, &options()).expect("started");
        let mut socket = hello(id);
        let other = std::thread::spawn(move || {
            if waits_for_the_answer {
                answer(&mut socket);
            }
            drop(socket);
        });
        let team = form(None, id, (Rank(0), 2), options(), Vec::new(), None);
        other.join().expect("no panic");
        let why = team.expect_err("no team").failure().cloned();
        assert_eq!(why, Some(TeamFailure::Died { rank: Rank(1) }));
    }
}

#[test]
fn one_who_dies_while_others_are_still_to_come_is_dead_for_all_who_are_there() {
    let listener = listener();
    let id = listener.id();
    listener.start(3, &options()).expect("started");
    let first = std::thread::spawn(move || form(None, id, (Rank(0), 3), options(), Vec::new(), None));
    let mut socket = TcpStream::connect(id.address()).expect("connected");
    let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("on Linux");
    let (device, nonce) = (DeviceKind::Cpu, id.nonce());
    let hello = Hello { nonce, rank: 1, size: 3, signals: 4, machine, device };
    socket.write_all(&encode_greeting(&hello)).expect("sent");
    drop(socket);
    // Member 2 never comes, and nobody waits for it until the time is over.
    let team = first.join().expect("no panic");
    assert_eq!(team.expect_err("no team").failure(), Some(&TeamFailure::Died { rank: Rank(1) }));
}

#[test]
fn nobody_waits_at_the_meeting_of_a_part_for_one_whose_death_the_team_knows() {
    let listener = listener();
    let id = listener.id();
    let died = TeamFailure::Died { rank: Rank(7) };
    let known = died.clone();
    // The root's thread keeps what it is given until it ends.
    let (kept, ended) = std::sync::mpsc::channel::<()>();
    let obstacle = move || {
        let _ = &kept;
        Some(known.clone())
    };
    let patient = TeamOptions { timeout: Duration::from_secs(3600), ..options() };
    listener.start_part(2, &patient, Box::new(obstacle)).expect("started");
    let team = form(None, id, (Rank(0), 2), options(), Vec::new(), None);
    assert_eq!(team.expect_err("no team").failure(), Some(&died));
    // And that is soon, though the other never comes to be told.
    assert!(
        ended.recv_timeout(Duration::from_secs(60)).is_err_and(|end| end == RecvTimeoutError::Disconnected)
    );
}

#[test]
fn nobody_looks_for_the_meeting_of_a_part_whose_first_member_is_dead() {
    let (died, id) = (TeamFailure::Died { rank: Rank(7) }, listener().id());
    let known = || Some(died.clone());
    let team = form(None, id, (Rank(1), 2), options(), Vec::new(), Some(&known));
    assert_eq!(team.expect_err("no team").failure(), Some(&died));
}

#[test]
fn one_who_has_no_key_is_nobody() {
    let listener = listener();
    let id = listener.id();
    listener.start(2, &options()).expect("started");
    let mut socket = hello(id);
    let first = std::thread::spawn(move || form(None, id, (Rank(0), 2), options(), Vec::new(), None));
    let Answer::Formed { socket: name, key, .. } = answer(&mut socket) else { panic!("no team") };
    let connect = |key, rank| {
        let made = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let made = made.expect("a socket");
        let to = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
        rustix::net::connect(&made, &to).expect("connected");
        wire::send(made.as_fd(), &wire::encode(&ToRoot::Here { key, rank }), &[]).expect("sent");
        made
    };
    // Without the key, and of a rank that there is not: they are sent away.
    for (key, rank) in [(key ^ 1, 1), (key, 2)] {
        let stranger = connect(key, rank);
        poll(&mut [PollFd::new(&stranger, PollFlags::IN)], None).expect("it ends");
        let mut buffer = vec![0; MAX_FRAME];
        assert!(wire::recv(stranger.as_fd(), &mut buffer).is_ok_and(|packet| packet.is_none()));
    }
    // The member itself is dead then, and only this ends the team.
    drop(socket);
    let team = first.join().expect("no panic");
    assert_eq!(team.expect_err("no team").failure(), Some(&TeamFailure::Died { rank: Rank(1) }));
}
