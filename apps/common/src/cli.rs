//! Common parts of command lines: sizes, addresses, transports, one-line errors, and output.

use clap::ValueEnum;
use clap::error::ErrorKind;
use gpunet_proxy::abi::options::TransportKind;
use serde::Serialize;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use tracing_subscriber::EnvFilter;

/// The exit code of a bad command line.
const BAD_COMMAND_LINE: u8 = 2;

/// Why a command line does not run.
#[derive(Debug)]
pub enum UsageError {
    /// The text of `--help` or `--version`.
    Help(clap::Error),
    /// One line with the error.
    Invalid(String),
}

impl From<clap::Error> for UsageError {
    /// Converts clap's message to one line: its first paragraph without the prefix.
    fn from(error: clap::Error) -> Self {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            return Self::Help(error);
        }
        let text = error.to_string();
        let first = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
        let line = first.collect::<Vec<_>>().join(" ");
        Self::Invalid(line.strip_prefix("error: ").unwrap_or(&line).to_owned())
    }
}

impl UsageError {
    /// Prints it for the user, and returns the exit code of `program`.
    #[must_use]
    pub fn report(&self, program: &str) -> ExitCode {
        match self {
            Self::Help(text) => {
                note(text.print().and_then(|()| io::stdout().flush()));
                finish(program, ExitCode::SUCCESS)
            }
            Self::Invalid(line) => {
                eprintln!("{program}: {line} (try --help)");
                ExitCode::from(BAD_COMMAND_LINE)
            }
        }
    }
}

/// `--transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// The proxy chooses.
    Auto,
    /// TCP.
    Tcp,
    /// Through memory: both ends under one proxy.
    Peer,
    /// RDMA, in the protocol of librdmacm's rsockets.
    Rc,
}

impl Transport {
    /// Returns its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tcp => "tcp",
            Self::Peer => "peer",
            Self::Rc => "rc",
        }
    }

    /// Returns the socket option.
    #[must_use]
    pub const fn kind(self) -> TransportKind {
        match self {
            Self::Auto => TransportKind::Auto,
            Self::Tcp => TransportKind::Tcp,
            Self::Peer => TransportKind::Peer,
            Self::Rc => TransportKind::Rc,
        }
    }
}

/// HOST:PORT, well-formed and not yet resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

impl Endpoint {
    /// Reads `HOST:PORT` or `[IPV6]:PORT`. If there is a usual port, it also accepts `HOST` and
    /// `[IPV6]`.
    ///
    /// # Errors
    /// The expected form. An IPv6 address without brackets is rejected, because its port would be
    /// ambiguous.
    pub fn parse(text: &str, usual: Option<u16>) -> Result<Self, String> {
        let has_port = text.contains(':') && !text.ends_with(']');
        let whole = match usual {
            Some(port) if !has_port => format!("{text}:{port}"),
            _ => text.to_owned(),
        };
        let is_good = whole.rsplit_once(':').is_some_and(|(host, port)| {
            let is_bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
            !host.is_empty() && !is_bare_ipv6 && port.parse::<u16>().is_ok()
        });
        match usual {
            _ if is_good => Ok(Self(whole)),
            Some(port) => Err(format!("expected HOST, HOST:PORT or [IPV6]:PORT, e.g. 127.0.0.1:{port}")),
            None => Err("expected HOST:PORT or [IPV6]:PORT, e.g. 127.0.0.1:7777".to_owned()),
        }
    }

    /// Resolves the name to at least one address, in the resolver's order.
    ///
    /// # Errors
    /// The resolver failed.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, ResolveError> {
        let failed = |source| ResolveError { name: self.0.clone(), source };
        // The resolver accepts scope names (`fe80::1%eth0`), which std's address parser does not,
        // but no brackets. `parse` has checked that there is a port.
        let (host, port) = self.0.rsplit_once(':').unwrap_or((&self.0, "0"));
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port: u16 = port.parse().unwrap_or(0);
        let found: Vec<_> = (host, port).to_socket_addrs().map_err(failed)?.collect();
        if found.is_empty() { Err(failed(io::Error::other("the name has no address"))) } else { Ok(found) }
    }

    /// Resolves the name, and tries the addresses in order until one succeeds.
    ///
    /// # Errors
    /// The resolver failed, or the attempt with the last address did.
    pub fn try_each<T, E: From<ResolveError>>(
        &self,
        mut attempt: impl FnMut(SocketAddr) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut addrs = self.resolve()?;
        let last = addrs.pop();
        let found = addrs.into_iter().find_map(|addr| attempt(addr).ok());
        match (found, last) {
            (Some(found), _) => Ok(found),
            (None, Some(last)) => attempt(last),
            // `resolve` returns at least one.
            (None, None) => unreachable!("a name without an address was resolved"),
        }
    }
}

