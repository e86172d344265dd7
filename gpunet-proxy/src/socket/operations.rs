//! What the host program tells the proxy in shared memory: operations of CUDA streams that are
//! under way, and the directions that it has taken. The proxy forgets both with the attachment,
//! however the program ends.

use super::HostLaunch;
use crate::os::doorbell::ring;
use gpunet_abi::layout::{SHARDS, TAKEN_WORDS};
use gpunet_abi::park::must_wake;
use gpunet_abi::{Direction, Handle};
use gpunet_core::memory::SharedMemory;
use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Operations of a CUDA stream on a socket. While the value lives, the data thread that moves the
/// socket's bytes sleeps for some 50 us at most: a stream stores a word and rings no doorbell.
#[derive(Debug)]
pub(crate) struct StreamOperations {
    host: Arc<HostLaunch>,
    /// `None` where no data thread moves the bytes.
    data_thread: Option<u32>,
}

impl StreamOperations {
    pub(super) fn begin(host: Arc<HostLaunch>, data_thread: Option<u32>) -> Self {
        if let Some(thread) = data_thread {
            host.count_operations(thread, 1);
        }
        Self { host, data_thread }
    }
}

impl Drop for StreamOperations {
    fn drop(&mut self) {
        if let Some(thread) = self.data_thread {
            self.host.count_operations(thread, -1);
        }
    }
}

/// What the host program has told the proxy; the truth behind the words in shared memory.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// Operations of CUDA streams that are under way, by data thread.
    stream_operations: [u64; SHARDS],
    /// A bit for each direction that is taken.
    taken: [u64; TAKEN_WORDS],
}

/// Tells a data thread how many operations are under way, and wakes it for the first one.
pub(crate) fn tell_operations(memory: &SharedMemory, doorbells: &[OwnedFd], thread: usize, count: u64) {
    memory.stream_operations(thread).publish(count);
    // By the pattern of `gpunet_abi::park`: either the thread has seen the word before it sleeps,
    // or it is woken.
    if count == 1
        && must_wake(&memory.sleeping(thread))
        && let Some(bell) = doorbells.get(thread)
    {
        ring(bell);
    }
}

impl HostLaunch {
    /// What the program tells. The lock makes its threads one writer.
    fn lock_published(&self) -> MutexGuard<'_, Published> {
        // Nothing that is done under the lock panics.
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_operations(&self, thread: u32, change: i64) {
        let (mut published, thread) = (self.lock_published(), thread as usize);
        let count = &mut published.stream_operations[thread];
        *count = count.wrapping_add_signed(change);
        tell_operations(self.memory(), &self.token().shared().doorbells, thread, *count);
    }

    /// Tells whether a direction is taken.
    pub(super) fn tell_taken(&self, socket: Handle, direction: Direction, taken: bool) {
        let (mut published, memory) = (self.lock_published(), self.memory());
        if let Some((number, bit)) = memory.taken_bit(socket.slot(), direction) {
            let word = &mut published.taken[number];
            *word = if taken { *word | bit } else { *word & !bit };
            memory.taken_word(number).set(*word);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, embed};
    use gpunet_abi::{Direction, Options, StreamWord, TransportKind};
    use std::io::Read;
    use std::net::TcpListener;
    use std::time::Duration;

    #[test]
    fn a_word_that_a_stream_stores_is_sent_without_a_doorbell() {
        const ROUNDS: u64 = 20;
        let attachment = embed(Config::small()).unwrap().attach_cpu().unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = Options::DEFAULT.with_transport(TransportKind::Tcp);
        let socket = attachment.connect_blocking(server.local_addr().unwrap(), options).unwrap();
        let mut peer = server.accept().unwrap().0;
        let _sender = socket.take_send().unwrap();
        let hold = socket.inner.hold(Direction::Send).unwrap();
        let memory = &attachment.device().memory;
        let (slot, thread) = (socket.handle().slot(), socket.inner.data_thread.unwrap() as usize);
        for round in 1..=ROUNDS {
            // It sleeps before the operation begins, or while it is under way.
            let operations = (round % 2 == 0).then(|| hold.begin_stream_operations());
            std::thread::sleep(Duration::from_millis(2));
            let operations = operations.unwrap_or_else(|| hold.begin_stream_operations());
            let more = hold.begin_stream_operations();
            assert_eq!(memory.stream_operations(thread).peek(), 2);
            drop(more);
            memory.published_words().get(slot as usize).publish(StreamWord::at(round).0);
            peer.read_exact(&mut [0]).unwrap();
            drop(operations);
            assert_eq!(memory.stream_operations(thread).peek(), 0);
        }
    }

    #[test]
    fn the_directions_that_are_taken_are_told() {
        let attachment = embed(Config::small()).unwrap().attach_cpu().unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || attachment.connect_blocking(server.local_addr().unwrap(), Options::DEFAULT).unwrap();
        let (one, other) = (connect(), connect());
        let taken = |socket: &crate::socket::Socket| {
            let slot = socket.handle().slot();
            [Direction::Send, Direction::Recv]
                .map(|direction| attachment.device().memory.is_taken(slot, direction))
        };
        assert_eq!([taken(&one), taken(&other)], [[false; 2]; 2]);
        let (sender, receiver) = (one.take_send().unwrap(), other.take_recv().unwrap());
        assert_eq!([taken(&one), taken(&other)], [[true, false], [false, true]]);
        sender.give_back().unwrap();
        drop(receiver);
        assert_eq!([taken(&one), taken(&other)], [[false; 2]; 2]);
    }
}
