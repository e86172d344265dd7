//! What the driver reports about a GPU.

use crate::check::Check;
use crate::libraries::Gpu;

/// The PTX is for this and later.
const CAPABILITY: (u32, u32) = (8, 0);

pub fn checks(gpu: &Gpu) -> Vec<Check> {
    let subject = format!("cuda:{}", gpu.ordinal);
    [
        compute(gpu),
        mode(gpu),
        registration(gpu),
        sharing(gpu),
        gpudirect(gpu),
        dmabuf(gpu),
        ordering(gpu),
        placement(gpu),
    ]
    .map(|check| check.on(subject.clone()))
    .to_vec()
}

fn compute(gpu: &Gpu) -> Check {
    let (major, minor) = gpu.compute_capability;
    let text = format!("{major}.{minor}, {} GiB", gpu.memory >> 30);
    if gpu.compute_capability >= CAPABILITY {
        return Check::ok("gpu.compute", text);
    }
    Check::missing(
        "gpu.compute",
        format!("{text}: 8.0 or newer is needed"),
        "use an A100 or newer, or CPU blocks",
    )
}

fn mode(gpu: &Gpu) -> Check {
    match &gpu.restricted {
        None => Check::ok("gpu.mode", "any number of processes"),
        Some(mode) => Check::degraded(
            "gpu.mode",
            format!("{mode}: another program's kernels cannot be a peer, and self-tests fail while one runs"),
            "nvidia-smi -c DEFAULT (as root)",
        ),
    }
}

/// A yes-or-no property of the driver.
fn property(id: &str, value: Option<bool>, yes: &str, no: &str, advice: &str) -> Check {
    match value {
        Some(true) => Check::ok(id, yes),
        Some(false) => Check::missing(id, no, advice),
        None => Check::unknown(id, "the driver is older than the question", "update the driver"),
    }
}

fn registration(gpu: &Gpu) -> Check {
    property(
        "gpu.registration",
        gpu.host_registration,
        "yes",
        "no: a kernel cannot share memory with the proxy, so this GPU has no sockets",
        "update the driver; ask the virtual machine's provider",
    )
}

fn sharing(gpu: &Gpu) -> Check {
    property(
        "gpu.sharing",
        gpu.shareable,
        "virtual memory calls, with file descriptors",
        "no: streams between two programs or two GPUs go through host memory",
        "use a driver and GPU with the virtual memory calls (not in WSL or vGPU without unified memory)",
    )
}

fn gpudirect(gpu: &Gpu) -> Check {
    property(
        "gpu.gpudirect",
        gpu.gpudirect,
        "yes",
        "no: a network card cannot reach this GPU's memory",
        "use a data centre or workstation GPU for RDMA into GPU memory; pinned memory serves otherwise",
    )
}

fn dmabuf(gpu: &Gpu) -> Check {
    property(
        "gpu.dmabuf",
        gpu.dmabuf,
        "yes",
        "no: a card reaches GPU memory by nvidia_peermem only",
        "install the open kernel modules (nvidia-open), Linux 5.12 or later",
    )
}

fn ordering(gpu: &Gpu) -> Check {
    const ID: &str = "gpu.ordering";
    let who = gpu.ordering.as_deref().unwrap_or("nobody knows whom");
    match (gpu.ordered, gpu.flush) {
        (Some(true), _) => {
            Check::ok(ID, format!("a card's writes are ordered for {who}; no flush is needed"))
        }
        (_, Some(true)) => Check::degraded(
            ID,
            format!("a card's writes are ordered for {who}: each message would need a flush by the host"),
            "rings of rc streams lie in pinned memory; a Hopper or newer GPU needs no flush",
        ),
        (Some(false), _) => Check::missing(
            ID,
            "a card's writes come in no order, and cannot be flushed",
            "rings of rc streams lie in pinned memory",
        ),
        (None, _) => Check::unknown(ID, "the driver is older than the question", "update the driver"),
    }
}

fn placement(gpu: &Gpu) -> Check {
    let place = &gpu.placement;
    if place.in_gpu_memory {
        return Check::ok("gpu.placement", format!("rings of rc streams in {}", place.chosen));
    }
    let text = format!("rings of rc streams in {}; not {}", place.chosen, place.not.join("; not "));
    Check::missing("gpu.placement", text, "see the reasons; bytes take one step more until then")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Status;
    use crate::libraries::RcPlacement;

    #[test]
    fn each_property_has_its_bad_case() {
        let old = Gpu { compute_capability: (7, 0), ..Gpu::default() };
        assert_eq!(compute(&old).status, Status::Missing);
        assert_eq!(compute(&Gpu { compute_capability: (9, 0), ..Gpu::default() }).status, Status::Ok);
        let restricted = Gpu { restricted: Some("one process at a time".into()), ..Gpu::default() };
        assert_eq!(mode(&restricted).status, Status::Degraded);
        let status = |value| property("gpu.dmabuf", value, "", "", "").status;
        assert_eq!(
            [Some(true), Some(false), None].map(status),
            [Status::Ok, Status::Missing, Status::Unknown]
        );
    }

    #[test]
    fn ordering_is_by_nature_by_flush_or_not_at_all() {
        let gpu = |ordered, flush| ordering(&Gpu { ordered, flush, ..Gpu::default() }).status;
        assert_eq!(gpu(Some(true), None), Status::Ok);
        assert_eq!(gpu(Some(false), Some(true)), Status::Degraded);
        assert_eq!(gpu(Some(false), Some(false)), Status::Missing);
        assert_eq!(gpu(None, None), Status::Unknown);
    }

    #[test]
    fn pinned_rings_come_with_the_reasons() {
        let place = RcPlacement {
            in_gpu_memory: false,
            chosen: "pinned host memory".into(),
            not: vec!["GPU memory by dma-buf: no RDMA device".into()],
        };
        let check = placement(&Gpu { placement: place, ..Gpu::default() });
        assert_eq!(check.status, Status::Missing);
        assert!(check.evidence.ends_with("; not GPU memory by dma-buf: no RDMA device"), "{check:?}");
    }
}
