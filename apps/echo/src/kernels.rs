//! Starts kernels and reads their results.
//!
//! All unsafe code of the host side is here (and in `ticks`): a launch hands out addresses, and the
//! launching code must keep the memory behind them. [`RunningKernel`] keeps that memory until its
//! kernel has ended, so the rest of the program cannot get it wrong.
#![allow(unsafe_code)]

use crate::args::{DeviceArgs, LoadArgs};
use crate::error::Error;
use crate::ticks::Ticks;
use gpunet_abi::Options;
use gpunet_app::cli::Transport;
use gpunet_app::kernel::{NUMBER, RunningKernel, rows};
use gpunet_echo_kernel::record::Driven;
use gpunet_echo_kernel::{Echo, EchoClient};
use gpunet_embed_ptx::{Embedded, embedded};
use gpunet_proxy::device::Kernel;
use gpunet_proxy::{Attachment, CloseReport, Config, DeviceBuffer, FinishPolicy, LaunchError, Program};
use gpunet_serve::Server;
use gpunet_serve_host::{Running, ServerSettings, start};
use std::net::SocketAddr;

/// The kernels for a GPU, made by `cargo run -p gpunet-build-ptx`.
static PTX: Embedded = embedded!("gpunet_echo_kernel.ptx");

/// The default threads of a block on a GPU: 256 lanes keep PCIe full on an H200 (`gpunet-bench
/// copy`); with fewer, more blocks run at a time.
const GPU_THREADS: [u32; 4] = [256, 128, 64, 32];

/// Bytes that the server sends back before it releases them.
const PIECE: u64 = 64 << 10;

/// Connections that may wait to be accepted; the system reduces it to its own limit.
const BACKLOG: u32 = 4096;

/// A device with its sockets and the kernels.
pub struct Kernels {
    program: Program,
    attachment: Attachment,
    /// Threads of a block, and smaller numbers to try when the blocks do not fit.
    threads: Vec<u32>,
    /// The kernels that are loaded.
    entries: &'static [&'static str],
}

/// The kernels of a server, as [`Kernels::open`] takes them.
pub const SERVER: &[&str] = &[Server::<Echo>::ENTRY];
/// The kernels of clients.
pub const CLIENT: &[&str] = &[EchoClient::ENTRY];
/// All kernels.
pub const BOTH: &[&str] = &[Server::<Echo>::ENTRY, EchoClient::ENTRY];

/// The memory of the clients' kernel, for several runs.
pub struct ClientMemory {
    work: DeviceBuffer,
    records: DeviceBuffer,
    samples: DeviceBuffer,
    /// Messages completed so far, while it runs.
    pub ticks: Ticks,
    blocks: u32,
}

/// The messages that one run of the clients sends, and their destination.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The server.
    pub addr: SocketAddr,
    /// Options of the connections.
    pub options: Options,
    /// Bytes per message.
    pub size: u64,
    /// Messages per connection.
    pub count: u64,
    /// Connections.
    pub connections: u32,
    /// Round-trip times that are kept for each connection.
    pub samples_each: u64,
}

impl Load {
    /// Messages of all connections.
    pub fn messages(&self) -> u64 {
        self.count.saturating_mul(self.connections.into())
    }
}

/// Returns the ring memory for streams whose rings take `rings` bytes. It adds a quarter for
/// streams that are still closing, and a fixed reserve.
pub const fn with_margin(rings: u64) -> u64 {
    rings + rings / 4 + (8 << 20)
}

