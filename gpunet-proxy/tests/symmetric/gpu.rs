//! GPU members: their memory is exported and mapped. On a GPU where there is one, else on a driver
//! that stands in for it (gpu-usermap's `fake`), which maps nothing, but says what it was told to
//! do.

use crate::support::{bounded, not_run, small};
use crate::world::{anywhere, failure, options};
use gpu_usermap::cuda::fake::Fake;
use gpu_usermap::cuda::{Cuda, Device};
use gpunet_device::team::Rank;
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
            let count = |event: &str| {
                fake.map_or(0, |fake| fake.events().iter().filter(|found| **found == event).count())
            };
            let events = ["create", "export", "import"];
            let before = events.map(count);
            two([first, second], |team| {
                let mut x = team.alloc::<u32>(2000).expect("memory");
                own_part_holds(&mut x, team.rank());
                team.barrier().expect("both are there");
            });
            let made = [0, 1, 2].map(|at| events.map(count)[at] - before[at]);
            // A block and a part of each, and each maps those of the other.
            assert_eq!(made, if fake.is_some() { [4, 4, 4] } else { [0, 0, 0] });
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
