//! Interleavings of hand-offs inside a device and between a device and its proxy, by loom: the
//! shipped code, on memory of the shipped layout ([`gpunet_device::abi::atomic`]). The tests play
//! the proxy and the host.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-device --test loom --release`. Each model
//! names a change of the code by which it fails.
#![cfg(loom)]

mod announcing;
mod directions;
mod poll_groups;
#[path = "../device/groups/proxy.rs"]
#[allow(dead_code, reason = "the device's tests use the rest")]
mod proxy;
mod teams;
#[path = "../device/world.rs"]
#[allow(dead_code, reason = "as above")]
mod world;

use gpunet_device::abi::atomic::model;
use gpunet_device::group::Solo;
use world::World;

const G: Solo = Solo::new(0, 1);

/// A world for all executions of a model, which begin with the memory that it has now.
pub fn check(
    preemptions: usize,
    world: &'static World,
    body: impl Fn(&'static World) + Send + Sync + 'static,
) {
    let saved = world.save();
    model(preemptions, move || {
        world.restore(&saved);
        body(world);
    });
}

/// A world for one test.
pub fn world() -> &'static World {
    Box::leak(Box::new(World::new()))
}
