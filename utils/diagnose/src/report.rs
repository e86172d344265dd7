//! The outcome, for people and for programs.

pub mod human;

use crate::catalogue;
use crate::check::{Check, Impact};
use crate::facts::Facts;
use crate::verdict::{Verdict, Works};
use serde::Serialize;

/// Everything that is reported.
#[derive(Clone, Debug)]
pub struct Report {
    /// The machine.
    pub host: Host,
    /// All checks.
    pub checks: Vec<Check>,
    /// What works, by device; empty if no self-test was asked for.
    pub works: Vec<Works>,
    /// What does not work on any device; empty if no self-test was asked for.
    pub absent: Vec<String>,
    /// What the checks mean together.
    pub verdict: Verdict,
}

/// The machine, in a few words.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Host {
    /// Linux's release.
    pub kernel: Option<String>,
    /// The processor's architecture.
    pub arch: &'static str,
    /// CPUs of this process.
    pub cpus: Option<u32>,
    /// Bytes that programs can take.
    pub memory_available: Option<u64>,
    /// Container, if it is one.
    pub container: Option<String>,
    /// Virtual machine, if it is one.
    pub virtual_machine: Option<String>,
    /// Whether the tool ran as root.
    pub root: bool,
}

impl Host {
    /// Summarises facts.
    #[must_use]
    pub fn of(facts: &Facts) -> Self {
        let machine = &facts.machine;
        Self {
            kernel: machine.kernel.clone(),
            arch: std::env::consts::ARCH,
            cpus: machine.cpus,
            memory_available: machine.available,
            container: machine.container.clone(),
            virtual_machine: machine.virtual_machine.clone(),
            root: machine.root,
        }
    }
}

/// A check with its title.
#[derive(Serialize)]
struct Titled<'a> {
    title: &'static str,
    #[serde(flatten)]
    check: &'a Check,
}

impl<'a> Titled<'a> {
    fn of(check: &'a Check) -> Self {
        Self { title: catalogue::title(&check.id), check }
    }
}

impl Report {
    /// One JSON object.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "tool": "gpunet-diagnose",
            "version": env!("CARGO_PKG_VERSION"),
            "host": self.host,
            "checks": self.checks.iter().map(Titled::of).collect::<Vec<_>>(),
            "works": self.works,
            "absent": self.absent,
            "verdict": self.verdict,
            "exit_code": self.verdict.code(),
        })
    }

    /// Checks that are not ok and cost something.
    pub fn faults(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| !check.is_ok() && check.impact != Impact::Nothing)
    }
}
