//! Memory that a CPU, a GPU and a network card use together.
//!
//! A ring between a kernel and a socket lies either in pinned host memory, which the GPU reaches
//! over the bus, or in GPU memory, which the card reaches by dma-buf. This crate makes both, starts
//! the kernels that use them, and says plainly what a machine cannot do. It knows nothing of rings,
//! sockets or transports.
//!
//! # Map
//! [`region`] is the crate `gpunet-region`, [`cuda`] and [`ptx`] are `gpunet-cuda`; they lie below
//! this one.
//!
//! | module | what it is |
//! |---|---|
//! | [`region`] | [`PinnedRegion`]: a sealed, preallocated memfd and its mapping; works without a GPU |
//! | [`cuda`] | the CUDA driver, opened at run time: devices, GPU memory, registration, modules, launches, streams |
//! | [`mapping`] | CPU mappings of GPU memory, by gdrdrv or dma-buf, or the reason why there is none |
//! | [`placement`] | where rings lie that a network card writes: in GPU memory or in pinned memory, and why |
//! | [`threads`] | threads that leave the program's signals alone |
//! | [`ptx`] | PTX text without the functions that nobody calls |
//! | [`probe`](mod@probe) | [`probe()`]: all of the above as data, for people and for programs |
//!
//! # Rules
//! - **No reference into shared memory.** Regions and buffers hand out addresses; another agent
//!   writes there at any time, so a `&[u8]` would be a lie to the compiler.
//! - **CUDA is optional.** The library is opened with `dlopen`; a machine without it builds, runs
//!   and gets [`cuda::Unavailable`] with the reason. Nothing panics.
//! - **One thread talks to CUDA.** Every call that needs a context runs on the device's agent
//!   thread, because a CUDA call made while a kernel waits for the host can deadlock. The only
//!   exception are calls on a [`cuda::CudaStream`]. [`cuda`] lists the calls and why each is safe.
//!
//! # Examples
//! ```no_run
//! use gpu_usermap::{PinnedRegion, cuda::Cuda};
//!
//! let region = PinnedRegion::create("rings", 1 << 20)?;
//! let device = Cuda::load()?.device(0)?;
//! let registration = device.register(region)?;
//! println!("the GPU sees the region at {:#x}", registration.device_ptr());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]
#![deny(clippy::multiple_unsafe_ops_per_block)]
#![cfg(target_os = "linux")]

pub mod mapping;
pub mod placement;
pub mod probe;
/// Pinned host memory that processes and GPUs share.
pub mod region {
    pub use gpunet_region::{
        AddressPool, MemoryGroup, PinnedRegion, PooledRegion, RegionError, RegionMapping, Vacated,
        check_room, total_memory,
    };
}

pub use gpunet_cuda as cuda;
pub use gpunet_cuda::ptx;
pub use gpunet_region::threads;
pub use probe::{Probe, probe};
pub use region::{AddressPool, PinnedRegion, PooledRegion, RegionError, Vacated};
