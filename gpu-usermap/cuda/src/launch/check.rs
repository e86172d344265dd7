//! What can be known about a launch before it starts.

use super::spec::LaunchSpec;
use crate::device::Device;
use crate::driver::CudaError;

/// Why kernels were not launched. `index` is the kernel's position in the slice.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::LaunchError;
///
/// fn explain(error: &LaunchError) {
///     if let LaunchError::LocalMemory { kernel, needed, .. } = error {
///         println!("load {kernel} before the first launch: it needs {needed} bytes per thread");
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// There was nothing to launch.
    #[error("a launch needs at least one kernel")]
    Empty,
    /// The kernel is loaded on another device.
    #[error("kernel {index} (`{kernel}`) is loaded on another device than the one that launches it")]
    OtherDevice {
        /// Which spec.
        index: usize,
        /// The kernel's name.
        kernel: String,
    },
    /// A grid or block dimension is 0.
    #[error("kernel {index} (`{kernel}`): grid {grid:?} of blocks {block:?} has a dimension of 0")]
    ZeroDimension {
        /// Which spec.
        index: usize,
        /// The kernel's name.
        kernel: String,
        /// Its grid.
        grid: (u32, u32, u32),
        /// Its block.
        block: (u32, u32, u32),
    },
    /// The block is larger than the kernel's registers, or the device, allow.
    #[error("kernel {index} (`{kernel}`): {threads} threads per block, but at most {max} are possible")]
    TooManyThreads {
        /// Which spec.
        index: usize,
        /// The kernel's name.
        kernel: String,
        /// Threads that were asked for.
        threads: u32,
        /// The most that the kernel runs with.
        max: u32,
    },
    /// More parameters than the kernel takes. Known from driver 12.4 on; too few are the caller's
    /// to avoid.
    #[error("kernel {index} (`{kernel}`) takes {expected} parameters, {given} were given")]
    ParameterCount {
        /// Which spec.
        index: usize,
        /// The kernel's name.
        kernel: String,
        /// What the kernel takes.
        expected: usize,
        /// What was given.
        given: usize,
    },
    /// A parameter's size is not the kernel's. Known from driver 12.4 on.
    #[error("kernel {index} (`{kernel}`): parameter {parameter} is {expected} bytes, {given} were given")]
    ParameterSize {
        /// Which spec.
        index: usize,
        /// The kernel's name.
        kernel: String,
        /// Which parameter, from 0.
        parameter: usize,
        /// The kernel's size.
        expected: usize,
        /// The given size.
        given: usize,
    },
    /// The driver would wait for the kernels that run, which may be waiting for the host.
    #[error(
        "kernel {index} (`{kernel}`) needs {needed} bytes of local memory per thread, {set_aside} are set aside, and CUDA can set \
         more aside only while no kernel runs: load its module (before CUDA 12.4 look the kernel up, too) before the first launch"
    )]
    LocalMemory {
        /// Which spec.
        index: usize,
        /// The kernel's name.
        kernel: String,
        /// What it needs, in bytes per thread.
        needed: u32,
        /// What there is, in bytes per thread.
        set_aside: u32,
    },
    /// The driver refused.
    #[error("kernel {index} (`{kernel}`; {started} others of the call run already): {source}")]
    Cuda {
        /// Which spec.
        index: usize,
        /// The kernel's name.
        kernel: String,
        /// How many kernels of the call were started before, and run.
        started: usize,
        /// The driver's error.
        r#source: CudaError,
    },
}

pub(crate) fn all(device: &Device, specs: &[LaunchSpec]) -> Result<(), LaunchError> {
    if specs.is_empty() {
        return Err(LaunchError::Empty);
    }
    specs.iter().enumerate().try_for_each(|(index, spec)| one(device, index, spec))
}

fn one(device: &Device, index: usize, spec: &LaunchSpec) -> Result<(), LaunchError> {
    let kernel = spec.function.name().to_owned();
    if !device.is(spec.function.device()) {
        return Err(LaunchError::OtherDevice { index, kernel });
    }
    let (grid, block, threads) = (spec.grid, spec.block, spec.threads());
    if spec.blocks() == 0 || threads == 0 {
        return Err(LaunchError::ZeroDimension { index, kernel, grid, block });
    }
    let max = spec.function.attributes().max_threads_per_block;
    if threads > max {
        return Err(LaunchError::TooManyThreads { index, kernel, threads, max });
    }
    let Some(sizes) = spec.function.parameters(spec.params.len()) else { return Ok(()) };
    parameters(index, kernel, &sizes, &spec.params)
}

fn parameters(index: usize, kernel: String, sizes: &[usize], params: &[Vec<u8>]) -> Result<(), LaunchError> {
    let (expected, given) = (sizes.len(), params.len());
    if expected < given {
        return Err(LaunchError::ParameterCount { index, kernel, expected, given });
    }
    match sizes.iter().zip(params).position(|(&size, bytes)| size != bytes.len()) {
        None => Ok(()),
        Some(parameter) => {
            let (expected, given) = (sizes[parameter], params[parameter].len());
            Err(LaunchError::ParameterSize { index, kernel, parameter, expected, given })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_compared_with_the_kernels_own() {
        let check = |params: &[Vec<u8>]| parameters(2, "k".to_owned(), &[8, 4], params);
        assert_eq!(check(&[vec![0; 8], vec![0; 4]]), Ok(()));
        assert_eq!(
            check(&[vec![0; 8], vec![0; 4], vec![0; 1]]),
            Err(LaunchError::ParameterCount { index: 2, kernel: "k".to_owned(), expected: 2, given: 3 })
        );
        assert_eq!(
            check(&[vec![0; 8], vec![0; 8]]),
            Err(LaunchError::ParameterSize {
                index: 2,
                kernel: "k".to_owned(),
                parameter: 1,
                expected: 4,
                given: 8
            })
        );
    }
}
