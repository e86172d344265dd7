//! The calling thread of a CPU.

use gpunet_abi::{Error, Result};
use gpunet_device::group::{Alone, Lane, Solo};
use gpunet_device::team::TeamHandle;
use gpunet_device::{Group, Net};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Makes a call with a context, if it is one of a launch that a library knows; nobody finishes the
/// launch meanwhile.
pub type NetGuard = fn(u64, &mut dyn FnMut(Net) -> Result<i64>) -> i64;
/// Makes a call with a team, if it is one that a library knows; nobody leaves it meanwhile.
pub type TeamGuard = fn(TeamHandle, &mut dyn FnMut(TeamHandle) -> Result<i64>) -> i64;

static NET_GUARD: OnceLock<NetGuard> = OnceLock::new();
static TEAM_GUARD: OnceLock<TeamGuard> = OnceLock::new();

/// Sets the function by which all calls with contexts are made from now on. The first one stays.
pub fn guard_nets(guard: NetGuard) {
    NET_GUARD.get_or_init(|| guard);
}

/// Sets the function by which all calls with teams are made from now on. The first one stays.
pub fn guard_teams(guard: TeamGuard) {
    TEAM_GUARD.get_or_init(|| guard);
}

/// As [`call`](crate::capi::call), by the guard if there is one.
///
/// # Safety
/// As `call` if there is no guard.
pub(in crate::capi) unsafe fn with_net(net: u64, body: impl FnOnce(Net) -> Result<i64>) -> i64 {
    let Some(guard) = NET_GUARD.get() else {
        // SAFETY: the caller's contract.
        return unsafe { crate::capi::call(net, body) };
    };
    let mut body = Some(body);
    guard(net, &mut |net| body.take().map_or(Err(Error::NetworkDown), |body| body(net)))
}

/// As [`team_call`](crate::capi::team_call), by the guard if there is one.
pub(in crate::capi) fn with_team(team: TeamHandle, body: impl FnOnce(TeamHandle) -> Result<i64>) -> i64 {
    let Some(guard) = TEAM_GUARD.get() else { return crate::capi::team_call(team, body) };
    let mut body = Some(body);
    guard(team, &mut |team| body.take().map_or(Err(Error::NetworkDown), |body| body(team)))
}

/// The part of a group that does not depend on its type.
trait Meet {
    fn rank(&self) -> u32;
    fn size(&self) -> u32;
    fn index(&self) -> u32;
    fn count(&self) -> u32;
    fn sync(&self);
    fn broadcast(&self, value: u64) -> u64;
    fn broadcast_once(&self, place: u32, value: u64) -> u64;
    fn sum(&self, value: u32) -> u32;
    fn sum_once(&self, value: u32) -> u32;
}

impl<G: Group> Meet for G {
    fn rank(&self) -> u32 {
        Group::rank(self)
    }
    fn size(&self) -> u32 {
        Group::size(self)
    }
    fn index(&self) -> u32 {
        Group::index(self)
    }
    fn count(&self) -> u32 {
        Group::count(self)
    }
    fn sync(&self) {
        Group::sync(self);
    }
    fn broadcast(&self, value: u64) -> u64 {
        Group::broadcast(self, value)
    }
    fn broadcast_once(&self, place: u32, value: u64) -> u64 {
        match place {
            0 => Group::broadcast_once::<0>(self, Lane::of(self), value),
            _ => Group::broadcast_once::<1>(self, Lane::of(self), value),
        }
    }
    fn sum(&self, value: u32) -> u32 {
        Group::sum(self, value)
    }
    fn sum_once(&self, value: u32) -> u32 {
        Group::sum_once(self, value)
    }
}

/// A group that includes the calling thread.
#[derive(Clone, Copy)]
pub struct Calling {
    group: *const dyn Meet,
    warp: *const dyn Meet,
    thread: Solo,
}

/// The block, warp and thread of a thread that runs no kernel.
static NO_KERNEL: Solo = Solo::new(0, 1);

thread_local! {
    static CALLING: Cell<Calling> = const { Cell::new(Calling { group: &NO_KERNEL, warp: &NO_KERNEL, thread: NO_KERNEL }) };
}

/// Runs `body`, in which the calling thread is one of `block`.
pub fn as_group<G: Group, R>(block: &G, body: impl FnOnce() -> R) -> R {
    /// Puts back what was there, also after a panic.
    struct Restore(Calling);
    impl Drop for Restore {
        fn drop(&mut self) {
            CALLING.set(self.0);
        }
    }
    let (warp, thread) = (block.warp(), block.thread());
    let thread = Solo::new(Group::index(&thread), Group::count(&thread));
    let (group, warp): (*const (dyn Meet + '_), *const (dyn Meet + '_)) = (block, &warp);
    // SAFETY: the same pointers, without their lifetimes: `Restore` takes them away while both
    // groups are there.
    let (group, warp) = unsafe {
        let endless = |group: *const (dyn Meet + '_)| {
            std::mem::transmute::<*const (dyn Meet + '_), *const dyn Meet>(group)
        };
        (endless(group), endless(warp))
    };
    let _restore = Restore(CALLING.replace(Calling { group, warp, thread }));
    body()
}

/// The block of the calling thread.
#[must_use]
pub fn block() -> Calling {
    CALLING.get()
}

/// The block that calls; other threads see what it has written at the next meeting.
pub(in crate::capi) fn block_after_sync() -> Calling {
    let block = block();
    Group::sync(&block);
    block
}

/// Makes the calling thread one of `block` again, from where its [`as_group`] has been left to let
/// others run on this thread.
pub fn resume(block: Calling) {
    CALLING.set(block);
}

/// The warp of the calling thread.
#[must_use]
pub fn warp() -> Calling {
    Group::warp(&block())
}

pub(in crate::capi) fn thread() -> Solo {
    block().thread
}

/// Ends the program where threads of a block have gone different ways: the others would wait for
/// ever. The panic has said which.
fn together<R>(meet: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(meet)).unwrap_or_else(|_| std::process::abort())
}

impl Calling {
    fn group(&self) -> &dyn Meet {
        // SAFETY: it is there for as long as `as_group` runs on this thread, and a static
        // otherwise; a `Calling` does not leave its thread, nor the call that it is made for.
        unsafe { &*self.group }
    }
}

impl std::fmt::Debug for Calling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread {} of {}", self.group().rank(), self.group().size())
    }
}

impl Group for Calling {
    type Warp = Self;
    type Thread = Solo;
    type Front = Alone;

    fn rank(&self) -> u32 {
        self.group().rank()
    }
    fn size(&self) -> u32 {
        self.group().size()
    }
    fn index(&self) -> u32 {
        self.group().index()
    }
    fn count(&self) -> u32 {
        self.group().count()
    }
    fn sync(&self) {
        together(|| self.group().sync());
    }
    fn broadcast(&self, value: u64) -> u64 {
        together(|| self.group().broadcast(value))
    }
    fn broadcast_once<const PLACE: u32>(&self, _lane: Lane, value: u64) -> u64 {
        together(|| self.group().broadcast_once(PLACE, value))
    }
    fn sum(&self, value: u32) -> u32 {
        together(|| self.group().sum(value))
    }
    fn sum_once(&self, value: u32) -> u32 {
        together(|| self.group().sum_once(value))
    }
    fn has_front(&self, _lane: Lane) -> bool {
        true
    }
    fn front(&self, lane: Lane) -> Option<Alone> {
        lane.is_leader().then_some(Alone)
    }
    fn warp(&self) -> Self {
        Self { group: self.warp, ..*self }
    }
    fn thread(&self) -> Solo {
        self.thread
    }
}
