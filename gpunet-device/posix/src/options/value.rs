//! Option values as C programs hold them: `int`, `struct timeval`, `struct linger`.

use crate::errno;
use gpunet_abi::{Error, Result};

/// An option value in the caller's memory.
#[derive(Clone, Copy)]
pub(super) struct Given {
    pub(super) ptr: *const u8,
    pub(super) len: u32,
}

impl Given {
    /// Reads `N` little-endian bytes at `at`.
    fn bytes<const N: usize>(self, at: usize) -> Result<[u8; N]> {
        if self.ptr.is_null() {
            return Err(errno::FAULT);
        }
        if (self.len as usize) < at + N {
            return Err(Error::InvalidArgument);
        }
        let mut bytes = [0; N];
        for (i, to) in bytes.iter_mut().enumerate() {
            // SAFETY: below `len`, by the contract of `set`.
            *to = unsafe { self.ptr.wrapping_add(at + i).read_volatile() };
        }
        Ok(bytes)
    }

    /// An `int`.
    pub(super) fn int(self) -> Result<i32> {
        self.bytes(0).map(i32::from_le_bytes)
    }

    /// An `int` that counts bytes: not negative.
    pub(super) fn count(self) -> Result<u32> {
        u32::try_from(self.int()?).map_err(|_| Error::InvalidArgument)
    }

    /// A `struct timeval`, in nanoseconds.
    pub(super) fn timeval_ns(self) -> Result<u64> {
        let seconds = i64::from_le_bytes(self.bytes(0)?);
        let micros = i64::from_le_bytes(self.bytes(8)?);
        if seconds < 0 || !(0..1_000_000).contains(&micros) {
            // Linux: EDOM.
            return Err(Error::from_errno(33));
        }
        Ok((seconds as u64).saturating_mul(1_000_000_000).saturating_add(micros as u64 * 1000))
    }

    /// A `struct linger`, in milliseconds; negative for off.
    pub(super) fn linger_ms(self) -> Result<i32> {
        let on = i32::from_le_bytes(self.bytes(0)?);
        let seconds = i32::from_le_bytes(self.bytes(4)?);
        Ok(if on == 0 { -1 } else { seconds.clamp(0, i32::MAX / 1000) * 1000 })
    }
}

/// Room for an option value in the caller's memory.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) ptr: *mut u8,
    pub(super) len: *mut u32,
}

impl Wanted {
    fn put(self, bytes: &[u8]) -> Result<u64> {
        if self.ptr.is_null() || self.len.is_null() {
            return Err(errno::FAULT);
        }
        // SAFETY: not null; writable by the contract of `get`.
        let room = unsafe { self.len.read() } as usize;
        let len = if bytes.len() < room { bytes.len() } else { room };
        for (i, &byte) in bytes.iter().enumerate().take(len) {
            // SAFETY: below `*len`.
            unsafe { self.ptr.wrapping_add(i).write(byte) };
        }
        // SAFETY: as above.
        unsafe { self.len.write(len as u32) };
        Ok(0)
    }

    /// An `int`.
    pub(super) fn int(self, value: i32) -> Result<u64> {
        self.put(&value.to_le_bytes())
    }

    /// A `struct timeval`.
    pub(super) fn timeval(self, ns: u64) -> Result<u64> {
        let (s, us) = ((ns / 1_000_000_000).to_le_bytes(), (ns % 1_000_000_000 / 1000).to_le_bytes());
        self.put(&join(s, us))
    }

    /// A `struct linger`.
    pub(super) fn linger(self, ms: i32) -> Result<u64> {
        let (on, seconds) = if ms < 0 { (0i32, 0i32) } else { (1, ms / 1000) };
        let (on, seconds) = (on.to_le_bytes(), seconds.to_le_bytes());
        let [a, b, c, d] = on;
        let [e, f, g, h] = seconds;
        self.put(&[a, b, c, d, e, f, g, h])
    }
}

fn join(first: [u8; 8], second: [u8; 8]) -> [u8; 16] {
    (u128::from(u64::from_le_bytes(first)) | u128::from(u64::from_le_bytes(second)) << 64).to_le_bytes()
}
