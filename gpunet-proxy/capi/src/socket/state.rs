//! The state of a host socket: fresh, connecting, a stream, a listener. It advances when a call
//! reads it.

use super::Moved;
use super::settings::Settings;
use crate::failure::Failure;
use gpunet_proxy::abi::TransportKind;
use gpunet_proxy::host::{Host, Listener, ReadHalf, Stream, WriteHalf};
use gpunet_proxy::socket::SocketError;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::ReadBuf;

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, SocketError>> + Send>>;

/// Locks a value that no call leaves half-changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) enum State {
    /// Made, and possibly bound to an address.
    Fresh {
        bound: Option<SocketAddr>,
    },
    /// A connect was begun, and has no answer yet.
    Connecting(Pending<Stream>, SocketAddr),
    Stream(Arc<Connected>),
    Listener(Arc<Listening>),
    Closed,
}

/// The part of the socket that a lock protects.
pub(super) struct Inner {
    pub(super) state: State,
    pub(super) settings: Settings,
    /// The failure of a connect that no call waited for, until it is read.
    pub(super) error: Option<Failure>,
}

/// A stream: each direction may be used by another thread. `None` once the socket is closed.
pub(super) struct Connected {
    pub(super) read: Mutex<Option<ReadHalf>>,
    pub(super) write: Mutex<Option<WriteHalf>>,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) transport: TransportKind,
}

/// A listener, and the accept that is under way. Both are gone once the socket is closed.
pub(super) struct Listening {
    pub(super) local: SocketAddr,
    accepting: Mutex<Option<Accepting>>,
}

struct Accepting {
    listener: Arc<Listener>,
    /// An accept that a call began and did not wait for.
    pending: Option<Pending<(Stream, SocketAddr)>>,
    /// A connection that a poll accepted, for the next accept.
    taken: Option<Result<(Stream, SocketAddr), SocketError>>,
}

fn closed() -> Failure {
    Failure::new(libc::EBADF, "the socket was closed during the call")
}

fn not_connected() -> Failure {
    Failure::of(libc::ENOTCONN)
}

impl Connected {
    pub(super) fn new(stream: Stream) -> Result<Arc<Self>, Failure> {
        let (local, peer, transport) = (stream.local_addr()?, stream.peer_addr()?, stream.transport());
        let (read, write) = stream.into_split();
        let (read, write) = (Mutex::new(Some(read)), Mutex::new(Some(write)));
        Ok(Arc::new(Self { read, write, local, peer, transport }))
    }

    /// Makes a call on the reading half.
    ///
    /// # Errors
    /// EBADF, when the socket was closed; the call's.
    pub(super) fn with_read<R>(
        &self,
        call: impl FnOnce(&mut ReadHalf) -> Poll<io::Result<R>>,
    ) -> Poll<Result<R, Failure>> {
        match &mut *lock(&self.read) {
            Some(read) => call(read).map_err(Failure::from),
            None => Poll::Ready(Err(closed())),
        }
    }

    /// Makes a call on the writing half.
    ///
    /// # Errors
    /// As [`Connected::with_read`].
    pub(super) fn with_write<R>(
        &self,
        call: impl FnOnce(&mut WriteHalf) -> Poll<io::Result<R>>,
    ) -> Poll<Result<R, Failure>> {
        match &mut *lock(&self.write) {
            Some(write) => call(write).map_err(Failure::from),
            None => Poll::Ready(Err(closed())),
        }
    }

    /// Receives what has come, or leaves it where it is.
    ///
    /// # Errors
    /// As [`Connected::with_read`].
    pub(super) fn receive(&self, buf: &mut ReadBuf<'_>, peek: bool) -> Result<Moved, Failure> {
        match &mut *lock(&self.read) {
            Some(read) => {
                let before = buf.filled().len();
                let received = if peek { read.try_peek(buf) } else { read.try_read(buf) };
                match received {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        Ok(Moved::Blocked(read.waiter()))
                    }
                    Err(error) => Err(error.into()),
                    Ok(()) if buf.filled().len() == before => Ok(Moved::End),
                    Ok(()) => Ok(Moved::Some(buf.filled().len() - before)),
                }
            }
            None => Err(closed()),
        }
    }

    /// Sends what there is room for.
    ///
    /// # Errors
    /// As [`Connected::with_write`].
    pub(super) fn send(&self, bytes: &[u8]) -> Result<Moved, Failure> {
        match &mut *lock(&self.write) {
            Some(write) => match write.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Moved::Blocked(write.waiter())),
                sent => Ok(Moved::Some(sent?)),
            },
            None => Err(closed()),
        }
    }

    /// Closes both halves together. A half that is dropped alone would end its direction first, so
    /// that a reset would not be one.
    fn close(&self) {
        let (read, write) = (lock(&self.read).take(), lock(&self.write).take());
        if let (Some(read), Some(write)) = (read, write) {
            drop(Stream::reunite(read, write));
        }
    }
}

