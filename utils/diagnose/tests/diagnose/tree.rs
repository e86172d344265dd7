//! Machines that are made up. Libraries are not asked there, and self-tests do not run.

use crate::process::{Tree, find, status};

#[test]
fn of_an_empty_machine_nothing_is_ok() {
    let (report, code) = Tree::new().diagnose();
    let checks = report["checks"].as_array().expect("checks");
    let fine: Vec<_> = checks.iter().filter(|check| check["status"] == "ok").collect();
    assert!(fine.is_empty(), "{fine:#?}");
    assert_eq!(code, 1);
}

const GPU: &str = "pci0000:16/0000:16:02.0/0000:17:00.0/0000:18:00.0/0000:19:00.0";
const NEAR: &str = "pci0000:16/0000:16:02.0/0000:17:00.0/0000:18:01.0/0000:1a:00.0";
const FAR: &str = "pci0000:a0/0000:a0:02.0/0000:a1:00.0";

/// 16 MiB of registers, then the window.
fn resource(window: u64) -> String {
    let start = 0x2000_0000_0000_u64;
    let lines = [(0xc000_0000, 0xc0ff_ffff), (start, start + window - 1), (0, 0)];
    lines.map(|(from, to)| format!("{from:#018x} {to:#018x} 0x000000000014220c")).join("\n")
}

/// A bridge's registers: one extended capability, access control, with these bits set.
fn config(acs: u8) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[0x100..0x104].copy_from_slice(&0x0001_000d_u32.to_le_bytes());
    bytes[0x106] = acs;
    bytes
}

struct Machine {
    window: u64,
    lanes: &'static str,
    card: &'static str,
    node: &'static str,
    acs: u8,
    port: &'static str,
    gid: &'static str,
    mtu: &'static str,
    version: &'static str,
    command_line: &'static str,
    limits: (&'static str, &'static str),
}

