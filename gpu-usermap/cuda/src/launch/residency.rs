//! Whether kernels that wait for each other fit on the GPU at the same time.
//!
//! A block that found no room starts only when another ends. If that other waits for it, neither
//! ever proceeds, so this is checked before the launch.

use super::spec::LaunchSpec;
use crate::code::occupancy;
use crate::device::Device;
use crate::driver::CudaError;

/// What one kernel needs in order to be resident as a whole.
///
/// # Examples
/// ```
/// use gpunet_cuda::{KernelDemand, fit_together};
///
/// let demand = |kernel: &str, blocks| KernelDemand { kernel: kernel.to_owned(), blocks, blocks_per_sm: 2 };
/// assert_eq!(fit_together(&[demand("server", 64), demand("client", 200)], 132, 0), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelDemand {
    /// The kernel's name, for the message.
    pub kernel: String,
    /// How many blocks it has.
    pub blocks: u64,
    /// How many of its blocks fit on an otherwise empty multiprocessor; 0 if the block is too large
    /// for it.
    pub blocks_per_sm: u32,
}

/// The first kernel that does not fit beside the others.
///
/// # Examples
/// ```
/// use gpunet_cuda::{KernelDemand, fit_together};
///
/// let server = KernelDemand { kernel: "server".to_owned(), blocks: 140, blocks_per_sm: 1 };
/// let refused = fit_together(&[server], 132, 0).unwrap_err();
/// assert!(refused.to_string().contains("Launch at most 132 blocks"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub struct NotCoResident {
    /// The kernel's name.
    pub kernel: String,
    /// How many blocks it has.
    pub blocks: u64,
    /// How many of them fit beside what else is there.
    pub blocks_that_fit: u64,
    /// How many of its blocks fit on one multiprocessor.
    pub blocks_per_sm: u32,
    /// The device's multiprocessors.
    pub sms: u32,
    /// Multiprocessors that launches fill which still run.
    pub sms_running: u32,
    /// Multiprocessors that the kernels before it in the same check fill.
    pub sms_beside: u32,
}

impl NotCoResident {
    fn message(&self) -> String {
        let Self { kernel, blocks, blocks_that_fit, blocks_per_sm, sms, sms_running, sms_beside } = self;
        if *blocks_per_sm == 0 {
            return format!(
                "kernel `{kernel}`: not even one block fits on a multiprocessor; use fewer threads, registers or shared memory per block"
            );
        }
        format!(
            "kernel `{kernel}` has {blocks} blocks and only {blocks_that_fit} fit at the same time: {blocks_per_sm} per \
             multiprocessor, and of {sms} multiprocessors {sms_running} are taken by running launches and {sms_beside} by the \
             kernels beside it. Kernels that wait for each other would never end. Launch at most {blocks_that_fit} blocks, or use \
             fewer threads, registers or shared memory per block, or wait for running launches"
        )
    }
}