/// A name cannot be resolved.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {source}")]
pub struct ResolveError {
    /// HOST:PORT as given.
    pub name: String,
    /// The resolver's error.
    pub r#source: io::Error,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first failure of [`print`].
static NOT_PRINTED: Mutex<Option<io::Error>> = Mutex::new(None);

fn note(printed: io::Result<()>) {
    if let Err(error) = printed {
        NOT_PRINTED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Prints to stdout. If that fails, [`finish`] reports it.
pub fn print(text: &impl fmt::Display) {
    let mut out = io::stdout().lock();
    note(write!(out, "{text}").and_then(|()| out.flush()));
}

/// Returns the exit code of `program`, which is a failure if something could not be printed. A
/// reader that stops reading does not count as a failure.
#[must_use]
pub fn finish(program: &str, code: ExitCode) -> ExitCode {
    match &*NOT_PRINTED.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // If this cannot be printed either, the exit code shows the failure.
            let _ = writeln!(io::stderr(), "{program}: cannot write to stdout: {error}");
            ExitCode::FAILURE
        }
        _ => code,
    }
}

/// Prints one JSON object.
pub fn print_json(value: &impl Serialize) {
    // The programs' structures have only string keys and finite numbers, which JSON can represent.
    print(&format_args!("{}\n", serde_json::to_string(value).unwrap_or_default()));
}

/// Starts logging to stderr, in colours on a terminal only. GPUNET_LOG=debug shows what the proxy
/// does.
pub fn start_log() {
    let filter = EnvFilter::try_from_env("GPUNET_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let ansi = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(ansi).init();
}

/// Reads a number of bytes within bounds. K and M stand for 2^10 and 2^20 bytes.
///
/// # Errors
/// The expected form.
pub fn size(text: &str, bounds: RangeInclusive<u64>) -> Result<u64, String> {
    let wrong = || "expected a number of bytes, with K or M if you like".to_owned();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let scale = match &text[digits.len()..] {
        "" | "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "m" | "MiB" => 20,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << scale).filter(|bytes| bounds.contains(bytes));
    bytes.ok_or_else(|| format!("expected {} to {}", short(*bounds.start()), short(*bounds.end())))
}

/// Formats a number of bytes as [`size`] reads it.
fn short(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

/// Formats a number of bytes for people: `64 B`, `16 KiB`, `4 MiB`.
#[must_use]
pub fn spell(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddrV6;

    #[test]
    fn sizes_take_units_and_have_bounds() {
        let size = |text| size(text, 1..=256 << 20);
        assert_eq!((size("64"), size("1K"), size("16KiB")), (Ok(64), Ok(1024), Ok(16_384)));
        assert_eq!((size("3M"), size("256m")), (Ok(3 << 20), Ok(256 << 20)));
        for text in ["0", "257M", "18014398509481984K"] {
            assert_eq!(size(text), Err("expected 1 to 256M".to_owned()), "{text}");
        }
        for text in ["", "K", "1G", "-1", "1.5K", "99999999999999999999", "\u{e4}"] {
            assert!(size(text).is_err_and(|why| why.contains("number of bytes")), "{text}");
        }
    }

    #[test]
    fn sizes_are_said_exactly() {
        assert_eq!(
            [0, 1, 1023, 1024, 1536, 3 << 20, (1 << 20) + 1024].map(spell),
            ["0 B", "1 B", "1023 B", "1 KiB", "1536 B", "3 MiB", "1025 KiB"]
        );
    }

    #[test]
    fn endpoints_have_a_port_or_get_the_usual_one() {
        let said = |text, usual| Endpoint::parse(text, usual).map(|endpoint| endpoint.to_string());
        assert_eq!(said("h:1", None), Ok("h:1".to_owned()));
        assert_eq!(said("[::]:0", None), Ok("[::]:0".to_owned()));
        assert_eq!(said("h", Some(7471)), Ok("h:7471".to_owned()));
        assert_eq!(said("[::1]", Some(7471)), Ok("[::1]:7471".to_owned()));
        assert_eq!(said("[::1]:5", Some(7471)), Ok("[::1]:5".to_owned()));
        for text in ["", ":1", "h", "h:", "h:99999", "::1", "::1:80"] {
            assert!(said(text, None).is_err_and(|why| why.contains("HOST:PORT")), "{text}");
        }
        assert!(said("::1", Some(7471)).is_err(), "what of it is the port is not clear");
    }

    #[test]
    fn scopes_have_names_or_numbers() {
        let resolve = |text| Endpoint::parse(text, None).expect("well-formed").resolve().expect("an address");
        let expected = SocketAddr::V6(SocketAddrV6::new("fe80::a".parse().unwrap(), 7001, 0, 1));
        // The loopback interface is the first one everywhere.
        assert_eq!(resolve("[fe80::a%1]:7001"), [expected]);
        assert_eq!(resolve("[fe80::a%lo]:7001"), [expected]);
        assert_eq!(resolve("[::1]:7001"), ["[::1]:7001".parse().unwrap()]);
        assert_eq!(resolve("127.0.0.1:0"), ["127.0.0.1:0".parse().unwrap()]);
    }

    #[test]
    fn names_of_transports_are_those_of_the_command_line() {
        for transport in Transport::value_variants() {
            assert_eq!(Transport::from_str(transport.name(), false), Ok(*transport));
        }
    }
}
