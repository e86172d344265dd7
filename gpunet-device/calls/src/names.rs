//! Host names: the host's resolver, called by kernels.

use crate::caller::{Caller, Limit};
use crate::function::{Failure, Function};
use gpunet_device::{Error, Group, Net, Result as SocketResult, SockAddr, Stream, Timeout};

/// The longest name, in bytes.
pub const MAX_NAME: usize = 253;

crate::plain! {
    /// A host name and a port, as a request.
    #[derive(Debug)]
    pub struct Name {
        len: u16,
        port: u16,
        bytes: [u8; 256],
    }
}

impl Name {
    /// A name, such as `"localhost"`, or an address in words, and a port. `None`: it is longer than
    /// [`MAX_NAME`].
    #[must_use]
    pub const fn new(name: &str, port: u16) -> Option<Self> {
        let from = name.as_bytes();
        if from.len() > MAX_NAME {
            return None;
        }
        let (mut bytes, mut at) = ([0; 256], 0);
        while at < from.len() {
            bytes[at] = from[at];
            at += 1;
        }
        Some(Self { len: from.len() as u16, port, bytes })
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The name; `None`: a kernel has written something else.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let bytes = self.bytes.get(..usize::from(self.len)).filter(|bytes| bytes.len() <= MAX_NAME)?;
        core::str::from_utf8(bytes).ok()
    }
}

/// The function that resolves names: the host registers it by `Functions::names`.
pub const RESOLVE: Function<Name, SockAddr> = Function::reserved(u32::MAX);

/// Asks the host's resolver for the first address of a name.
///
/// # Cooperation
/// All lanes call it, with the same arguments, and get the same result.
///
/// # Errors
/// [`Failure::Refused`] with [`Error::AddressNotAvailable`] if no address has that name; others of
/// [`Caller::call`].
#[inline(always)]
pub fn resolve<G: Group>(
    g: &G,
    caller: &mut Caller,
    name: Name,
    timeout: Timeout,
) -> Result<SockAddr, Failure> {
    caller.call(g, RESOLVE, name, timeout)
}

/// Connects to a name: [`resolve`], and [`Stream::connect_timeout`], both within `timeout`.
///
/// # Cooperation
/// As [`resolve`].
///
/// # Errors
/// Those of both: a [`Failure`] as its [`Failure::error`].
///
/// # Examples
///
/// ```
/// # use gpunet_calls::{Caller, Name, connect};
/// # use gpunet_device::{Group, Net, Result, Stream, Timeout};
/// fn open<G: Group>(g: &G, net: Net, caller: &mut Caller) -> Result<Stream> {
///     const SERVER: Name = Name::new("localhost", 8080).unwrap();
///     connect(g, net, caller, SERVER, Timeout::secs(5))
/// }
/// ```
#[inline(always)]
pub fn connect<G: Group>(
    g: &G,
    net: Net,
    caller: &mut Caller,
    name: Name,
    timeout: Timeout,
) -> SocketResult<Stream> {
    let limit = Limit::of(timeout);
    let addr = resolve(g, caller, name, timeout).map_err(Failure::error)?;
    if addr.family == 0 {
        return Err(Error::AddressNotAvailable);
    }
    Stream::connect_timeout(g, net, addr, limit.left())
}
