//! Members that are programs, and one of them is killed: kill -9 at every stage.

use crate::support::process::{Program, say, wait};
use crate::support::rng::Rng;
use crate::support::{SOLO, bounded, small};
use crate::world::{anywhere, failure, options};
use gpunet_device::Error;
use gpunet_device::team::{Rank, Signal, Sum, SymmetricPtr, TeamHandle};
use gpunet_proxy::team::{Team, TeamError, TeamFailure, TeamId};
use gpunet_proxy::{Attachment, embed};
use std::process::Command;
use std::time::Duration;

/// What tells the program of this suite who it is.
const TEAM: &str = "GPUNET_TEST_TEAM";
const RANK: &str = "GPUNET_TEST_RANK";
/// How far the one that is killed goes.
const STAGE: &str = "GPUNET_TEST_STAGE";
const SIZE: u32 = 3;

/// Not a test: a member that is killed where the stage says, by itself, or goes to the end.
#[test]
fn program() {
    let (Ok(id), Ok(rank), Ok(stage)) = (std::env::var(TEAM), std::env::var(RANK), std::env::var(STAGE))
    else {
        return;
    };
    let proxy = embed(small()).expect("a proxy");
    let attachment = proxy.attach_cpu().expect("attached");
    let id: TeamId = id.parse().expect("an id");
    let rank = Rank(rank.parse().expect("a rank"));
    let team = Team::join_with(&attachment, id, rank, SIZE, &options()).expect("a team");
    let die = |here: &str| {
        if here == stage {
            // SAFETY: ends this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    };
    die("joined");
    let x = team.alloc::<u64>(1000).expect("memory");
    die("allocated");
    let token = attachment.token().expect("a number");
    // SAFETY: the group ends before the team.
    let (handle, x) = unsafe { (team.handle(token.net()), x.ptr()) };
    let right = rank.right_of(SIZE);
    handle.p(x.at(5), u64::from(rank.0) + 70, right).expect("stored");
    handle.signal(&SOLO, Signal(1), 1, right).expect("a signal");
    die("signalled");
    handle.barrier(&SOLO).expect("all are there");
    die("met");
    handle.all_gather(&SOLO, x.at(100), x.slice(0, 10).buffer(handle).expect("own part")).expect("gathered");
    die("gathered");
    say("done");
    if stage == "working" {
        // Until it is killed.
        loop {
            turn(&team, handle, x).expect("all live");
        }
    }
    if stage == "waiting" {
        // Until it is killed.
        let never = handle.wait_until(&SOLO, Signal(2), right, 1);
        unreachable!("{never:?}");
    }
    wait();
}

/// A bit of everything: an allocation, puts and signals, a collective.
fn turn(team: &Team, handle: TeamHandle, x: SymmetricPtr<u64>) -> Result<(), Ended> {
    let y = team.alloc::<u64>(200).map_err(Ended::Host)?;
    // SAFETY: the group ends before the memory.
    let y = unsafe { y.ptr() };
    let (right, left) = (handle.rank().right_of(SIZE), handle.rank().left_of(SIZE));
    handle.signal_add(&SOLO, Signal(3), 1, right).map_err(Ended::Kernel)?;
    handle.wait_until(&SOLO, Signal(3), left, 1).map_err(Ended::Kernel)?;
    let own = x.slice(0, 10).buffer(handle).map_err(Ended::Kernel)?;
    handle.all_gather(&SOLO, y, own).map_err(Ended::Kernel)?;
    handle.reduce(&SOLO, Sum, x.slice(500, 100), x.slice(0, 100)).map_err(Ended::Kernel)?;
    team.barrier().map_err(Ended::Host)
}

/// How a turn ended.
#[derive(Debug)]
enum Ended {
    Host(TeamError),
    Kernel(Error),
}

#[test]
fn a_death_at_any_time_ends_whatever_the_others_do() {
    bounded(|| {
        let mut rng = Rng::new(18);
        for _ in 0..8 {
            let proxy = embed(small()).expect("a proxy");
            let attachments = [proxy.attach_cpu(), proxy.attach_cpu()].map(|made| made.expect("attached"));
            let listener = anywhere();
            let id = listener.id();
            let mut killed = start(id, 2, "working");
            let pause = Duration::from_micros(rng.below(20_000));
            let live = |team: Team, attachment: &Attachment| {
                let x = team.alloc::<u64>(1000).expect("memory");
                let token = attachment.token().expect("a number");
                // SAFETY: the group ends before the team.
                let (handle, x) = unsafe { (team.handle(token.net()), x.ptr()) };
                // What the program does before it says that it is done.
                let right = handle.rank().right_of(SIZE);
                handle.signal(&SOLO, Signal(1), 1, right).expect("a signal");
                handle.barrier(&SOLO).expect("all are there");
                let own = x.slice(0, 10).buffer(handle).expect("own part");
                handle.all_gather(&SOLO, x.at(100), own).expect("gathered");
                let end = loop {
                    if let Err(end) = turn(&team, handle, x) {
                        break end;
                    }
                };
                match end {
                    Ended::Host(error) => {
                        assert_eq!(error.failure(), Some(&TeamFailure::Died { rank: Rank(2) }))
                    }
                    Ended::Kernel(error) => assert_eq!(error, Error::ConnectionReset),
                }
            };
            let [first, second] = &attachments;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    live(Team::join_with(second, id, Rank(1), SIZE, &options()).expect("a team"), second)
                });
                scope.spawn(|| {
                    live(Team::lead_with(first, listener, SIZE, &options()).expect("a team"), first)
                });
                assert_eq!(killed.hear(), "done");
                std::thread::sleep(pause);
                drop(killed);
            });
        }
    });
}

