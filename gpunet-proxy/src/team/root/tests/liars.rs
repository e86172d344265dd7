//! Members that do not keep to the protocol.

use super::*;
use crate::team::error::Collective;
use gpu_usermap::PinnedRegion;
use gpunet_abi::team::BlockLayout;

/// A team of three whose last member is played by the test.
struct Played {
    others: Receiver<Result<Team, TeamError>>,
    socket: OwnedFd,
    _meeting: TcpStream,
}

fn play() -> Played {
    let listener = listener();
    let id = listener.id();
    listener.start(3, &options(), None).expect("started");
    let others = join(id, 0..2, 3);
    let mut rendezvous = hello(id, 2, 3);
    let Told { name, key } = told(&mut rendezvous);
    let socket = here(&name, key, 2);
    assert!(matches!(receive(&socket), Some(ToMember::Welcome { .. })));
    Played { others, socket, _meeting: rendezvous }
}

/// The beginning of the first allocation.
fn begin(mapped_len: u64) -> Vec<u8> {
    let len = BlockLayout::new(3, 4).len;
    let what = Collective::Alloc { len, element: 8, is_reserved: false };
    wire::encode(&ToRoot::Begin { number: 1, what, bytes: mapped_len.to_le_bytes().to_vec() })
}

#[test]
fn what_is_no_memory_is_not_passed_on_and_stops_nobody() {
    let (near, _far) = lingering();
    let unsealed = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&unsealed, 8192).expect("room");
    let short =
        PinnedRegion::create("short", 4096).expect("memory").fd().try_clone_to_owned().expect("a number");
    for passed in [OwnedFd::from(near), unsealed, short] {
        let played = play();
        pass(&played.socket, begin(8192), passed, 1).expect("a member may");
        for _ in 0..2 {
            let result = played.others.recv_timeout(Duration::from_secs(15)).expect("an answer");
            let why = result.expect_err("no team").failure().cloned();
            assert!(matches!(why, Some(TeamFailure::CannotMap { rank: Rank(2), .. })), "{why:?}");
        }
    }
}

#[test]
fn descriptors_where_there_are_none_end_their_member_and_stop_nobody() {
    for frame in [wire::encode(&ToRoot::Leave), b"no frame".to_vec()] {
        let ((near, _far), played) = (lingering(), play());
        pass(&played.socket, frame, near, 1).expect("a member may");
        assert_all_fail(&played.others, 2, &TeamFailure::Protocol { rank: Rank(2) });
    }
}

#[test]
fn a_member_does_not_take_the_rank_of_another() {
    let listener = listener();
    let id = listener.id();
    listener.start(3, &options(), None).expect("started");
    let _first = join(id, 0..1, 3);
    let [mut second, mut third] = [1, 2].map(|rank| hello(id, rank, 3));
    let [second, third] = [&mut second, &mut third].map(told);
    assert!(receive(&here(&third.name, third.key, 1)).is_none(), "it is sent away");
    let socket = here(&second.name, second.key, 1);
    let Some(ToMember::Welcome { secrets }) = receive(&socket) else { panic!("it is a member") };
    assert!(secrets[1] == second.key && !secrets.contains(&third.key));
    wire::send(socket.as_fd(), &wire::encode(&ToRoot::Leave), &[]).expect("open");
    assert!(receive(&socket).is_none());
}

#[test]
fn a_descriptor_that_takes_too_long_ends_its_member() {
    let ((near, far), played) = (lingering(), play());
    // More descriptors than any frame has: the receiver closes them.
    pass(&played.socket, begin(8192), near, 64).expect("a member may");
    assert_all_fail(&played.others, 2, &TeamFailure::Protocol { rank: Rank(2) });
    drop(far);
}

#[test]
fn a_member_of_another_part_is_nobody() {
    let listener = listener();
    let id = listener.id();
    listener.start_part(2, &options(), None, vec![5, 6], Box::new(|| None)).expect("started");
    // It knows everything of member 1 but its secret with the first member.
    assert!(matches!(answer(&mut hello(id, 1, 2)), Answer::Refused(TeamFailure::WrongId)));
    let (got, results) = std::sync::mpsc::channel();
    for (rank, secret) in [(0, 5), (1, 6)] {
        let (got, parent) = (got.clone(), move || Parent { secret, ..Parent::default() });
        std::thread::spawn(move || got.send(form(None, id, (Rank(rank), 2), options(), parent())));
    }
    let teams: Vec<_> = (0..2).map(|_| results.recv_timeout(Duration::from_secs(15))).collect();
    for team in teams {
        team.expect("an answer").expect("a team");
    }
}
