//! Driver calls about code: modules, functions, linking, launches.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;

use super::Driver;
use crate::driver::error::CudaError;
use crate::driver::raw::constants::{
    ERROR_NOT_SUPPORTED, FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, JIT_ERROR_LOG_BUFFER,
    JIT_ERROR_LOG_BUFFER_SIZE_BYTES, JIT_INPUT_PTX, JIT_THREADS_PER_BLOCK, SUCCESS,
};
use crate::driver::raw::{CUdeviceptr, FunctionHandle, LinkHandle, ModuleHandle, StreamHandle};

/// Room for the assembler's messages; a longer log is cut by the driver.
const LOG_BYTES: usize = 16 * 1024;

/// How many options [`LinkLog::options`] has at most.
const OPTIONS: usize = 3;

/// The buffer into which the driver's assembler and linker write their messages, and the options
/// that name it.
///
/// Boxed, because a linker keeps the addresses until it is destroyed: it also writes into the
/// values of options (how much of the log is filled, how many threads were reached).
pub(crate) struct LinkLog {
    inner: Box<LogAndOptions>,
}

struct LogAndOptions {
    text: [u8; LOG_BYTES],
    names: [c_uint; OPTIONS],
    values: [*mut c_void; OPTIONS],
}

impl LinkLog {
    pub(crate) fn new() -> Self {
        let names = [JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES, JIT_THREADS_PER_BLOCK];
        Self {
            inner: Box::new(LogAndOptions {
                text: [0; LOG_BYTES],
                names,
                values: [ptr::null_mut(); OPTIONS],
            }),
        }
    }

    /// Returns number, names and values of the options: the log and, if given, how many threads a
    /// block shall be able to have.
    fn options(&mut self, threads: Option<u32>) -> (c_uint, *mut c_uint, *mut *mut c_void) {
        let LogAndOptions { text, names, values } = &mut *self.inner;
        // Numbers travel in the pointer itself: that is the driver's convention for integer
        // options.
        *values = [
            text.as_mut_ptr().cast(),
            ptr::without_provenance_mut(LOG_BYTES),
            ptr::without_provenance_mut(threads.unwrap_or(0) as usize),
        ];
        (if threads.is_some() { 3 } else { 2 }, names.as_mut_ptr(), values.as_mut_ptr())
    }

    pub(crate) fn into_text(self) -> String {
        let text = &self.inner.text;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(LOG_BYTES);
        String::from_utf8_lossy(&text[..end]).trim_end().to_owned()
    }
}

impl Driver {
    /// # Safety
    /// `image` points to a complete cubin.
    pub(crate) unsafe fn module_load(
        &self,
        image: *const c_void,
        log: &mut LinkLog,
    ) -> Result<ModuleHandle, CudaError> {
        let (count, names, values) = log.options(None);
        let mut module = ModuleHandle::NULL;
        // SAFETY: the caller's promise for `image`; `count` options with as many values, which
        // outlive the call with the log.
        let code = unsafe { (self.api.module_load_data)(&mut module, image, count, names, values) };
        self.check("cuModuleLoadDataEx", code)?;
        Ok(module)
    }

