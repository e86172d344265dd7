//! Symmetric memory: devices that store into each other's memory, in this program or in several.
//!
//! Members join a [`Team`] by its [`TeamId`], no matter how they were started. Together they
//! allocate [`Symmetric`] memory: each has a part, and the kernels of each can load from and store
//! into every part ([`gpunet_device::team`] has the calls of kernels). docs/symmetric.md has a
//! complete program.
//!
//! All members are on one machine: CPU devices, whose parts are memfds; GPUs, each of which maps
//! the memory of the others; or both, whose parts are then in pinned memory. The members may be
//! attachments of embedded proxies or of a daemon: a team's traffic passes through no proxy.
//!
//! # Failures
//! If a team, or an operation of all its members, fails, every member gets the same
//! [`TeamFailure`]. When a member's program dies, the waits of all kernels end with
//! ConnectionReset. If a member is stopped, or does not make a call, the others' calls fail after
//! [`TeamOptions::timeout`].
//!
//! | file | holds |
//! |---|---|
//! | `team` | [`Team`], the calls of members |
//! | `id`, `environment` | [`TeamId`]; which member a program is, from its launcher's environment |
//! | `root` | the thread in member 0's program where all meet: `rendezvous` (hellos), `arrivals` (connections), `operations` (operations of all members) |
//! | `joining`, `member` | how a member comes to the root; its connection, and the thread that watches it |
//! | `split` | teams of some members of a team |
//! | `memory`, `symmetric`, `slice` | memory of a member, exported and mapped; [`Symmetric`]; runs of its elements |
//! | `hold` | the parts of a team that an operation of a [queue](crate::queue) keeps alive |
//! | `passed` | descriptors received from other programs |
//! | `frames`, `secrets`, `error` | messages; the secrets by which members recognize each other; [`TeamFailure`] |

mod environment;
mod error;
mod frames;
mod hold;
mod id;
mod joining;
mod member;
mod memory;
mod passed;
mod root;
mod secrets;
mod slice;
mod split;
mod symmetric;

use crate::attached::device_memory::{DeviceMemory, bytes_of};
use frames::{DeviceKind, Placement};
use gpu_usermap::cuda::Device;
use gpu_usermap::threads;
use gpunet_abi::team::{BlockLayout, MAX_MEMBERS, MAX_SIGNALS, TeamState};
use gpunet_abi::{MAGIC, VERSION};
use gpunet_device::Net;
use gpunet_device::team::{Element, Rank, TeamHandle};
use joining::{Joining, Known};
use member::Member;
use std::sync::Arc;
use std::time::Duration;

pub use environment::Launched;
pub use error::{Collective, EnvironmentError, TeamError, TeamFailure};
pub(crate) use hold::TeamHold;
use hold::Turn;
pub use id::{InvalidTeamId, TeamId};
use memory::SharedMemory;
pub use root::TeamListener;
pub use slice::{PutSource, SymmetricSlice};
pub use symmetric::Symmetric;

/// The settings of a team. Equal on all members.
///
/// # Examples
/// ```
/// use gpunet_proxy::team::TeamOptions;
/// use std::time::Duration;
///
/// let options = TeamOptions { signals: 1024, timeout: Duration::from_secs(5), ..TeamOptions::default() };
/// # assert_eq!(options.signals, 1024);
/// ```
#[derive(Clone, Debug)]
pub struct TeamOptions {
    /// Signals of kernels; 256 by default. Each takes eight bytes of each member's memory for each
    /// member.
    pub signals: u32,
    /// How long members wait for each other when they join, and in each collective call on the
    /// host; 30 seconds by default. The value of member 0 applies.
    pub timeout: Duration,
}

impl Default for TeamOptions {
    fn default() -> Self {
        Self { signals: 256, timeout: Duration::from_secs(30) }
    }
}

