//! The program's pointers: strings, addresses, option values, and where results go; its timeouts.
//!
//! Each function states what it assumes of a pointer. The C documentation requires this of the
//! caller.

use crate::failure::Failure;
use gpunet_device::Error;
use gpunet_posix::sockaddr as layout;
use libc::{sockaddr, socklen_t};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

fn fault(what: &str) -> Failure {
    Failure::new(libc::EFAULT, format!("{what} is null"))
}

/// The place where a call stores its result; not null.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Checks the pointer before anything is done.
    ///
    /// # Errors
    /// EFAULT for null.
    pub(crate) fn new(to: *mut T, what: &str) -> Result<Self, Failure> {
        if to.is_null() { Err(fault(what)) } else { Ok(Self(to)) }
    }

    /// The pointer.
    pub(crate) const fn pointer(&self) -> *mut T {
        self.0
    }

    /// Stores the result.
    pub(crate) fn put(&self, value: T) {
        // SAFETY: the caller's promise: writable, and aligned for its type.
        unsafe { self.0.write(value) };
    }
}

/// Stores a result, unless the caller passes null because it does not want it.
pub(crate) fn put_if_wanted<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise: writable, and aligned for its type.
        unsafe { to.write(value) };
    }
}

/// Reads a text; `None` for null.
///
/// # Errors
/// EINVAL when it is not UTF-8.
pub(crate) fn text<'a>(from: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise: it ends with a NUL, and no other thread changes it during the
    // call.
    let text = unsafe { CStr::from_ptr(from) }.to_str();
    text.map(Some).map_err(|_| Failure::new(libc::EINVAL, format!("{what} is not UTF-8")))
}

/// Stores a text for the caller, who frees it with `gpunet_host_free_string`.
///
/// # Errors
/// ENOMEM.
pub(crate) fn put_text(to: &Out<*mut c_char>, text: &str) -> Result<(), Failure> {
    // SAFETY: a size that is not 0.
    let copy = unsafe { libc::malloc(text.len() + 1) }.cast::<u8>();
    if copy.is_null() {
        return Err(Failure::of(libc::ENOMEM));
    }
    // SAFETY: just allocated, one byte longer than the text.
    unsafe { copy.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    // SAFETY: the last of these bytes.
    unsafe { copy.add(text.len()).write(0) };
    to.put(copy.cast());
    Ok(())
}

/// Bytes that the caller gives.
///
/// # Errors
/// As [`slice`].
pub(crate) fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    slice(data.cast(), len)
}

/// Returns room of the caller, which may be uninitialised.
///
/// # Errors
/// As [`slice`].
pub(crate) fn room<'a>(data: *mut c_void, len: usize) -> Result<&'a mut [MaybeUninit<u8>], Failure> {
    array(data.cast(), len)
}

/// `count` structures that the caller gives, which the call may change.
///
/// # Errors
/// EFAULT for null with a count other than 0; EINVAL for a count larger than any memory.
pub(crate) fn array<'a, T>(first: *mut T, count: usize) -> Result<&'a mut [T], Failure> {
    if check_array(first, count)? {
        // SAFETY: not null, aligned, and readable and writable for `count` structures that no other
        // thread uses during the call.
        return Ok(unsafe { std::slice::from_raw_parts_mut(first, count) });
    }
    Ok(&mut [])
}

/// `count` structures that the caller gives.
///
/// # Errors
/// As [`array`].
pub(crate) fn slice<'a, T>(first: *const T, count: usize) -> Result<&'a [T], Failure> {
    if check_array(first, count)? {
        // SAFETY: not null, aligned, and readable for `count` structures that no other thread
        // changes during the call.
        return Ok(unsafe { std::slice::from_raw_parts(first, count) });
    }
    Ok(&[])
}

/// Returns whether the array has elements.
fn check_array<T>(first: *const T, count: usize) -> Result<bool, Failure> {
    if count > 0 && first.is_null() {
        return Err(fault("the data"));
    }
    match count.checked_mul(size_of::<T>()).filter(|&len| isize::try_from(len).is_ok()) {
        Some(_) => Ok(count > 0),
        None => {
            Err(Failure::new(libc::EINVAL, format!("no memory has {count} of {} bytes each", size_of::<T>())))
        }
    }
}

