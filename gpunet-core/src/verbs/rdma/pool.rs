//! Domains between connections: registering memory takes long, so it is kept.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::{DeviceInfo, Memory};
use super::cm::Id;
use super::context::Context;
use super::counts::Counts;
use super::domain::Domain;

/// Most idle domains of a device; beyond it the one that was idle longest goes.
const MOST_IDLE: usize = 1024;

/// The devices in use, and their idle domains.
pub(super) struct Pool {
    counts: Arc<Counts>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the address of the C context.
    devices: HashMap<usize, Device>,
    in_use: HashMap<u64, Use>,
    next_serial: u64,
}

struct Device {
    context: Arc<Context>,
    /// The one that came last is at the end.
    idle: VecDeque<Domain>,
}

struct Use {
    owner: u64,
    /// Not to be kept when it comes back.
    forgotten: bool,
}

/// A domain in use. It goes back to the pool when dropped, which must be after its queue pair's
/// end.
pub(super) struct Lease {
    pool: Arc<Pool>,
    serial: u64,
    domain: Option<Domain>,
}

impl Pool {
    pub(super) fn new(counts: Arc<Counts>) -> Arc<Self> {
        Arc::new(Self { counts, state: Mutex::default() })
    }

    pub(super) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is one step of a collection, so a panic leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device of an identifier whose address is resolved.
    pub(super) fn device(&self, id: &Id) -> io::Result<Arc<Context>> {
        let key = id.context().map_or(0, |context| context.as_ptr() as usize);
        if let Some(device) = self.state().devices.get(&key) {
            return Ok(Arc::clone(&device.context));
        }
        // Only the control thread runs this, so no other thread adds the same context.
        let context = Arc::new(Context::of(id)?);
        let device = Device { context: Arc::clone(&context), idle: VecDeque::new() };
        self.state().devices.insert(key, device);
        Ok(context)
    }

    /// Takes an idle domain that fits, or makes one.
    pub(super) fn lease(
        self: &Arc<Self>,
        context: &Arc<Context>,
        memory: &Memory,
        messages: u32,
    ) -> io::Result<Lease> {
        let slots = slots(&context.info, messages);
        let (found, evicted) = self.state().take(context, memory, slots);
        drop(evicted);
        let domain = match found {
            Some(domain) => domain,
            None => match Domain::new(context, memory, slots, &self.counts) {
                // What is kept for speed goes first.
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory && self.drop_idle(context) => {
                    Domain::new(context, memory, slots, &self.counts)?
                }
                made => made?,
            },
        };
        let serial = self.state().enter(memory.owner);
        Ok(Lease { pool: Arc::clone(self), serial, domain: Some(domain) })
    }

    /// Drops the idle domains of a device; returns whether there were any.
    fn drop_idle(&self, context: &Arc<Context>) -> bool {
        let device = context.as_ptr() as usize;
        let idle = self.state().devices.get_mut(&device).map(|device| std::mem::take(&mut device.idle));
        // Outside the lock: deregistering takes long.
        idle.is_some_and(|idle| !idle.is_empty())
    }

    fn give_back(&self, serial: u64, domain: Domain) {
        // For the next connection: nothing of this one is left in it.
        domain.table().clear();
        let surplus = self.state().give_back(serial, domain);
        // Outside the lock: deregistering takes long.
        drop(surplus);
    }

    /// Drops the idle domains of an owner; those in use follow when they come back.
    pub(super) fn forget(&self, owner: u64) {
        let idle = self.state().forget(owner);
        drop(idle);
    }

    /// Lets go of a device that leaves the machine.
    pub(super) fn retire(&self, context: &Arc<Context>) {
        let device = self.state().devices.remove(&(context.as_ptr() as usize));
        drop(device);
    }
}

/// iWARP has a slot in memory for each message that may come.
fn slots(device: &DeviceInfo, messages: u32) -> usize {
    if device.iwarp { messages as usize } else { 0 }
}

impl State {
    fn take(
        &mut self,
        context: &Arc<Context>,
        memory: &Memory,
        slots: usize,
    ) -> (Option<Domain>, Vec<Domain>) {
        let Some(device) = self.devices.get_mut(&(context.as_ptr() as usize)) else {
            return (None, Vec::new());
        };
        // The one used last: the card's caches may still know it.
        if let Some(at) = device.idle.iter().rposition(|domain| domain.fits(memory, slots)) {
            return (device.idle.remove(at), Vec::new());
        }
        let mut evicted = Vec::new();
        let mut at = 0;
        while at < device.idle.len() {
            if device.idle[at].overlaps(memory) {
                evicted.extend(device.idle.remove(at));
            } else {
                at += 1;
            }
        }
        (None, evicted)
    }

    fn enter(&mut self, owner: u64) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.in_use.insert(serial, Use { owner, forgotten: false });
        serial
    }

    /// Returns what is not kept.
    fn give_back(&mut self, serial: u64, domain: Domain) -> Option<Domain> {
        let forgotten = self.in_use.remove(&serial).is_none_or(|entry| entry.forgotten);
        // A device that has left and come back is another one at the same address.
        let device = self.devices.get_mut(&(domain.context().as_ptr() as usize));
        let device = device.filter(|device| Arc::ptr_eq(&device.context, domain.context()));
        let Some(device) = device else { return Some(domain) };
        if forgotten {
            return Some(domain);
        }
        device.idle.push_back(domain);
        if device.idle.len() > MOST_IDLE { device.idle.pop_front() } else { None }
    }

    fn forget(&mut self, owner: u64) -> Vec<Domain> {
        for entry in self.in_use.values_mut().filter(|entry| entry.owner == owner) {
            entry.forgotten = true;
        }
        let mut dropped = Vec::new();
        for device in self.devices.values_mut() {
            let (gone, kept) = device.idle.drain(..).partition::<Vec<_>, _>(|domain| domain.owner() == owner);
            dropped.extend(gone);
            device.idle = kept.into();
        }
        dropped
    }
}

impl Lease {
    pub(super) fn domain(&self) -> &Domain {
        self.domain.as_ref().expect("present until dropped")
    }

    /// The device leaves the machine.
    pub(super) fn retire_device(&self) {
        self.pool.retire(self.domain().context());
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(domain) = self.domain.take() {
            self.pool.give_back(self.serial, domain);
        }
    }
}
