//! Teams on queues of the CPU device.

use crate::death::start;
use crate::support::process::Program;
use crate::support::rng::Rng;
use crate::support::{SOLO, bounded, small, until};
use crate::world::{Member, anywhere, members, options};
use gpunet_device::abi::Word;
use gpunet_device::team::{Rank, Signal};
use gpunet_device::{Buffer, Error, Timeout};
use gpunet_proxy::queue::{Queue, QueueError};
use gpunet_proxy::team::{Symmetric, Team};
use gpunet_proxy::{FinishPolicy, embed};
use gpunet_queue_kernel::{QueueTeam, Record, TeamAction, TeamOperation};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const DATA: Signal = Signal(0);

fn queue(member: &Member) -> Queue {
    Queue::cpu(&member.attachment).expect("a queue")
}

fn all(x: &Symmetric<'_, u64>) -> Vec<u64> {
    let mut all = vec![0; x.len()];
    x.read(0, &mut all).expect("read");
    all
}

/// The errno of the queue's first failure.
fn errno(queue: &Queue) -> Option<Error> {
    queue.outcome().failure.map(|failure| failure.error)
}

#[test]
fn a_put_and_its_signal_come_in_the_order_of_the_queue() {
    bounded(|| {
        members(3, |member| {
            let (team, rank) = (&member.team, member.team.rank());
            let (right, left) = (rank.right_of(3), rank.left_of(3));
            let mut x = team.alloc::<u64>(10).expect("memory");
            x.write(0, &[u64::from(rank.0) + 100, u64::from(rank.0) + 200]).expect("written");
            let mut queue = queue(member);
            queue.put(x.slice(5, 1), x.slice(0, 1), right).expect("enqueued");
            queue.put_signal(x.slice(6, 4), x.slice(1, 1), DATA, 1, right).expect("enqueued");
            queue.wait_until(team, DATA, left, 1).expect("enqueued");
            queue.synchronize().expect("no failure");
            let (one, two) = (u64::from(left.0) + 100, u64::from(left.0) + 200);
            assert_eq!(all(&x)[5..], [one, two, 0, 0, 0]);
            assert_eq!(queue.outcome().done, 4);
        });
    });
}

#[test]
fn a_number_goes_round_a_ring_of_queues() {
    const ROUNDS: u64 = 50;
    bounded(|| {
        members(4, |member| {
            let (team, rank) = (&member.team, member.team.rank());
            let (right, left) = (rank.right_of(4), rank.left_of(4));
            let mut x = team.alloc::<u64>(1).expect("memory");
            let mut queue = queue(member);
            if rank == Rank(0) {
                x.write(0, &[4711]).expect("written");
            }
            team.barrier().expect("all are there");
            // All of it is enqueued before anything has come.
            for round in 1..=ROUNDS {
                if rank != Rank(0) {
                    queue.wait_until(team, DATA, left, round).expect("enqueued");
                }
                queue.put_signal(&x, &x, DATA, round, right).expect("enqueued");
                if rank == Rank(0) {
                    queue.wait_until(team, DATA, left, round).expect("enqueued");
                }
            }
            queue.synchronize().expect("no failure");
            assert_eq!(all(&x), [4711]);
        });
    });
}

#[test]
fn collectives_on_queues_come_to_what_a_plain_loop_comes_to() {
    bounded(|| {
        for (size, len) in [(1, 5), (2, 1), (3, 1000), (4, 333), (2, 0)] {
            let source = |rank: u32| {
                let mut rng = Rng::new(u64::from(rank) + 1);
                (0..len * size as usize).map(|_| rng.next()).collect::<Vec<u64>>()
            };
            members(size, |member| {
                let (team, own) = (&member.team, member.team.rank().0);
                let mut x = team.alloc::<u64>(len * size as usize).expect("memory");
                let y = team.alloc::<u64>(len * size as usize).expect("memory");
                x.write(0, &source(own)).expect("written");
                let mut queue = queue(member);

                queue.all_gather(&y, x.slice(0, len)).expect("enqueued");
                queue.synchronize().expect("no failure");
                let expected: Vec<u64> = (0..size).flat_map(|rank| source(rank)[..len].to_vec()).collect();
                assert_eq!(all(&y), expected, "all_gather of {len} by {size}");

                queue.broadcast(&y, &x, Rank(size - 1)).expect("enqueued");
                queue.synchronize().expect("no failure");
                assert_eq!(all(&y), source(size - 1), "broadcast of {len} by {size}");

                queue.all_to_all(&y, &x).expect("enqueued");
                queue.barrier(team).expect("enqueued");
                queue.synchronize().expect("no failure");
                let at = own as usize * len;
                let expected: Vec<u64> =
                    (0..size).flat_map(|rank| source(rank)[at..at + len].to_vec()).collect();
                assert_eq!(all(&y), expected, "all_to_all of {len} by {size}");
            });
        }
    });
}

