//! From facts to checks: one file per area, one function per check.

mod daemon;
mod gpu;
mod limits;
mod machine;
mod modules;
mod rdma;
mod topology;

use crate::check::Check;
use crate::facts::Facts;

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

/// Bytes as people read them.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        u64::MAX => "no limit".to_owned(),
        b if b >= 10 << 30 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

/// What a check says that needs a library that was not asked, or did not answer.
fn not_asked(id: &str, why: &str) -> Check {
    Check::unknown(
        id,
        why,
        "run gpunet-diagnose on the machine itself; a driver that does not answer needs a reboot",
    )
}
