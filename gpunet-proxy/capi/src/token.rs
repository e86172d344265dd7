//! Launch tokens, to which a kernel's sockets belong.

use crate::attachment::{AttachmentObject, gpunet_host_attachment_t};
use crate::failure::{Failure, done, returned};
use crate::handle::handles;
use crate::memory::{self, Out};
use gpu_usermap::threads::BlockedSignals;
use gpunet_device::cpu;
use gpunet_device::{Group, Kernel, Net};
use gpunet_posix::capi::{as_group, guard_nets};
use gpunet_proxy::{FinishPolicy, FinishReport, LaunchToken};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A launch: the kernels that are started with its net value, cancelled and finished together. Any
/// thread may use it.
pub struct gpunet_host_token_t(());

handles! { gpunet_host_token_t, TOKENS: TokenObject, 3, "token" }

/// The sockets that a launch left open stay open, for later kernels of the device.
pub const GPUNET_HOST_KEEP: c_int = 0;
/// They are closed: what was sent is still delivered.
pub const GPUNET_HOST_CLOSE: c_int = 1;
/// They are reset.
pub const GPUNET_HOST_RESET: c_int = 2;

/// A C function that runs as a kernel on the CPU: once for each of `blocks` thread blocks, each of
/// which is a thread. It gets the token's net value, its own number from 0, and the launch's
/// `argument`. Its stack has 256 KiB. No C++ exception may leave it.
pub type gpunet_host_kernel_fn =
    Option<unsafe extern "C" fn(net: u64, block: u32, blocks: u32, argument: *mut c_void)>;

pub(crate) struct TokenObject {
    pub(crate) attachment: Arc<AttachmentObject>,
    /// `None` once it is finished. Calls of kernels on the CPU hold it for reading.
    token: RwLock<Option<LaunchToken>>,
    net: u64,
    /// The launches on the CPU.
    launches: Mutex<Vec<cpu::Launch>>,
}

/// The tokens by the net values that kernels on the CPU pass.
static NETS: RwLock<Option<HashMap<u64, Arc<TokenObject>>>> = RwLock::new(None);

thread_local! {
    /// The net value of the kernel that this thread runs.
    static RUNNING: Cell<u64> = const { Cell::new(0) };
}

/// Makes a call of the device with a net value that a C program passed.
///
/// # Errors
/// ENETDOWN, when no token of the CPU device has it.
pub(crate) fn with_net<R>(net: u64, body: impl FnOnce(Net) -> Result<R, Failure>) -> Result<R, Failure> {
    let down =
        || Failure::new(libc::ENETDOWN, "no token on the CPU device has this net value, or it was finished");
    let nets = NETS.read().unwrap_or_else(PoisonError::into_inner);
    let token = nets.as_ref().and_then(|nets| nets.get(&net)).cloned().ok_or_else(down)?;
    drop(nets);
    let token = token.token.read().unwrap_or_else(PoisonError::into_inner);
    token.as_ref().ok_or_else(down).and_then(|token| body(token.net()))
}

/// The C function, as a kernel.
#[derive(Clone, Copy)]
struct Function {
    function: unsafe extern "C" fn(u64, u32, u32, *mut c_void),
    net: u64,
    argument: *mut c_void,
}

// SAFETY: `gpunet_host_token_launch` says that the argument goes to other threads.
unsafe impl Send for Function {}

impl Kernel for Function {
    const ENTRY: &'static str = "c_function";

    fn run<G: Group>(self, group: &G) {
        RUNNING.set(self.net);
        let (block, blocks) = (group.index(), group.count());
        // SAFETY: the program that launched it promises a function of this type, which takes the
        // argument on any thread.
        as_group(group, || unsafe { (self.function)(self.net, block, blocks, self.argument) });
    }
}

