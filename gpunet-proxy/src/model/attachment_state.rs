//! The state of an attachment that all threads of the proxy share.

use super::agent::AgentLink;
use crate::model::access::Account;
use gpunet_abi::Error;
use gpunet_abi::layout::Geometry;
use gpunet_core::ids::{AttachmentId, RequestId};
use gpunet_core::memory::SharedMemory;
use gpunet_core::verbs::Keep;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Ring memory that an attachment begins with; the rest is allocated while it is already in use.
const FIRST_RINGS: u64 = 4 << 20;

/// Ring memory in the shared region that exists from the start, bytes.
pub(crate) fn first_rings(geometry: &Geometry) -> u64 {
    geometry.shared_rings.min(FIRST_RINGS)
}

/// One attachment, shared by the proxy's threads.
pub(crate) struct AttachmentState {
    pub(crate) id: AttachmentId,
    pub(crate) memory: Arc<SharedMemory>,
    /// A GPU: its stores raise no event, so its words must be polled.
    pub(crate) polled: bool,
    /// A GPU whose memory other processes and other GPUs may map.
    pub(crate) shareable: bool,
    /// Reaches the process that owns it.
    pub(crate) agent: AgentLink,
    /// How a network card reaches the device's own memory, if rings may lie there.
    pub(crate) card: Option<CardMemory>,
    pub(crate) totals: Totals,
    pub(crate) inbox: Inbox,
    /// The eventfds by which CPU blocks wake data threads; one for each.
    pub(crate) doorbells: Arc<[OwnedFd]>,
    /// The owner's account; `None` for the process that embeds the proxy, which has no limits.
    pub(crate) account: Option<Arc<Account>>,
    /// Its owner, for operators.
    pub(crate) client: ClientInfo,
    /// When it was made.
    pub(crate) since: Instant,
    /// Its charge to the account, given back when the last thread has forgotten the attachment.
    pub(crate) _quota: Option<Quota>,
}

/// What an attachment is charged to its owner's account.
#[derive(Debug)]
pub(crate) struct Quota {
    account: Arc<Account>,
    memory: u64,
    descriptors: u64,
}

impl Quota {
    /// Takes an attachment, its memory and its descriptors.
    ///
    /// # Errors
    /// The errno, and which limit.
    pub(crate) fn take(
        account: Arc<Account>,
        memory: u64,
        descriptors: u64,
    ) -> Result<Self, (Error, String)> {
        let (uid, limits) = (account.uid(), account.limits());
        account.take_attachment().map_err(|error| {
            let allowed = limits.attachments;
            (error, format!("user {uid} has the {allowed} attachments that it may have (limit: attachments)"))
        })?;
        let mut quota = Self { account, memory: 0, descriptors: 0 };
        quota.account.take_memory(memory).map_err(|error| {
            let (allowed, held) = (limits.ring_memory, quota.account.usage().ring_memory);
            let is_own_limit = held.saturating_add(memory) > allowed;
            let (whose, held, allowed, limit) = match quota.account.memory_of_all() {
                (held, allowed) if !is_own_limit => {
                    ("all users together have".to_owned(), held, allowed, "the memory of the daemon's machine or cgroup")
                }
                _ => (format!("user {uid} has"), held, allowed, "ring_memory"),
            };
            let why = format!(
                "{memory} bytes of memory, where {whose} {held} of the {allowed} that may be had (limit: {limit}); ask for \
                 less ring memory (setting shared_rings)"
            );
            (error, why)
        })?;
        quota.memory = memory;
        quota.account.take_descriptors(descriptors).map_err(|error| {
            let allowed = quota.account.allowed_descriptors();
            let why = format!(
                "user {uid} has the file descriptors that it may have ({allowed}), or all users have (limit: \
                 descriptors; the daemon's `ulimit -n`)"
            );
            (error, why)
        })?;
        quota.descriptors = descriptors;
        Ok(quota)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.account.give_memory(self.memory);
        self.account.give_descriptors(self.descriptors);
        self.account.give_attachment();
    }
}

/// The process that owns an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientInfo {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    /// What the program is called.
    pub(crate) command: String,
    /// "cpu", or the GPU's name.
    pub(crate) device: String,
}

impl ClientInfo {
    /// This process, with that device.
    pub(crate) fn own(device: &str) -> Self {
        Self {
            pid: std::process::id(),
            uid: rustix::process::getuid().as_raw(),
            command: own_command(),
            device: device.to_owned(),
        }
    }
}

/// The longest name of a program that is kept.
pub(crate) const MAX_COMMAND: usize = 64;

/// The name of this program: the last component of its first argument.
pub(crate) fn own_command() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&name).file_name().unwrap_or_default().to_string_lossy();
    printable(&name)
}

