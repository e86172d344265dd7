//! Numbers of a buffer.

use gpunet_device::Buffer;
use gpunet_device::abi::Word;

/// Bytes of a number.
pub const NUMBER: usize = 8;

/// The word of number `index` of a buffer; none past its end.
#[inline(always)]
fn cell(buffer: Buffer, index: usize) -> Option<Word> {
    let cell = buffer.skip(index * NUMBER);
    if cell.len() < NUMBER {
        return None;
    }
    // SAFETY: eight bytes inside the buffer, which is mapped by its constructor's contract; the
    // host makes buffers of numbers 8-aligned, and kernels access them by words only.
    Some(unsafe { Word::from_ptr(cell.as_ptr().cast()) })
}

/// Writes number `index` of a buffer; nothing past its end. One lane.
#[inline(always)]
pub fn put(buffer: Buffer, index: usize, value: u64) {
    if let Some(word) = cell(buffer, index) {
        // A host that is watching uses nothing but the number, and all others read it after the
        // kernel's end: it orders nothing.
        word.set(value);
    }
}

/// Reads number `index` of a buffer, which the host wrote before the launch; 0 past its end.
#[must_use]
#[inline(always)]
pub fn get(buffer: Buffer, index: usize) -> u64 {
    match cell(buffer, index) {
        Some(word) => word.peek(),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_or_read_past_a_buffer() {
        let mut numbers = [0_u64; 2];
        // SAFETY: the array outlives the buffer, and nobody else uses it.
        let buffer = unsafe { Buffer::from_raw_parts(numbers.as_mut_ptr().cast(), 2 * NUMBER) }.first(12);
        (0..4).for_each(|at| put(buffer, at, 7));
        assert_eq!([0, 1, 2].map(|at| get(buffer, at)), [7, 0, 0]);
        assert_eq!(numbers, [7, 0]);
    }
}
