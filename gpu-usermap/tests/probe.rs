//! The probe on whatever machine this is.

use std::io::Write;

use gpu_usermap::cuda::{Cuda, Unavailable};
use gpu_usermap::{mapping, probe};

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
fn cpu_mappings_are_not_used_and_each_says_why() {
    let backends = mapping::backends();
    assert_eq!(backends.iter().map(|backend| backend.name).collect::<Vec<_>>(), ["gdrdrv", "dma-buf mmap"]);
    for backend in backends {
        let reason = backend.used.expect_err("no backend is built in this version");
        assert!(!reason.to_string().is_empty());
    }
}
