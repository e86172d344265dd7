//! What a server does for its connections.

use crate::backlog::Backlogs;
use crate::bells::{Doorbell, LastAsked};
use crate::board::{Board, Connections, Counters, Log};
use crate::{Bell, Bells, Bytes, Carve, Reader, Roll, Writer};
use gpunet_device::{Group, Net, Result};

/// What a connection waits for after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More input. If some is left in the reader, it is the beginning of a request. After the end
    /// of the peer's stream ([`Reader::has_ended`]) it is as `Close`.
    Input,
    /// The rest of a request, of which the service has consumed the beginning. After the end it is
    /// as `Input`.
    Rest,
    /// Another call at once, for a service that consumes what comes in pieces: what it has consumed
    /// is released first, so that the peer sends on while the next piece is served. After four
    /// calls the other connections have their turns. With nothing left, and from a service that has
    /// consumed nothing, it is as `Input`.
    Again,
    /// Room in the writer: the service goes on when everything in the writer's buffer is sent. If
    /// nothing is left there and the ring has room, that is at once.
    Output,
    /// This time, by the device's clock ([`Context::now`]), or more input, whichever comes first.
    /// After the end of the peer's stream it is the time alone. A time that is over gives a turn
    /// after the other connections have had theirs.
    At(u64),
    /// Its bell ([`Turn::bell`]) alone. What comes meanwhile stays where it is, as
    /// does the end of the peer's stream: the next turn shows both. A connection that fails is
    /// closed at once.
    Bell,
    /// Nothing: the connection is closed once what is in the writer is sent.
    Close,
}

/// The launch's sockets and the time: what shared structures need.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The launch's sockets.
    pub net: Net,
    /// The time at the start of the turn, in nanoseconds of the device's clock; the same on all
    /// lanes.
    pub now: u64,
}

/// One turn of one connection.
///
/// Whatever the connection waits for, it has a turn when its bell was rung.
#[derive(Debug)]
pub struct Turn<'t, S: Service> {
    /// What has come.
    pub input: Reader<'t>,
    /// Where answers go.
    pub output: Writer<'t>,
    /// The connection's state: the service's default at first.
    pub state: &'t mut S::State,
    /// What all blocks share.
    pub shared: &'t S::Shared,
    /// Sockets and time.
    pub context: Context,
    /// The counters of this block.
    pub counters: &'t mut Counters,
    /// The log of this block.
    pub log: &'t mut Log,
    /// How many connections all blocks have.
    pub connections: Connections,
    /// For who is to have a turn, or to work.
    pub bells: &'t Bells,
    /// All connections, if the service has them on a roll ([`Service::HAS_ROLL`]).
    pub roll: &'t Roll,
    /// The place of this one: among those of all blocks.
    pub(crate) place: usize,
    pub(crate) rings: &'t mut bool,
    /// The memory that the host has given the server (`start_with_data` of `gpunet-serve-host`).
    pub data: Bytes<'t>,
    /// The memory for answers that wait.
    pub backlogs: &'t Backlogs,
    /// The time at the start of the turn in nanoseconds since 1970: by the host's clock at the
    /// launch, and the device's from then on.
    pub unix_ns: u64,
}

impl<S: Service> Turn<'_, S> {
    /// The connection's row in [`Turn::roll`].
    #[must_use]
    pub const fn place(&self) -> usize {
        self.place
    }

    /// The connection's bell, to be given away: to a worker, to other connections, to the host. Who
    /// rings it gives the connection a turn.
    #[must_use]
    pub fn bell(&mut self) -> Bell {
        *self.rings = true;
        self.bells.bell(self.place)
    }
}

/// What a worker is given: a block that serves no connections ([`Service::work`]).
#[derive(Debug)]
pub struct Worker<'w, S: Service> {
    /// What all blocks share.
    pub shared: &'w S::Shared,
    /// Sockets, and the time of the last [`Worker::wait`].
    pub context: Context,
    /// For who is to have a turn.
    pub bells: Bells,
    /// The memory that the host has given the server.
    pub data: Bytes<'w>,
    /// The counters of this block.
    pub counters: Counters,
    /// The log of this block.
    pub log: Log,
    pub(crate) number: u32,
    pub(crate) doorbell: Doorbell,
    pub(crate) last_asked: LastAsked,
    /// When it checks next whether the server or the launch ends.
    pub(crate) check_at: u64,
    pub(crate) connections: Connections,
    pub(crate) board: Board,
    pub(crate) published: Counters,
    pub(crate) grace_ns: u64,
    /// When it ends whatever connections there are; 0: the server does not end yet.
    pub(crate) end_at: u64,
}

