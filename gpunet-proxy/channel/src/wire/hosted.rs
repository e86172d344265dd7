//! A stream of gpunet's as a connection of a channel.

use super::{Wire, lock};
use gpunet_proxy::host::{ReadHalf, Stream, WriteHalf};
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream of gpunet's, over any transport.
pub(crate) struct Hosted {
    read: Mutex<ReadHalf>,
    write: Mutex<WriteHalf>,
    /// The threads that wait in a read and in a write.
    waiting: [Mutex<Option<Thread>>; 2],
    closed: AtomicBool,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Hosted {
    pub(crate) fn new(stream: Stream) -> Self {
        let (read, write) = stream.into_split();
        let waiting = [Mutex::new(None), Mutex::new(None)];
        Self { read: Mutex::new(read), write: Mutex::new(write), waiting, closed: AtomicBool::new(false) }
    }

    /// Calls `call` until it is ready; sleeps meanwhile.
    fn wait<T>(
        &self,
        direction: usize,
        deadline: Option<Instant>,
        mut call: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        *lock(&self.waiting[direction]) = Some(thread::current());
        let result = loop {
            // Ordering: SeqCst; pairs with the store in `shut_down`, which unparks whoever is
            // registered then: the thread sees the store here, or is unparked.
            if self.closed.load(Ordering::SeqCst) {
                break Err(io::ErrorKind::ConnectionAborted.into());
            }
            if let Poll::Ready(result) = call(&mut context) {
                break result;
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => break Err(io::ErrorKind::TimedOut.into()),
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        };
        *lock(&self.waiting[direction]) = None;
        result
    }
}

impl Wire for Hosted {
    fn read(&self, to: &mut [IoSliceMut<'_>], deadline: Option<Instant>) -> io::Result<usize> {
        let Some(to) = to.iter_mut().find(|piece| !piece.is_empty()) else { return Ok(0) };
        let mut half = lock(&self.read);
        let mut room = ReadBuf::new(to);
        self.wait(0, deadline, |context| Pin::new(&mut *half).poll_read(context, &mut room))?;
        Ok(room.filled().len())
    }

    fn write(&self, from: &[IoSlice<'_>], deadline: Option<Instant>) -> io::Result<usize> {
        let Some(from) = from.iter().find(|piece| !piece.is_empty()) else { return Ok(0) };
        let mut half = lock(&self.write);
        self.wait(1, deadline, |context| Pin::new(&mut *half).poll_write(context, from))
    }

    fn shut_down(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for waiting in &self.waiting {
            if let Some(thread) = &*lock(waiting) {
                thread.unpark();
            }
        }
        // The other end reads the end, unless a write is in progress; that one returns first.
        if let Ok(mut write) = self.write.try_lock() {
            let mut context = Context::from_waker(Waker::noop());
            let _ = Pin::new(&mut *write).poll_shutdown(&mut context);
        }
    }
}
