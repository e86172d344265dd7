//! How the sockets are treated that a launch leaves open.

use gpunet_abi::Handle;

/// What happens to the sockets that a finished launch left open.
///
/// # Examples
/// A kernel that prepares listeners for later kernels leaves them open:
///
/// ```no_run
/// use gpunet_proxy::{FinishPolicy, KernelError, Launch};
///
/// fn prepared(launch: Launch) -> Result<(), KernelError> {
///     let report = launch.finish(FinishPolicy::Keep)?;
///     println!("{} listeners stay", report.left_open);
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinishPolicy {
    /// They stay, for a later kernel on the same device.
    Keep,
    /// They are closed: what was accepted is still sent.
    #[default]
    Close,
    /// They are reset.
    Reset,
}

/// What a finished launch left.
///
/// # Examples
/// ```
/// use gpunet_proxy::FinishPolicy;
///
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let report = attachment.token()?.finish(FinishPolicy::Close);
/// assert_eq!(report.left_open, 0, "no kernel ran");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinishReport {
    /// Sockets that the launch opened and did not close. If the proxy does not answer for ten
    /// seconds, the log says so, and only the sockets reported until then count; the proxy closes
    /// the others later.
    pub left_open: usize,
}

/// What the proxy did with sockets of a launch that has ended.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// They were closed, and their slots are out of use until they are released.
    pub(crate) closed: Vec<Handle>,
    /// How many are kept.
    pub(crate) kept: usize,
    /// There are more: call again.
    pub(crate) more: bool,
}

/// The most sockets that one call may name.
pub(crate) const MOST_HANDLES: usize = 4096;
