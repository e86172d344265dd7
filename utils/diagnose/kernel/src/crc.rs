//! CRC-32 (IEEE 802.3, as in zlib), bit by bit: without a table, so that host and device share no
//! possible fault.

/// The polynomial, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// The CRC-32 of `len` bytes at `ptr`.
///
/// # Safety
/// The bytes are readable, and nothing writes them meanwhile.
#[must_use]
#[inline(always)]
pub unsafe fn crc32(ptr: *const u8, len: usize) -> u32 {
    let mut crc = u32::MAX;
    let mut at = 0;
    while at < len {
        // SAFETY: inside the range, by the caller's contract.
        crc ^= unsafe { ptr.wrapping_add(at).read_volatile() } as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
            bit += 1;
        }
        at += 1;
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_crc_that_everybody_computes() {
        let text = b"123456789";
        // SAFETY: a slice of this function.
        let crc = |bytes: &[u8]| unsafe { crc32(bytes.as_ptr(), bytes.len()) };
        assert_eq!(crc(text), 0xcbf4_3926);
        let long: Vec<u8> = (0..10_000_u32).map(|i| ((i * i) >> 3) as u8).collect();
        for len in [0, 1, 15, 4096, 10_000] {
            assert_eq!(crc(&long[..len]), crc32fast::hash(&long[..len]), "{len} bytes");
        }
    }
}