impl Machine {
    fn build(&self) -> Tree {
        let tree = Tree::new();
        let gpu = [
            ("vendor", "0x10de\n"),
            ("class", "0x030200\n"),
            ("numa_node", "0\n"),
            ("resource", &resource(self.window)),
            ("current_link_width", self.lanes),
            ("max_link_width", "16\n"),
            ("current_link_speed", "32.0 GT/s PCIe\n"),
        ];
        let bridges =
            ["pci0000:16/0000:16:02.0", "pci0000:16/0000:16:02.0/0000:17:00.0", "pci0000:a0/0000:a0:02.0"];
        let inner = ["0000:18:00.0", "0000:18:01.0"].map(|port| format!("{}/{port}", bridges[1]));
        for bridge in bridges.iter().copied().chain(inner.iter().map(String::as_str)) {
            tree.pci(bridge, &[("vendor", "0x8086\n"), ("class", "0x060400\n")]);
            tree.file(&format!("sys/devices/{bridge}/config"), config(self.acs));
        }
        tree.pci(GPU, &gpu)
            .pci(self.card, &[("vendor", "0x15b3\n"), ("class", "0x020700\n"), ("numa_node", self.node)]);
        tree.link(&format!("sys/devices/{}/driver", self.card), "../../../../bus/pci/drivers/mlx5_core");
        let card = "sys/class/infiniband/mlx5_0";
        // The class directory has a directory of its own here, and its `device` leads to the card.
        tree.link(&format!("{card}/device"), &format!("../../../devices/{}", self.card))
            .file(&format!("{card}/fw_ver"), "28.39\n");
        let port = format!("{card}/ports/1");
        tree.files(
            &port,
            &[
                ("state", self.port),
                ("phys_state", "5: LinkUp\n"),
                ("link_layer", "Ethernet\n"),
                ("rate", "400 Gb/sec (4X NDR)\n"),
                ("gids/0", "fe80:0000:0000:0000:a288:c2ff:fe12:3456\n"),
                ("gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
                ("gid_attrs/types/0", self.gid),
                ("gid_attrs/ndevs/0", "eth1\n"),
            ],
        );
        tree.file("sys/class/net/eth1/mtu", self.mtu).file("sys/class/net/lo/flags", "0x9\n");
        tree.file("sys/module/nvidia/version", "580.1\n").file("proc/driver/nvidia/version", self.version);
        tree.file(
            "proc/driver/nvidia/params",
            "EnableStreamMemOPs: 0\nRegistryDwords: \"PeerMappingOverride=1;\"\n",
        );
        tree.file("sys/module/nvidia_uvm/version", "").file("sys/module/nvidia_peermem/version", "580.1\n");
        for module in ["ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm"] {
            tree.file(&format!("sys/module/{module}/refcnt"), "1\n");
        }
        for file in ["dev/nvidiactl", "dev/nvidia-uvm", "dev/infiniband/rdma_cm"] {
            tree.file(file, "");
        }
        tree.file("proc/cmdline", self.command_line).file("sys/class/iommu/dmar0/name", "");
        tree.file("sys/kernel/iommu_groups/0/type", "DMA-FQ\n");
        let (files, locked) = self.limits;
        tree.file(
            "proc/self/limits",
            format!("Max open files   {files} 524288 files\nMax locked memory   {locked} {locked} bytes\n"),
        );
        tree
    }
}

const GOOD: Machine = Machine {
    window: 256 << 30,
    lanes: "16\n",
    card: NEAR,
    node: "0\n",
    acs: 0,
    port: "4: ACTIVE\n",
    gid: "RoCE v2\n",
    mtu: "9000\n",
    version: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.1\n",
    command_line: "quiet iommu=pt\n",
    limits: ("65536", "unlimited"),
};

fn complete(tree: &Tree, kernel: &str, cpus: &str, somaxconn: &str) {
    tree.file("proc/sys/kernel/osrelease", kernel).file("proc/sys/net/core/somaxconn", somaxconn);
    tree.file(
        "proc/self/status",
        format!("Uid:\t1000\t1000\nCapEff:\t0000000000000000\nCpus_allowed_list:\t{cpus}\n"),
    );
    tree.file("proc/meminfo", "MemTotal: 263000000 kB\nMemAvailable:   250000000 kB\n");
    tree.file("proc/cpuinfo", "flags\t\t: fpu vme\n");
}

#[test]
fn a_good_machine_is_ok_as_far_as_files_tell() {
    let tree = GOOD.build();
    complete(&tree, "6.8.0-45-generic\n", "0-95", "4096\n");
    let (report, code) = tree.diagnose();
    let by_files = [
        "machine.kernel",
        "machine.cpus",
        "machine.memory",
        "machine.loopback",
        "machine.container",
        "machine.vm",
        "limits.memlock",
        "limits.files",
        "limits.somaxconn",
        "modules.nvidia",
        "modules.nvidia_uvm",
        "modules.peermem",
        "modules.rdma",
        "modules.parameters",
        "gpu.bar1",
        "gpu.link",
        "rdma.devices",
        "rdma.port",
        "rdma.gids",
        "rdma.mtu",
        "topology.distance",
        "topology.numa",
        "topology.iommu",
        "topology.acs",
    ];
    for id in by_files {
        assert_eq!(status(&report, id), "ok", "{:#}", find(&report, id));
    }
    // What only libraries and tests can tell is not claimed.
    for id in ["gpu.driver", "gpu.dmabuf", "rdma.provider", "limits.memfd", "selftest.tcp", "selftest.order"]
    {
        assert_eq!(status(&report, id), "unknown", "{id}");
    }
    assert_eq!(code, 1);
    assert_eq!(report["works"], serde_json::json!([]));
    assert_eq!(find(&report, "topology.distance")["subject"], "0000:19:00.0 and mlx5_0");
}

#[test]
fn a_bad_machine_is_told_what_is_wrong_with_it() {
    let bad = Machine {
        window: 256 << 20,
        lanes: "8\n",
        card: FAR,
        node: "1\n",
        acs: 0x1d,
        gid: "IB/RoCE v1\n",
        mtu: "1500\n",
        version: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1\n",
        command_line: "quiet intel_iommu=on\n",
        limits: ("1024", "65536"),
        ..GOOD
    };
    let tree = bad.build();
    complete(&tree, "5.4.0-150-generic\n", "0,1", "128\n");
    // The limit is an ancestor's.
    tree.file("proc/self/cgroup", "0::/job/step\n").file("sys/fs/cgroup/job/memory.max", "209715200\n");
    tree.file("sys/fs/cgroup/job/step/memory.max", "max\n");
    tree.file("sys/fs/cgroup/job/memory.current", "104857600\n").file("sys/class/net/lo/flags", "0x8\n");
    tree.file(".dockerenv", "").file("sys/class/dmi/id/sys_vendor", "QEMU\n");
    let (report, code) = tree.diagnose();
    let expected = [
        ("machine.kernel", "degraded", "5.4"),
        ("machine.cpus", "degraded", "2 CPUs"),
        ("machine.memory", "degraded", "100 MiB left"),
        ("machine.loopback", "missing", "down"),
        ("machine.container", "ok", "Docker"),
        ("machine.vm", "ok", "QEMU"),
        ("limits.memlock", "degraded", "64 KiB"),
        ("limits.files", "degraded", "1024 files (at most 524288)"),
        ("limits.somaxconn", "degraded", "128"),
        ("modules.nvidia", "degraded", "proprietary"),
        ("gpu.bar1", "degraded", "256 MiB"),
        ("gpu.link", "degraded", "x8 of x16"),
        ("rdma.gids", "degraded", "RoCE v1 only"),
        ("rdma.mtu", "degraded", "1500"),
        ("topology.distance", "degraded", "SYS"),
        ("topology.numa", "degraded", "none near"),
        ("topology.iommu", "degraded", "translates"),
        ("topology.acs", "degraded", "up to the root complex"),
    ];
    for (id, wanted, words) in expected {
        let check = find(&report, id);
        assert_eq!(check["status"], wanted, "{check:#}");
        assert!(check["evidence"].as_str().is_some_and(|text| text.contains(words)), "{check:#}");
    }
    assert_eq!(code, 1);
}

#[test]
fn a_port_that_is_down_is_missing_and_hidden_registers_are_unknown() {
    let tree = Machine { port: "1: DOWN\n", ..GOOD }.build();
    for bridge in ["pci0000:16/0000:16:02.0", "pci0000:16/0000:16:02.0/0000:17:00.0"] {
        // What a user without privileges reads.
        tree.file(&format!("sys/devices/{bridge}/config"), [0; 64]);
    }
    let (report, _) = tree.diagnose();
    assert_eq!(status(&report, "rdma.port"), "missing");
    assert_eq!(status(&report, "topology.acs"), "unknown");
    assert!(find(&report, "topology.acs")["advice"].as_str().is_some_and(|text| text.contains("as root")));
}
