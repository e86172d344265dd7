//! Running kernels as CPU thread blocks, and what programs of the host need that share an
//! attachment with them.
//!
//! | file | holds |
//! |---|---|
//! | `deferred` | requests in two steps, for host programs that must not wait |
//! | `watch` | watching many sockets from one thread, and sleeping until one changes |

pub mod deferred;
pub mod watch;

use crate::group::{Lanes, Solo};
pub use crate::platform::cpu::grace::GracePeriod;
use crate::platform::cpu::panics;
pub use crate::platform::cpu::panics::BlockPanicked;
use crate::platform::cpu::scheduling;
pub use crate::platform::cpu::spin_yield;
pub use crate::platform::cpu::turns::take_turns;
use crate::{Kernel, platform};
use gpunet_region::threads::BlockedSignals;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Stack of a block's thread. Kernels keep their data in buffers, as on a GPU.
const STACK: usize = 256 * 1024;

/// A running launch.
///
/// # Examples
///
/// ```
/// # #[derive(Clone, Copy)]
/// # struct Nothing;
/// # impl gpunet_device::Kernel for Nothing {
/// #     const ENTRY: &'static str = "nothing";
/// #     fn run<G: gpunet_device::Group>(self, _: &G) {}
/// # }
/// let launch = gpunet_device::cpu::launch(1, 1, Nothing)?;
/// while !launch.is_finished() {
///     std::thread::yield_now();
/// }
/// assert!(launch.panicked().is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Launch {
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

/// What the threads of a launch share.
struct Shared {
    running: AtomicUsize,
    /// A thread has panicked: waits of the others end with ECANCELED.
    abandoned: Arc<AtomicBool>,
    /// The first panic.
    panicked: OnceLock<BlockPanicked>,
    on_panic: Box<dyn Fn(&BlockPanicked) + Send + Sync>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("running", &self.running).finish_non_exhaustive()
    }
}

/// Counts a thread's end, also by panic.
struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        // Ordering: Release, pairs with the Acquire load in `is_finished`: who sees 0 sees what the
        // blocks wrote.
        self.0.running.fetch_sub(1, Ordering::Release);
    }
}

/// Starts `blocks` thread blocks of `threads` threads. They block all signals but those that a
/// thread raises itself by what it executes.
///
/// # Errors
/// The operating system's, when it refuses a thread; blocks that were started run on.
///
/// # Examples
///
/// ```
/// use gpunet_device::{Group, Kernel, cpu};
///
/// #[derive(Clone, Copy)]
/// struct Count;
/// impl Kernel for Count {
///     const ENTRY: &'static str = "count";
///     fn run<G: Group>(self, g: &G) {
///         assert_eq!(g.sum(1), 4);
///     }
/// }
///
/// let launch = cpu::launch(2, 4, Count)?; // two blocks of four threads
/// launch.wait().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn launch<K: Kernel>(blocks: u32, threads: u32, kernel: K) -> std::io::Result<Launch> {
    launch_with(blocks, threads, kernel, |_| {})
}

/// As [`launch`]. When a thread panics, `on_panic` is called, on that thread and once; waits of the
/// other threads end with ECANCELED.
///
/// # Errors
/// As [`launch`].
///
/// # Examples
///
/// ```
/// # #[derive(Clone, Copy)]
/// # struct Nothing;
/// # impl gpunet_device::Kernel for Nothing {
/// #     const ENTRY: &'static str = "nothing";
/// #     fn run<G: gpunet_device::Group>(self, _: &G) {}
/// # }
/// let report = |panicked: &gpunet_device::cpu::BlockPanicked| eprintln!("{panicked}");
/// gpunet_device::cpu::launch_with(1, 1, Nothing, report)?.wait().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn launch_with<K: Kernel>(
    blocks: u32,
    threads: u32,
    kernel: K,
    on_panic: impl Fn(&BlockPanicked) + Send + Sync + 'static,
) -> std::io::Result<Launch> {
    let shared = Arc::new(Shared {
        running: AtomicUsize::new(blocks as usize * threads as usize),
        abandoned: Arc::default(),
        panicked: OnceLock::new(),
        on_panic: Box::new(on_panic),
    });
    let mut handles = Vec::new();
    for block in 0..blocks {
        if threads == 1 {
            let group = Solo::new(block, blocks);
            let name = format!("gpunet-block-{block}");
            handles.push(spawn(name, block, &shared, move || kernel.run(&group))?);
            continue;
        }
        for (rank, lane) in Lanes::group(block, blocks, threads).into_iter().enumerate() {
            let name = format!("gpunet-block-{block}.{rank}");
            handles.push(spawn(name, block, &shared, move || kernel.run(&lane))?);
        }
    }
    Ok(Launch { threads: handles, shared })
}

fn spawn(
    name: String,
    block: u32,
    shared: &Arc<Shared>,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let running = Running(shared.clone());
    // The thread inherits it: the program's signals are the program's.
    let _blocked = BlockedSignals::new();
    std::thread::Builder::new().name(name).stack_size(STACK).spawn(move || {
        let running = running;
        let shared = &running.0;
        // Where it is refused, blocks are slower.
        let _ = scheduling::let_wakers_go_on();
        platform::set_block(block);
        platform::end_waits_on(shared.abandoned.clone());
        let Err(panicked) = panics::catch(body) else { return };
        // Ordering: Relaxed; a sign to stop, which brings no data.
        shared.abandoned.store(true, Ordering::Relaxed);
        if shared.panicked.set(panicked).is_ok()
            && let Some(panicked) = shared.panicked.get()
        {
            (shared.on_panic)(panicked);
        }
    })
}

impl Launch {
    /// Returns whether all blocks have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.running.load(Ordering::Acquire) == 0
    }

    /// The first panic of a block, as soon as it has happened. The others may still run then.
    #[must_use]
    pub fn panicked(&self) -> Option<&BlockPanicked> {
        self.shared.panicked.get()
    }

    /// Waits for all blocks to end.
    ///
    /// # Errors
    /// [`BlockPanicked`], when one panicked; all have ended then too.
    pub fn wait(self) -> Result<(), BlockPanicked> {
        for thread in self.threads {
            // Panics are caught in the thread.
            let _ = thread.join();
        }
        self.shared.panicked.get().map_or(Ok(()), |panicked| Err(panicked.clone()))
    }
}
