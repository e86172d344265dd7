//! Joining, and what members do together on the host: in order, and not.

use crate::support::{HANG, bounded, small};
use crate::world::{anywhere, failure, members, options};
use gpunet_device::Error;
use gpunet_device::team::{Rank, Signal};
use gpunet_proxy::team::{Collective, Team, TeamError, TeamFailure, TeamId, TeamListener, TeamOptions};
use gpunet_proxy::{Proxy, embed};
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

/// Members that try to join, each in its way; returns what they get.
fn join(who: Vec<(Rank, u32, TeamOptions)>) -> Vec<Result<(), TeamError>> {
    let proxy = embed(small()).expect("a proxy");
    let listener = anywhere();
    let id = listener.id();
    let mut listener = Some(listener);
    std::thread::scope(|scope| {
        let try_to = |(rank, size, options): (Rank, u32, TeamOptions)| {
            let attachment = proxy.attach_cpu().expect("attached");
            // The first one leads.
            let listener = listener.take();
            scope.spawn(move || {
                let team = match listener {
                    Some(listener) => Team::lead_with(&attachment, listener, size, &options),
                    None => Team::join_with(&attachment, id, rank, size, &options),
                }?;
                team.leave()
            })
        };
        let threads: Vec<_> = who.into_iter().map(try_to).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn impatient() -> TeamOptions {
    TeamOptions { timeout: Duration::from_millis(300), ..options() }
}

#[test]
fn all_get_the_same_failure_when_two_have_one_rank() {
    bounded(|| {
        let member = |rank| (Rank(rank), 3, options());
        for result in join(vec![member(0), member(1), member(1)]) {
            assert_eq!(failure(result), TeamFailure::SameRank { rank: Rank(1) });
        }
    });
}

#[test]
fn all_get_the_same_failure_when_sizes_or_signals_differ() {
    bounded(|| {
        for result in join(vec![(Rank(0), 2, options()), (Rank(1), 3, options())]) {
            let what = "size".to_owned();
            assert_eq!(failure(result), TeamFailure::Unequal { rank: Rank(1), what, its: 3, ours: 2 });
        }
        let more = TeamOptions { signals: 17, ..options() };
        for result in join(vec![(Rank(0), 2, options()), (Rank(1), 2, more)]) {
            let what = "number of signals".to_owned();
            assert_eq!(failure(result), TeamFailure::Unequal { rank: Rank(1), what, its: 17, ours: 16 });
        }
    });
}

#[test]
fn all_are_told_who_has_not_come() {
    bounded(|| {
        for result in join(vec![(Rank(0), 4, impatient()), (Rank(2), 4, options())]) {
            assert_eq!(failure(result), TeamFailure::Missing { ranks: vec![Rank(1), Rank(3)] });
        }
    });
}

fn attach(proxy: &Proxy) -> gpunet_proxy::Attachment {
    proxy.attach_cpu().expect("attached")
}

#[test]
fn strangers_and_late_ones_are_sent_away_and_the_team_goes_on() {
    bounded(|| {
        let proxy = embed(small()).expect("a proxy");
        let listener = anywhere();
        let id = listener.id();
        // They say nothing, and something else.
        let _silent = TcpStream::connect(id.address()).expect("connected");
        let mut web = TcpStream::connect(id.address()).expect("connected");
        web.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
        let (first, second, third) = (attach(&proxy), attach(&proxy), attach(&proxy));
        let other = TeamId::new(id.address()).expect("random numbers");
        std::thread::scope(|scope| {
            let leader = scope.spawn(move || Team::lead_with(&first, listener, 2, &options()));
            let wrong = Team::join_with(&third, other, Rank(1), 2, &options());
            assert_eq!(failure(wrong), TeamFailure::WrongId);
            let member = Team::join_with(&second, id, Rank(1), 2, &options()).expect("a team");
            let leader = leader.join().expect("no panic").expect("a team");
            let late = Team::join_with(&third, id, Rank(1), 2, &options());
            assert_eq!(failure(late), TeamFailure::Complete);
            scope.spawn(move || {
                leader.barrier().expect("the team goes on");
                leader.leave().expect("all leave");
            });
            member.barrier().expect("the team goes on");
            member.leave().expect("all leave");
        });
    });
}

#[test]
fn nobody_joins_where_nobody_listens() {
    bounded(|| {
        let proxy = embed(small()).expect("a proxy");
        let id = anywhere().id();
        let refused = Team::join_with(&attach(&proxy), id, Rank(1), 2, &impatient());
        assert!(
            matches!(&refused, Err(TeamError::Io { doing, .. }) if doing.contains("member 0")),
            "{refused:?}"
        );
        let none = Team::join(&attach(&proxy), id, Rank(2), 2);
        assert_eq!(failure(none), TeamFailure::NoSuchRank { rank: Rank(2), size: 2 });
        let any = TeamListener::bind("0.0.0.0:0".parse().expect("an address"));
        let any = any.expect_err("not an address to connect to");
        assert!(matches!(any, TeamError::UnspecifiedAddress), "{any:?}");
    });
}

#[test]
fn what_is_allocated_is_equal_and_zero() {
    bounded(|| {
        members(3, |member| {
            let team = &member.team;
            let rank = team.rank().0;
            let unequal = team.alloc::<u8>(100 + usize::from(rank == 1));
            let why = failure(unequal);
            let TeamFailure::Different { its, others, .. } = &why else { panic!("{why:?}") };
            let lens = [its, others].map(|what| match what {
                Collective::Alloc { len, element: 1, is_reserved: false } => *len,
                other => panic!("{other}"),
            });
            assert!(lens.contains(&100) && lens.contains(&101), "{why}");
            // The element counts, too: 4 bytes as one or as four.
            if rank == 0 {
                failure(team.alloc::<u32>(1));
            } else {
                failure(team.alloc::<u8>(4));
            }
            let why = if rank == 0 { failure(team.barrier()) } else { failure(team.alloc::<u8>(1)) };
            assert!(matches!(why, TeamFailure::Different { .. }), "{why}");
            let impossible = team.alloc::<u64>(usize::MAX);
            assert!(matches!(impossible, Err(TeamError::Memory(_))), "{impossible:?}");
            let x = team.alloc::<u64>(1 << 16).expect("memory");
            let mut all = vec![1; 1 << 16];
            x.read(0, &mut all).expect("read");
            assert!(all.iter().all(|&element| element == 0));
        });
    });
}

#[test]
fn what_one_member_cannot_have_nobody_has_and_the_team_goes_on() {
    bounded(|| {
        members(2, |member| {
            let why = failure(member.team.alloc::<u8>(1 << 46));
            assert!(matches!(why, TeamFailure::CannotMap { .. }), "{why}");
            member.team.alloc::<u8>(10).expect("memory");
        });
    });
}

#[test]
fn who_does_not_take_part_in_time_is_named_and_may_still_come() {
    bounded(|| {
        let proxy = embed(small()).expect("a proxy");
        let listener = anywhere();
        let id = listener.id();
        let (first, second) = (attach(&proxy), attach(&proxy));
        let limit = TeamOptions { timeout: Duration::from_secs(2), ..options() };
        std::thread::scope(|scope| {
            let limit = &limit;
            let (failed, fails) = std::sync::mpsc::channel();
            let leader = scope.spawn(move || {
                let team = Team::lead_with(&first, listener, 2, limit).expect("a team");
                let absent = TeamFailure::TimedOut { ranks: vec![Rank(1)] };
                assert_eq!(failure(team.barrier()), absent);
                failed.send(()).expect("it waits");
                team.barrier().expect("the other has come");
                team.leave().expect("all leave");
            });
            let team = Team::join_with(&second, id, Rank(1), 2, limit).expect("a team");
            fails.recv().expect("the leader's barrier fails");
            // Its first barrier is that one.
            assert_eq!(failure(team.barrier()), TeamFailure::TimedOut { ranks: vec![Rank(1)] });
            team.barrier().expect("both are there");
            team.leave().expect("all leave");
            leader.join().expect("no panic");
        });
    });
}

#[test]
fn a_wait_for_one_who_has_left_ends_and_that_for_another_does_not() {
    bounded(|| {
        let proxy = embed(small()).expect("a proxy");
        let listener = anywhere();
        let id = listener.id();
        let attachments: Vec<_> = (0..3).map(|_| attach(&proxy)).collect();
        let mut listener = Some(listener);
        std::thread::scope(|scope| {
            for (rank, attachment) in (0..).map(Rank).zip(attachments) {
                let listener = listener.take();
                scope.spawn(move || {
                    let team = match listener {
                        Some(listener) => Team::lead_with(&attachment, listener, 3, &options()),
                        None => Team::join_with(&attachment, id, rank, 3, &options()),
                    };
                    let team = team.expect("a team");
                    let token = attachment.token().expect("a number");
                    // SAFETY: the group ends before the team.
                    let handle = unsafe { team.handle(token.net()) };
                    let g = &crate::support::SOLO;
                    match rank {
                        Rank(0) => {
                            assert_eq!(handle.wait_until(g, Signal(0), Rank(2), 2), Err(Error::NotConnected));
                            assert_eq!(
                                handle.wait_until(g, Signal(0), Rank(2), 1),
                                Ok(1),
                                "it signalled that before"
                            );
                            assert_eq!(handle.barrier(g), Err(Error::NotConnected));
                            handle.signal(g, Signal(0), 1, Rank(1)).expect("a signal");
                            assert_eq!(
                                handle.wait_until(g, Signal(0), Rank(1), 1),
                                Ok(1),
                                "it is still there"
                            );
                            assert_eq!(failure(team.barrier()), TeamFailure::Left { rank: Rank(2) });
                            assert_eq!(team.broken(), None);
                        }
                        Rank(1) => {
                            assert_eq!(handle.wait_until(g, Signal(0), Rank(0), 1), Ok(1));
                            handle.signal(g, Signal(0), 1, Rank(0)).expect("a signal");
                            // Member 0 goes last.
                            let end = handle.wait_until(g, Signal(0), Rank(0), 2);
                            assert!(
                                matches!(end, Err(Error::NotConnected | Error::ConnectionReset)),
                                "{end:?}"
                            );
                        }
                        _ => handle.signal(g, Signal(0), 1, Rank(0)).expect("a signal"),
                    }
                });
            }
        });
    });
}

/// Two members do different things. In the team that was joined, they have these ranks.
fn differ(team: &Team, joined: [u32; 2]) {
    let result = if team.rank() == Rank(0) { team.barrier() } else { team.alloc::<u32>(4).map(drop) };
    let error = result.expect_err("they differ");
    assert!(matches!(error.failure(), Some(TeamFailure::Different { .. })), "{error}");
    let text = error.to_string();
    for (rank, other) in (0..).zip(joined) {
        let (any, name) = (format!("member {rank} is member"), format!("member {rank} is member {other}"));
        assert_eq!((text.contains(&any), text.contains(&name)), (rank != other, rank != other), "{text}");
    }
}

#[test]
fn a_team_is_split_by_colour_and_by_stride() {
    bounded(|| {
        members(4, |member| {
            let rank = member.team.rank();
            // The last goes first.
            let half = member.team.split(rank.0 % 2, -i64::from(rank.0)).expect("two teams");
            assert_eq!((half.size(), half.rank()), (2, Rank(1 - rank.0 / 2)));
            assert_eq!(half.origin(half.rank()), Some(rank));
            assert_eq!(half.translate(Rank(rank.0 % 2 + 2)), Some(Rank(0)));
            assert_eq!(half.translate(Rank((rank.0 + 1) % 2)), None);
            half.barrier().expect("both are there");
            let x = half.alloc::<u32>(4).expect("memory");
            drop(x);
            // What fails there names the members by their ranks there, and says who they are in the
            // team that was joined.
            let parity = rank.0 % 2;
            differ(&half, [2 + parity, parity]);
            let turned = half.split(0, -i64::from(half.rank().0)).expect("both again");
            assert_eq!(turned.origin(Rank(0)), Some(Rank(1)));
            differ(&turned, [parity, 2 + parity]);
            turned.leave().expect("both leave");
            half.leave().expect("both leave");
            let ends = member.team.split_strided(Rank(0), 3, 2).expect("a team of two");
            assert_eq!(
                ends.as_ref().map(Team::rank),
                [Some(Rank(0)), None, None, Some(Rank(1))][rank.0 as usize]
            );
            let beyond = member.team.split_strided(Rank(2), 2, 2);
            assert_eq!(failure(beyond), TeamFailure::NoSuchRank { rank: Rank(4), size: 4 });
        });
    });
}

#[test]
fn members_join_and_allocate_as_tasks() {
    bounded(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let proxy = embed(small()).expect("a proxy");
            let id = anywhere().id();
            let (first, second) = (attach(&proxy), attach(&proxy));
            let limit = TeamOptions { timeout: HANG / 3, ..options() };
            let member = |attachment, rank| Team::join_async(attachment, id, rank, 2, &limit);
            let (a, b) = tokio::join!(member(&first, Rank(0)), member(&second, Rank(1)));
            let (a, b) = (a.expect("a team"), b.expect("a team"));
            let (x, y) = tokio::join!(a.alloc_async::<u8>(5), b.alloc_async::<u8>(5));
            assert_eq!((x.expect("memory").len(), y.expect("memory").len()), (5, 5));
            let (x, y) = tokio::join!(a.barrier_async(), b.barrier_async());
            x.and(y).expect("both are there");
        });
    });
}

