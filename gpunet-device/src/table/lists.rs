//! The lists of a poll group, as its blocks read them.

use crate::Net;
use core::mem::offset_of;
use gpunet_abi::accept::TakenWord;
use gpunet_abi::atomic::{AtomicU64, Ordering};
use gpunet_abi::poll_group::{GroupWords, LISTS, ListHeader};
use gpunet_abi::ready_list::ReadyList;
use gpunet_abi::{Handle, Word};

/// One list of a group.
#[derive(Clone, Copy)]
pub(crate) struct List {
    net: Net,
    group: Handle,
    index: usize,
}

fn words(net: Net, group: Handle) -> *mut GroupWords {
    net.group_words(group.slot())
}

/// How many lists a group has.
pub(crate) fn count(net: Net, group: Handle) -> usize {
    // SAFETY: a field of the device region; written when the group was made.
    let lists = unsafe { (&raw const (*words(net, group)).lists).read_volatile() } as usize;
    if lists < LISTS { lists } else { LISTS }
}

/// Sockets at most.
pub(crate) fn capacity(net: Net, group: Handle) -> u32 {
    // SAFETY: as in `count`.
    unsafe { (&raw const (*words(net, group)).capacity).read_volatile() }
}

/// The address of the lists' header.
fn header(net: Net, group: Handle) -> u64 {
    // SAFETY: as in `count`.
    unsafe { (&raw const (*words(net, group)).lists_at).read_volatile() }
}

/// The word that counts entries of all lists.
pub(crate) fn changes(net: Net, group: Handle) -> Word {
    // SAFETY: `PollGroup::create` checked that the lists lie inside the shared region, aligned.
    unsafe { Word::from_ptr((header(net, group) + offset_of!(ListHeader, changes) as u64) as *mut u64) }
}

impl List {
    pub(crate) const fn of(net: Net, group: Handle, index: usize) -> Self {
        Self { net, group, index }
    }

    fn claimed_word<'a>(&self) -> &'a AtomicU64 {
        // SAFETY: the address of a field.
        let first = unsafe { &raw mut (*words(self.net, self.group)).claimed }.cast::<u64>();
        // SAFETY: one of the group's words, which only this device's threads touch, atomically.
        unsafe { AtomicU64::from_ptr(first.wrapping_add(self.index)) }
    }

    /// Begins the list of a group that was just made.
    pub(crate) fn begin(&self) {
        // Ordering: Relaxed; made visible by the state of the group's slot.
        self.claimed_word().store(TakenWord::new(self.group.generation(), 0).0, Ordering::Relaxed);
    }

    /// Closes the list: nobody claims any more.
    pub(crate) fn close(&self) {
        let word = self.claimed_word();
        // Ordering: Relaxed; the exchange decides.
        let mut now = TakenWord(word.load(Ordering::Relaxed));
        // Ordering: AcqRel, as in `advance`.
        while let Err(other) =
            word.compare_exchange(now.0, now.closed().0, Ordering::AcqRel, Ordering::Relaxed)
        {
            now = TakenWord(other);
        }
    }

    /// Entries that are not claimed.
    pub(crate) fn unclaimed(&self) -> u64 {
        let claimed = self.claimed();
        self.pushed().saturating_sub(claimed)
    }

    fn ticket(&self, word: TakenWord) -> u64 {
        word.open(self.group.generation()).unwrap_or(u64::MAX)
    }
}

impl ReadyList for List {
    // Ordering: Relaxed; `advance` decides.
    fn claimed(&self) -> u64 {
        self.ticket(TakenWord(self.claimed_word().load(Ordering::Relaxed)))
    }

    // Ordering: AcqRel among this device's threads: the cell is read before (release), and the
    // socket's next arm, which lets the cell be written again, comes after (acquire).
    fn advance(&self, ticket: u64, count: u64) -> Result<(), u64> {
        let word = |position| TakenWord::new(self.group.generation(), position).0;
        let (from, to) = (word(ticket), word(ticket + count));
        let advanced = self.claimed_word().compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        advanced.map(|_| ()).map_err(|now| self.ticket(TakenWord(now)))
    }

    // Pairs with the proxy's publish of the count: the cells below it are visible.
    fn pushed(&self) -> u64 {
        let at = header(self.net, self.group) + (offset_of!(ListHeader, pushed) + self.index * 8) as u64;
        // SAFETY: as in `changes`.
        unsafe { Word::from_ptr(at as *mut u64) }.observe()
    }

    // Made visible by `pushed`.
    fn cell(&self, ticket: u64) -> u64 {
        let cells = self.cells();
        let at = self.index as u64 * cells + ticket % (if cells == 0 { 1 } else { cells });
        let first = header(self.net, self.group) + size_of::<ListHeader>() as u64;
        // SAFETY: as in `changes`; inside the lists.
        unsafe { Word::from_ptr((first + at * 8) as *mut u64) }.peek()
    }

    fn cells(&self) -> u64 {
        // SAFETY: as in `count`.
        u64::from(unsafe { (&raw const (*words(self.net, self.group)).cells).read_volatile() })
    }
}
