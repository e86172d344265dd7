//! Copies, words and splits on ordinary shared memory, which is mapped like GPU memory and differs
//! in its kind.
//!
//! Write combining itself needs hardware; what can be tested here is where the bytes go, and that
//! data is there when its word is.

#![allow(unsafe_code, reason = "looks at a region's bytes, and makes a udmabuf")]

mod stand_in;

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpunet_region::Pages;

use super::view::Owner;
use super::{AccessError, BackendKind, Mapping, MemoryType, dmabuf};
use crate::PinnedRegion;

const PAGE: usize = 4096;

fn of_pages(pages: Pages, len: usize) -> Mapping {
    let (kind, memory_type) = (BackendKind::DmaBuf, MemoryType::Cached);
    Mapping::new(Owner { pages, pin: None, buffer: None, kind, memory_type }, 0, 0, len)
}

fn mapped(len: usize) -> (Arc<PinnedRegion>, Mapping) {
    let region = PinnedRegion::create("mapping", len).expect("a region");
    let pages = region.map_again().expect("a second mapping");
    (Arc::clone(&region), of_pages(pages, len))
}

/// The region's bytes, through its own mapping. Nobody writes meanwhile.
fn bytes(region: &PinnedRegion, len: usize) -> Vec<u8> {
    assert!(len <= region.len());
    let mut copy = vec![0; len];
    // SAFETY: in bounds; the test's one thread does not write meanwhile.
    unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(region.base().as_ptr(), len) };
    copy
}

/// A word of the region, through its own mapping.
fn word_of(region: &PinnedRegion, offset: usize) -> &AtomicU64 {
    assert!(offset.is_multiple_of(8) && offset + 8 <= region.len());
    let word = region.base().as_ptr().wrapping_add(offset).cast();
    // SAFETY: in bounds and aligned (checked), and mapped as long as the region is borrowed.
    unsafe { AtomicU64::from_ptr(word) }
}

/// Different at every offset within any 251 bytes, and never 0.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8 + 1).collect()
}

#[test]
fn every_alignment_and_length_writes_its_bytes_and_no_others() {
    let (region, mut mapping) = mapped(PAGE);
    for offset in 64..82 {
        for len in (0..70).chain([127, 128, 129, 1000]) {
            let data = pattern(len);
            mapping.write(offset, &data).expect("in bounds");
            let seen = bytes(&region, PAGE);
            assert_eq!(&seen[offset..offset + len], &data[..], "{len} bytes at {offset}");
            assert!(seen[..offset].iter().all(|&byte| byte == 0), "before {len} bytes at {offset}");
            assert!(seen[offset + len..].iter().all(|&byte| byte == 0), "after {len} bytes at {offset}");
            mapping.write(offset, &vec![0; len]).expect("in bounds");
        }
    }
}

#[test]
fn every_alignment_and_length_reads_its_bytes() {
    let (_region, mut mapping) = mapped(PAGE);
    let data = pattern(PAGE);
    mapping.write(0, &data).expect("in bounds");
    for offset in 0..18 {
        for len in (0..70).chain([127, 128, 129, 1000, PAGE - 18]) {
            let mut seen = vec![0; len];
            mapping.read(offset, &mut seen).expect("in bounds");
            assert_eq!(seen, &data[offset..offset + len], "{len} bytes at {offset}");
        }
    }
}

#[test]
fn source_and_destination_may_be_aligned_differently() {
    let (region, mut mapping) = mapped(PAGE);
    let data = pattern(600);
    for from in 0..17 {
        mapping.write(0, &data[from..from + 513]).expect("in bounds");
        assert_eq!(bytes(&region, 513), &data[from..from + 513], "from {from}");
        let mut seen = vec![0; 600];
        mapping.read(0, &mut seen[from..from + 513]).expect("in bounds");
        assert_eq!(&seen[from..from + 513], &data[from..from + 513], "into {from}");
    }
}

#[test]
fn accesses_beyond_the_end_or_off_alignment_are_refused() {
    let (region, mut mapping) = mapped(100);
    let beyond = |offset, len| AccessError::OutOfBounds { offset, len, size: 100 };
    assert_eq!(mapping.write(96, &[1; 5]), Err(beyond(96, 5)));
    assert_eq!(mapping.write(usize::MAX, &[1; 2]), Err(beyond(usize::MAX, 2)));
    assert_eq!(mapping.read(101, &mut []), Err(beyond(101, 0)));
    assert_eq!(mapping.read(100, &mut []), Ok(()));
    assert_eq!(mapping.store_u64(93, 1), Err(beyond(93, 8)));
    assert_eq!(mapping.store_u64(12, 1), Err(AccessError::Misaligned { address: 12 }));
    assert_eq!(mapping.load_u64(12), Err(AccessError::Misaligned { address: 12 }));
    assert!(bytes(&region, PAGE).iter().all(|&byte| byte == 0));
    mapping.store_u64(88, u64::MAX).expect("the last word");
    assert_eq!(mapping.load_u64(88), Ok(u64::MAX));
}

#[test]
fn parts_do_not_overlap_and_share_the_mapping() {
    let (region, mapping) = mapped(PAGE);
    let (mut head, tail) = mapping.split_at(64).expect("in bounds");
    let (word, mut rest) = tail.split_at(8).expect("in bounds");
    assert_eq!((head.len(), word.len(), rest.len()), (64, 8, PAGE - 72));
    assert_eq!(head.write(60, &[1; 5]), Err(AccessError::OutOfBounds { offset: 60, len: 5, size: 64 }));
    let mut word = word.into_word().expect("aligned");
    head.write(0, &[1; 64]).expect("in bounds");
    rest.write(0, &[3; 8]).expect("in bounds");
    drop(head);
    word.publish(u64::from_ne_bytes([2; 8]));
    assert_eq!(word.load(), u64::from_ne_bytes([2; 8]));
    assert_eq!(word.device_ptr(), 64);
    let seen = bytes(&region, 81);
    assert_eq!((&seen[..64], &seen[64..72]), (&[1; 64][..], &[2; 8][..]));
    assert_eq!((&seen[72..80], seen[80]), (&[3; 8][..], 0));

    let (odd, _) = rest.split_at(7).expect("in bounds");
    assert!(matches!(odd.into_word(), Err(AccessError::OutOfBounds { .. })));
}

