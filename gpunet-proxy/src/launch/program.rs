//! Loading kernels, and telling a module where its attachment is.

use crate::attached::device::AttachedDevice;
use gpu_usermap::cuda::{Device, LoadModuleError, Module};
use gpunet_abi::panic_record::PANIC_SYMBOL;

/// The kernels that an attachment can run, made by [`Attachment::load`](crate::Attachment::load).
///
/// On a GPU it is a loaded module. On the CPU, where kernels are ordinary functions, it holds
/// nothing.
///
/// # Examples
/// ```
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// // On a GPU this is the PTX of the kernel crate; the CPU device loads nothing.
/// let program = attachment.load("", 256)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    module: Option<Module>,
}

impl Program {
    /// Loads a module on the device's GPU; on the CPU device nothing.
    pub(crate) fn load(
        device: &AttachedDevice,
        load: impl FnOnce(&Device) -> Result<Module, LoadModuleError>,
    ) -> Result<Self, LoadModuleError> {
        let module = device.cuda().map(load).transpose()?;
        if let Some(module) = &module {
            listen_for_panics(device, module);
        }
        Ok(Self { module })
    }

    /// The loaded module; `None` on the CPU.
    pub(crate) const fn module(&self) -> Option<&Module> {
        self.module.as_ref()
    }
}

/// Tells a module where to record its panics. A module without the variable cannot record any.
pub(crate) fn listen_for_panics(device: &AttachedDevice, module: &Module) {
    let Some(address) = device.panic_record_address() else { return };
    if let Err(error) = module.device().write_symbol(module, PANIC_SYMBOL, &address.to_ne_bytes()) {
        tracing::debug!(%error, "this module's panics will not say where they are");
    }
}
