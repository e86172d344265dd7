//! From PTX text to a loaded module.

#![allow(unsafe_code, reason = "hands text to the driver's assembler and linker")]

use std::borrow::Cow;
use std::ffi::{CString, c_void};

use super::cubin::Cubin;
use super::function::load_function;
use super::module::Module;
use crate::agent::Context;
use crate::device::Device;
use crate::driver::raw::{LinkHandle, ModuleHandle};
use crate::driver::{CudaError, LinkLog};
use crate::ptx;

/// Why code could not be loaded.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::LoadModuleError;
///
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// match gpu.load_module("no PTX") {
///     Err(LoadModuleError::Refused { log, .. }) => eprintln!("the assembler says: {log}"),
///     other => drop(other?),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadModuleError {
    /// The text or a name holds a NUL byte.
    #[error("{input} holds a NUL byte, so it is not PTX text")]
    NulByte {
        /// Which input.
        input: String,
    },
    /// The driver's assembler or linker refused the code.
    #[error("{source}\n{log}")]
    Refused {
        /// What the driver's assembler or linker wrote: lines and reasons; may be empty.
        log: String,
        /// The driver's error.
        r#source: CudaError,
    },
    /// The agent has ended.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Blocks of so many threads can run every kernel: a multiprocessor has 65,536 registers, and a
/// thread at most 255.
const THREADS_OF_ANY_KERNEL: u32 = 256;

impl Device {
    /// Assembles PTX text for this GPU and loads it.
    ///
    /// Load modules before a kernel waits for the host: the driver may wait for it in turn. All
    /// that the first launch of each of the module's kernels needs is done here as well (its code
    /// is loaded, and local memory is set aside for the largest stack among them), so that each can
    /// be launched beside a running kernel. Drivers before 12.4 do that when a
    /// [`Function`](crate::Function) is looked up: there look up all of them, too, before a kernel
    /// waits for the host.
    ///
    /// # Errors
    /// [`LoadModuleError::Refused`] carries the assembler's log.
    pub fn load_module(&self, ptx: &str) -> Result<Module, LoadModuleError> {
        self.load_text(ptx, None)
    }

    /// As [`Device::load_module`], with code that blocks of `threads` threads can run: the
    /// assembler keeps each thread's registers within its share of the multiprocessor's.
    ///
    /// # Errors
    /// As [`Device::load_module`].
    pub fn load_module_for(&self, ptx: &str, threads: u32) -> Result<Module, LoadModuleError> {
        self.load_text(ptx, Some(threads))
    }

