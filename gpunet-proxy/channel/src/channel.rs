//! Channels: both halves, and how they are opened.

use crate::array::{Array, ArrayMut, Received, ReceivedOnGpu};
use crate::error::{ChannelError, Reason};
use crate::handshake::{self, Foreign, HELLO, Hello, MAX_STREAMS, refusal};
use crate::local::{Identity, Local, random};
use crate::receiver::{Incoming, ReceivePipeline, Receiver};
use crate::sender::{Pipeline, Sender};
use crate::shared::{ChannelOptions, Ender, Outcome, Shared, TransferOptions};
use crate::wire::{Hosted, ReadAhead, Socket, Wire, Wires, lost, read_exact, write_all};
use gpu_usermap::cuda::Device;
use gpunet_proxy::host::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long opening a channel may take, unless a timeout is set.
const OPEN_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may take to say its hello, and a channel's to come.
const ARRIVE_WITHIN: Duration = Duration::from_secs(5);
/// The most connections that have not become a channel. A further one replaces the oldest.
const MAX_ARRIVING: usize = 4 * (MAX_STREAMS + 1);

/// Both halves of a channel. Transfers of the two directions go on at once: [`split`](Self::split)
/// gives each to a thread.
///
/// # Examples
/// ```
/// use gpunet_channel::{Array, Channel, ChannelListener, ChannelOptions};
///
/// let options = ChannelOptions::default();
/// let listener = ChannelListener::bind("127.0.0.1:0".parse()?, &options)?;
/// let addr = listener.local_addr()?;
/// let echo = std::thread::spawn(move || -> Result<(), gpunet_channel::ChannelError> {
///     let mut channel = listener.accept()?;
///     while let Some(arrays) = channel.recv()? {
///         channel.send(&Array::of(&arrays[0].bytes))?;
///     }
///     Ok(())
/// });
/// let mut channel = Channel::connect(addr, &options)?;
/// channel.send(&Array::of(&[7u8; 100]))?;
/// assert_eq!(channel.recv()?.expect("an echo")[0].bytes, [7; 100]);
/// drop(channel);
/// echo.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
    local: Option<Reason>,
}

/// Which end of connections that are there already this is.
///
/// # Examples
/// ```
/// assert_ne!(gpunet_channel::Side::Connects, gpunet_channel::Side::Accepts);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It has opened them.
    Connects,
    /// It has accepted them.
    Accepts,
}

impl Channel {
    /// Connects to a [`ChannelListener`], over TCP.
    ///
    /// # Errors
    /// [`ChannelError::Failed`] with the system's errno, [`ChannelError::Refused`] with the
    /// sentence of the other end, [`ChannelError::Protocol`]: the other end is no channel.
    pub fn connect(addr: impl ToSocketAddrs, options: &ChannelOptions) -> Result<Self, ChannelError> {
        Self::connect_until(addr, options, Instant::now() + options.timeout.unwrap_or(OPEN_WITHIN))
    }

