//! Operations as kernels of one block.

use super::page::Page;
use crate::attached::device::AttachedDevice;
use crate::launch::program::Program;
use crate::queue::QueueError;
use crate::socket::Appended;
use gpu_usermap::cuda::{CudaStream, Function, LaunchSpec, param};
use gpunet_abi::{Direction, Gate, Trigger, Word};
use gpunet_device::{Buffer, Kernel, Net};
use gpunet_embed_ptx::{Embedded, embedded};
use gpunet_queue_kernel::{
    QueuePost, QueueRecv, QueueSend, QueueTeam, QueueWait, QueueWaitWord, QueueWrite, Record, TeamOperation,
};

static PTX: Embedded = embedded!("gpunet_queue_kernel.ptx");
/// Threads of a block. One block of this size fills PCIe in both directions.
const THREADS: u32 = 512;
/// Threads for a message of up to [`FEW_BYTES`]: they move it as fast, and their barriers take less
/// time.
const FEW_THREADS: u32 = 128;
const FEW_BYTES: u64 = 4096;

/// The kernels, loaded.
pub(super) struct Kernels {
    net: Net,
    send: Function,
    recv: Function,
    post: Function,
    wait: Function,
    write: Function,
    wait_word: Function,
    team: Function,
}

impl Kernels {
    pub(super) fn load(device: &AttachedDevice, net: Net) -> Result<Self, QueueError> {
        let program = Program::load(device, |device| device.load_module_for(PTX.text(), THREADS))
            .map_err(QueueError::device)?;
        let find = |name| function(&program, name);
        Ok(Self {
            net,
            send: find(QueueSend::ENTRY)?,
            recv: find(QueueRecv::ENTRY)?,
            post: find(QueuePost::ENTRY)?,
            wait: find(QueueWait::ENTRY)?,
            write: find(QueueWrite::ENTRY)?,
            wait_word: find(QueueWaitWord::ENTRY)?,
            team: find(QueueTeam::ENTRY)?,
        })
    }

    /// Sends or receives a message, as its direction says. The number is 0 for one that is
    /// captured.
    pub(super) fn message(
        &self,
        on: &CudaStream,
        page: &Page,
        message: &Appended,
        memory: Buffer,
        number: u64,
    ) -> Result<(), QueueError> {
        let record = Record { page: page.base(), number };
        let (net, socket, reserved, capacity) = (self.net, message.message.socket, 0, message.capacity);
        let threads = if message.message.len <= FEW_BYTES { FEW_THREADS } else { THREADS };
        match message.hold().direction() {
            Direction::Send => launch(
                on,
                &self.send,
                threads,
                QueueSend { net, socket, reserved, capacity, from: memory, record },
            ),
            Direction::Recv => launch(
                on,
                &self.recv,
                threads,
                QueueRecv { net, socket, reserved, capacity, to: memory, record },
            ),
        }
    }

    pub(super) fn post(
        &self,
        on: &CudaStream,
        page: &Page,
        trigger: Trigger,
        number: u64,
    ) -> Result<(), QueueError> {
        let record = Record { page: page.base(), number };
        launch(on, &self.post, FEW_THREADS, QueuePost { net: self.net, trigger, record })
    }

    pub(super) fn wait(
        &self,
        on: &CudaStream,
        page: &Page,
        gate: Gate,
        number: u64,
    ) -> Result<(), QueueError> {
        let record = Record { page: page.base(), number };
        launch(on, &self.wait, FEW_THREADS, QueueWait { net: self.net, gate, record })
    }

    pub(super) fn write(
        &self,
        on: &CudaStream,
        page: &Page,
        (word, value): (Word, u64),
        number: u64,
    ) -> Result<(), QueueError> {
        let record = Record { page: page.base(), number };
        launch(on, &self.write, FEW_THREADS, QueueWrite { word, value, record })
    }

    /// Performs an operation of a team.
    pub(super) fn team(
        &self,
        on: &CudaStream,
        page: &Page,
        operation: TeamOperation,
        number: u64,
    ) -> Result<(), QueueError> {
        let record = Record { page: page.base(), number };
        let threads = if operation.from.len() as u64 <= FEW_BYTES { FEW_THREADS } else { THREADS };
        launch(on, &self.team, threads, QueueTeam { operation, record })
    }

    pub(super) fn wait_word(
        &self,
        on: &CudaStream,
        page: &Page,
        (word, value): (Word, u64),
        number: u64,
    ) -> Result<(), QueueError> {
        let record = Record { page: page.base(), number };
        launch(on, &self.wait_word, FEW_THREADS, QueueWaitWord { net: self.net, word, value, record })
    }
}

fn function(program: &Program, name: &str) -> Result<Function, QueueError> {
    let module = program.module().ok_or(QueueError::WrongAttachment)?;
    module.function(name).map_err(QueueError::device)
}

fn launch<K: Kernel>(
    on: &CudaStream,
    function: &Function,
    threads: u32,
    kernel: K,
) -> Result<(), QueueError> {
    let (grid, block) = ((1, 1, 1), (threads, 1, 1));
    // SAFETY: `kernel_entry` checks that a kernel has no padding.
    let params = vec![unsafe { param(kernel) }];
    let spec = LaunchSpec { function: function.clone(), grid, block, shared_bytes: 0, params };
    // SAFETY: the parameters are the kernel's. Words of the queue's page and of sockets are mapped
    // while the queue, and its hold of the direction, live; the buffer is by its contract, which
    // for a graph holds at each of its launches.
    unsafe { on.launch(&spec) }.map_err(QueueError::device)
}
