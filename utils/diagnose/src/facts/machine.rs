//! The computer, its kernel, and the container or virtual machine around them.

use crate::system::System;
use gpu_usermap::region::MemoryGroup;

/// Facts of the machine. `None`: unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Linux's release, such as `6.8.0-45-generic`.
    pub kernel: Option<String>,
    /// CPUs that this process may run on.
    pub cpus: Option<u32>,
    /// Bytes that programs can still take.
    pub available: Option<u64>,
    /// Bytes that the control groups leave: the own one and its ancestors.
    pub cgroup_left: Option<u64>,
    /// `vm.overcommit_memory`.
    pub overcommit: Option<u64>,
    /// The loopback interface is up.
    pub loopback: Option<bool>,
    /// What kind of container this is.
    pub container: Option<String>,
    /// What kind of virtual machine this is.
    pub virtual_machine: Option<String>,
    /// `/proc` could be read, so the two above are reliable.
    pub readable: bool,
    /// The process runs as root.
    pub root: bool,
}

/// IFF_UP
const UP: u64 = 1;

impl Machine {
    /// Reads them.
    #[must_use]
    pub fn read(system: &System) -> Self {
        let status = system.read("/proc/self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let interfaces = !system.list("/sys/class/net").is_empty();
        let flags = system.read("/sys/class/net/lo/flags");
        let flags = flags.and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
        Self {
            kernel: system.read("/proc/sys/kernel/osrelease"),
            cpus: field("Cpus_allowed_list:").and_then(count_of),
            available: available(system),
            cgroup_left: cgroup_left(system),
            overcommit: system.number("/proc/sys/vm/overcommit_memory"),
            loopback: interfaces.then(|| flags.is_some_and(|flags| flags & UP != 0)),
            container: container(system),
            virtual_machine: virtual_machine(system),
            readable: system.exists("/proc/cpuinfo") || system.exists("/proc/self"),
            root: field("Uid:").and_then(|ids| ids.split_whitespace().nth(1)) == Some("0"),
        }
    }
}

/// Counts the CPUs in a list such as `0-3,8`.
pub fn count_of(list: &str) -> Option<u32> {
    let one = |part: &str| -> Option<u32> {
        match part.split_once('-') {
            Some((from, to)) => Some(to.parse::<u32>().ok()?.checked_sub(from.parse().ok()?)? + 1),
            None => part.parse::<u32>().ok().map(|_| 1),
        }
    };
    list.trim().split(',').map(one).sum()
}

fn available(system: &System) -> Option<u64> {
    let text = system.read("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}

/// What the fullest control group with a limit leaves, of the own one and its ancestors; `None`
/// without a limit.
fn cgroup_left(system: &System) -> Option<u64> {
    let own = system.read("/proc/self/cgroup").unwrap_or_default();
    MemoryGroup::read(&system.path("/"), &own).iter().map(MemoryGroup::available).min()
}

fn container(system: &System) -> Option<String> {
    if system.variable("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("Kubernetes".to_owned());
    }
    if system.exists("/run/.containerenv") {
        return Some("Podman".to_owned());
    }
    if system.exists("/.dockerenv") {
        return Some("Docker".to_owned());
    }
    let words = [("kubepods", "Kubernetes"), ("docker", "Docker"), ("libpod", "Podman"), ("lxc", "LXC")];
    let groups = ["/proc/1/cgroup", "/proc/self/cgroup"].map(|path| system.read(path).unwrap_or_default());
    let found = words.iter().find(|(word, _)| groups.iter().any(|text| text.contains(word)));
    found.map(|(_, name)| (*name).to_owned()).or_else(|| system.variable("container").map(str::to_owned))
}

fn virtual_machine(system: &System) -> Option<String> {
    let cpu = system.read("/proc/cpuinfo").unwrap_or_default();
    let flag = cpu
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|word| word == "hypervisor"));
    let dmi = ["sys_vendor", "product_name"]
        .map(|name| system.read(&format!("/sys/class/dmi/id/{name}")).unwrap_or_default())
        .join(" ");
    let known = [
        "QEMU",
        "KVM",
        "VMware",
        "VirtualBox",
        "Xen",
        "Amazon EC2",
        "Google",
        "Virtual Machine",
        "Firecracker",
    ];
    let named = known.iter().any(|word| dmi.contains(word)) && !dmi.contains(".metal");
    let xen = system.read("/sys/hypervisor/type");
    if !flag && !named && xen.is_none() {
        return None;
    }
    Some(match (dmi.trim(), xen) {
        ("", Some(xen)) => xen,
        ("", None) => "the CPU says so (flag hypervisor)".to_owned(),
        (text, _) => text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(count_of("0-3,8"), Some(5));
        assert_eq!(count_of("7\n"), Some(1));
        assert_eq!(count_of("x"), None);
        assert_eq!(count_of("3-1"), None);
    }
}
