//! A running server.

use crate::{Counters, Error};
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::Registration;
use gpunet_proxy::{DeviceBuffer, FinishPolicy, Launch};
use gpunet_serve::{Bell, Board, HostBells};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take to end: after it was asked, in addition to its grace period, and
/// after it was cancelled.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// The memory that the kernel's addresses point to.
#[derive(Debug)]
pub(crate) struct Kept {
    // Dropped in this order: the registration before its region.
    #[expect(dead_code, reason = "kept for the kernel")]
    pub(crate) registration: Option<Registration>,
    /// Ringers keep it, too.
    pub(crate) board: Arc<PinnedRegion>,
    #[expect(dead_code, reason = "kept for the kernel")]
    pub(crate) memory: DeviceBuffer,
    #[expect(dead_code, reason = "kept for the kernel")]
    pub(crate) given: DeviceBuffer,
}

/// Rings the bells of a server's connections from the host program, on any thread and also from a
/// tokio task: it waits for nothing, and calls neither the proxy nor CUDA. After the server's end
/// it does nothing.
///
/// # Examples
///
/// ```
/// # use gpunet_serve_host::Running;
/// # fn example(server: &Running, given_away: u64) {
/// let ringer = server.ringer();
/// std::thread::spawn(move || ringer.ring(gpunet_serve::Bell::from_raw(given_away)));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Ringer {
    bells: HostBells,
    /// The memory of the words.
    _board: Arc<PinnedRegion>,
}

impl Ringer {
    /// Gives the connection that has given this bell away a turn.
    pub fn ring(&self, bell: Bell) {
        self.bells.ring(bell);
    }

    /// Wakes the server's workers.
    pub fn ring_workers(&self) {
        self.bells.ring_workers();
    }
}

/// A line of the log of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The block.
    pub block: u32,
    /// When it was written, in nanoseconds of the device's clock.
    pub time_ns: u64,
    /// The text.
    pub text: String,
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}: {}", self.block, self.text)
    }
}

/// A server whose kernel runs. Dropping it cancels the kernel.
#[derive(Debug)]
pub struct Running {
    /// Present until `stop` or `drop` takes both.
    parts: Option<(Launch, Kept)>,
    board: Board,
    ringer: Ringer,
    blocks: u32,
    addr: SocketAddr,
    /// The number of the next line of each block's log.
    next_lines: Vec<u64>,
}

impl Running {
    pub(crate) fn new(
        launch: Launch,
        kept: Kept,
        (board, bells): (Board, HostBells),
        blocks: u32,
        addr: SocketAddr,
    ) -> Self {
        let ringer = Ringer { bells, _board: kept.board.clone() };
        let next_lines = vec![0; blocks as usize];
        Self { parts: Some((launch, kept)), board, ringer, blocks, addr, next_lines }
    }

    pub(crate) const fn set_addr(&mut self, addr: SocketAddr) {
        self.addr = addr;
    }

    /// Returns the address where it listens, with the actual port.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns what rings the bells of its connections.
    #[must_use]
    pub fn ringer(&self) -> Ringer {
        self.ringer.clone()
    }

    /// Returns whether the kernel has ended by itself.
    ///
    /// # Errors
    /// The kernel has failed.
    pub fn is_finished(&self) -> Result<bool, Error> {
        Ok(match &self.parts {
            Some((launch, _)) => launch.is_finished()?,
            None => true,
        })
    }

    /// Returns the current counters of each block.
    #[must_use]
    pub fn counters(&self) -> Vec<Counters> {
        match self.parts {
            Some(_) => (0..self.blocks as usize).map(|block| self.board.counters(block)).collect(),
            None => Vec::new(),
        }
    }

    /// Returns the lines that blocks have written since the last call, those of each block in
    /// order. If a block writes faster than this is called, its oldest lines are lost.
    pub fn log(&mut self) -> Vec<LogLine> {
        let mut found = Vec::new();
        if self.parts.is_none() {
            return found;
        }
        for (block, next) in self.next_lines.iter_mut().enumerate() {
            let end = self.board.lines(block);
            for number in *next..end {
                if let Some((time_ns, text, len)) = self.board.line(block, number) {
                    let text = String::from_utf8_lossy(&text[..len]).into_owned();
                    found.push(LogLine { block: block as u32, time_ns, text });
                }
            }
            *next = end;
        }
        found
    }

    /// Ends the server gracefully: it stops accepting, answers the requests that have arrived, and
    /// closes its connections. Returns the counters of its blocks.
    ///
    /// # Errors
    /// It failed, or a block had ended before.
    pub fn stop(mut self) -> Result<Vec<Counters>, Error> {
        self.board.stop();
        let Some((launch, kept)) = self.parts.take() else { return Ok(Vec::new()) };
        if !launch.wait_timeout(ENDS_WITHIN)? {
            launch.cancel();
            if !launch.wait_timeout(ENDS_WITHIN)? {
                // The kernel may write there for as long as this process lives.
                std::mem::forget((launch, kept));
                return Err(Error::Stuck(ENDS_WITHIN));
            }
        }
        let counters: Vec<_> = (0..self.blocks as usize).map(|block| self.board.counters(block)).collect();
        launch.finish(FinishPolicy::Close)?;
        drop(kept);
        for (block, block_counters) in counters.iter().enumerate() {
            if block_counters.ended != 0 {
                let error = gpunet_device::Error::from_errno(block_counters.ended as i32);
                return Err(Error::Ended { block: block as u32, error });
            }
        }
        Ok(counters)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some((launch, kept)) = self.parts.take() else { return };
        launch.cancel();
        // An error means that the kernel has ended too.
        if let Ok(false) = launch.wait_timeout(ENDS_WITHIN) {
            // The kernel may write there for as long as this process lives.
            return std::mem::forget((launch, kept));
        }
        let _ = launch.finish(FinishPolicy::Close);
    }
}
