//! GPU members: their memory is exported and mapped. On a GPU where there is one, else on a driver
//! that stands in for it (gpu-usermap's `fake`), which maps nothing, but says what it was told to
//! do.

use crate::support::{bounded, not_run, small};
use crate::world::{anywhere, failure, options};
use gpu_usermap::cuda::fake::Fake;
use gpu_usermap::cuda::{Cuda, Device, StreamPriority};
use gpunet_device::team::Rank;
use gpunet_proxy::queue::{Queue, QueueSettings};
use gpunet_proxy::team::{Symmetric, Team, TeamFailure, TeamOptions};
use gpunet_proxy::{Attachment, embed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Says that a test had no GPU. With `GPUNET_REQUIRE_GPU` set that is a failure.
pub fn no_gpu(test: &str, why: &str) {
    assert!(std::env::var_os("GPUNET_REQUIRE_GPU").is_none(), "NOT RUN: {test}: {why}");
    not_run(test, why);
}

/// Runs `body` with a GPU, and with the stand-in where there is none. Tests take turns.
pub fn with_gpu(test: &str, body: impl FnOnce(&Device, Option<&Fake>)) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match Cuda::load() {
        Ok(cuda) => body(&cuda.device(0).expect("the first GPU"), None),
        Err(unavailable) => {
            no_gpu(test, &format!("no GPU ({unavailable}); it runs on a driver that stands in for one"));
            let fake = Fake::new();
            body(&fake.cuda().device(0).expect("a device"), Some(&fake));
        }
    }
}

