//! The state of a daemon's clients and sockets at one moment: what `gpunetctl` prints and the
//! metrics count.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A daemon at one moment.
///
/// # Examples
/// ```
/// # let proxy = gpunet_proxy::embed(gpunet_proxy::Config::small())?;
/// let snapshot = proxy.snapshot()?;
/// println!("{} clients, {} bytes sent over TCP", snapshot.clients.len(), snapshot.totals.tcp.sent);
/// for socket in &snapshot.sockets {
///     println!("{:?} -> {:?}: {}", socket.local, socket.peer, socket.state.name());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of these structures: [`Snapshot::VERSION`].
    pub version: u32,
    /// The daemon's process.
    pub pid: u32,
    /// How long it has been running, milliseconds.
    pub uptime_ms: u64,
    /// Sums over the daemon's life, including clients and sockets that are gone: they never
    /// decrease.
    pub totals: Totals,
    /// Its clients: one for each device of each process.
    pub clients: Vec<Client>,
    /// Their sockets.
    pub sockets: Vec<Socket>,
    /// Its data threads.
    #[serde(default)]
    pub threads: Vec<Thread>,
    /// What blocks of running kernels wait for, by client, launch and block.
    #[serde(default)]
    pub waits: Vec<Wait>,
}

impl Snapshot {
    /// The version of these structures. Fields that are added do not change it.
    pub const VERSION: u32 = 1;
}

/// Sums over the daemon's life.
///
/// # Examples
/// ```
/// use gpunet_proxy::snapshot::Totals;
///
/// fn open_streams(totals: &Totals) -> u64 {
///     totals.opened - totals.closed
/// }
/// # assert_eq!(open_streams(&Totals::default()), 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Streams opened.
    pub opened: u64,
    /// Streams closed and forgotten.
    pub closed: u64,
    /// Bytes that a send accepted and that did not reach the peer's side.
    pub undelivered: u64,
    /// Bytes over TCP.
    pub tcp: Carried,
    /// Bytes between two sockets of this host, through memory. Each byte counts once as sent and
    /// once as received, as it does over the other transports between two sockets of this daemon.
    pub peer: Carried,
    /// Bytes over RDMA.
    pub rc: Carried,
}

/// Bytes that a transport carried.
///
/// # Examples
/// ```
/// use gpunet_proxy::snapshot::{Carried, Totals};
///
/// let Totals { tcp: Carried { sent, received }, .. } = Totals::default();
/// println!("TCP: {sent} bytes sent, {received} received");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Carried {
    /// Bytes from the devices.
    pub sent: u64,
    /// Bytes to the devices.
    pub received: u64,
}

/// One device of one process.
///
/// # Examples
/// ```
/// use gpunet_proxy::snapshot::{Client, Snapshot};
///
/// /// The client that uses most ring memory.
/// fn largest(snapshot: &Snapshot) -> Option<&Client> {
///     snapshot.clients.iter().max_by_key(|client| client.ring_bytes_used)
/// }
/// # assert_eq!(largest(&Snapshot::default()), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// The daemon's number of it, which is never reused.
    pub id: u32,
    /// The process id; 0 if the daemon does not see the process.
    pub pid: u32,
    /// The process's user.
    pub uid: u32,
    /// The process's name.
    pub command: String,
    /// "cpu", or the GPU's name.
    pub device: String,
    /// How long it has been attached, milliseconds.
    pub since_ms: u64,
    /// Socket slots in use: listeners, streams, streams that are still being closed.
    pub sockets: u32,
    /// Ring memory, bytes.
    pub ring_bytes: u64,
    /// Ring memory in use, bytes.
    pub ring_bytes_used: u64,
    /// Streams opened so far.
    pub opened: u64,
    /// Streams closed and forgotten so far.
    pub closed: u64,
    /// Bytes that a send accepted and that did not reach the peer's side.
    pub undelivered: u64,
}

/// One socket.
///
/// # Examples
/// ```
/// use gpunet_proxy::snapshot::{Snapshot, Socket};
///
/// /// Sockets whose device does not read.
/// fn stuck(snapshot: &Snapshot) -> impl Iterator<Item = &Socket> {
///     snapshot.sockets.iter().filter(|socket| socket.recv_capacity > 0 && socket.recv_queue == socket.recv_capacity)
/// }
/// # assert_eq!(stuck(&Snapshot::default()).count(), 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// [`Client::id`] of its owner.
    pub client: u32,
    /// Its slot in the owner's table.
    pub slot: u32,
    /// Which socket of that slot it is.
    pub generation: u32,
    /// What it is doing.
    pub state: State,
    /// What carries its bytes.
    pub transport: Transport,
    /// Where its rings lie.
    pub placement: Placement,
    /// Its address, if it is bound.
    pub local: Option<SocketAddr>,
    /// The peer's address, if it has one.
    pub peer: Option<SocketAddr>,
    /// Bytes sent, in all: taken by the network.
    pub sent: u64,
    /// Bytes received, in all: landed in the ring.
    pub received: u64,
    /// Messages that it has sent in a line, too, as its device has shown last. Of a peer stream.
    #[serde(default)]
    pub lines_sent: u64,
    /// Bytes accepted from the device and not yet taken by the network.
    pub send_queue: u64,
    /// Bytes taken by the network and not acknowledged by the peer.
    pub in_flight: u64,
    /// Bytes landed and not consumed by the device.
    pub recv_queue: u64,
    /// Size of the send ring, bytes.
    pub send_capacity: u64,
    /// Size of the receive ring, bytes.
    pub recv_capacity: u64,
    /// A listener's connections that wait for an accept.
    pub waiting: u64,
    /// How long it has existed, milliseconds.
    pub age_ms: u64,
    /// The host program has opened it.
    #[serde(default)]
    pub host: bool,
    /// The host program has taken its sending direction from the kernels, by its own account.
    #[serde(default)]
    pub send_taken: bool,
    /// The same of its receiving direction.
    #[serde(default)]
    pub recv_taken: bool,
}

