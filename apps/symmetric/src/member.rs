//! A member, and how it runs a kernel.
//!
//! All unsafe code of this program is here: a launch hands out addresses, and `run` keeps the
//! memory behind them until the kernel has ended.
#![allow(unsafe_code)]

use crate::args::Args;
use crate::error::Error;
use gpu_usermap::cuda::StreamPriority;
use gpunet_app::kernel::errno_text;
use gpunet_embed_ptx::{Embedded, embedded};
use gpunet_proxy::device::{Kernel, SymmetricPtr, TeamHandle, Timeout};
use gpunet_proxy::queue::Queue;
use gpunet_proxy::team::{Symmetric, Team};
use gpunet_proxy::{Attachment, FinishPolicy, Program};

/// The kernels for a GPU, made by `cargo run -p gpunet-build-ptx`.
static PTX: Embedded = embedded!("gpunet_symmetric_kernel.ptx");

/// Threads of a block on a GPU.
const GPU_THREADS: u32 = 256;
/// How long a kernel waits for another member.
const TIMEOUT: Timeout = Timeout::secs(20);
/// An element of `results` that no block has written.
const NOT_RUN: i32 = -1;

/// A member of the team with its device.
pub struct Member {
    attachment: Attachment,
    program: Program,
    threads: u32,
    /// The team.
    pub team: Team,
    /// Thread blocks of the examples that have several.
    pub blocks: u32,
}

impl Member {
    /// Makes a member on the device of the attachment.
    ///
    /// # Errors
    /// The kernels cannot be loaded.
    pub fn new(attachment: Attachment, team: Team, args: &Args) -> Result<Self, Error> {
        let threads = if attachment.cuda().is_some() { GPU_THREADS } else { 1 };
        let program = attachment.load(PTX.text(), threads)?;
        Ok(Self { attachment, program, threads, team, blocks: args.blocks })
    }

    /// Runs the kernel that `make` makes from the team's handle and the memory for its results, and
    /// waits for its end.
    ///
    /// `memory` is all symmetric memory whose pointers `make` puts into the kernel: it is kept
    /// until the kernel has ended.
    ///
    /// # Errors
    /// It cannot be started, or a block has failed.
    pub fn run<K: Kernel, M>(
        &self,
        blocks: u32,
        memory: &M,
        make: impl FnOnce(TeamHandle, SymmetricPtr<i32>, &M) -> K,
    ) -> Result<(), Error> {
        self.run_blocks(blocks, self.threads, memory, make)
    }

    /// Returns the threads of a block: the usual number on a GPU, `on_cpu` on the CPU.
    #[must_use]
    pub fn threads_or(&self, on_cpu: u32) -> u32 {
        if self.attachment.cuda().is_some() { self.threads } else { on_cpu }
    }

    /// As [`Member::run`], with `threads` threads in each block.
    ///
    /// # Errors
    /// Those of [`Member::run`].
    pub fn run_blocks<K: Kernel, M>(
        &self,
        blocks: u32,
        threads: u32,
        memory: &M,
        make: impl FnOnce(TeamHandle, SymmetricPtr<i32>, &M) -> K,
    ) -> Result<(), Error> {
        let mut results = self.team.alloc::<i32>(blocks as usize)?;
        results.write(0, &vec![NOT_RUN; blocks as usize])?;
        // SAFETY: the kernel ends in `finish` below, before `results`, `memory` and the team are
        // dropped; the kernels' signals and barriers order the members' stores.
        let launch = unsafe {
            let pointer = results.ptr();
            self.attachment.launch(&self.program, blocks, threads, |net| {
                make(self.team.handle(net).timeout(TIMEOUT), pointer, memory)
            })
        };
        launch.map_err(|error| Error::Launch(error.to_string()))?.finish(FinishPolicy::Close)?;
        let mut errors = vec![0; blocks as usize];
        results.read(0, &mut errors)?;
        let failed = errors.iter().position(|&error| error != 0);
        // No member frees its memory while other members' kernels still store to it.
        self.team.barrier()?;
        match failed {
            None => Ok(()),
            Some(block) => Err(Error::Block { block, reason: errno_text(errors[block]) }),
        }
    }

    /// A queue of this member's device.
    ///
    /// # Errors
    /// The error of the system or of CUDA.
    pub fn queue(&self) -> Result<Queue, Error> {
        let queue = match self.attachment.cuda() {
            None => Queue::cpu(&self.attachment),
            Some(device) => {
                let stream = device.create_stream(StreamPriority::Normal).map_err(Error::Stream)?;
                Queue::cuda(&self.attachment, stream)
            }
        };
        queue.map_err(Error::Queue)
    }

    /// Returns the pointer for a kernel of [`Member::run`]. The memory is part of that call's
    /// `memory`.
    #[must_use]
    pub fn ptr<T: gpunet_proxy::device::team::Element>(&self, memory: &Symmetric<'_, T>) -> SymmetricPtr<T> {
        // SAFETY: `run` keeps it; its callers make pointers only of memory that they pass to it.
        unsafe { memory.ptr() }
    }

    /// Leaves the team together with all others, and closes the device's sockets.
    ///
    /// # Errors
    /// Some did not leave.
    pub fn leave(self) -> Result<(), Error> {
        let Self { attachment, team, program, .. } = self;
        team.leave()?;
        drop(program);
        let _ = attachment.close();
        Ok(())
    }
}
