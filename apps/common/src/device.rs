//! Where kernels run.

use gpu_usermap::cuda::{Cuda, Device, LoadModuleError};
use gpunet_embed_ptx::Embedded;
use gpunet_proxy::{AttachError, Attachment, Program, Proxy};
use std::str::FromStr;

/// `--device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU if there is one, else the CPU.
    Auto,
    /// CPU thread blocks.
    Cpu,
    /// That GPU.
    Cuda(u32),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected auto, cpu, cuda or cuda:N".to_owned();
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let ordinal = text.strip_prefix("cuda:").ok_or_else(wrong)?;
                ordinal.parse().map(Self::Cuda).map_err(|_| wrong())
            }
        }
    }
}

/// Why the chosen device has no sockets.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The GPU that was asked for cannot be used.
    #[error("cuda:{ordinal} cannot be used: {reason}")]
    NoGpu {
        /// Which one.
        ordinal: u32,
        /// Why.
        reason: String,
    },
    /// The CPU device could not be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Loads CUDA if the choice may need it. Call it before the program starts a thread: only then may
/// this library ask the driver for its maximum number of stream connections, which waiting queues
/// need.
pub fn load_driver(choice: DeviceChoice) {
    if choice != DeviceChoice::Cpu {
        // The code that needs it loads it again, and reports why that fails.
        let _ = Cuda::load();
    }
}

/// Attaches the chosen device.
///
/// `auto` takes the first GPU if there is one. If that cannot be used, a line on stderr that begins
/// with `program` says why, and the CPU is attached.
///
/// # Errors
/// [`DeviceError`].
pub fn attach(proxy: &Proxy, program: &str, choice: DeviceChoice) -> Result<Attachment, DeviceError> {
    let ordinal = match choice {
        DeviceChoice::Cpu => return Ok(proxy.attach_cpu()?),
        DeviceChoice::Cuda(ordinal) => return attach_gpu(proxy, ordinal),
        DeviceChoice::Auto if has_gpu() => 0,
        DeviceChoice::Auto => return Ok(proxy.attach_cpu()?),
    };
    attach_gpu(proxy, ordinal).or_else(|error| {
        eprintln!("{program}: {error}; running on the CPU");
        Ok(proxy.attach_cpu()?)
    })
}

/// Loads kernels of the program on its device: as machine code if the program has some for this
/// GPU, otherwise as PTX, which the driver assembles.
///
/// # Errors
/// As [`Attachment::load_entries`].
pub fn load(
    attachment: &Attachment,
    code: &Embedded,
    entries: &[&str],
    threads: u32,
) -> Result<Program, LoadModuleError> {
    match attachment.cuda().and_then(|gpu| code.cubin(&gpu.architecture())) {
        Some(cubin) => attachment.load_assembled(cubin, code.text(), entries, threads),
        None => attachment.load_entries(code.text(), entries, threads),
    }
}

fn has_gpu() -> bool {
    Cuda::load().is_ok_and(|cuda| cuda.device_count().is_ok_and(|count| count > 0))
}

fn attach_gpu(proxy: &Proxy, ordinal: u32) -> Result<Attachment, DeviceError> {
    let device = open(ordinal).map_err(|reason| DeviceError::NoGpu { ordinal, reason })?;
    proxy.attach_cuda(&device).map_err(|error| DeviceError::NoGpu { ordinal, reason: error.to_string() })
}

fn open(ordinal: u32) -> Result<Device, String> {
    let cuda = Cuda::load().map_err(|error| error.to_string())?;
    let count = cuda.device_count().map_err(|error| error.to_string())?;
    if ordinal >= count {
        return Err(format!("there are {count} GPUs"));
    }
    cuda.device(ordinal).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_cuda_names_them() {
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
        assert!("cuda:".parse::<DeviceChoice>().is_err());
        assert!("gpu".parse::<DeviceChoice>().is_err());
    }
}