/// A name that is safe to show: bounded, and of printable characters.
pub(crate) fn printable(name: &str) -> String {
    let mut shown = String::new();
    for c in name.chars().map(|c| if c.is_control() { '?' } else { c }) {
        if shown.len() + c.len_utf8() > MAX_COMMAND {
            break;
        }
        shown.push(c);
    }
    shown
}

impl AttachmentState {
    /// Returns whether that user owns it; `None` stands for everybody.
    pub(crate) fn is_of(&self, user: Option<u32>) -> bool {
        user.is_none_or(|uid| self.client.uid == uid)
    }
}

impl std::fmt::Debug for AttachmentState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached").field("id", &self.id).field("polled", &self.polled).finish_non_exhaustive()
    }
}

/// The device's own memory as a network card reaches it.
#[derive(Debug)]
pub(crate) struct CardMemory {
    /// Address of its first byte, in the device's address space.
    pub(crate) address: u64,
    /// The dma-buf, and where in it the memory starts; `None`: the card's driver finds the memory
    /// by its address (nvidia-peermem).
    pub(crate) dmabuf: Option<(Arc<OwnedFd>, u64)>,
    /// Keeps the memory as long as it is registered.
    pub(crate) keep: Keep,
}

/// Which control slots have a request queued for the control thread.
///
/// A kernel that overwrites request words must not fill the proxy's memory: each control slot has
/// at most one request and one abandon in the queue. A correct kernel never notices.
#[derive(Debug)]
pub(crate) struct Inbox {
    requests: Box<[AtomicBool]>,
    abandons: Box<[AtomicBool]>,
}

impl Inbox {
    pub(crate) fn new(controls: u32) -> Self {
        let flags = || (0..controls).map(|_| AtomicBool::new(false)).collect();
        Self { requests: flags(), abandons: flags() }
    }

    // Ordering: Relaxed throughout; the flags only bound how many messages there are.
    pub(crate) fn enter_request(&self, control: usize) -> bool {
        self.requests.get(control).is_some_and(|flag| !flag.swap(true, Ordering::Relaxed))
    }

    pub(crate) fn enter_abandon(&self, control: usize) -> bool {
        self.abandons.get(control).is_some_and(|flag| !flag.swap(true, Ordering::Relaxed))
    }

    pub(crate) fn leave_request(&self, id: RequestId) {
        if let Some(flag) = id.control().and_then(|control| self.requests.get(control as usize)) {
            flag.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn leave_abandon(&self, id: RequestId) {
        if let Some(flag) = id.control().and_then(|control| self.abandons.get(control as usize)) {
            flag.store(false, Ordering::Relaxed);
        }
    }
}

/// Totals of an attachment since it was made.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    opened: AtomicU64,
    closed: AtomicU64,
    undelivered: AtomicU64,
}

/// A snapshot of an attachment's totals.
///
/// # Examples
/// ```
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let stats = attachment.stats();
/// println!("{} streams are open", stats.opened - stats.closed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Streams opened.
    pub opened: u64,
    /// Streams closed and forgotten.
    pub closed: u64,
    /// Bytes that a send accepted and that did not reach the peer.
    pub undelivered: u64,
}

/// What an attachment holds at one moment.
///
/// # Examples
/// ```
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let usage = attachment.usage();
/// assert_eq!(usage.ring_bytes, usage.free_ring_bytes, "no stream has rings yet");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Socket slots in use: listeners, streams, streams that are still being closed, and sockets
    /// that the proxy closed for a launch and that other running launches know.
    pub sockets: usize,
    /// Control requests without a reply: accepts and connects that wait.
    pub requests: usize,
    /// Ring memory, bytes.
    pub ring_bytes: u64,
    /// Ring memory that is free, bytes.
    pub free_ring_bytes: u64,
}

impl Totals {
    // Ordering: Relaxed throughout; counters for people, nothing is ordered by them.
    pub(crate) fn open(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn close(&self, undelivered: u64) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        self.undelivered.fetch_add(undelivered, Ordering::Relaxed);
    }

    /// Counts bytes of a stream that did not end before the attachment did.
    pub(crate) fn lose(&self, undelivered: u64) {
        self.undelivered.fetch_add(undelivered, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            opened: self.opened.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
            undelivered: self.undelivered.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_slot_has_one_request_and_one_abandon_on_the_way() {
        let inbox = Inbox::new(2);
        assert!(inbox.enter_request(1) && inbox.enter_abandon(1) && inbox.enter_request(0));
        assert!(!inbox.enter_request(1) && !inbox.enter_abandon(1));
        inbox.leave_request(RequestId::Device { control: 1, seq: 1 });
        assert!(inbox.enter_request(1) && !inbox.enter_abandon(1));
        assert!(!inbox.enter_request(2), "there is no such slot");
        inbox.leave_abandon(RequestId::Device { control: 9, seq: 1 });
    }
}
