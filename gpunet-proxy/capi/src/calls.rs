//! Functions of the program that kernels call.

use crate::attachment::gpunet_host_attachment_t;
use crate::failure::{Failure, done, int};
use crate::handle::handles;
use crate::memory::{self, Out};
use gpunet_calls_host::{CallServer, Calls, Functions, Settings, number_of};
use gpunet_device::Error;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Functions of the program that kernels call, and the threads that run them. Any thread may use
/// it.
pub struct gpunet_host_calls_t(());

handles! { gpunet_host_calls_t, CALLS: CallsObject, 21, "set of functions" }

/// In `flags`: a thread always polls for calls, and keeps a core.
pub const GPUNET_HOST_CALLS_POLL: u32 = 1;

/// In `flags`: kernels may ask for the addresses of host names (gpunet_resolve).
pub const GPUNET_HOST_CALLS_NAMES: u32 = 2;

/// A function that kernels call (gpunet_calls.h). It gets `len` bytes of the request, writes at
/// most `room` bytes to `answer`, and returns how many it has written, or a negative errno, which
/// is what the kernel gets. More bytes than `room` are -EMSGSIZE in the kernel. Both places are
/// aligned to 16 bytes and live for the call. Several threads may run it at the same time. It may
/// block. No C++ exception may leave it.
pub type gpunet_host_function_fn = Option<
    unsafe extern "C" fn(
        request: *const c_void,
        len: usize,
        answer: *mut c_void,
        room: usize,
        user: *mut c_void,
    ) -> i64,
>;

/// A function, by what kernels call it, and how much it takes and gives.
#[repr(C)]
pub struct gpunet_host_function {
    /// Its name: gpunet_function makes a number of it in kernels. NULL: the function has a number.
    pub name: *const c_char,
    /// The function.
    pub run: gpunet_host_function_fn,
    /// What it is given.
    pub user: *mut c_void,
    /// Its number, below 2^30; 0 with a name.
    pub number: u32,
    /// The longest request in bytes, at most 1012.
    pub request: u32,
    /// The longest answer in bytes, at most 1020.
    pub answer: u32,
    /// 0.
    pub reserved: u32,
}

/// How calls are served. All zeros but `channels`: the defaults.
#[repr(C)]
pub struct gpunet_host_calls_settings {
    /// How many blocks, warps or threads have a caller at a time; 1 to 65536.
    pub channels: u32,
    /// Calls that each of them has in flight, at most 64; 0: 16.
    pub tickets: u32,
    /// Threads that run functions, 2 to 1024; 0: 4. When functions keep all of them, calls wait.
    pub threads: u32,
    /// GPUNET_HOST_CALLS_POLL, GPUNET_HOST_CALLS_NAMES, both (by |), or 0.
    pub flags: u32,
    /// How long a thread polls after a call before it sleeps, in nanoseconds; 0: 100 us.
    pub spin_ns: u64,
    /// How long it then sleeps between two looks, which a call may wait for; 0: 100 us.
    pub latency_ns: u64,
}

/// What has happened to calls so far.
#[repr(C)]
pub struct gpunet_host_calls_counts {
    /// Calls that functions have answered, with bytes or an errno.
    pub answered: u64,
    /// Calls that wanted no answer.
    pub told: u64,
    /// Calls without a function, and those whose request or answer did not fit.
    pub failed: u64,
    /// Answers that were dropped: their callers had given them up.
    pub late: u64,
    /// Requests that no caller writes: they were passed over.
    pub malformed: u64,
}

pub(crate) struct CallsObject(Mutex<CallServer>);

