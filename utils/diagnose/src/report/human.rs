//! The report for people: one line a check, grouped and aligned, colour only on a terminal.

use super::Report;
use crate::check::{Check, Impact, Status};
use crate::verdict::Verdict;
use anstyle::{AnsiColor, Style};
use std::io::{self, Write};

/// Prints the report.
///
/// # Errors
/// The writer's.
pub fn print(out: &mut impl Write, report: &Report, quiet: bool) -> io::Result<()> {
    let shown: Vec<&Check> = report.checks.iter().filter(|check| !quiet || counts(check)).collect();
    let lines = merge(&shown);
    let width = lines.iter().filter(|line| line.more == 0).map(|line| line.name.len()).max().unwrap_or(0);
    let mut group = "";
    for line in &lines {
        if group != line.first.group() {
            if !group.is_empty() {
                writeln!(out)?;
            }
            group = line.first.group();
        }
        print_line(out, line, width)?;
    }
    if !lines.is_empty() {
        writeln!(out)?;
    }
    summary(out, report)
}

/// A line of the report. Consecutive checks with the same outcome share one.
struct ReportLine<'a> {
    first: &'a Check,
    name: String,
    more: usize,
}

fn merge<'a>(checks: &[&'a Check]) -> Vec<ReportLine<'a>> {
    let mut lines: Vec<ReportLine<'a>> = Vec::new();
    for &check in checks {
        if let Some(last) = lines.last_mut()
            && same(last.first, check)
        {
            let short = check.id.split_once('.').map_or("", |(_, name)| name);
            last.name += &format!(" .{short}");
            last.more += 1;
            continue;
        }
        let subject = check.subject.as_ref().map(|subject| format!(" {subject}")).unwrap_or_default();
        lines.push(ReportLine { first: check, name: format!("{}{subject}", check.id), more: 0 });
    }
    lines
}

fn same(a: &Check, b: &Check) -> bool {
    let key =
        |check: &Check| (check.status, check.subject.clone(), check.evidence.clone(), check.advice.clone());
    !a.is_ok() && a.group() == b.group() && key(a) == key(b)
}

/// Returns whether the check is not ok and costs something.
fn counts(check: &Check) -> bool {
    !check.is_ok() && check.impact != Impact::Nothing
}

fn style(check: &Check) -> Style {
    let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
    match (check.status, check.impact) {
        (Status::Ok, _) => colour(AnsiColor::Green),
        (_, Impact::Fatal) => colour(AnsiColor::Red).bold(),
        (_, Impact::Nothing) => Style::new().dimmed(),
        (Status::Missing, Impact::Costs) => colour(AnsiColor::Red),
        (Status::Degraded | Status::Unknown, Impact::Costs) => colour(AnsiColor::Yellow),
    }
}

fn print_line(out: &mut impl Write, line: &ReportLine<'_>, width: usize) -> io::Result<()> {
    let check = line.first;
    let style = style(check);
    let note = if check.is_ok() || counts(check) { "" } else { " (costs nothing here)" };
    if line.more > 0 {
        writeln!(out, "{style}{:<9}{style:#} {}:", check.status, line.name)?;
        writeln!(out, "{:<10}{}{note}", "", check.evidence)?;
    } else {
        writeln!(out, "{style}{:<9}{style:#} {:<width$}  {}{note}", check.status, line.name, check.evidence)?;
    }
    match &check.advice {
        Some(advice) => writeln!(out, "{:<10}-> {advice}", ""),
        None => Ok(()),
    }
}

