//! Memory that is exported and imported.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use gpunet_cuda::{AllocationKind, Device, ImportError};
use gpunet_region::PinnedRegion;

use crate::child::{Child, SHARED, send_fd};
use crate::support::{kernels, on_gpu, other_gpu, spec, u32_param, u64_param};

const MIB: usize = 1 << 20;

fn fill(device: &Device, address: u64, value: u32) {
    let fill = kernels(device).function("fill").expect("the kernel");
    let params = vec![u64_param(address), u32_param(value)];
    // SAFETY: 4 blocks of 256 threads write 4 KiB, and both mappings are larger.
    let launch = unsafe { device.launch(&[spec(&fill, 4, 256, params)]) }.expect("a launch");
    launch.wait().expect("no fault");
}

#[test]
fn what_one_mapping_writes_the_other_reads() {
    on_gpu!(device);
    let other = other_gpu(&device);
    for (owner, user) in [(&device, &other), (&other, &device), (&device, &device)] {
        owner.can_share().expect("an H200 shares memory");
        let shared = owner.alloc_shareable(2 * MIB + 1).expect("memory");
        assert_eq!(shared.len() % (2 * MIB), 0, "{} bytes are no whole pages", shared.len());
        assert!(shared.len() > 2 * MIB);
        let imported = user.import(shared.export().expect("a descriptor"), shared.len()).expect("a mapping");
        assert_eq!((imported.len(), imported.location()), (shared.len(), Some(owner.ordinal())));
        assert_ne!(imported.ptr(), shared.ptr());
        let mut bytes = vec![1; shared.len()];
        user.read(imported.buffer(), 0, &mut bytes).expect("a read");
        assert!(bytes.iter().all(|&byte| byte == 0), "fresh memory is not zero");

        fill(user, imported.ptr(), 1000);
        let mut word = [0; 4];
        owner.read(shared.buffer(), 4092, &mut word).expect("a read");
        assert_eq!(u32::from_ne_bytes(word), 1000 + 1023);
        fill(owner, shared.ptr() + 4096, 2000);
        let end = shared.len() - 3;
        owner.write(shared.buffer(), end, b"end").expect("a write");
        user.read(imported.buffer(), 8188, &mut word).expect("a read");
        assert_eq!(u32::from_ne_bytes(word), 2000 + 1023);

        // The import keeps the memory.
        drop(shared);
        let mut last = [0; 3];
        user.read(imported.buffer(), end, &mut last).expect("a read");
        assert_eq!(&last, b"end");
    }
}

#[test]
fn pieces_that_come_one_by_one_are_one_run_of_memory_on_both_gpus() {
    const PIECE: usize = 4 * MIB;
    on_gpu!(device);
    let other = other_gpu(&device);
    let (own, its) =
        (device.reserve(1 << 30).expect("addresses"), other.reserve(1 << 30).expect("addresses"));
    let grow = || {
        let fd = own.append(PIECE).expect("memory");
        its.append_imported(fd, PIECE).expect("a mapping");
    };
    grow();
    fill(&other, its.ptr(), 1000);
    grow();
    assert_eq!((own.mapped_len(), its.mapped_len()), (2 * PIECE, 2 * PIECE));
    // 4 KiB over the end of the first piece.
    fill(&other, its.ptr() + (PIECE - 2048) as u64, 5000);
    let mut bytes = vec![1; 2 * PIECE];
    own.read(0, &mut bytes).expect("a read");
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
    assert_eq!((word(4092), word(PIECE - 4), word(PIECE)), (1000 + 1023, 5000 + 511, 5000 + 512));
    assert!(bytes[PIECE + 2048..].iter().all(|&byte| byte == 0), "fresh memory is not zero");
    // The second piece goes and another takes its place, while the first stays.
    own.truncate(PIECE).expect("the context is well");
    its.truncate(PIECE).expect("the context is well");
    grow();
    its.write(PIECE - 2, b"over").expect("inside");
    let mut over = [0; 4];
    own.read(PIECE - 2, &mut over).expect("inside");
    assert_eq!(&over, b"over");
}

#[test]
fn the_uuid_names_the_gpu() {
    on_gpu!(device);
    println!("{:02x?}", device.uuid());
    assert_ne!(device.uuid(), [0; 16]);
    let other = other_gpu(&device);
    assert_eq!(device.uuid() == other.uuid(), device.ordinal() == other.ordinal());
}

