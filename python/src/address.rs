//! Addresses and options as Python programs write them.

use crate::error::Failure;
use gpunet_proxy::abi::{Options, TransportKind};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Reads an address: `(host, port)`, for IPv6 also with flow information and scope, or
/// `"host:port"`. Names are looked up by Python.
pub(crate) fn parse(address: &Bound<'_, PyAny>) -> PyResult<SocketAddr> {
    if let Ok(text) = address.cast::<PyString>() {
        let text = text.to_cow()?;
        if let Ok(address) = text.parse() {
            return Ok(address);
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
    let mut address = resolve(address.py(), &host, port)?;
    if let SocketAddr::V6(v6) = &mut address {
        if tuple.len() > 2 {
            v6.set_flowinfo(tuple.get_item(2)?.extract()?);
        }
        if tuple.len() > 3 {
            v6.set_scope_id(tuple.get_item(3)?.extract()?);
        }
    }
    Ok(address)
}

fn malformed() -> PyErr {
    PyTypeError::new_err(
        "an address is a tuple (host, port), such as (\"127.0.0.1\", 7777), or a text \"host:port\"",
    )
}

fn resolve(py: Python<'_>, host: &str, port: u16) -> PyResult<SocketAddr> {
    if host.is_empty() {
        return Ok((Ipv4Addr::UNSPECIFIED, port).into());
    }
    if let Ok(ip) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok((ip, port).into());
    }
    // getaddrinfo raises what says which name is unknown.
    let found = py.import("socket")?.call_method1("getaddrinfo", (host, port, 0, libc::SOCK_STREAM))?;
    let first = found.get_item(0)?.get_item(4)?;
    let ip: String = first.get_item(0)?.extract()?;
    let ip = ip.split('%').next().unwrap_or_default().parse::<IpAddr>();
    Ok((ip.map_err(|_| Failure::new(libc::EADDRNOTAVAIL, format!("{host}: no IP address")))?, port).into())
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
pub(crate) fn options(
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
