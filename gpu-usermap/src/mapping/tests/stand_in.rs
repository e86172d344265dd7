//! Export and mapping on the stand-in for a driver, whose dma-bufs are memfds: the whole way but
//! the hardware.

use gpunet_cuda::fake::Fake;
use gpunet_cuda::{DmabufError, DmabufRoute, DriverVersion, GpuBuffer};

use crate::mapping::{BackendChoice, BackendKind, MappingUnavailable, MemoryType, map};

fn buffer(fake: &Fake, len: usize) -> GpuBuffer {
    fake.cuda().device(0).expect("a device").alloc(len).expect("memory")
}

#[test]
fn a_new_driver_maps_a_dmabuf_and_the_bytes_are_where_the_range_says() {
    let fake = Fake::of_version(DriverVersion::new(13, 3));
    let buffer = buffer(&fake, 1 << 16);
    let mut mapping = map(&buffer, 100..5000, BackendChoice::DmaBuf).expect("a mapping");
    assert_eq!((mapping.kind(), mapping.len()), (BackendKind::DmaBuf, 4900));
    // The stand-in says 8 to every attribute, so it is coherent, and its order of writes is
    // unknown.
    assert_eq!(mapping.memory_type(), MemoryType::Cached);
    assert!(!mapping.is_ordered() && !mapping.is_revoked());
    assert_eq!(mapping.device_ptr(), buffer.ptr() + 100);
    mapping.write(0, &[7; 4900]).expect("in bounds");
    let mut last = [0; 2];
    mapping.read(4898, &mut last).expect("in bounds");
    assert_eq!(last, [7, 7]);
}

#[test]
fn a_mapping_keeps_the_memory_until_its_last_part_is_gone() {
    let fake = Fake::of_version(DriverVersion::new(13, 3));
    let buffer = buffer(&fake, 4096);
    let (head, tail) =
        map(&buffer, 0..4096, BackendChoice::Auto).expect("a mapping").split_at(64).expect("in bounds");
    drop((buffer, head));
    assert!(!fake.events().contains(&"free"));
    drop(tail);
    // The last handle to the device went with it, and its drop waits for all releases.
    assert!(fake.events().contains(&"free"), "{:?}", fake.events());
}

#[test]
fn an_old_driver_is_refused_with_every_reason() {
    let fake = Fake::new();
    let buffer = buffer(&fake, 4096);
    let refused = map(&buffer, 0..4096, BackendChoice::DmaBuf).expect_err("12.8 is too old");
    assert_eq!(refused.reasons[0], (BackendKind::Gdrdrv, MappingUnavailable::NotWanted));
    assert!(matches!(refused.reasons[1].1, MappingUnavailable::DriverTooOld { .. }), "{refused}");
    let none = map(&buffer, 0..4096, BackendChoice::None).expect_err("nothing was asked for");
    assert!(none.reasons.iter().all(|(_, reason)| *reason == MappingUnavailable::NotWanted), "{none}");
    assert!(!fake.events().contains(&"export"));
}

#[test]
fn ranges_outside_of_the_buffer_are_refused_before_any_call() {
    let fake = Fake::of_version(DriverVersion::new(13, 3));
    let buffer = buffer(&fake, 4096);
    for (start, end) in [(0, 4097), (4096, 4096), (9, 8), (usize::MAX, 0)] {
        let refused = map(&buffer, start..end, BackendChoice::Auto).expect_err("not a part of it");
        let reason = MappingUnavailable::OutOfBounds { start, end, size: 4096 };
        assert!(refused.reasons.iter().all(|(_, found)| *found == reason), "{refused}");
        assert_eq!(
            buffer.export_dmabuf_range(start..end, DmabufRoute::Default).err(),
            Some(DmabufError::OutOfBounds { start, end, size: 4096 })
        );
    }
    assert!(!fake.events().contains(&"export"));
}
