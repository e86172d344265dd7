//! Loading kernels with an attachment, and launching them.

use crate::api::attachment::Attachment;
use crate::launch::program::{Program, listen_for_panics};
use crate::launch::running::{Launch, LaunchError};
use crate::launch::token::LaunchToken;
use crate::model::error::TooManyLaunches;
use gpu_usermap::cuda::{CopyError, LoadModuleError, Module};
use gpunet_device::{Kernel, Net};

impl Attachment {
    /// Takes a launch number. Kernels that are started with its [`LaunchToken::net`] are cancelled
    /// and reaped together.
    ///
    /// # Errors
    /// [`TooManyLaunches`], when all 64 numbers are in use.
    ///
    /// # Examples
    /// ```
    /// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
    /// let token = attachment.token()?;
    /// println!("kernels of this launch find their sockets at {:#x}", token.context());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn token(&self) -> Result<LaunchToken, TooManyLaunches> {
        LaunchToken::take(self.device())
    }

    /// Loads PTX on the attachment's GPU, for blocks of at most `threads` threads: the assembler
    /// gives each thread its share of the registers. On the CPU device it loads nothing.
    ///
    /// Load all programs before the first launch: the driver may wait for running kernels, which
    /// may be waiting for the host.
    ///
    /// # Errors
    /// [`LoadModuleError`], with the assembler's log.
    pub fn load(&self, ptx: &str, threads: u32) -> Result<Program, LoadModuleError> {
        Program::load(self.device(), |device| device.load_module_for(ptx, threads))
    }

    /// As [`Attachment::load`], with these kernels only. The driver then assembles no others, which
    /// makes the first start of a program with several kernels shorter.
    ///
    /// # Errors
    /// As [`Attachment::load`]. The launch of any other kernel fails with
    /// [`LaunchError::Entry`](crate::LaunchError::Entry).
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
        Program::load(self.device(), |device| device.load_entries(ptx, entries, threads))
    }

    /// As [`Attachment::load_entries`], with a cubin that was made of the same text for the GPU's
    /// [architecture](gpu_usermap::cuda::Device::architecture): nothing is assembled, so the first
    /// start is as short as any other. Where the cubin is of no use (other GPUs, blocks of more
    /// than 256 threads, an older driver), the text is assembled.
    ///
    /// # Errors
    /// As [`Attachment::load_entries`].
    pub fn load_assembled(
        &self,
        cubin: Vec<u8>,
        ptx: &str,
        entries: &[&str],
        threads: u32,
    ) -> Result<Program, LoadModuleError> {
        Program::load(self.device(), |device| device.load_assembled(cubin, ptx, entries, threads))
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
        listen_for_panics(self.device(), module);
        module.device().write_symbol(module, "gpunet_attachment", &token.context().to_ne_bytes())
    }

    /// Checks that kernels of these shapes (entry, blocks, threads) fit on the device at the same
    /// time, together with the kernels that already run. Kernels that wait for each other must fit.
    ///
    /// On the CPU device everything fits.
    ///
    /// # Errors
    /// [`LaunchError::NotCoResident`] says how many blocks would fit; [`LaunchError::Entry`], when
    /// the program has no such entry.
    ///
    /// # Examples
    /// ```no_run
    /// # let gpu = gpu_usermap::cuda::Cuda::load()?.device(0)?;
    /// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::default())?.attach_cuda(&gpu)?;
    /// let program = attachment.load(&std::fs::read_to_string("echo.ptx")?, 256)?;
    /// // The clients wait for the server.
    /// attachment.check_co_resident(&program, &[("echo_server", 16, 256), ("echo_client", 64, 256)])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_co_resident(
        &self,
        program: &Program,
        shapes: &[(&str, u32, u32)],
    ) -> Result<(), LaunchError> {
        Launch::check_co_resident(self.device(), program, shapes)
    }

    /// Starts `blocks` thread blocks of `threads` threads each.
    ///
    /// `kernel` makes the kernel's parameters from the [`Net`] by which it finds its sockets. The
    /// call returns when the kernel has been started.
    ///
    /// # Safety
    /// The buffers and addresses in the kernel's parameters are valid on this device until the
    /// kernel ends, and used as their types demand.
    ///
    /// # Errors
    /// [`LaunchError`]. No block runs then; after [`LaunchError::Threads`], the blocks that were
    /// started are cancelled.
    ///
    /// # Examples
    /// A kernel that sends a buffer to a TCP program:
    ///
    /// ```
    /// use gpunet_proxy::device::{Buffer, Group, Kernel, Net, Result, SockAddr, Stream};
    /// use gpunet_proxy::{Config, FinishPolicy, embed};
    /// use std::io::Read;
    ///
    /// #[derive(Clone, Copy)]
    /// #[repr(C)]
    /// struct SendTo {
    ///     net: Net,
    ///     addr: SockAddr,
    ///     message: Buffer,
    /// }
    ///
    /// impl Kernel for SendTo {
    ///     const ENTRY: &'static str = "send_to";
    ///     fn run<G: Group>(self, group: &G) {
    ///         let send = || -> Result<()> {
    ///             let mut stream = Stream::connect(group, self.net, self.addr)?;
    ///             stream.send_all(group, self.message)?;
    ///             stream.close(group)
    ///         };
    ///         let _ = send();
    ///     }
    /// }
    ///
    /// let attachment = embed(Config::small())?.attach_cpu()?;
    /// let mut message = attachment.alloc(5)?;
    /// message.write(0, b"hello")?;
    /// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let addr = SockAddr::from_std(server.local_addr()?);
    ///
    /// let program = attachment.load("", 1)?;
    /// // SAFETY: `message` is dropped after the launch, and only this kernel uses it.
    /// let launch = unsafe {
    ///     let message = message.buffer();
    ///     attachment.launch(&program, 1, 1, |net| SendTo { net, addr, message })
    /// }?;
    /// let mut received = String::new();
    /// server.accept()?.0.read_to_string(&mut received)?;
    /// assert_eq!(received, "hello");
    /// launch.finish(FinishPolicy::Close)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn launch<K: Kernel>(
        &self,
        program: &Program,
        blocks: u32,
        threads: u32,
        kernel: impl FnOnce(Net) -> K,
    ) -> Result<Launch, LaunchError> {
        // SAFETY: the caller keeps what the parameters point to valid, as this function asks.
        unsafe { Launch::start(self.device(), program, blocks, threads, kernel) }
    }
}
