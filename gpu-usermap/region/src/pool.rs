//! Addresses at which regions of other processes are mapped, one after another.

#![allow(unsafe_code, reason = "mmap at addresses of its own")]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use super::error::RegionError;
use super::pages::{PRIVATE, Pages};
use super::pinned::{PinnedRegion, whole_pages};

/// Addresses that are reserved at a time, at least. A larger region gets a reservation of its own.
const CHUNK: usize = 32 << 20;

/// Address ranges of this process for regions that come and go while threads may still use
/// addresses of those that went.
///
/// The pool reserves addresses as private memory that nobody touches, which costs no memory.
/// [`map`](Self::map) puts a region's shared pages there, [`vacate`](Self::vacate) puts private
/// memory of the same kind in their place, and [`free`](Self::free) makes the addresses free for
/// another region. All private memory of a pool has equal flags, so that the kernel keeps
/// neighbours as one mapping: a pool has at most two mappings for each region that is mapped, and
/// one for each reservation, however many regions there have been. Its addresses are as many as
/// were mapped or vacated at one time.
///
/// Dropping the pool unmaps everything, also regions that are still mapped.
///
/// # Examples
/// ```
/// use gpunet_region::{AddressPool, PinnedRegion};
///
/// let mut pool = AddressPool::default();
/// let region = PinnedRegion::create("rings", 4096)?;
/// let mapped = pool.map(&region)?;
/// let address = mapped.address();
/// let vacated = pool.vacate(mapped)?; // a thread that still uses the address finds zeros
/// // ... once no thread uses it any more ...
/// pool.free(vacated);
/// assert_eq!(pool.map(&region)?.address(), address);
/// # Ok::<(), gpunet_region::RegionError>(())
/// ```
#[derive(Debug, Default)]
pub struct AddressPool {
    reserved: Vec<Pages>,
    /// Free addresses: where each range begins, and how long it is. No two of them touch.
    free: BTreeMap<usize, usize>,
}

/// A region's shared pages, mapped at addresses of an [`AddressPool`].
#[derive(Debug)]
pub struct PooledRegion {
    address: usize,
    len: usize,
}

impl PooledRegion {
    /// Returns the address of its first byte, page-aligned and valid until the region is vacated
    /// and freed.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Returns its length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Addresses of an [`AddressPool`] that no longer map a region, but private memory: a thread that
/// still loads there sees zeros or what others have stored there, and a thread that still stores
/// there changes nothing else.
#[derive(Debug)]
pub struct Vacated {
    address: usize,
    len: usize,
}

impl AddressPool {
    /// Makes a further mapping of a region's pages, at free addresses.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`]: this process has no addresses left, or too many mappings.
    /// [`RegionError::Mmap`] otherwise.
    pub fn map(&mut self, region: &PinnedRegion) -> Result<PooledRegion, RegionError> {
        let len = region.len();
        let address = self.take(len)?;
        // Populated, so that the first access does not take a page fault.
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        if let Err(source) = replace(address, len, flags, region.fd().as_raw_fd()) {
            // A failed call may have unmapped what was there.
            if replace(address, len, PRIVATE, -1).is_ok() {
                self.give(address, len);
            }
            return Err(match source.raw_os_error() {
                Some(libc::ENOMEM) => RegionError::NoMemory { len, source },
                _ => RegionError::Mmap { len, source },
            });
        }
        Ok(PooledRegion { address, len })
    }

    /// Gives up a region's pages, and keeps the addresses until the result is [freed](Self::free).
    ///
    /// # Errors
    /// [`RegionError::Mmap`]: the addresses stay what they are until the pool is dropped.
    pub fn vacate(&mut self, region: PooledRegion) -> Result<Vacated, RegionError> {
        let PooledRegion { address, len } = region;
        replace(address, len, PRIVATE, -1).map_err(|source| RegionError::Mmap { len, source })?;
        Ok(Vacated { address, len })
    }

    /// Makes addresses free: no thread uses them any more.
    pub fn free(&mut self, vacated: Vacated) {
        let Vacated { address, len } = vacated;
        // What late stores have left. If it fails, the pages stay until the addresses are used
        // again. SAFETY: private memory of this pool, which nobody uses.
        unsafe { libc::madvise(address as *mut libc::c_void, len, libc::MADV_DONTNEED) };
        self.give(address, len);
    }

    fn take(&mut self, len: usize) -> Result<usize, RegionError> {
        let fits = |(&address, &room): (&usize, &usize)| (room >= len).then_some((address, room));
        let (address, room) = match self.free.iter().find_map(fits) {
            Some(found) => found,
            None => self.reserve(len)?,
        };
        self.free.remove(&address);
        if room > len {
            self.free.insert(address + len, room - len);
        }
        Ok(address)
    }

