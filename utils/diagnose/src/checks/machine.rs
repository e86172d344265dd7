//! The computer, its kernel, and the container or virtual machine around them.

use super::size;
use crate::check::Check;
use crate::facts::{Facts, Machine};

/// Spinning threads: a data thread, a block or its reader, and something left for everybody else.
const CPUS: u32 = 4;
/// The pinned memory of an attachment with the default settings, and as much for the program.
const MEMORY: u64 = 512 << 20;

pub fn checks(facts: &Facts) -> Vec<Check> {
    let machine = &facts.machine;
    vec![
        kernel(machine),
        cpus(machine),
        memory(machine),
        loopback(facts),
        container(machine),
        virtual_machine(machine),
    ]
}

fn kernel(machine: &Machine) -> Check {
    const ID: &str = "machine.kernel";
    let Some(release) = &machine.kernel else {
        return Check::unknown(ID, "/proc/sys/kernel/osrelease cannot be read", "mount /proc");
    };
    let mut parts = release.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (parts.next(), parts.next()) else {
        return Check::unknown(
            ID,
            format!("Linux {release}: no version that is known"),
            "Linux 5.16 or later",
        );
    };
    let text = format!("Linux {release}");
    match (major, minor) {
        version if version >= (5, 16) => Check::ok(ID, text),
        version if version >= (5, 12) => Check::degraded(
            ID,
            format!("{text}: without futex_waitv, pollers nap instead of sleeping"),
            "Linux 5.16 or later",
        ),
        _ => Check::degraded(
            ID,
            format!("{text}: no registration of dma-bufs (5.12), no futex_waitv (5.16)"),
            "Linux 5.16 or later",
        ),
    }
}

fn cpus(machine: &Machine) -> Check {
    const ID: &str = "machine.cpus";
    match machine.cpus {
        None => Check::unknown(ID, "/proc/self/status cannot be read", "mount /proc"),
        Some(n) if n >= CPUS => Check::ok(ID, format!("{n} CPUs")),
        Some(n) => Check::degraded(
            ID,
            format!(
                "{n} CPUs for this process: threads that wait share them with those that work, which adds microseconds to a round trip"
            ),
            format!("give the process {CPUS} CPUs or more (taskset, cpuset, the container's limit)"),
        ),
    }
}

fn memory(machine: &Machine) -> Check {
    const ID: &str = "machine.memory";
    let Some(available) = machine.available else {
        return Check::unknown(ID, "/proc/meminfo cannot be read", "mount /proc");
    };
    let left = available.min(machine.cgroup_left.unwrap_or(u64::MAX));
    let mut text = format!("{} available", size(available));
    if let Some(left) = machine.cgroup_left {
        text += &format!(", {} left in the control group", size(left));
    }
    if left < MEMORY {
        text += &format!("; an attachment takes {} by default", size(MEMORY / 2));
        return Check::degraded(
            ID,
            text,
            "raise the limit (memory.max of the control group), or ask for less ring memory (Config::shared_rings): \
             without it, attaching fails",
        );
    }
    if machine.overcommit == Some(2) {
        text += "; vm.overcommit_memory = 2";
        let advice =
            "large mappings may be refused: sysctl vm.overcommit_memory=0, or ask for less ring memory";
        return Check::degraded(ID, text, advice);
    }
    Check::ok(ID, text)
}

/// `/sys` may show another network namespace's interfaces; the library asks the kernel for this
/// one's.
fn loopback(facts: &Facts) -> Check {
    const ID: &str = "machine.loopback";
    let asked = facts.libraries.system.as_ref().ok().and_then(|system| system.loopback);
    match asked.or(facts.machine.loopback) {
        None => Check::unknown(ID, "/sys/class/net cannot be read", "mount /sys"),
        Some(true) => Check::ok(ID, "lo is up"),
        Some(false) => {
            Check::missing(ID, "lo is down", "ip link set lo up (as root in this network namespace)")
        }
    }
}

fn container(machine: &Machine) -> Check {
    const ID: &str = "machine.container";
    match &machine.container {
        Some(kind) => Check::ok(ID, format!("{kind}: what it is given counts (devices, limits, network)")),
        None if machine.readable => Check::ok(ID, "none seen"),
        None => Check::unknown(ID, "/proc cannot be read", "mount /proc").harmless(),
    }
}

fn virtual_machine(machine: &Machine) -> Check {
    const ID: &str = "machine.vm";
    match &machine.virtual_machine {
        Some(kind) => {
            Check::ok(ID, format!("yes, {kind}: PCIe distances and link widths may not be the hardware's"))
        }
        None if machine.readable => Check::ok(ID, "no"),
        None => Check::unknown(ID, "/proc cannot be read", "mount /proc").harmless(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Status;

    #[test]
    fn old_kernels_cost_and_strange_ones_are_unknown() {
        let of = |release: &str| {
            kernel(&Machine { kernel: Some(release.to_owned()), ..Machine::default() }).status
        };
        assert_eq!(of("6.8.0-45-generic"), Status::Ok);
        assert_eq!(of("5.15.0-1-amd64"), Status::Degraded);
        assert_eq!(of("4.18.0-553.el8_10.x86_64"), Status::Degraded);
        assert_eq!(of("plan9"), Status::Unknown);
        assert_eq!(kernel(&Machine::default()).status, Status::Unknown);
    }

    #[test]
    fn the_control_groups_limit_counts() {
        let machine = |cgroup_left| Machine { available: Some(8 << 30), cgroup_left, ..Machine::default() };
        assert_eq!(memory(&machine(None)).status, Status::Ok);
        assert_eq!(memory(&machine(Some(2 << 30))).status, Status::Ok);
        let tight = memory(&machine(Some(100 << 20)));
        assert_eq!(tight.status, Status::Degraded);
        assert!(tight.evidence.contains("100 MiB left"), "{tight:?}");
        let strict = Machine { overcommit: Some(2), ..machine(None) };
        assert_eq!(memory(&strict).status, Status::Degraded);
    }

    #[test]
    fn few_cpus_and_a_loopback_that_is_down_are_told() {
        assert_eq!(cpus(&Machine { cpus: Some(2), ..Machine::default() }).status, Status::Degraded);
        assert_eq!(cpus(&Machine { cpus: Some(16), ..Machine::default() }).status, Status::Ok);
        let mut facts = crate::facts::none();
        assert_eq!(loopback(&facts).status, Status::Unknown);
        facts.machine.loopback = Some(true);
        assert_eq!(loopback(&facts).status, Status::Ok);
        let mut libraries = crate::libraries::nothing();
        libraries.system.as_mut().expect("asked").loopback = Some(false);
        facts.libraries = libraries;
        assert_eq!(loopback(&facts).status, Status::Missing);
    }
}
