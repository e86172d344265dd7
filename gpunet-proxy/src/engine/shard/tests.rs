//! A data thread whose turns the test takes, with a GPU that the test plays.

mod fairness;

use super::*;
use crate::engine::control_queue::ControlReceiver;
use crate::model::attachment_state::{ClientInfo, Inbox, Totals};
use crate::model::config::Config;
use crate::model::message::{Message, Ring, Rings};
use gpunet_core::ids::SocketId;
use gpunet_core::transport::{Ready, StreamIo, Turn};

fn gpu(config: &Config) -> Arc<AttachmentState> {
    device(config, true)
}

/// A device, whose stores raise no event if it is `polled`.
fn device(config: &Config, polled: bool) -> Arc<AttachmentState> {
    let geometry = config.geometry(0);
    Arc::new(AttachmentState {
        id: AttachmentId(1),
        memory: crate::engine::region::shared_memory(geometry).unwrap(),
        polled,
        shareable: false,
        agent: Box::new(|_| {}),
        card: None,
        totals: Totals::default(),
        inbox: Inbox::new(geometry.controls),
        doorbells: crate::os::doorbell::one_for_each(2).unwrap(),
        account: None,
        client: ClientInfo::own("cpu"),
        since: Instant::now(),
        _quota: None,
    })
}

/// Two data threads that the test runs, and what the first one sends to the control plane.
fn shards() -> ([Shard; 2], ControlReceiver) {
    let (control, requests) = crate::engine::control_queue::control_queue();
    let bells = [(); 2].map(|()| Arc::new(Bell::new().unwrap()));
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

/// A transport that a test makes.
struct TestIo {
    /// Takes some of the bytes that are offered, or gives up to as many as are asked for.
    offer: Box<dyn FnMut(usize) -> io::Result<usize> + Send>,
    take: Box<dyn FnMut(usize) -> io::Result<usize> + Send>,
    /// What a turn brings.
    ready: Ready,
    /// Why it has failed. As TCP, it forgets that when it has told.
    failure: Option<io::Error>,
    fd: Option<std::os::fd::OwnedFd>,
    completed: u64,
    /// Hears of each end of what is sent: `true` is a reset.
    ends: Option<crossbeam_channel::Sender<bool>>,
}

impl TestIo {
    /// Takes all, tells how much, and gives nothing.
    fn sink(sent: crossbeam_channel::Sender<usize>) -> Self {
        let offer = move |len| {
            let _ = sent.send(len);
            Ok(len)
        };
        let nothing = |_| Err(io::ErrorKind::WouldBlock.into());
        let ready = Ready::default();
        let (offer, take) = (Box::new(offer), Box::new(nothing));
        Self { offer, take, ready, failure: None, fd: None, completed: 0, ends: None }
    }

    fn end(&self, is_reset: bool) {
        if let Some(ends) = &self.ends {
            let _ = ends.send(is_reset);
        }
    }
}

impl StreamIo for TestIo {
    fn turn(&mut self, _: &Turn) -> Ready {
        self.ready
    }

    fn offer(&mut self, span: gpunet_abi::RingSpan) -> io::Result<usize> {
        let taken = (self.offer)(span.len())?;
        self.completed += taken as u64;
        Ok(taken)
    }

    fn completed(&mut self) -> u64 {
        std::mem::take(&mut self.completed)
    }

    fn take(&mut self, span: gpunet_abi::RingSpan) -> io::Result<usize> {
        (self.take)(span.len())
    }

    fn discard(&mut self) -> io::Result<usize> {
        (self.take)(16 << 10)
    }

    fn failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.end(false);
        Ok(())
    }

    fn reset(&mut self) {
        self.end(true);
    }

    fn set_options(&mut self, _: &gpunet_abi::Options) -> io::Result<()> {
        Ok(())
    }

    fn unacknowledged(&self) -> u64 {
        0
    }

    fn readiness(&self) -> [Option<std::os::fd::BorrowedFd<'_>>; 2] {
        [self.fd.as_ref().map(std::os::fd::AsFd::as_fd), None]
    }
}

