//! Which calls about shared memory return while a kernel runs that waits for the host.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gpunet_cuda::{Device, Function, Launch, ShareableBuffer};
use gpunet_region::PinnedRegion;

use crate::support::{Words, kernels, on_gpu, other_gpu, spec, u64_param};

/// How long the kernels wait: a call that they do not outlast has waited for them. So nothing hangs
/// here.
const LIMIT: Duration = Duration::from_secs(2);

/// How often each call is made: the first may set something up.
const ROUNDS: usize = 3;

/// A call on a device, with memory that is shared, and a descriptor of it. What it returns is
/// dropped after the kernels' end.
type Call = (&'static str, fn(&Device, &ShareableBuffer, OwnedFd) -> Box<dyn Any>);

const CALLS: [Call; 9] = [
    ("alloc_shareable 4 MiB", |device, _, _| Box::new(device.alloc_shareable(4 << 20).expect("memory"))),
    ("alloc_shareable 64 MiB", |device, _, _| Box::new(device.alloc_shareable(64 << 20).expect("memory"))),
    ("append 64 MiB, export", |device, _, _| {
        let heap = device.reserve(1 << 30).expect("addresses");
        let fds = [heap.append(64 << 20).expect("memory"), heap.append(2 << 20).expect("memory")];
        heap.truncate(64 << 20).expect("the context is well");
        Box::new((heap, fds))
    }),
    ("register 16 MiB", |device, _, _| {
        let region = PinnedRegion::create("late", 16 << 20).expect("a region");
        Box::new(device.register(region).expect("a registration"))
    }),
    ("export", |_, shared, _| Box::new(shared.export().expect("a descriptor"))),
    ("import", |device, shared, fd| Box::new(device.import(fd, shared.len()).expect("a mapping"))),
    ("append imported", |device, shared, fd| {
        let heap = device.reserve(1 << 30).expect("addresses");
        heap.append_imported(fd, shared.len()).expect("a mapping");
        Box::new(heap)
    }),
    ("import, refused", |device, shared, fd| {
        Box::new(device.import(fd, 2 * shared.len()).expect_err("too long"))
    }),
    ("closing a descriptor", |_, _, fd| {
        drop(fd);
        Box::new(())
    }),
];

/// A kernel that waits for the host, in so many blocks that nothing fits beside it, or in one.
struct Waiting {
    kernel: Function,
    words: Words,
    fills: bool,
}

impl Waiting {
    fn new(device: &Device, fills: bool) -> Self {
        let kernel = kernels(device).function("wait_for_host").expect("it");
        Self { kernel, words: Words::new(device), fills }
    }

    fn start(&self) -> Launch {
        let Self { kernel, words, fills } = self;
        words.word(0).store(0, Ordering::SeqCst);
        let (threads, at) = (512, words.registration.device_ptr());
        let all = kernel.device().multiprocessors() * kernel.occupancy(threads, 0).expect("occupancy");
        let limit = u64::try_from(LIMIT.as_nanos()).expect("2 s fit");
        let params = vec![u64_param(at), u64_param(limit), u64_param(at + 64)];
        let spec = spec(kernel, if *fills { all } else { 1 }, threads, params);
        // SAFETY: two words of the registered page and a number, as the kernel takes them.
        unsafe { kernel.device().launch(&[spec]) }.expect("a launch")
    }
}

/// Makes the call while the kernels run, and tells how many microseconds it took, and whether the
/// kernels outlasted it.
fn during(kernels: &[Waiting], call: impl FnOnce() -> Box<dyn Any>) -> (u128, bool) {
    let launches: Vec<_> = kernels.iter().map(Waiting::start).collect();
    let started = Instant::now();
    let result = call();
    let took = started.elapsed();
    let outlasted = launches.iter().all(|launch| !launch.is_finished().expect("no fault"));
    for (launch, waiting) in launches.iter().zip(kernels) {
        waiting.words.stop();
        launch.wait().expect("no fault");
    }
    drop(result);
    (took.as_micros(), outlasted)
}

#[test]
fn calls_about_shared_memory_return_while_kernels_fill_the_gpus_and_wait() {
    on_gpu!(first);
    let second = other_gpu(&first);
    let mut waited = Vec::new();
    for (case, running, device) in [
        ("no kernel", vec![], &first),
        ("same GPU, one block", vec![Waiting::new(&first, false)], &first),
        ("same GPU, full", vec![Waiting::new(&first, true)], &first),
        ("other GPU full", vec![Waiting::new(&first, true)], &second),
        ("both GPUs full", vec![Waiting::new(&first, true), Waiting::new(&second, true)], &first),
    ] {
        if running.len() == 2 && first.ordinal() == second.ordinal() {
            continue;
        }
        let both = [&first, &second];
        let owners = if first.ordinal() == second.ordinal() { &both[..1] } else { &both[..] };
        for owner in owners {
            let shared = owner.alloc_shareable(4 << 20).expect("memory");
            // Only what has to do with a descriptor depends on whose memory it is.
            let calls = if owner.ordinal() == device.ordinal() { &CALLS[..] } else { &CALLS[4..] };
            for (name, call) in calls {
                let rounds = [(); ROUNDS].map(|()| {
                    let fd = shared.export().expect("a descriptor");
                    during(&running, || call(device, &shared, fd))
                });
                let blocks = rounds.iter().any(|(_, outlasted)| !outlasted);
                let took = rounds.map(|(took, _)| took);
                let whose = if owner.ordinal() == device.ordinal() { "own" } else { "other's" };
                println!(
                    "{case:20} | {name:22} | {whose:7} | {took:?} us{}",
                    if blocks { " BLOCKS" } else { "" }
                );
                if blocks {
                    waited.push((case, *name, whose));
                }
            }
        }
    }
    assert!(waited.is_empty(), "these calls waited for a kernel: {waited:?}");
}
