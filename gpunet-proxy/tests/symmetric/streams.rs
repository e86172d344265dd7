//! Teams on queues of CUDA streams: on a GPU where there is one, else on a driver that stands in
//! for it, which has no kernels: so what is put is long, and waits have no limit.

use crate::death::start;
use crate::gpu::{no_gpu, with_gpu};
use crate::support::{bounded, small};
use crate::world::{anywhere, options};
use gpu_usermap::cuda::{Device, StreamPriority};
use gpunet_device::team::{Rank, Signal};
use gpunet_device::{Buffer, Error};
use gpunet_proxy::queue::{Queue, QueueError, QueueSettings};
use gpunet_proxy::team::{Symmetric, Team, TeamId};
use gpunet_proxy::{Attachment, embed};
use std::time::Duration;

const DATA: Signal = Signal(0);
const LEN: usize = 20_000;

/// The copy engine copies everything.
const NO_KERNELS: usize = 0;

fn on_stream(attachment: &Attachment, gpu: &Device, short: usize) -> Queue {
    let stream = gpu.create_stream(StreamPriority::Normal).expect("a stream");
    Queue::cuda_with(attachment, stream, QueueSettings { short, ..QueueSettings::default() })
        .expect("a queue")
}

fn numbers(rank: Rank) -> Vec<u32> {
    (0..LEN as u32).map(|at| at * 3 + rank.0).collect()
}

fn holds(x: &Symmetric<'_, u32>, start: usize, expected: &[u32]) {
    let mut found = vec![0; expected.len()];
    x.read(start, &mut found).expect("read");
    assert!(found == expected);
}

/// A GPU and a CPU device as members 0 and 1.
fn mixed(
    gpu: &Device,
    short: usize,
    first: impl FnOnce(Team, &mut Queue),
    second: impl FnOnce(Team, &mut Queue) + Send,
) {
    let proxy = embed(small()).expect("a proxy");
    let (near, far) = (proxy.attach_cuda(gpu).expect("attached"), proxy.attach_cpu().expect("attached"));
    let listener = anywhere();
    let id = listener.id();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let team = Team::join_with(&far, id, Rank(1), 2, &options()).expect("a team");
            second(team, &mut Queue::cpu(&far).expect("a queue"));
        });
        let mut queue = on_stream(&near, gpu, short);
        first(Team::lead_with(&near, listener, 2, &options()).expect("a team"), &mut queue);
        other.join().expect("no panic");
    });
}

/// What both members do: each puts twice to the other, and waits for what it puts.
fn exchange(team: Team, queue: &mut Queue, memory: Buffer) {
    let (own, other) = (team.rank(), team.rank().right_of(2));
    let mut x = team.alloc::<u32>(2 * LEN).expect("memory");
    let y = team.alloc::<u32>(2 * LEN).expect("memory");
    x.write(0, &numbers(own)).expect("written");
    for round in 0..10 {
        queue.put(y.slice(LEN, LEN), x.slice(0, LEN), other).expect("enqueued");
        queue.put_signal(y.slice(0, LEN), memory, DATA, 2 * round + 1, other).expect("enqueued");
        queue.wait_until(&team, DATA, other, 2 * round + 1).expect("enqueued");
        // Nobody puts before the other has looked: a queue has.
        queue.signal(&team, DATA, 2 * round + 2, other).expect("enqueued");
        queue.wait_until(&team, DATA, other, 2 * round + 2).expect("enqueued");
    }
    queue.synchronize().expect("no failure");
    holds(&y, LEN, &numbers(other));
    holds(&y, 0, &numbers(Rank(other.0 + 5)));
    assert_eq!(queue.outcome().done, 51);
    drop((x, y));
    team.leave().expect("both leave");
}

#[test]
fn a_stream_and_a_thread_put_to_each_other() {
    bounded(|| {
        with_gpu("a_stream_and_a_thread_put_to_each_other", |gpu, _| {
            let bytes =
                |rank| numbers(rank).iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>();
            let memory = gpu.alloc(4 * LEN).expect("memory");
            gpu.write(&memory, 0, &bytes(Rank(5))).expect("written");
            let mut heap = bytes(Rank(6));
            let heap = (heap.as_mut_ptr().expose_provenance(), heap);
            mixed(
                gpu,
                NO_KERNELS,
                |team, queue| {
                    // SAFETY: the queue is done with it when `exchange` returns.
                    let from = unsafe { Buffer::from_raw_parts(memory.ptr() as *mut u8, 4 * LEN) };
                    exchange(team, queue, from);
                },
                |team, queue| {
                    let at = std::ptr::with_exposed_provenance_mut(heap.0);
                    // SAFETY: as above.
                    exchange(team, queue, unsafe { Buffer::from_raw_parts(at, heap.1.len()) });
                },
            );
        });
    });
}

