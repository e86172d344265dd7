//! The options of host sockets, with Linux's numbers.

use super::GPUNET_HOST_SPIN;
use super::state::{Inner, State};
use crate::failure::Failure;
use crate::memory::{Given, Wanted};
use gpunet_device::Options;
use gpunet_posix::options::{GPUNET_LINES, GPUNET_NONBLOCK, GPUNET_TRANSPORT, SOL_GPUNET};
use gpunet_proxy::abi::TransportKind;
use gpunet_proxy::abi::options::ring_log2;
use libc::{
    IPPROTO_IPV6, IPPROTO_TCP, IPV6_V6ONLY, SO_ACCEPTCONN, SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_RCVBUF,
    SO_RCVTIMEO, SO_REUSEADDR, SO_SNDBUF, SO_SNDTIMEO, SO_TYPE, SOCK_STREAM, SOL_SOCKET, TCP_NODELAY,
};
use std::ffi::c_int;
use std::time::Duration;

/// Converts a ring size or a truth value to its type in C.
fn int(value: impl TryInto<c_int>) -> c_int {
    value.try_into().unwrap_or(c_int::MAX)
}

fn timeval_ns(value: libc::timeval) -> Result<u64, Failure> {
    match (u64::try_from(value.tv_sec), u64::try_from(value.tv_usec)) {
        (Ok(seconds), Ok(micros @ 0..1_000_000)) => {
            Ok(seconds.saturating_mul(1_000_000_000).saturating_add(micros * 1000))
        }
        _ => Err(Failure::new(libc::EDOM, "a time has tv_sec from 0 on, and tv_usec from 0 to 999,999")),
    }
}

fn timeval(ns: u64) -> libc::timeval {
    let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    libc::timeval { tv_sec: seconds as i64, tv_usec: (rest / 1000) as i64 }
}

fn unknown(level: c_int, name: c_int) -> Failure {
    Failure::new(libc::ENOPROTOOPT, format!("no option {name} of level {level}"))
}

/// Sets an option.
///
/// # Errors
/// ENOPROTOOPT; EFAULT; EINVAL; EDOM; EISCONN for options that cannot be set after connect or
/// listen.
pub(super) fn set(inner: &mut Inner, level: c_int, name: c_int, value: Given) -> Result<(), Failure> {
    let mut options = inner.settings.options;
    let truth = || Ok::<_, Failure>(value.read::<c_int>()? != 0);
    // These concern this side only, and can be set at any time.
    match (level, name) {
        (SOL_SOCKET, SO_SNDTIMEO) => options.send_timeout_ns = timeval_ns(value.read()?)?,
        (SOL_SOCKET, SO_RCVTIMEO) => options.recv_timeout_ns = timeval_ns(value.read()?)?,
        (SOL_GPUNET, GPUNET_NONBLOCK) => options = options.with_flag(Options::NONBLOCK, truth()?),
        (SOL_GPUNET, GPUNET_HOST_SPIN) => {
            let micros = u64::try_from(value.read::<c_int>()?).map_err(|_| Failure::of(libc::EDOM))?;
            inner.settings.spin = Duration::from_micros(micros);
        }
        _ => {
            match (level, name) {
                (SOL_SOCKET, SO_REUSEADDR) => options = options.with_flag(Options::REUSEADDR, truth()?),
                (SOL_SOCKET, SO_KEEPALIVE) => options = options.with_flag(Options::KEEPALIVE, truth()?),
                (IPPROTO_TCP, TCP_NODELAY) => options = options.with_flag(Options::NODELAY, truth()?),
                (IPPROTO_IPV6, IPV6_V6ONLY) => options = options.with_flag(Options::V6ONLY, truth()?),
                (SOL_GPUNET, GPUNET_LINES) => options = options.with_flag(Options::LINES, truth()?),
                (SOL_SOCKET, SO_SNDBUF) => {
                    options.send_log2 = ring_log2(value.read::<c_int>()?.max(0) as u64)
                }
                (SOL_SOCKET, SO_RCVBUF) => {
                    options.recv_log2 = ring_log2(value.read::<c_int>()?.max(0) as u64)
                }
                (SOL_SOCKET, SO_LINGER) => {
                    let libc::linger { l_onoff, l_linger } = value.read()?;
                    options.linger_ms =
                        if l_onoff == 0 { -1 } else { l_linger.clamp(0, c_int::MAX / 1000) * 1000 };
                }
                (SOL_GPUNET, GPUNET_TRANSPORT) => {
                    let number = value.read::<c_int>()?;
                    let kind = u8::try_from(number).ok().and_then(TransportKind::from_raw);
                    let kind = kind.ok_or_else(|| {
                        Failure::new(libc::EINVAL, format!("no transport has the number {number}"))
                    })?;
                    options = options.with_transport(kind);
                }
                _ => return Err(unknown(level, name)),
            }
            if !matches!(inner.state, State::Fresh { .. }) && options != inner.settings.options {
                return Err(Failure::new(libc::EISCONN, "this option is set before connect or listen"));
            }
        }
    }
    inner.settings.options = options;
    Ok(())
}

/// Reads an option.
///
/// # Errors
/// ENOPROTOOPT; EFAULT.
pub(super) fn get(inner: &mut Inner, level: c_int, name: c_int, value: Wanted) -> Result<(), Failure> {
    let options = inner.settings.options;
    let truth = |flag| value.write(c_int::from(options.has(flag)));
    match (level, name) {
        (SOL_SOCKET, SO_REUSEADDR) => truth(Options::REUSEADDR),
        (SOL_SOCKET, SO_KEEPALIVE) => truth(Options::KEEPALIVE),
        (IPPROTO_TCP, TCP_NODELAY) => truth(Options::NODELAY),
        (IPPROTO_IPV6, IPV6_V6ONLY) => truth(Options::V6ONLY),
        (SOL_GPUNET, GPUNET_NONBLOCK) => truth(Options::NONBLOCK),
        (SOL_GPUNET, GPUNET_LINES) => truth(Options::LINES),
        (SOL_GPUNET, GPUNET_HOST_SPIN) => value.write(int(inner.settings.spin.as_micros())),
        (SOL_SOCKET, SO_TYPE) => value.write(SOCK_STREAM),
        (SOL_SOCKET, SO_ACCEPTCONN) => value.write(c_int::from(matches!(inner.state, State::Listener(_)))),
        (SOL_SOCKET, SO_ERROR) => {
            let error = inner.error.take();
            value.write(error.map_or(0, |error| error.errno()))
        }
        (SOL_SOCKET, SO_SNDBUF) => value.write(int(1_u64 << options.rings().0)),
        (SOL_SOCKET, SO_RCVBUF) => value.write(int(1_u64 << options.rings().1)),
        (SOL_SOCKET, SO_SNDTIMEO) => value.write(timeval(options.send_timeout_ns)),
        (SOL_SOCKET, SO_RCVTIMEO) => value.write(timeval(options.recv_timeout_ns)),
        (SOL_SOCKET, SO_LINGER) => value.write(libc::linger {
            l_onoff: c_int::from(options.linger_ms >= 0),
            l_linger: options.linger_ms.max(0) / 1000,
        }),
        (SOL_GPUNET, GPUNET_TRANSPORT) => value.write(match &inner.state {
            State::Stream(stream) => c_int::from(stream.transport as u8),
            _ => c_int::from(options.transport),
        }),
        _ => Err(unknown(level, name)),
    }
}
