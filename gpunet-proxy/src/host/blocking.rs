//! Streams of threads: the calls block.

use super::{ReadHalf, Stream, Waiter, WriteHalf};
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};
use tokio::io::ReadBuf;

/// A stream, or a half of one, whose calls block the calling thread, as those of
/// [`std::net::TcpStream`].
///
/// A call that waits sleeps on the stream's own memory, and whoever changes that wakes the thread:
/// it takes half the time of a task's wait, which ends by way of the reactor's thread.
///
/// # Examples
/// ```
/// use gpunet_proxy::abi::Options;
/// use gpunet_proxy::host::Blocking;
/// use std::io::{Read, Write};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = gpunet_proxy::embed(gpunet_proxy::Config::small())?.host()?;
/// # let listener = host.bind("127.0.0.1:0".parse()?, Options::DEFAULT, 128).await?;
/// let (client, (server, _)) =
///     tokio::try_join!(host.connect(listener.local_addr()?, Options::DEFAULT), listener.accept())?;
/// let echo = std::thread::spawn(move || {
///     let (mut stream, mut request) = (Blocking::new(server), [0; 5]);
///     stream.read_exact(&mut request)?;
///     stream.write_all(&request)
/// });
/// let (mut client, mut answer) = (Blocking::new(client), [0; 5]);
/// client.write_all(b"hello")?;
/// client.read_exact(&mut answer)?;
/// assert_eq!(&answer, b"hello");
/// # echo.join().expect("no panic")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Blocking<S> {
    inner: S,
    timeout: Option<Duration>,
    spin: Duration,
}

impl<S> Blocking<S> {
    /// Wraps a [`Stream`], a [`ReadHalf`] or a [`WriteHalf`]. Calls wait without limit, and do not
    /// spin.
    pub const fn new(inner: S) -> Self {
        Self { inner, timeout: None, spin: Duration::ZERO }
    }

    /// Limits how long a call waits: it fails with ETIMEDOUT then. `None`: without limit.
    pub const fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Makes a call that waits poll for so long before it sleeps.
    pub const fn set_spin(&mut self, spin: Duration) {
        self.spin = spin;
    }

    /// The stream or half, for tasks again.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Makes a call until it does not have to wait.
    fn until_ready<T>(
        &mut self,
        mut call: impl FnMut(&mut S) -> io::Result<T>,
        waiter: impl Fn(&mut S) -> Waiter,
    ) -> io::Result<T> {
        let until = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            match call(&mut self.inner) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            if !waiter(&mut self.inner).wait(self.spin, until)? {
                return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
            }
        }
    }

    fn read_by(&mut self, half: fn(&mut S) -> &mut ReadHalf, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(bytes);
        self.until_ready(|inner| half(inner).try_read(&mut buf), |inner| half(inner).waiter())?;
        Ok(buf.filled().len())
    }

    fn write_by(&mut self, half: fn(&mut S) -> &mut WriteHalf, bytes: &[u8]) -> io::Result<usize> {
        self.until_ready(|inner| half(inner).try_write(bytes), |inner| half(inner).waiter())
    }
}

impl Read for Blocking<ReadHalf> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_by(|half| half, bytes)
    }
}

impl Read for Blocking<Stream> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_by(|stream| stream.split().0, bytes)
    }
}

impl Write for Blocking<WriteHalf> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_by(|half| half, bytes)
    }

    /// Does nothing: a write has published its bytes when it returns.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Blocking<Stream> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_by(|stream| stream.split().1, bytes)
    }

    /// Does nothing: a write has published its bytes when it returns.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
