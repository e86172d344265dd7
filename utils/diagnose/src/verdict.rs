//! What all checks mean together: what works here, and the exit code.

use crate::check::{Check, Impact, Status};
use crate::facts::Facts;
use crate::libraries::Gpu;
use crate::selftest::device::DeviceName;
use clap::ValueEnum;
use serde::Serialize;
use std::fmt;

/// A requirement of `--require`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Requirement {
    /// A GPU that passes its self-tests.
    Gpu,
    /// An RDMA device that programs can use.
    Rdma,
    /// Rings of rc streams in GPU memory.
    Gpudirect,
}

/// The overall outcome, which is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything is as it should be.
    Ok,
    /// gpunet works, but lacks some speed or a feature.
    Degraded,
    /// gpunet, or what is required, cannot work.
    CannotWork,
}

impl Verdict {
    /// Judges checks; those that cost nothing do not count.
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
            Self::Degraded => "gpunet works here, but lacks some speed or a feature",
            Self::CannotWork => "gpunet cannot work here as asked",
        })
    }
}

/// What works on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Works {
    /// `cpu` or `cuda:N`.
    pub device: String,
    /// Transports whose echo was correct.
    pub transports: Vec<&'static str>,
    /// Those that were tried and failed.
    pub failed: Vec<&'static str>,
    /// Those whose test did not begin.
    pub untried: Vec<&'static str>,
    /// Where the rings of rc streams lie, where there is a card.
    pub rc_rings: Option<String>,
}

/// The transports and the tests that show them.
const TRANSPORTS: [(&str, &str); 3] =
    [("tcp", "selftest.tcp"), ("peer", "selftest.peer"), ("rc", "selftest.rc")];

/// Summarises the self-tests by device.
#[must_use]
pub fn works(facts: &Facts, checks: &[Check], devices: &[DeviceName]) -> Vec<Works> {
    let of = |name: &DeviceName| {
        let device = name.to_string();
        let mine = |id: &str| {
            checks.iter().find(|check| check.id == id && check.subject.as_deref() == Some(device.as_str()))
        };
        let with = |wanted: fn(Status) -> bool| {
            let outcome = |(_, id): &&(&str, &str)| mine(id).is_some_and(|check| wanted(check.status));
            TRANSPORTS.iter().filter(outcome).map(|(name, _)| *name).collect()
        };
        let rings = gpu(facts, *name).map_or("pinned host memory", |gpu| &gpu.placement.chosen);
        let rc_rings = (!facts.cards.is_empty()).then(|| rings.to_owned());
        Works {
            transports: with(|status| status == Status::Ok),
            failed: with(|status| matches!(status, Status::Degraded | Status::Missing)),
            untried: with(|status| status == Status::Unknown),
            rc_rings,
            device: device.clone(),
        }
    };
    devices.iter().map(of).collect()
}

/// What does not work on any device, and why.
#[must_use]
pub fn absent(facts: &Facts, checks: &[Check], works: &[Works]) -> Vec<String> {
    let mut absent = Vec::new();
    let mut gpus = works.iter().filter(|one| one.device.starts_with("cuda")).peekable();
    let fails = |one: &Works| {
        let mine = |check: &&Check| check.subject.as_ref() == Some(&one.device) && is_needed(&check.id);
        one.transports.is_empty() && checks.iter().filter(mine).any(|check| check.status == Status::Missing)
    };
    if facts.libraries.driver.is_ok() && gpus.peek().is_none() {
        absent.push("kernels on a GPU (none usable)".to_owned());
    } else if gpus.peek().is_some() && gpus.all(fails) {
        absent.push("kernels on a GPU (their tests fail)".to_owned());
    }
    let untried = works.iter().any(|one| one.untried.contains(&"rc"));
    if facts.cards.is_empty() {
        absent.push("streams over RDMA (no device)".to_owned());
    } else if !works.iter().any(|one| one.transports.contains(&"rc")) && !untried {
        absent.push("streams over RDMA (see rdma.* and selftest.rc)".to_owned());
    } else if !works.iter().any(|one| one.rc_rings.as_deref().is_some_and(|place| place.starts_with("GPU"))) {
        absent.push("rings that a card writes in GPU memory (see gpu.placement)".to_owned());
    }
    absent
}

