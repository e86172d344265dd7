//! A running gpunetd.

use super::not_asked;
use crate::check::Check;
use crate::facts::Facts;
use crate::libraries::Daemon;

/// The version of this tool: daemon and programs are built from one tree.
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub fn checks(facts: &Facts) -> Vec<Check> {
    const ID: &str = "daemon.running";
    vec![match &facts.libraries {
        Err(why) => not_asked(ID, why).harmless(),
        Ok(libraries) => running(&libraries.daemon),
    }]
}

fn running(daemon: &Daemon) -> Check {
    const ID: &str = "daemon.running";
    match daemon {
        Daemon::Absent { path } => Check::missing(
            ID,
            format!("none at {path}: each program runs its own proxy, and two programs talk by TCP"),
            "start gpunetd for streams through memory between programs",
        )
        .harmless(),
        Daemon::Refuses { why } => Check::degraded(
            ID,
            why.clone(),
            "look at the daemon's log and its [[user]] rules (gpunetd --check)",
        ),
        Daemon::Runs { path, pid, version, data_threads } => {
            let text = format!("gpunetd {version}, process {pid}, {data_threads} data threads, at {path}");
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

    #[test]
    fn no_daemon_is_no_fault_and_a_strange_one_is() {
        let absent = running(&Daemon::Absent { path: "/run/x".into() });
        assert_eq!((absent.status, absent.impact), (Status::Missing, Impact::Nothing));
        let version = |version: &str| {
            let (path, version) = ("/run/x".to_owned(), version.to_owned());
            running(&Daemon::Runs { path, pid: 1, version, data_threads: 1 }).status
        };
        assert_eq!(version(VERSION), Status::Ok);
        assert_eq!(version("99.0.0"), Status::Degraded);
        assert_eq!(running(&Daemon::Refuses { why: "no".into() }).status, Status::Degraded);
    }
}