/// A server: what is done with the bytes of a connection.
///
/// The value is part of the kernel's parameters: plain data, in a `#[repr(C)]` structure with a
/// field at least and without padding, for settings. Each block has a copy of its own.
///
/// # Examples
///
/// An echo server:
///
/// ```
/// use gpunet_device::{Group, Result};
/// use gpunet_serve::{Carve, Next, Service, Turn};
///
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Echo {
///     longest: u64,
/// }
///
/// impl Service for Echo {
///     const ENTRY: &'static str = "echo";
///     type State = ();
///     type Shared = ();
///
///     fn shared(&self, _: &mut Carve) {}
///
///     fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
///         while turn.output.make_room(g, self.longest as usize + 1)? {
///             match turn.input.line(self.longest as usize) {
///                 Ok(Some(line)) => {
///                     turn.output.put(g, line);
///                     turn.output.put(g, b"\n");
///                 }
///                 Ok(None) => return Ok(Next::Input),
///                 Err(_) => return Ok(Next::Close),
///             }
///         }
///         Ok(Next::Output)
///     }
/// }
/// ```
pub trait Service: Copy + Send + 'static {
    /// The name of the PTX entry.
    const ENTRY: &'static str;
    /// What a connection keeps from one turn to the next: plain data. Each lane has a copy, and all
    /// copies are equal; aligned to 16 bytes at most.
    ///
    /// What owns something cannot be copied for each lane, and does not compile:
    ///
    /// ```compile_fail,E0277
    /// # use gpunet_device::{Group, Result};
    /// # use gpunet_serve::{Carve, Next, Service, Turn};
    /// # #[derive(Clone, Copy)]
    /// # struct Collector;
    /// impl Service for Collector {
    ///     const ENTRY: &'static str = "collector";
    ///     type State = Vec<u8>;
    /// #   type Shared = ();
    /// #   fn shared(&self, _: &mut Carve) {}
    /// #   fn serve<G: Group>(&mut self, _: &G, _: &mut Turn<'_, Self>) -> Result<Next> {
    /// #       Ok(Next::Input)
    /// #   }
    /// }
    /// ```
    type State: Copy + Default + Send + 'static;
    /// What all blocks share: [`crate::Map`], [`crate::Shared`] and so on.
    type Shared: Copy;

    /// Makes the shared structures. It depends on the service's settings only: each block calls it
    /// and gets the same.
    fn shared(&self, carve: &mut Carve) -> Self::Shared;

    /// Takes requests from the input and puts answers into the output, for one connection.
    ///
    /// It waits for nothing: what is not complete it leaves.
    ///
    /// # Cooperation
    /// All lanes of the block call it and return the same.
    ///
    /// # Errors
    /// The connection is closed at once.
    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next>;

    /// How many blocks of the launch, the last ones, serve no connections: each calls
    /// [`Service::work`] instead. It depends on the service's settings only.
    fn workers(&self) -> u32 {
        0
    }

    /// What a worker does: a loop that takes work from queues ([`crate::WorkQueue`]), and rings
    /// for connections ([`Bells::ring`]) whose answers are there, until [`Worker::wait`] says that
    /// the server ends. No turn waits for it.
    ///
    /// # Cooperation
    /// All lanes of the block call it.
    ///
    /// # Errors
    /// The block ends, and [`Counters::ended`] tells why.
    fn work<G: Group>(&mut self, g: &G, worker: &mut Worker<'_, Self>) -> Result<()> {
        while worker.wait(g, u64::MAX)? {}
        Ok(())
    }

    /// Input of up to so many bytes is copied into the device's memory before a turn.
    ///
    /// Received bytes of a tcp stream lie in host memory. A GPU keeps what it has loaded from there
    /// only until its next acquire: each lock that a turn takes costs a way over the bus again, 1
    /// to 4 us, if the request is read behind it. 0, the default, is right for services that read
    /// their input once, or send it on.
    const COPIED_INPUT: usize = 0;

    /// All connections are on a roll ([`Turn::roll`]), which any of them can read. It costs a store
    /// a turn.
    const HAS_ROLL: bool = false;

    /// Blocks that serve connections call [`Service::help`] when another block has rung for them
    /// ([`Bells::ring_blocks`]).
    const HELPS: bool = false;

    /// Takes a share of work that another block has put out for all, between the turns of
    /// connections. Returns whether there may be more: on a GPU it is called again then, after
    /// connections that have become ready had their turns.
    ///
    /// It waits for nothing.
    ///
    /// # Cooperation
    /// As [`Service::serve`].
    ///
    /// # Errors
    /// The launch is over.
    fn help<G: Group>(&mut self, g: &G, shared: &Self::Shared, context: &Context) -> Result<bool> {
        let _ = (g, shared, context);
        Ok(false)
    }

    /// Gives back what a connection's state holds, after the connection has ended.
    ///
    /// # Cooperation
    /// As [`Service::serve`].
    fn closed<G: Group>(&mut self, g: &G, state: Self::State, shared: &Self::Shared, context: &Context) {
        let _ = (g, state, shared, context);
    }
}