fn gpu(facts: &Facts, name: DeviceName) -> Option<&Gpu> {
    let DeviceName::Cuda(ordinal) = name else { return None };
    facts.libraries.gpus().iter().find(|gpu| gpu.ordinal == ordinal)
}

/// Judges what is required, by facts and by whatever self-tests ran.
#[must_use]
pub fn require(wanted: &[Requirement], facts: &Facts, checks: &[Check]) -> Vec<Check> {
    wanted.iter().map(|requirement| judge(*requirement, facts, checks)).collect()
}

fn judge(requirement: Requirement, facts: &Facts, checks: &[Check]) -> Check {
    match requirement {
        Requirement::Gpu => judge_gpu("require.gpu", facts, checks, "no GPU that works", |gpu| {
            Some(format!("cuda:{}", gpu.ordinal))
        }),
        Requirement::Gpudirect => {
            judge_gpu("require.gpudirect", facts, checks, "no GPU whose memory a card reaches", |gpu| {
                let placed = gpu.placement.in_gpu_memory;
                placed.then(|| format!("cuda:{}: {}", gpu.ordinal, gpu.placement.chosen))
            })
        }
        Requirement::Rdma => judge_rdma(facts, checks),
    }
    .fatal()
}

/// Requires a GPU that passes its self-tests and for which `evidence` finds what is needed.
fn judge_gpu(
    id: &str,
    facts: &Facts,
    checks: &[Check],
    none: &str,
    evidence: impl Fn(&Gpu) -> Option<String>,
) -> Check {
    let advice =
        if id == "require.gpu" { "see gpu.* and selftest.*" } else { "see gpu.placement and selftest.*" };
    if let Err(why) = &facts.libraries.driver {
        return Check::unknown(id, why.to_string(), advice);
    }
    let candidates: Vec<_> =
        facts.libraries.gpus().iter().filter_map(|gpu| Some((sound(gpu, checks), evidence(gpu)?))).collect();
    let with = |wanted: Status| {
        let fitting = candidates.iter().filter(|(status, _)| *status == wanted);
        fitting.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(", ")
    };
    match (with(Status::Ok), with(Status::Unknown)) {
        (fine, _) if !fine.is_empty() => Check::ok(id, fine),
        (_, untried) if !untried.is_empty() => {
            Check::unknown(id, format!("{untried}: self-tests did not run"), advice)
        }
        _ => Check::missing(id, none, advice),
    }
}

/// The status of a GPU by the checks that it must pass; an unknown one has not passed.
fn sound(gpu: &Gpu, checks: &[Check]) -> Status {
    let name = format!("cuda:{}", gpu.ordinal);
    let mine = |check: &&Check| check.subject.as_ref() == Some(&name) && is_needed(&check.id);
    let any = |status| checks.iter().filter(mine).any(|check| check.status == status);
    let untried = |check: &Check| check.status == Status::Unknown && check.group() == "selftest";
    if any(Status::Missing) {
        Status::Missing
    } else if checks.iter().filter(mine).any(untried) {
        Status::Unknown
    } else {
        Status::Ok
    }
}

