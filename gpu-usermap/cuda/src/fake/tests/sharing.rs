//! Shared memory on the stand-in, whose exported descriptors are open `/dev/null`s.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use gpunet_region::PinnedRegion;

use super::driver::{Fake, GRANULARITY};
use super::{function, launch, soon};
use crate::driver::raw::constants::{
    DEVICE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, DEVICE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
};
use crate::{Device, ImportError, NotShareable, ShareableBuffer};

const MADE: [&str; 4] = ["create", "reserve", "map", "set access"];
const UNDONE: [&str; 3] = ["unmap", "free addresses", "release"];

fn device(fake: &Fake) -> Device {
    fake.cuda().device(0).expect("a device")
}

fn shared(fake: &Fake) -> ShareableBuffer {
    device(fake).alloc_shareable(GRANULARITY).expect("memory")
}

/// Returns the events since `from`.
fn since(fake: &Fake, from: usize) -> Vec<&'static str> {
    fake.events().split_off(from)
}

#[test]
fn lengths_are_rounded_up_to_the_granularity() {
    let fake = Fake::new();
    let device = device(&fake);
    for (asked, got) in [(1, 1), (GRANULARITY, 1), (GRANULARITY + 1, 2)] {
        assert_eq!(device.alloc_shareable(asked).expect("memory").len(), got * GRANULARITY);
    }
    for impossible in [0, usize::MAX] {
        let refused = device.alloc_shareable(impossible).expect_err("no such length");
        assert_eq!((refused.call, refused.code), ("cuMemCreate", 1));
    }
}

#[test]
fn memory_is_made_in_order_and_given_back_in_the_opposite_one() {
    let fake = Fake::new();
    let device = device(&fake);
    let shared = device.alloc_shareable(1).expect("memory");
    assert_eq!(fake.events(), MADE);
    let clone = shared.buffer().clone();
    drop(shared);
    assert_eq!(device.read(&clone, 0, &mut [0]), Ok(()));
    drop(clone);
    assert!(soon(|| fake.events().len() == 7));
    assert_eq!(since(&fake, 4), UNDONE);
}

#[test]
fn a_failed_allocation_undoes_the_steps_before_it_also_under_a_kernel() {
    let fake = Fake::new();
    let device = device(&fake);
    let running = launch(&device, &function(&device), 1);
    for (failing, done, undone) in [("create", 0, 0), ("reserve", 1, 1), ("map", 2, 2), ("set access", 3, 3)]
    {
        let from = fake.events().len();
        fake.fail(Some(failing));
        device.alloc_shareable(1).expect_err(failing);
        let expected = [&MADE[..done], &UNDONE[3 - undone..]].concat();
        assert_eq!(since(&fake, from), expected, "{failing}");
    }
    fake.end_kernels();
    running.wait().expect("no fault");
}

#[test]
fn an_import_maps_and_undoes_as_an_allocation_does() {
    let fake = Fake::new();
    let device = device(&fake);
    let shared = shared(&fake);
    let made = ["export", "import", "properties", "reserve", "map", "set access"];
    for (failing, done, undone) in
        [("import", 1, 0), ("properties", 2, 1), ("reserve", 3, 1), ("map", 4, 2), ("set access", 5, 3)]
    {
        let from = fake.events().len();
        let fd = shared.export().expect("a descriptor");
        fake.fail(Some(failing));
        let refused = device.import(fd, shared.len()).expect_err(failing);
        assert!(matches!(refused, ImportError::Cuda(_)), "{failing}: {refused}");
        assert_eq!(since(&fake, from), [&made[..done], &UNDONE[3 - undone..]].concat(), "{failing}");
        fake.fail(None);
    }
    let from = fake.events().len();
    let imported = device.import(shared.export().expect("a descriptor"), shared.len()).expect("a mapping");
    assert_eq!((imported.len(), imported.location()), (GRANULARITY, Some(0)));
    assert_ne!(imported.ptr(), shared.ptr());
    assert_eq!(since(&fake, from), made);
    drop(imported);
    assert!(soon(|| fake.events().len() == from + 9));
    assert_eq!(since(&fake, from + 6), UNDONE);
}

#[test]
fn both_ends_stay_mapped_while_a_launch_runs() {
    let fake = Fake::new();
    let device = device(&fake);
    let shared = shared(&fake);
    let imported = device.import(shared.export().expect("a descriptor"), shared.len()).expect("a mapping");
    let running = launch(&device, &function(&device), 1);
    drop((shared, imported));
    for _ in 0..10 {
        assert_eq!(running.is_finished(), Ok(false));
    }
    assert!(!fake.events().contains(&"unmap"), "{:?}", fake.events());
    fake.end_kernels();
    assert!(soon(|| fake.events().iter().filter(|&&event| event == "release").count() == 2));
}

#[test]
fn descriptors_of_anything_else_never_reach_the_driver() {
    let fake = Fake::new();
    let device = device(&fake);
    let region = PinnedRegion::create("no GPU memory", 4096).expect("a region");
    let others: [(&str, OwnedFd); 5] = [
        ("a file (\"/memfd:", region.fd().try_clone_to_owned().expect("a copy")),
        ("a directory (\"/proc", File::open("/proc").expect("a directory").into()),
        ("a socket (\"socket:", UnixStream::pair().expect("a pair").0.into()),
        ("a pipe (\"pipe:", std::io::pipe().expect("a pipe").0.into()),
        ("the character device 1:5 (\"/dev/zero", File::open("/dev/zero").expect("a device").into()),
    ];
    for (what, fd) in others {
        match device.import(fd, GRANULARITY) {
            Err(ImportError::NotExported { found }) => assert!(found.starts_with(what), "{what}: {found}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    assert_eq!(fake.events(), Vec::<&str>::new());
}

#[test]
fn lengths_that_a_peer_made_up_are_refused() {
    let fake = Fake::new();
    let device = device(&fake);
    let shared = shared(&fake);
    let import = |len| device.import(shared.export().expect("a descriptor"), len);
    for len in [0, 1, GRANULARITY - 1, GRANULARITY + 1, 1 << 41, usize::MAX] {
        match import(len) {
            Err(ImportError::Length { len: refused, granularity: GRANULARITY }) => assert_eq!(refused, len),
            other => panic!("{len}: {other:?}"),
        }
    }
    assert!(!fake.events().contains(&"import"));
    let refused = import(2 * GRANULARITY).expect_err("beyond the end");
    assert!(matches!(&refused, ImportError::Cuda(error) if error.call == "cuMemMap"), "{refused}");
}

#[test]
fn a_descriptor_of_the_driver_that_stands_for_no_gpu_memory_is_refused() {
    let fake = Fake::new();
    let shared = shared(&fake);
    fake.import_other_memory();
    let refused = device(&fake)
        .import(shared.export().expect("a descriptor"), shared.len())
        .expect_err("memory of the host");
    assert!(matches!(refused, ImportError::OtherMemory { kind: 1, location: 2 }), "{refused}");
    assert_eq!(fake.events().last(), Some(&"release"));
}

#[test]
fn a_gpu_that_cannot_share_says_why() {
    let fake = Fake::new();
    let device = device(&fake);
    assert_eq!(device.can_share(), Ok(()));
    assert_eq!(device.uuid(), [1; 16]);
    fake.lack(DEVICE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    assert_eq!(device.can_share(), Err(NotShareable::NoVirtualMemory));
    fake.lack(DEVICE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    assert_eq!(device.can_share(), Err(NotShareable::NoFileDescriptors));
}
