//! Symmetric memory.

use super::{TeamObject, gpunet_host_team_t};
use crate::failure::{Failure, done};
use crate::handle::handles;
use crate::memory::{self, Out};
use gpunet_device::Rank;
use gpunet_device::team::SymmetricPtr;
use gpunet_proxy::team::{Symmetric, Team};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

/// `gpunet_symmetric_t`.
/// cbindgen:ignore
pub type SymmetricBytes = SymmetricPtr<u8>;

/// Memory of a team: a part of the same size in the memory of every member. Any thread may use it.
pub struct gpunet_host_symmetric_t(());

handles! { gpunet_host_symmetric_t, SYMMETRICS: SymmetricObject, 12, "symmetric memory" }

pub(crate) struct SymmetricObject {
    // Dropped before the count of the team that it borrows is lowered.
    memory: RwLock<Option<Symmetric<'static, u8>>>,
    team: Arc<TeamObject>,
}

impl Drop for SymmetricObject {
    fn drop(&mut self) {
        drop(self.memory.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        // Ordering: Release, pairs with the Acquire of gpunet_host_team_leave: the borrow has
        // ended.
        self.team.memories.fetch_sub(1, Ordering::Release);
    }
}

impl SymmetricObject {
    pub(crate) fn with<R>(
        &self,
        body: impl FnOnce(&Symmetric<'static, u8>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().ok_or_else(|| Failure::of(libc::EBADF)).and_then(body)
    }
}

pub(crate) fn within(memory: &Symmetric<'_, u8>, offset: usize, len: usize) -> Result<(), Failure> {
    let end = offset.checked_add(len).filter(|&end| end <= memory.len());
    let text = || format!("{len} bytes at {offset} are not inside the part of {} bytes", memory.len());
    end.map(drop).ok_or_else(|| Failure::new(libc::EINVAL, text()))
}

/// Allocates `len` bytes for each member, all zero. All members call it, with the same length, in
/// the same order among what they do together. Waits until all have the memory mapped. If one
/// member cannot have it, none gets it, and the team stays usable.
///
/// On success `*symmetric` is a handle that gpunet_host_symmetric_free ends. Errors, for all
/// members: as gpunet_host_team_barrier; -EINVAL also when lengths differ; -EOPNOTSUPP with the
/// reason when a member cannot have or map the memory. -EBADF; -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_symmetric_alloc(
    team: *const gpunet_host_team_t,
    len: usize,
    symmetric: *mut *mut gpunet_host_symmetric_t,
) -> c_int {
    made(team, symmetric, |team| Ok(team.alloc::<u8>(len)?))
}

/// As gpunet_host_symmetric_alloc, but the bytes need not exist yet: gpunet_host_symmetric_commit
/// makes the first of them exist, before anybody uses them. On a GPU in a team with a CPU, or whose
/// memory others cannot map, all of them exist at once.
///
///     gpunet_host_symmetric_reserve(team, 1 << 30, &heap);
///     gpunet_host_symmetric_commit(heap, 4096);
///
/// On success `*symmetric` is a handle that gpunet_host_symmetric_free ends.
/// Errors: as gpunet_host_symmetric_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_symmetric_reserve(
    team: *const gpunet_host_team_t,
    len: usize,
    symmetric: *mut *mut gpunet_host_symmetric_t,
) -> c_int {
    made(team, symmetric, |team| Ok(team.reserve::<u8>(len)?))
}

/// Makes the first `len` bytes of memory exist that was reserved, all zero. All members call it,
/// with the same length, in the same order among what they do together. Once it returns, all have
/// them. It waits for no kernel: kernels may use the bytes that exist meanwhile.
///
/// Errors, for all members: as gpunet_host_symmetric_alloc; the memory stays unchanged. -EBADF;
/// -EINVAL for more bytes than there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_symmetric_commit(
    symmetric: *const gpunet_host_symmetric_t,
    len: usize,
) -> c_int {
    done(|| {
        gpunet_host_symmetric_t::of(symmetric)?.with(|memory| {
            within(memory, 0, len)?;
            Ok(memory.commit(len)?)
        })
    })
}

