//! Errors: a negative errno for the caller, the reason in words for `gpunet_host_last_error`.

use gpu_usermap::cuda::{CoResidencyError, CudaError, StreamError, Unavailable};
use gpunet_channel::ChannelError;
use gpunet_proxy::queue::QueueError;
use gpunet_proxy::settings::SettingsError;
use gpunet_proxy::socket::{DirectionError, SocketError};
use gpunet_proxy::team::{InvalidTeamId, TeamError};
use gpunet_proxy::{
    AllocError, AttachError, DaemonError, EmbedError, OpenError, SnapshotError, TooManyLaunches, errno,
};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fmt, io};

/// Why a call failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    errno: i32,
    text: Cow<'static, str>,
}

impl Failure {
    /// A failure with its reason.
    pub(crate) fn new(errno: i32, text: impl Into<Cow<'static, str>>) -> Self {
        Self { errno, text: text.into() }
    }

    /// A failure that its errno describes completely.
    pub(crate) fn of(errno: i32) -> Self {
        let reason = match errno {
            libc::EAGAIN => return Self::would_block(),
            libc::EPIPE => "the peer receives no more, or this direction was shut down",
            libc::ENOTCONN => "the socket is not connected",
            libc::ENETDOWN => "the proxy has stopped, or gave no sign of life",
            libc::ECANCELED => "the launch was cancelled, or the attachment was closed",
            libc::EADDRNOTAVAIL => "this machine has no such address",
            _ => "",
        };
        if !reason.is_empty() {
            return Self::new(errno, reason);
        }
        // Rust's text, without its "(os error 9)".
        let text = io::Error::from_raw_os_error(errno).to_string();
        let end = text.rfind(" (os error").unwrap_or(text.len());
        Self::new(errno, text[..end].to_owned())
    }

    /// Returns the same failure with the address that it concerns.
    pub(crate) fn at(self, address: SocketAddr) -> Self {
        Self { text: format!("{address}: {}", self.text).into(), ..self }
    }

    /// The system refused a thread to a launch.
    pub(crate) fn no_thread(error: &io::Error) -> Self {
        let text = format!(
            "the system refuses a thread for a thread block: {error}; launch fewer blocks, or raise the limits of threads and \
             memory"
        );
        Self::new(errno::of(error), text)
    }

    /// EAGAIN, which is not an error and must cost nothing.
    pub(crate) const fn would_block() -> Self {
        Self { errno: libc::EAGAIN, text: Cow::Borrowed("the call would have to wait, or its time is over") }
    }

    /// The errno, positive.
    pub(crate) const fn errno(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::of(errno),
            None => Self::new(errno::of(&error), error.to_string()),
        }
    }
}

impl From<gpunet_device::Error> for Failure {
    fn from(error: gpunet_device::Error) -> Self {
        SocketError::from(error).into()
    }
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::Failed(error) => Self::of(error.errno()),
            error => Self::new(error.errno(), error.to_string()),
        }
    }
}

impl From<DirectionError> for Failure {
    fn from(error: DirectionError) -> Self {
        match error {
            DirectionError::Failed(error) => Self::of(error.errno()),
            error => Self::new(error.errno(), error.to_string()),
        }
    }
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Direction(error) => error.into(),
            error => Self::new(error.errno(), error.to_string()),
        }
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Self::of(error.raw_os_error())
    }
}

/// Implements the conversion for errors whose errno depends at most on the variant.
macro_rules! failures {
    ($($error:ty: |$it:ident| $errno:expr;)*) => {$(
        impl From<$error> for Failure {
            fn from($it: $error) -> Self {
                let errno = $errno;
                Self::new(errno, $it.to_string())
            }
        }
    )*};
}

failures! {
    SettingsError: |_error| libc::EINVAL;
    EmbedError: |error| error.errno();
    DaemonError: |error| error.errno();
    OpenError: |error| error.errno();
    AttachError: |error| error.errno();
    SnapshotError: |error| error.errno();
    TooManyLaunches: |error| error.errno();
    AllocError: |error| error.errno();
    TeamError: |error| error.errno();
    ChannelError: |error| error.errno();
    gpunet_records_host::Error: |error| match &error {
        gpunet_records_host::Error::Shape { .. } | gpunet_records_host::Error::Texts { .. } => libc::EINVAL,
        gpunet_records_host::Error::Alloc(error) => error.errno(),
        gpunet_records_host::Error::Register(_) => libc::EIO,
        _ => libc::ENOMEM,
    };
    gpunet_calls_host::Error: |error| match &error {
        gpunet_calls_host::Error::Shape { .. } => libc::EINVAL,
        gpunet_calls_host::Error::Alloc(error) => error.errno(),
        gpunet_calls_host::Error::Register(_) => libc::EIO,
        gpunet_calls_host::Error::Thread(error) => errno::of(error),
        gpunet_calls_host::Error::Region(_) => libc::ENOMEM,
    };
    gpu_usermap::cuda::CopyError: |_error| libc::EIO;
    Unavailable: |_error| libc::ENODEV;
    CudaError: |_error| libc::EIO;
    StreamError: |error| match &error {
        StreamError::DriverTooOld { .. } => libc::EOPNOTSUPP,
        StreamError::Cuda(_) => libc::EIO,
        _ => libc::EINVAL,
    };
    InvalidTeamId: |_error| libc::EINVAL;
    CoResidencyError: |error| match &error {
        CoResidencyError::NotCoResident(_) => libc::ENOSPC,
        CoResidencyError::OtherDevice { .. } => libc::EINVAL,
        _ => libc::EIO,
    };
}