#[test]
fn nobody_passes_a_barrier_on_a_queue_before_all_have_come() {
    bounded(|| {
        let waiting = AtomicU32::new(0);
        members(3, |member| {
            let (team, rank) = (&member.team, member.team.rank());
            let x = team.alloc::<u64>(3).expect("memory");
            let mut queue = queue(member);
            let mut own = [u64::from(rank.0) + 1];
            // SAFETY: the queue is done with it below.
            let own = unsafe { Buffer::from_raw_parts(own.as_mut_ptr().cast(), 8) };
            until("those before it wait", || waiting.load(Ordering::Acquire) == rank.0);
            for member in (0..3).map(Rank) {
                queue.put(x.slice(rank.0 as usize, 1), own, member).expect("enqueued");
            }
            queue.barrier(team).expect("enqueued");
            until("it has put", || queue.outcome().done >= 3);
            if rank.0 < 2 {
                assert_eq!(queue.outcome().done, 3, "it waits for the others");
            }
            waiting.fetch_add(1, Ordering::Release);
            queue.synchronize().expect("no failure");
            assert_eq!(all(&x), [1, 2, 3]);
        });
    });
}

#[test]
fn queues_and_kernels_signal_each_other_and_meet() {
    bounded(|| {
        members(2, |member| {
            let team = member.handle();
            let x = member.team.alloc::<u64>(2).expect("memory");
            let mut own = member.team.alloc::<u64>(1).expect("memory");
            own.write(0, &[u64::from(team.rank().0) + 7]).expect("written");
            let other = team.rank().right_of(2);
            if team.rank() == Rank(0) {
                // A kernel.
                // SAFETY: the group ends first.
                let (x, own) = unsafe { (x.ptr(), own.ptr()) };
                let own = own.buffer(team).expect("own part");
                team.put_signal(&SOLO, x.at(1), own, DATA, 1, other).expect("put");
                team.wait_until(&SOLO, DATA, other, 1).expect("signalled");
                // SAFETY: who signalled has stored.
                assert_eq!(unsafe { x.at(1).ptr(team, Rank(0)).expect("there").read_volatile() }, 8);
                // Adds to what a queue has set: that is in the same shadow.
                team.signal_add(&SOLO, Signal(1), 5, other).expect("a signal");
                team.barrier(&SOLO).expect("all are there");
                team.all_gather(&SOLO, x, own).expect("gathered");
            } else {
                let mut queue = queue(member);
                queue.wait_until(&member.team, DATA, other, 1).expect("enqueued");
                queue.put_signal(x.slice(1, 1), &own, DATA, 1, other).expect("enqueued");
                queue.wait_until(&member.team, Signal(1), other, 5).expect("enqueued");
                queue.barrier(&member.team).expect("enqueued");
                queue.all_gather(&x, &own).expect("enqueued");
                queue.synchronize().expect("no failure");
            }
            assert_eq!(all(&x), [7, 8]);
            // A kernel adds to what its queue has set.
            let mut queue = queue(member);
            queue.signal(&member.team, Signal(2), 10, other).expect("enqueued");
            queue.synchronize().expect("no failure");
            team.signal_add(&SOLO, Signal(2), 1, other).expect("a signal");
            assert_eq!(team.wait_until(&SOLO, Signal(2), other, 11), Ok(11));
        });
    });
}