impl Listening {
    /// Takes the connection that has waited longest.
    ///
    /// # Errors
    /// EBADF, when the socket was closed; those of [`Listener::accept`].
    pub(super) fn accept(&self, cx: &mut Context<'_>) -> Poll<Result<(Stream, SocketAddr), Failure>> {
        let mut accepting = lock(&self.accepting);
        let Some(accepting) = &mut *accepting else { return Poll::Ready(Err(closed())) };
        match accepting.taken.take() {
            Some(taken) => Poll::Ready(taken.map_err(Failure::from)),
            None => accepting.poll(cx).map_err(Failure::from),
        }
    }

    /// Returns whether an accept would not wait.
    pub(super) fn is_ready(&self, cx: &mut Context<'_>) -> bool {
        let mut accepting = lock(&self.accepting);
        let Some(accepting) = &mut *accepting else { return true };
        if accepting.taken.is_none()
            && let Poll::Ready(taken) = accepting.poll(cx)
        {
            accepting.taken = Some(taken);
        }
        accepting.taken.is_some()
    }
}

impl Accepting {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Stream, SocketAddr), SocketError>> {
        let listener = &self.listener;
        let pending = self.pending.get_or_insert_with(|| {
            let listener = listener.clone();
            Box::pin(async move { listener.accept().await })
        });
        let polled = pending.as_mut().poll(cx);
        if polled.is_ready() {
            self.pending = None;
        }
        polled
    }
}

impl Inner {
    /// Begins to connect.
    ///
    /// # Errors
    /// EALREADY while it connects; EISCONN; EOPNOTSUPP on a bound socket or a listener; EBADF; the
    /// unread failure of an earlier connect.
    pub(super) fn begin_connect(&mut self, host: &Host, to: SocketAddr) -> Result<(), Failure> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        match self.state {
            State::Fresh { bound: None } => {
                let (host, options) = (host.clone(), self.settings.of_connection());
                let connect = Box::pin(async move { host.connect(to, options).await });
                self.state = State::Connecting(connect, to);
                Ok(())
            }
            State::Fresh { bound: Some(_) } => Err(Failure::new(
                libc::EOPNOTSUPP,
                "a bound socket can only listen: connect takes an address of its own choice",
            )),
            State::Connecting(..) => Err(Failure::of(libc::EALREADY)),
            State::Stream(_) => Err(Failure::of(libc::EISCONN)),
            State::Listener(_) => Err(Failure::new(libc::EOPNOTSUPP, "a listener cannot connect")),
            State::Closed => Err(closed()),
        }
    }

    /// Abandons the connect, because its timeout has expired.
    pub(super) fn give_up_connect(&mut self) {
        if matches!(self.state, State::Connecting(..)) {
            self.state = State::Fresh { bound: None };
        }
    }

    /// Checks how far a connect has come. A failure makes the socket fresh again, and is kept until
    /// it is read.
    pub(super) fn progress(&mut self, cx: &mut Context<'_>) {
        let State::Connecting(pending, to) = &mut self.state else { return };
        let to = *to;
        let Poll::Ready(connected) = pending.as_mut().poll(cx) else { return };
        let connected = connected.map_err(|error| Failure::from(error).at(to));
        self.state = match connected.and_then(Connected::new) {
            Ok(stream) => State::Stream(stream),
            Err(error) => {
                self.error = Some(error);
                State::Fresh { bound: None }
            }
        };
    }

    /// Returns the stream, once it is connected.
    ///
    /// # Errors
    /// ENOTCONN, when it is neither a stream nor connects; the connect's failure; EBADF.
    pub(super) fn stream(&mut self, cx: &mut Context<'_>) -> Poll<Result<Arc<Connected>, Failure>> {
        self.progress(cx);
        match &self.state {
            State::Stream(stream) => Poll::Ready(Ok(stream.clone())),
            State::Connecting(..) => Poll::Pending,
            State::Fresh { .. } => Poll::Ready(Err(self.error.take().unwrap_or_else(not_connected))),
            State::Listener(_) => Poll::Ready(Err(not_connected())),
            State::Closed => Poll::Ready(Err(closed())),
        }
    }

    /// Becomes a listener.
    pub(super) fn listen(&mut self, listener: Listener) -> Result<(), Failure> {
        let local = listener.local_addr()?;
        let accepting = Accepting { listener: Arc::new(listener), pending: None, taken: None };
        self.state = State::Listener(Arc::new(Listening { local, accepting: Mutex::new(Some(accepting)) }));
        Ok(())
    }

    /// Ends it: waiting calls find no socket.
    pub(super) fn close(&mut self) {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Stream(stream) => stream.close(),
            State::Listener(listener) => drop(lock(&listener.accepting).take()),
            State::Fresh { .. } | State::Connecting(..) | State::Closed => {}
        }
    }
}
