//! File descriptors of a team's members, which here are threads of one process of its own.

use crate::descriptors::as_a_process;
use crate::support::daemon::TempDir;
use crate::support::{bounded, copy_program, small};
use gpunet_device::team::Rank;
use gpunet_proxy::embed;
use gpunet_proxy::team::{Team, TeamError, TeamFailure, TeamListener, TeamOptions};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Barrier, Mutex};

/// Runs `body` as each of `size` members; `together` lets one of them do something while the others
/// do nothing.
fn members(size: u32, body: impl Fn(&Team, &dyn Fn(&mut dyn FnMut())) + Sync) {
    let proxy = embed(small()).expect("a proxy");
    let listener = TeamListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let (id, mut listener) = (listener.id(), Some(listener));
    let attachments: Vec<_> = (0..size).map(|_| proxy.attach_cpu().expect("attached")).collect();
    let barrier = Barrier::new(size as usize);
    std::thread::scope(|scope| {
        for (rank, attachment) in (0..).zip(&attachments) {
            let listener = listener.take_if(|_| rank == 0);
            let (body, barrier) = (&body, &barrier);
            scope.spawn(move || {
                let options = TeamOptions { signals: 16, ..TeamOptions::default() };
                let team = match listener {
                    Some(listener) => Team::lead_with(attachment, listener, size, &options),
                    None => Team::join_with(attachment, id, Rank(rank), size, &options),
                };
                let team = team.expect("a team");
                body(&team, &|work: &mut dyn FnMut()| {
                    barrier.wait();
                    if rank == 0 {
                        work();
                    }
                    barrier.wait();
                });
                team.leave().expect("all leave");
            });
        }
    });
}

fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("this is Linux").count()
}

#[test]
fn memory_that_is_mapped_holds_no_descriptor() {
    as_a_process("teams::a_team_that_allocates");
}

#[test]
#[ignore = "a part of `memory_that_is_mapped_holds_no_descriptor`, which runs it as a process of its own"]
fn a_team_that_allocates() {
    bounded(|| {
        let before = Mutex::new(0);
        members(12, |team, alone| {
            alone(&mut || *before.lock().expect("sane") = open());
            let memory: Vec<_> = (0..7).map(|_| team.alloc::<u64>(10).expect("memory")).collect();
            team.barrier().expect("all live");
            alone(&mut || assert_eq!(open(), *before.lock().expect("sane")));
            drop(memory);
        });
    });
}

#[test]
fn a_lack_of_descriptors_is_named_and_breaks_no_team() {
    as_a_process("teams::a_team_that_lacks_descriptors");
}

#[test]
#[ignore = "a part of `a_lack_of_descriptors_is_named_and_breaks_no_team`, which runs it as a process of its own"]
fn a_team_that_lacks_descriptors() {
    bounded(|| {
        let taken = Mutex::new(Vec::<OwnedFd>::new());
        let failures = Mutex::new(Vec::new());
        members(3, |team, alone| {
            // Of the memory of three, each has a descriptor, the root gets it, and the others do.
            for free in 0..=12 {
                alone(&mut || {
                    let mut taken = taken.lock().expect("sane");
                    let limit = getrlimit(Resource::Nofile);
                    setrlimit(Resource::Nofile, Rlimit { current: Some(128), ..limit })
                        .expect("a lower limit");
                    taken.extend(std::iter::from_fn(|| eventfd(0, EventfdFlags::CLOEXEC).ok()));
                    let keep = taken.len() - free;
                    taken.truncate(keep);
                });
                match team.alloc::<u64>(10) {
                    Ok(_) => {}
                    Err(TeamError::Failed(TeamFailure::CannotMap { reason, .. })) => {
                        failures.lock().expect("sane").push(reason);
                    }
                    Err(other) => panic!("with {free} descriptors: {other}"),
                }
            }
            alone(&mut || taken.lock().expect("sane").clear());
            team.alloc::<u64>(10).expect("there are descriptors again");
            assert!(team.broken().is_none());
        });
        let failures = failures.into_inner().expect("sane");
        assert!(!failures.is_empty());
        for reason in failures {
            assert!(reason.contains("ulimit -n"), "{reason}");
        }
    });
}

/// The kernel bounds the descriptors that a user's sockets hold; not those of root, so the program
/// runs as another user.
#[test]
fn descriptors_under_way_are_waited_for() {
    const TEST: &str = "teams::a_large_team_of_a_user";
    if !rustix::process::geteuid().is_root() {
        return as_a_process(TEST);
    }
    let dir = TempDir::new();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("our own");
    let program = dir.join("program");
    copy_program(&std::env::current_exe().expect("this file"), &program);
    let done = Command::new(program)
        .args(["--exact", TEST, "--ignored", "--nocapture"])
        .uid(4242)
        .gid(4242)
        .current_dir("/")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "a part of `descriptors_under_way_are_waited_for`, which runs it as a process of its own"]
fn a_large_team_of_a_user() {
    bounded(|| {
        members(32, |team, alone| {
            // The members' memory is passed 992 times.
            alone(&mut || {
                let limit = getrlimit(Resource::Nofile);
                setrlimit(Resource::Nofile, Rlimit { current: Some(500), ..limit }).expect("a lower limit");
            });
            match team.alloc::<u64>(10) {
                // What has come and is not mapped yet may be too much at a time.
                Err(TeamError::Failed(TeamFailure::CannotMap { reason, .. })) => {
                    assert!(reason.contains("ulimit -n"), "{reason}");
                }
                result => drop(result.expect("memory")),
            }
        });
    });
}
