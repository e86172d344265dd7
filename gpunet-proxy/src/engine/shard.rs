//! A data thread: scan words, drive state machines, move bytes.
//!
//! One turn takes commands, scans the words, polls transports, drives the ready streams, takes
//! network events and expires timers. Each ready stream gets a budget per turn, so that no stream
//! starves another.
//!
//! | file | holds |
//! |---|---|
//! | `shard` | the loop |
//! | `commands` | what the control plane orders |
//! | `scan` | the words of one attachment: which to scan, and control requests |
//! | `streams` | the streams of one attachment, as a dense list |
//! | `drive`, `stream` | driving the ready streams, and waking their pollers; one stream |
//! | `events` | the epoll set |
//! | `sleep`, `rhythm` | when to spin and when to sleep; by the rhythm of messages, if there is one |
//! | `watched` | the words that thread 0 watches for a thread that sleeps for long |

mod commands;
mod drive;
mod events;
mod rhythm;
mod scan;
mod sleep;
mod stream;
mod streams;
mod watched;

use crate::engine::control_queue::ControlSender;
use crate::engine::pulse::{Load, Pulse, PulseGuard};
use crate::model::attachment_state::AttachmentState;
use crate::model::message::Command;
use crate::os::doorbell::Bell;
use crossbeam_channel::Receiver;
use events::Events;
use gpunet_abi::StreamWord;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_core::ids::AttachmentId;
use gpunet_core::memory::WordArray;
use scan::{Extent, ServedAttachment};
use sleep::Idle;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::DrivenStream;
pub(crate) use watched::WatchedThread;
use watched::WatchedWords;

/// Control slots, of all attachments together, that a turn scans if the turn before it did
/// something. Each takes 3 ns, which delays messages that are in flight.
const REQUESTS: usize = 512;
/// Transports that one turn polls without a system call.
const POLLS: usize = 64;
/// How long a stream that has ended is left for the control thread to find, unless this thread
/// sleeps before: where connections come and go, the next one wakes it within that time, and of
/// many that end together only the first would.
const LEFT_ALONE: Duration = Duration::from_micros(200);
/// The setup of a data thread.
pub(crate) struct ShardSetup {
    pub(crate) index: usize,
    pub(crate) spin: Duration,
    pub(crate) latency: Duration,
    pub(crate) commands: Receiver<Command>,
    pub(crate) control: ControlSender,
    pub(crate) bell: Arc<Bell>,
    pub(crate) pulse: Arc<Pulse>,
    /// Of all data threads.
    pub(crate) loads: Arc<[Arc<Load>]>,
    /// All data threads.
    pub(crate) watched_threads: Arc<[WatchedThread]>,
}

/// The state of a data thread.
pub(crate) struct Shard {
    setup: ShardSetup,
    events: Events,
    started: Instant,
    attachments: BTreeMap<AttachmentId, ServedAttachment>,
    ready: VecDeque<(AttachmentId, u32)>,
    /// Streams (attachment, slot, generation) whose transport can be polled without a system call,
    /// next one first.
    pollable: VecDeque<(AttachmentId, u32, u32)>,
    deadlines: BTreeSet<(u64, AttachmentId, u32)>,
    idle: Idle,
    /// When the turn began.
    turn_began: Instant,
    /// The last turn did something.
    was_busy: bool,
    /// Busy time of the other data threads when this one last looked.
    others_busy_ns: u64,
    /// When thread 0 next polls the words of threads in a long sleep.
    next_watch: Instant,
    /// The last scan found streams that their device has closed.
    found_close: bool,
    /// Since when messages lie in the control thread's queue for which it was not woken.
    unannounced: Option<Instant>,
    stop: bool,
}

impl Shard {
    pub(crate) fn new(setup: ShardSetup) -> io::Result<Self> {
        let events = Events::new(&setup.bell)?;
        let idle = Idle::new(setup.spin, setup.latency);
        Ok(Self {
            setup,
            events,
            started: Instant::now(),
            attachments: BTreeMap::new(),
            ready: VecDeque::new(),
            pollable: VecDeque::new(),
            deadlines: BTreeSet::new(),
            idle,
            turn_began: Instant::now(),
            was_busy: false,
            others_busy_ns: 0,
            next_watch: Instant::now(),
            found_close: false,
            unannounced: None,
            stop: false,
        })
    }

