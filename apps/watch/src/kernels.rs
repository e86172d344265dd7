//! Starts kernels.
//!
//! All unsafe code of this program is here: a launch hands out addresses, and [`RunningKernel`]
//! keeps the memory behind them until the kernel has ended.
#![allow(unsafe_code)]

use crate::args::DeviceArgs;
use crate::error::Error;
use gpunet_app::kernel::{NUMBER, RunningKernel};
use gpunet_embed_ptx::{Embedded, embedded};
use gpunet_proxy::device::{Kernel, Net};
use gpunet_proxy::snapshot::Snapshot;
use gpunet_proxy::{Attachment, Config, DeviceBuffer, Program, Proxy};
use gpunet_records_host::{Reader, Records, Rings, Settings};
use gpunet_watch_kernel::{Flood, Work, Write};

/// The kernels for a GPU, made by `cargo run -p gpunet-build-ptx`.
static PTX: Embedded = embedded!("gpunet_watch_kernel.ptx");

/// Threads of a block on a GPU.
const GPU_THREADS: u32 = 128;
/// Threads of a warp on a GPU.
const WARP: u32 = 32;

/// A device with the kernels.
pub struct Kernels {
    program: Program,
    attachment: Attachment,
    proxy: Proxy,
    blocks: u32,
    threads: u32,
}

impl Kernels {
    /// Attaches the device, and loads the kernels.
    pub fn open(args: &DeviceArgs) -> Result<Self, Error> {
        gpunet_app::device::load_driver(args.device);
        let proxy = args.proxy.open(Config::small())?;
        let attachment = gpunet_app::device::attach(&proxy, crate::NAME, args.device)?;
        let threads = args.threads.unwrap_or(if attachment.cuda().is_some() { GPU_THREADS } else { 1 });
        let program = attachment.load(PTX.text(), threads)?;
        Ok(Self { program, attachment, proxy, blocks: args.blocks, threads })
    }

    /// "cpu", or the GPU's name.
    pub fn device_name(&self) -> &str {
        self.attachment.device_name()
    }

    /// What the proxy holds, and what blocks wait for. `None`: a daemon that is asked for it does
    /// not answer; its own `gpunetctl top` shows it.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.proxy.snapshot().ok()
    }

    /// Warps of a launch.
    pub const fn warps(&self) -> u32 {
        self.blocks * self.threads.div_ceil(WARP)
    }

    /// Lanes of a full warp.
    pub const fn lanes(&self) -> u32 {
        if self.threads < WARP { self.threads } else { WARP }
    }

    /// Rings for kernels of the device, and their reader.
    pub fn rings(&self, settings: Settings) -> Result<(Rings, Reader), Error> {
        Rings::create(&self.attachment, settings).map_err(Error::Rings)
    }

    /// Starts blocks that take steps.
    pub fn work(&self, rings: Rings, steps: u32, stalls: u32) -> Result<RunningKernel<Rings>, Error> {
        let work = |net: Net, records: Records| Work {
            net,
            records,
            steps,
            rounds: 20_000,
            stalls,
            slow_ns: 100_000,
        };
        self.start(
            rings,
            |rings| {
                // SAFETY: `RunningKernel` keeps the rings.
                unsafe { rings.records() }
            },
            work,
        )
    }

    /// Starts warps that write.
    pub fn flood(
        &self,
        rings: Rings,
        write: Write,
        count: u64,
    ) -> Result<RunningKernel<(Rings, DeviceBuffer)>, Error> {
        let times = self.attachment.alloc(self.warps() as usize * NUMBER)?;
        // SAFETY: `RunningKernel` keeps the memory; each warp writes its own number.
        let buffer = unsafe { times.buffer() };
        let flood = |net: Net, records: Records| Flood {
            net,
            records,
            times: buffer,
            count,
            write: write as u32,
            reserved: 0,
        };
        self.start(
            (rings, times),
            |(rings, _)| {
                // SAFETY: as above.
                unsafe { rings.records() }
            },
            flood,
        )
    }

    fn start<K: Kernel, M>(
        &self,
        memory: M,
        records: impl FnOnce(&M) -> Records,
        make: impl FnOnce(Net, Records) -> K,
    ) -> Result<RunningKernel<M>, Error> {
        let records = records(&memory);
        // SAFETY: the kernels' addresses are those of `memory`, which `RunningKernel` keeps.
        let launch = unsafe {
            self.attachment.launch(&self.program, self.blocks, self.threads, |net| make(net, records))
        }?;
        Ok(RunningKernel::new(launch, memory))
    }

    /// Stops the device's sockets and the proxy.
    pub fn close(self) {
        drop(self.program);
        let _ = self.attachment.close();
    }
}
