//! A data thread: scan words, drive state machines, move bytes.
//!
//! One turn takes commands, scans the words, polls transports, drives the ready streams, takes network events and
//! expires timers. Each ready stream gets a budget per turn, so that no stream starves another. Files: this one
//! holds the loop, `commands` what the control plane orders, `events` the epoll set, `scan` and `streams` the
//! words, `stream` drives one stream, `sleep` decides when to spin and when to sleep, by `rhythm` if there is one, and
//! `watched` holds the words that thread 0 watches for a thread that sleeps for long.

mod commands;
mod events;
mod rhythm;
mod scan;
mod sleep;
mod stream;
mod streams;
mod watched;

use crate::control_queue::ControlSender;
use crate::model::attachment_state::AttachmentState;
use crate::model::message::{Command, Message};
use crate::pulse::{Load, Pulse, PulseGuard};
use crossbeam_channel::Receiver;
use events::Events;
use gpunet_abi::StreamWord;
use gpunet_core::ids::{AttachmentId, SocketId};
use gpunet_core::memory::WordArray;
use scan::{Extent, ServedAttachment};
use sleep::Idle;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{DrivenStream, Progress};
pub(crate) use watched::WatchedThread;
use watched::WatchedWords;

/// Control slots, of all attachments together, that a turn scans if the turn before it did something. Each takes 3 ns,
/// of which a message that is under way has its share.
const REQUESTS: usize = 512;
/// Transports that one turn polls without a system call.
const POLLS: usize = 64;
/// What a data thread is given.
pub(crate) struct ShardSetup {
    pub(crate) index: usize,
    pub(crate) spin: Duration,
    pub(crate) latency: Duration,
    pub(crate) commands: Receiver<Command>,
    pub(crate) control: ControlSender,
    pub(crate) bell: Arc<OwnedFd>,
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
    /// Streams (attachment, slot, generation) whose transport can be polled without a system call, next one first.
    pollable: VecDeque<(AttachmentId, u32, u32)>,
    deadlines: BTreeSet<(u64, AttachmentId, u32)>,
    idle: Idle,
    /// When the turn began.
    turn_began: Instant,
    /// The last turn did something.
    was_busy: bool,
    /// Busy time of the other data threads when this one last looked.
    others_busy_ns: u64,
    /// When thread 0 looks at the words of threads that sleep for long.
    next_watch: Instant,
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
        busy |= self.scan(Extent::Slice);
        busy |= self.poll_streams();
        busy |= self.drive();
        busy |= self.poll_network(Duration::ZERO);
        busy |= self.drive();
        self.expire();
        self.was_busy = busy || !self.ready.is_empty();
        let now = Instant::now();
        let began = std::mem::replace(&mut self.turn_began, now);
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
            // What devices that are active on other threads ask for is found here.
            self.idle.stay_alert();
        }
        if let Some(limit) = self.idle.sleep_for(now, polled) {
            let watched =
                if polled && self.setup.index > 0 { self.idle.watched_sleep(now, limit) } else { None };
            self.was_busy = self.sleep(watched.unwrap_or(limit), watched.is_some());
            self.turn_began = Instant::now();
            if self.was_busy {
                self.idle.active(self.turn_began);
            }
        } else if self.idle.yields() {
            // Others had the core meanwhile.
            self.turn_began = Instant::now();
        }
    }

    /// The attachments whose words this thread scans: those with a stream here, and on thread 0, which scans for
    /// control requests, all.
    fn served(&self) -> impl Iterator<Item = &ServedAttachment> {
        let scans_requests = self.setup.index == 0;
        self.attachments.values().filter(move |attachment| scans_requests || attachment.streams.len() > 0)
    }

    /// The words that this thread's streams wait for.
    fn words(&self) -> Vec<WatchedWords> {
        let watched = |attachment: &ServedAttachment| {
            let (slots, published, consumed) = attachment.streams.seen();
            WatchedWords { state: attachment.state.clone(), slots, published, consumed }
        };
        self.served().map(watched).collect()
    }

    /// Sleeps until the network, a doorbell, a deadline or `limit`, unless a word has changed. If `watched`, thread 0 watches
    /// the words meanwhile. Returns whether one
    /// has; that counts as activity. Otherwise, with a GPU that makes one request after another, the thread would
    /// find each request at the end of the longest sleep.
    fn sleep(&mut self, limit: Duration, watched: bool) -> bool {
        let now = self.now();
        let until_deadline =
            self.deadlines.first().map(|&(at, ..)| Duration::from_nanos(at.saturating_sub(now)));
        let limit = until_deadline.map_or(limit, |d| d.min(limit));
        let flags: Vec<_> =
            self.served().map(|attachment| attachment.state.memory.sleeping(self.setup.index)).collect();
        // Park by the pattern of `gpunet_abi::park`, with one flag per attachment served and the words of all of them: set
        // the flags, fence, scan again, sleep.
        use gpunet_abi::park::{ParkFlag, SharedFlag};
        flags.iter().for_each(|flag| flag.store(true));
        SharedFlag::fence();
        let found = self.scan(Extent::Whole);
        if !found && self.setup.commands.is_empty() {
            if watched {
                // What changes from now on, and since the scan, thread 0 finds.
                self.setup.watched_threads[self.setup.index].leave(self.words());
            }
            self.poll_network(limit);
            if watched {
                self.setup.watched_threads[self.setup.index].take_back();
            }
        }
        flags.iter().for_each(|flag| flag.store(false));
        found
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

    /// Scans the words that devices write. Queues the streams whose words changed, and hands control requests on.
    fn scan(&mut self, extent: Extent) -> bool {
        let mut busy = false;
        let Self { attachments, ready, setup, .. } = self;
        let sharing = attachments.len();
        let requests = match extent {
            Extent::Whole => usize::MAX,
            // In busy turns, which take longer, a smaller slice would make a request wait for many of them.
            Extent::Slice if self.was_busy => REQUESTS,
            Extent::Slice => 0,
        };
        for (&id, attachment) in attachments.iter_mut() {
            busy |= attachment.scan_streams(extent, sharing, |slot, stream| {
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

    /// Polls the transports of some streams without a system call, in turn. Those that are not reached have events.
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
    fn drive(&mut self) -> bool {
        let count = self.ready.len();
        for _ in 0..count {
            let Some((attachment_id, slot)) = self.ready.pop_front() else { break };
            let now = self.now();
            let Some(attachment) = self.attachments.get_mut(&attachment_id) else { continue };
            let Some(stream) = attachment.streams.get_mut(slot) else { continue };
            stream.queued = false;
            match stream.drive(&attachment.state, slot, now) {
                Progress::Idle => {
                    let at = stream.deadline();
                    if let Some(old) = std::mem::replace(&mut stream.timer, at)
                        && Some(old) != at
                    {
                        self.deadlines.remove(&(old, attachment_id, slot));
                    }
                    if let Some(at) = at {
                        self.deadlines.insert((at, attachment_id, slot));
                    }
                }
                Progress::More => {
                    stream.queued = true;
                    self.ready.push_back((attachment_id, slot));
                }
                Progress::Finished { undelivered } => {
                    let socket = SocketId { slot, generation: stream.generation };
                    let counts = stream.connection.counts();
                    if let Some(at) = stream.timer {
                        self.deadlines.remove(&(at, attachment_id, slot));
                    }
                    attachment.remove(slot);
                    attachment.state.totals.close(undelivered);
                    let message =
                        Message::Finished { attachment: attachment_id, socket, undelivered, counts };
                    let _ = self.setup.control.send(message);
                }
            }
        }
        count > 0
    }

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
mod tests {
    use super::*;
    use crate::control_queue::ControlReceiver;
    use crate::model::attachment_state::{ClientInfo, Inbox, Totals};
    use crate::model::config::Config;
    use crate::model::message::{Ring, Rings};

    fn gpu(config: &Config) -> Arc<AttachmentState> {
        let geometry = config.geometry(0);
        Arc::new(AttachmentState {
            id: AttachmentId(1),
            memory: crate::region::shared_memory(geometry).unwrap(),
            polled: true,
            shareable: false,
            agent: Box::new(|_| {}),
            card: None,
            totals: Totals::default(),
            inbox: Inbox::new(geometry.controls),
            doorbells: Arc::new([]),
            account: None,
            client: ClientInfo::own("cpu"),
            since: Instant::now(),
            _quota: None,
        })
    }

    /// Two data threads that the test runs, and what the first one sends to the control plane.
    fn shards() -> ([Shard; 2], ControlReceiver) {
        let (control, requests) = crate::control_queue::control_queue();
        let bells = [(); 2].map(|()| Arc::new(crate::doorbell::new().unwrap()));
        let watched_threads: Arc<[_]> = bells.iter().cloned().map(WatchedThread::new).collect();
        let loads: Arc<[_]> = (0..2).map(|_| Arc::default()).collect();
        let mut index = 0..;
        let shards = bells.map(|bell| {
            let (_, commands) = crossbeam_channel::unbounded();
            let setup = ShardSetup {
                index: index.next().unwrap(),
                spin: Duration::ZERO,
                latency: Duration::from_millis(5),
                commands,
                control: control.clone(),
                bell,
                pulse: Arc::default(),
                loads: loads.clone(),
                watched_threads: watched_threads.clone(),
            };
            Shard::new(setup).unwrap()
        });
        (shards, requests)
    }

    fn shard(index: usize) -> (Shard, ControlReceiver) {
        let (shards, requests) = shards();
        (shards.into_iter().nth(index).unwrap(), requests)
    }

    /// A transport that takes all and gives nothing.
    struct Sink(crossbeam_channel::Sender<usize>);

    impl gpunet_core::transport::StreamIo for Sink {
        fn offer(&mut self, span: gpunet_abi::RingSpan) -> io::Result<usize> {
            let _ = self.0.send(span.len());
            Ok(span.len())
        }

        fn completed(&mut self) -> u64 {
            0
        }

        fn take(&mut self, _: gpunet_abi::RingSpan) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn discard(&mut self) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn shutdown_write(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn reset(&mut self) {}

        fn set_options(&mut self, _: &gpunet_abi::Options) -> io::Result<()> {
            Ok(())
        }

        fn unacknowledged(&self) -> u64 {
            0
        }

        fn readiness(&self) -> [Option<std::os::fd::BorrowedFd<'_>>; 2] {
            [None; 2]
        }
    }

    #[test]
    fn a_thread_that_sleeps_for_long_is_woken_for_what_its_gpu_says() {
        const SLOT: u32 = 7;
        let ([mut watcher, mut sleeper], _requests) = shards();
        // Only the watcher ends this sleep.
        sleeper.idle.longest_watched = Duration::from_secs(3600);
        let state = gpu(&Config::default());
        watcher.attach(state.clone());
        sleeper.attach(state.clone());
        let (sent, received) = crossbeam_channel::unbounded();
        let [send, recv] = [0, 1 << 16].map(|at| Ring { offset: state.memory.layout().rings + at, log2: 16 });
        let region = gpunet_abi::region::SHARED;
        let rings = Rings { region, send, recv, registered: false, driven: true };
        let span = tracing::Span::none();
        let stream =
            crate::model::message::OpenStream { generation: 1, io: Box::new(Sink(sent)), rings, span };
        sleeper.open(AttachmentId(1), SLOT, stream);
        let asleep = sleeper.setup.watched_threads.clone();
        let bells = [&watcher, &sleeper].map(|shard| shard.setup.bell.clone());
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let threads = [watcher, sleeper].map(|mut shard| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    shard.turn();
                }
            })
        });
        for message in 1..=3 {
            let start = Instant::now();
            while !asleep[1].is_watched() {
                assert!(start.elapsed() < Duration::from_secs(20), "it never sleeps for long");
                std::thread::yield_now();
            }
            state.memory.published_words().get(SLOT as usize).publish(message * 100);
            assert_eq!(received.recv_timeout(Duration::from_secs(20)), Ok(100));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        bells.iter().for_each(|bell| crate::doorbell::ring(bell));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn a_thread_without_streams_serves_no_gpu_unless_it_scans_for_requests() {
        for (index, served) in [(0, 1), (1, 0)] {
            let (mut shard, mut requests) = shard(index);
            let state = gpu(&Config::default());
            shard.attach(state.clone());
            assert_eq!(shard.served().count(), served);
            state.memory.request_words().get(0).publish(1);
            assert_eq!(shard.scan(Extent::Whole), served == 1);
            assert_eq!(requests.try_recv().is_some(), served == 1);
        }
    }

    #[test]
    fn a_thread_learns_that_others_were_busy_and_not_that_it_was_itself() {
        let (mut shard, _requests) = shard(0);
        assert!(!shard.others_were_busy());
        shard.setup.loads[0].add(Duration::from_nanos(7));
        assert!(!shard.others_were_busy());
        shard.setup.loads[1].add(Duration::from_nanos(7));
        assert!(shard.others_were_busy() && !shard.others_were_busy());
    }

    #[test]
    fn a_request_that_is_found_before_a_sleep_keeps_the_thread_awake() {
        let (mut shard, mut requests) = shard(0);
        let state = gpu(&Config::default());
        shard.attach(state.clone());
        shard.turn();
        assert!(!shard.was_busy);
        // A turn scans a few requests, and this is not one of them. Before it sleeps, it scans all.
        let last = state.memory.geometry().controls - 1;
        state.memory.request_words().get(last as usize).publish(1);
        shard.turn();
        assert!(
            matches!(requests.try_recv(), Some(Message::Request { id, .. }) if id.control() == Some(last))
        );
        assert!(shard.was_busy);
    }
}
