//! Machine code for one architecture, as `ptxas` and the linker write it.

use std::ffi::c_void;

/// Bytes of an ELF header of 64 bits.
const HEADER: usize = 64;

/// A whole cubin. The driver is given its address without its length, and finds the end by what the
/// file says of itself.
pub(crate) struct Cubin {
    bytes: Vec<u8>,
}

impl Cubin {
    /// Takes an ELF file of 64 bits whose tables and sections lie within it; `None` for any other.
    pub(crate) fn new(bytes: Vec<u8>) -> Option<Self> {
        is_whole(&bytes).then_some(Self { bytes })
    }

    pub(crate) fn as_ptr(&self) -> *const c_void {
        self.bytes.as_ptr().cast()
    }
}

fn is_whole(file: &[u8]) -> bool {
    file.len() >= HEADER && file.starts_with(b"\x7fELF\x02\x01") && holds_tables(file) == Some(true)
}

/// Returns whether the tables of segments and of sections, and all that they name, lie in the file.
fn holds_tables(file: &[u8]) -> Option<bool> {
    const NOTHING_IN_THE_FILE: u64 = 8; // SHT_NOBITS
    let segments = entries(file, 0x20, 0x36, 56)?;
    let sections = entries(file, 0x28, 0x3a, 64)?;
    // Where offset and size stand in an entry of either table.
    let in_segments = segments.map(|at| span(file, at + 8, at + 32));
    let in_sections = sections
        .filter(|at| number(file, at + 4, 4) != Some(NOTHING_IN_THE_FILE))
        .map(|at| span(file, at + 24, at + 32));
    Some(in_segments.chain(in_sections).all(|span| span == Some(true)))
}

/// The places of a table's entries, each of `size` bytes.
fn entries(
    file: &[u8],
    offset_at: usize,
    size_at: usize,
    size: usize,
) -> Option<impl Iterator<Item = usize>> {
    let start = usize::try_from(number(file, offset_at, 8)?).ok()?;
    let count = usize::try_from(number(file, size_at + 2, 2)?).ok()?;
    let fits = count == 0
        || number(file, size_at, 2)? == size as u64 && start.checked_add(count * size)? <= file.len();
    fits.then(|| (0..count).map(move |index| start + index * size))
}

/// Returns whether the bytes that these two numbers name, offset and size, lie in the file.
fn span(file: &[u8], offset_at: usize, size_at: usize) -> Option<bool> {
    let end = number(file, offset_at, 8)?.checked_add(number(file, size_at, 8)?)?;
    Some(end <= file.len() as u64)
}

/// A number of `bytes` bytes, least significant first.
fn number(file: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let bytes = file.get(at..at.checked_add(bytes)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One section of 16 bytes behind the headers, and one of a gigabyte that is not in the file.
    pub(crate) fn sample() -> Vec<u8> {
        let mut file = vec![0; HEADER + 2 * 64 + 16];
        let mut put = |at: usize, value: u64, bytes: usize| {
            file[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        };
        put(0, 0x0102_464c_457f, 6);
        put(0x28, HEADER as u64, 8);
        put(0x3a, 64, 2);
        put(0x3c, 2, 2);
        put(HEADER + 4, 1, 4);
        put(HEADER + 24, HEADER as u64 + 128, 8);
        put(HEADER + 32, 16, 8);
        put(HEADER + 64 + 4, 8, 4);
        put(HEADER + 64 + 32, 1 << 30, 8);
        file
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_not_whole() {
        let file = sample();
        assert!(is_whole(&file));
        for len in 0..file.len() {
            assert!(!is_whole(&file[..len]), "{len} bytes");
        }
    }

    #[test]
    fn what_a_table_names_must_be_there() {
        for (at, value) in [
            (0x28, u64::MAX),
            (0x28, 1 << 20),
            (HEADER + 24, u64::MAX),
            (HEADER + 32, 17),
            (HEADER + 64 + 4, 1),
        ] {
            let mut file = sample();
            file[at..at + 8].copy_from_slice(&value.to_le_bytes());
            assert!(!is_whole(&file), "{value} at {at}");
        }
        assert!(!is_whole(b"// PTX"));
    }
}
