//! Addresses and options as Python programs write them.

use crate::error::Failure;
use gpunet_proxy::abi::{Options, TransportKind, options};
use pyo3::exceptions::{PyOSError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Reads an address: `(host, port)`, for IPv6 also with flow information and scope, or
/// `"host:port"`. Names are looked up by Python; of those with several addresses it is the first.
pub(crate) fn parse(address: &Bound<'_, PyAny>) -> PyResult<SocketAddr> {
    Ok(parse_all(address)?[0])
}

/// Reads an address as [`parse`] does: all that its name has, in order. There is at least one.
pub(crate) fn parse_all(address: &Bound<'_, PyAny>) -> PyResult<Vec<SocketAddr>> {
    if let Ok(text) = address.cast::<PyString>() {
        let text = text.to_cow()?;
        if let Ok(address) = text.parse() {
            return Ok(vec![address]);
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(malformed)?;
        return resolve(address.py(), host, port.parse().map_err(|_| malformed())?);
    }
    let tuple = address.cast::<PyTuple>().map_err(|_| malformed())?;
    if !(2..=4).contains(&tuple.len()) {
        return Err(malformed());
    }
    let host: String = tuple.get_item(0)?.extract().map_err(|_| malformed())?;
    let port = tuple
        .get_item(1)?
        .extract()
        .map_err(|_| PyValueError::new_err("a port is a number from 0 to 65535"))?;
    let number = |at: usize, what: &str| -> PyResult<Option<u32>> {
        let Ok(value) = tuple.get_item(at) else { return Ok(None) };
        let text = format!("the {what} of an IPv6 address is a number from 0 to 4294967295");
        value.extract().map(Some).map_err(|_| PyValueError::new_err(text))
    };
    let (flow, scope) = (number(2, "flow information")?, number(3, "scope")?);
    let mut addresses = resolve(address.py(), &host, port)?;
    for address in &mut addresses {
        if let SocketAddr::V6(v6) = address {
            flow.into_iter().for_each(|flow| v6.set_flowinfo(flow));
            // Without one, the host's text may have it: fe80::1%eth0.
            scope.into_iter().filter(|&scope| scope != 0).for_each(|scope| v6.set_scope_id(scope));
        }
    }
    Ok(addresses)
}

/// Does something with one address after the other until it succeeds, as
/// `socket.create_connection` does.
///
/// # Errors
/// That of the last address; at once what is no OSError, such as KeyboardInterrupt.
pub(crate) fn first_of<T>(
    py: Python<'_>,
    addresses: Vec<SocketAddr>,
    mut attempt: impl FnMut(SocketAddr) -> PyResult<T>,
) -> PyResult<T> {
    let last = addresses.len() - 1;
    for (at, address) in addresses.into_iter().enumerate() {
        match attempt(address) {
            Err(error) if at < last && error.is_instance_of::<PyOSError>(py) => {}
            ended => return ended,
        }
    }
    unreachable!("there is at least one address")
}

fn malformed() -> PyErr {
    PyTypeError::new_err(
        "an address is a tuple (host, port), such as (\"127.0.0.1\", 7777), or a text \"host:port\"",
    )
}

fn resolve(py: Python<'_>, host: &str, port: u16) -> PyResult<Vec<SocketAddr>> {
    if host.is_empty() {
        return Ok(vec![(Ipv4Addr::UNSPECIFIED, port).into()]);
    }
    let host = host.trim_matches(['[', ']']);
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![(ip, port).into()]);
    }
    // getaddrinfo raises what says which name is unknown. It knows the scopes of interfaces.
    let found = py.import("socket")?.call_method1("getaddrinfo", (host, port, 0, libc::SOCK_STREAM))?;
    let mut addresses = Vec::new();
    for entry in found.try_iter()? {
        let entry = entry?.get_item(4)?;
        let ip: String = entry.get_item(0)?.extract()?;
        // A Python without IPv6 has (number, bytes) there.
        let Ok(ip) = ip.split('%').next().unwrap_or_default().parse::<IpAddr>() else { continue };
        let mut address = SocketAddr::new(ip, port);
        if let SocketAddr::V6(v6) = &mut address {
            v6.set_flowinfo(entry.get_item(2)?.extract()?);
            v6.set_scope_id(entry.get_item(3)?.extract()?);
        }
        addresses.push(address);
    }
    if addresses.is_empty() {
        return Err(Failure::new(libc::EADDRNOTAVAIL, format!("{host}: no IP address")).into());
    }
    Ok(addresses)
}