impl CallsObject {
    fn server(&self) -> MutexGuard<'_, CallServer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// This thread runs a function of the program for a kernel.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// # Errors
/// EDEADLK.
fn outside_of_functions() -> Result<(), Failure> {
    if RUNS.get() {
        let text =
            "a function that a kernel calls cannot wait for its own end: stop the calls from another thread";
        return Err(Failure::new(libc::EDEADLK, text));
    }
    Ok(())
}

/// A function of the program, and what it is given.
#[derive(Clone, Copy)]
struct Given {
    run: unsafe extern "C" fn(*const c_void, usize, *mut c_void, usize, *mut c_void) -> i64,
    user: *mut c_void,
}

// SAFETY: `gpunet_host_function_fn` says that several threads run the function.
unsafe impl Send for Given {}
// SAFETY: as above.
unsafe impl Sync for Given {}

impl Given {
    fn call(self, request: &[u8], answer: &mut [u8]) -> Result<usize, Error> {
        RUNS.set(true);
        // SAFETY: the program's function, which takes what it gave; both places are as long as they
        // say.
        let returned = unsafe {
            (self.run)(
                request.as_ptr().cast(),
                request.len(),
                answer.as_mut_ptr().cast(),
                answer.len(),
                self.user,
            )
        };
        RUNS.set(false);
        usize::try_from(returned).map_err(|_| match returned {
            -4095..=-1 => Error::from_errno(-returned as i32),
            _ => Error::InvalidArgument,
        })
    }
}

fn invalid(text: String) -> Failure {
    Failure::new(libc::EINVAL, text)
}

fn settings(raw: &gpunet_host_calls_settings) -> Result<Settings, Failure> {
    if !(1..=1 << 16).contains(&raw.channels) {
        let text = "it is 1 to 65536, one for each block, warp or thread that calls at a time";
        return Err(invalid(format!("channels is {}; {text}", raw.channels)));
    }
    if raw.flags & !(GPUNET_HOST_CALLS_POLL | GPUNET_HOST_CALLS_NAMES) != 0 {
        return Err(invalid(format!("flags is {}; it is made of 1 and 2", raw.flags)));
    }
    if raw.threads == 1 || raw.threads > 1024 {
        return Err(invalid(format!("threads is {}; it is 2 to 1024, or 0 for the default", raw.threads)));
    }
    let mut settings = Settings::new(raw.channels);
    let polls = raw.flags & GPUNET_HOST_CALLS_POLL != 0;
    for (to, ns) in [(&mut settings.spin, raw.spin_ns), (&mut settings.latency, raw.latency_ns)] {
        *to = if ns == 0 { *to } else { Duration::from_nanos(ns) };
    }
    settings.latency = if polls { Duration::ZERO } else { settings.latency };
    for (to, count) in [(&mut settings.tickets, raw.tickets), (&mut settings.threads, raw.threads)] {
        *to = if count == 0 { *to } else { count };
    }
    Ok(settings)
}

fn functions(raw: &[gpunet_host_function]) -> Result<Functions, Failure> {
    let mut functions = Functions::new();
    for (at, one) in raw.iter().enumerate() {
        let name = memory::text(one.name, "the name of a function")?;
        let run =
            one.run.ok_or_else(|| Failure::new(libc::EFAULT, format!("functions[{at}].run is null")))?;
        let number = match name {
            Some("") => return Err(invalid(format!("functions[{at}].name is empty"))),
            Some(_) if one.number != 0 => {
                return Err(invalid(format!("functions[{at}] has a name and a number: give one of them")));
            }
            Some(name) => number_of(name),
            None if one.number >> 30 != 0 => {
                let text = "a program's own numbers are below 2^30";
                return Err(invalid(format!("functions[{at}].number is {}; {text}", one.number)));
            }
            None => one.number,
        };
        if one.reserved != 0 {
            return Err(invalid(format!("functions[{at}].reserved is {}; it is 0", one.reserved)));
        }
        let given = Given { run, user: one.user };
        let body = move |request: &[u8], answer: &mut [u8]| given.call(request, answer);
        functions.add_bytes(number, one.request as usize, one.answer as usize, body).map_err(|_| {
            let what = match name {
                Some(name) => format!("the name {name:?}, or with another name of the same number,"),
                None => format!("the number {number}"),
            };
            let text = format!("a function with {what} comes before functions[{at}]: choose another");
            Failure::new(libc::EEXIST, text)
        })?;
    }
    Ok(functions)
}

/// Makes `count` functions of the program callable by kernels of the attachment's device, and
/// starts the threads that run them.
///
///     static int64_t add(const void *request, size_t len, void *answer, size_t room, void *user) {
///         const uint32_t *numbers = request;
///         if (len != 8 || room < 4) return -EINVAL;
///         *(uint32_t *)answer = numbers[0] + numbers[1];
///         return 4;
///     }
///     gpunet_host_function all[] = {{.name = "add", .run = add, .request = 8, .answer = 4}};
///     gpunet_host_calls_settings settings = {.channels = 132};
///     gpunet_calls_t value;
///     if (gpunet_host_calls(attachment, all, 1, &settings, &calls) == 0 &&
///         gpunet_host_calls_value(calls, &value) == 0)
///         work<<<132, 128>>>(net, value);
///
/// On success `*calls` is a handle that gpunet_host_calls_close ends. Errors: -EBADF; -EINVAL for
/// settings or functions that cannot be; -EEXIST for two functions of the same number; -ENOMEM when
/// there is no memory for the channels; -EIO with CUDA's error; the system's, when it refuses a
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_calls(
    attachment: *const gpunet_host_attachment_t,
    functions: *const gpunet_host_function,
    count: usize,
    settings: *const gpunet_host_calls_settings,
    calls: *mut *mut gpunet_host_calls_t,
) -> c_int {
    done(|| {
        let out = Out::new(calls, "calls")?;
        let given = memory::slice(settings, 1)?.first().ok_or_else(|| Failure::of(libc::EFAULT))?;
        let settings = self::settings(given)?;
        let mut functions = self::functions(memory::slice(functions, count)?)?;
        if given.flags & GPUNET_HOST_CALLS_NAMES != 0 {
            // The program's numbers and those of names are others.
            let _ = functions.add_names();
        }
        let attachment = gpunet_host_attachment_t::of(attachment)?;
        let server = attachment.with(|attachment| Ok(CallServer::start(attachment, functions, settings)?))?;
        out.put(gpunet_host_calls_t::new(Arc::new(CallsObject(Mutex::new(server))))?);
        Ok(())
    })
}

/// Stores what kernels are given: a parameter of type gpunet_calls_t, by value. It is valid until
/// gpunet_host_calls_close.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_calls_value(
    calls: *const gpunet_host_calls_t,
    value: *mut Calls,
) -> c_int {
    done(|| {
        let out = Out::new(value, "value")?;
        let object = gpunet_host_calls_t::of(calls)?;
        // SAFETY: the caller ends its kernels before it closes the calls: the promise of that call.
        out.put(unsafe { object.server().calls() });
        Ok(())
    })
}

