//! Starts kernels and reads their results.
//!
//! All unsafe code of the host side is here: a launch hands out addresses, and the launching code
//! must keep the memory behind them. [`RunningKernel`] keeps that memory until its kernel has
//! ended, so the rest of the program cannot get it wrong.
#![allow(unsafe_code)]

use crate::args::DeviceArgs;
use gpunet_abi::{Handle, Options};
use gpunet_app::error::AppError;
use gpunet_app::kernel::{NUMBER, RunningKernel, row, rows};
use gpunet_embed_ptx::{Embedded, embedded};
use gpunet_proxy::device::Kernel;
use gpunet_proxy::{Attachment, CloseReport, Config, DeviceBuffer, FinishPolicy, Program};
use gpunet_rstream_kernel::record::{Ended, Listening, Test};
use gpunet_rstream_kernel::{Rstream, RstreamListen};
use std::net::SocketAddr;

/// The kernels for a GPU, made by `cargo run -p gpunet-build-ptx`.
static PTX: Embedded = embedded!("gpunet_rstream_kernel.ptx");

/// The default threads of a block on a GPU: 256 lanes keep PCIe full on an H200 (`gpunet-bench
/// copy`).
const GPU_THREADS: u32 = 256;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 16;

/// Streams at a time: two ends, and some that are still closing.
const STREAMS: u64 = 8;

/// A device with its sockets and the kernels.
pub struct Kernels {
    program: Program,
    attachment: Attachment,
    threads: u32,
}

/// The memory of the kernel of one end, for several connections.
pub struct Memory {
    work: DeviceBuffer,
    tests: DeviceBuffer,
    record: DeviceBuffer,
    times: DeviceBuffer,
    size: u64,
}

/// A bound listener.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    handle: Handle,
    /// The address where it listens, with the actual port.
    pub addr: SocketAddr,
}

/// The end that a kernel runs.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// Accepts from a listener.
    Server(Bound),
    /// Connects.
    Client(SocketAddr, Options),
}

/// How many bytes have gone each way so far: the value of the next byte follows from its position.
#[derive(Clone, Copy, Debug, Default)]
pub struct Positions {
    /// Bytes of the sending direction.
    pub sent: u64,
    /// Bytes of the receiving direction.
    pub received: u64,
}

impl Kernels {
    /// Starts a proxy with room for streams with these rings, attaches the device and loads the
    /// kernels.
    pub fn open(args: &DeviceArgs) -> Result<Self, AppError> {
        // Two rings for each stream, and a reserve.
        let rings = STREAMS * 2 * args.ring + (8 << 20);
        let config = Config { sockets: 64, shared_rings: rings, device_rings: rings, ..Config::default() };
        let proxy = args.proxy.open(config)?;
        let attachment = gpunet_app::device::attach(&proxy, "gpunet-rstream", args.device)?;
        let threads = args.threads.unwrap_or(if attachment.cuda().is_some() { GPU_THREADS } else { 1 });
        let program = attachment.load(PTX.text(), threads)?;
        Ok(Self { program, attachment, threads })
    }

    /// "cpu", or the GPU's name.
    pub fn device_name(&self) -> String {
        self.attachment.device_name().to_owned()
    }

    /// Makes sure that both ends run at the same time: otherwise each would wait for the other
    /// forever.
    pub fn fit_both(&self) -> Result<(), AppError> {
        Ok(self.attachment.check_co_resident(&self.program, &[(Rstream::ENTRY, 2, self.threads)])?)
    }

    /// Binds a listener.
    pub fn listen(&self, addr: SocketAddr, options: Options) -> Result<Bound, AppError> {
        let record = self.attachment.alloc(Listening::NUMBERS * NUMBER)?;
        // SAFETY: `RunningKernel` keeps the record until the kernel has ended, and one block uses
        // it.
        let buffer = unsafe { record.buffer() };
        // SAFETY: the only address is that of `buffer`.
        let launch = unsafe {
            self.attachment.launch(&self.program, 1, self.threads, |net| RstreamListen {
                net,
                record: buffer,
                addr: addr.into(),
                options,
                backlog: BACKLOG,
                reserved: 0,
            })
        }?;
        let record =
            Listening::from_numbers(row(&RunningKernel::new(launch, record).finish(FinishPolicy::Keep)?)?);
        match (record.errno, Handle::from_raw(record.handle), record.addr.to_std()) {
            (0, Some(handle), Some(addr)) => Ok(Bound { handle, addr }),
            (0, ..) => Err(AppError::Listen { addr, error: gpunet_abi::Error::Protocol }),
            (errno, ..) => Err(AppError::Listen { addr, error: gpunet_abi::Error::from_errno(errno) }),
        }
    }

    /// Memory for one end of connections with up to `tests` tests and transfers of up to `size`
    /// bytes.
    pub fn memory(&self, size: u64, tests: usize) -> Result<Memory, AppError> {
        Ok(Memory {
            work: self.attachment.alloc(Rstream::work_bytes(size))?,
            tests: self.attachment.alloc(Test::NUMBERS * NUMBER * tests)?,
            record: self.attachment.alloc(Ended::NUMBERS * NUMBER)?,
            times: self.attachment.alloc(NUMBER * tests)?,
            size,
        })
    }

    /// Starts one end of one connection. The tests must fit the memory in number and size.
    pub fn start(
        &self,
        mut memory: Memory,
        role: Role,
        tests: &[Test],
        positions: Positions,
        verify: bool,
    ) -> Result<RunningKernel<Memory>, AppError> {
        let numbers: Vec<u8> =
            tests.iter().flat_map(|test| test.numbers()).flat_map(u64::to_ne_bytes).collect();
        memory.tests.write(0, &numbers)?;
        memory.record.write(0, &[0; Ended::NUMBERS * NUMBER])?;
        let (listener, addr, options) = match role {
            Role::Server(bound) => (bound.handle.raw(), bound.addr, Options::DEFAULT),
            Role::Client(addr, options) => (0, addr, options),
        };
        // SAFETY: `RunningKernel` keeps all four until the kernel has ended, and its one block
        // alone uses them.
        let (work, rows, record, times) = unsafe {
            (memory.work.buffer(), memory.tests.buffer(), memory.record.buffer(), memory.times.buffer())
        };
        let size = memory.size;
        // SAFETY: the only addresses are those of the four buffers, which are page-aligned;
        // `memory` made them for at least these tests.
        let launch = unsafe {
            self.attachment.launch(&self.program, 1, self.threads, |net| Rstream {
                net,
                work,
                tests: rows.first(numbers.len()),
                record,
                times,
                addr: addr.into(),
                options,
                size,
                sent: positions.sent,
                received: positions.received,
                listener,
                verify: u32::from(verify),
            })
        }?;
        Ok(RunningKernel::new(launch, memory))
    }

    /// Stops the device's sockets and the proxy.
    pub fn close(self) -> CloseReport {
        drop(self.program);
        self.attachment.close()
    }
}

/// Waits for a kernel, and reads its results: how it ended, and the nanoseconds of each finished
/// test.
pub fn finish(kernel: RunningKernel<Memory>) -> Result<(Memory, Ended, Vec<u64>), AppError> {
    // The listener stays open.
    let memory = kernel.finish(FinishPolicy::Keep)?;
    let ended = Ended::from_numbers(row(&memory.record)?);
    let times = rows(&memory.times, ended.tests as usize)?.into_iter().map(|[time]| time).collect();
    Ok((memory, ended, times))
}
