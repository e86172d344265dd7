//! What a pinned region promises to the processes that share it. Needs Linux only.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpunet_region::{PinnedRegion, RegionError};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn word(region: &PinnedRegion, index: usize) -> &AtomicU64 {
    assert!((index + 1) * 8 <= region.len());
    // SAFETY: in bounds (checked), 8-aligned (the base is page-aligned), and every access in these
    // tests is atomic.
    unsafe { AtomicU64::from_ptr(region.base().as_ptr().cast::<u64>().add(index)) }
}

fn share(region: &PinnedRegion) -> OwnedFd {
    region.fd().try_clone_to_owned().expect("a spare descriptor")
}

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create("test", flags).expect("a memfd");
    ftruncate(&fd, len).expect("a length");
    fcntl_add_seals(&fd, seals).expect("sealed");
    fd
}

fn filled_memfd(len: usize) -> OwnedFd {
    let file = File::from(memfd(0, SealFlags::empty()));
    std::io::Write::write_all(&mut &file, &vec![0; len]).expect("a small file");
    fcntl_add_seals(&file, ALL_SEALS).expect("sealed");
    file.into()
}

const ALL_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

#[test]
fn two_mappings_see_each_others_writes() {
    let mine = PinnedRegion::create("two-mappings", 1 << 20).expect("a region");
    let theirs = PinnedRegion::from_fd(share(&mine)).expect("the same region");
    assert_ne!(mine.base(), theirs.base());
    assert_eq!(mine.len(), theirs.len());

    word(&mine, 0).store(7, Ordering::Release);
    assert_eq!(word(&theirs, 0).load(Ordering::Acquire), 7);
    let last = mine.len() / 8 - 1;
    word(&theirs, last).store(9, Ordering::Release);
    assert_eq!(word(&mine, last).load(Ordering::Acquire), 9);
}

#[test]
fn a_region_starts_as_zero_and_is_a_whole_number_of_pages() {
    let region = PinnedRegion::create("pages", 5000).expect("a region");
    assert_eq!(region.len(), 8192);
    assert_eq!(region.base().as_ptr() as usize % 4096, 0);
    assert!((0..region.len() / 8).all(|index| word(&region, index).load(Ordering::Relaxed) == 0));
}

#[test]
fn a_mapping_outlives_the_region_it_was_made_from() {
    let mine = PinnedRegion::create("outlives", 4096).expect("a region");
    word(&mine, 3).store(11, Ordering::Release);
    let theirs = PinnedRegion::from_fd(share(&mine)).expect("the same region");
    drop(mine);
    assert_eq!(word(&theirs, 3).load(Ordering::Acquire), 11);
}

#[test]
fn the_seals_refuse_a_change_of_length_and_further_seals() {
    let region = PinnedRegion::create("sealed", 8192).expect("a region");
    for len in [0, 4096, 16384] {
        assert!(ftruncate(region.fd(), len).is_err(), "ftruncate to {len}");
    }
    assert!(fcntl_add_seals(region.fd(), SealFlags::WRITE).is_err());
    assert_eq!(word(&region, 1023).load(Ordering::Relaxed), 0);
}

#[test]
fn every_page_is_allocated_before_the_first_touch() {
    let region = PinnedRegion::create("allocated", 1 << 20).expect("a region");
    let file = File::from(share(&region));
    let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().expect("fstat"));
    assert!(blocks * 512 >= 1 << 20, "{blocks} blocks");
}

#[test]
fn from_fd_rejects_a_sparse_memfd_and_allocates_nothing_for_it() {
    let sparse = PinnedRegion::from_fd(memfd(64 << 20, ALL_SEALS));
    assert!(matches!(sparse, Err(RegionError::Sparse { allocated: 0, .. })), "{sparse:?}");
}

