//! What all checks mean together: what works here, and the exit code.

use crate::check::{Check, Impact, Status};
use crate::facts::Facts;
use crate::selftest::device::Name;
use clap::ValueEnum;
use serde::Serialize;
use std::fmt;

/// What `--require` demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Requirement {
    /// A GPU that passes its self-tests.
    Gpu,
    /// An RDMA device that programs can use.
    Rdma,
    /// Rings of rc streams in GPU memory.
    Gpudirect,
}

/// The outcome, as exit codes have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything is as it should be.
    Ok,
    /// gpunet works, without some speed or some feature.
    Degraded,
    /// gpunet, or what is required, cannot work.
    CannotWork,
}

impl Verdict {
    /// Weighs checks: what costs nothing does not count.
    #[must_use]
    pub fn of(checks: &[Check]) -> Self {
        let worst = checks.iter().filter(|check| !check.is_ok()).map(|check| check.impact).max();
        match worst {
            None | Some(Impact::Nothing) => Self::Ok,
            Some(Impact::Costs) => Self::Degraded,
            Some(Impact::Fatal) => Self::CannotWork,
        }
    }

    /// The exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Degraded => 1,
            Self::CannotWork => 2,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "everything works",
            Self::Degraded => "gpunet works here, without some speed or some feature",
            Self::CannotWork => "gpunet cannot work here as asked",
        })
    }
}

/// What works on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Works {
    /// `cpu` or `cuda:N`.
    pub device: String,
    /// Transports whose echo came back right.
    pub transports: Vec<&'static str>,
    /// Those that were tried and failed.
    pub failed: Vec<&'static str>,
    /// Where the rings of rc streams lie, where there is a card.
    pub rc_rings: Option<String>,
}

/// The transports and the tests that show them.
const TRANSPORTS: [(&str, &str); 3] =
    [("tcp", "selftest.tcp"), ("peer", "selftest.peer"), ("rc", "selftest.rc")];

/// Sums up the self-tests by device.
#[must_use]
pub fn works(facts: &Facts, checks: &[Check], devices: &[Name]) -> Vec<Works> {
    let of = |name: &Name| {
        let device = name.to_string();
        let mine = |id: &str| {
            checks.iter().find(|check| check.id == id && check.subject.as_deref() == Some(device.as_str()))
        };
        let with = |fine: bool| {
            let outcome = |(_, id): &&(&str, &str)| mine(id).is_some_and(|check| check.is_ok() == fine);
            TRANSPORTS.iter().filter(outcome).map(|(name, _)| *name).collect()
        };
        let rings = gpu(facts, *name).map_or("pinned host memory", |gpu| &gpu.placement.chosen);
        let rc_rings = (!facts.cards.is_empty()).then(|| rings.to_owned());
        Works { transports: with(true), failed: with(false), rc_rings, device: device.clone() }
    };
    devices.iter().map(of).collect()
}

/// What nobody here can do, and why.
#[must_use]
pub fn absent(facts: &Facts, works: &[Works]) -> Vec<String> {
    let mut absent = Vec::new();
    if !works.iter().any(|one| one.device.starts_with("cuda") && !one.transports.is_empty()) {
        let none = works.iter().all(|one| !one.device.starts_with("cuda"));
        absent.push(format!("kernels on a GPU ({})", if none { "none usable" } else { "their tests fail" }));
    }
    if facts.cards.is_empty() {
        absent.push("streams over RDMA (no device)".to_owned());
    } else if !works.iter().any(|one| one.transports.contains(&"rc")) {
        absent.push("streams over RDMA (see rdma.* and selftest.rc)".to_owned());
    } else if !works.iter().any(|one| one.rc_rings.as_deref().is_some_and(|place| place.starts_with("GPU"))) {
        absent.push("rings that a card writes in GPU memory (see gpu.placement)".to_owned());
    }
    absent
}

fn gpu(facts: &Facts, name: Name) -> Option<&crate::libraries::Gpu> {
    let Name::Cuda(ordinal) = name else { return None };
    let cuda = facts.libraries.as_ref().ok()?.cuda.as_ref().ok()?;
    cuda.gpus.iter().find(|gpu| gpu.ordinal == ordinal)
}

/// Judges what is required, by facts and by whatever self-tests ran.
#[must_use]
pub fn require(wanted: &[Requirement], facts: &Facts, checks: &[Check]) -> Vec<Check> {
    wanted.iter().map(|requirement| judge(*requirement, facts, checks)).collect()
}

