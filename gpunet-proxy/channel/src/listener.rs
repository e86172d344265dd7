//! Accepts channels at an address.

use crate::channel::{Channel, is_whole, own_hello, streams};
use crate::error::ChannelError;
use crate::handshake::{self, Foreign, HELLO, Hello, MAX_STREAMS, refusal};
use crate::shared::ChannelOptions;
use crate::wire::{Socket, Wire, lost};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a connection may take to say its hello, and a channel's to come.
const ARRIVE_WITHIN: Duration = Duration::from_secs(5);
/// The most connections that have not become a channel. A further one replaces the oldest.
const MAX_ARRIVING: usize = 4 * (MAX_STREAMS + 1);

/// A connection that has not said its hello.
struct Arriving {
    stream: TcpStream,
    bytes: [u8; HELLO],
    filled: usize,
    since: Instant,
}

/// Connections of one channel, of which some are still to come.
struct Group {
    since: Instant,
    came: Vec<(Hello, Box<dyn Wire>)>,
}

#[derive(Default)]
struct Pending {
    arriving: Vec<Arriving>,
    groups: Vec<Group>,
}

/// Accepts channels at an address. Connections of other programs are told what this is, and hold up
/// nobody.
///
/// # Examples
/// ```
/// use gpunet_channel::{ChannelListener, ChannelOptions};
///
/// let listener = ChannelListener::bind("127.0.0.1:0".parse()?, &ChannelOptions::default())?;
/// println!("channels are accepted at {}", listener.local_addr()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ChannelListener {
    listener: TcpListener,
    options: ChannelOptions,
    pending: Mutex<Pending>,
}

impl std::fmt::Debug for ChannelListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelListener").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl ChannelListener {
    /// Listens at an address; port 0 takes a free one.
    ///
    /// # Errors
    /// The system's; [`ChannelError::Invalid`] for settings that cannot be.
    pub fn bind(addr: SocketAddr, options: &ChannelOptions) -> Result<Self, ChannelError> {
        streams(options)?;
        let binding = |error| ChannelError::failed("listening", error);
        let listener = TcpListener::bind(addr).map_err(binding)?;
        listener.set_nonblocking(true).map_err(binding)?;
        Ok(Self { listener, options: options.clone(), pending: Mutex::default() })
    }

    /// Returns the address.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts no more, from any thread: whoever waits in [`accept`](Self::accept) returns with an
    /// error.
    pub fn shut_down(&self) {
        // It fails only after the first call.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }

    /// Waits for a channel.
    ///
    /// # Errors
    /// As for [`Channel::connect`].
    pub fn accept(&self) -> Result<Channel, ChannelError> {
        self.accept_until(None)
    }

    /// As [`accept`](Self::accept), but waits until `deadline` at most: ETIMEDOUT.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept).
    pub fn accept_until(&self, deadline: Option<Instant>) -> Result<Channel, ChannelError> {
        loop {
            let came = {
                let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
                pending.next(&self.listener, deadline).map_err(|error| lost("accepting a channel", error))?
            };
            let own = own_hello(came.len(), &self.options)?;
            let until = Instant::now() + self.options.timeout.unwrap_or(ARRIVE_WITHIN);
            match handshake::accept(came, own, Some(until)) {
                Ok(made) => return Ok(Channel::made(made, &self.options)),
                // One that has died meanwhile is nobody's business.
                Err(error) => tracing::debug!(%error, "a channel was not accepted"),
            }
        }
    }
}

impl Pending {
    /// Waits until all connections of some channel have come.
    fn next(
        &mut self,
        listener: &TcpListener,
        deadline: Option<Instant>,
    ) -> io::Result<Vec<(Hello, Box<dyn Wire>)>> {
        loop {
            self.accept(listener)?;
            self.hear();
            let now = Instant::now();
            self.arriving.retain(|arriving| now < arriving.since + ARRIVE_WITHIN);
            self.groups.retain(|group| now < group.since + ARRIVE_WITHIN);
            if let Some(at) = self.groups.iter().position(|group| is_whole(&group.came)) {
                return Ok(self.groups.swap_remove(at).came);
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let expiry = self.arriving.iter().map(|arriving| arriving.since + ARRIVE_WITHIN).min();
            let until = [deadline, expiry].into_iter().flatten().min();
            let limit = until
                .map(|until| until.saturating_duration_since(now) + Duration::from_millis(1))
                .map(|left| Timespec {
                    tv_sec: left.as_secs().cast_signed().min(3600),
                    tv_nsec: i64::from(left.subsec_nanos()),
                });
            let mut fds = vec![PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
            fds.extend(
                self.arriving.iter().map(|one| PollFd::from_borrowed_fd(one.stream.as_fd(), PollFlags::IN)),
            );
            match poll(&mut fds, limit.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    if self.arriving.len() == MAX_ARRIVING {
                        self.arriving.remove(0);
                    }
                    if stream.set_nonblocking(true).is_ok() {
                        let (bytes, since) = ([0; HELLO], Instant::now());
                        self.arriving.push(Arriving { stream, bytes, filled: 0, since });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // Of a connection that has gone again.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads what has come on connections that have not said their hello.
    fn hear(&mut self) {
        for mut arriving in std::mem::take(&mut self.arriving) {
            match arriving.stream.read(&mut arriving.bytes[arriving.filled..]) {
                Ok(0) => continue,
                Ok(n) => arriving.filled += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.arriving.push(arriving);
                    continue;
                }
                Err(_) => continue,
            }
            let heard = Hello::decode(&arriving.bytes);
            match heard {
                // Other programs may say less than a hello, and wait.
                Err(foreign)
                    if arriving.filled == HELLO
                        || arriving.filled >= 10 && !matches!(foreign, Foreign::Invalid(_)) =>
                {
                    let bytes = refusal(libc::EPROTO, &foreign.to_string());
                    // It fits into the socket, or nobody reads it.
                    let _ = arriving.stream.write(&bytes);
                }
                Ok(hello) if arriving.filled == HELLO => self.join(hello, arriving),
                _ => self.arriving.push(arriving),
            }
        }
    }

    fn join(&mut self, hello: Hello, arriving: Arriving) {
        let Ok(wire) = Socket::tcp(arriving.stream) else { return };
        let wire: Box<dyn Wire> = Box::new(wire);
        let most = usize::from(hello.connections);
        match self.groups.iter_mut().find(|group| group.came[0].0.channel == hello.channel) {
            Some(group) if group.came.len() < most => group.came.push((hello, wire)),
            Some(_) => {}
            None => {
                if self.groups.len() == MAX_STREAMS {
                    self.groups.remove(0);
                }
                self.groups.push(Group { since: arriving.since, came: vec![(hello, wire)] });
            }
        }
    }
}
