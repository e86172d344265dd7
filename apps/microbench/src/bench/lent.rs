//! Queues, and the memory and the sockets that they use.

use super::Bench;
use crate::outcome::Outcome;
use gpu_usermap::cuda::StreamPriority;
use gpunet_device::{Buffer, Options};
use gpunet_proxy::DeviceBuffer;
use gpunet_proxy::queue::{Queue, QueueSettings};
use gpunet_proxy::socket::Socket;
use std::mem::ManuallyDrop;
use std::net::Ipv4Addr;

/// Memory of the device that queues use. [`Lent::done`] frees it. After a failure it is kept,
/// because it is unknown when the queues are done with it.
pub struct Lent(ManuallyDrop<DeviceBuffer>);

impl Lent {
    /// Returns the memory, as queues and kernels take it.
    pub fn buffer(&self) -> Buffer {
        // SAFETY: it is freed once queues and kernels are done with it, or never; a measurement
        // uses each byte in one place at a time.
        unsafe { self.0.buffer() }
    }

    /// Returns its address for the device.
    pub fn address(&self) -> u64 {
        self.buffer().as_ptr() as u64
    }

    /// Writes it from its beginning on, before it is used.
    pub fn write(&mut self, bytes: &[u8]) -> Outcome<()> {
        Ok(self.0.write(0, bytes)?)
    }

    /// Returns whether it begins with these bytes. Call it when nothing writes to the memory.
    pub fn holds(&self, bytes: &[u8]) -> Outcome<bool> {
        let mut found = vec![0; bytes.len()];
        self.0.read(0, &mut found)?;
        Ok(found == bytes)
    }

    /// Frees it. Everything that used it has ended.
    pub fn done(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }
}

impl Bench {
    /// Memory for queues.
    pub fn lend(&self, bytes: usize) -> Outcome<Lent> {
        Ok(Lent(ManuallyDrop::new(self.attachment.alloc(bytes)?)))
    }

    /// A queue of the device: on a GPU, with a stream of its own.
    pub fn queue(&self) -> Outcome<Queue> {
        self.queue_with(QueueSettings::default())
    }

    /// The same with other settings, which have an effect on a GPU.
    pub fn queue_with(&self, settings: QueueSettings) -> Outcome<Queue> {
        Ok(match self.attachment.cuda() {
            Some(device) => {
                // The driver that stands in for a GPU in tests runs no kernels.
                let short = if cfg!(test) { 0 } else { settings.short };
                let settings = QueueSettings { short, ..settings };
                Queue::cuda_with(&self.attachment, device.create_stream(StreamPriority::Normal)?, settings)?
            }
            None => Queue::cpu(&self.attachment)?,
        })
    }

    /// Two sockets that are connected to each other, one of each device. Both devices are under one
    /// proxy.
    pub fn connected(ends: [&Self; 2], options: Options) -> Outcome<[Socket; 2]> {
        let [near, far] = ends.map(|end| &end.attachment);
        let listener = far.listen_blocking((Ipv4Addr::LOCALHOST, 0).into(), options, 1)?;
        let addr = listener.local_addr();
        std::thread::scope(|scope| {
            let connecting = scope.spawn(move || near.connect_blocking(addr, options));
            let far = listener.accept_blocking();
            let near = connecting.join().map_err(|_| "a thread panicked")??;
            Ok([near, far?])
        })
    }
}