thread_local! {
    /// The last failure of this thread.
    static LAST: RefCell<Cow<'static, str>> = const { RefCell::new(Cow::Borrowed("")) };
    /// The text that C was last given.
    static SHOWN: RefCell<CString> = RefCell::default();
}

/// Runs `body`, whose panic is a failure.
pub(crate) fn caught<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Failure::new(libc::ENOTRECOVERABLE, format!("a fault in libgpunet, please report it: {text}")))
    })
}

/// Runs the body of an exported function. Returns its result, or its failure as a negative errno.
/// No panic leaves it.
pub(crate) fn returned(body: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    let failure = match caught(body) {
        Ok(value) => return value,
        Err(failure) => failure,
    };
    let errno = failure.errno();
    // At a thread's end there is nowhere to put it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = failure.text);
    -i64::from(errno)
}

/// As [`returned`], for calls that return an `int`.
pub(crate) fn int(body: impl FnOnce() -> Result<i64, Failure>) -> i32 {
    returned(body) as i32
}

/// As [`int`], for calls that return 0.
pub(crate) fn done(body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    int(|| body().map(|()| 0))
}

/// Returns in words why the last call of this thread that failed has failed; "" if none has. Never
/// NULL.
///
/// The text belongs to the library. It is valid until this thread calls this function again, or
/// ends.
#[unsafe(no_mangle)]
pub extern "C" fn gpunet_host_last_error() -> *const c_char {
    let shown = LAST.try_with(|last| {
        let text = CString::new(last.borrow().replace('\0', "?")).unwrap_or_default();
        SHOWN.try_with(|shown| {
            *shown.borrow_mut() = text;
            shown.borrow().as_ptr()
        })
    });
    shown.ok().and_then(Result::ok).unwrap_or(c"".as_ptr())
}

/// Sets the text that gpunet_host_last_error returns, until a call of this thread fails again.
/// NULL: "". For code above this library that fails for a reason of its own.
///
///     if (cudaDeviceSynchronize() != cudaSuccess) {
///         gpunet_host_set_last_error("the kernel failed");
///         return -EIO;
///     }
///
/// Errors: none; it returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_set_last_error(text: *const c_char) -> i32 {
    let text = if text.is_null() {
        Cow::Borrowed("")
    } else {
        // SAFETY: not null, and a C string: the caller's promise.
        Cow::Owned(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    // At a thread's end there is nowhere to put it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    0
}

/// Gives back a text that a call of this library allocated for the caller. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_free_string(text: *mut c_char) {
    // SAFETY: null, or from `memory::put_text`, which allocates with malloc; given back once.
    unsafe { libc::free(text.cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> String {
        // SAFETY: the text is valid until this thread makes this call again.
        unsafe { CStr::from_ptr(gpunet_host_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn no_panic_passes() {
        assert_eq!(returned(|| panic!("on {}", "purpose")), -i64::from(libc::ENOTRECOVERABLE));
        assert_eq!(shown(), "a fault in libgpunet, please report it: on purpose");
        assert_eq!(int(|| panic!("text")), -libc::ENOTRECOVERABLE);
    }

    #[test]
    fn what_is_short_is_said() {
        let of_socket = |errno| Failure::from(gpunet_device::Error::from_errno(errno));
        for (errno, what) in
            [(libc::EMFILE, "setting sockets"), (libc::ENFILE, "ulimit -n"), (libc::ENOBUFS, "shared_rings")]
        {
            let failure = of_socket(errno);
            assert!(failure.errno() == errno && failure.to_string().contains(what), "{failure}");
        }
        assert_eq!(of_socket(libc::ECONNREFUSED).to_string(), "Connection refused");
        assert_eq!(of_socket(libc::ENOTCONN).to_string(), "the socket is not connected");
        let failure = Failure::no_thread(&io::Error::from_raw_os_error(libc::EAGAIN));
        assert_eq!(failure.errno(), libc::EAGAIN);
        assert!(failure.to_string().contains("refuses a thread"), "{failure}");
    }

    #[test]
    fn the_last_failure_is_the_threads_own_and_stays() {
        assert_eq!(int(|| Err(Failure::of(libc::ECONNREFUSED))), -libc::ECONNREFUSED);
        assert_eq!(done(|| Ok(())), 0);
        assert_eq!(shown(), "Connection refused");
        assert_eq!(std::thread::spawn(shown).join().unwrap(), "");
        assert_eq!(int(|| Err(Failure::new(libc::EINVAL, "a\0b"))), -libc::EINVAL);
        assert_eq!(shown(), "a?b");
    }
}
