//! Addresses to which memory comes in pieces, on the stand-in.

use super::driver::{Fake, GRANULARITY};
use super::{function, launch, soon};
use crate::{CopyError, Device, GrowingBuffer, ImportError};

const MADE: [&str; 4] = ["create", "map", "set access", "export"];

fn device(fake: &Fake) -> Device {
    fake.cuda().device(0).expect("a device")
}

fn heap(device: &Device) -> GrowingBuffer {
    device.reserve(4 * GRANULARITY - 1).expect("addresses")
}

/// Returns the events since `from`.
fn since(fake: &Fake, from: usize) -> Vec<&'static str> {
    fake.events().split_off(from)
}

#[test]
fn pieces_follow_each_other_and_are_given_back_the_last_first() {
    let fake = Fake::new();
    let device = device(&fake);
    let heap = heap(&device);
    assert_eq!((heap.len(), heap.mapped_len()), (4 * GRANULARITY, 0));
    assert_eq!(fake.events(), ["reserve"], "it takes no memory");
    heap.append(GRANULARITY).expect("memory");
    heap.append(2 * GRANULARITY).expect("memory");
    assert_eq!(heap.mapped_len(), 3 * GRANULARITY);
    assert_eq!(since(&fake, 1), [MADE, MADE].concat());
    // Over both.
    let mut found = [9; 4];
    heap.write(GRANULARITY - 2, b"abc").expect("inside");
    heap.read(GRANULARITY - 2, &mut found).expect("inside");
    assert_eq!(&found, b"abc\0");
    drop(heap);
    assert!(soon(|| fake.events().len() == 14));
    assert_eq!(since(&fake, 9), ["unmap", "release", "unmap", "release", "free addresses"]);
}

#[test]
fn where_no_memory_is_nothing_is_copied() {
    let fake = Fake::new();
    let device = device(&fake);
    let heap = heap(&device);
    heap.append(GRANULARITY).expect("memory");
    let (offset, len, size) = (GRANULARITY - 1, 2, GRANULARITY);
    let refused = Err(CopyError::OutOfBounds { offset, len, size });
    assert_eq!((heap.write(offset, &[1; 2]), heap.read(offset, &mut [0; 2])), (refused.clone(), refused));
}

#[test]
fn memory_of_another_is_mapped_behind_what_there_is() {
    let fake = Fake::new();
    let device = device(&fake);
    let (heap, its) = (heap(&device), heap(&device));
    for pieces in 1..=2 {
        its.append_imported(heap.append(GRANULARITY).expect("memory"), GRANULARITY).expect("a mapping");
        assert_eq!(its.mapped_len(), pieces * GRANULARITY);
    }
    let fd = heap.append(GRANULARITY).expect("memory");
    let refused = its.append_imported(fd, 1).expect_err("no length of memory");
    assert!(matches!(refused, ImportError::Length { .. }), "{refused}");
    let file = std::fs::File::open("/dev/zero").expect("a device");
    let refused = its.append_imported(file.into(), GRANULARITY).expect_err("no memory");
    assert!(matches!(refused, ImportError::NotExported { .. }), "{refused}");
    assert_eq!(its.mapped_len(), 2 * GRANULARITY);
}

#[test]
fn a_piece_that_fails_leaves_those_before_it_also_under_a_kernel() {
    let fake = Fake::new();
    let device = device(&fake);
    let heap = heap(&device);
    heap.append(GRANULARITY).expect("memory");
    let running = launch(&device, &function(&device), 1);
    for (failing, undone) in [
        ("create", &[][..]),
        ("map", &["release"]),
        ("set access", &["unmap", "release"]),
        ("export", &["unmap", "release"]),
    ] {
        let from = fake.events().len();
        fake.fail(Some(failing));
        heap.append(GRANULARITY).expect_err(failing);
        fake.fail(None);
        let done = MADE.iter().position(|step| *step == failing).expect("a step");
        assert_eq!(since(&fake, from), [&MADE[..done], undone].concat(), "{failing}");
        assert_eq!(heap.mapped_len(), GRANULARITY, "{failing}");
    }
    // The addresses behind it may be another's.
    heap.append(4 * GRANULARITY).expect_err("more than is left");
    heap.append(3 * GRANULARITY).expect("exactly what is left");
    fake.end_kernels();
    running.wait().expect("no fault");
}

#[test]
fn a_piece_that_nobody_has_used_goes_at_once_and_all_others_when_no_kernel_runs() {
    let fake = Fake::new();
    let device = device(&fake);
    let heap = heap(&device);
    heap.append(GRANULARITY).expect("memory");
    let running = launch(&device, &function(&device), 1);
    heap.append(GRANULARITY).expect("memory");
    heap.append(GRANULARITY).expect("memory");
    let from = fake.events().len();
    heap.truncate(GRANULARITY).expect("the context is well");
    assert_eq!(since(&fake, from), ["unmap", "release", "unmap", "release"]);
    assert_eq!(heap.mapped_len(), GRANULARITY);
    drop(heap);
    for _ in 0..10 {
        assert_eq!(running.is_finished(), Ok(false));
    }
    assert_eq!(since(&fake, from + 4), Vec::<&str>::new());
    fake.end_kernels();
    assert!(soon(|| fake.events().last() == Some(&"free addresses")));
}