#[test]
fn the_kernel_of_queues_performs_what_the_thread_performs() {
    bounded(|| {
        members(2, |member| {
            let (own, other) = (member.team.rank().0 as u8, member.team.rank().right_of(2));
            let x = member.team.alloc::<u8>(2000).expect("memory");
            let mut y = member.team.alloc::<u8>(1000).expect("memory");
            y.write(0, &[own + 1; 1000]).expect("written");
            let mut page = [0u64; 16];
            let page: *mut u64 = page.as_mut_ptr();
            // SAFETY: words of this test, which outlive the kernels.
            let [passed, failed] =
                [0, Record::ERRNO].map(|at| unsafe { Word::from_ptr(page.wrapping_add(at)) });
            let program = member.attachment.load("", 4).expect("loaded");
            // SAFETY: the kernels end before the memory and the team.
            let (to, from) = unsafe { (x.ptr(), y.ptr().buffer(member.handle()).expect("own part")) };
            let actions = [TeamAction::PutSignal, TeamAction::WaitUntil, TeamAction::AllGather];
            for (number, action) in (1..).zip(actions) {
                // SAFETY: as above.
                let launch = unsafe {
                    member.attachment.launch(&program, 1, 4, |net| {
                        let team = member.team.handle(net).timeout(Timeout::secs(10));
                        let (value, action, signal, member, reserved) = (1, action as u32, 0, other.0, 0);
                        let operation =
                            TeamOperation { team, to, from, value, action, signal, member, reserved };
                        QueueTeam { operation, record: Record { page: passed, number } }
                    })
                };
                launch.expect("started").finish(FinishPolicy::Close).expect("no panic");
                assert_eq!((passed.observe(), failed.observe()), (number, 0), "{action:?}");
            }
            let mut found = vec![0; 2000];
            x.read(0, &mut found).expect("read");
            assert_eq!(found, [[1; 1000], [2; 1000]].concat());
        });
    });
}

#[test]
fn a_wait_of_a_queue_ends_with_its_limit_and_the_queue_goes_on() {
    bounded(|| {
        members(2, |member| {
            let (team, other) = (&member.team, member.team.rank().right_of(2));
            let mut queue = queue(member);
            queue.set_team_timeout(Some(Duration::from_millis(20)));
            queue.wait_until(team, DATA, other, 1).expect("enqueued");
            queue.set_team_timeout(None);
            queue.signal(team, Signal(1), 1, other).expect("enqueued");
            queue.wait_until(team, Signal(1), other, 1).expect("enqueued");
            let error = queue.synchronize().expect_err("nobody signals");
            assert_eq!(error.errno(), Error::TimedOut.errno());
            let failure = queue.outcome().failure.expect("a failure");
            assert_eq!((failure.operation, failure.error), (0, Error::TimedOut));
        });
    });
}

