//! Sending and receiving by a block, a warp or a thread; and gpoll.

use super::{call, int};
use crate::group::{Thread, ThreadBlock, Warp};
use crate::posix;
use crate::posix::send::MSG_DONTWAIT;
use crate::{PollFd, PollSet, poll};

macro_rules! data {
    ($send:ident, $recv:ident, $group:expr, $flags:expr) => {
        /// See `include/gpunet.h`.
        ///
        /// # Safety
        /// `data` is readable for `len` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $send(socket: i32, data: *const u8, len: u64, flags: i32) -> i64 {
            call(&$group, |g, net| {
                // SAFETY: the caller's contract.
                unsafe { posix::send::send(g, net, socket, data, len as usize, flags | $flags) }
            })
        }

        /// See `include/gpunet.h`.
        ///
        /// # Safety
        /// `data` is writable for `len` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $recv(socket: i32, data: *mut u8, len: u64, flags: i32) -> i64 {
            call(&$group, |g, net| {
                // SAFETY: the caller's contract.
                unsafe { posix::recv::recv(g, net, socket, data, len as usize, flags | $flags) }
            })
        }
    };
}

data!(gsend, grecv, ThreadBlock::current(), 0);
data!(gsend_nb, grecv_nb, ThreadBlock::current(), MSG_DONTWAIT);
data!(gsend_warp, grecv_warp, Warp::current(), 0);
data!(gsend_thread, grecv_thread, Thread, 0);

/// See `include/gpunet.h`.
///
/// # Safety
/// `fds` are `count` entries that only this block uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpoll(fds: *mut PollFd, count: u64, timeout_ns: i64) -> i32 {
    int(&ThreadBlock::current(), |g, net| {
        posix::unless(!fds.is_null() || count == 0, posix::errno::FAULT)?;
        // SAFETY: the caller's contract.
        let set = unsafe { PollSet::from_raw_parts(fds, count as usize) };
        poll(g, net, set, timeout_ns).map(|ready| ready as i64)
    })
}