    /// Runs until told to stop. What is returned still has its connections open.
    pub(crate) fn run(mut self) -> Self {
        let _guard = PulseGuard(self.setup.pulse.clone());
        sleep::sharpen_timers();
        while !self.stop {
            self.turn();
        }
        // No thread takes further commands: dropping them wakes those who wait for an answer.
        self.setup.commands = crossbeam_channel::never();
        self
    }

    /// Returns whether another data thread did something since the last call.
    fn others_were_busy(&mut self) -> bool {
        let own = self.setup.index;
        let others = self.setup.loads.iter().enumerate().filter(|&(index, _)| index != own);
        let busy = others.map(|(_, load)| load.busy_ns()).sum();
        std::mem::replace(&mut self.others_busy_ns, busy) != busy
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn turn(&mut self) {
        self.setup.pulse.beat();
        let mut busy = self.take_commands();
        busy |= self.look();
        busy |= self.poll_streams();
        busy |= self.drive();
        busy |= self.poll_network(Duration::ZERO);
        busy |= self.drive();
        self.expire();
        self.was_busy = busy || !self.ready.is_empty();
        let now = Instant::now();
        let began = std::mem::replace(&mut self.turn_began, now);
        if self.unannounced.is_some_and(|since| now.saturating_duration_since(since) >= LEFT_ALONE) {
            self.announce();
        }
        if self.setup.index == 0 && now >= self.next_watch {
            // Each sleep is one of `latency` at most.
            self.next_watch = now + self.setup.latency / 2;
            self.setup.watched_threads[1..].iter().for_each(WatchedThread::check);
        }
        if self.was_busy {
            self.setup.loads[self.setup.index].add(now - began);
            self.idle.active(now);
            return;
        }
        let polled = self.served().any(|attachment| attachment.state.polled);
        if polled && self.setup.index == 0 && self.others_were_busy() {
            // This thread finds the requests of devices that are active on other threads.
            self.idle.stay_alert(now);
        }
        if let Some(limit) = self.idle.sleep_for(now, polled) {
            self.announce();
            let watched =
                if polled && self.setup.index > 0 { self.idle.watched_sleep(now, limit) } else { None };
            self.was_busy = self.sleep(watched.unwrap_or(limit), watched.is_some());
            self.turn_began = Instant::now();
            if self.was_busy {
                self.idle.active(self.turn_began);
            }
        } else if self.idle.yields() {
            // Other threads may have had the core in the meantime.
            self.turn_began = Instant::now();
        }
    }

    /// The attachments whose words this thread scans: those with a stream here, and on thread 0,
    /// which scans for control requests, all.
    fn served(&self) -> impl Iterator<Item = &ServedAttachment> {
        let scans_requests = self.setup.index == 0;
        self.attachments.values().filter(move |attachment| scans_requests || attachment.streams.len() > 0)
    }

    /// The words that this thread's streams wait for.
    fn words(&self) -> Vec<WatchedWords> {
        let watched = |attachment: &ServedAttachment| {
            let (slots, seen) = attachment.streams.seen();
            WatchedWords { state: attachment.state.clone(), slots, seen }
        };
        self.served().map(watched).collect()
    }

    /// Returns whether CUDA streams have operations under way on sockets of this thread: their
    /// stores ring no doorbell.
    fn has_stream_operations(&self) -> bool {
        self.served().any(|attachment| attachment.state.memory.stream_operations(self.setup.index).peek() > 0)
    }

    /// Sleeps until the network, a doorbell, a deadline or `limit`, unless a word has changed. If
    /// `watched`, thread 0 watches the words meanwhile. Returns whether one has; that counts as
    /// activity. Otherwise, with a GPU that makes one request after another, the thread would find
    /// each request at the end of the longest sleep.
    fn sleep(&mut self, limit: Duration, watched: bool) -> bool {
        let now = self.now();
        let until_deadline =
            self.deadlines.first().map(|&(at, ..)| Duration::from_nanos(at.saturating_sub(now)));
        let limit = until_deadline.map_or(limit, |d| d.min(limit));
        let flags: Vec<_> =
            self.served().map(|attachment| attachment.state.memory.sleeping(self.setup.index)).collect();
        // Park by the pattern of `gpunet_abi::park`, with one flag per attachment served and the
        // words of all of them, and the thread's own flag for its commands: set the flags, fence,
        // look at both again, sleep.
        use gpunet_abi::park::{ParkFlag, SharedFlag};
        self.setup.bell.store(true);
        flags.iter().for_each(|flag| flag.store(true));
        SharedFlag::fence();
        hand_off::at(HandOff::Parking);
        let (limit, watched) = match self.has_stream_operations() {
            true => (limit.min(sleep::FIRST_SLEEP), false),
            false => (limit, watched),
        };
        let found = self.scan(Extent::Whole);
        if !found && self.setup.commands.is_empty() {
            if watched {
                // Thread 0 finds changes since the scan, and from now on.
                self.setup.watched_threads[self.setup.index].leave(self.words());
                hand_off::at(HandOff::WordsLeft);
            }
            self.poll_network(limit);
            if watched {
                self.setup.watched_threads[self.setup.index].take_back();
            }
        }
        flags.iter().for_each(|flag| flag.store(false));
        self.setup.bell.store(false);
        found
    }

    /// Wakes the control thread for what was left for it.
    fn announce(&mut self) {
        if self.unannounced.take().is_some() {
            self.setup.control.wake();
        }
    }

    fn stream(
        &mut self,
        attachment: AttachmentId,
        slot: u32,
    ) -> Option<(&AttachmentState, &mut DrivenStream)> {
        let attachment = self.attachments.get_mut(&attachment)?;
        let stream = attachment.streams.get_mut(slot)?;
        Some((&attachment.state, stream))
    }

    fn enqueue(&mut self, attachment: AttachmentId, slot: u32) {
        if let Some((_, stream)) = self.stream(attachment, slot)
            && !std::mem::replace(&mut stream.queued, true)
        {
            self.ready.push_back((attachment, slot));
        }
    }

    /// Scans some of the words that devices write.
    fn look(&mut self) -> bool {
        let busy = self.scan(Extent::Slice);
        if std::mem::take(&mut self.found_close) {
            // Options that a device has set before it closed have come meanwhile.
            self.take_commands();
        }
        busy
    }

    /// Scans the words that devices write. Queues the streams whose words changed, and hands
    /// control requests on.
    fn scan(&mut self, extent: Extent) -> bool {
        let mut busy = false;
        let Self { attachments, ready, setup, found_close, .. } = self;
        let sharing = attachments.len();
        let requests = match extent {
            Extent::Whole => usize::MAX,
            // In busy turns, which take longer, a smaller slice would make a request wait for many
            // of them.
            Extent::Slice if self.was_busy => REQUESTS,
            Extent::Slice => 0,
        };
        for (&id, attachment) in attachments.iter_mut() {
            busy |= attachment.scan_streams(extent, sharing, |state, slot, stream| {
                *found_close |= stream.look_for_close(state, slot);
                if !std::mem::replace(&mut stream.queued, true) {
                    ready.push_back((id, slot));
                }
            });
            if setup.index == 0 {
                busy |= attachment.scan_requests(requests / sharing, &setup.control);
            }
        }
        busy
    }

    /// Polls the transports of some streams without a system call, in turn. Those that are not
    /// reached have events.
    fn poll_streams(&mut self) -> bool {
        let mut busy = false;
        for _ in 0..self.pollable.len().min(POLLS) {
            let Some((attachment, slot, generation)) = self.pollable.pop_front() else { break };
            let stream = self.stream(attachment, slot).map(|(_, stream)| stream);
            // Closed streams drop out here.
            let Some(stream) = stream.filter(|stream| stream.generation == generation) else { continue };
            let found = !stream.queued && stream.poll_transport();
            self.pollable.push_back((attachment, slot, generation));
            if found {
                busy = true;
                self.enqueue(attachment, slot);
            }
        }
        busy
    }

    /// Drives each stream that was ready when the call began, once.
    fn expire(&mut self) {
        let Some(&(first, ..)) = self.deadlines.first() else { return };
        let now = self.now();
        if first > now {
            return;
        }
        while let Some(&(at, attachment, slot)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            if let Some((_, stream)) = self.stream(attachment, slot) {
                stream.timer = None;
            }
            self.enqueue(attachment, slot);
        }
    }
}

/// Reads a stream word.
fn observe(words: WordArray, slot: u32) -> StreamWord {
    StreamWord(words.get(slot as usize).observe())
}

#[cfg(test)]
mod tests;