    /// As [`Device::load_module_for`], with these kernels only: what the module has beside them is
    /// not assembled ([`only_entries`](crate::ptx::only_entries)). Assembling is most of a
    /// program's first start; after it the driver's cache has the code.
    ///
    /// # Errors
    /// As [`Device::load_module`].
    ///
    /// # Examples
    /// ```no_run
    /// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
    /// # let ptx = std::fs::read_to_string("kernel.ptx")?;
    /// let module = gpu.load_entries(&ptx, &["server"], 256)?;
    /// assert!(module.function("client").is_err(), "not loaded, even if the text has one");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load_entries(&self, ptx: &str, entries: &[&str], threads: u32) -> Result<Module, LoadModuleError> {
        self.load_text(&ptx::only_entries(ptx, entries), Some(threads))
    }

    /// As [`Device::load_entries`], with a cubin that was made of the same text for this GPU's
    /// [architecture](Device::architecture): nothing is assembled, so the first start is as short
    /// as any other.
    ///
    /// The text is loaded where the cubin is of no use: for blocks of more than 256 threads, whose
    /// registers a cubin without a limit may exceed, where the cubin is not whole, and where the
    /// driver refuses it, such as one for another architecture.
    ///
    /// # Errors
    /// As [`Device::load_entries`].
    ///
    /// # Examples
    /// ```no_run
    /// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
    /// let ptx = std::fs::read_to_string("kernel.ptx")?;
    /// // nvcc --cubin --relocatable-device-code=false --gpu-architecture=sm_90 kernel.ptx
    /// let cubin = std::fs::read(format!("kernel.{}.cubin", gpu.architecture()))?;
    /// let module = gpu.load_assembled(cubin, &ptx, &["server"], 256)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load_assembled(
        &self,
        cubin: Vec<u8>,
        ptx: &str,
        entries: &[&str],
        threads: u32,
    ) -> Result<Module, LoadModuleError> {
        if threads <= THREADS_OF_ANY_KERNEL {
            match Cubin::new(cubin) {
                Some(cubin) => match self.agent().run(move |context| load_image(context, &cubin))? {
                    Ok(handle) => return Ok(Module::new(self.clone(), handle)),
                    Err(error) => tracing::debug!(%error, "a cubin was refused: its text is assembled"),
                },
                None => tracing::debug!("a cubin is not whole: its text is assembled"),
            }
        }
        self.load_entries(ptx, entries, threads)
    }

    /// Assembles functions as callable ones and links them, also where there is one text. As a
    /// whole, the assembler would compile each function again for each kernel that reaches it,
    /// which takes it two to four times as long (docs/design/performance.md).
    fn load_text(&self, ptx: &str, threads: Option<u32>) -> Result<Module, LoadModuleError> {
        let texts = vec![(c"the module".to_owned(), c_string("the module", ptx.as_bytes())?)];
        self.load_linked(texts, threads)
    }

    /// Links PTX texts, each with a name for messages, into one module and loads it.
    ///
    /// A function declared `.extern` in one text and `.visible` in another is resolved: that is how
    /// a CUDA C++ or Numba kernel calls gpunet's device functions. Functions that no kernel of any
    /// text needs are not assembled ([`only_called`](crate::ptx::only_called)).
    ///
    /// # Errors
    /// [`LoadModuleError::Refused`] carries the log, with the names of unresolved functions.
    pub fn link(&self, texts: &[(&str, &[u8])]) -> Result<Module, LoadModuleError> {
        self.link_texts(texts, None)
    }

    /// As [`Device::link`], with code that blocks of `threads` threads can run.
    ///
    /// The assembler keeps every text's registers within a thread's share of the multiprocessor's.
    /// Without it a kernel may take up to 255 registers per thread. A multiprocessor has 65,536,
    /// enough for 256 threads.
    ///
    /// # Errors
    /// As [`Device::link`].
    ///
    /// # Examples
    /// ```no_run
    /// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
    /// let kernel = std::fs::read("kernel.ptx")?; // calls functions that the other text has
    /// let functions = std::fs::read("gpunet_device.ptx")?;
    /// let module = gpu.link_for(&[("kernel", &kernel), ("gpunet", &functions)], 256)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn link_for(&self, texts: &[(&str, &[u8])], threads: u32) -> Result<Module, LoadModuleError> {
        self.link_texts(texts, Some(threads))
    }

    fn link_texts(&self, texts: &[(&str, &[u8])], threads: Option<u32>) -> Result<Module, LoadModuleError> {
        let texts = texts
            .iter()
            .zip(called(texts))
            .map(|(&(name, _), ptx)| {
                Ok((c_string(&format!("the name {name:?}"), name.as_bytes())?, c_string(name, &ptx)?))
            })
            .collect::<Result<Vec<_>, LoadModuleError>>()?;
        self.load_linked(texts, threads)
    }

    fn load_linked(
        &self,
        texts: Vec<(CString, CString)>,
        threads: Option<u32>,
    ) -> Result<Module, LoadModuleError> {
        let handle = self.agent().run(move |context| link_and_load(context, &texts, threads))??;
        Ok(Module::new(self.clone(), handle))
    }
}

