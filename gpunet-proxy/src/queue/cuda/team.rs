//! What a queue on a CUDA stream does for a member of a team.
//!
//! | operation | on the stream |
//! |---|---|
//! | a signal | writes: of the value last sent, in the device's own memory, and of the word |
//! | a wait | a wait for the word; with a limit a kernel |
//! | a short put | a kernel |
//! | a longer one | a word that starts the copy, and a wait for one that says it is done: the copy engine copies on a stream that never waits |
//! | a barrier, a collective | a kernel: how far the member's barriers are is known to the device alone, where other kernels take part, too |
//!
//! Only the source of a signal writes its word. When the wait cannot succeed any more, the queue's
//! thread marks the word ([`GONE`](gpunet_abi::team::GONE)), which ends waits of streams and leaves
//! the value as it is, even if a source that lives signals at that moment
//! ([`QueueStreams::mark`](super::QueueStreams::mark)).

use super::page::At;
use super::plan::store;
use super::record::{PutCopy, Record, SignalWait};
use super::{CudaQueue, Shared};
use crate::queue::{Failure, QueueError};
use crate::team::TeamHold;
use gpu_usermap::cuda::Device;
use gpunet_abi::Error;
use gpunet_abi::layout::HEARTBEAT_DOWN;
use gpunet_abi::team::{GONE, MAX_VALUE};
use gpunet_device::{Buffer, Net};
use std::collections::VecDeque;

impl CudaQueue {
    pub(in crate::queue) fn device(&self) -> &Device {
        self.shared.stream.device()
    }

    pub(in crate::queue) fn net(&self) -> Net {
        self.shared.host.net()
    }

    /// Checks that the copy engine and kernels reach the memory.
    pub(in crate::queue) fn check_reachable(&self, memory: Buffer) -> Result<(), QueueError> {
        if self.shared.knows(memory)? {
            return Ok(());
        }
        Err(QueueError::Pageable)
    }
}

/// The copies of a queue, one after another: its stream waits for each.
#[derive(Default)]
pub(super) struct PutCopies {
    waiting: VecDeque<PutCopy>,
    /// The first is enqueued.
    is_under_way: bool,
}

impl PutCopies {
    pub(super) fn push(&mut self, put: PutCopy) {
        self.waiting.push_back(put);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Makes as much progress as is possible now. Returns whether anything moved.
    pub(super) fn step(&mut self, shared: &Shared) -> bool {
        let Some(&PutCopy { number, nth, to, from, len, signal }) = self.waiting.front() else {
            return false;
        };
        if self.is_under_way {
            let is_done = shared.page.observe(At::PutDone) >= nth;
            if is_done {
                self.waiting.pop_front();
                self.is_under_way = false;
            }
            return is_done;
        }
        if shared.page.observe(At::PutStarted) < nth {
            return false;
        }
        let stream = &shared.streams.lanes[0][shared.lane];
        let is_there = to == from || len == 0;
        // SAFETY: the parts of symmetric memory, which the operation's record keeps mapped, and the
        // source by its contract.
        let copied = if is_there { Ok(()) } else { unsafe { stream.copy(to, from, len) } };
        // Nothing is signalled of a copy that could not be enqueued.
        let signal = signal.into_iter().flat_map(|(words, value)| words.map(|address| store(address, value)));
        let done: Vec<_> = signal.chain([store(shared.page.address(At::PutDone), nth)]).collect();
        // SAFETY: words of the team, which the operation's record keeps, and one of the queue's
        // page.
        let told = copied.and_then(|()| unsafe { stream.batch(&done) });
        match told {
            Ok(()) => self.is_under_way = true,
            Err(error) => {
                tracing::warn!(%error, "a put cannot go on");
                // The source is the program's again: what was enqueued of the copy ends before.
                // This stream never waits. If that fails, too, the device is lost, and nothing
                // runs.
                let _ = stream.synchronize();
                shared.end_put(number, nth);
                self.waiting.pop_front();
            }
        }
        true
    }
}

impl Shared {
    /// Records that a copy could not be enqueued, and lets the stream continue.
    fn end_put(&self, number: u64, nth: u64) {
        let mut state = self.lock();
        state.fail(Failure { operation: number - 1, error: Error::Protocol, bytes: 0 });
        drop(state);
        // The stream that writes it otherwise has done so for all before.
        self.page.publish(At::PutDone, nth);
    }

    /// Returns why a wait for a signal cannot succeed, if it cannot.
    fn signal_failure(&self, hold: &TeamHold, wait: SignalWait) -> Option<Error> {
        let memory = self.host.memory();
        let is_down = memory.heartbeat().observe() == HEARTBEAT_DOWN;
        let ended = if memory.is_cancelled(self.host.id()) { Some(Error::Canceled) } else { None };
        hold.failure(wait.source).or(ended).or(is_down.then_some(Error::NetworkDown))
    }

    /// Releases the stream from waits for signals that will not come.
    pub(super) fn release_signal_waits(&self) {
        let waits = |record: &Record| Some((record.number, record.team.clone()?, record.signal_wait?));
        // Loads of words may take a while.
        let waits: Vec<_> = self.lock().under_way.iter().filter_map(waits).collect();
        for (number, hold, wait) in waits {
            if self.signal_failure(&hold, wait).is_none() {
                continue;
            }
            let (block, offset) = hold.own_word(wait.signal, wait.source);
            let Some(word) = self.read_word(block.host_word(offset), block.address() + offset) else {
                continue;
            };
            if word & GONE == GONE || word >= wait.value {
                continue;
            }
            // Before the mark: a live source may store over the mark, and the stream has passed
            // nevertheless.
            self.note_released(number);
            self.streams.mark(block.host_word(offset), block.address() + offset, word);
        }
    }

    /// Finds out whether a wait for a signal that the stream has passed succeeded.
    pub(super) fn judge_signal_wait(&self, record: &Record) -> Option<Failure> {
        let (hold, wait) = (record.team.as_ref()?, record.signal_wait?);
        // A word is marked only when there is a failure, and failures stay.
        let error = self.signal_failure(hold, wait)?;
        if record.is_released {
            return Some(Failure { operation: record.number - 1, error, bytes: 0 });
        }
        let (block, offset) = hold.own_word(wait.signal, wait.source);
        let word = self.read_word(block.host_word(offset), block.address() + offset);
        let has_come = word.is_some_and(|word| word & MAX_VALUE >= wait.value);
        (!has_come).then_some(Failure { operation: record.number - 1, error, bytes: 0 })
    }
}
