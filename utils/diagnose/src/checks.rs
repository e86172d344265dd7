//! From facts to checks: one file per area, one function per check.
//!
//! | file | holds |
//! |---|---|
//! | `machine`, `limits`, `modules` | the computer; what this process may use; kernel modules |
//! | `gpu`, `rdma`, `topology` | the driver and its GPUs; RDMA devices; how they are connected |
//! | `daemon` | a running gpunetd |

mod daemon;
mod gpu;
mod limits;
mod machine;
mod modules;
mod rdma;
mod topology;

use crate::check::Check;
use crate::child;
use crate::facts::Facts;
use crate::libraries::NoAnswer;

/// All checks but the self-tests, in the order of [`crate::catalogue`].
#[must_use]
pub fn all(facts: &Facts) -> Vec<Check> {
    [
        machine::checks(facts),
        limits::checks(facts),
        modules::checks(facts),
        gpu::checks(facts),
        rdma::checks(facts),
        topology::checks(facts),
        daemon::checks(facts),
    ]
    .concat()
}

/// Formats a number of bytes for people.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        u64::MAX => "no limit".to_owned(),
        b if b >= 10 << 30 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

/// The outcome of a check whose question has no answer. `silent` is the advice if the one asked
/// gave none.
fn no_answer(id: &str, why: &NoAnswer, silent: &str) -> Check {
    let advice = match why {
        NoAnswer::NotAsked(_) => "run gpunet-diagnose on the machine itself",
        NoAnswer::NotStarted(_) => child::NOT_STARTED,
        NoAnswer::BrokenOff(_) => silent,
    };
    Check::unknown(id, why.to_string(), advice)
}

/// NVIDIA's driver.
fn no_driver(id: &str, why: &NoAnswer) -> Check {
    no_answer(id, why, "`dmesg` says more (Xid); a driver that does not answer needs a reboot")
}

/// The RDMA libraries.
fn no_rdma(id: &str, why: &NoAnswer) -> Check {
    no_answer(id, why, "`dmesg` says more; load the card's driver anew, update rdma-core")
}

/// The kernel and a daemon.
fn no_system(id: &str, why: &NoAnswer) -> Check {
    no_answer(id, why, "try again; if a gpunetd runs, stop it and see whether it is the reason")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Status;
    use crate::libraries::{Libraries, nothing};

    #[test]
    fn a_driver_that_hangs_takes_no_other_answer_with_it() {
        let mut facts = crate::facts::none();
        let why = NoAnswer::BrokenOff("no answer within 60 s".to_owned());
        facts.libraries = Libraries { driver: Err(why), ..nothing() };
        let checks = all(&facts);
        let find = |id: &str| checks.iter().find(|check| check.id == id).expect("told");
        assert_eq!(find("limits.memfd").status, Status::Ok);
        assert_eq!(find("machine.loopback").status, Status::Ok);
        assert!(find("daemon.running").evidence.starts_with("none at"));
        assert_eq!(find("rdma.libraries").status, Status::Missing);
        assert_eq!(find("gpu.driver").status, Status::Unknown);
        let reboot = |check: &&Check| check.advice.as_ref().is_some_and(|text| text.contains("reboot"));
        for check in checks.iter().filter(reboot) {
            assert!(check.group() == "gpu" || check.id == "modules.dmabuf_mmap", "{check:?}");
        }
        assert_eq!(checks.iter().filter(reboot).count(), 1 + 1 + 8 + 1);
    }

    #[test]
    fn without_a_process_to_ask_the_limits_are_the_advice() {
        let why = NoAnswer::NotStarted("too many open files".to_owned());
        for check in [no_driver("a.b", &why), no_rdma("a.b", &why), no_system("a.b", &why)] {
            assert!(check.advice.is_some_and(|advice| advice.contains("ulimit -n")));
        }
    }
}
