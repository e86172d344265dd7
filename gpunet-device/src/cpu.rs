//! Running kernels as CPU thread blocks, and what programs of the host need that share an attachment
//! with them.

pub mod deferred;
pub mod give_way;
pub mod watch;

use crate::Kernel;
use crate::group::{Lanes, Solo};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Stack of a block's thread. Kernels keep their data in buffers, as on a GPU.
const STACK: usize = 256 * 1024;

/// A thread block of a launch panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPanicked {
    /// The name of the thread that panicked first, with its block's number.
    pub thread: String,
}

impl std::fmt::Display for BlockPanicked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} panicked", self.thread)
    }
}

impl std::error::Error for BlockPanicked {}

/// A running launch.
#[derive(Debug)]
pub struct Launch {
    threads: Vec<JoinHandle<()>>,
    running: Arc<AtomicUsize>,
}

/// Counts a thread's end, also by panic.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        // Ordering: Release, pairs with the Acquire load in `is_finished`: who sees 0 sees what the
        // blocks wrote.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Starts `blocks` thread blocks of `threads` threads.
///
/// # Errors
/// The operating system's, when it refuses a thread; blocks that were started run on.
pub fn launch<K: Kernel>(blocks: u32, threads: u32, kernel: K) -> std::io::Result<Launch> {
    let running = Arc::new(AtomicUsize::new(blocks as usize * threads as usize));
    let mut handles = Vec::new();
    for block in 0..blocks {
        if threads == 1 {
            let group = Solo::new(block, blocks);
            let name = format!("gpunet-block-{block}");
            handles.push(spawn(name, &running, move || kernel.run(&group))?);
            continue;
        }
        for (rank, lane) in Lanes::group(block, blocks, threads).into_iter().enumerate() {
            let name = format!("gpunet-block-{block}.{rank}");
            let body = move || {
                lane.enter();
                kernel.run(&lane);
            };
            handles.push(spawn(name, &running, body)?);
        }
    }
    Ok(Launch { threads: handles, running })
}

fn spawn(
    name: String,
    running: &Arc<AtomicUsize>,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let running = Running(running.clone());
    std::thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
        let _running = running;
        body();
    })
}

impl Launch {
    /// Says whether all blocks have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    /// Waits for all blocks to end.
    ///
    /// # Errors
    /// [`BlockPanicked`], when one panicked; all have ended then too.
    pub fn wait(self) -> Result<(), BlockPanicked> {
        let mut result = Ok(());
        for thread in self.threads {
            let name = thread.thread().name().unwrap_or("a thread block").to_owned();
            if thread.join().is_err() && result.is_ok() {
                result = Err(BlockPanicked { thread: name });
            }
        }
        result
    }
}
