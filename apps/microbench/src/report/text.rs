//! Tables for people.

use super::{Figure, Report, Role, Row, Table};

/// What stands above all tables.
pub fn head(report: &Report) {
    let machine = &report.machine;
    println!("gpunet-bench {}: {}", report.gpunet, report.command);
    println!("machine: {} x {}, {}", machine.cores, machine.cpu, machine.system);
    println!("CUDA driver: {}", machine.driver);
    if !machine.gpus.is_empty() {
        println!("GPUs: {}", machine.gpus.join(", "));
    }
}

/// The head of a table.
pub fn table(table: &Table, command: &str) {
    println!("\n== {}: {}", table.what, table.title);
    for (name, value) in &table.setting {
        println!("  {name}: {value}");
    }
    println!("  command: {command}");
}

/// One row.
pub fn row(row: &Row) {
    let name = format!("{:<6} {}", row.role.name(), row.name);
    let figure = match &row.figure {
        Figure::Time(times) => format!(
            "p50 {:>9.2}  p90 {:>9.2}  p99 {:>9.2}  max {:>10.2} us",
            times.p50_us, times.p90_us, times.p99_us, times.max_us
        ),
        Figure::Rate { gigabytes_per_second } => format!("{gigabytes_per_second:>13.3} GB/s"),
        Figure::Number { value, unit } => format!("{value:>13.2} {unit}"),
    };
    println!("{name:<66} {figure}{}", ratios(row));
}

/// The floor first; of several peers the first.
fn ratios(row: &Row) -> String {
    let first = |role: Role| row.ratios.iter().find(|ratio| ratio.role == role);
    let shown = [first(Role::Floor), first(Role::Peer)].into_iter().flatten();
    shown.map(|ratio| format!("  {:.2}x {}", ratio.ratio, ratio.role.name())).collect()
}