    /// As [`connect`](Self::connect), but until `deadline`, whatever the channel's timeout is.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_until(
        addr: impl ToSocketAddrs,
        options: &ChannelOptions,
        deadline: Instant,
    ) -> Result<Self, ChannelError> {
        let opening = |error| ChannelError::failed("connecting", error);
        let addrs: Vec<SocketAddr> = addr.to_socket_addrs().map_err(opening)?.collect();
        let mut wires: Vec<Box<dyn Wire>> = Vec::new();
        for _ in 0..=streams(options)? {
            let stream = dial(&addrs, deadline).map_err(opening)?;
            wires.push(Box::new(Socket::tcp(stream).map_err(opening)?));
        }
        Self::over(wires, Side::Connects, options, Some(deadline))
    }

    /// Makes a channel of streams that are connected already, over whatever transport: the same
    /// ones at both ends, in any order, one of which carries answers.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); [`ChannelError::Invalid`] for fewer than two streams.
    pub fn of_streams(
        streams: Vec<Stream>,
        side: Side,
        options: &ChannelOptions,
    ) -> Result<Self, ChannelError> {
        if !(2..=MAX_STREAMS + 1).contains(&streams.len()) {
            return Err(ChannelError::Invalid("a channel has 2 to 65 streams".into()));
        }
        let deadline = Instant::now() + options.timeout.unwrap_or(OPEN_WITHIN);
        let wires =
            streams.into_iter().map(|stream| Box::new(Hosted::new(stream)) as Box<dyn Wire>).collect();
        Self::over(wires, side, options, Some(deadline))
    }

    fn over(
        wires: Vec<Box<dyn Wire>>,
        side: Side,
        options: &ChannelOptions,
        deadline: Option<Instant>,
    ) -> Result<Self, ChannelError> {
        match side {
            Side::Connects => {
                let own = own_hello(wires.len(), options)?;
                Ok(Self::made(handshake::connect(wires, &own, deadline)?, options))
            }
            Side::Accepts => {
                let mut came = Vec::with_capacity(wires.len());
                for wire in wires {
                    let mut bytes = [0; HELLO];
                    read_exact(wire.as_ref(), &mut bytes, deadline)
                        .map_err(|error| lost("accepting a channel", error))?;
                    match Hello::decode(&bytes) {
                        Ok(hello) => came.push((hello, wire)),
                        Err(foreign) => return Err(turn_away(wire.as_ref(), &foreign)),
                    }
                }
                if !is_whole(&came) {
                    let foreign = Foreign::Invalid("the connections are not all of one channel");
                    return Err(turn_away(came[0].1.as_ref(), &foreign));
                }
                let own = own_hello(came.len(), options)?;
                Ok(Self::made(handshake::accept(came, own, deadline)?, options))
            }
        }
    }

    fn made(
        (mut wires, local): (Vec<Box<dyn Wire>>, Result<Local, Reason>),
        options: &ChannelOptions,
    ) -> Self {
        let reason = local.as_ref().err().copied();
        let headers = wires.remove(0);
        wires.insert(0, Box::new(ReadAhead::new(headers)));
        let shared = Arc::new(Shared { wires: Wires::new(wires), local, options: options.clone() });
        Self { sender: Sender::new(shared.clone()), receiver: Receiver::new(shared), local: reason }
    }

    /// Gives each half to somebody.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// Returns what ends the channel from another thread.
    #[must_use]
    pub fn ender(&self) -> Ender {
        Ender(Arc::downgrade(self.receiver.shared()))
    }

    /// Returns why the two ends do not read each other's memory; `None` if they can.
    #[must_use]
    pub fn why_not_local(&self) -> Option<Reason> {
        self.local
    }

    /// See [`Sender::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&mut self, array: &Array<'_>) -> Result<Outcome, ChannelError> {
        self.sender.send(array)
    }

    /// See [`Sender::send_all`].
    ///
    /// # Errors
    /// As there.
    pub fn send_all(
        &mut self,
        arrays: &[Array<'_>],
        options: &TransferOptions<'_>,
    ) -> Result<Outcome, ChannelError> {
        self.sender.send_all(arrays, options)
    }

    /// See [`Receiver::recv`].
    ///
    /// # Errors
    /// As there.
    pub fn recv(&mut self) -> Result<Option<Vec<Received>>, ChannelError> {
        self.receiver.recv()
    }

    /// See [`Sender::pipeline`].
    pub fn pipeline<'a>(&mut self, most: usize) -> Pipeline<'_, 'a> {
        self.sender.pipeline(most)
    }

    /// See [`Receiver::pipeline`].
    pub fn receive_pipeline<'a>(&mut self, most: usize) -> ReceivePipeline<'_, 'a> {
        self.receiver.pipeline(most)
    }

    /// See [`Receiver::recv_on`].
    ///
    /// # Errors
    /// As there.
    pub fn recv_on(&mut self, device: &Device) -> Result<Option<Vec<ReceivedOnGpu>>, ChannelError> {
        self.receiver.recv_on(device)
    }

    /// See [`Receiver::recv_into`].
    ///
    /// # Errors
    /// As there.
    pub fn recv_into(&mut self, array: &mut ArrayMut<'_>) -> Result<Outcome, ChannelError> {
        self.receiver.recv_into(array)
    }

    /// See [`Receiver::next`].
    ///
    /// # Errors
    /// As there.
    #[allow(clippy::should_implement_trait, reason = "what it returns borrows the channel")]
    pub fn next(&mut self) -> Result<Option<Incoming<'_>>, ChannelError> {
        self.receiver.next()
    }
}

fn streams(options: &ChannelOptions) -> Result<usize, ChannelError> {
    if !(1..=MAX_STREAMS).contains(&options.streams) {
        return Err(ChannelError::Invalid(format!(
            "{} connections, where 1 to 64 are possible",
            options.streams
        )));
    }
    if !(4096..=64 << 20).contains(&options.piece) {
        return Err(ChannelError::Invalid(format!(
            "pieces of {} bytes, not of 4 KiB to 64 MiB",
            options.piece
        )));
    }
    Ok(options.streams)
}

fn dial(addrs: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for addr in addrs {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(addr, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn own_hello(connections: usize, options: &ChannelOptions) -> Result<Hello, ChannelError> {
    let opening = |error| ChannelError::failed("opening a channel", error);
    Ok(Hello {
        connections: connections as u16,
        index: 0,
        status: 0,
        channel: random().map_err(opening)?,
        identity: Identity::of_this_process().map_err(opening)?,
        door: [0; 16],
        shares: options.rendezvous,
        text: String::new(),
    })
}

/// Tells a connection why it is none of a channel.
fn turn_away(wire: &dyn Wire, foreign: &Foreign) -> ChannelError {
    let bytes = refusal(libc::EPROTO, &foreign.to_string());
    let _ = write_all(wire, &mut [IoSlice::new(&bytes)], Some(Instant::now() + Duration::from_secs(1)));
    ChannelError::Protocol(foreign.to_string())
}

/// Whether these are all connections of one channel.
fn is_whole(came: &[(Hello, Box<dyn Wire>)]) -> bool {
    let first = &came[0].0;
    let mut indexes: Vec<u16> = came.iter().map(|(hello, _)| hello.index).collect();
    indexes.sort_unstable();
    indexes.iter().copied().eq(0..first.connections)
        && came.iter().all(|(hello, _)| Hello { index: first.index, ..hello.clone() } == *first)
}

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