impl TokenObject {
    /// Uses the token, which is not finished during the call.
    ///
    /// # Errors
    /// EBADF, when it was finished.
    pub(crate) fn with<R>(
        &self,
        body: impl FnOnce(&LaunchToken) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner);
        token.as_ref().ok_or_else(|| Failure::of(libc::EBADF)).and_then(body)
    }

    fn launches(&self) -> MutexGuard<'_, Vec<cpu::Launch>> {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an error on a thread of this launch, which would wait for itself.
    ///
    /// # Errors
    /// EDEADLK.
    fn refuse_own_kernel(&self) -> Result<(), Failure> {
        let text = "a kernel cannot wait for the end of its own launch";
        if RUNNING.get() == self.net { Err(Failure::new(libc::EDEADLK, text)) } else { Ok(()) }
    }

    /// Returns whether all its kernels on the CPU have ended by the deadline. `None`: waits until
    /// they have.
    fn wait(&self, deadline: Option<Instant>) -> bool {
        loop {
            if self.launches().iter().all(cpu::Launch::is_finished) {
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Takes one of the attachment's 64 launch numbers.
///
/// On success `*token` is a handle that gpunet_host_token_finish ends.
/// Errors: -EBADF; -EBUSY when all launch numbers are in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_token(
    attachment: *const gpunet_host_attachment_t,
    token: *mut *mut gpunet_host_token_t,
) -> c_int {
    done(|| {
        let out = Out::new(token, "token")?;
        guard_nets(|net, body| returned(|| with_net(net, |net| Ok(body(net)?))));
        let attachment = gpunet_host_attachment_t::of(attachment)?;
        let (token, on_cpu) =
            attachment.with(|attachment| Ok((attachment.token()?, attachment.cuda().is_none())))?;
        let net = token.context();
        let (token, launches) = (RwLock::new(Some(token)), Mutex::default());
        let object = Arc::new(TokenObject { attachment, token, net, launches });
        let handle = gpunet_host_token_t::new(object.clone())?;
        if on_cpu {
            let mut nets = NETS.write().unwrap_or_else(PoisonError::into_inner);
            nets.get_or_insert_default().insert(net, object);
        }
        out.put(handle);
        Ok(())
    })
}

/// Returns the launch's net value: by it a kernel finds its sockets. Pass it by value as a kernel's
/// parameter to the gpunet_* functions of the device, or store it in a module's variable
/// (gpunet_host_bind_module). It is valid until gpunet_host_token_finish. Returns 0 for a handle
/// that is not open; the device's calls answer 0 with -ENETDOWN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_token_net(token: *const gpunet_host_token_t) -> u64 {
    let mut net = 0;
    done(|| {
        net = gpunet_host_token_t::of(token)?.net;
        Ok(())
    });
    net
}

/// Runs a C function as a kernel on the CPU device, by `blocks` threads, and returns when they have
/// been started. The function calls those of gpunet.h with its net value. A token may have several
/// such launches. All these threads get `argument`.
///
/// Errors: -EBADF; -EINVAL without a block or a function; -EOPNOTSUPP on a GPU; the system's, when
/// it refuses a thread (the token is cancelled then, because some blocks may have been started).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_token_launch(
    token: *const gpunet_host_token_t,
    blocks: u32,
    function: gpunet_host_kernel_fn,
    argument: *mut c_void,
) -> c_int {
    done(|| {
        let object = gpunet_host_token_t::of(token)?;
        let (Some(function), 1..) = (function, blocks) else {
            return Err(Failure::new(libc::EINVAL, "a launch needs a function and at least one block"));
        };
        object.attachment.with(|attachment| match attachment.cuda() {
            None => Ok(()),
            Some(_) => Err(Failure::new(
                libc::EOPNOTSUPP,
                "a C function runs on the CPU device only; launch a GPU's kernels with CUDA",
            )),
        })?;
        object.with(|token| {
            let kernel = Function { function, net: object.net, argument };
            let _inherited = BlockedSignals::new();
            let launch = cpu::launch(blocks, 1, kernel).map_err(|error| {
                token.cancel();
                Failure::no_thread(&error)
            })?;
            object.launches().push(launch);
            Ok(())
        })
    })
}

/// Waits until all kernels of gpunet_host_token_launch have ended, for at most `timeout_ns`
/// nanoseconds; negative: without limit; 0: not at all. (Wait for kernels on a GPU with CUDA.)
///
/// Errors: -EBADF; -ETIMEDOUT; -EDEADLK from one of these kernels.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_token_wait(token: *const gpunet_host_token_t, timeout_ns: i64) -> c_int {
    done(|| {
        let object = gpunet_host_token_t::of(token)?;
        object.refuse_own_kernel()?;
        let limit = u64::try_from(timeout_ns).ok().map(Duration::from_nanos);
        if object.wait(limit.and_then(|limit| Instant::now().checked_add(limit))) {
            return Ok(());
        }
        let text = format!("kernels still run after {:?}", limit.unwrap_or_default());
        Err(Failure::new(libc::ETIMEDOUT, text))
    })
}

/// Cancels the launch: every call of its kernels that waits, or would wait, returns -ECANCELED. It
/// cannot be undone.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_token_cancel(token: *const gpunet_host_token_t) -> c_int {
    done(|| {
        gpunet_host_token_t::of(token)?.with(|token| {
            token.cancel();
            Ok(())
        })
    })
}

/// Ends the launch: keeps, closes or resets (`policy`) the sockets that its kernels left open, and
/// leaves their number in `*left_open`, which may be NULL. Handles of sockets that it closes become
/// stale, also for kernels of other launches.
///
/// The kernels must have ended. It waits for those of gpunet_host_token_launch; of a GPU's, the
/// program knows (cudaStreamQuery). After a kernel that failed, GPUNET_HOST_RESET is right. It
/// waits for the proxy's answer, at most ten seconds. The handle is stale if it returns 0. Errors:
/// -EBADF; -EINVAL for another policy; -EDEADLK from one of its kernels; -EBUSY while a thread of
/// the program's own makes a call of gpunet.h with its net value: cancel the launch first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_token_finish(
    token: *mut gpunet_host_token_t,
    policy: c_int,
    left_open: *mut u64,
) -> c_int {
    done(|| {
        let policy = match policy {
            GPUNET_HOST_KEEP => FinishPolicy::Keep,
            GPUNET_HOST_CLOSE => FinishPolicy::Close,
            GPUNET_HOST_RESET => FinishPolicy::Reset,
            _ => return Err(Failure::new(libc::EINVAL, format!("there is no policy {policy}"))),
        };
        let object = gpunet_host_token_t::of(token)?;
        object.refuse_own_kernel()?;
        object.wait(None);
        let Ok(mut held) = object.token.try_write() else {
            return Err(Failure::new(libc::EBUSY, "a call with the token's net value is in progress"));
        };
        gpunet_host_token_t::take(token)?;
        if let Some(nets) = &mut *NETS.write().unwrap_or_else(PoisonError::into_inner) {
            nets.remove(&object.net);
        }
        let report = held.take().map_or_else(FinishReport::default, |token| token.finish(policy));
        memory::put_if_wanted(left_open, report.left_open as u64);
        Ok(())
    })
}
