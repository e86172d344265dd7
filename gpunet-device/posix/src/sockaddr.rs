//! `struct sockaddr_in` and `struct sockaddr_in6`, as Linux lays them out.

use super::errno;
use gpunet_abi::addr::{AF_INET, AF_INET6};
use gpunet_abi::{Error, Result, SockAddr};

/// `sizeof(struct sockaddr_in)`.
pub const IN_LEN: u32 = 16;
/// `sizeof(struct sockaddr_in6)`.
pub const IN6_LEN: u32 = 28;

/// Reads an address.
///
/// # Errors
/// EFAULT for null; InvalidArgument when `len` is too short; FamilyNotSupported.
///
/// # Safety
/// `ptr` is null or readable for `len` bytes.
#[inline(never)]
pub unsafe fn read(ptr: *const u8, len: u32) -> Result<SockAddr> {
    if ptr.is_null() {
        return Err(errno::FAULT);
    }
    if len < IN_LEN {
        return Err(Error::InvalidArgument);
    }
    // SAFETY: below `len` in every use that follows.
    let byte = |at: usize| unsafe { ptr.wrapping_add(at).read_volatile() };
    let family = u16::from_le_bytes([byte(0), byte(1)]);
    let port = u16::from_be_bytes([byte(2), byte(3)]);
    match family {
        AF_INET => Ok(SockAddr::v4([byte(4), byte(5), byte(6), byte(7)], port)),
        AF_INET6 if len >= IN6_LEN => {
            let mut addr = SockAddr::v6([0; 16], port);
            addr.flow = u32::from_be_bytes([byte(4), byte(5), byte(6), byte(7)]);
            for (at, to) in addr.ip.iter_mut().enumerate() {
                *to = byte(8 + at);
            }
            addr.scope = u32::from_le_bytes([byte(24), byte(25), byte(26), byte(27)]);
            Ok(addr)
        }
        AF_INET6 => Err(Error::InvalidArgument),
        _ => Err(Error::FamilyNotSupported),
    }
}

/// Writes an address where a C program asked for it, cut to the `*len` bytes there are; `*len`
/// becomes the full length. By one lane. Null pointers mean "not wanted".
///
/// # Safety
/// `len` is null or writable, and `ptr` null or writable for `*len` bytes.
#[inline(never)]
pub unsafe fn write(addr: &SockAddr, ptr: *mut u8, len: *mut u32) {
    if ptr.is_null() || len.is_null() {
        return;
    }
    let (bytes, full) = encode(addr);
    // SAFETY: the caller's contract.
    let room = unsafe { len.read() };
    for (at, &byte) in bytes.iter().enumerate().take(if room < full { room } else { full } as usize) {
        // SAFETY: below `*len`.
        unsafe { ptr.wrapping_add(at).write(byte) };
    }
    // SAFETY: the caller's contract.
    unsafe { len.write(full) };
}

/// The bytes of the C structure and how many there are.
fn encode(addr: &SockAddr) -> ([u8; IN6_LEN as usize], u32) {
    let f = addr.family.to_le_bytes();
    let p = addr.port.to_be_bytes();
    let w = addr.flow.to_be_bytes();
    let s = addr.scope.to_le_bytes();
    let i = addr.ip;
    if addr.family == AF_INET6 {
        let bytes = [
            f[0], f[1], p[0], p[1], w[0], w[1], w[2], w[3], i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7],
            i[8], i[9], i[10], i[11], i[12], i[13], i[14], i[15], s[0], s[1], s[2], s[3],
        ];
        return (bytes, IN6_LEN);
    }
    let mut bytes = [0; IN6_LEN as usize];
    (bytes[0], bytes[1], bytes[2], bytes[3]) = (f[0], f[1], p[0], p[1]);
    (bytes[4], bytes[5], bytes[6], bytes[7]) = (i[0], i[1], i[2], i[3]);
    (bytes, IN_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        for text in ["127.0.0.1:80", "[fe80::1%3]:7"] {
            let addr = SockAddr::from_std(text.parse().unwrap());
            let (mut bytes, mut len) = ([0u8; 28], 28);
            // SAFETY: 28 bytes of this stack.
            unsafe { write(&addr, bytes.as_mut_ptr(), &raw mut len) };
            // SAFETY: as above.
            assert_eq!(unsafe { read(bytes.as_ptr(), len) }, Ok(addr));
        }
    }

    #[test]
    fn short_and_foreign_addresses_are_refused() {
        let mut bytes = [0u8; 28];
        bytes[0] = 10;
        // SAFETY: inside the array.
        assert_eq!(unsafe { read(bytes.as_ptr(), 16) }, Err(Error::InvalidArgument));
        bytes[0] = 1;
        // SAFETY: inside the array.
        assert_eq!(unsafe { read(bytes.as_ptr(), 28) }, Err(Error::FamilyNotSupported));
        // SAFETY: null is answered with an error.
        assert_eq!(unsafe { read(core::ptr::null(), 28) }, Err(errno::FAULT));
    }
}