/// Enters memory that a team has made.
fn made(
    team: *const gpunet_host_team_t,
    symmetric: *mut *mut gpunet_host_symmetric_t,
    make: impl FnOnce(&'static Team) -> Result<Symmetric<'static, u8>, Failure>,
) -> c_int {
    done(|| {
        let out = Out::new(symmetric, "symmetric")?;
        let object = gpunet_host_team_t::of(team)?;
        let memory = object.with(|team| {
            // SAFETY: the team stays where it is until it is left, which is refused while
            // `memories` counts this borrow. It cannot be left before it is counted, because `with`
            // keeps it for reading.
            let team: &'static Team = unsafe { &*std::ptr::from_ref(team) };
            let memory = make(team)?;
            object.memories.fetch_add(1, Ordering::Relaxed);
            Ok(memory)
        })?;
        let object = SymmetricObject { memory: RwLock::new(Some(memory)), team: object };
        out.put(gpunet_host_symmetric_t::new(Arc::new(object))?);
        Ok(())
    })
}

/// Stores in `*value` the parameter by which kernels use the memory. Pass it by value. The kernels
/// end before the memory is freed.
///
/// Errors: -EBADF; -EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_symmetric_value(
    symmetric: *const gpunet_host_symmetric_t,
    value: *mut SymmetricBytes,
) -> c_int {
    done(|| {
        let out = Out::new(value, "value")?;
        // SAFETY: the kernels end before the memory is freed: the caller's promise.
        out.put(gpunet_host_symmetric_t::of(symmetric)?.with(|memory| Ok(unsafe { memory.ptr() }))?);
        Ok(())
    })
}

/// Stores the address at which this member's device has mapped the part of `member`.
///
/// Errors: -EBADF; -EFAULT; -EINVAL when there is no such member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_symmetric_address(
    symmetric: *const gpunet_host_symmetric_t,
    member: u32,
    address: *mut u64,
) -> c_int {
    done(|| {
        let out = Out::new(address, "address")?;
        let found = gpunet_host_symmetric_t::of(symmetric)?.with(|memory| {
            // SAFETY: the kernels end before the memory is freed: the caller's promise.
            let address = unsafe { memory.address(Rank(member)) };
            address.ok_or_else(|| Failure::new(libc::EINVAL, format!("there is no member {member}")))
        })?;
        out.put(found);
        Ok(())
    })
}

/// Copies `len` bytes from `data` to `offset` in this member's own part. No kernel and no member
/// may be using these bytes.
///
/// Errors: -EBADF; -EFAULT; -EINVAL when the range is not inside the part; -EIO with CUDA's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_symmetric_write(
    symmetric: *const gpunet_host_symmetric_t,
    offset: usize,
    data: *const c_void,
    len: usize,
) -> c_int {
    done(|| {
        let object = gpunet_host_symmetric_t::of(symmetric)?;
        let bytes = memory::bytes(data, len)?;
        let mut memory = object.memory.write().unwrap_or_else(PoisonError::into_inner);
        let memory = memory.as_mut().ok_or_else(|| Failure::of(libc::EBADF))?;
        within(memory, offset, len)?;
        Ok(memory.write(offset, bytes)?)
    })
}

/// Copies `len` bytes at `offset` in this member's own part to `data`. No kernel and no member may
/// be writing these bytes.
///
/// Errors: as gpunet_host_symmetric_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_symmetric_read(
    symmetric: *const gpunet_host_symmetric_t,
    offset: usize,
    data: *mut c_void,
    len: usize,
) -> c_int {
    done(|| {
        let object = gpunet_host_symmetric_t::of(symmetric)?;
        let room = memory::room(data, len)?;
        object.with(|memory| {
            within(memory, offset, len)?;
            room.fill(MaybeUninit::new(0));
            // SAFETY: every byte was just written.
            let bytes = unsafe { &mut *(std::ptr::from_mut(room) as *mut [u8]) };
            Ok(memory.read(offset, bytes)?)
        })
    })
}

/// Frees this member's mappings; it waits for nobody, and other members keep theirs. No kernel of
/// this member uses the memory any more.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_symmetric_free(symmetric: *mut gpunet_host_symmetric_t) -> c_int {
    done(|| gpunet_host_symmetric_t::take(symmetric).map(drop))
}
