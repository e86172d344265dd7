//! The tasks of the two ends of a measurement.

use clap::ValueEnum;
use gpunet_bench_kernel::{Ends, GroupKind};
use gpunet_device::{SockAddr, TransportKind};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// The work of both ends.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Work {
    /// The client measures round trips.
    Echo { size: u64, rounds: u64 },
    /// Each client sends `bytes` to its server, or the other way round, or both.
    Flow(Flow),
    /// Verified streams in both directions.
    Duplex { pairs: u32, ring: u64, message: u64, bytes: u64, rounds: u64 },
}

/// Bytes at full speed.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Flow {
    /// Pairs of blocks.
    pub pairs: u32,
    /// Streams of each pair, which take turns.
    pub connections: u32,
    pub ring: u64,
    pub message: u64,
    /// Bytes of each pair.
    pub bytes: u64,
    pub direction: Direction,
    pub how: How,
}

/// How messages of a flow get into the ring. The numbers are the kernel's.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub enum How {
    /// Each message is copied.
    #[default]
    Copies = 0,
    /// Messages are written and read in the rings, without a copy.
    InPlace = 1,
    /// Each message is copied, and marked as one that more will follow.
    More = 2,
}

/// Which ends of a flow send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum Direction {
    #[default]
    ToServer = 1,
    ToClient = 0,
    /// Even pairs to the server, odd pairs to the client.
    Both = 2,
}

impl Work {
    /// Returns the outcomes among the words that one end has left; none if its other words are more
    /// informative.
    pub fn outcomes(&self, serves: bool, words: &[u64]) -> Vec<u64> {
        match self {
            Self::Echo { .. } => words.iter().copied().skip(usize::from(!serves)).take(1).collect(),
            Self::Flow(_) => words.chunks_exact(4).map(|block| block[0]).collect(),
            Self::Duplex { .. } => Vec::new(),
        }
    }
}

/// What carries a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
pub enum Transport {
    Peer,
    Tcp,
    Rc,
}

impl Transport {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Tcp => "tcp",
            Self::Rc => "rc",
        }
    }

    pub const fn kind(self) -> TransportKind {
        match self {
            Self::Peer => TransportKind::Peer,
            Self::Tcp => TransportKind::Tcp,
            Self::Rc => TransportKind::Rc,
        }
    }
}

/// The program that plays an end, and its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum EndpointKind {
    /// A kernel with sockets of gpunet.
    Gpunet(Transport),
    /// A thread with a TCP socket; it spins on it, or blocks.
    Tcp { spin: bool },
    /// The same with a Unix-domain socket.
    Unix { spin: bool },
}

impl EndpointKind {
    /// Returns what carries the bytes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpunet(transport) => transport.name(),
            Self::Tcp { .. } => "plain TCP",
            Self::Unix { .. } => "Unix socket",
        }
    }
}

/// The threads of a block that use a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
pub enum Cooperation {
    #[default]
    Block,
    Warp,
    Thread,
}

impl Cooperation {
    pub const fn kind(self) -> GroupKind {
        match self {
            Self::Block => GroupKind::Block,
            Self::Warp => GroupKind::Warp,
            Self::Thread => GroupKind::Thread,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Warp => "warp",
            Self::Thread => "thread",
        }
    }
}

/// Threads per block, and which of them use the stream.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct BlockShape {
    pub threads: u32,
    pub group: Cooperation,
}

impl BlockShape {
    /// The shape if there is only one choice.
    pub const ONE: Self = Self { threads: 1, group: Cooperation::Block };
}

/// The work of one end.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Task {
    pub work: Work,
    pub kind: EndpointKind,
    /// Which ends of the pairs it runs.
    pub side: Side,
    /// Where the first pair meets; the port is also part of a Unix socket's name.
    pub addr: SocketAddr,
    /// The shape of blocks on a GPU.
    pub shape: BlockShape,
    /// A number that tells apart programs that run at the same time.
    pub run: u32,
}

/// The ends of pairs that a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Side {
    Server,
    Client,
    Both,
}

impl Side {
    /// The same for a kernel.
    pub const fn ends(self) -> Ends {
        match self {
            Self::Server => Ends::Servers,
            Self::Client => Ends::Clients,
            Self::Both => Ends::Both,
        }
    }
}

impl Task {
    /// The first address, for a kernel.
    pub fn sock_addr(&self) -> SockAddr {
        SockAddr::from(self.addr)
    }
}

/// Assigns each piece of work ports of its own.
#[derive(Debug)]
pub struct Ports {
    ip: IpAddr,
    next: u16,
}

/// Ports up to this lie below the ephemeral ports that Linux assigns.
const LAST: u16 = 31_500;
const FIRST: u16 = 20_000;
/// Distance between the first ports of processes with neighbouring ids: several may run at the same
/// time.
const APART: u32 = 40;

impl Ports {
    /// Ports of an address of this host.
    pub fn of(ip: IpAddr) -> Self {
        let places = u32::from(LAST - FIRST) / APART;
        Self { ip, next: FIRST + (std::process::id() % places * APART) as u16 }
    }

    /// Returns the first of `ports` ports in a row.
    pub fn take(&mut self, ports: u16) -> SocketAddr {
        let port = if self.next > LAST - ports { FIRST } else { self.next };
        self.next = port + ports;
        SocketAddr::new(self.ip, port)
    }
}
