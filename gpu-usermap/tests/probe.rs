//! The probe on whatever machine this is.

use std::io::Write;

use gpu_usermap::cuda::{Cuda, Unavailable};
use gpu_usermap::mapping::BackendKind;
use gpu_usermap::placement::{Placement, PlacementChoice, Reason};
use gpu_usermap::{mapping, placement, probe};

#[test]
fn a_machine_without_the_driver_library_says_so_and_does_not_panic() {
    match Cuda::load() {
        Err(Unavailable::Library { reason }) => {
            assert!(reason.contains("libcuda"), "{reason}");
            let probe = probe();
            assert!(matches!(probe.driver, Err(Unavailable::Library { .. })), "{probe:?}");
            assert!(probe.devices.is_empty() && probe.failed_devices.is_empty(), "{probe:?}");
            assert!(probe.to_string().starts_with("CUDA: not used: "), "{probe}");
        }
        other => {
            // Not `eprintln!`, whose output the test harness swallows when a test passes.
            let text = format!("NOT RUN: needs a machine without libcuda (here: {other:?})\n");
            std::io::stderr().write_all(text.as_bytes()).expect("stderr");
        }
    }
}

#[test]
fn every_line_of_the_text_is_a_fact() {
    let probe = probe();
    let text = probe.to_string();
    println!("{text}");
    assert!(text.lines().count() >= 3);
    for line in text.lines() {
        assert!(line.contains(": "), "{line:?} names no fact");
    }
}

#[test]
fn every_way_to_map_gpu_memory_works_or_says_why_not() {
    let backends = mapping::backends();
    let kinds: Vec<_> = backends.iter().map(|backend| backend.kind).collect();
    assert_eq!(kinds, [BackendKind::Gdrdrv, BackendKind::DmaBuf]);
    for backend in backends {
        println!("{}: {:?}", backend.kind, backend.usable);
        if let Err(reason) = backend.usable {
            assert!(!reason.to_string().is_empty());
        }
    }
}

#[test]
fn a_machine_without_a_card_keeps_its_rings_in_pinned_memory() {
    let probe = probe();
    if !probe.rdma.rdma_devices.is_empty() {
        let text = format!("NOT RUN: needs a machine without an RDMA card (here: {:?})\n", probe.rdma);
        std::io::stderr().write_all(text.as_bytes()).expect("stderr");
        return;
    }
    let facts = probe.facts(probe.devices.first());
    assert_eq!(placement::choose(&facts, PlacementChoice::Auto), Ok(Placement::Pinned));
    assert!(placement::why_not(&facts, Placement::GpuDmaBuf).contains(&Reason::NoCard));
    let text = probe.to_string();
    assert!(
        text.contains("rings of RDMA connections: pinned host memory; not GPU memory by dma-buf"),
        "{text}"
    );
    assert!(text.contains("still awaited"), "{text}");
}
