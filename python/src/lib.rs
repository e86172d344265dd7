//! `gpunet._native`: the host's side of gpunet for Python.
//!
//! The package `gpunet` shows what is here and adds what Python says better: asyncio, files. The
//! stub `_native.pyi` has every call's type, docs/python.md leads through them. A call waits
//! without the GIL, and Ctrl-C ends the wait.
//!
//! | module | what it is |
//! |---|---|
//! | `proxy` | `open`, `embed`, `attach`, and what they return |
//! | `probe` | what this machine offers |
//! | `socket` | sockets of the host program |
//! | `attachment`, `launch`, `cpu`, `device_socket`, `memory`, `cuda` | a device: launches of its kernels, their sockets and memory |
//! | `queue`, `team`, `cpu_team` | operations in the order of a stream; devices that store into each other's memory, also in kernels on the CPU |
//! | `channel` | whole arrays to another process |
//! | `calls`, `watch` | functions of Python that kernels call; what kernels record and print |
//! | `array`, `export`, `dlpack` | arrays of other libraries as memory, and memory as their arrays |
//! | `address`, `buffer`, `plain`, `error` | Python's values: addresses, memory, dicts, exceptions |
//! | `wait`, `detach`, `job`, `fork`, `log` | how calls wait; work without the GIL; what goes on behind them; children of `fork`; the log |

mod address;
mod array;
mod attachment;
mod buffer;
mod calls;
mod channel;
mod cpu;
mod cpu_team;
mod cuda;
mod detach;
mod device_socket;
mod dlpack;
mod error;
mod export;
mod fork;
mod job;
mod launch;
mod log;
mod memory;
mod plain;
mod probe;
mod proxy;
mod queue;
mod socket;
mod team;
mod wait;
mod watch;

use gpunet_embed_ptx::{Embedded, embedded};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// The C functions for kernels.
static DEVICE_PTX: Embedded = embedded!("gpunet_device.ptx");

/// The headers for kernels in C and C++, by their paths: made by the build script.
static HEADERS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/headers.rs"));

/// Returns the PTX of the C functions that kernels call.
#[pyfunction]
fn device_ptx(py: Python<'_>) -> Bound<'_, PyBytes> {
    PyBytes::new(py, DEVICE_PTX.text().as_bytes())
}

/// Returns the headers for kernels in C and C++, by their paths.
#[pyfunction]
fn headers(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, text) in HEADERS {
        dict.set_item(name, text)?;
    }
    Ok(dict)
}

/// The module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<proxy::Proxy>()?;
    module.add_class::<attachment::Attachment>()?;
    module.add_class::<socket::Socket>()?;
    module.add_class::<socket::Listener>()?;
    module.add_class::<socket::Connecting>()?;
    module.add_class::<device_socket::DeviceSocket>()?;
    module.add_class::<device_socket::DeviceListener>()?;
    module.add_class::<launch::Launch>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<calls::Calls>()?;
    module.add_class::<watch::Watch>()?;
    module.add_class::<watch::Record>()?;
    module.add_class::<queue::Queue>()?;
    module.add_class::<queue::Started>()?;
    module.add_class::<queue::Done>()?;
    module.add_class::<team::Team>()?;
    module.add_class::<team::TeamListener>()?;
    module.add_class::<team::Symmetric>()?;
    module.add_class::<team::Part>()?;
    module.add_class::<channel::RawChannel>()?;
    module.add_class::<channel::RawChannelListener>()?;
    module.add_class::<channel::Transfer>()?;
    module.add_class::<channel::Outcome>()?;
    module.add_function(wrap_pyfunction!(proxy::open, module)?)?;
    module.add_function(wrap_pyfunction!(proxy::embed, module)?)?;
    module.add_function(wrap_pyfunction!(proxy::attach, module)?)?;
    module.add_function(wrap_pyfunction!(proxy::close_all, module)?)?;
    module.add_function(wrap_pyfunction!(log::log_level, module)?)?;
    module.add_function(wrap_pyfunction!(log::next_record, module)?)?;
    module.add_class::<cpu::CpuLaunch>()?;
    module.add_function(wrap_pyfunction!(cpu::cpu_launch, module)?)?;
    module.add_function(wrap_pyfunction!(cpu::cpu_accept, module)?)?;
    module.add_function(wrap_pyfunction!(cpu::cpu_connect, module)?)?;
    module.add_function(wrap_pyfunction!(cpu::cpu_send, module)?)?;
    module.add_function(wrap_pyfunction!(cpu::cpu_recv, module)?)?;
    module.add_function(wrap_pyfunction!(cpu::cpu_shutdown, module)?)?;
    module.add_function(wrap_pyfunction!(cpu::cpu_close, module)?)?;
    module.add_function(wrap_pyfunction!(cpu::cpu_poll, module)?)?;
    module.add_function(wrap_pyfunction!(cpu::cpu_function, module)?)?;
    module.add_function(wrap_pyfunction!(probe::probe, module)?)?;
    module.add_function(wrap_pyfunction!(cpu_team::cpu_put, module)?)?;
    module.add_function(wrap_pyfunction!(cpu_team::cpu_signal_set, module)?)?;
    module.add_function(wrap_pyfunction!(cpu_team::cpu_signal_wait, module)?)?;
    module.add_function(wrap_pyfunction!(cpu_team::cpu_barrier, module)?)?;
    module.add_function(wrap_pyfunction!(device_ptx, module)?)?;
    module.add_function(wrap_pyfunction!(headers, module)?)?;
    Ok(())
}
