//! Tables for people.

use super::{Figure, Ratio, Report, Role, Row, Table};

/// Returns the text above all tables.
pub fn head(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "gpunet-bench {}: {}\nmachine: {} x {}, {}\nCUDA driver: {}",
        report.gpunet, report.command, machine.cores, machine.cpu, machine.system, machine.driver
    );
    if !machine.gpus.is_empty() {
        text += &format!("\nGPUs: {}", machine.gpus.join(", "));
    }
    text
}

/// Returns the head of a table.
pub fn table(table: &Table, command: &str) -> String {
    let setting: String = table.setting.iter().map(|(name, value)| format!("  {name}: {value}\n")).collect();
    format!("\n== {}: {}\n{setting}  command: {command}", table.what, table.title)
}

/// Returns the text of one row.
pub fn row(row: &Row) -> String {
    let name = format!("{:<9} {}", row.role.name(), row.name);
    let figure = match &row.figure {
        Figure::Time(times) => format!(
            "p50 {:>9.2}  p90 {:>9.2}  p99 {:>9.2}  max {:>10.2} us",
            times.p50_us, times.p90_us, times.p99_us, times.max_us
        ),
        Figure::Rate { gigabytes_per_second } => format!("{gigabytes_per_second:>13.3} GB/s"),
        Figure::Number { value, unit } => format!("{value:>13.2} {unit}"),
    };
    format!("{name:<69} {figure}{}", ratios(row))
}

/// Returns the ratio to the floor, then that to the reference. If there are several references, it
/// is the one with which this row compares worst.
fn ratios(row: &Row) -> String {
    let shown = [strictest(row, Role::Floor), strictest(row, Role::Reference)].into_iter().flatten();
    shown.map(|ratio| format!("  {:.2}x {}", ratio.ratio, ratio.role.name())).collect()
}

/// Returns the largest ratio of times, or the smallest of rates. For other numbers it is unknown
/// which is better, so it returns the first.
fn strictest(row: &Row, role: Role) -> Option<&Ratio> {
    let mut of_role = row.ratios.iter().filter(|ratio| ratio.role == role);
    match row.figure {
        Figure::Time(_) => of_role.max_by(|a, b| a.ratio.total_cmp(&b.ratio)),
        Figure::Rate { .. } => of_role.min_by(|a, b| a.ratio.total_cmp(&b.ratio)),
        Figure::Number { .. } => of_role.next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn with_ratios(row: Row) -> String {
        let ratio = |role, ratio| Ratio { role, to: String::new(), ratio };
        let (floor, reference) = (Role::Floor, Role::Reference);
        let ratios = vec![
            ratio(floor, 0.5),
            ratio(floor, 0.75),
            ratio(reference, 2.0),
            ratio(reference, 4.0),
            ratio(reference, 1.5),
        ];
        super::ratios(&Row { ratios, ..row })
    }

    #[test]
    fn of_several_ratios_the_strictest_is_shown() {
        assert_eq!(with_ratios(Row::all_times(Role::Gpunet, "", &[1])), "  0.75x floor  4.00x reference");
        let second = Duration::from_secs(1);
        assert_eq!(with_ratios(Row::rate(Role::Gpunet, "", 1, second)), "  0.50x floor  1.50x reference");
        assert_eq!(with_ratios(Row::number(Role::Gpunet, "", 1.0, "")), "  0.50x floor  2.00x reference");
    }
}
