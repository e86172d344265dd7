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

/// Fills several ranges, each from an address of another process, with one call of the system: for
/// small ones the call takes longer than the copy.
///
/// # Errors
/// As for [`read`].
pub(crate) fn read_several(process: Pid, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
    let here: Vec<libc::iovec> = parts
        .iter_mut()
        .map(|(_, to)| libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() })
        .collect();
    let there: Vec<libc::iovec> = parts
        .iter()
        .map(|(from, to)| {
            // An address that is none here is refused by the kernel.
            let address = usize::try_from(*from).unwrap_or(usize::MAX);
            libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: to.len() }
        })
        .collect();
    let (pid, count) = (process.as_raw_nonzero().get(), here.len() as libc::c_ulong);
    // SAFETY: the kernel writes to the ranges of `here`, which are those of the slices; it checks
    // the other process's addresses.
    let copied = unsafe { libc::process_vm_readv(pid, here.as_ptr(), count, there.as_ptr(), count, 0) };
    let total: usize = parts.iter().map(|(_, to)| to.len()).sum();
    if usize::try_from(copied) == Ok(total) {
        return Ok(());
    }
    // One by one they say what is wrong.
    parts.iter_mut().try_for_each(|(from, to)| read(process, *from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_ranges_are_read_with_one_call_and_one_that_is_not_there_is_an_error() {
        let from: Vec<u8> = (0..30_000).map(|at| (at % 251) as u8).collect();
        let mut to = vec![0u8; 30_000];
        let base = from.as_ptr().addr() as u64;
        let (first, rest) = to.split_at_mut(1);
        let (second, third) = rest.split_at_mut(9_999);
        let own = rustix::process::getpid();
        let mut parts = [(base + 20_000, second), (base, first), (base + 5_000, third)];
        read_several(own, &mut parts).expect("a process reads its own memory");
        assert!(
            to[0] == from[0] && to[1..10_000] == from[20_000..29_999] && to[10_000..] == from[5_000..25_000]
        );
        for missing in [4096, u64::MAX] {
            let mut parts = [(base, &mut to[..10]), (missing, &mut [0; 10][..])];
            let error = read_several(own, &mut parts).expect_err("nothing is mapped there");
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        }
    }

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
