//! Poll groups.

use super::callers::{block_after_sync as block, thread, warp};
use crate::epoll;
use gpunet_device::poll_group::Event;

macro_rules! groups {
    ($(
        by $caller:expr;
        $ctl:ident, $wait:ident;
    )*) => {exports! {$(
        fn $ctl(
            g = $caller, net, group: i32, op: i32, socket: i32, events: i32, token: u64,
        ) -> i32 {
            epoll::ctl(g, net, group, op, socket, events, token)
        }

        fn $wait(
            g = $caller, net, group: i32, events: *mut Event, max: u32, last: u32, timeout_ns: i64,
        ) -> i32 {
            // SAFETY: `events` points to `max` events that only this group uses, by the caller's
            // contract.
            unsafe { epoll::wait(g, net, group, events, max, last, timeout_ns) }
        }
    )*}};
}

groups! {
    by block();
    gpunet_epoll_ctl, gpunet_epoll_wait;

    by warp();
    gpunet_epoll_ctl_warp, gpunet_epoll_wait_warp;

    by thread();
    gpunet_epoll_ctl_thread, gpunet_epoll_wait_thread;
}

exports! {
    fn gpunet_epoll_create(g = block(), net, capacity: u32) -> i32 {
        epoll::create(g, net, capacity)
    }

    fn gpunet_epoll_create_thread(g = thread(), net, capacity: u32) -> i32 {
        epoll::create(g, net, capacity)
    }

    fn gpunet_epoll_close(g = block(), net, group: i32) -> i32 {
        epoll::close(g, net, group)
    }

    fn gpunet_epoll_close_thread(g = thread(), net, group: i32) -> i32 {
        epoll::close(g, net, group)
    }
}