#[test]
fn a_stream_puts_no_pageable_memory() {
    bounded(|| {
        with_gpu("a_stream_puts_no_pageable_memory", |gpu, _| {
            let attachment = embed(small()).expect("a proxy").attach_cuda(gpu).expect("attached");
            let team = Team::lead_with(&attachment, anywhere(), 1, &options()).expect("a team");
            let x = team.alloc::<u8>(8).expect("memory");
            let mut queue = on_stream(&attachment, gpu, NO_KERNELS);
            let mut heap = [0u8; 8];
            // SAFETY: nothing is enqueued.
            let heap = unsafe { Buffer::from_raw_parts(heap.as_mut_ptr(), 8) };
            let refused = queue.put(&x, heap, Rank(0)).expect_err("no kernel reaches it");
            assert!(matches!(refused, QueueError::Pageable), "{refused:?}");
            let cpu = embed(small()).expect("a proxy").attach_cpu().expect("attached");
            let refused = Queue::cpu(&cpu).expect("a queue").signal(&team, DATA, 1, Rank(0));
            assert!(matches!(refused, Err(QueueError::OtherDevice)), "{refused:?}");
        });
    });
}

fn has_left(queue: &mut Queue) {
    let error = queue.synchronize().expect_err("it has left");
    assert_eq!(error.errno(), Error::NotConnected.errno());
    assert_eq!(queue.outcome().failure.expect("a failure").operation, 1);
}

#[test]
fn a_member_that_leaves_releases_a_stream_in_pinned_memory() {
    bounded(|| {
        with_gpu("a_member_that_leaves_releases_a_stream_in_pinned_memory", |gpu, _| {
            mixed(
                gpu,
                NO_KERNELS,
                |team, queue| {
                    // What has come before is believed, and what is behind goes on.
                    queue.wait_until(&team, DATA, Rank(1), 3).expect("enqueued");
                    queue.wait_until(&team, DATA, Rank(1), 4).expect("enqueued");
                    queue.signal(&team, DATA, 1, Rank(0)).expect("enqueued");
                    queue.wait_until(&team, DATA, Rank(0), 1).expect("enqueued");
                    team.barrier().expect("both are there");
                    has_left(queue);
                },
                |team, queue| {
                    queue.signal(&team, DATA, 3, Rank(0)).expect("enqueued");
                    queue.synchronize().expect("no failure");
                    team.barrier().expect("both are there");
                },
            );
        });
    });
}

/// Two members on one GPU, whose memory the CPU does not reach.
#[test]
fn a_member_that_leaves_releases_a_stream_in_device_memory() {
    bounded(|| {
        with_gpu("a_member_that_leaves_releases_a_stream_in_device_memory", |gpu, _| {
            let proxy = embed(small()).expect("a proxy");
            let [first, second] = [(); 2].map(|()| proxy.attach_cuda(gpu).expect("attached"));
            let listener = anywhere();
            let id = listener.id();
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let team = Team::join_with(&second, id, Rank(1), 2, &options()).expect("a team");
                    team.barrier().expect("both are there");
                });
                let team = Team::lead_with(&first, listener, 2, &options()).expect("a team");
                let (mut queue, mut beside) =
                    (on_stream(&first, gpu, NO_KERNELS), on_stream(&first, gpu, NO_KERNELS));
                queue.signal(&team, DATA, 7, Rank(0)).expect("enqueued");
                queue.wait_until(&team, Signal(1), Rank(1), 1).expect("enqueued");
                beside.wait_until(&team, DATA, Rank(0), 7).expect("enqueued");
                beside.synchronize().expect("one's own signal");
                team.barrier().expect("both are there");
                has_left(&mut queue);
                other.join().expect("no panic");
            });
        });
    });
}

