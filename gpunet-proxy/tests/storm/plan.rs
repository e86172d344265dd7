//! What the two ends of a connection say to each other, and what is random.

use crate::support::rng::Rng;
use gpunet_device::{Options, TransportKind};
use std::net::SocketAddr;
use std::path::Path;

/// More than any connection of a gpunet client carries.
pub const MOST: u64 = 3_000_000;
/// The longest piece that is sent at once.
pub const PIECE: usize = 32 << 10;

/// The byte at `position` of the stream `seed`: a shift by any distance shows.
fn byte(seed: u64, position: u64) -> u8 {
    (position.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8
}

/// Fills `bytes` with those from `position` of the stream `seed`.
pub fn fill(bytes: &mut [u8], seed: u64, position: u64) {
    for (i, to) in bytes.iter_mut().enumerate() {
        *to = byte(seed, position + i as u64);
    }
}

/// Where `bytes` are not those from `position` of the stream `seed`, if they are not.
pub fn differ(bytes: &[u8], seed: u64, position: u64) -> Option<usize> {
    bytes.iter().enumerate().position(|(i, &found)| found != byte(seed, position + i as u64))
}

/// What each end says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who says it.
    pub pid: u32,
    /// The server sends back what it gets, piece by piece; else both send what they have.
    pub echo: bool,
    pub seed: u64,
    /// Bytes from the client, and from the server.
    pub up: u64,
    pub down: u64,
}

impl Hello {
    pub const LEN: usize = 40;
    const MAGIC: u32 = 0x7374_6f72;

    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&Self::MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.pid.to_le_bytes());
        for (at, word) in [u64::from(self.echo), self.seed, self.up, self.down].into_iter().enumerate() {
            bytes[8 + 8 * at..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None`: that is no hello.
    pub fn of(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let echo = word(8);
        (half(0) == Self::MAGIC && echo < 2).then(|| Self {
            pid: half(4),
            echo: echo == 1,
            seed: word(16),
            up: word(24),
            down: word(32),
        })
    }

    /// The stream of each direction.
    pub const fn seeds(&self) -> (u64, u64) {
        (self.seed, !self.seed)
    }

    /// A connection of some kind, that carries less than `most` bytes each way.
    pub fn random(rng: &mut Rng, most: u64) -> Self {
        let length = |rng: &mut Rng| match rng.next() % 10 {
            0 => 0,
            1..=3 => rng.range(1, 5000) % most,
            4..=8 => rng.range(5000, 400_000) % most,
            _ => rng.range(400_000, 3_000_000) % most,
        };
        let echo = rng.chance(50);
        let up = length(rng);
        let down = if echo { up } else { length(rng) };
        Self { pid: std::process::id(), echo, seed: rng.next(), up, down }
    }
}

/// The options of some connection: both transports, rings of all sizes.
pub fn options(rng: &mut Rng) -> Options {
    let kind = [TransportKind::Peer, TransportKind::Peer, TransportKind::Tcp, TransportKind::Auto];
    let kind = kind[(rng.next() % 4) as usize];
    let ring = |rng: &mut Rng| 4096 << rng.range(0, 5);
    Options::DEFAULT.with_transport(kind).with_rings(ring(rng), ring(rng))
}

/// Somebody who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub pid: u32,
    pub addr: SocketAddr,
}

/// Says where this process listens.
pub fn publish(dir: &Path, addr: SocketAddr) {
    let name = std::process::id().to_string();
    let new = dir.join("new").join(&name);
    std::fs::write(&new, addr.to_string()).expect("written");
    std::fs::rename(&new, dir.join("servers").join(&name)).expect("renamed");
}

/// The others who listen.
pub fn targets(dir: &Path) -> Vec<Target> {
    let entries = std::fs::read_dir(dir.join("servers")).into_iter().flatten().flatten();
    let target = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let addr = std::fs::read_to_string(entry.path()).ok()?.parse().ok()?;
        (pid != std::process::id()).then_some(Target { pid, addr })
    };
    let mut targets: Vec<_> = entries.filter_map(target).collect();
    targets.sort_by_key(|target| target.pid);
    targets
}