/// Stores what has happened to calls so far.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_calls_count(
    calls: *const gpunet_host_calls_t,
    counts: *mut gpunet_host_calls_counts,
) -> c_int {
    done(|| {
        let out = Out::new(counts, "counts")?;
        let found = gpunet_host_calls_t::of(calls)?.server().counts();
        out.put(gpunet_host_calls_counts {
            answered: found.answered,
            told: found.told,
            failed: found.failed,
            late: found.late,
            malformed: found.malformed,
        });
        Ok(())
    })
}

/// Stops serving. Kernels may go on: their calls fail with -ENETDOWN, also those that wait.
///
/// It waits two seconds for functions that run. Returns how many still run then; they use their
/// `user` until they return. Errors: -EBADF; -EDEADLK from within such a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_calls_stop(calls: *const gpunet_host_calls_t) -> c_int {
    int(|| {
        let object = gpunet_host_calls_t::of(calls)?;
        outside_of_functions()?;
        let running = object.server().stop();
        Ok(running as i64)
    })
}

/// Stops serving, as gpunet_host_calls_stop does, and frees the channels. No kernel uses them any
/// more. Returns how many functions still run.
///
/// Errors: -EBADF; -EDEADLK from within such a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_calls_close(calls: *mut gpunet_host_calls_t) -> c_int {
    int(|| {
        outside_of_functions()?;
        let object = gpunet_host_calls_t::take(calls)?;
        let running = object.server().stop();
        Ok(running as i64)
    })
}