#[test]
fn an_exported_descriptor_is_the_drivers_control_device_and_closed_on_exec() {
    on_gpu!(device);
    let shared = device.alloc_shareable(1).expect("memory");
    let fd = shared.export().expect("a descriptor");
    let number = fd.as_raw_fd();
    let link = fs::read_link(format!("/proc/self/fd/{number}")).expect("a link");
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    println!(
        "an exported descriptor: {link:?}, {:?}, {info:?}",
        File::from(fd.try_clone().expect("a copy")).metadata()
    );
    println!("/dev/nvidiactl: {:?}", fs::metadata("/dev/nvidiactl"));
    // SAFETY: F_GETFD takes nothing else.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    assert_ne!(flags & libc::FD_CLOEXEC, 0);
    assert_eq!(link.to_str(), Some("/dev/nvidiactl"));
}

#[test]
fn other_descriptors_and_wrong_lengths_are_refused() {
    on_gpu!(device);
    let shared = device.alloc_shareable(4 * MIB).expect("memory");
    for (what, fd) in [
        ("a memfd", memfd()),
        ("a file", File::open("/proc/self/exe").expect("a file").into()),
        ("a socket", UnixStream::pair().expect("a pair").0.into()),
        ("a device", File::open("/dev/null").expect("a device").into()),
        ("a pipe", std::io::pipe().expect("a pipe").0.into()),
    ] {
        let refused = device.import(fd, 2 * MIB).expect_err(what);
        println!("{what}: {refused}");
        assert!(matches!(refused, ImportError::NotExported { .. }), "{what}: {refused}");
    }
    let control: OwnedFd = File::options().read(true).write(true).open("/dev/nvidiactl").expect("it").into();
    let refused = device.import(control, 2 * MIB).expect_err("nothing was exported to it");
    println!("the control device itself: {refused}");
    assert!(matches!(refused, ImportError::Cuda(_)), "{refused}");

    let import = |len| device.import(shared.export().expect("a descriptor"), len);
    for len in [0, 1, 4 * MIB - 1, 1 << 41, usize::MAX] {
        let refused = import(len).expect_err("no such length");
        assert!(matches!(refused, ImportError::Length { .. }), "{len}: {refused}");
    }
    for len in [6 * MIB, 1 << 30, 1 << 40] {
        let refused = import(len).expect_err("beyond the end");
        println!("{len} bytes of {}: {refused}", shared.len());
        assert!(matches!(refused, ImportError::Cuda(_)), "{len}: {refused}");
    }
    println!("a part of the memory: {:?}", import(2 * MIB).map(|part| part.len()));
    import(4 * MIB).expect("the right length, after all those");
}

fn memfd() -> OwnedFd {
    let region = PinnedRegion::create("no GPU memory", 4096).expect("a region");
    region.fd().try_clone_to_owned().expect("a copy")
}

#[test]
fn memory_of_a_gpu_that_the_importer_does_not_see_is_usable_or_refused() {
    on_gpu!(device);
    let other = other_gpu(&device);
    let shared = device.alloc_shareable(SHARED).expect("memory");
    // The form that CUDA_VISIBLE_DEVICES and nvidia-smi use.
    let hex: String = other.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    let child = Child::with("describe", 0, &[("CUDA_VISIBLE_DEVICES", name.clone())]);
    send_fd(&child.socket, &shared.export().expect("a descriptor"));
    let mut answer = String::new();
    BufReader::new(&child.socket).read_line(&mut answer).expect("an answer");
    println!("in a process that sees {name} alone: {answer}");
    let (uuid, result) = answer.split_once(": ").expect("two parts");
    assert_eq!(uuid, format!("{:?}", other.uuid()));
    // Whether it works is the driver's affair; that what looks usable is usable is ours.
    if let Some(written) = result.trim_end().strip_prefix("wrote ") {
        let mut bytes = [0; 8];
        device.read(shared.buffer(), 0, &mut bytes).expect("a read");
        assert_eq!(written, u64::from_ne_bytes(bytes).to_string());
    }
}

/// What a cache of mappings in another process relies on.
#[test]
fn memory_that_is_mapped_anew_at_the_same_address_has_another_number() {
    on_gpu!(device);
    let heap = device.reserve(64 * MIB).expect("addresses");
    let piece = 4 * MIB;
    let numbers = || -> Vec<u64> {
        let found = device.allocations(heap.ptr(), heap.mapped_len()).expect("its allocations");
        assert!(found.iter().all(|one| one.len == piece && one.kind == AllocationKind::Virtual), "{found:?}");
        found.iter().map(|one| one.id).collect()
    };
    drop([heap.append(piece).expect("memory"), heap.append(piece).expect("memory")]);
    let before = numbers();
    assert_eq!(before.len(), 2, "one for each mapping: {before:?}");
    heap.truncate(piece).expect("the context is well");
    drop(heap.append(piece).expect("memory"));
    let after = numbers();
    println!("numbers before and after: {before:?} {after:?}");
    assert!(before[0] == after[0] && before[1] != after[1], "{before:?} {after:?}");
}