/// An address as `socket.getsockname` returns it.
pub(crate) fn tuple<'py>(py: Python<'py>, address: SocketAddr) -> PyResult<Bound<'py, PyAny>> {
    let host = address.ip().to_string();
    Ok(match address {
        SocketAddr::V4(v4) => (host, v4.port()).into_pyobject(py)?.into_any(),
        SocketAddr::V6(v6) => (host, v6.port(), v6.flowinfo(), v6.scope_id()).into_pyobject(py)?.into_any(),
    })
}

/// Reads a flag as Python's sockets do: 0 and 1 are flags, too.
pub(crate) fn truth(flag: &Bound<'_, PyAny>) -> PyResult<bool> {
    flag.is_truthy()
}

/// Reads the size of a ring in bytes; None leaves it to the proxy.
pub(crate) fn ring(bytes: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if bytes.is_none() {
        return Ok(None);
    }
    // Floats and texts are refused by the conversion.
    let allowed = 1_u64 << options::MIN_RING_LOG2..=1 << options::MAX_RING_LOG2;
    match bytes.extract::<u64>() {
        Ok(bytes) if allowed.contains(&bytes) => Ok(Some(bytes)),
        Err(error) if !error.is_instance_of::<PyOverflowError>(bytes.py()) => Err(PyTypeError::new_err(
            format!("a ring's size is a number of bytes, or None, not {}", bytes.get_type().name()?),
        )),
        _ => Err(PyValueError::new_err(format!(
            "a ring has {} to {} bytes, rounded up to a power of two, not {bytes}; None leaves it to the proxy",
            allowed.start(),
            allowed.end()
        ))),
    }
}

/// A transport's name.
pub(crate) const fn name_of(transport: TransportKind) -> &'static str {
    match transport {
        TransportKind::Auto => "auto",
        TransportKind::Tcp => "tcp",
        TransportKind::Peer => "peer",
        TransportKind::Rc => "rc",
    }
}

/// Makes options of keyword arguments.
#[allow(clippy::too_many_arguments, reason = "the keywords of connect and listen")]
pub(crate) fn of_keywords(
    transport: &str,
    send_ring: Option<u64>,
    recv_ring: Option<u64>,
    linger: Option<f64>,
    keepalive: bool,
    nodelay: bool,
    v6only: bool,
) -> PyResult<Options> {
    let transport = match transport {
        "auto" => TransportKind::Auto,
        "tcp" => TransportKind::Tcp,
        "peer" => TransportKind::Peer,
        "rc" => TransportKind::Rc,
        other => {
            return Err(PyValueError::new_err(format!(
                "there is no transport {other:?}; they are \"auto\", \"tcp\", \"peer\" and \"rc\""
            )));
        }
    };
    let linger_ms = match linger {
        None => -1,
        Some(seconds) if (0.0..=2e6).contains(&seconds) => (seconds * 1e3).round() as i32,
        Some(_) => {
            return Err(PyValueError::new_err("linger is a number of seconds from 0 to 2,000,000, or None"));
        }
    };
    Ok(Options::DEFAULT
        .with_transport(transport)
        .with_rings(send_ring.unwrap_or(0), recv_ring.unwrap_or(0))
        .with_linger_ms(linger_ms)
        .with_flag(Options::KEEPALIVE, keepalive)
        .with_flag(Options::NODELAY, nodelay)
        .with_flag(Options::V6ONLY, v6only))
}