/// The texts without the functions that nobody calls, if all of them are text.
fn called<'a>(texts: &[(&str, &'a [u8])]) -> Vec<Cow<'a, [u8]>> {
    let as_text = |&(_, ptx): &(&str, &'a [u8])| str::from_utf8(ptx.strip_suffix(&[0]).unwrap_or(ptx));
    match texts.iter().map(as_text).collect::<Result<Vec<_>, _>>() {
        Ok(readable) => ptx::only_called(&readable).into_iter().map(bytes).collect(),
        Err(_) => texts.iter().map(|&(_, ptx)| Cow::Borrowed(ptx)).collect(),
    }
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

fn c_string(input: &str, text: &[u8]) -> Result<CString, LoadModuleError> {
    // Files made for the driver often end with the NUL already.
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    CString::new(text).map_err(|_| LoadModuleError::NulByte { input: input.to_owned() })
}

fn link_and_load(
    context: &mut Context,
    texts: &[(CString, CString)],
    threads: Option<u32>,
) -> Result<ModuleHandle, LoadModuleError> {
    let driver = context.driver();
    let mut log = LinkLog::new();
    // SAFETY: `log` lives until after `link_destroy` below.
    let link = match unsafe { driver.link_create(threads, &mut log) } {
        Ok(link) => link,
        Err(source) => return Err(LoadModuleError::Refused { log: log.into_text(), source }),
    };
    let mut load_log = LinkLog::new();
    let loaded = linked_image(context, link, texts).and_then(|image| {
        // SAFETY: the linker's complete cubin, alive until `link_destroy`; the driver copies it.
        unsafe { driver.module_load(image, &mut load_log) }
    });
    // SAFETY: made above, used no more.
    if let Err(error) = unsafe { driver.link_destroy(link) } {
        tracing::debug!(%error, "a linker was not destroyed");
    }
    if let Ok(module) = loaded {
        load_all(context, module);
    }
    loaded.map_err(|source| LoadModuleError::Refused { log: log.into_text() + &load_log.into_text(), source })
}

fn load_image(context: &mut Context, cubin: &Cubin) -> Result<ModuleHandle, LoadModuleError> {
    let mut log = LinkLog::new();
    // SAFETY: whole, as `Cubin::new` has seen; the driver copies it.
    let loaded = unsafe { context.driver().module_load(cubin.as_ptr(), &mut log) };
    let module = loaded.map_err(|source| LoadModuleError::Refused { log: log.into_text(), source })?;
    load_all(context, module);
    Ok(module)
}

/// Does now for all kernels of a new module what the driver would do at the first launch of each,
/// and would wait for running kernels to do: it loads their code, and sets their local memory
/// aside.
fn load_all(context: &mut Context, module: ModuleHandle) {
    // SAFETY: just loaded; nobody else knows it yet.
    let functions = unsafe { context.driver().module_functions(module) };
    let most = functions.and_then(|functions| {
        functions.into_iter().try_fold(0, |most, function| {
            // SAFETY: of that module.
            let local_bytes = unsafe { load_function(context.driver(), function) }?;
            Ok(local_bytes.max(most))
        })
    });
    match most {
        Ok(local_bytes) => context.set_local_memory_aside(local_bytes),
        // The lookup of a kernel that cannot be loaded tells its user.
        Err(error) => tracing::debug!(%error, "not all kernels of a module were loaded with it"),
    }
}

fn linked_image(
    context: &Context,
    link: LinkHandle,
    texts: &[(CString, CString)],
) -> Result<*const c_void, CudaError> {
    for (name, ptx) in texts {
        // SAFETY: the caller destroys `link` only after this returned.
        unsafe { context.driver().link_add_ptx(link, name, ptx) }?;
    }
    // SAFETY: as above.
    unsafe { context.driver().link_complete(link) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_may_end_with_one_nul_and_hold_no_other() {
        assert_eq!(c_string("x", b"ptx\0"), Ok(c"ptx".to_owned()));
        assert_eq!(c_string("x", b"ptx"), Ok(c"ptx".to_owned()));
        assert_eq!(c_string("x", b"p\0tx"), Err(LoadModuleError::NulByte { input: "x".to_owned() }));
    }
}