#[test]
fn after_a_collective_that_failed_in_between_no_other_is_taken_for_it() {
    bounded(|| {
        members(2, |member| {
            let (team, other) = (&member.team, member.team.rank().right_of(2));
            let x = team.alloc::<u64>(2).expect("memory");
            let mut first = queue(member);
            if team.rank() == Rank(0) {
                // Only this member comes. What is behind it would be taken for it.
                first.set_team_timeout(Some(Duration::from_millis(20)));
                first.all_gather(&x, x.slice(0, 1)).expect("enqueued");
                first.set_team_timeout(None);
                first.all_gather(&x, x.slice(1, 1)).expect("enqueued");
                first.signal(team, DATA, 1, other).expect("enqueued");
                let error = first.synchronize().expect_err("nobody comes");
                assert_eq!(error.errno(), Error::TimedOut.errno());
                let mut next = queue(member);
                next.barrier(team).expect("enqueued");
                let _ = next.synchronize();
                assert_eq!(errno(&next), Some(Error::ConnectionAborted));
            } else {
                first.wait_until(team, DATA, other, 1).expect("enqueued");
                first.set_team_timeout(Some(Duration::from_millis(20)));
                first.all_gather(&x, x.slice(0, 1)).expect("enqueued");
                let _ = first.synchronize();
                assert_eq!(errno(&first), Some(Error::TimedOut));
            }
        });
    });
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_enqueued() {
    bounded(|| {
        members(2, |member| {
            let (team, other) = (&member.team, member.team.rank().right_of(2));
            let x = team.alloc::<u64>(4).expect("memory");
            let mut queue = queue(member);
            // SAFETY: nothing is enqueued.
            let odd = unsafe { Buffer::from_raw_parts(std::ptr::null_mut(), 7) };
            let refused = [
                queue.put(&x, &x, Rank(2)),
                queue.put(x.slice(1, 3), &x, other),
                queue.put(&x, odd, other),
                queue.put_signal(&x, &x, Signal(16), 1, other),
                queue.signal(team, DATA, 1 << 61, other),
                queue.signal(team, DATA, 1, Rank(9)),
                queue.wait_until(team, Signal(99), other, 1),
                queue.all_gather(&x, x.slice(0, 3)),
                queue.broadcast(&x, &x, Rank(2)),
                queue.all_to_all(&x, x.slice(0, 3)),
            ];
            for (at, result) in refused.into_iter().enumerate() {
                assert_eq!(result.expect_err("wrong").errno(), Error::InvalidArgument.errno(), "{at}");
            }
            queue.synchronize().expect("no failure");
            assert_eq!(queue.outcome().done, 1, "that alone");
        });
    });
}

#[test]
fn two_queues_of_a_member_take_turns_at_collectives_only() {
    bounded(|| {
        members(2, |member| {
            let (team, other) = (&member.team, member.team.rank().right_of(2));
            let (mut first, mut second) = (queue(member), queue(member));
            // Behind a wait, so that the barrier stays under way.
            first.wait_until(team, DATA, other, 1).expect("enqueued");
            first.barrier(team).expect("enqueued");
            let busy = second.barrier(team).expect_err("two have no order");
            assert!(matches!(busy, QueueError::CollectiveInUse), "{busy:?}");
            team.barrier().expect("both have tried");
            second.signal(team, DATA, 1, other).expect("enqueued");
            first.synchronize().expect("no failure");
            second.barrier(team).expect("the other is done");
            second.synchronize().expect("no failure");
        });
    });
}

#[test]
fn memory_lives_until_the_queue_is_done_with_it() {
    bounded(|| {
        members(2, |member| {
            let (team, other) = (&member.team, member.team.rank().right_of(2));
            let y = team.alloc::<u64>(1000).expect("memory");
            let mut queue = queue(member);
            let mut x = team.alloc::<u64>(1000).expect("memory");
            x.write(0, &vec![u64::from(team.rank().0) + 1; 1000]).expect("written");
            queue.wait_until(team, DATA, other, 1).expect("enqueued");
            queue.put_signal(&y, &x, Signal(1), 1, other).expect("enqueued");
            drop(x);
            team.barrier().expect("both have dropped it");
            // SAFETY: nothing is under way but the queue's own operations.
            member.handle().signal(&SOLO, DATA, 1, other).expect("a signal");
            queue.wait_until(team, Signal(1), other, 1).expect("enqueued");
            queue.synchronize().expect("no failure");
            assert_eq!(all(&y), vec![u64::from(other.0) + 1; 1000]);
        });
    });
}

/// Two members of which the second goes while a queue of the first waits for it.
fn goes(end: impl FnOnce(Team) + Send, survives: impl FnOnce(&Team, &mut Queue)) {
    let proxy = embed(small()).expect("a proxy");
    let [first, second] = [proxy.attach_cpu(), proxy.attach_cpu()].map(|made| made.expect("attached"));
    let listener = anywhere();
    let id = listener.id();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            end(Team::join_with(&second, id, Rank(1), 2, &options()).expect("a team"));
        });
        let team = Team::lead_with(&first, listener, 2, &options()).expect("a team");
        let mut queue = Queue::cpu(&first).expect("a queue");
        survives(&team, &mut queue);
        other.join().expect("no panic");
    });
}

#[test]
fn a_member_that_leaves_ends_waits_for_it() {
    bounded(|| {
        goes(
            |team| {
                team.barrier().expect("both are there");
                drop(team);
            },
            |team, queue| {
                queue.wait_until(team, DATA, Rank(1), 1).expect("enqueued");
                queue.barrier(team).expect("enqueued");
                queue.wait_until(team, DATA, Rank(0), 1).expect("enqueued");
                team.barrier().expect("both are there");
                // One's own signal comes from another queue, and does no harm.
                until("the first wait and the barrier end", || queue.outcome().done == 2);
                assert_eq!(errno(queue), Some(Error::NotConnected));
            },
        );
    });
}

