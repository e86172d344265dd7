//! What the two ends of a measurement are told to do.

use gpunet_bench_kernel::Ends;
use serde::{Deserialize, Serialize};

/// What both ends do together.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Work {
    /// The client measures round trips.
    Echo { size: u64, rounds: u64 },
    /// Each client sends `bytes`, each server receives them.
    Flow { pairs: u32, ring: u64, message: u64, bytes: u64 },
    /// Verified streams both ways.
    Duplex { pairs: u32, ring: u64, message: u64, bytes: u64, rounds: u64 },
    /// As `Echo`, by plain threads over a Unix-domain socket.
    UnixEcho { spin: bool, size: u64, rounds: u64 },
    /// As `Flow`, by plain threads over a Unix-domain socket.
    UnixFlow { message: u64, bytes: u64 },
}

impl Work {
    /// The outcomes among the words that one end has left; none where the words behind them say more.
    pub fn outcomes(&self, serves: bool, words: &[u64]) -> Vec<u64> {
        match self {
            Self::Echo { .. } => words.iter().copied().skip(usize::from(!serves)).take(1).collect(),
            Self::Flow { .. } => words.chunks_exact(4).map(|block| block[0]).collect(),
            Self::Duplex { .. } | Self::UnixEcho { .. } | Self::UnixFlow { .. } => Vec::new(),
        }
    }
}

/// What one end does.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Task {
    pub work: Work,
    /// This end listens.
    pub serves: bool,
    /// First port, or the number of a Unix socket's name.
    pub port: u16,
    /// Threads per block, on a GPU.
    pub threads: u32,
    /// Tells apart what several programs on a machine do at a time.
    pub run: u32,
}

impl Task {
    /// The end as kernels know it.
    pub fn ends(&self) -> Ends {
        if self.serves { Ends::Servers } else { Ends::Clients }
    }
}

/// Gives each piece of work ports of its own.
#[derive(Debug)]
pub struct Ports {
    next: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self { next: 23_000 }
    }
}

impl Ports {
    /// The tasks of the server and of the client.
    pub fn tasks(&mut self, work: &Work, threads: u32) -> [Task; 2] {
        let port = self.next;
        self.next = if port > 30_000 { 23_000 } else { port + 64 };
        let run = std::process::id();
        [true, false].map(|serves| Task { work: work.clone(), serves, port, threads, run })
    }
}