    /// # Safety
    /// `module` is loaded, and neither it nor its functions and globals are used afterwards.
    pub(crate) unsafe fn module_unload(&self, module: ModuleHandle) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuModuleUnload", unsafe { (self.api.module_unload)(module) })
    }

    /// # Safety
    /// `module` is loaded.
    pub(crate) unsafe fn module_function(
        &self,
        module: ModuleHandle,
        name: &CStr,
    ) -> Result<FunctionHandle, CudaError> {
        let mut function = FunctionHandle::NULL;
        // SAFETY: the caller's promise; writes one handle.
        let code = unsafe { (self.api.module_get_function)(&mut function, module, name.as_ptr()) };
        self.check("cuModuleGetFunction", code)?;
        Ok(function)
    }

    /// Returns all kernels of a module; none where the driver cannot tell (before 12.4).
    ///
    /// # Safety
    /// `module` is loaded.
    pub(crate) unsafe fn module_functions(
        &self,
        module: ModuleHandle,
    ) -> Result<Vec<FunctionHandle>, CudaError> {
        let (Some(count), Some(enumerate)) =
            (self.api.module_get_function_count, self.api.module_enumerate_functions)
        else {
            return Ok(Vec::new());
        };
        let mut number: c_uint = 0;
        // SAFETY: the caller's promise; writes one number.
        self.check("cuModuleGetFunctionCount", unsafe { count(&mut number, module) })?;
        let mut functions = vec![FunctionHandle::NULL; number as usize];
        // SAFETY: the caller's promise; writes at most `number` handles, for which there is room.
        let code = unsafe { enumerate(functions.as_mut_ptr(), number, module) };
        self.check("cuModuleEnumerateFunctions", code)?;
        Ok(functions)
    }

    /// # Safety
    /// `module` is loaded.
    pub(crate) unsafe fn module_global(
        &self,
        module: ModuleHandle,
        name: &CStr,
    ) -> Result<(CUdeviceptr, usize), CudaError> {
        let (mut address, mut len) = (0, 0);
        // SAFETY: the caller's promise; writes an address and a size.
        let code = unsafe { (self.api.module_get_global)(&mut address, &mut len, module, name.as_ptr()) };
        self.check("cuModuleGetGlobal", code)?;
        Ok((address, len))
    }

    /// Returns the module that a function is in.
    ///
    /// # Safety
    /// `function` belongs to a loaded module.
    pub(crate) unsafe fn function_module(&self, function: FunctionHandle) -> Result<ModuleHandle, CudaError> {
        const CALL: &str = "cuFuncGetModule";
        let Some(get) = self.api.func_get_module else { return Err(self.error(CALL, ERROR_NOT_SUPPORTED)) };
        let mut module = ModuleHandle::NULL;
        // SAFETY: the caller's promise; writes one handle.
        self.check(CALL, unsafe { get(&mut module, function) })?;
        Ok(module)
    }

    /// Loads a function's code now, where the driver can be asked to; reading an attribute does it
    /// on older ones.
    ///
    /// # Safety
    /// `function` belongs to a loaded module.
    pub(crate) unsafe fn function_load(&self, function: FunctionHandle) -> Result<(), CudaError> {
        let Some(load) = self.api.func_load else { return Ok(()) };
        // SAFETY: the caller's promise.
        self.check("cuFuncLoad", unsafe { load(function) })
    }

    /// # Safety
    /// `function` belongs to a loaded module.
    pub(crate) unsafe fn function_attribute(
        &self,
        function: FunctionHandle,
        attribute: c_uint,
    ) -> Result<u32, CudaError> {
        let mut value: c_int = 0;
        // SAFETY: the caller's promise; writes one int.
        let code = unsafe { (self.api.func_get_attribute)(&mut value, attribute, function) };
        self.check("cuFuncGetAttribute", code)?;
        Ok(value.unsigned_abs())
    }

    /// Returns the sizes of the first `count` parameters, fewer if the kernel has fewer; `None`
    /// where the driver cannot tell.
    ///
    /// It does not ask for one more to learn the kernel's own count: that call would fail, and a
    /// memory checker would list it.
    ///
    /// # Safety
    /// `function` belongs to a loaded module.
    pub(crate) unsafe fn function_parameters(
        &self,
        function: FunctionHandle,
        count: usize,
    ) -> Option<Vec<usize>> {
        let info = self.api.func_get_param_info?;
        let mut sizes = Vec::with_capacity(count);
        for index in 0..count {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the caller's promise; writes two sizes; an index past the last parameter is
            // an error.
            if unsafe { info(function, index, &mut offset, &mut size) } != SUCCESS {
                break;
            }
            sizes.push(size);
        }
        Some(sizes)
    }

    /// # Safety
    /// `function` belongs to a loaded module.
    pub(crate) unsafe fn allow_dynamic_shared(
        &self,
        function: FunctionHandle,
        bytes: u32,
    ) -> Result<(), CudaError> {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: the caller's promise.
        let code =
            unsafe { (self.api.func_set_attribute)(function, FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes) };
        self.check("cuFuncSetAttribute", code)
    }

    /// # Safety
    /// `function` belongs to a loaded module.
    pub(crate) unsafe fn blocks_per_sm(
        &self,
        function: FunctionHandle,
        threads: u32,
        shared_bytes: u32,
    ) -> Result<u32, CudaError> {
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        let mut blocks: c_int = 0;
        // SAFETY: the caller's promise; writes one int.
        let code = unsafe { (self.api.occupancy)(&mut blocks, function, threads, shared_bytes as usize) };
        self.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        Ok(blocks.unsigned_abs())
    }

    /// # Safety
    /// `function` belongs to a loaded module; `parameters` are as many and as large as its own, and
    /// what they point to suits the kernel until it ends; `stream` is live.
    pub(crate) unsafe fn launch(
        &self,
        function: FunctionHandle,
        grid: (u32, u32, u32),
        block: (u32, u32, u32),
        shared_bytes: u32,
        stream: StreamHandle,
        parameters: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise; the driver copies the parameters before it returns.
        let code = unsafe {
            (self.api.launch_kernel)(
                function,
                grid.0,
                grid.1,
                grid.2,
                block.0,
                block.1,
                block.2,
                shared_bytes,
                stream,
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.check("cuLaunchKernel", code)
    }

    /// Starts a linker that writes its messages to `log`, and assembles each text for blocks of
    /// `threads` threads.
    ///
    /// # Safety
    /// `log` lives until [`link_destroy`](Self::link_destroy).
    pub(crate) unsafe fn link_create(
        &self,
        threads: Option<u32>,
        log: &mut LinkLog,
    ) -> Result<LinkHandle, CudaError> {
        let (count, names, values) = log.options(threads);
        let mut link = LinkHandle::NULL;
        // SAFETY: `count` options with as many values; the caller keeps them, and the buffer, with
        // the log.
        let code = unsafe { (self.api.link_create)(count, names, values, &mut link) };
        self.check("cuLinkCreate", code)?;
        Ok(link)
    }

    /// # Safety
    /// `link` is live.
    pub(crate) unsafe fn link_add_ptx(
        &self,
        link: LinkHandle,
        name: &CStr,
        ptx: &CStr,
    ) -> Result<(), CudaError> {
        let bytes = ptx.to_bytes_with_nul();
        let (data, len) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
        // SAFETY: the caller's promise; the driver reads (and never writes) `len` bytes during the
        // call.
        let code = unsafe {
            (self.api.link_add_data)(
                link,
                JIT_INPUT_PTX,
                data,
                len,
                name.as_ptr(),
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        self.check("cuLinkAddData", code)
    }

    /// Returns the linked image, which belongs to `link` and dies with it.
    ///
    /// # Safety
    /// `link` is live.
    pub(crate) unsafe fn link_complete(&self, link: LinkHandle) -> Result<*const c_void, CudaError> {
        let mut image: *mut c_void = ptr::null_mut();
        let mut len = 0;
        // SAFETY: the caller's promise; writes a pointer and a size.
        let code = unsafe { (self.api.link_complete)(link, &mut image, &mut len) };
        self.check("cuLinkComplete", code)?;
        Ok(image)
    }

    /// # Safety
    /// `link` is live and is not used afterwards, nor is its image.
    pub(crate) unsafe fn link_destroy(&self, link: LinkHandle) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuLinkDestroy", unsafe { (self.api.link_destroy)(link) })
    }
}