#[test]
fn equal_parts_cover_the_view() {
    let (region, mapping) = mapped(200);
    let parts = mapping.into_parts(64);
    let ranges: Vec<_> = parts.iter().map(|part| (part.device_ptr(), part.len())).collect();
    assert_eq!(ranges, [(0, 64), (64, 64), (128, 64), (192, 8)]);
    for (part, number) in parts.into_iter().zip(1..) {
        part.into_word().expect("8 bytes or more").publish(number);
    }
    let words: Vec<_> =
        [0, 64, 128, 192].map(|offset| word_of(&region, offset).load(Ordering::Acquire)).into();
    assert_eq!(words, [1, 2, 3, 4]);
    assert!(mapped(PAGE).1.split_at(0).expect("in bounds").0.into_parts(64).is_empty());
}

#[test]
fn an_odd_word_is_refused() {
    let (_, tail) = mapped(PAGE).1.split_at(4).expect("in bounds");
    assert_eq!(tail.into_word().err(), Some(AccessError::Misaligned { address: 4 }));
}

#[test]
fn views_move_between_threads() {
    fn moves<T: Send + Sync>() {}
    moves::<Mapping>();
    moves::<super::MappedWord>();
}

/// Data written with non-temporal stores, which only the fence orders, is there when the word is.
#[test]
fn whoever_observes_the_word_sees_the_data() {
    const ROUNDS: u64 = 20_000;
    // The last line is filled in part, so that nothing but the fence drives it out of its
    // write-combining buffer.
    const DATA: usize = 208;
    let (region, mapping) = mapped(PAGE);
    let (mut data, tail) = mapping.split_at(1024).expect("in bounds");
    let mut word = tail.into_word().expect("aligned");
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (published, seen) = (word_of(&region, 1024), word_of(&region, 2048));
            for round in 1..=ROUNDS {
                while published.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
                for index in 0..DATA / 8 {
                    assert_eq!(word_of(&region, 8 * index).load(Ordering::Relaxed), round, "word {index}");
                }
                seen.store(round, Ordering::Release);
            }
        });
        let seen = word_of(&region, 2048);
        for round in 1..=ROUNDS {
            let values: Vec<u8> = (0..DATA / 8).flat_map(|_| round.to_ne_bytes()).collect();
            data.write(0, &values).expect("in bounds");
            word.publish(round);
            while seen.load(Ordering::Acquire) < round && !reading.is_finished() {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn a_dmabuf_of_the_kernel_is_mapped_and_written() {
    let Some((memory, dmabuf)) = udmabuf(4 * PAGE) else { return };
    let pages = dmabuf::map_pages(dmabuf.as_fd(), 4 * PAGE).expect("an exporter with mmap");
    drop(dmabuf);
    let mut mapping = of_pages(pages, 4 * PAGE);
    let data = pattern(4 * PAGE);
    mapping.write(0, &data).expect("in bounds");
    let own = Pages::at(memory.as_fd(), 0, 4 * PAGE).expect("the memfd's own mapping");
    let mut seen = vec![0; 4 * PAGE];
    // SAFETY: as long as the mapping; nobody writes meanwhile.
    unsafe { seen.as_mut_ptr().copy_from_nonoverlapping(own.base().as_ptr(), 4 * PAGE) };
    assert!(seen == data);
}

/// Makes a dma-buf of a memfd, where the kernel offers it; says loudly where not.
fn udmabuf(len: usize) -> Option<(OwnedFd, OwnedFd)> {
    /// `struct udmabuf_create` of linux/udmabuf.h.
    #[repr(C)]
    struct Create {
        memfd: u32,
        flags: u32,
        offset: u64,
        size: u64,
    }
    /// `UDMABUF_CREATE`: `_IOW('u', 0x42, struct udmabuf_create)`.
    const CREATE: libc::Ioctl = 0x4018_7542;

    let device = match std::fs::OpenOptions::new().read(true).write(true).open("/dev/udmabuf") {
        Ok(device) => device,
        Err(error) => {
            let text = format!("NOT RUN: a dma-buf of the kernel: needs /dev/udmabuf ({error})\n");
            // Not `eprintln!`, whose output the test harness swallows when a test passes.
            std::io::stderr().write_all(text.as_bytes()).expect("stderr");
            return None;
        }
    };
    // SAFETY: a plain system call with a NUL-terminated name.
    let fd = unsafe { libc::memfd_create(c"udmabuf".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    assert!(fd >= 0);
    // SAFETY: just made, and nobody else knows it.
    let memory = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    memory.set_len(len as u64).expect("a length");
    // The device takes only memory that cannot shrink.
    // SAFETY: F_ADD_SEALS takes an integer.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) }, 0);
    let create = Create { memfd: fd.cast_unsigned(), flags: 1, offset: 0, size: len as u64 };
    // SAFETY: the structure of this call.
    let dmabuf = unsafe { libc::ioctl(device.as_raw_fd(), CREATE, &raw const create) };
    assert!(dmabuf >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: just made, and nobody else knows it.
    Some((memory.into(), unsafe { OwnedFd::from_raw_fd(dmabuf) }))
}