/// One data thread.
///
/// # Examples
/// ```
/// use gpunet_proxy::snapshot::{Snapshot, Thread};
///
/// /// The share of its time, of 1, that a thread has worked.
/// fn load(snapshot: &Snapshot, thread: &Thread) -> f64 {
///     thread.busy_ns as f64 / 1e6 / snapshot.uptime_ms as f64
/// }
/// # let snapshot = Snapshot { uptime_ms: 10, ..Snapshot::default() };
/// # assert_eq!(load(&snapshot, &Thread { index: 0, streams: 1, busy_ns: 5_000_000 }), 0.5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number, from 0: the thread's name ends with it.
    pub index: u32,
    /// Streams whose bytes it moves, those that are still being closed included.
    pub streams: u32,
    /// How long it has worked so far, nanoseconds: the time of its turns that did something.
    pub busy_ns: u64,
}

/// A block that waits, or a group of it. Blocks show a wait that has lasted 20 us, and then each
/// millisecond.
///
/// Blocks whose numbers have the same lowest eight bits share a place, and so do the groups of a
/// block: of those, the one is here that stored last.
///
/// # Examples
/// ```
/// use gpunet_proxy::snapshot::{Snapshot, Wait};
///
/// /// The block that has waited longest.
/// fn stalled(snapshot: &Snapshot) -> Option<&Wait> {
///     snapshot.waits.iter().max_by_key(|wait| wait.waited_us)
/// }
/// # assert_eq!(stalled(&Snapshot::default()), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// [`Client::id`] of its device.
    pub client: u32,
    /// The launch's number, from 0 to 63.
    pub launch: u32,
    /// The block's number in its launch, modulo 65,536.
    pub block: u32,
    /// What it has called: a name of [`gpunet_abi::waiting::Call`].
    pub call: String,
    /// The slot of the socket, if the call is on one: a [`Socket::slot`] of the client.
    pub slot: Option<u32>,
    /// How long it has waited, microseconds, to about a millisecond.
    pub waited_us: u64,
}

/// What a socket is doing.
///
/// # Examples
/// ```
/// use gpunet_proxy::snapshot::State;
///
/// assert_eq!(State::SendClosed.name(), "send_closed");
/// assert!(State::ALL.contains(&State::Listen));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Has an address, and neither listens nor connects.
    Bound,
    /// Takes connections.
    Listen,
    /// Connects.
    Opening,
    /// Both directions are open.
    Established,
    /// This side has ended its stream.
    SendClosed,
    /// The peer has ended its stream.
    RecvClosed,
    /// Closed by the device; what it accepted is still being sent.
    Closing,
}

/// What carries a socket's bytes.
///
/// # Examples
/// ```
/// use gpunet_proxy::snapshot::Transport;
///
/// let names: Vec<_> = Transport::ALL.iter().map(|transport| transport.name()).collect();
/// assert_eq!(names, ["none", "tcp", "peer", "rc"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Nothing yet, or it is a listener.
    None,
    /// TCP.
    Tcp,
    /// Memory of this host.
    Peer,
    /// RDMA.
    Rc,
}

/// Where a socket's rings lie.
///
/// # Examples
/// ```
/// use gpunet_proxy::snapshot::Placement;
///
/// assert_eq!(Placement::Pinned.name(), "pinned");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// It has none.
    None,
    /// Pinned host memory.
    Pinned,
    /// The memory of the one GPU that uses them.
    Device,
    /// The receiving GPU's memory, mapped by the sending one.
    P2p,
}

macro_rules! names {
    ($type:ident: $($name:ident = $text:literal),*) => {
        impl $type {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name in tables and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text),*
                }
            }
        }
    };
}

names!(State: Bound = "bound", Listen = "listen", Opening = "opening", Established = "established",
    SendClosed = "send_closed", RecvClosed = "recv_closed", Closing = "closing");
names!(Transport: None = "none", Tcp = "tcp", Peer = "peer", Rc = "rc");
names!(Placement: None = "none", Pinned = "pinned", Device = "device", P2p = "p2p");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for state in State::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
        for transport in Transport::ALL {
            assert_eq!(serde_json::to_value(transport).unwrap(), transport.name());
        }
        for placement in Placement::ALL {
            assert_eq!(serde_json::to_value(placement).unwrap(), placement.name());
        }
    }

    #[test]
    fn a_snapshot_comes_back() {
        let socket = Socket {
            client: 1,
            slot: 2,
            generation: 3,
            state: State::Established,
            transport: Transport::Tcp,
            placement: Placement::Pinned,
            local: Some("127.0.0.1:80".parse().unwrap()),
            peer: None,
            sent: 1,
            received: 2,
            lines_sent: 10,
            send_queue: 3,
            in_flight: 4,
            recv_queue: 5,
            send_capacity: 6,
            recv_capacity: 7,
            waiting: 8,
            age_ms: 9,
            host: true,
            send_taken: false,
            recv_taken: true,
        };
        let snapshot = Snapshot { version: Snapshot::VERSION, sockets: vec![socket], ..Snapshot::default() };
        let text = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    }
}