/// Why kernels may not be launched together.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::CoResidencyError;
///
/// fn blocks_that_fit(error: &CoResidencyError) -> Option<u64> {
///     match error {
///         CoResidencyError::NotCoResident(refused) => Some(refused.blocks_that_fit),
///         _ => None,
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoResidencyError {
    /// They do not fit.
    #[error(transparent)]
    NotCoResident(#[from] NotCoResident),
    /// A kernel is loaded on another device.
    #[error("kernel `{kernel}` is loaded on another device")]
    OtherDevice {
        /// The kernel's name.
        kernel: String,
    },
    /// The driver refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Checks that kernels fit on `sms` multiprocessors, of which `sms_running` are filled.
///
/// Conservative: two kernels never share a multiprocessor, though the hardware may place them so.
///
/// # Errors
/// [`NotCoResident`] for the first kernel that does not fit beside those before it.
///
/// # Examples
/// ```
/// use gpunet_cuda::{KernelDemand, fit_together};
///
/// let server = KernelDemand { kernel: "server".to_owned(), blocks: 140, blocks_per_sm: 1 };
/// let refused = fit_together(&[server], 132, 0).unwrap_err();
/// assert_eq!(refused.blocks_that_fit, 132);
/// ```
pub fn fit_together(demands: &[KernelDemand], sms: u32, sms_running: u32) -> Result<(), NotCoResident> {
    let mut sms_beside: u32 = 0;
    for demand in demands {
        let free = sms.saturating_sub(sms_running).saturating_sub(sms_beside);
        let needed =
            sms_needed(demand.blocks, demand.blocks_per_sm).and_then(|needed| u32::try_from(needed).ok());
        match needed {
            Some(needed) if needed <= free => sms_beside += needed,
            _ => {
                return Err(NotCoResident {
                    kernel: demand.kernel.clone(),
                    blocks: demand.blocks,
                    blocks_that_fit: u64::from(free) * u64::from(demand.blocks_per_sm),
                    blocks_per_sm: demand.blocks_per_sm,
                    sms,
                    sms_running,
                    sms_beside,
                });
            }
        }
    }
    Ok(())
}

/// Returns how many multiprocessors `blocks` fill; `None` if a block fits on none.
pub(crate) fn sms_needed(blocks: u64, blocks_per_sm: u32) -> Option<u64> {
    (blocks_per_sm > 0).then(|| blocks.div_ceil(blocks_per_sm.into()))
}

impl Device {
    /// Checks that these kernels can all be resident at once, beside the launches of this device
    /// that still run.
    ///
    /// Parameters of the specs are not checked. The answer may be out of date when it returns: let
    /// one part of a program launch kernels that wait for each other. Kernels of other processes
    /// and of other handles to the GPU are not known.
    ///
    /// # Errors
    /// [`CoResidencyError::NotCoResident`] says which kernel does not fit, how many blocks would,
    /// and what to do.
    ///
    /// # Examples
    /// ```no_run
    /// use gpunet_cuda::{CoResidencyError, LaunchSpec};
    ///
    /// # fn check(gpu: &gpunet_cuda::Device, specs: &[LaunchSpec]) -> Result<(), CoResidencyError> {
    /// match gpu.check_co_resident(specs) {
    ///     Err(CoResidencyError::NotCoResident(refused)) => {
    ///         println!("launch at most {} blocks of {}", refused.blocks_that_fit, refused.kernel);
    ///     }
    ///     other => other?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_co_resident(&self, specs: &[LaunchSpec]) -> Result<(), CoResidencyError> {
        if let Some(other) = specs.iter().find(|spec| !self.is(spec.function.device())) {
            return Err(CoResidencyError::OtherDevice { kernel: other.function.name().to_owned() });
        }
        let kernels: Vec<_> =
            specs.iter().map(|spec| (spec.function.handle(), spec.threads(), spec.shared_bytes)).collect();
        let (per_sm, running) = self.agent().run(move |context| {
            // `specs` hold the functions while the caller waits for this job.
            let per_sm = kernels
                .into_iter()
                .map(|(function, threads, shared)| occupancy(context, function, threads, shared))
                .collect::<Result<Vec<_>, CudaError>>()?;
            context.reap();
            Ok::<_, CudaError>((per_sm, context.launches.busy_sms()))
        })??;
        let demands: Vec<_> = specs
            .iter()
            .zip(per_sm)
            .map(|(spec, blocks_per_sm)| KernelDemand {
                kernel: spec.function.name().to_owned(),
                blocks: spec.blocks(),
                blocks_per_sm,
            })
            .collect();
        Ok(fit_together(&demands, self.multiprocessors(), running)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(kernel: &str, blocks: u64, blocks_per_sm: u32) -> KernelDemand {
        KernelDemand { kernel: kernel.to_owned(), blocks, blocks_per_sm }
    }

    #[test]
    fn one_kernel_fits_up_to_the_last_block() {
        assert_eq!(fit_together(&[demand("a", 264, 2)], 132, 0), Ok(()));
        let refused = fit_together(&[demand("a", 265, 2)], 132, 0).expect_err("one too many");
        assert_eq!((refused.blocks_that_fit, refused.sms_beside), (264, 0));
    }

    #[test]
    fn two_kernels_share_no_multiprocessor() {
        assert_eq!(fit_together(&[demand("a", 100, 1), demand("b", 64, 2)], 132, 0), Ok(()));
        let refused =
            fit_together(&[demand("a", 100, 1), demand("b", 65, 2)], 132, 0).expect_err("33 and 100 are 133");
        assert_eq!((refused.kernel.as_str(), refused.blocks_that_fit, refused.sms_beside), ("b", 64, 100));
    }

    #[test]
    fn running_launches_count() {
        assert_eq!(fit_together(&[demand("a", 32, 1)], 132, 100), Ok(()));
        let refused = fit_together(&[demand("a", 33, 1)], 132, 100).expect_err("32 are free");
        assert_eq!((refused.blocks_that_fit, refused.sms_running), (32, 100));
        assert_eq!(
            fit_together(&[demand("a", 1, 1)], 132, 200).expect_err("nothing is free").blocks_that_fit,
            0
        );
    }

    #[test]
    fn a_block_that_fits_nowhere_is_said_to_be_too_large() {
        let refused = fit_together(&[demand("big", 1, 0)], 132, 0).expect_err("too large");
        assert!(refused.to_string().contains("not even one block"), "{refused}");
    }

    #[test]
    fn no_kernels_and_absurd_grids_are_no_overflow() {
        assert_eq!(fit_together(&[], 132, 0), Ok(()));
        let all = [demand("a", u64::MAX, 1), demand("b", u64::MAX, 32)];
        assert!(fit_together(&all, u32::MAX, u32::MAX).is_err());
        assert!(fit_together(&all[..1], u32::MAX, 0).is_err());
    }

    #[test]
    fn the_message_says_what_to_do() {
        let text = fit_together(&[demand("server", 140, 1)], 132, 0).expect_err("8 too many").to_string();
        for part in ["`server` has 140 blocks", "only 132 fit", "Launch at most 132 blocks"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