    /// Reserves more addresses, and returns a free range that has room for `len` bytes.
    fn reserve(&mut self, len: usize) -> Result<(usize, usize), RegionError> {
        let usual = whole_pages(CHUNK)?.max(len);
        // Where addresses are scarce, no more than are needed.
        let pages = Pages::private(usual)
            .or_else(|_| Pages::private(len))
            .map_err(|source| RegionError::NoMemory { len, source })?;
        let (address, room) = (pages.base().as_ptr() as usize, pages.len());
        self.reserved.push(pages);
        Ok(self.give(address, room))
    }

    /// Adds a range to the free ones, and returns the range that it is a part of now.
    fn give(&mut self, mut address: usize, mut len: usize) -> (usize, usize) {
        if let Some(behind) = self.free.remove(&(address + len)) {
            len += behind;
        }
        if let Some((&before, &room)) = self.free.range(..address).next_back()
            && before + room == address
        {
            (address, len) = (before, room + len);
        }
        self.free.insert(address, len);
        (address, len)
    }
}

/// Maps a range of a pool's own addresses anew.
fn replace(address: usize, len: usize, flags: libc::c_int, fd: libc::c_int) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the range is the pool's own, and mapped memory stays mapped memory: who still uses an
    // address finds what any other agent could have written there.
    let mapped =
        unsafe { libc::mmap(address as *mut libc::c_void, len, protection, flags | libc::MAP_FIXED, fd, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(pages: usize) -> std::sync::Arc<PinnedRegion> {
        PinnedRegion::create("pool", pages * 4096).expect("memory")
    }

    /// Mappings of this process inside the pool's reservations.
    fn mappings(pool: &AddressPool) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("this is Linux");
        let bounds = |line: &str| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
        };
        let is_ours = |&(from, to): &(usize, usize)| {
            pool.reserved.iter().any(|pages| {
                let base = pages.base().as_ptr() as usize;
                from < base + pages.len() && base < to
            })
        };
        maps.lines().filter_map(bounds).filter(is_ours).count()
    }

    #[test]
    fn vacated_regions_become_one_mapping_and_their_addresses_are_used_again() {
        let mut pool = AddressPool::default();
        let mut vacated = Vec::new();
        for round in 0..600 {
            let stays = pool.map(&region(3)).expect("addresses");
            vacated.push(pool.vacate(stays).expect("private memory"));
            assert!(mappings(&pool) <= 1 + pool.reserved.len(), "{round}: {}", mappings(&pool));
        }
        let addresses = pool.reserved.iter().map(Pages::len).sum::<usize>();
        vacated.into_iter().for_each(|vacated| pool.free(vacated));
        let kept: Vec<_> = (0..600).map(|_| pool.map(&region(3)).expect("addresses")).collect();
        assert_eq!(pool.reserved.iter().map(Pages::len).sum::<usize>(), addresses);
        assert!(mappings(&pool) >= 600);
        for region in kept {
            let vacated = pool.vacate(region).expect("private memory");
            pool.free(vacated);
        }
        let free: usize = pool.free.values().sum();
        assert_eq!((free, mappings(&pool) <= pool.reserved.len() + 1), (addresses, true));
    }

    #[test]
    fn a_late_store_reaches_neither_the_region_nor_the_next_one() {
        let mut pool = AddressPool::default();
        let (first, second) = (region(1), region(1));
        let mapped = pool.map(&first).expect("addresses");
        let late = mapped.address() as *mut u64;
        // SAFETY: the mapped region, which nobody else uses.
        unsafe { late.write_volatile(1) };
        let vacated = pool.vacate(mapped).expect("private memory");
        // SAFETY: private memory in its place.
        assert_eq!(unsafe { late.read_volatile() }, 0);
        // SAFETY: as above.
        unsafe { late.write_volatile(2) };
        // SAFETY: the first region's own mapping.
        assert_eq!(unsafe { first.base().as_ptr().cast::<u64>().read_volatile() }, 1);
        // Not free yet.
        assert_ne!(pool.map(&second).expect("addresses").address(), late as u64);
        pool.free(vacated);
        let again = pool.map(&second).expect("addresses");
        assert_eq!(again.address(), late as u64);
        // SAFETY: the second region.
        assert_eq!(unsafe { late.read_volatile() }, 0);
    }

    #[test]
    fn a_large_region_has_room() {
        let mut pool = AddressPool::default();
        let large = PinnedRegion::create("pool", CHUNK + 4096).expect("memory");
        let mapped = pool.map(&large).expect("addresses");
        assert_eq!(mapped.len(), CHUNK + 4096);
    }
}
