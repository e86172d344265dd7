//! The file of a report, which a later run goes on with.

use super::plan::PLAN;
use crate::outcome::Outcome;
use crate::report::{self, Build, Ending, FORMAT, Json, Machine, Measurement, Report, Table};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

pub struct Kept {
    json: Json,
    report: Report,
}

impl Kept {
    /// Opens the file, or begins one. `again`: what it has is measured anew.
    pub fn open(path: &Path, command: String, again: bool) -> Outcome<Self> {
        let json = Json::new("--out", path)?;
        let mut own = empty(command)?;
        if !again && path.is_file() {
            let there = report::read(path)?;
            own = go_on(there, own).map_err(|why| format!("{}: {why}", path.display()))?;
        }
        Ok(Self { json, report: own })
    }

    /// Returns whether the file has the measurement, made by the same command.
    pub fn has(&self, name: &str, command: &str, times: u32) -> bool {
        self.report.measurements.iter().any(|one| {
            one.outcome == Ending::Done
                && (one.name.as_str(), one.command.as_str(), one.times) == (name, command, times)
        })
    }

    pub fn measurements(&self) -> &[Measurement] {
        &self.report.measurements
    }

    /// Puts a measurement into the file, in place of what it had of it.
    pub fn put(&mut self, measurement: Measurement, tables: Vec<Table>) -> Outcome<()> {
        let name = Some(measurement.name.clone());
        let Report { measurements, tables: all, .. } = &mut self.report;
        measurements.retain(|other| other.name != measurement.name);
        measurements.push(measurement);
        measurements.sort_by_key(|one| place(Some(&one.name)));
        all.retain(|table| table.measurement != name);
        all.extend(tables);
        all.sort_by_key(|table| place(table.measurement.as_deref()));
        self.json.save(&self.report, false)
    }

    /// Writes what can only be written as a whole.
    pub fn finish(&self) -> Outcome<()> {
        self.json.save(&self.report, true)
    }
}

/// Returns the place of a measurement in the list.
fn place(name: Option<&str>) -> usize {
    PLAN.iter().position(|one| Some(one.name) == name).unwrap_or(PLAN.len())
}

fn empty(command: String) -> Outcome<Report> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let build = Build::look_closely().map_err(|error| format!("cannot read this program: {error}"))?;
    Ok(Report {
        format: FORMAT,
        gpunet: env!("CARGO_PKG_VERSION").to_owned(),
        build: Some(build),
        command,
        started,
        machine: Machine::look(),
        measurements: Vec::new(),
        tables: Vec::new(),
    })
}

/// Returns the report that is there, if this run may go on with it.
fn go_on(there: Report, own: Report) -> Result<Report, String> {
    let instead = "name another file, or replace it by --again";
    if there.machine != own.machine {
        let [its, this] = [&there, &own].map(|report| {
            let Machine { system, driver, .. } = &report.machine;
            format!("{}; {driver}; {system}", report.machine.hardware())
        });
        return Err(format!("it has figures of another machine ({its}; this one is {this}): {instead}"));
    }
    if (&there.gpunet, &there.build) != (&own.gpunet, &own.build) {
        let [its, this] = [&there, &own].map(|report| {
            let build = report.build.as_ref().map_or("an unknown build".to_owned(), Build::name);
            format!("{}, {build}", report.gpunet)
        });
        let other = if its == this { ", built anew".to_owned() } else { format!("; this is {this}") };
        return Err(format!("it has figures of another gpunet-bench ({its}{other}): {instead}"));
    }
    Ok(Report { command: own.command, ..there })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_goes_on_only_with_the_same_program_on_the_same_machine() {
        let own = || empty("gpunet-bench report".to_owned()).unwrap();
        assert!(go_on(own(), own()).is_ok());
        let mut other = own();
        other.machine.cores += 1;
        let why = go_on(other, own()).unwrap_err();
        assert!(why.contains("another machine") && why.contains("--again"), "{why}");
        let mut other = own();
        other.build.as_mut().unwrap().program = Some("1".to_owned());
        let why = go_on(other, own()).unwrap_err();
        assert!(why.contains("another gpunet-bench") && why.contains("built anew"), "{why}");
        let other = Report { gpunet: "9.9.9".to_owned(), ..own() };
        assert!(go_on(other, own()).unwrap_err().contains("9.9.9"));
    }
}