fn summary(out: &mut impl Write, report: &Report) -> io::Result<()> {
    for works in &report.works {
        let list =
            if works.transports.is_empty() { "nothing".to_owned() } else { works.transports.join(", ") };
        write!(out, "works on {}: {list}", works.device)?;
        if !works.failed.is_empty() {
            write!(out, "; FAILS: {}", works.failed.join(", "))?;
        }
        if !works.untried.is_empty() {
            write!(out, "; not tried: {}", works.untried.join(", "))?;
        }
        if let Some(place) = &works.rc_rings {
            write!(out, "; rings of rc streams in {place}")?;
        }
        writeln!(out)?;
    }
    if !report.absent.is_empty() {
        writeln!(out, "does not work here: {}", report.absent.join("; "))?;
    }
    let mut groups: Vec<&str> = report.faults().map(Check::group).collect();
    groups.dedup();
    let verdict = report.verdict;
    let colour = match verdict {
        Verdict::Ok => AnsiColor::Green,
        Verdict::Degraded => AnsiColor::Yellow,
        Verdict::CannotWork => AnsiColor::Red,
    };
    let style = Style::new().fg_color(Some(colour.into())).bold();
    let nothing_ran = report.works.iter().all(|one| one.transports.is_empty() && one.failed.is_empty());
    if verdict == Verdict::Degraded && report.works.iter().any(|one| !one.untried.is_empty()) && nothing_ran {
        write!(out, "{style}whether gpunet works here is not known{style:#}")?;
    } else {
        write!(out, "{style}{verdict}{style:#}")?;
    }
    if !groups.is_empty() {
        write!(out, "; look at {}", groups.join(", "))?;
    }
    let hidden = |check: &Check| check.id == "topology.acs" && check.status == Status::Unknown;
    if !report.host.root && report.faults().any(hidden) {
        write!(out, "; root would add topology.acs (registers of PCI bridges)")?;
    }
    writeln!(out, " (exit code {})", verdict.code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Host;
    use crate::verdict::Works;

    fn text(checks: Vec<Check>, quiet: bool) -> String {
        let verdict = Verdict::of(&checks);
        printed(
            &Report { host: Host::default(), checks, works: Vec::new(), absent: Vec::new(), verdict },
            quiet,
        )
    }

    fn printed(report: &Report, quiet: bool) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        print(&mut out, report, quiet).expect("writes");
        String::from_utf8(out.into_inner()).expect("text")
    }

    #[test]
    fn that_gpunet_works_is_not_said_where_nothing_was_tried() {
        let checks = vec![Check::unknown("selftest.tcp", "no process", "raise the limit").on("cpu")];
        let device = "cpu".to_owned();
        let tried = Works {
            device,
            transports: Vec::new(),
            failed: Vec::new(),
            untried: vec!["tcp"],
            rc_rings: None,
        };
        let report = Report {
            host: Host::default(),
            verdict: Verdict::of(&checks),
            checks,
            works: vec![tried],
            absent: Vec::new(),
        };
        let text = printed(&report, false);
        assert!(text.contains("works on cpu: nothing; not tried: tcp\n"), "{text}");
        assert!(
            text.contains("whether gpunet works here is not known; look at selftest (exit code 1)"),
            "{text}"
        );
    }

    #[test]
    fn a_line_a_check_advice_below_and_equal_ones_together() {
        let unknown = |id| Check::unknown(id, "no GPU", "see gpu.devices");
        let checks = vec![
            Check::ok("machine.cpus", "16 CPUs"),
            unknown("gpu.bar1"),
            unknown("gpu.link"),
            Check::missing("daemon.running", "none", "start it").harmless(),
        ];
        let text = text(checks.clone(), false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["ok", "machine.cpus", "16", "CPUs"]);
        assert_eq!(lines[2], "unknown   gpu.bar1 .link:");
        assert_eq!(lines[3], "          no GPU");
        assert_eq!(lines[4], "          -> see gpu.devices");
        assert!(text.contains("none (costs nothing here)"), "{text}");
        assert!(text.trim_end().ends_with("(exit code 1)"), "{text}");
        let quiet = super::tests::text(checks, true);
        assert!(
            !quiet.contains("machine.cpus") && !quiet.contains("daemon") && quiet.contains("gpu.bar1"),
            "{quiet}"
        );
    }
}