/// A member's place in a team.
///
/// Dropping it leaves the team: waits of the others' kernels for this member then end with
/// NotConnected, and their collective calls on the host fail. [`Team::leave`] waits until all
/// others leave. The program of member 0 must run until all have left: without it the members would
/// not learn of a death, so its end breaks the team.
///
/// Operations of [queues](crate::queue) may still be under way when the team is dropped. Those that
/// would wait end with NotConnected, and the member leaves when all of them have ended.
///
/// # Examples
/// Two members in one program:
///
/// ```
/// use gpunet_proxy::device::Rank;
/// use gpunet_proxy::team::{Team, TeamListener};
/// use gpunet_proxy::{Config, embed};
///
/// let proxy = embed(Config::small())?;
/// let (first, second) = (proxy.attach_cpu()?, proxy.attach_cpu()?);
/// let listener = TeamListener::bind("127.0.0.1:0".parse()?)?;
/// let id = listener.id(); // for the other members
/// let other = std::thread::spawn(move || {
///     let team = Team::join(&second, id, Rank(1), 2)?;
///     team.barrier()?;
///     team.leave()
/// });
/// let team = Team::lead(&first, listener, 2)?;
/// assert_eq!((team.rank(), team.size()), (Rank(0), 2));
/// team.barrier()?;
/// team.leave()?;
/// other.join().expect("no panic")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Team {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    local: Local,
    // Dropped after the connection, whose thread writes into this member's block.
    blocks: Arc<SharedMemory>,
    layout: BlockLayout,
    state: DeviceMemory,
    /// Which queue has collectives under way.
    turn: Turn,
    /// The members' ranks in the team that this one was split from.
    origins: Vec<Rank>,
}

/// The data of one member, apart from memory that it shares with the others.
#[derive(Debug)]
struct Local {
    member: Member,
    device: Option<Device>,
    placement: Placement,
    rank: Rank,
    size: u32,
    options: TeamOptions,
}