/// Starts a member as a program, which goes up to that stage.
pub fn start(id: TeamId, rank: u32, stage: &str) -> Program {
    let test = std::env::current_exe().expect("this program");
    Program::start(
        Command::new(test)
            .args(["--exact", "death::program", "--nocapture"])
            .env(TEAM, id.to_string())
            .env(RANK, rank.to_string())
            .env(STAGE, stage),
    )
}

/// What the member in this program gets to see: everything up to a stage, and then the death of
/// member 2.
fn survive(team: &Team, attachment: &Attachment, stage: &str) {
    let died = TeamFailure::Died { rank: Rank(2) };
    let x = match team.alloc::<u64>(1000) {
        Err(error) => {
            assert_eq!((stage, error.failure()), ("joined", Some(&died)));
            return;
        }
        Ok(x) => x,
    };
    let token = attachment.token().expect("a number");
    // SAFETY: the group ends before the team.
    let (handle, pointer) = unsafe { (team.handle(token.net()), x.ptr()) };
    let right = handle.rank().right_of(SIZE);
    handle.signal(&SOLO, Signal(1), 1, right).expect("a signal");
    // From member 2, that dies.
    match handle.wait_until(&SOLO, Signal(1), Rank(2), 1) {
        Ok(_) => assert_eq!(handle.g(pointer.at(5), Rank(0)), Ok(72), "who signals has stored"),
        Err(error) => {
            assert_eq!((stage, error), ("allocated", Error::ConnectionReset));
            return;
        }
    }
    let own = pointer.slice(0, 10).buffer(handle).expect("own part");
    let mut result = handle.barrier(&SOLO);
    while result.is_ok() {
        // Some of them are complete, and one is not.
        result = handle.all_gather(&SOLO, pointer.at(100), own);
    }
    assert_eq!(result, Err(Error::ConnectionReset), "{stage}");
    assert_eq!(handle.wait_until(&SOLO, Signal(9), Rank(1), 1), Err(Error::ConnectionReset), "one who lives");
    assert_eq!(team.broken(), Some(died.clone()));
    assert_eq!(failure(team.barrier()), died);
}

#[test]
fn a_death_at_any_stage_ends_all_waits_of_the_others() {
    bounded(|| {
        for stage in ["joined", "allocated", "signalled", "met", "gathered"] {
            let proxy = embed(small()).expect("a proxy");
            let (attachment, listener) = (proxy.attach_cpu().expect("attached"), anywhere());
            let id = listener.id();
            let second = proxy.attach_cpu().expect("attached");
            let _killed = start(id, 2, stage);
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let team = Team::join_with(&second, id, Rank(1), SIZE, &options()).expect("a team");
                    survive_aside(&team, &second);
                });
                let team = Team::lead_with(&attachment, listener, SIZE, &options()).expect("a team");
                survive(&team, &attachment, stage);
                other.join().expect("no panic");
            });
        }
    });
}

/// Member 1 takes part until something fails.
fn survive_aside(team: &Team, attachment: &Attachment) {
    let Ok(x) = team.alloc::<u64>(1000) else { return };
    let token = attachment.token().expect("a number");
    // SAFETY: the group ends before the team.
    let (handle, pointer) = unsafe { (team.handle(token.net()), x.ptr()) };
    let own = pointer.slice(0, 10).buffer(handle).expect("own part");
    let mut result = handle.barrier(&SOLO);
    while result.is_ok() {
        result = handle.all_gather(&SOLO, pointer.at(100), own);
    }
    assert_eq!(result, Err(Error::ConnectionReset));
}

#[test]
fn members_in_three_programs_share_memory_and_one_learns_of_the_death_of_member_0() {
    bounded(|| {
        let proxy = embed(small()).expect("a proxy");
        let attachment = proxy.attach_cpu().expect("attached");
        let id = anywhere().id();
        let mut first = start(id, 0, "waiting");
        let mut second = start(id, 1, "");
        let team = Team::join_with(&attachment, id, Rank(2), SIZE, &options()).expect("a team");
        let x = team.alloc::<u64>(1000).expect("memory");
        let token = attachment.token().expect("a number");
        // SAFETY: the group ends before the team.
        let (handle, pointer) = unsafe { (team.handle(token.net()), x.ptr()) };
        handle.p(pointer.at(5), 72, Rank(0)).expect("stored");
        handle.signal(&SOLO, Signal(1), 1, Rank(0)).expect("a signal");
        assert_eq!(handle.wait_until(&SOLO, Signal(1), Rank(1), 1), Ok(1));
        let mut five = [0];
        x.read(5, &mut five).expect("read");
        assert_eq!(five, [71], "what member 1 has stored");
        handle.barrier(&SOLO).expect("all are there");
        let own = pointer.slice(0, 10).buffer(handle).expect("own part");
        handle.all_gather(&SOLO, pointer.at(100), own).expect("gathered");
        let mut all = [0; 30];
        x.read(100, &mut all).expect("read");
        assert_eq!((all[5], all[15], all[25]), (72, 70, 71));
        assert_eq!((first.hear(), second.hear()), ("done".to_owned(), "done".to_owned()));
        drop(first);
        assert_eq!(handle.wait_until(&SOLO, Signal(9), Rank(1), 1), Err(Error::ConnectionReset));
        assert_eq!(team.broken(), Some(TeamFailure::Died { rank: Rank(0) }));
        assert_eq!(failure(team.barrier()), TeamFailure::Died { rank: Rank(0) });
    });
}
