//! A running gpunetd.

use super::no_system;
use crate::check::Check;
use crate::facts::Facts;
use crate::libraries::{Daemon, DaemonFound};

/// The version of this tool: daemon and programs are built from one tree.
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub fn checks(facts: &Facts) -> Vec<Check> {
    const ID: &str = "daemon.running";
    vec![match &facts.libraries.system {
        Err(why) => no_system(ID, why).harmless(),
        Ok(system) => running(&system.daemon),
    }]
}

fn running(daemon: &Daemon) -> Check {
    const ID: &str = "daemon.running";
    let place = format!("{} ({})", daemon.path, daemon.by);
    match &daemon.found {
        DaemonFound::Absent if daemon.named => Check::missing(
            ID,
            format!("none at {place}: programs that are told to use it do not start"),
            "start gpunetd there (--listen-path), or name none (unset GPUNET_DAEMON): each program then runs its \
             own proxy",
        )
        .fatal(),
        DaemonFound::Absent => Check::missing(
            ID,
            format!("none at {place}: each program runs its own proxy, and two programs talk by TCP"),
            "start gpunetd for streams through memory between programs",
        )
        .harmless(),
        DaemonFound::Refuses { why } => {
            let advice = "look at the daemon's log and its [[user]] rules (gpunetd --check)";
            let check = Check::degraded(ID, format!("at {place}: {why}"), advice);
            if daemon.named { check.fatal() } else { check }
        }
        DaemonFound::Runs { pid, version, data_threads } => {
            let text = format!("gpunetd {version}, process {pid}, {data_threads} data threads, at {place}");
            if version == VERSION {
                return Check::ok(ID, text);
            }
            let advice = "restart the daemon with the version of the programs";
            Check::degraded(ID, format!("{text}; this is version {VERSION}"), advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Impact, Status};

    fn daemon(named: bool, found: DaemonFound) -> Check {
        running(&Daemon { path: "/run/x".into(), by: "by GPUNET_DAEMON".into(), named, found })
    }

    #[test]
    fn no_daemon_is_no_fault_and_a_strange_one_is() {
        let absent = daemon(false, DaemonFound::Absent);
        assert_eq!((absent.status, absent.impact), (Status::Missing, Impact::Nothing));
        let version = |version: &str| {
            let found = DaemonFound::Runs { pid: 1, version: version.to_owned(), data_threads: 1 };
            daemon(false, found).status
        };
        assert_eq!(version(VERSION), Status::Ok);
        assert_eq!(version("99.0.0"), Status::Degraded);
        let refuses = daemon(false, DaemonFound::Refuses { why: "no".into() });
        assert_eq!((refuses.status, refuses.impact), (Status::Degraded, Impact::Costs));
    }

    #[test]
    fn without_the_daemon_that_programs_are_told_to_use_they_do_not_start() {
        let absent = daemon(true, DaemonFound::Absent);
        assert_eq!((absent.status, absent.impact), (Status::Missing, Impact::Fatal));
        assert!(absent.evidence.contains("/run/x (by GPUNET_DAEMON)"), "{absent:?}");
        assert_eq!(daemon(true, DaemonFound::Refuses { why: "no".into() }).impact, Impact::Fatal);
    }
}