fn judge_rdma(facts: &Facts, checks: &[Check]) -> Check {
    const ID: &str = "require.rdma";
    let advice = "see rdma.* and modules.rdma";
    let rdma = match &facts.libraries.rdma {
        Ok(rdma) => rdma,
        Err(why) => return Check::unknown(ID, why.to_string(), advice),
    };
    let active = facts.cards.iter().any(|card| card.ports.iter().any(|port| port.is_active()));
    // Without a subject it belongs to no device: there was no address to try.
    let tried = checks.iter().filter(|check| check.id == "selftest.rc" && check.subject.is_some());
    let any = |status| tried.clone().any(|check| check.status == status);
    match (&rdma.rdma_cm, active) {
        (Err(why), _) => Check::missing(ID, why.clone(), advice),
        (Ok(()), false) => Check::missing(ID, "no port is active", advice),
        (Ok(()), true) if any(Status::Missing) => Check::missing(ID, "the echo over RDMA failed", advice),
        (Ok(()), true) if any(Status::Unknown) => {
            Check::unknown(ID, "the echo over RDMA did not run", "see selftest.rc")
        }
        (Ok(()), true) => Check::ok(ID, "rdma_cm works, a port is active"),
    }
}

/// The checks that a GPU must pass.
fn is_needed(id: &str) -> bool {
    let is_test = id.starts_with("selftest.");
    matches!(id, "gpu.compute" | "gpu.registration")
        || (is_test && !matches!(id, "selftest.rc" | "selftest.streams"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::{Cuda, nothing, with_cuda};

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
        facts.libraries = nothing();
        assert_eq!(demand(&facts, &[]), (Status::Missing, Impact::Fatal));
        facts.libraries = with_cuda(Cuda { gpus: vec![Gpu::default()], ..Cuda::default() });
        assert_eq!(demand(&facts, &[]).0, Status::Ok);
        let failed = Check::missing("selftest.order", "3 stale words", "").on("cuda:0");
        assert_eq!(demand(&facts, &[failed]), (Status::Missing, Impact::Fatal));
        let untried = Check::unknown("selftest.tcp", "no process", "").on("cuda:0");
        assert_eq!(demand(&facts, &[untried]), (Status::Unknown, Impact::Fatal));
        // A missing feature does not mean that the GPU is missing.
        assert_eq!(demand(&facts, &[Check::missing("gpu.placement", "", "").on("cuda:0")]).0, Status::Ok);
    }

    #[test]
    fn required_rdma_and_gpudirect_are_missing_on_a_plain_machine() {
        let mut facts = crate::facts::none();
        facts.libraries = nothing();
        for requirement in [Requirement::Rdma, Requirement::Gpudirect] {
            assert_eq!(Verdict::of(&require(&[requirement], &facts, &[])), Verdict::CannotWork);
        }
    }

    #[test]
    fn what_works_is_told_by_device() {
        let mut facts = crate::facts::none();
        facts.libraries = nothing();
        let checks = [
            Check::ok("selftest.tcp", "").on("cpu"),
            Check::missing("selftest.peer", "", "").on("cpu"),
            Check::ok("selftest.peer", "").on("cuda:0"),
        ];
        let works = works(&facts, &checks, &[DeviceName::Cpu]);
        assert_eq!(works[0].transports, ["tcp"]);
        assert_eq!(works[0].failed, ["peer"]);
        let absent = absent(&facts, &checks, &works);
        assert_eq!(absent, ["kernels on a GPU (none usable)", "streams over RDMA (no device)"]);
    }

    #[test]
    fn what_did_not_run_neither_works_nor_fails() {
        let facts = crate::facts::none();
        let untried = |device: &str| Check::unknown("selftest.tcp", "no process", "").on(device);
        let checks = [untried("cpu"), untried("cuda:0")];
        let works = works(&facts, &checks, &[DeviceName::Cpu, DeviceName::Cuda(0)]);
        for one in &works {
            assert!(one.transports.is_empty() && one.failed.is_empty(), "{one:?}");
            assert_eq!(one.untried, ["tcp"]);
        }
        assert_eq!(absent(&facts, &checks, &works), ["streams over RDMA (no device)"]);
        assert_eq!(Verdict::of(&checks), Verdict::Degraded);
        let failed = Check::missing("selftest.ptx", "", "").on("cuda:0");
        let all = [checks.to_vec(), vec![failed]].concat();
        assert!(absent(&facts, &all, &works)[0].contains("their tests fail"));
    }
}
