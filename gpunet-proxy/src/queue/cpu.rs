//! A queue's thread on the CPU device. It copies by raw addresses, as kernels there do.

use super::team::TeamCall;
use super::{Failure, Operation, QueueError, QueueOutcome};
use crate::socket::{Appended, HostLaunch, HostSockets};
use gpu_usermap::threads;
use gpunet_abi::{Direction, Error, Gate, Prepared, Result, Trigger, Word};
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_device::cpu::watch::Sleeper;
use gpunet_device::group::Solo;
use gpunet_device::trigger::{GateExt, PreparedExt, TriggerExt};
use gpunet_device::{Buffer, Net, Timeout};
use std::cell::{Cell, OnceCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SOLO: Solo = Solo::new(0, 1);

/// The program's end of a queue of the CPU device.
#[derive(Debug)]
pub(super) struct CpuQueue {
    operations: crossbeam_channel::Sender<Operation>,
    progress: Arc<Mutex<Progress>>,
    host: Arc<HostLaunch>,
    enqueued: u64,
    /// By direction.
    started: [u64; 2],
}

#[derive(Debug, Default)]
struct Progress {
    done: u64,
    failure: Option<Failure>,
}

impl CpuQueue {
    pub(super) fn new(sockets: &HostSockets) -> std::result::Result<Self, QueueError> {
        let host = sockets.launch()?.clone();
        let (operations, inbox) = crossbeam_channel::unbounded();
        let progress = Arc::<Mutex<Progress>>::default();
        let player = Player { host: host.clone(), progress: progress.clone(), lanes: Default::default() };
        let run = move || {
            for operation in inbox {
                player.play(operation);
            }
            // What it used was mapped until now.
            drop(player);
        };
        threads::spawn("gpunet-queue", run).map_err(QueueError::Thread)?;
        Ok(Self { operations, progress, host, enqueued: 0, started: [0; 2] })
    }

    pub(super) fn enqueue(&mut self, operation: Operation) {
        if let Operation::Start(message, _) = &operation {
            self.started[message.hold().direction() as usize] += 1;
        }
        self.enqueued += 1;
        // The thread takes operations for as long as this end exists.
        let _ = self.operations.send(operation);
    }

    /// Returns whether all that was enqueued is done.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.progress).done == self.enqueued
    }

    /// The attachment's sockets of the program.
    pub(super) const fn host(&self) -> &Arc<HostLaunch> {
        &self.host
    }

    /// What the thread acts for the host program with.
    pub(super) fn net(&self) -> Net {
        self.host.net()
    }

    /// How many messages of a direction were started.
    pub(super) const fn started(&self, direction: Direction) -> u64 {
        self.started[direction as usize]
    }

    pub(super) fn outcome(&self) -> QueueOutcome {
        outcome(&lock(&self.progress))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is done under the locks panics.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn outcome(progress: &Progress) -> QueueOutcome {
    QueueOutcome { done: progress.done, failure: progress.failure }
}

impl Progress {
    fn fail(&mut self, operation: u64, error: Error, bytes: u64) {
        if self.failure.is_none() {
            self.failure = Some(Failure { operation, error, bytes });
        }
    }
}

/// A thread for the messages of one direction that were started.
#[derive(Debug)]
struct Lane {
    started: crossbeam_channel::Sender<StartedMessage>,
    done: Arc<(Mutex<u64>, Condvar)>,
    /// Messages that were given to it.
    count: Cell<u64>,
}

/// A message that was started, and the number of the operation that did so.
struct StartedMessage {
    operation: u64,
    message: Appended,
    buffer: Buffer,
}

impl Lane {
    fn new(host: Arc<HostLaunch>, progress: Arc<Mutex<Progress>>) -> io::Result<Self> {
        let (started, inbox) = crossbeam_channel::unbounded::<StartedMessage>();
        let done = Arc::<(Mutex<u64>, Condvar)>::default();
        let told = done.clone();
        let run = move || {
            for StartedMessage { operation, message, buffer } in inbox {
                let mut bytes = 0;
                let played = match message.hold().direction() {
                    Direction::Send => send(host.net(), &message, buffer, &mut bytes),
                    Direction::Recv => recv(host.net(), &message, buffer, &mut bytes),
                };
                if let Err(error) = played {
                    lock(&progress).fail(operation, error, bytes);
                }
                drop(message);
                *lock(&told.0) += 1;
                told.1.notify_all();
            }
        };
        threads::spawn("gpunet-lane", run)?;
        Ok(Self { started, done, count: Cell::new(0) })
    }

    fn start(&self, message: StartedMessage) {
        self.count.set(self.count.get() + 1);
        // The thread takes messages for as long as this end exists.
        let _ = self.started.send(message);
    }

    /// Blocks until the first `count` messages are done.
    fn wait(&self, count: u64) {
        let mut done = lock(&self.done.0);
        while *done < count {
            done = self.done.1.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The thread of a queue.
struct Player {
    host: Arc<HostLaunch>,
    progress: Arc<Mutex<Progress>>,
    /// By direction, from the first message on that is started.
    lanes: [OnceCell<Lane>; 2],
}

impl Player {
    /// Waits for what was started in a direction: what follows there comes behind it.
    fn settle(&self, direction: Direction) {
        if let Some(lane) = self.lanes[direction as usize].get() {
            lane.wait(lane.count.get());
        }
    }

    /// Gives a message to the thread of its direction.
    fn start(&self, message: StartedMessage) -> Result<()> {
        let cell = &self.lanes[message.message.hold().direction() as usize];
        if cell.get().is_none() {
            let lane = Lane::new(self.host.clone(), self.progress.clone()).map_err(|_| Error::NoBuffers)?;
            let _ = cell.set(lane);
        }
        cell.get().map(|lane| lane.start(message)).ok_or(Error::NoBuffers)
    }

    /// Carries out one operation.
    fn play(&self, operation: Operation) {
        let net = self.host.net();
        let mut bytes = 0;
        let result = match operation {
            Operation::Post(trigger, hold) => {
                self.settle(hold.direction());
                post(net, trigger)
            }
            Operation::Wait(gate, _hold) => gate.wait(&SOLO, net, Timeout::NEVER),
            Operation::Send(message, from) => {
                self.settle(Direction::Send);
                send(net, &message, from, &mut bytes)
            }
            Operation::Recv(message, to) => {
                self.settle(Direction::Recv);
                recv(net, &message, to, &mut bytes)
            }
            Operation::Start(message, buffer) => {
                let operation = lock(&self.progress).done;
                self.start(StartedMessage { operation, message, buffer })
            }
            Operation::Finish(started) => {
                if let Some(lane) = self.lanes[started.direction as usize].get() {
                    // One that could not be started counts nowhere.
                    lane.wait(started.nth.min(lane.count.get()));
                }
                Ok(())
            }
            Operation::Write { word, value } => {
                word.publish(value);
                Ok(())
            }
            Operation::WaitWord { word, value } => wait_word(net, word, value),
            Operation::Check(word) => {
                let failure = lock(&self.progress).failure;
                word.publish(failure.map_or(0, |failure| failure.error.errno().unsigned_abs().into()));
                Ok(())
            }
            Operation::Team(TeamCall { operation, hold, .. }) => {
                let result = operation.perform(&SOLO);
                // Released first: a caller that learns that the operation is done may take the team
                // at once.
                drop(hold);
                result
            }
            Operation::Notify(done) => {
                let told = {
                    let mut progress = lock(&self.progress);
                    progress.done += 1;
                    outcome(&progress)
                };
                if catch_unwind(AssertUnwindSafe(|| done(told))).is_err() {
                    tracing::error!("a function that a queue called panicked");
                }
                return;
            }
        };
        let mut progress = lock(&self.progress);
        let operation = progress.done;
        progress.done += 1;
        if let Err(error) = result {
            progress.fail(operation, error, bytes);
        }
    }
}

/// Releases a trigger. Bytes that the stream's end has cut off are not given back: the wait for
/// them has failed and the queue continues, but the proxy would find a reader ahead of the sender
/// and end the other direction, too.
fn post(net: Net, trigger: Trigger) -> Result<()> {
    let Trigger { socket, direction, position } = trigger;
    if direction == Direction::Recv as u32 {
        Gate { socket, direction, position }.test(&SOLO, net)?;
    }
    trigger.release(&SOLO, net)
}

/// The pieces of a message: of half a ring at most, so that the peer takes one while the other is
/// copied.
fn pieces(&Appended { message, capacity, .. }: &Appended) -> impl Iterator<Item = (u64, Prepared)> + use<> {
    let most = (capacity / 2).max(1);
    (0..message.len).step_by(most as usize).map(move |at| {
        let len = most.min(message.len - at);
        (at, Prepared { position: message.position + at, len, ..message })
    })
}

fn send(net: Net, message: &Appended, from: Buffer, bytes: &mut u64) -> Result<()> {
    for (at, piece) in pieces(message) {
        piece.room(message.capacity).wait(&SOLO, net, Timeout::NEVER)?;
        let span = piece.span(&SOLO, net)?;
        // SAFETY: the ring has room for the piece, which is this operation's alone; the buffer
        // holds it, by its contract.
        unsafe { copy_into_ring(&SOLO, span, from.as_ptr().wrapping_add(at as usize)) };
        piece.trigger().release(&SOLO, net)?;
        *bytes = at + piece.len;
    }
    Ok(())
}

fn recv(net: Net, message: &Appended, to: Buffer, bytes: &mut u64) -> Result<()> {
    for (at, piece) in pieces(message) {
        piece.arrived().wait(&SOLO, net, Timeout::NEVER)?;
        let span = piece.span(&SOLO, net)?;
        // SAFETY: the piece has landed and is not given back yet; the buffer has room for it, by
        // its contract.
        unsafe { copy_out_of_ring(&SOLO, to.as_ptr().wrapping_add(at as usize), span) };
        piece.trigger().release(&SOLO, net)?;
        *bytes = at + piece.len;
    }
    Ok(())
}

/// Longest sleep between two loads of a word of the program's own, whose writer wakes no thread.
const LONGEST_NAP: Duration = Duration::from_micros(200);

fn wait_word(net: Net, word: Word, value: u64) -> Result<()> {
    let (mut life, mut nap) = (Sleeper::new(net), Duration::from_micros(1));
    while word.observe().wrapping_sub(value).cast_signed() < 0 {
        life.check()?;
        std::thread::sleep(nap);
        nap = (nap * 2).min(LONGEST_NAP);
    }
    Ok(())
}