/// Two members on the given devices; each runs `body`.
fn two<R: Send>(attachments: [Attachment; 2], body: impl Fn(&Team) -> R + Sync) -> Vec<R> {
    let listener = anywhere();
    let id = listener.id();
    let mut listener = Some(listener);
    std::thread::scope(|scope| {
        let member = |(rank, attachment): (Rank, Attachment)| {
            let (listener, body) = (listener.take(), &body);
            scope.spawn(move || {
                let team = match listener {
                    Some(listener) => Team::lead_with(&attachment, listener, 2, &options()),
                    None => Team::join_with(&attachment, id, rank, 2, &options()),
                };
                let team = team.expect("a team");
                let result = body(&team);
                team.leave().expect("both leave");
                result
            })
        };
        let threads: Vec<_> = (0..).map(Rank).zip(attachments).map(member).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn own_part_holds(x: &mut Symmetric<'_, u32>, rank: Rank) {
    let numbers: Vec<u32> = (0..1000).map(|at| at + rank.0 * 5000).collect();
    x.write(24, &numbers).expect("written");
    let mut back = vec![0; 1000];
    x.read(24, &mut back).expect("read");
    assert_eq!(back, numbers);
}

#[test]
fn members_on_gpus_map_each_others_memory() {
    bounded(|| {
        with_gpu("members_on_gpus_map_each_others_memory", |gpu, fake| {
            let proxy = embed(small()).expect("a proxy");
            let attach = || proxy.attach_cuda(gpu).expect("attached");
            let (first, second) = (attach(), attach());
            let before = made(fake);
            two([first, second], |team| {
                let mut x = team.alloc::<u32>(2000).expect("memory");
                own_part_holds(&mut x, team.rank());
                team.barrier().expect("both are there");
            });
            // A block and a part of each, and each maps those of the other.
            assert_eq!(made(fake), before.map(|count| count + if fake.is_some() { 4 } else { 0 }));
        });
    });
}

/// The second GPU, where there is one.
fn other_than(gpu: &Device) -> Device {
    Cuda::load().ok().and_then(|cuda| cuda.device(1).ok()).unwrap_or_else(|| gpu.clone())
}

/// How often each of the calls was made that make a GPU's memory.
fn made(fake: Option<&Fake>) -> [usize; 3] {
    let events = fake.map_or_else(Vec::new, Fake::events);
    ["create", "export", "import"].map(|event| events.iter().filter(|found| **found == event).count())
}

#[test]
fn reserved_memory_of_gpus_comes_when_it_is_committed() {
    const PIECE: usize = 64 << 20;
    bounded(|| {
        with_gpu("reserved_memory_of_gpus_comes_when_it_is_committed", |gpu, fake| {
            let proxy = embed(small()).expect("a proxy");
            let attachments = [gpu.clone(), other_than(gpu)].map(|gpu| {
                let attachment = proxy.attach_cuda(&gpu).expect("attached");
                // A stream's first use of a kind of copy may wait: before anybody does.
                let stream = gpu.create_stream(StreamPriority::Normal).expect("a stream");
                let settings = QueueSettings { short: 0, ..QueueSettings::default() };
                let queue = Queue::cuda_with(&attachment, stream, settings).expect("a queue");
                (attachment, Mutex::new(queue))
            });
            let [(first, mine), (second, its)] = attachments;
            let queues = [mine, its];
            two([first, second], |team| {
                let (own, other) = (team.rank(), team.rank().right_of(2));
                team.barrier().expect("both are there");
                let before = made(fake);
                // Neither looks before the other has, and neither goes on before both have.
                let expect_made = |times: usize, what: &str| {
                    team.barrier().expect("both have done it");
                    if fake.is_some() {
                        assert_eq!(made(fake), before.map(|count| count + times), "{what}");
                    }
                    team.barrier().expect("both have looked");
                };
                let mut heap = team.reserve::<u8>(3 * PIECE - 100).expect("addresses");
                expect_made(0, "reserved");
                heap.write(0, &[1]).expect_err("there is no memory");
                heap.commit(10_000_000).expect("memory");
                expect_made(2, "a piece of each, which the other maps");
                heap.commit(5).expect("it is there");
                heap.commit(PIECE).expect("it is there");
                expect_made(2, "no more is needed");
                let text = [own.0 as u8 + 1; 4];
                heap.write(PIECE - 4, &text).expect("written");
                heap.commit(PIECE + 1).expect("memory");
                expect_made(4, "the second piece of each");
                let mut found = [9; 8];
                heap.read(PIECE - 4, &mut found).expect("read");
                assert_eq!(found, [text, [0; 4]].concat()[..], "the first stays, and the second is zero");
                let different = heap.commit(own.0 as usize).expect_err("the lengths differ");
                assert!(matches!(different.failure(), Some(TeamFailure::Different { .. })), "{different}");
                heap.write(PIECE - 4, &[text, text].concat()).expect("written");
                team.barrier().expect("both have written");
                // Copies over the end of a piece. On the stand-in each has memory of its own.
                let received = team.alloc::<u8>(8).expect("memory");
                let mut queue = queues[own.0 as usize].lock().unwrap_or_else(PoisonError::into_inner);
                queue.put(&received, heap.slice(PIECE - 4, 8), other).expect("enqueued");
                queue.put(heap.slice(2 * PIECE - 8, 8), heap.slice(PIECE - 4, 8), other).expect("enqueued");
                queue.synchronize().expect("no failure");
                team.barrier().expect("both have put");
                if fake.is_none() {
                    for (memory, at) in [(&received, 0), (&heap, 2 * PIECE - 8)] {
                        let mut found = [0; 8];
                        memory.read(at, &mut found).expect("read");
                        assert_eq!(found, [other.0 as u8 + 1; 8]);
                    }
                }
                heap.commit(3 * PIECE - 100).expect("memory");
                heap.write(3 * PIECE - 101, &[1]).expect("written");
                team.alloc::<u8>(100).expect("memory").commit(100).expect("it is there");
            });
        });
    });
}

#[test]
fn memory_that_one_member_cannot_map_is_committed_by_none() {
    const PIECE: usize = 64 << 20;
    bounded(|| {
        with_gpu("memory_that_one_member_cannot_map_is_committed_by_none", |gpu, fake| {
            // Only the stand-in can be made to refuse.
            let Some(fake) = fake else { return };
            let proxy = embed(small()).expect("a proxy");
            let attach = || proxy.attach_cuda(gpu).expect("attached");
            two([attach(), attach()], |team| {
                let mut heap = team.reserve::<u8>(2 * PIECE).expect("addresses");
                heap.commit(1).expect("memory");
                for failing in ["create", "map", "export", "import"] {
                    let set = |step| {
                        team.barrier().expect("both are there");
                        if team.rank() == Rank(0) {
                            fake.fail(step);
                        }
                        team.barrier().expect("it is set");
                    };
                    set(Some(failing));
                    let why = failure(heap.commit(PIECE + 1));
                    assert!(matches!(why, TeamFailure::CannotMap { .. }), "{failing}: {why}");
                    set(None);
                    heap.write(PIECE, &[1]).expect_err("it was given back");
                    heap.write(PIECE - 1, &[1]).expect("what was committed stays");
                }
                heap.commit(PIECE + 1).expect("memory");
                heap.write(PIECE, &[1]).expect("written");
            });
        });
    });
}

#[test]
fn a_gpu_and_a_cpu_share_pinned_memory() {
    bounded(|| {
        with_gpu("a_gpu_and_a_cpu_share_pinned_memory", |gpu, fake| {
            let proxy = embed(small()).expect("a proxy");
            let attachments =
                [proxy.attach_cuda(gpu), proxy.attach_cpu()].map(|made| made.expect("attached"));
            let exports =
                || fake.map_or(0, |fake| fake.events().iter().filter(|event| **event == "export").count());
            let before = exports();
            two(attachments, |team| {
                let mut x = team.alloc::<u32>(2000).expect("memory");
                own_part_holds(&mut x, team.rank());
                team.barrier().expect("both are there");
            });
            assert_eq!(exports(), before, "no GPU memory is exported");
        });
    });
}

#[test]
fn all_are_told_when_a_gpu_cannot_map_another() {
    bounded(|| {
        with_gpu("all_are_told_when_a_gpu_cannot_map_another", |gpu, fake| {
            // Only the stand-in can be made to refuse.
            let Some(fake) = fake else { return };
            let proxy = embed(small()).expect("a proxy");
            let attachments =
                [proxy.attach_cuda(gpu), proxy.attach_cuda(gpu)].map(|made| made.expect("attached"));
            fake.fail(Some("import"));
            let listener = anywhere();
            let id = listener.id();
            let limit = TeamOptions { timeout: Duration::from_secs(10), ..options() };
            let [first, second] = &attachments;
            let (a, b) = std::thread::scope(|scope| {
                let second = scope.spawn(|| Team::join_with(second, id, Rank(1), 2, &limit));
                let first = Team::lead_with(first, listener, 2, &limit);
                (first, second.join().expect("no panic"))
            });
            fake.fail(None);
            for why in [failure(a), failure(b)] {
                assert!(matches!(&why, TeamFailure::CannotMap { .. }), "{why}");
            }
        });
    });
}
