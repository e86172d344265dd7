//! Copies from the memory of another process of this machine.

#![allow(unsafe_code, reason = "process_vm_readv")]

use rustix::process::Pid;
use std::io;

/// Fills `to` from an address of another process.
///
/// # Errors
/// EPERM: the kernel does not permit it; ESRCH: the process has ended; EFAULT: it has no memory
/// there. Then `to` has any mixture.
pub(crate) fn read(process: Pid, mut from: u64, mut to: &mut [u8]) -> io::Result<()> {
    while !to.is_empty() {
        let here = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let address = usize::try_from(from).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
        let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: to.len() };
        let pid = process.as_raw_nonzero().get();
        // SAFETY: the kernel writes at most `to.len()` bytes to `to`; it checks the other process's
        // addresses.
        let copied = unsafe { libc::process_vm_readv(pid, &here, 1, &there, 1, 0) };
        match usize::try_from(copied) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
            Ok(n) => {
                to = &mut to[n..];
                from = from.wrapping_add(n as u64);
            }
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_what_is_not_there_is_an_error() {
        let (from, mut to) = (vec![7u8; 100_000], vec![0u8; 100_000]);
        let own = rustix::process::getpid();
        read(own, from.as_ptr().addr() as u64, &mut to).expect("a process reads its own memory");
        assert_eq!(from, to);
        let error = read(own, 4096, &mut to).expect_err("the first pages are never mapped");
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    }
}
