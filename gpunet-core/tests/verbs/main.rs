//! One conformance suite over the verbs trait, for the simulated card and for real ones.
//!
//! The functions in `connecting`, `moving` and `waking` know the trait only. They run over the
//! simulated card in several moods, and over a real device when `GPUNET_VERBS=rdma` says so; then
//! `GPUNET_RDMA_ADDR` is an address of this host that an RDMA device has. `simulated` and `faults`
//! are about the simulation itself.

mod buffer;
mod connecting;
mod faults;
mod moving;
mod simulated;
mod waking;
mod world;

use gpunet_core::verbs::Verbs;
use gpunet_core::verbs::rdma::Rdma;
use gpunet_core::verbs::sim::{Fabric, FabricSettings};
use std::io::Write;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use world::World;

type Case = (&'static str, fn(&World));

macro_rules! cases {
    ($($module:ident :: $name:ident,)*) => { &[$((stringify!($name), $module::$name)),*] };
}

const CASES: &[Case] = cases![
    connecting::private_data_travels_both_ways,
    connecting::too_much_private_data_is_refused_at_once,
    connecting::a_rejected_client_is_refused,
    connecting::nobody_listens,
    connecting::a_closed_listener_refuses_those_who_wait,
    connecting::an_address_is_listened_at_once,
    connecting::requests_come_in_order,
    connecting::an_accept_waits_for_its_client,
    connecting::a_drop_ends_the_connection_for_the_peer,
    connecting::a_hundred_connections_leave_nothing_behind,
    connecting::memory_forgotten_in_use_goes_with_its_connection,
    connecting::an_impossible_depth_is_refused,
    moving::ring_writes_arrive_byte_for_byte,
    moving::two_pieces_arrive_as_one,
    moving::descriptors_arrive_in_the_table,
    moving::messages_and_completions_keep_their_order,
    moving::an_empty_write_takes_no_receive,
    moving::a_full_send_queue_says_so,
    moving::a_key_opens_its_own_connection_only,
    moving::a_key_of_another_connection_does_not_open_this_ring,
    moving::a_write_outside_the_ring_is_refused,
    moving::the_send_ring_is_not_for_the_peer,
    moving::messages_without_receives_wait_for_them,
    waking::no_wake_up_is_lost,
    waking::an_event_comes_once_for_each_arm,
    waking::descriptors_report_input_only,
    waking::the_end_of_a_connection_wakes,
];

/// Runs every case in a world of its own; reports which failed.
fn conform(world: impl Fn() -> World) {
    let mut failed = Vec::new();
    for (name, case) in CASES {
        // A case leaves nothing behind that the next one could find broken.
        let run = AssertUnwindSafe(|| {
            let world = world();
            println!("{}: {name}", world.name);
            case(&world);
        });
        if catch_unwind(run).is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "failed: {failed:#?}");
}

fn in_memory(name: &str, settings: &FabricSettings) -> World {
    let fabric = Fabric::with(settings.clone());
    World::new(name, fabric.verbs(), fabric.verbs(), IpAddr::from([127, 0, 0, 1]))
}

#[test]
fn the_simulated_card_conforms() {
    conform(|| in_memory("roce", &FabricSettings::new(1)));
}

#[test]
fn the_simulated_iwarp_card_conforms() {
    conform(|| in_memory("iwarp", &FabricSettings { iwarp: true, ..FabricSettings::new(1) }));
}

#[test]
fn the_simulated_card_conforms_with_delays() {
    for seed in 1..=4 {
        for iwarp in [false, true] {
            let delay = Duration::ZERO..=Duration::from_micros(150);
            let arm_delay = delay.clone();
            let settings = FabricSettings { delay, arm_delay, iwarp, ..FabricSettings::new(seed) };
            conform(|| in_memory(&format!("seed {seed}, iwarp {iwarp}"), &settings));
        }
    }
}

#[test]
fn the_simulated_card_conforms_on_a_lossy_network() {
    let settings = FabricSettings {
        loss_per_mille: 5,
        ack_timeout: Duration::from_micros(500),
        delay: Duration::ZERO..=Duration::from_micros(50),
        ..FabricSettings::new(9)
    };
    conform(|| in_memory("lossy", &settings));
}

#[test]
fn a_real_device_conforms() {
    if std::env::var("GPUNET_VERBS").as_deref() != Ok("rdma") {
        // Not by println, which is shown for failing tests only.
        let text = "NOT RUN: real verbs (GPUNET_VERBS=rdma, GPUNET_RDMA_ADDR=<an RDMA device's address>)";
        let _ = writeln!(std::io::stderr(), "{text}");
        return;
    }
    let ip = std::env::var("GPUNET_RDMA_ADDR").expect("GPUNET_RDMA_ADDR: an address of an RDMA device");
    let ip: IpAddr = ip.parse().expect("GPUNET_RDMA_ADDR is an IP address");
    conform(|| World::new("rdma", real(), real(), ip));
}

fn real() -> Box<dyn Verbs> {
    match Rdma::open() {
        Ok(rdma) => Box::new(rdma),
        Err(why) => panic!("GPUNET_VERBS=rdma, but {why}"),
    }
}