impl Kernels {
    /// Starts a proxy with room for `streams` streams at a time and `rings` bytes of ring memory,
    /// attaches the device and loads these kernels.
    pub fn open(
        args: &DeviceArgs,
        transport: Transport,
        streams: u32,
        rings: u64,
        entries: &'static [&'static str],
    ) -> Result<Self, Error> {
        if transport == Transport::Rc {
            gpunet_proxy::rdma_devices().map_err(Error::NoRdma)?;
        }
        let sockets = (streams * 2 + 64).min(1 << 16);
        // Each block that connects holds a control slot until the server accepts, and the server
        // needs one to accept: there must be more slots than blocks that connect. An eighth is
        // reserved for calls that do not wait.
        let controls = (streams + streams / 4 + 256).min(4096);
        let config = Config {
            sockets,
            controls,
            shared_rings: rings,
            device_rings: rings,
            placement: args.placement,
            ..Config::default()
        };
        let proxy = args.proxy.open(config)?;
        let attachment = gpunet_app::device::attach(&proxy, "gpunet-echo", args.device)?;
        let threads = match args.threads {
            Some(threads) => vec![threads],
            None if attachment.cuda().is_some() => GPU_THREADS.to_vec(),
            None => vec![1],
        };
        let program = gpunet_app::device::load(&attachment, &PTX, entries, threads[0])?;
        Ok(Self { program, attachment, threads, entries })
    }

    /// "cpu", or the GPU's name.
    pub fn device_name(&self) -> String {
        self.attachment.device_name().to_owned()
    }

    /// Returns whether kernels run on a GPU.
    pub fn on_gpu(&self) -> bool {
        self.attachment.cuda().is_some()
    }

    /// Makes sure that the blocks of the server and of the clients run at the same time: otherwise
    /// each would wait for the other forever. It chooses smaller blocks if that is allowed.
    pub fn fit(&mut self, server_blocks: u32, client_blocks: u32) -> Result<(), Error> {
        loop {
            let threads = self.threads[0];
            let shapes = [
                (Server::<Echo>::ENTRY, server_blocks, threads),
                (EchoClient::ENTRY, client_blocks, threads),
            ];
            let needed: Vec<_> = shapes.into_iter().filter(|(_, blocks, _)| *blocks > 0).collect();
            match self.attachment.check_co_resident(&self.program, &needed) {
                Err(LaunchError::NotCoResident(_)) if self.threads.len() > 1 => {
                    self.threads.remove(0);
                    let (entries, threads) = (self.entries, self.threads[0]);
                    self.program = gpunet_app::device::load(&self.attachment, &PTX, entries, threads)?;
                }
                result => return Ok(result?),
            }
        }
    }

    /// Starts the server: `blocks` blocks with room for `room` connections each.
    pub fn serve(
        &self,
        addr: SocketAddr,
        options: Options,
        blocks: u32,
        room: u32,
    ) -> Result<Running, Error> {
        let settings = ServerSettings {
            room,
            // It answers from the receive ring.
            out_bytes: 0,
            // A peer may send and read at any speed.
            idle_ns: 0,
            request_ns: 0,
            stall_ns: 0,
            grace_ns: 0,
            backlog: BACKLOG,
            ..ServerSettings::DEFAULT
        };
        let shape = (blocks, self.threads[0]);
        let echo = Echo { piece: PIECE };
        start(&self.attachment, &self.program, shape, addr, options, settings, echo).map_err(Error::Server)
    }

    /// Memory for clients of `blocks` blocks, enough for each of the wanted sizes.
    pub fn client_memory(&self, blocks: u32, wanted: &LoadArgs) -> Result<ClientMemory, Error> {
        const LIMIT: u64 = 8 << 30;
        let size = wanted.size.iter().copied().max().unwrap_or(1);
        let total = EchoClient::work_bytes(size) as u64 * u64::from(blocks);
        if total > LIMIT {
            return Err(Error::TooMuchMemory { blocks, size, total });
        }
        let samples_each = wanted.size.iter().map(|&size| wanted.samples_each(size)).max().unwrap_or(1);
        let connections = wanted.connections as usize;
        Ok(ClientMemory {
            work: self.attachment.alloc(total as usize)?,
            records: self.attachment.alloc(Driven::NUMBERS * NUMBER * connections)?,
            samples: self.attachment.alloc(NUMBER * samples_each as usize * connections)?,
            ticks: Ticks::new(self.attachment.cuda(), blocks)?,
            blocks,
        })
    }

    /// Starts the clients.
    pub fn drive(&self, mut memory: ClientMemory, load: &Load) -> Result<RunningKernel<ClientMemory>, Error> {
        clear(&mut memory.records)?;
        clear(&mut memory.samples)?;
        memory.ticks.reset();
        // SAFETY: `RunningKernel` keeps all four until the kernel has ended; each block uses its
        // own part of the first and the last, and its own connections' parts of the others.
        let (work, records, samples, ticks) = unsafe {
            (memory.work.buffer(), memory.records.buffer(), memory.samples.buffer(), memory.ticks.buffer())
        };
        // SAFETY: the only addresses are those of the four buffers, which are page-aligned;
        // `client_memory` made them for at least this load.
        let launch = unsafe {
            self.attachment.launch(&self.program, memory.blocks, self.threads[0], |net| EchoClient {
                net,
                work,
                records,
                samples,
                ticks,
                addr: load.addr.into(),
                options: load.options,
                size: load.size,
                count: load.count,
                samples_each: load.samples_each,
                connections: load.connections,
                reserved: 0,
            })
        }?;
        Ok(RunningKernel::new(launch, memory))
    }

    /// Makes a GPU's driver allocate the largest kernel's stack. While a kernel waits, the driver
    /// would first wait for that kernel, forever.
    pub fn warm_up(&self, memory: ClientMemory) -> Result<ClientMemory, Error> {
        if !self.on_gpu() {
            return Ok(memory);
        }
        let nothing = SocketAddr::from(([127, 0, 0, 1], 1));
        let load = Load {
            addr: nothing,
            options: Options::DEFAULT,
            size: 1,
            count: 0,
            connections: 0,
            samples_each: 0,
        };
        let kernel = self.drive(memory, &load)?;
        let (memory, ..) = end_clients(kernel, &load)?;
        Ok(memory)
    }

    /// Stops the device's sockets and the proxy.
    pub fn close(self) -> CloseReport {
        drop(self.program);
        self.attachment.close()
    }
}

/// Reads the results of clients that have ended: a record for each connection, and the samples of
/// all connections.
pub fn end_clients(
    kernel: RunningKernel<ClientMemory>,
    load: &Load,
) -> Result<(ClientMemory, Vec<Driven>, Vec<u64>), Error> {
    let memory = kernel.finish(FinishPolicy::Close)?;
    let records = rows(&memory.records, load.connections as usize)?;
    let samples = rows::<1>(&memory.samples, load.connections as usize * load.samples_each as usize)?;
    let samples = samples.into_iter().map(|[ns]| ns).filter(|ns| *ns != 0).collect();
    Ok((memory, records.into_iter().map(Driven::from_numbers).collect(), samples))
}

fn clear(buffer: &mut DeviceBuffer) -> Result<(), Error> {
    Ok(buffer.write(0, &vec![0; buffer.len()])?)
}