fn judge(requirement: Requirement, facts: &Facts, checks: &[Check]) -> Check {
    let (id, advice) = match requirement {
        Requirement::Gpu => ("require.gpu", "see gpu.* and selftest.*"),
        Requirement::Rdma => ("require.rdma", "see rdma.* and modules.rdma"),
        Requirement::Gpudirect => ("require.gpudirect", "see gpu.placement"),
    };
    let Ok(libraries) = &facts.libraries else {
        return Check::unknown(id, "the libraries were not asked, or gave no answer", advice).fatal();
    };
    let cuda = libraries.cuda.as_ref();
    let gpus = cuda.map(|cuda| &cuda.gpus[..]).unwrap_or_default();
    let sound = |subject: &str| {
        let mine = |check: &&Check| check.subject.as_deref() == Some(subject);
        !checks.iter().filter(mine).any(|check| check.status == Status::Missing && is_needed(&check.id))
    };
    let good: Vec<String> =
        gpus.iter().map(|gpu| format!("cuda:{}", gpu.ordinal)).filter(|name| sound(name)).collect();
    match requirement {
        Requirement::Gpu if !good.is_empty() => Check::ok(id, good.join(", ")),
        Requirement::Gpu => Check::missing(id, "no GPU that works", advice).fatal(),
        Requirement::Rdma => {
            let active = facts.cards.iter().any(|card| card.ports.iter().any(|port| port.is_active()));
            let failed =
                checks.iter().any(|check| check.id == "selftest.rc" && check.status == Status::Missing);
            match (&libraries.rdma_cm, active, failed) {
                (Err(why), _, _) => Check::missing(id, why.clone(), advice).fatal(),
                (Ok(()), false, _) => Check::missing(id, "no port is active", advice).fatal(),
                (Ok(()), true, true) => Check::missing(id, "the echo over RDMA failed", advice).fatal(),
                (Ok(()), true, false) => Check::ok(id, "rdma_cm works, a port is active"),
            }
        }
        Requirement::Gpudirect => {
            let placed = gpus
                .iter()
                .find(|gpu| gpu.placement.in_gpu_memory && good.contains(&format!("cuda:{}", gpu.ordinal)));
            placed.map_or_else(
                || Check::missing(id, "no GPU whose memory a card reaches", advice).fatal(),
                |gpu| Check::ok(id, format!("cuda:{}: {}", gpu.ordinal, gpu.placement.chosen)),
            )
        }
    }
}

/// What a GPU cannot do without.
fn is_needed(id: &str) -> bool {
    matches!(id, "gpu.compute" | "gpu.registration") || (id.starts_with("selftest.") && id != "selftest.rc")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::{Cuda, Gpu, nothing};

    #[test]
    fn the_worst_that_costs_something_decides() {
        let fine = Check::ok("a.a", "");
        let harmless = Check::missing("a.b", "", "").harmless();
        let costs = Check::unknown("a.c", "", "");
        let fatal = Check::missing("a.d", "", "").fatal();
        assert_eq!(Verdict::of(&[fine.clone(), harmless.clone()]).code(), 0);
        assert_eq!(Verdict::of(&[fine, harmless, costs.clone()]).code(), 1);
        assert_eq!(Verdict::of(&[costs, fatal]).code(), 2);
    }

    #[test]
    fn a_required_gpu_is_one_that_passes_its_tests() {
        let mut facts = crate::facts::none();
        let demand = |facts: &Facts, checks: &[Check]| {
            let check = require(&[Requirement::Gpu], facts, checks).remove(0);
            (check.status, check.impact)
        };
        assert_eq!(demand(&facts, &[]), (Status::Unknown, Impact::Fatal));
        let mut libraries = nothing();
        facts.libraries = Ok(libraries.clone());
        assert_eq!(demand(&facts, &[]), (Status::Missing, Impact::Fatal));
        libraries.cuda = Ok(Cuda { gpus: vec![Gpu::default()], ..Cuda::default() });
        facts.libraries = Ok(libraries);
        assert_eq!(demand(&facts, &[]).0, Status::Ok);
        let failed = Check::missing("selftest.order", "3 stale words", "").on("cuda:0");
        assert_eq!(demand(&facts, &[failed]), (Status::Missing, Impact::Fatal));
        // A feature that is missing is not the GPU's absence.
        assert_eq!(demand(&facts, &[Check::missing("gpu.placement", "", "").on("cuda:0")]).0, Status::Ok);
    }

    #[test]
    fn required_rdma_and_gpudirect_are_missing_on_a_plain_machine() {
        let mut facts = crate::facts::none();
        facts.libraries = Ok(nothing());
        for requirement in [Requirement::Rdma, Requirement::Gpudirect] {
            assert_eq!(Verdict::of(&require(&[requirement], &facts, &[])), Verdict::CannotWork);
        }
    }

    #[test]
    fn what_works_is_told_by_device() {
        let facts = crate::facts::none();
        let checks = [
            Check::ok("selftest.tcp", "").on("cpu"),
            Check::missing("selftest.peer", "", "").on("cpu"),
            Check::ok("selftest.peer", "").on("cuda:0"),
        ];
        let works = works(&facts, &checks, &[Name::Cpu]);
        assert_eq!(works[0].transports, ["tcp"]);
        assert_eq!(works[0].failed, ["peer"]);
        let absent = absent(&facts, &works);
        assert_eq!(absent, ["kernels on a GPU (none usable)", "streams over RDMA (no device)"]);
    }
}
