//! Where kernels run.

use crate::args::DeviceChoice;
use crate::error::Error;
use gpu_usermap::cuda::{Cuda, Device};
use gpunet_proxy::{Attachment, Proxy};

/// Gives the chosen device its sockets.
///
/// `auto` takes the first GPU if there is one. A GPU that is there and cannot be used is worth a
/// line on stderr; a machine without one is not.
pub fn attach(proxy: &Proxy, choice: DeviceChoice) -> Result<Attachment, Error> {
    let ordinal = match choice {
        DeviceChoice::Cpu => return Ok(proxy.attach_cpu()?),
        DeviceChoice::Cuda(ordinal) => return attach_gpu(proxy, ordinal),
        DeviceChoice::Auto if has_gpu() => 0,
        DeviceChoice::Auto => return Ok(proxy.attach_cpu()?),
    };
    attach_gpu(proxy, ordinal).or_else(|error| {
        eprintln!("gpunet-rstream: {error}; running on the CPU");
        Ok(proxy.attach_cpu()?)
    })
}

fn has_gpu() -> bool {
    Cuda::load().is_ok_and(|cuda| cuda.device_count().is_ok_and(|count| count > 0))
}

fn attach_gpu(proxy: &Proxy, ordinal: u32) -> Result<Attachment, Error> {
    let device = open(ordinal).map_err(|reason| Error::NoGpu { ordinal, reason })?;
    proxy.attach_cuda(&device).map_err(|error| Error::NoGpu { ordinal, reason: error.to_string() })
}

fn open(ordinal: u32) -> Result<Device, String> {
    let cuda = Cuda::load().map_err(|error| error.to_string())?;
    let count = cuda.device_count().map_err(|error| error.to_string())?;
    if ordinal >= count {
        return Err(format!("there are {count} GPUs"));
    }
    cuda.device(ordinal).map_err(|error| error.to_string())
}
