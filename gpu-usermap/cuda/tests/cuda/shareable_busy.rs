//! Which calls about shared memory return while a kernel runs that waits for the host.

use std::any::Any;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gpunet_cuda::{
    AllocationKind, CudaStream, Device, Function, IpcHandle, Launch, ShareableBuffer, StreamPriority,
};
use gpunet_region::PinnedRegion;

use crate::child::{Child, SHARED};
use crate::support::{Words, kernels, on_gpu, other_gpu, spec, u64_param};

/// How long the kernels wait: a call that they do not outlast has waited for them. So nothing hangs
/// here.
const LIMIT: Duration = Duration::from_secs(2);

/// How often each call is made: the first may set something up.
const ROUNDS: usize = 3;

/// A call on a device, with memory that is shared, and a descriptor of it. What it returns is
/// dropped after the kernels' end.
type Call = (&'static str, fn(&Device, &ShareableBuffer, OwnedFd) -> Box<dyn Any>);

const CALLS: [Call; 10] = [
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
    ("allocations, export", |device, shared, _| {
        let found = device.allocations(shared.ptr(), shared.len()).expect("its allocation");
        assert_eq!(
            (found[0].base, found[0].len, found[0].kind),
            (shared.ptr(), shared.len(), AllocationKind::Virtual)
        );
        Box::new(device.export_allocation(&found[0]).expect("a descriptor"))
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
            // Only what has to do with a descriptor depends on whose memory it is. A device knows
            // the allocations of its own.
            let calls = if owner.ordinal() == device.ordinal() { &CALLS[..] } else { &CALLS[5..] };
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

/// As the test above, with memory of `cuMemAlloc` of another process, and copies.
#[test]
fn calls_about_another_processs_memory_return_while_kernels_fill_the_gpus_and_wait() {
    on_gpu!(first);
    let second = other_gpu(&first);
    let stream = first.create_stream(StreamPriority::Normal).expect("a stream");
    let target = first.alloc(SHARED).expect("memory");
    let mut waited = Vec::new();
    for owner in [first.ordinal(), second.ordinal()] {
        let mut child = Child::start("ipc", owner);
        let mut next = || {
            child.socket.write_all(&[1]).expect("the child is there");
            let mut handle = IpcHandle([0; 64]);
            child.socket.read_exact(&mut handle.0).expect("a handle");
            handle
        };
        for (case, running) in [
            ("no kernel", vec![]),
            ("same GPU, one block", vec![Waiting::new(&first, false)]),
            ("same GPU, full", vec![Waiting::new(&first, true)]),
            ("other GPU full", vec![Waiting::new(&second, true)]),
            ("both GPUs full", vec![Waiting::new(&first, true), Waiting::new(&second, true)]),
        ] {
            if first.ordinal() == second.ordinal() && case.contains("GPUs") {
                continue;
            }
            let mut show = |name: &str, rounds: [(u128, bool); ROUNDS]| {
                let blocks = rounds.iter().any(|(_, outlasted)| !outlasted);
                let whose = if owner == first.ordinal() { "own" } else { "other's" };
                println!(
                    "{case:20} | {name:22} | {whose:7} | {:?} us{}",
                    rounds.map(|(took, _)| took),
                    if blocks { " BLOCKS" } else { "" }
                );
                // A copy from a GPU to itself takes the place of a kernel, and may wait for one.
                let is_within = name == "copy on one GPU" || (name == "copy from it" && whose == "own");
                let is_full = case != "other GPU full" || first.ordinal() == second.ordinal();
                if blocks && !(is_within && is_full && case.contains("full")) {
                    waited.push((case, name.to_owned(), whose));
                }
            };
            let handles = [(); ROUNDS].map(|()| next());
            show(
                "open ipc",
                handles.map(|handle| {
                    during(&running, || Box::new(first.open_ipc(handle, SHARED).expect("a mapping")))
                }),
            );
            let mapped = first.open_ipc(next(), SHARED).expect("a mapping");
            show(
                "copy from it",
                [(); ROUNDS].map(|()| during(&running, || copied(&stream, target.ptr(), mapped.ptr()))),
            );
            let plain = first.alloc(SHARED).expect("memory");
            let [allocation] = first.allocations(plain.ptr(), SHARED).expect("its allocation")[..] else {
                panic!("one allocation")
            };
            assert_eq!(allocation.kind, AllocationKind::Plain);
            show(
                "ipc handle",
                [(); ROUNDS].map(|()| {
                    during(&running, || Box::new(first.ipc_handle(&allocation).expect("a handle")))
                }),
            );
            show(
                "copy on one GPU",
                [(); ROUNDS].map(|()| during(&running, || copied(&stream, target.ptr(), plain.ptr()))),
            );
        }
    }
    assert!(waited.is_empty(), "these calls waited for a kernel: {waited:?}");
}

fn copied(stream: &CudaStream, to: u64, from: u64) -> Box<dyn Any> {
    // SAFETY: both are longer, and live until the stream is done.
    unsafe { stream.copy(to, from, SHARED) }.expect("enqueued");
    stream.synchronize().expect("no fault");
    Box::new(())
}
