//! Allocations that others have made, and those of other processes.

use super::{driver::Fake, soon};
use crate::Device;

fn device(fake: &Fake) -> Device {
    fake.cuda().device(0).expect("a device")
}

#[test]
fn a_range_over_several_allocations_is_walked_and_each_has_its_number() {
    let fake = Fake::new();
    let device = device(&fake);
    let buffer = device.alloc(10_000).expect("memory");
    let found = device.allocations(buffer.ptr() + 100, 9_900).expect("its allocation");
    assert_eq!((found.len(), found[0].base, found[0].len), (1, buffer.ptr(), 10_000));
    let other = device.alloc(10_000).expect("memory");
    assert_ne!(device.allocations(other.ptr(), 1).expect("its allocation")[0].id, found[0].id);
    assert!(device.allocations(16, 1).is_err(), "nothing is there");
    assert_eq!(device.allocations(buffer.ptr(), 0), Ok(vec![]));
}

#[test]
fn a_handle_is_opened_once_and_closed_with_its_last_user() {
    let fake = Fake::new();
    let device = device(&fake);
    let buffer = device.alloc(10_000).expect("memory");
    let [allocation] = device.allocations(buffer.ptr(), 10_000).expect("its allocation")[..] else {
        panic!("one allocation")
    };
    let handle = device.ipc_handle(&allocation).expect("a handle");
    let error = device.open_ipc(handle, 10_001).expect_err("it is shorter");
    assert!(error.call.contains("shorter"), "{error}");
    let first = device.open_ipc(handle, 10_000).expect("a mapping");
    let second = device.open_ipc(handle, 10_000).expect("the same mapping");
    assert_eq!((first.ptr(), first.len()), (second.ptr(), second.len()));
    let count = |name| fake.events().iter().filter(|&&event| event == name).count();
    assert_eq!((count("open ipc"), count("close ipc")), (2, 1), "one that was too long, and one");
    drop(first);
    device.agent().run(|_| ()).expect("it has an occasion to release");
    assert_eq!(count("close ipc"), 1);
    drop(second);
    assert!(soon(|| count("close ipc") == 2));
    drop(device.open_ipc(handle, 10_000).expect("it can be opened again"));
}
