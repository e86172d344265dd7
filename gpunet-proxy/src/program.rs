//! Loading kernels, and telling a module where its attachment is.

use crate::attachment::Attachment;
use crate::token::LaunchToken;
use gpu_usermap::cuda::{CopyError, Device, LoadModuleError, Module};
use gpunet_abi::panic_record::PANIC_SYMBOL;

/// The kernels that an attachment can run, made by [`Attachment::load`].
///
/// On a GPU it is a loaded module. On the CPU, where kernels are ordinary functions, it holds nothing.
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
    /// The loaded module; `None` on the CPU.
    pub(crate) const fn module(&self) -> Option<&Module> {
        self.module.as_ref()
    }
}

impl Attachment {
    /// Loads PTX on the attachment's GPU, for blocks of at most `threads` threads: the assembler gives each
    /// thread its share of the registers. On the CPU device it loads nothing.
    ///
    /// Load all programs before the first launch: the driver may wait for running kernels, which may be
    /// waiting for the host.
    ///
    /// # Errors
    /// [`LoadModuleError`], with the assembler's log.
    pub fn load(&self, ptx: &str, threads: u32) -> Result<Program, LoadModuleError> {
        self.program(|device| device.load_module_for(ptx, threads))
    }

    /// As [`Attachment::load`], with these kernels only. The driver then assembles no others, which makes the first
    /// start of a program with several kernels shorter.
    ///
    /// # Errors
    /// As [`Attachment::load`]. The launch of any other kernel fails with [`LaunchError::Entry`](crate::LaunchError::Entry).
    ///
    /// # Examples
    /// ```
    /// # use gpunet_proxy::device::{Group, Kernel};
    /// # #[derive(Clone, Copy)]
    /// # struct Server;
    /// # impl Kernel for Server {
    /// #     const ENTRY: &'static str = "server";
    /// #     fn run<G: Group>(self, _group: &G) {}
    /// # }
    /// # const PTX: &str = "";
    /// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
    /// let program = attachment.load_entries(PTX, &[Server::ENTRY], 256)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load_entries(
        &self,
        ptx: &str,
        entries: &[&str],
        threads: u32,
    ) -> Result<Program, LoadModuleError> {
        self.program(|device| device.load_entries(ptx, entries, threads))
    }

    fn program(
        &self,
        load: impl FnOnce(&Device) -> Result<Module, LoadModuleError>,
    ) -> Result<Program, LoadModuleError> {
        let module = self.cuda().map(load).transpose()?;
        if let Some(module) = &module {
            self.listen_for_panics(module);
        }
        Ok(Program { module })
    }

    /// Tells a module where to record its panics. A module without the variable cannot record any.
    fn listen_for_panics(&self, module: &Module) {
        let Some(address) = self.shared.panic_record_address() else { return };
        if let Err(error) = module.device().write_symbol(module, PANIC_SYMBOL, &address.to_ne_bytes()) {
            tracing::debug!(%error, "this module's panics will not say where they are");
        }
    }

    /// Points a module's C functions (the `gpunet_attachment` global) at the sockets of `token`.
    ///
    /// # Errors
    /// [`CopyError`], when the module has no such global or CUDA fails.
    ///
    /// # Examples
    /// ```no_run
    /// # let gpu = gpu_usermap::cuda::Cuda::load()?.device(0)?;
    /// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::default())?.attach_cuda(&gpu)?;
    /// let functions = std::fs::read("gpunet_device.ptx")?; // the C functions
    /// let kernel = std::fs::read("kernel.ptx")?; // from nvcc
    /// let module = gpu.link(&[("kernel", &kernel), ("gpunet", &functions)])?;
    /// let token = attachment.token()?;
    /// attachment.bind(&module, &token)?;
    /// // ... launch the module's kernels: gpu_usermap::cuda::Device::launch ...
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind(&self, module: &Module, token: &LaunchToken) -> Result<(), CopyError> {
        self.listen_for_panics(module);
        module.device().write_symbol(module, "gpunet_attachment", &token.context().to_ne_bytes())
    }
}
