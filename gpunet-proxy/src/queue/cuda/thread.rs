//! The thread of a queue on a CUDA stream.
//!
//! A word that will not reach its value is marked END|ERR, again and again until the stream has
//! passed. No reader trusts such a word of a socket with a failing status. The thread marks words
//! that the CPU reaches itself, and others by a stream that never waits.

use super::Shared;
use super::lane::{Ended, Lane};
use super::page::At;
use super::plan::{publish, store};
use super::record::{Record, Work};
use super::team::PutCopies;
use crate::queue::{Failure, Notify, QueueOutcome};
use crate::socket::Hold;
use gpu_usermap::cuda::Device;
use gpu_usermap::threads;
use gpunet_abi::layout::HEARTBEAT_DOWN;
use gpunet_abi::trigger::reached;
use gpunet_abi::{Direction, Error, StreamWord, Word};
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the thread checks for words that will not reach their values, and the longest sleep
/// while the program does not wait for it.
const LOOK: Duration = Duration::from_millis(1);
/// The longest sleep while the program waits.
const SHORT_LOOK: Duration = Duration::from_micros(200);
/// Turns without a change after which the thread sleeps.
const TURNS: u32 = 200;
/// How often the thread asks whether the device still works.
const ASK: Duration = Duration::from_millis(100);
/// How long the proxy may continue to send for an attachment that is being closed.
const LINGER: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct State {
    pub(super) under_way: VecDeque<Record>,
    /// Operations of the driver that the stream has passed for sure.
    pub(super) passed: u64,
    done: u64,
    failure: Option<Failure>,
    /// The program's end is gone: the thread ends after the last operation.
    is_left: bool,
    /// Directions whose operations are in a graph.
    captured: Vec<Arc<Hold>>,
}

/// Starts it.
pub(super) fn start(shared: Arc<Shared>, device: Device) -> io::Result<JoinHandle<()>> {
    let run = move || {
        // Short sleeps last up to 50 us longer without it.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
        Follower::new(shared, device).run();
    };
    threads::spawn("gpunet-queue", run)
}

struct Follower {
    shared: Arc<Shared>,
    device: Device,
    lanes: [Lane; 2],
    puts: PutCopies,
    /// How long it slept last.
    nap: Duration,
    /// Turns without a change.
    quiet: u32,
    looked: Instant,
    asked: Instant,
    /// Since when the attachment is closed.
    over: Option<Instant>,
}

impl Follower {
    fn new(shared: Arc<Shared>, device: Device) -> Self {
        let settings = shared.settings;
        let lane = |direction| Lane::new(direction, settings.fragment as u64, settings.depth);
        let lanes = [lane(Direction::Send), lane(Direction::Recv)];
        let (nap, now) = (Duration::ZERO, Instant::now());
        let puts = PutCopies::default();
        Self { shared, device, lanes, puts, nap, quiet: 0, looked: now, asked: now, over: None }
    }

    fn run(mut self) {
        while self.wait_for_work() {
            let mut moved = self.shared.note_passed();
            for lane in &mut self.lanes {
                let (did, message) = lane.step(&self.shared, &self.device);
                moved |= did;
                if let Some(message) = message {
                    self.shared.end_staged(&message);
                }
            }
            moved |= self.puts.step(&self.shared);
            moved |= self.shared.answer();
            if self.looked.elapsed() >= LOOK {
                self.looked = Instant::now();
                self.look();
            }
            if self.asked.elapsed() >= ASK {
                self.asked = Instant::now();
                if let Err(error) = self.shared.streams.rescue.is_idle() {
                    tracing::error!(%error, "the device of a queue is lost");
                    self.shared.lose();
                    return;
                }
            }
            self.rest(moved);
        }
    }