/// Bytes of shared memory of that length that exist, of all processes' descriptors here.
fn existing(len: u64) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux has it");
    let files = descriptors.filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_team = std::fs::read_link(&path).ok()?.starts_with("/memfd:gpunet-team (deleted)");
        std::fs::metadata(path).ok().filter(|file| is_team && file.len() == len)
    });
    files.map(|file| file.blocks() * 512).sum()
}

#[test]
fn reserved_memory_exists_as_far_as_it_is_committed() {
    // No other test has memory of this length.
    const LEN: u64 = (256 << 20) + (1 << 20);
    const STEP: u64 = 64 << 20;
    bounded(|| {
        members(2, |member| {
            let (team, rank) = (&member.team, member.team.rank());
            let mut heap = team.reserve::<u8>(LEN as usize).expect("addresses");
            team.barrier().expect("both have it");
            if rank == Rank(0) {
                assert!(existing(LEN) <= 1 << 20, "{} exist", existing(LEN));
            }
            team.barrier().expect("it was looked at");
            heap.commit(10_000_000).expect("memory");
            heap.write(9_999_999, &[7 + rank.0 as u8]).expect("written");
            if rank == Rank(0) {
                assert_eq!(existing(LEN), 2 * STEP, "of both");
            }
            team.barrier().expect("written");
            // What the other has is there.
            let other = rank.right_of(2);
            // SAFETY: nobody writes it now, and it exists.
            let seen =
                unsafe { (heap.address(other).expect("mapped") as *const u8).add(9_999_999).read_volatile() };
            assert_eq!(u32::from(seen), 7 + other.0);
            // Less is no change, and one byte more is a step.
            heap.commit(5).expect("memory");
            heap.commit(STEP as usize + 1).expect("memory");
            if rank == Rank(0) {
                assert_eq!(existing(LEN), 4 * STEP);
            }
            let different = heap.commit(rank.0 as usize).expect_err("the lengths differ");
            assert!(matches!(different.failure(), Some(TeamFailure::Different { .. })), "{different}");
            // Memory that is allocated exists.
            team.alloc::<u8>(100).expect("memory").commit(100).expect("it is there");
        });
    });
}

#[test]
fn more_addresses_than_memory_are_not_reserved() {
    bounded(|| {
        members(2, |member| {
            let team = &member.team;
            // More than the machine has: its addresses are to be had by none.
            let refused = team.reserve::<u8>(1 << 46).expect_err("more than there is");
            assert!(matches!(refused.failure(), Some(TeamFailure::CannotMap { .. })), "{refused}");
            team.barrier().expect("the team goes on");
        });
    });
}