impl Team {
    /// Returns this member's rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.inner.local.rank
    }

    /// Returns the number of members.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.inner.local.size
    }

    /// The device with which this member has joined; `None` is the CPU.
    pub(crate) fn device(&self) -> Option<&Device> {
        self.inner.local.device.as_ref()
    }

    pub(crate) fn signals(&self) -> u32 {
        self.inner.local.options.signals
    }

    /// Returns why the team is broken, if it is. Ranks are those in this team; [`Team::origin`] has
    /// others.
    #[must_use]
    pub fn broken(&self) -> Option<TeamFailure> {
        self.inner.local.member.broken()
    }

    /// Returns the same as the error of calls that fail because of it.
    pub(crate) fn broken_error(&self) -> Option<TeamError> {
        let member = &self.inner.local.member;
        member.broken().map(|why| member.named(why.into()))
    }

    /// Allocates `len` elements for each member, all zero. All members call it, with the same
    /// length and type, in the same order relative to their other collective calls. Blocks until
    /// all have mapped the memory.
    ///
    /// # Errors
    /// [`TeamError`]; the same [`TeamFailure`] for all members. The team remains usable.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Symmetric<'_, T>, TeamError> {
        let memory = alloc::<T>(&self.inner.local, len, false)?;
        Ok(Symmetric::new(self, memory, len))
    }

    /// As [`Team::alloc`], but the elements need not exist yet: [`Symmetric::commit`] creates the
    /// first ones, up to a given number, before they are used. All of them exist from the start on
    /// a GPU whose team includes a CPU, and on a GPU whose memory the others cannot map.
    ///
    /// # Errors
    /// As [`Team::alloc`].
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(team: &gpunet_proxy::team::Team) -> Result<(), gpunet_proxy::team::TeamError> {
    /// let heap = team.reserve::<u8>(1 << 30)?; // costs next to nothing
    /// heap.commit(100)?; // the first elements can be used now
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve<T: Element>(&self, len: usize) -> Result<Symmetric<'_, T>, TeamError> {
        let memory = alloc::<T>(&self.inner.local, len, true)?;
        Ok(Symmetric::new(self, memory, len))
    }

    /// As [`Team::alloc`], without blocking. If the future is dropped, this member still takes
    /// part, but does not keep the memory.
    ///
    /// # Errors
    /// As [`Team::alloc`].
    pub async fn alloc_async<T: Element>(&self, len: usize) -> Result<Symmetric<'_, T>, TeamError> {
        let inner = self.inner.clone();
        let memory = on_thread(move || alloc::<T>(&inner.local, len, false)).await?;
        Ok(Symmetric::new(self, memory, len))
    }

    /// Waits until all members have called it. It does not wait for kernels.
    ///
    /// # Errors
    /// [`TeamError`]; the same [`TeamFailure`] for all members.
    pub fn barrier(&self) -> Result<(), TeamError> {
        self.inner.local.member.together(Collective::Barrier, &[]).map(drop)
    }

    /// As [`Team::barrier`], without blocking. If the future is dropped, this member still takes
    /// part.
    ///
    /// # Errors
    /// As [`Team::barrier`].
    pub async fn barrier_async(&self) -> Result<(), TeamError> {
        let inner = self.inner.clone();
        on_thread(move || inner.local.member.together(Collective::Barrier, &[]).map(drop)).await
    }

    /// Leaves the team when all members do.
    ///
    /// # Errors
    /// [`TeamError`]: some did not. This member has left nevertheless.
    pub fn leave(self) -> Result<(), TeamError> {
        self.inner.local.member.together(Collective::Leave, &[]).map(drop)
    }

    /// Returns the handle with which kernels of a launch act as this member.
    ///
    /// # Safety
    /// `net` is of a launch on the attachment that has joined. Its kernels end before this team is
    /// dropped.
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn handle(&self, net: Net) -> TeamHandle {
        let (state, local) = (self.inner.state.address(), &self.inner.local);
        // SAFETY: `form` has written the state, in the memory of this device, and the blocks are
        // mapped; both live as long as `self`, by the caller's promise longer than the kernels.
        unsafe { TeamHandle::from_raw(net, state, local.rank.0, local.size) }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // Operations of queues are under way, or a call whose future was dropped.
        if Arc::strong_count(&self.inner) > 1 {
            self.inner.local.member.close();
        }
    }
}

fn alloc<T: Element>(local: &Local, len: usize, is_reserved: bool) -> Result<SharedMemory, TeamError> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
    let bytes =
        bytes.ok_or_else(|| TeamError::Memory(format!("{len} elements are more than there can be")))?;
    let memory = SharedMemory::alloc(local, bytes as u64, size_of::<T>() as u32, is_reserved);
    memory.map_err(|error| local.member.named(error))
}

pub(crate) fn join(
    device: Option<Device>,
    id: TeamId,
    rank: Rank,
    size: u32,
    options: TeamOptions,
) -> Result<Team, TeamError> {
    check(rank, size, &options)?;
    if rank == Rank(0) {
        return lead(device, TeamListener::with_id(id)?, size, options);
    }
    form(device, id, (rank, size), options, Parent::default())
}

pub(crate) fn lead(
    device: Option<Device>,
    listener: TeamListener,
    size: u32,
    options: TeamOptions,
) -> Result<Team, TeamError> {
    check(Rank(0), size, &options)?;
    let id = listener.id();
    listener.start(size, &options, device.as_ref().map(Device::export_check))?;
    form(device, id, (Rank(0), size), options, Parent::default())
}

fn check(rank: Rank, size: u32, options: &TeamOptions) -> Result<(), TeamError> {
    if rank.0 >= size || size > MAX_MEMBERS {
        return Err(TeamFailure::NoSuchRank { rank, size }.into());
    }
    if options.signals > MAX_SIGNALS {
        let (what, its, ours) = ("number of signals".to_owned(), options.signals.into(), MAX_SIGNALS.into());
        return Err(TeamFailure::Unequal { rank, what, its, ours }.into());
    }
    Ok(())
}

