//! `gpunet_types.h` and `gpunet_records.h` of gpunet-posix against what they declare.

use crate::test_rings::TestRings;
use crate::{Level, MAX_ARGUMENTS, MAX_WORDS, Records, WhenFull};
use gpunet_device::Timeout;
use gpunet_device::abi::Context;
use gpunet_device::abi::layout::SharedHeader;
use std::mem::{offset_of, size_of, transmute};

const TYPES: &str = include_str!("../../../posix/include/gpunet_types.h");
const HEADER: &str = include_str!("../../../posix/include/gpunet_records.h");

#[test]
fn the_headers_rings_have_the_librarys_fields_in_their_order() {
    let (_, rest) = TYPES.split_once("typedef struct gpunet_records_t {").unwrap();
    let fields = rest[..rest.find('}').unwrap()].lines().filter_map(|line| line.trim().split(';').next());
    let fields: Vec<_> = fields.filter(|field| !field.is_empty()).collect();
    let long = |name| format!("unsigned long long {name}");
    let int = |name| format!("unsigned int {name}");
    let wanted = ["memory", "device", "wait"].map(long).into_iter();
    let wanted = wanted.chain(["rings", "records_log2", "bytes_log2", "formats", "level", "texts"].map(int));
    assert_eq!(fields, wanted.collect::<Vec<_>>());
    const { assert!(size_of::<Records>() == 48) };

    let rings = TestRings::new(3, 64, 40, 2);
    let words = |full| {
        // SAFETY: 48 bytes of numbers, without padding.
        unsafe { transmute::<Records, [u64; 6]>(rings.records(full)) }
    };
    let [memory, device, wait, ..] = words(WhenFull::Overwrite);
    assert!(memory != 0 && device != 0 && wait == u64::MAX);
    assert_eq!(words(WhenFull::Wait(Timeout::NON_BLOCKING))[2], 1 << 62);
    assert_eq!(words(WhenFull::Wait(Timeout::NEVER))[2], 0);
    assert_eq!(words(WhenFull::Wait(Timeout::ns(7)))[2], 7);
    assert_eq!(words(WhenFull::Overwrite)[3..], [3 | 6 << 32, 7 | 2 << 32, Level::Info as u64]);
    // SAFETY: as above.
    assert_eq!(unsafe { transmute::<Records, [u64; 6]>(Records::OFF) }[0], 0, "no rings");
}

#[test]
fn the_headers_numbers_are_the_librarys() {
    for (name, value) in [
        ("GPUNET_RECORD_WORDS", MAX_WORDS.to_string()),
        ("GPUNET_PRINT_ARGUMENTS", MAX_ARGUMENTS.to_string()),
        ("GPUNET_PRINT_TEXT", crate::text::LONGEST.to_string()),
        ("GPUNET_RECORDS_HEAD", format!("{}u", crate::unit::HEAD)),
        ("GPUNET_RECORDS_TAKEN", format!("{:#x}ull", crate::layout::TAKEN)),
        ("GPUNET_RECORDS_CANCEL", format!("{}u", offset_of!(SharedHeader, cancel))),
    ] {
        let found = HEADER
            .lines()
            .find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name)?.strip_prefix(' '));
        assert_eq!(found.and_then(|rest| rest.split_whitespace().next()), Some(&*value), "{name}");
    }
    for (name, level) in [
        ("ERROR", Level::Error),
        ("WARN", Level::Warn),
        ("INFO", Level::Info),
        ("DEBUG", Level::Debug),
        ("TRACE", Level::Trace),
    ] {
        assert!(TYPES.contains(&format!("#define GPUNET_{name} {}\n", level as u8)), "{name}");
    }
    // What `gpunet_records_is_cancelled` reads of a context.
    assert_eq!((offset_of!(Context, launch), offset_of!(Context, shared)), (8, 32));
    assert!(HEADER.contains("(net + 32)") && HEADER.contains("context[2]"));
}
