//! Records the measurements, prints them, and keeps them in a file.

use super::output::Output;
use super::progress::Progress;
use super::{Axis, Build, FORMAT, Json, Machine, Percentiles, Report, Row, Table, text};
use crate::outcome::Outcome;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Records the measurements, and prints them.
pub struct Recorder {
    report: Report,
    progress: Progress,
    output: Output,
    /// The report's file. It is written with each row, so that the measurements before a failure
    /// are kept.
    json: Option<Json>,
    /// Whether the report is used at the end, even if the output has no reader.
    kept: bool,
    /// Whether to leave out foreign programs and libraries.
    pub without_foreign: bool,
    /// Where the output of foreign programs for GPUs is kept for other processes of this program.
    pub foreign_folder: Option<PathBuf>,
}

impl Recorder {
    /// Makes a recorder, and collects the facts about the machine. The report is kept in `json`.
    /// `drawn`: charts or tables are made from it at the end.
    pub fn new(command: String, json: Option<Json>, drawn: bool) -> Self {
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let started = started.map_or(0, |since| since.as_secs());
        let (gpunet, machine) = (env!("CARGO_PKG_VERSION").to_owned(), Machine::look());
        let report = Report {
            format: FORMAT,
            gpunet,
            build: Some(Build::look()),
            command,
            started,
            machine,
            measurements: Vec::new(),
            tables: Vec::new(),
        };
        let (kept, output) = (drawn || json.is_some(), Output::default());
        let mut recorder = Self {
            report,
            progress: Progress::new(),
            output,
            json,
            kept,
            without_foreign: false,
            foreign_folder: None,
        };
        let head = text::head(&recorder.report);
        recorder.print(&head);
        recorder
    }

    /// Begins a table of about `rows` rows. Returns an error if it would have no reader.
    pub fn table(
        &mut self,
        what: &'static str,
        title: impl Into<String>,
        axis: Axis,
        setting: Vec<(&'static str, String)>,
        rows: usize,
    ) -> Outcome<()> {
        self.check_output()?;
        let (what, title) = (what.to_owned(), title.into());
        let setting = setting.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        self.progress.clear();
        self.progress.begin(&what, rows);
        let (rows, notes) = (Vec::new(), Vec::new());
        let table = Table { what, measurement: None, title, setting, axis, rows, notes };
        self.print(&text::table(&table, &self.report.command));
        self.report.tables.push(table);
        self.save(false)?;
        self.check_output()
    }

    /// Returns an error if the output has no reader and the report is not kept.
    pub fn check_output(&self) -> Outcome<()> {
        match self.output.error() {
            Some(why) if !self.kept => Err(format!("nobody reads the output: {why}").into()),
            _ => Ok(()),
        }
    }

    /// Returns an error, at the end of a run, if a part of the output is lost. It is no error if
    /// the reader has gone and the report is kept.
    pub fn check_written(&self) -> Outcome<()> {
        self.check_output()?;
        match self.output.error() {
            Some(why) if why.kind() != ErrorKind::BrokenPipe => {
                Err(format!("cannot write to stdout: {why}").into())
            }
            _ => Ok(()),
        }
    }

    /// Writes the report so far, if it is kept. `all`: the report is complete.
    pub fn save(&self, all: bool) -> Outcome<()> {
        self.json.as_ref().map_or(Ok(()), |json| json.save(&self.report, all))
    }

    fn print(&mut self, text: &str) {
        let (progress, output) = (&self.progress, &mut self.output);
        progress.around(|| output.print(text));
    }

    /// Saves the report after a row. A failure is reported by the next table, and at the end.
    fn keep(&self) {
        let _ = self.save(false);
    }

    /// Records a row.
    pub fn row(&mut self, mut row: Row) {
        let Some(table) = self.report.tables.last_mut() else { return };
        row.compare(&table.rows);
        let text = text::row(&row);
        table.rows.push(row);
        self.print(&text);
        self.progress.step();
        self.keep();
    }

    /// Returns the row of a series at `x` in the current table.
    pub fn find(&self, series: &str, x: u64) -> Option<Row> {
        let rows = &self.report.tables.last()?.rows;
        rows.iter().find(|row| row.series.as_deref() == Some(series) && row.x == Some(x)).cloned()
    }

    /// Returns the times of that row.
    pub fn times(&self, series: &str, x: u64) -> Option<Percentiles> {
        self.find(series, x)?.as_times().cloned()
    }

    /// Records a note about the table.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        self.print(&format!("  note: {note}"));
        if let Some(table) = self.report.tables.last_mut() {
            table.notes.push(note);
        }
        self.keep();
    }

    /// Adds a setting to the table.
    pub fn setting(&mut self, name: &'static str, value: String) {
        self.print(&format!("  {name}: {value}"));
        if let Some(table) = self.report.tables.last_mut() {
            table.setting.push((name.to_owned(), value));
        }
        self.keep();
    }

    /// Returns the report so far.
    pub fn report(&self) -> &Report {
        &self.report
    }
}
