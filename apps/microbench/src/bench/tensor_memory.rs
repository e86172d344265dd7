//! Memory of arrays, of the CPU or of a GPU.

use crate::outcome::Outcome;
use gpu_usermap::cuda::{Cuda, CudaStream, Device, GpuBuffer, ImportedBuffer, StreamPriority};
use gpunet_app::device::DeviceChoice;
use gpunet_channel::{Array, ArrayMut, Dtype};

/// Opens a GPU; `None` for the CPU.
pub fn open(device: &str) -> Outcome<Option<Device>> {
    Ok(match device.parse::<DeviceChoice>()? {
        DeviceChoice::Cuda(ordinal) => Some(Cuda::load()?.device(ordinal)?),
        _ => None,
    })
}

/// Bytes on one device.
pub enum TensorMemory {
    Cpu(Vec<u8>),
    Gpu(Device, GpuBuffer),
}

impl TensorMemory {
    /// Allocates so many bytes on a device: cpu or cuda:N.
    pub fn new(device: &str, len: usize) -> Outcome<Self> {
        Ok(match device.parse::<DeviceChoice>()? {
            DeviceChoice::Cpu => Self::Cpu(vec![7; len]),
            DeviceChoice::Auto => return Err("the device must be named".into()),
            DeviceChoice::Cuda(ordinal) => {
                let device = Cuda::load()?.device(ordinal)?;
                let buffer = device.alloc(len)?;
                Self::Gpu(device, buffer)
            }
        })
    }

    /// The first bytes, as arrays to send, one behind the other.
    pub fn arrays(&self, lens: &[usize]) -> Outcome<Vec<Array<'_>>> {
        let mut at = 0;
        let mut arrays = Vec::with_capacity(lens.len());
        for &len in lens {
            let shape = [len as u64];
            arrays.push(match self {
                Self::Cpu(bytes) => Array::new(Dtype::U8, &shape, &bytes[at..at + len])?,
                Self::Gpu(device, buffer) => {
                    assert!(at + len <= buffer.len());
                    // SAFETY: within the buffer, which the array borrows by `self`; nobody writes
                    // it.
                    unsafe { Array::on_gpu(device, buffer.ptr() + at as u64, Dtype::U8, &shape) }?
                }
            });
            at += len;
        }
        Ok(arrays)
    }

    /// The first bytes, as arrays to receive, one behind the other.
    pub fn arrays_mut(&mut self, lens: &[usize]) -> Outcome<Vec<ArrayMut<'_>>> {
        let mut arrays = Vec::with_capacity(lens.len());
        match self {
            Self::Cpu(bytes) => {
                let mut rest = &mut bytes[..];
                for &len in lens {
                    let array = rest.split_off_mut(..len).ok_or("more bytes than there is memory")?;
                    arrays.push(ArrayMut::new(Dtype::U8, &[len as u64], array)?);
                }
            }
            Self::Gpu(device, buffer) => {
                let mut at = 0;
                for &len in lens {
                    assert!(at + len <= buffer.len());
                    let address = buffer.ptr() + at as u64;
                    // SAFETY: as above, and nobody reads it; no two of them overlap.
                    arrays.push(unsafe { ArrayMut::on_gpu(device, address, Dtype::U8, &[len as u64]) }?);
                    at += len;
                }
            }
        }
        Ok(arrays)
    }
}

impl TensorMemory {
    /// A part of a GPU's memory, as an array to receive; `None` if it is not there. Who takes it
    /// keeps `self` until the transfer has ended, and takes no part of it again before.
    pub fn slot(&self, at: usize, len: usize) -> Option<ArrayMut<'static>> {
        let Self::Gpu(device, buffer) = self else { return None };
        if at.checked_add(len)? > buffer.len() {
            return None;
        }
        // SAFETY: within the buffer (checked); the rest is the caller's promise.
        unsafe { ArrayMut::on_gpu(device, buffer.ptr() + at as u64, Dtype::U8, &[len as u64]) }.ok()
    }
}

/// Copies between two devices of this process: what a transfer is compared with.
pub enum TensorCopy {
    /// Between buffers of the CPU, by some threads.
    Cpu { from: Vec<u8>, to: Vec<u8>, threads: usize },
    /// By the copy engine. The source is memory of the other GPU, or of the same.
    Gpu { stream: CudaStream, from: ImportedBuffer, to: GpuBuffer },
    /// By the copy engine, between a GPU and pinned memory of the CPU.
    Bus { stream: CudaStream, gpu: GpuBuffer, pinned: gpu_usermap::cuda::Registration, out: bool },
}

impl TensorCopy {
    /// Makes the memory of a copy from one device to another.
    pub fn new(from: &str, to: &str, len: usize, threads: usize) -> Outcome<Self> {
        Ok(match (open(from)?, open(to)?) {
            (None, None) => Self::Cpu { from: vec![1; len], to: vec![2; len], threads },
            (Some(source), Some(target)) => {
                let shared = source.alloc_shareable(len)?;
                let from = target.import(shared.export()?, shared.len())?;
                let stream = target.create_stream(StreamPriority::Normal)?;
                Self::Gpu { stream, from, to: target.alloc(len)? }
            }
            (source, target) => {
                let out = source.is_some();
                let Some(device) = source.or(target) else { return Err("no GPU".into()) };
                let region = gpu_usermap::PinnedRegion::create("gpunet-bench", len)?;
                let pinned = device.register(region)?;
                let stream = device.create_stream(StreamPriority::Normal)?;
                Self::Bus { stream, gpu: device.alloc(len)?, pinned, out }
            }
        })
    }

    /// Copies the first bytes once.
    pub fn copy(&mut self, len: usize) -> Outcome<()> {
        match self {
            Self::Cpu { from, to, threads } => {
                let part = len.div_ceil(*threads).max(1);
                if len < 1 << 20 {
                    // A thread takes longer to start.
                    to[..len].copy_from_slice(&from[..len]);
                    return Ok(());
                }
                std::thread::scope(|scope| {
                    for (to, from) in to[..len].chunks_mut(part).zip(from[..len].chunks(part)) {
                        scope.spawn(|| to.copy_from_slice(from));
                    }
                });
            }
            Self::Gpu { stream, from, to } => {
                assert!(len <= from.len().min(to.len()));
                // SAFETY: within both, which live here until the stream is done.
                unsafe { stream.copy(to.ptr(), from.ptr(), len) }?;
                stream.synchronize()?;
            }
            Self::Bus { stream, gpu, pinned, out } => {
                assert!(len <= gpu.len().min(pinned.region().len()));
                let (here, there) = (gpu.ptr(), pinned.device_ptr());
                let (to, from) = if *out { (there, here) } else { (here, there) };
                // SAFETY: as above.
                unsafe { stream.copy(to, from, len) }?;
                stream.synchronize()?;
            }
        }
        Ok(())
    }
}