/// How long the streams of tests linger.
const LINGER_NS: u64 = 5_000_000_000;

/// Gives the thread a stream with rings of `1 << log2` bytes. All streams have the same memory: no
/// test's transport touches it.
fn open(shard: &mut Shard, state: &AttachmentState, slot: u32, log2: u8, io: TestIo) {
    let ring = Ring { offset: state.memory.layout().rings, log2 };
    let region = gpunet_abi::region::SHARED;
    let rings = Rings { region, send: ring, recv: ring, registered: false, driven: true };
    let span = tracing::Span::none();
    let (io, linger_ns) = (Box::new(io), LINGER_NS);
    let stream = crate::model::message::OpenStream { generation: 1, io, rings, send_low: 1, linger_ns, span };
    shard.open(state.id, slot, stream);
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
    open(&mut sleeper, &state, SLOT, 16, TestIo::sink(sent));
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
    bells.iter().for_each(|bell| bell.ring());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Otherwise each turn below would take a second; where tests make threads pause, an hour.
#[test]
fn a_thread_does_not_sleep_for_long_while_streams_have_operations_under_way() {
    const TURNS: u32 = 100;
    for index in [0, 1] {
        let (mut shard, _requests) = shard(index);
        let state = device(&Config::default(), false);
        shard.attach(state.clone());
        let (sent, received) = crossbeam_channel::unbounded();
        open(&mut shard, &state, 7, 16, TestIo::sink(sent));
        assert!(!shard.has_stream_operations());
        state.memory.stream_operations(index).publish(1);
        assert!(shard.has_stream_operations());
        let start = Instant::now();
        for turn in 1..=TURNS {
            shard.turn();
            state.memory.published_words().get(7).publish(u64::from(turn) * 100);
            while received.try_recv().is_err() {
                shard.turn();
            }
        }
        assert!(start.elapsed() < Duration::from_secs(u64::from(TURNS) / 4), "{:?}", start.elapsed());
        // Those of another thread's sockets do not keep this one awake.
        state.memory.stream_operations(index).publish(0);
        state.memory.stream_operations(1 - index).publish(1);
        assert!(!shard.has_stream_operations());
    }
}

/// Each round begins with a thread that has just fallen asleep, for a second; where tests make
/// threads pause, for an hour.
#[test]
fn a_thread_that_sleeps_for_long_is_woken_when_an_operation_of_a_stream_begins() {
    const ROUNDS: u64 = 20;
    let (mut shard, _requests) = shard(0);
    let state = device(&Config::default(), false);
    shard.attach(state.clone());
    let (sent, received) = crossbeam_channel::unbounded();
    open(&mut shard, &state, 7, 16, TestIo::sink(sent));
    let bell = shard.setup.bell.clone();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            shard.turn();
        }
    });
    let begin = Instant::now();
    for round in 1..=ROUNDS {
        use gpunet_abi::park::ParkFlag;
        let start = Instant::now();
        while !state.memory.sleeping(0).load() {
            assert!(start.elapsed() < Duration::from_secs(20), "it never sleeps");
            std::thread::yield_now();
        }
        // In every other round the operation begins while the thread still decides.
        std::thread::sleep(Duration::from_millis(20 * (round % 2)));
        let tell = |count| crate::socket::tell_operations(&state.memory, &state.doorbells, 0, count);
        tell(1);
        state.memory.published_words().get(7).publish(round * 100);
        assert_eq!(received.recv_timeout(Duration::from_secs(20)), Ok(100));
        tell(0);
    }
    assert!(begin.elapsed() < Duration::from_secs(ROUNDS / 4), "it slept: {:?}", begin.elapsed());
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    bell.ring();
    thread.join().unwrap();
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
    assert!(matches!(requests.try_recv(), Some(Message::Request { id, .. }) if id.control() == Some(last)));
    assert!(shard.was_busy);
}

