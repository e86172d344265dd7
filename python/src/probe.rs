//! What this machine offers, for `python -m gpunet probe`: as text, and as plain values.

use crate::{job, plain};
use gpu_usermap::Probe;
use gpu_usermap::probe::DeviceProbe;
use gpunet_proxy::rdma;
use pyo3::prelude::*;
use serde_json::{Value, json};

/// Returns what this machine offers: text for people, and a dict.
#[pyfunction]
pub(crate) fn probe(py: Python<'_>) -> PyResult<(String, Bound<'_, PyAny>)> {
    let (probe, verbs) = job::run(py, || (gpu_usermap::probe(), gpunet_proxy::rdma_devices()))?;
    let verbs_text = match &verbs {
        Ok(devices) => devices.iter().map(|device| format!("RDMA by libibverbs: {device}\n")).collect(),
        Err(missing) => format!("RDMA by libibverbs: not used: {missing}\n"),
    };
    let value = value(&probe, &verbs);
    Ok((format!("{probe}{verbs_text}"), plain::python(py, &value)?))
}

fn value(probe: &Probe, verbs: &Result<Vec<rdma::DeviceReport>, rdma::Unavailable>) -> Value {
    let text = |shown: &dyn std::fmt::Display| shown.to_string();
    let driver = match &probe.driver {
        Ok(driver) => json!({ "version": text(&driver.version) }),
        Err(missing) => json!({ "missing": text(missing) }),
    };
    let failed = probe.failed_devices.iter();
    let mapping = probe.cpu_mapping.iter().map(|backend| {
        let refused = backend.usable.as_ref().err();
        json!({ "by": text(&backend.kind), "missing": refused.map(|reason| text(reason)) })
    });
    let verbs = match verbs {
        Ok(devices) => json!({ "devices": devices.iter().map(|device| text(device)).collect::<Vec<_>>() }),
        Err(missing) => json!({ "missing": text(missing) }),
    };
    json!({
        "driver": driver,
        "devices": probe.devices.iter().map(device).collect::<Vec<_>>(),
        "failed_devices": failed
            .map(|(ordinal, error)| json!({ "ordinal": ordinal, "error": text(error) }))
            .collect::<Vec<_>>(),
        "cpu_mapping": mapping.collect::<Vec<_>>(),
        "rdma_devices": probe.rdma.rdma_devices,
        "peer_memory_module": probe.rdma.peer_module,
        "verbs": verbs,
    })
}

fn device(gpu: &DeviceProbe) -> Value {
    json!({
        "ordinal": gpu.ordinal,
        "name": gpu.name,
        "compute_capability": gpu.compute_capability,
        "multiprocessors": gpu.multiprocessors,
        "total_memory": gpu.total_memory,
        "pci_address": gpu.pci_address.map(|address| address.to_string()),
        "gpudirect_rdma": gpu.gpu_direct_rdma_supported,
        "gpudirect_rdma_with_virtual_memory": gpu.gpu_direct_rdma_with_cuda_vmm,
        "dma_buf": gpu.dma_buf_supported,
        "host_register": gpu.host_register_supported,
        "virtual_memory": gpu.virtual_memory_management,
    })
}