#[test]
fn a_team_that_is_dropped_ends_waits_of_its_queues_and_leaves() {
    bounded(|| {
        let proxy = embed(small()).expect("a proxy");
        let [first, second] = [proxy.attach_cpu(), proxy.attach_cpu()].map(|made| made.expect("attached"));
        let listener = anywhere();
        let id = listener.id();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let team = Team::join_with(&second, id, Rank(1), 2, &options()).expect("a team");
                let mut queue = Queue::cpu(&second).expect("a queue");
                queue.wait_until(&team, DATA, Rank(0), 1).expect("enqueued");
                drop(team);
                let error = queue.synchronize().expect_err("nobody signals");
                assert_eq!(error.errno(), Error::NotConnected.errno());
            });
            let team = Team::lead_with(&first, listener, 2, &options()).expect("a team");
            let mut queue = Queue::cpu(&first).expect("a queue");
            queue.wait_until(&team, DATA, Rank(1), 1).expect("enqueued");
            let error = queue.synchronize().expect_err("it has left");
            assert_eq!(error.errno(), Error::NotConnected.errno());
            other.join().expect("no panic");
        });
    });
}

#[test]
fn an_attachment_that_is_closed_ends_waits_of_its_queues() {
    bounded(|| {
        let proxy = embed(small()).expect("a proxy");
        let attachment = proxy.attach_cpu().expect("attached");
        let team = Team::lead_with(&attachment, anywhere(), 1, &options()).expect("a team");
        let mut queue = Queue::cpu(&attachment).expect("a queue");
        queue.wait_until(&team, DATA, Rank(0), 1).expect("enqueued");
        let done = queue.notify();
        let _ = attachment.close();
        let error = done.wait().expect_err("it was closed");
        let expected = [Error::Canceled, Error::NetworkDown].map(Error::errno);
        assert!(expected.contains(&error.errno()), "{error}");
    });
}

#[test]
fn a_member_that_is_killed_ends_what_queues_wait_for() {
    bounded(|| {
        let proxy = embed(small()).expect("a proxy");
        let attachments = [proxy.attach_cpu(), proxy.attach_cpu()].map(|made| made.expect("attached"));
        let listener = anywhere();
        let id = listener.id();
        let program = start(id, 2, "waiting");
        // Nothing is enqueued any more when the program is killed: it would be refused.
        let enqueued = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let enqueued = &enqueued;
            let live = |team: Team, queue: &mut Queue, kill: Option<Program>| {
                let x = team.alloc::<u64>(1000).expect("memory");
                // What the kernels of the program do, a queue does here.
                queue.signal(&team, Signal(1), 1, team.rank().right_of(3)).expect("enqueued");
                queue.barrier(&team).expect("enqueued");
                queue.all_gather(x.slice(100, 30), x.slice(0, 10)).expect("enqueued");
                queue.synchronize().expect("no failure");
                queue.wait_until(&team, Signal(5), Rank(2), 1).expect("enqueued");
                queue.barrier(&team).expect("enqueued");
                enqueued.wait();
                if let Some(mut program) = kill {
                    assert_eq!(program.hear(), "done");
                    drop(program);
                }
                let error = queue.synchronize().expect_err("it is dead");
                assert_eq!(error.errno(), Error::ConnectionReset.errno());
                let refused = queue.signal(&team, Signal(1), 2, Rank(0)).expect_err("the team is broken");
                assert!(matches!(refused, QueueError::TeamBroken(_)), "{refused:?}");
                assert_eq!(refused.to_string(), "member 2 has died");
            };
            let [first, second] = &attachments;
            scope.spawn(move || {
                let team = Team::join_with(second, id, Rank(1), 3, &options()).expect("a team");
                live(team, &mut Queue::cpu(second).expect("a queue"), None);
            });
            let team = Team::lead_with(first, listener, 3, &options()).expect("a team");
            live(team, &mut Queue::cpu(first).expect("a queue"), Some(program));
        });
    });
}