#[test]
fn a_thread_that_has_stopped_keeps_nobody_waiting() {
    let (mut shard, _requests) = shard(0);
    let (commands, receiver) = crossbeam_channel::unbounded();
    shard.setup.commands = receiver;
    assert!(commands.send(Command::Stop).is_ok());
    let stopped = shard.run();
    let (done, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let _ = commands.send(Command::Detach { attachment: AttachmentId(1), done });
    assert_eq!(ended.try_recv(), Err(tokio::sync::mpsc::error::TryRecvError::Disconnected));
    drop(stopped);
}

/// A data thread that comes late finds bytes and what ended the stream in one turn. There is no
/// later event.
#[test]
fn an_end_that_came_with_the_last_bytes_is_found() {
    for failed in [false, true] {
        let (mut shard, _requests) = shard(0);
        let state = gpu(&Config::default());
        shard.attach(state.clone());
        let mut given = [Ok(100)].into_iter();
        let take = move |_| {
            given.next().unwrap_or_else(|| match failed {
                true => Err(io::ErrorKind::ConnectionReset.into()),
                false => Ok(0),
            })
        };
        let (sent, _received) = crossbeam_channel::unbounded();
        let ready = Ready { readable: true, ended: true, failed, ..Ready::default() };
        open(&mut shard, &state, 7, 16, TestIo { take: Box::new(take), ready, ..TestIo::sink(sent) });
        shard.turn();
        let landed = StreamWord(state.memory.landed(7).observe());
        assert_eq!((landed.position(), landed.end()), (100, !failed));
        assert_eq!(gpunet_abi::Status(state.memory.status(7).observe()).error().is_some(), failed);
    }
}

/// A peer that ended its stream and then reset the connection, while the ring is full of what came
/// before: senders hear at once that nothing can be sent, and the receiver gets its end.
#[test]
fn a_failure_behind_an_end_that_is_not_read_yet_leaves_it_an_end() {
    const RING: u64 = 4096;
    let (mut shard, _requests) = shard(0);
    let state = gpu(&Config::default());
    shard.attach(state.clone());
    let mut given = [Ok(RING as usize)].into_iter();
    let take = Box::new(move |_| given.next().unwrap_or(Ok(0)));
    let ready = Ready { readable: true, ended: true, failed: true, ..Ready::default() };
    let failure = Some(io::ErrorKind::ConnectionReset.into());
    let (sent, _received) = crossbeam_channel::unbounded();
    open(&mut shard, &state, 7, 12, TestIo { take, ready, failure, ..TestIo::sink(sent) });
    let look = || {
        let landed = StreamWord(state.memory.landed(7).observe());
        let status = gpunet_abi::Status(state.memory.status(7).observe());
        ((landed.position(), landed.end()), status.has(gpunet_abi::Status::NO_SEND), status.error())
    };
    shard.turn();
    assert_eq!(look(), ((RING, false), true, None));
    // A CUDA stream that waited for room goes on without it.
    state.memory.published_words().get(7).publish(1 << 20);
    shard.turn();
    assert_eq!(look(), ((RING, false), true, None));
    state.memory.consumed_words().get(7).publish(RING);
    while !look().0.1 && look().2.is_none() {
        shard.turn();
    }
    assert_eq!(look().0, (RING, true), "{:?}", look().2);
    assert_eq!(look().2, Some(gpunet_abi::Error::ConnectionReset), "behind the end");
}

/// A stream of generation 1 in slot 7 whose peer has ended, and what becomes of it: the bytes that
/// are sent, and its ends.
fn ending(
    shard: &mut Shard,
    state: &Arc<AttachmentState>,
) -> (crossbeam_channel::Receiver<usize>, crossbeam_channel::Receiver<bool>) {
    shard.attach(state.clone());
    let ((sent, received), (ends, ended)) = (crossbeam_channel::unbounded(), crossbeam_channel::unbounded());
    let take = Box::new(|_| Ok(0));
    open(shard, state, 7, 16, TestIo { take, ends: Some(ends), ..TestIo::sink(sent) });
    shard.turn();
    (received, ended)
}

fn is_finished(message: Option<Message>) -> bool {
    matches!(message, Some(Message::Finished { socket: SocketId { slot: 7, generation: 1 }, .. }))
}

#[test]
fn a_stream_that_its_device_has_closed_sends_all_and_ends() {
    for extent in [Extent::Slice, Extent::Whole] {
        let (mut shard, mut requests) = shard(0);
        let state = gpu(&Config::default());
        let (received, ended) = ending(&mut shard, &state);
        // Of the sockets that had the slot before, or will have it.
        for generation in [2, u64::MAX, 0] {
            state.memory.closed_words().get(7).publish(generation);
            shard.turn();
            assert!(requests.try_recv().is_none() && ended.is_empty(), "{generation}");
        }
        state.memory.published_words().get(7).publish(100);
        state.memory.closed_words().get(7).publish(1);
        assert!(shard.scan(extent));
        shard.turn();
        assert_eq!((received.try_recv(), ended.try_recv()), (Ok(100), Ok(false)));
        assert!(is_finished(requests.try_recv()) && ended.is_empty());
    }
}

/// Its options came by the thread's queue, its close by a word.
#[test]
fn a_stream_ends_by_the_options_that_were_set_before_it_was_closed() {
    let (mut shard, mut requests) = shard(0);
    let (commands, receiver) = crossbeam_channel::unbounded();
    shard.setup.commands = receiver;
    let state = gpu(&Config::default());
    let (_received, ended) = ending(&mut shard, &state);
    shard.take_commands();
    let (attachment, slot, options) = (state.id, 7, gpunet_abi::Options::DEFAULT);
    assert!(commands.send(Command::SetOptions { attachment, slot, options, linger_ns: 0 }).is_ok());
    state.memory.closed_words().get(7).publish(1);
    shard.look();
    shard.drive();
    assert_eq!(ended.try_recv(), Ok(true));
    assert!(is_finished(requests.try_recv()));
}

/// The thread has not found the close yet when the control plane ends the stream: its launch was
/// finished, or its process is gone.
#[test]
fn a_stream_that_was_closed_ends_as_its_device_said_whoever_ends_it_then() {
    let (attachment, slot) = (AttachmentId(1), 7);
    let commands = [
        Command::Close { attachment, slot, linger_ns: 0 },
        Command::Gone { attachment, slot, bound_ns: LINGER_NS },
    ];
    for command in commands {
        let (mut shard, mut requests) = shard(0);
        let (sender, receiver) = crossbeam_channel::unbounded();
        shard.setup.commands = receiver;
        let state = gpu(&Config::default());
        let (received, ended) = ending(&mut shard, &state);
        state.memory.published_words().get(7).publish(100);
        state.memory.closed_words().get(7).publish(1);
        assert!(sender.send(command).is_ok());
        shard.take_commands();
        shard.drive();
        assert_eq!((received.try_recv(), ended.try_recv()), (Ok(100), Ok(false)));
        assert!(is_finished(requests.try_recv()));
    }
}

/// Whether it finds the end of a stream at once, or has no other message for an hour.
#[test]
fn the_control_thread_hears_of_a_stream_that_has_ended() {
    let (mut shard, mut requests) = shard(0);
    let state = device(&Config::default(), false);
    let (_received, _ended) = ending(&mut shard, &state);
    let (told, finished) = crossbeam_channel::unbounded();
    let control = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _ = told.send(is_finished(Some(runtime.block_on(requests.recv()))));
    });
    let (bell, stop) = (shard.setup.bell.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            shard.turn();
        }
    });
    // As a CPU block does.
    use gpunet_abi::park::ParkFlag;
    while !state.memory.sleeping(0).load() {
        std::thread::yield_now();
    }
    state.memory.closed_words().get(7).publish(1);
    bell.ring();
    assert_eq!(finished.recv_timeout(Duration::from_secs(20)), Ok(true));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    bell.ring();
    thread.join().unwrap();
    control.join().unwrap();
}