/// What a member of a split-off team takes over from the parent team.
#[derive(Default)]
struct Parent<'a> {
    /// The members' ranks in the parent team.
    origins: Vec<Rank>,
    /// The members' ranks in the team that was joined.
    joined: Vec<Rank>,
    /// The secret that it shares with the first member of the split-off team.
    secret: u128,
    /// Returns why the first member cannot be reached, if that is known.
    known_failure: Known<'a>,
}

/// Meets the others, and allocates the blocks together with them.
fn form(
    device: Option<Device>,
    id: TeamId,
    (rank, size): (Rank, u32),
    options: TeamOptions,
    parent: Parent<'_>,
) -> Result<Team, TeamError> {
    let kind = match &device {
        None => DeviceKind::Cpu,
        Some(device) => DeviceKind::Gpu(device.can_share().map_err(|why| why.to_string())),
    };
    let Parent { origins, joined, secret, known_failure } = parent;
    let joining = Joining { id, rank, size, secret, device: kind };
    let entered = joining::enter(&joining, &options, known_failure)?;
    let exports = device.as_ref().filter(|_| entered.placement == Placement::Gpu).map(Device::export_check);
    let (placement, is_polled) = (entered.placement, entered.is_polled);
    let member = Member::new(entered, size, joining::limit(&options), exports, joined)?;
    let signals = options.signals;
    let local = Local { member, device, placement, rank, size, options };
    let layout = BlockLayout::new(size, signals);
    let blocks = Arc::new(SharedMemory::alloc(&local, layout.len, 8, false)?);
    let state = state(&local, &blocks, layout, is_polled)?;
    local.member.show_in(blocks.clone(), rank, layout);
    let team =
        Team { inner: Arc::new(Inner { local, blocks, layout, state, turn: Turn::default(), origins }) };
    // No kernel signals before every member has a place in which a death is recorded.
    team.barrier()?;
    Ok(team)
}

/// Writes what kernels know of the team into the device's own memory.
fn state(
    local: &Local,
    blocks: &SharedMemory,
    layout: BlockLayout,
    is_polled: bool,
) -> Result<DeviceMemory, TeamError> {
    let (size, signals) = (local.size, local.options.signals);
    let head = TeamState {
        magic: MAGIC,
        version: VERSION,
        rank: local.rank.0,
        members: size,
        signals,
        is_polled: u32::from(is_polled),
        layout,
        collective_lock: 0,
        signal_lock: 0,
        passed: 0,
        out_of_step: 0,
        reserved: [0; 4],
    };
    let addresses: Vec<u8> = blocks.parts.iter().flat_map(|part| part.address().to_le_bytes()).collect();
    let memory = |error: &dyn std::fmt::Display| TeamError::Memory(error.to_string());
    let state = DeviceMemory::of(local.device.as_ref(), TeamState::len(size, signals) as usize);
    let state = state.map_err(|error| memory(&error))?;
    for (offset, bytes) in [(0, bytes_of(&head)), (TeamState::BLOCKS as usize, &addresses)] {
        state.write(offset, bytes).map_err(|error| memory(&error))?;
    }
    Ok(state)
}

/// Runs a blocking call on a thread of its own. A panic in it continues in the caller.
pub(crate) async fn on_thread<R: Send + 'static>(
    body: impl FnOnce() -> Result<R, TeamError> + Send + 'static,
) -> Result<R, TeamError> {
    let (done, result) = tokio::sync::oneshot::channel();
    let spawned = threads::spawn("gpunet-team-call", move || {
        let _ = done.send(body());
    });
    spawned.map_err(TeamError::io("cannot start a thread for the team"))?;
    result.await.unwrap_or_else(|_| Err(TeamError::Memory("the call's thread has panicked".to_owned())))
}