#[test]
fn from_fd_rejects_what_is_not_a_memfd() {
    let path = std::env::temp_dir().join(format!("gpunet-region-{}", std::process::id()));
    let file = File::create(&path).expect("a temporary file");
    file.set_len(4096).expect("a length");
    let plain = PinnedRegion::from_fd(file.into());
    fs::remove_file(&path).expect("removed");
    // On a disk there are no seals at all; on a tmpfs there are, and those of a region are missing.
    assert!(
        matches!(plain, Err(RegionError::NotAMemfd { .. } | RegionError::SealsMissing { .. })),
        "{plain:?}"
    );

    let directory = File::open("/").expect("a directory");
    assert!(matches!(PinnedRegion::from_fd(directory.into()), Err(RegionError::NotAMemfd { .. })));
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    assert!(matches!(PinnedRegion::from_fd(reader.into()), Err(RegionError::NotAMemfd { .. })));
}

#[test]
fn from_fd_rejects_an_unsealed_memfd_and_names_the_missing_seals() {
    let unsealed = PinnedRegion::from_fd(memfd(4096, SealFlags::empty()));
    assert!(matches!(unsealed, Err(RegionError::SealsMissing { present: 0, missing: 7 })), "{unsealed:?}");
    let half = PinnedRegion::from_fd(memfd(4096, SealFlags::SHRINK | SealFlags::SEAL));
    assert!(matches!(half, Err(RegionError::SealsMissing { present: 3, missing: 4 })), "{half:?}");
}

#[test]
fn from_fd_rejects_an_empty_memfd_and_a_partial_page() {
    let empty = PinnedRegion::from_fd(memfd(0, ALL_SEALS));
    assert!(matches!(empty, Err(RegionError::ZeroLength)), "{empty:?}");
    let partial = PinnedRegion::from_fd(filled_memfd(4097));
    assert!(matches!(partial, Err(RegionError::PartialPage { len: 4097, .. })), "{partial:?}");
}

#[test]
fn impossible_requests_are_errors() {
    assert!(matches!(PinnedRegion::create("zero", 0), Err(RegionError::ZeroLength)));
    assert!(matches!(PinnedRegion::create("huge", usize::MAX), Err(RegionError::TooLong { .. })));
    assert!(matches!(PinnedRegion::create("nul\0", 4096), Err(RegionError::InvalidName { .. })));
    assert!(matches!(PinnedRegion::create(&"n".repeat(300), 4096), Err(RegionError::InvalidName { .. })));
    // "More than the machine has" is tested on the check alone (`region::room`): a mistake there
    // would fill this machine.
}

/// The limit is the process's, so the test is a process of its own.
#[test]
fn a_region_beyond_the_limit_of_file_sizes_is_an_error_and_no_signal() {
    let done = std::process::Command::new(std::env::current_exe().expect("this file"))
        .args(["--exact", "a_process_with_a_limit_of_file_sizes", "--ignored", "--nocapture"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{}: {said}", done.status);
}

#[test]
#[ignore = "a part of `a_region_beyond_the_limit_of_file_sizes_is_an_error_and_no_signal`, which runs it"]
fn a_process_with_a_limit_of_file_sizes() {
    let limit = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(1 << 20), ..limit }).expect("a lower limit");
    let growing = PinnedRegion::create_growing("grows", 1 << 20, 4096).expect("no longer than that");
    growing.grow(4096, 1 << 20).expect("no longer than that");
    for refused in
        [PinnedRegion::create("long", (1 << 20) + 1), PinnedRegion::create_growing("long", 2 << 20, 4096)]
    {
        let error = refused.expect_err("too long");
        assert!(matches!(error, RegionError::FileLimit { limit: 0x10_0000, .. }), "{error}");
        assert!(error.to_string().contains("1048576 bytes: raise it (`ulimit -f`)"), "{error}");
    }
}

#[test]
fn a_region_is_shared_between_threads() {
    let region = PinnedRegion::create("threads", 4096).expect("a region");
    let other = Arc::clone(&region);
    std::thread::spawn(move || word(&other, 0).store(1, Ordering::Release)).join().expect("no panic");
    assert_eq!(word(&region, 0).load(Ordering::Acquire), 1);
}
