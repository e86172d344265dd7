//! The program's signals are the program's.

use crate::support::process::{library_threads, takes_no_signal};
use crate::support::{World, bounded};
use gpunet_device::{Group, Kernel};
use gpunet_proxy::queue::Queue;
use std::sync::Barrier;

/// Two lanes that stay until the test has seen them.
#[derive(Clone, Copy)]
struct Stay(&'static Barrier);

impl Kernel for Stay {
    const ENTRY: &'static str = "stay";

    fn run<G: Group>(self, _: &G) {
        self.0.wait();
        self.0.wait();
    }
}

#[test]
fn no_thread_of_the_library_takes_them() {
    bounded(|| {
        let barrier: &'static Barrier = Box::leak(Box::new(Barrier::new(3)));
        let world = World::new();
        let _host = world.attachment().host().expect("a host");
        let _queue = Queue::cpu(world.attachment()).expect("a queue");
        let program = world.attachment().load("", 2).expect("nothing to load for a CPU");
        // SAFETY: the kernel uses no memory but the barrier, which is never freed.
        let launch =
            unsafe { world.attachment().launch(&program, 1, 2, |_| Stay(barrier)) }.expect("a launch");
        barrier.wait();
        let names = [
            "gpunet-data-0",
            "gpunet-control",
            "gpunet-heartbea",
            "gpunet-memory",
            "gpunet-host",
            "gpunet-queue",
            "gpunet-block-0.",
        ];
        let threads = library_threads(std::process::id(), &names);
        barrier.wait();
        drop(launch);
        for (name, blocked) in threads {
            takes_no_signal(&name, blocked);
        }
    });
}