/// Reads a `struct sockaddr_in` or `sockaddr_in6`.
///
/// # Errors
/// EFAULT, EINVAL, EAFNOSUPPORT.
pub(crate) fn address(from: *const sockaddr, len: socklen_t) -> Result<SocketAddr, Failure> {
    if from.is_null() {
        return Err(fault("the address"));
    }
    // SAFETY: not null, and readable for `len` bytes: the caller's promise.
    let address = unsafe { layout::read(from.cast(), len) }.map_err(|error| {
        let text = match error {
            Error::FamilyNotSupported => {
                "the address is neither a struct sockaddr_in nor a sockaddr_in6".into()
            }
            _ => format!(
                "the address has {len} bytes; a struct sockaddr_in has {}, a sockaddr_in6 {}",
                layout::IN_LEN,
                layout::IN6_LEN
            ),
        };
        Failure::new(error.errno(), text)
    })?;
    address.to_std().ok_or_else(|| Failure::of(libc::EINVAL))
}

/// Stores an address, unless the caller passes null. It is cut to the room that `len` gives, and
/// `len` becomes the whole length.
pub(crate) fn put_address(address: SocketAddr, to: *mut sockaddr, len: *mut socklen_t) {
    // SAFETY: `len` is null or readable and writable, `to` null or writable for `*len` bytes: the
    // caller's promise.
    unsafe { layout::write(&gpunet_device::SockAddr::from_std(address), to.cast(), len) };
}

/// Returns when a timeout in nanoseconds expires. `None`: never.
pub(crate) fn deadline(timeout_ns: i64) -> Option<Instant> {
    let limit = u64::try_from(timeout_ns).ok().map(Duration::from_nanos);
    limit.and_then(|limit| Instant::now().checked_add(limit))
}

/// The value of a socket option that the caller passes.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    pub(crate) ptr: *const c_void,
    pub(crate) len: socklen_t,
}

impl Given {
    /// Reads it as a structure of C.
    ///
    /// # Errors
    /// EFAULT for null; EINVAL when it is too short.
    pub(crate) fn read<T: Plain>(self) -> Result<T, Failure> {
        if self.ptr.is_null() {
            return Err(fault("the value"));
        }
        if (self.len as usize) < size_of::<T>() {
            return Err(Failure::new(libc::EINVAL, format!("the value needs {} bytes", size_of::<T>())));
        }
        // SAFETY: readable for `len` bytes by the caller's promise; any bits are a `Plain` value.
        Ok(unsafe { self.ptr.cast::<T>().read_unaligned() })
    }
}

/// Room for the value of a socket option.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) ptr: *mut c_void,
    pub(crate) len: *mut socklen_t,
}

impl Wanted {
    /// Stores the value, cut to the available room. The length becomes that of the stored bytes.
    ///
    /// # Errors
    /// EFAULT for null.
    pub(crate) fn write<T: Plain>(self, value: T) -> Result<(), Failure> {
        if self.ptr.is_null() || self.len.is_null() {
            return Err(fault("the value or its length"));
        }
        // SAFETY: not null, readable and writable: the caller's promise.
        let room = unsafe { self.len.read_unaligned() };
        let len = size_of::<T>().min(room as usize);
        // SAFETY: the value has as many bytes, and the caller room for them.
        unsafe { self.ptr.cast::<u8>().copy_from_nonoverlapping((&raw const value).cast(), len) };
        // SAFETY: as above.
        unsafe { self.len.write_unaligned(len as socklen_t) };
        Ok(())
    }
}

/// A structure of C that has only numbers and no padding.
///
/// # Safety
/// Any bits are a value of it, and every byte of a value is initialised.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: a number.
unsafe impl Plain for c_int {}
// SAFETY: two numbers of 64 bits.
unsafe impl Plain for libc::timeval {}
// SAFETY: two numbers of 32 bits.
unsafe impl Plain for libc::linger {}