    /// Blocks until there is an operation to follow; returns false when no more can come.
    fn wait_for_work(&mut self) -> bool {
        let mut state = self.shared.lock();
        while state.under_way.is_empty() && self.lanes.iter().all(Lane::is_empty) && self.puts.is_empty() {
            if state.is_left {
                return false;
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        for record in state.under_way.iter_mut().filter(|record| record.is_issued) {
            match record.work.take() {
                Some(Work::Transfer(transfer)) => {
                    self.lanes[transfer.message.hold().direction() as usize].push(transfer);
                }
                Some(Work::Put(put)) => self.puts.push(put),
                other => record.work = other,
            }
        }
        true
    }

    /// Releases streams that wait for words which will not come.
    fn look(&mut self) {
        self.shared.release_signal_waits();
        let is_over = self.shared.is_over();
        let over = is_over.then(|| *self.over.get_or_insert_with(Instant::now));
        let is_down = self.shared.host.memory().heartbeat().observe() == HEARTBEAT_DOWN;
        let is_lost = |hold: &Hold| {
            // What a stream of an attachment that is being closed wants to send is not overwritten
            // while the proxy still sends.
            let is_closed = match hold.direction() {
                Direction::Send => is_down || over.is_some_and(|since| since.elapsed() > LINGER),
                Direction::Recv => is_over,
            };
            is_closed || hold.end().is_some()
        };
        let mut stuck: Vec<(u64, Arc<Hold>, u64)> = Vec::new();
        for record in &self.shared.lock().under_way {
            let lost = record.waits.iter().filter(|(hold, _)| is_lost(hold));
            stuck.extend(lost.map(|(hold, position)| (record.number, hold.clone(), *position)));
        }
        for (number, hold, position) in stuck {
            let word = self.shared.other(&hold);
            if !word.err() && reached(word, position) {
                continue;
            }
            // Before the mark: the proxy may publish over the mark, and the stream has passed
            // nevertheless.
            self.shared.note_released(number);
            self.shared.streams.mark(hold.pinned_other(), hold.half().theirs, word.0);
        }
    }

    /// Sleeps, the longer the longer nothing has changed.
    fn rest(&mut self, moved: bool) {
        if moved {
            (self.quiet, self.nap) = (0, Duration::ZERO);
            return;
        }
        self.quiet += 1;
        let state = self.shared.lock();
        let is_awaited = !self.lanes.iter().all(Lane::is_empty)
            || !self.puts.is_empty()
            || state.under_way.iter().any(Record::is_awaited);
        drop(state);
        if is_awaited && self.quiet < TURNS {
            std::thread::yield_now();
            return;
        }
        let most = if is_awaited { SHORT_LOOK } else { LOOK };
        self.nap = (self.nap * 2).clamp(Duration::from_micros(10), most);
        std::thread::sleep(self.nap);
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn outcome(&self) -> QueueOutcome {
        let mut state = self.lock();
        self.take_kernel_failure(&mut state);
        state.outcome()
    }

    /// How many operations are done.
    pub(super) fn done(&self) -> u64 {
        self.lock().done
    }

    /// Takes an operation up that the stream will pass.
    pub(super) fn add(&self, record: Record) {
        self.lock().under_way.push_back(record);
        self.changed.notify_one();
    }

    /// The program's end is gone. Returns whether nothing is under way, so that the thread ends at
    /// once.
    pub(super) fn leave(&self) -> bool {
        let mut state = self.lock();
        state.is_left = true;
        self.changed.notify_one();
        state.under_way.is_empty()
    }

    /// Keeps a direction taken that a graph uses, for as long as the queue lives.
    pub(super) fn keep(&self, hold: &Arc<Hold>) {
        let mut state = self.lock();
        if !state.captured.iter().any(|kept| Arc::ptr_eq(kept, hold)) {
            state.captured.push(hold.clone());
        }
    }

    /// The driver has taken an operation: from now on the thread carries out what is its part.
    pub(super) fn accept(&self, number: u64) {
        if let Some(record) = self.lock().under_way.iter_mut().find(|record| record.number == number) {
            record.is_issued = true;
        }
    }

    /// Forgets the last operation, of which the driver has taken nothing.
    pub(super) fn withdraw(&self, number: u64) {
        let mut state = self.lock();
        let is_last = state.under_way.back().is_some_and(|record| record.number == number);
        let record = if is_last { state.under_way.pop_back() } else { None };
        drop(state);
        // What it holds is given back without the lock.
        drop(record);
    }

    /// Notes that the stream has a part of an operation only: nothing else is done for it, and what
    /// it uses is kept until the stream has passed that.
    pub(super) fn abandon(&self, number: u64) {
        let mut state = self.lock();
        let record = state.under_way.iter_mut().find(|record| record.number == number);
        let unused = record.map(|record| {
            record.is_issued = true;
            record.work.take()
        });
        drop(state);
        drop(unused);
    }

    /// Notes that the stream passes a wait of an operation for another reason than what it waits
    /// for.
    pub(super) fn note_released(&self, number: u64) {
        if let Some(record) = self.lock().under_way.iter_mut().find(|record| record.number == number) {
            record.is_released = true;
        }
    }

    /// Returns whether all sockets of the attachment have ended: it is closed, or the proxy is
    /// gone.
    pub(super) fn is_over(&self) -> bool {
        let memory = self.host.memory();
        memory.is_cancelled(self.host.id()) || memory.heartbeat().observe() == HEARTBEAT_DOWN
    }

    /// The other end's word of a direction.
    pub(super) fn other(&self, hold: &Hold) -> StreamWord {
        self.read_other(hold).unwrap_or_else(|| StreamWord::at(0).with_err())
    }

    /// The same; `None`, if CUDA fails.
    pub(super) fn read_other(&self, hold: &Hold) -> Option<StreamWord> {
        self.read_word(hold.pinned_other(), hold.half().theirs).map(StreamWord::read)
    }

    /// Reads a word: where the CPU has it, or at the device's address, which is mapped. `None`, if
    /// CUDA fails.
    pub(super) fn read_word(&self, pinned: Option<Word>, address: u64) -> Option<u64> {
        if let Some(word) = pinned {
            return Some(word.observe());
        }
        // The program's thread reads words, too, while it waits for room.
        let _scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let scratch = self.page.address(At::Scratch);
        // SAFETY: the callers hold what the word is part of; the scratch word is the page's.
        let copied = unsafe { self.streams.rescue.copy(scratch, address, 8) };
        // It never waits, so this does not block for long.
        match copied.and_then(|()| self.streams.rescue.synchronize()) {
            Ok(()) => Some(self.page.observe(At::Scratch)),
            Err(error) => {
                tracing::debug!(%error, "a word cannot be read");
                None
            }
        }
    }

    /// Ends the operations that the stream has passed. Returns whether there were any.
    pub(super) fn note_passed(&self) -> bool {
        let passed = self.page.observe(At::Passed);
        self.end_until(passed)
    }

    /// Ends all operations up to this number.
    fn end_until(&self, number: u64) -> bool {
        let mut state = self.lock();
        // The enqueueing thread may still hold an operation that the stream has passed, or the
        // operation may only have been started.
        let is_passed = |record: &&Record| record.number <= number && record.is_handed_over();
        let count = state.under_way.iter().take_while(is_passed).count();
        let ended: Vec<Record> = state.under_way.drain(..count).collect();
        drop(state);
        // Loads of words may take a while.
        let mut known: Vec<(*const Hold, StreamWord)> = Vec::new();
        for mut record in ended {
            let failure = self.judge(&record, &mut known);
            // Released first: a caller that learns that the operation is done may take the team at
            // once.
            record.team = None;
            let mut state = self.lock();
            state.passed = state.passed.max(record.issued);
            state.done += 1;
            state.failure = state.failure.or(failure);
            self.take_kernel_failure(&mut state);
            let outcome = state.outcome();
            drop(state);
            if let Some(notify) = record.take_notify() {
                call(notify, outcome);
            }
        }
        count > 0
    }

    /// Finds out whether an operation that the stream has passed succeeded.
    fn judge(&self, record: &Record, known: &mut Vec<(*const Hold, StreamWord)>) -> Option<Failure> {
        if record.tells_itself {
            return None;
        }
        if record.signal_wait.is_some() {
            return self.judge_signal_wait(record);
        }
        for (hold, position) in &record.waits {
            let at = Arc::as_ptr(hold);
            let word = known.iter().find(|&&(known, _)| known == at).map(|&(_, word)| word);
            // The other end's word does not run back.
            let word = word.filter(|word| has_come(*word, *position)).unwrap_or_else(|| {
                let word = self.other(hold);
                known.retain(|&(known, _)| known != at);
                known.push((at, word));
                word
            });
            let is_post = *position == 0 && hold.direction() == Direction::Send;
            let failure = if is_post { hold.failure() } else { None };
            if has_come(word, *position) && failure.is_none() && !record.is_released {
                continue;
            }
            let error =
                failure.or_else(|| hold.end()).or_else(|| self.is_over().then_some(Error::NetworkDown));
            let error = error.unwrap_or_else(|| hold.ended());
            let bytes = record.len.saturating_sub(position.saturating_sub(word.position()));
            return Some(Failure { operation: record.number - 1, error, bytes });
        }
        None
    }

    /// Records how a staged message ended, and lets the stream continue.
    fn end_staged(&self, message: &Ended) {
        let &Ended { number, nth, direction, bytes, error } = message;
        if let Some(error) = error {
            let mut state = self.lock();
            // No earlier operation can fail any more.
            state.failure = state.failure.or(Some(Failure { operation: number - 1, error, bytes }));
        }
        self.page.publish(At::Done(direction), nth);
    }

    /// Gives a direction up in the middle of a message: the other end must not take what lies in
    /// the ring behind `position` for the rest of it, nor wait until that is read.
    pub(super) fn give_up(&self, hold: &Hold, position: u64) {
        hold.give_up();
        let word = StreamWord::at(position).with_err();
        if let Some(published) = hold.pinned_own() {
            published.publish(word.0);
        }
        let mut operations = Vec::with_capacity(2);
        publish(&mut operations, hold, word.0);
        // SAFETY: words of a direction that is held until the message is done.
        if let Err(error) = unsafe { self.streams.rescue.batch(&operations) } {
            tracing::warn!(%error, "a direction cannot be given up by its word");
        }
    }

    /// Answers checks that the stream has asked for.
    fn answer(&self) -> bool {
        let asked = self.page.observe(At::Asked);
        let check = self.lock().under_way.iter().find_map(|record| Some((record.number, record.check()?)));
        let Some((number, (nth, word))) = check.filter(|&(_, (nth, _))| nth <= asked) else { return false };
        // The stream has reached this operation, so it has passed all earlier ones.
        self.end_until(number - 1);
        if self.lock().under_way.front().is_none_or(|record| record.number != number) {
            // The thread has still to take up one before.
            return false;
        }
        let failure = self.outcome().failure;
        let errno = failure.map_or(0, |failure| failure.error.errno().unsigned_abs().into());
        let answer = [store(word.as_ptr() as u64, errno), store(self.page.address(At::Answered), nth)];
        // SAFETY: the program's word, by its promise, and the page's.
        if let Err(error) = unsafe { self.streams.rescue.batch(&answer) } {
            // The stream waits for it: the next turn tries again.
            tracing::debug!(%error, "a check cannot be answered");
            return false;
        }
        if let Some(record) = self.lock().under_way.front_mut().filter(|record| record.number == number) {
            record.work = None;
        }
        true
    }

    /// Ends everything: the device is lost.
    fn lose(&self) {
        let mut state = self.lock();
        let operation = state.done;
        state.failure = state.failure.or(Some(Failure { operation, error: Error::NetworkDown, bytes: 0 }));
        state.done += state.under_way.len() as u64;
        state.passed = u64::MAX;
        let (outcome, records) = (state.outcome(), std::mem::take(&mut state.under_way));
        drop(state);
        for notify in records.into_iter().filter_map(|mut record| record.take_notify()) {
            call(notify, outcome);
        }
    }

    /// Takes up what kernels have recorded.
    fn take_kernel_failure(&self, state: &mut State) {
        if state.failure.is_some() {
            return;
        }
        if let Some((errno, number, bytes)) = self.page.kernel_failure() {
            let error = Error::from_errno(errno as i32);
            // One of a graph has no number: it came after all that have one and are done.
            let operation = number.checked_sub(1).unwrap_or(state.done);
            state.failure = Some(Failure { operation, error, bytes });
        }
    }
}

/// Returns whether a word says that the other end has come so far. One that is marked does not, nor
/// one that was [released](Record::is_released), whatever it says now.
fn has_come(word: StreamWord, position: u64) -> bool {
    !word.err() && word.position() >= position
}

impl State {
    /// Notes a failure, if it is the first.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.failure = self.failure.or(Some(failure));
    }

    const fn outcome(&self) -> QueueOutcome {
        QueueOutcome { done: self.done, failure: self.failure }
    }
}

/// Calls a function of the program.
fn call(notify: Notify, outcome: QueueOutcome) {
    if catch_unwind(AssertUnwindSafe(|| notify(outcome))).is_err() {
        tracing::error!("a function that a queue called panicked");
    }
}

#[cfg(test)]
mod tests;