#[test]
fn a_team_that_is_dropped_releases_a_stream() {
    bounded(|| {
        with_gpu("a_team_that_is_dropped_releases_a_stream", |gpu, _| {
            let attachment = embed(small()).expect("a proxy").attach_cuda(gpu).expect("attached");
            let team = Team::lead_with(&attachment, anywhere(), 1, &options()).expect("a team");
            let mut queue = on_stream(&attachment, gpu, NO_KERNELS);
            queue.wait_until(&team, DATA, Rank(0), 1).expect("enqueued");
            drop(team);
            let error = queue.synchronize().expect_err("nobody signals");
            assert_eq!(error.errno(), Error::NotConnected.errno());
        });
    });
}

#[test]
fn a_closed_attachment_releases_a_stream() {
    bounded(|| {
        with_gpu("a_closed_attachment_releases_a_stream", |gpu, _| {
            let attachment = embed(small()).expect("a proxy").attach_cuda(gpu).expect("attached");
            let team = Team::lead_with(&attachment, anywhere(), 1, &options()).expect("a team");
            let mut queue = on_stream(&attachment, gpu, NO_KERNELS);
            queue.wait_until(&team, DATA, Rank(0), 1).expect("enqueued");
            let done = queue.notify();
            let _ = attachment.close();
            let error = done.wait().expect_err("it was closed");
            assert!(matches!(error, QueueError::Failed(_) | QueueError::Canceled), "{error:?}");
        });
    });
}

#[test]
fn a_member_that_is_killed_releases_streams() {
    bounded(|| {
        with_gpu("a_member_that_is_killed_releases_streams", |gpu, _| {
            let proxy = embed(small()).expect("a proxy");
            let (near, far) =
                (proxy.attach_cuda(gpu).expect("attached"), proxy.attach_cpu().expect("attached"));
            let listener = anywhere();
            let id: TeamId = listener.id();
            let program = start(id, 2, "allocated");
            let live = |team: Team, mut queue: Queue| {
                let _x = team.alloc::<u64>(1000);
                queue.wait_until(&team, Signal(5), Rank(2), 1).map_or_else(
                    |refused| assert!(matches!(refused, QueueError::TeamBroken(_)), "{refused:?}"),
                    |()| {
                        let error = queue.synchronize().expect_err("it is dead");
                        assert_eq!(error.errno(), Error::ConnectionReset.errno());
                    },
                );
            };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let team = Team::join_with(&far, id, Rank(1), 3, &options()).expect("a team");
                    live(team, Queue::cpu(&far).expect("a queue"));
                });
                let queue = on_stream(&near, gpu, NO_KERNELS);
                live(Team::lead_with(&near, listener, 3, &options()).expect("a team"), queue);
            });
            drop(program);
        });
    });
}

/// What kernels do: short puts, collectives, waits with a limit.
#[test]
fn a_stream_meets_a_thread_in_collectives() {
    bounded(|| {
        with_gpu("a_stream_meets_a_thread_in_collectives", |gpu, fake| {
            if fake.is_some() {
                no_gpu("a_stream_meets_a_thread_in_collectives", "no GPU, and the stand-in has no kernels");
                return;
            }
            let both = |team: Team, queue: &mut Queue| {
                let (own, other) = (team.rank(), team.rank().right_of(2));
                let mut x = team.alloc::<u32>(LEN).expect("memory");
                let y = team.alloc::<u32>(2 * LEN).expect("memory");
                x.write(0, &numbers(own)).expect("written");
                queue.put_signal(y.slice(0, 100), x.slice(0, 100), DATA, 1, other).expect("enqueued");
                queue.wait_until(&team, DATA, other, 1).expect("enqueued");
                queue.synchronize().expect("no failure");
                holds(&y, 0, &numbers(other)[..100]);
                queue.barrier(&team).expect("enqueued");
                queue.all_gather(&y, &x).expect("enqueued");
                queue.synchronize().expect("no failure");
                holds(&y, 0, &[numbers(Rank(0)), numbers(Rank(1))].concat());
                queue.broadcast(&y, &x, Rank(1)).expect("enqueued");
                queue.synchronize().expect("no failure");
                holds(&y, 0, &numbers(Rank(1)));
                queue.set_team_timeout(Some(Duration::from_millis(100)));
                queue.wait_until(&team, DATA, other, 2).expect("enqueued");
                let error = queue.synchronize().expect_err("nobody signals");
                assert_eq!(error.errno(), Error::TimedOut.errno());
                drop((x, y));
                team.leave().expect("both leave");
            };
            mixed(gpu, QueueSettings::default().short, both, both);
        });
    });
}
