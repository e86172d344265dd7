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
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long opening a channel may take, unless a timeout is set.
const OPEN_WITHIN: Duration = Duration::from_secs(10);

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
    /// Connects to a [`ChannelListener`](crate::ChannelListener), over TCP.
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
    /// ones at both ends, in any order, one of which carries answers. Nothing is under way on them.
    /// Both ends call it at the same time. It blocks: asynchronous code calls it by
    /// `spawn_blocking`.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect); [`ChannelError::Invalid`] for fewer than two streams, or
    /// settings that cannot be. The streams are closed.
    ///
    /// # Examples
    /// A server that accepts the streams of one client:
    /// ```no_run
    /// use gpunet_channel::{Channel, ChannelError, ChannelOptions, Side};
    /// use gpunet_proxy::host::Listener;
    ///
    /// # async fn example(listener: &Listener) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut streams = Vec::new();
    /// for _ in 0..3 {
    ///     let (stream, _from) = listener.accept().await?;
    ///     streams.push(stream);
    /// }
    /// let serving = tokio::task::spawn_blocking(move || {
    ///     let mut channel = Channel::of_streams(streams, Side::Accepts, &ChannelOptions::default())?;
    ///     while let Some(arrays) = channel.recv()? {
    ///         println!("{} arrays", arrays.len());
    ///     }
    ///     Ok::<_, ChannelError>(())
    /// });
    /// serving.await??;
    /// # Ok(())
    /// # }
    /// ```
    pub fn of_streams(
        streams: Vec<Stream>,
        side: Side,
        options: &ChannelOptions,
    ) -> Result<Self, ChannelError> {
        if !(2..=MAX_STREAMS + 1).contains(&streams.len()) {
            let why = "streams: a channel has 2 to 65, one of which carries answers";
            return Err(ChannelError::Invalid(format!("{} {why}", streams.len())));
        }
        self::streams(options)?;
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
                        .map_err(|error| lost("waiting for the end that connects", error))?;
                    match Hello::decode(&bytes) {
                        Ok(hello) => came.push((hello, wire)),
                        Err(foreign) => return Err(turn_away(wire.as_ref(), &foreign)),
                    }
                }
                if !is_whole(&came) {
                    let foreign = Foreign::Invalid("the connections are not all of one channel");
                    for (_, wire) in &came {
                        turn_away(wire.as_ref(), &foreign);
                    }
                    return Err(ChannelError::Protocol(foreign.to_string()));
                }
                let own = own_hello(came.len(), options)?;
                Ok(Self::made(handshake::accept(came, own, deadline)?, options))
            }
        }
    }

    pub(crate) fn made(
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

pub(crate) fn streams(options: &ChannelOptions) -> Result<usize, ChannelError> {
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

pub(crate) fn own_hello(connections: usize, options: &ChannelOptions) -> Result<Hello, ChannelError> {
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
pub(crate) fn is_whole(came: &[(Hello, Box<dyn Wire>)]) -> bool {
    let first = &came[0].0;
    let mut indexes: Vec<u16> = came.iter().map(|(hello, _)| hello.index).collect();
    indexes.sort_unstable();
    indexes.iter().copied().eq(0..first.connections)
        && came.iter().all(|(hello, _)| Hello { index: first.index, ..hello.clone() } == *first)
}
