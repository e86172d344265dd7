//! The outcome of a check.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The status of what a check looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, with less speed or fewer features than it could.
    Degraded,
    /// It is not there, or does not work.
    Missing,
    /// It could not be determined.
    Unknown,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        })
    }
}

/// What it means for gpunet on this machine that a check is not ok.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Impact {
    /// Nothing: it is not needed here.
    Nothing,
    /// Speed or a feature.
    Costs,
    /// gpunet, or what `--require` names, cannot work.
    Fatal,
}

/// The outcome of one check of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its name, such as `gpu.bar1`: a group and what is checked. [`crate::catalogue`] lists all.
    pub id: String,
    /// Which of several: `cuda:0`, `mlx5_0 port 1`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub subject: Option<String>,
    /// Its status.
    pub status: Status,
    /// What that means.
    pub impact: Impact,
    /// What was seen.
    pub evidence: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub advice: Option<String>,
}

impl Check {
    fn new(id: &str, status: Status, evidence: impl Into<String>, advice: Option<String>) -> Self {
        let impact = if status == Status::Ok { Impact::Nothing } else { Impact::Costs };
        Self { id: id.to_owned(), subject: None, status, impact, evidence: evidence.into(), advice }
    }

    /// As it should be.
    pub fn ok(id: &str, evidence: impl Into<String>) -> Self {
        Self::new(id, Status::Ok, evidence, None)
    }

    /// It costs something.
    pub fn degraded(id: &str, evidence: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(id, Status::Degraded, evidence, Some(advice.into()))
    }

    /// It is not there.
    pub fn missing(id: &str, evidence: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(id, Status::Missing, evidence, Some(advice.into()))
    }

    /// It could not be determined.
    pub fn unknown(id: &str, evidence: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(id, Status::Unknown, evidence, Some(advice.into()))
    }

    /// Sets the subject: which of several it is.
    #[must_use]
    pub fn on(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Marks it as not needed here: the verdict ignores it.
    #[must_use]
    pub fn harmless(mut self) -> Self {
        self.impact = Impact::Nothing;
        self
    }

    /// Marks it as fatal: without it nothing works.
    #[must_use]
    pub fn fatal(mut self) -> Self {
        self.impact = if self.status == Status::Ok { Impact::Nothing } else { Impact::Fatal };
        self
    }

    /// The part of the name before the dot.
    #[must_use]
    pub fn group(&self) -> &str {
        self.id.split('.').next().unwrap_or_default()
    }

    /// Returns whether it is as it should be.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.status == Status::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ok_costs_nothing_and_nothing_makes_it_fatal() {
        assert_eq!(Check::ok("a.b", "").fatal().impact, Impact::Nothing);
        assert_eq!(Check::missing("a.b", "", "").impact, Impact::Costs);
        assert_eq!(Check::missing("a.b", "", "").fatal().impact, Impact::Fatal);
        assert_eq!(Check::unknown("a.b", "", "").harmless().impact, Impact::Nothing);
    }

    #[test]
    fn a_check_survives_the_way_from_a_child_process() {
        let check = Check::degraded("gpu.bar1", "256 MiB", "enable resizable BAR").on("cuda:0");
        let text = serde_json::to_string(&check).expect("serialises");
        assert_eq!(serde_json::from_str::<Check>(&text).expect("reads back"), check);
        assert_eq!(check.group(), "gpu");
    }
}
