//! One table of several runs of a measurement.

use super::{Row, Table};

/// Makes one list of tables of those of several runs. Of each row it has the run with the median,
/// and the spread of all runs; of settings and notes those of the first run that has the table.
pub fn merge(runs: Vec<Vec<Table>>) -> Vec<Table> {
    let (mut merged, mut rows): (Vec<Table>, Vec<Vec<Vec<Row>>>) = (Vec::new(), Vec::new());
    for run in runs {
        let mut seen: Vec<usize> = Vec::new();
        for mut table in run {
            let of_table = std::mem::take(&mut table.rows);
            let is_same = |(at, other): &(usize, &Table)| {
                !seen.contains(at) && other.what == table.what && other.title == table.title
            };
            let at = match merged.iter().enumerate().find(is_same) {
                Some((at, _)) => at,
                None => {
                    merged.push(table);
                    rows.push(Vec::new());
                    merged.len() - 1
                }
            };
            seen.push(at);
            add(&mut rows[at], of_table);
        }
    }
    for (table, rows) in merged.iter_mut().zip(rows) {
        for tries in rows {
            let mut row = median(tries);
            row.compare(&table.rows);
            table.rows.push(row);
        }
    }
    merged
}

/// Adds the rows of a run to those of other runs that have the same names and places.
fn add(known: &mut Vec<Vec<Row>>, run: Vec<Row>) {
    let mut seen: Vec<usize> = Vec::new();
    for row in run {
        let is_same = |(at, tries): &(usize, &Vec<Row>)| {
            let other = &tries[0];
            !seen.contains(at)
                && (other.role, &other.name, &other.series, other.x)
                    == (row.role, &row.name, &row.series, row.x)
        };
        match known.iter().enumerate().find(is_same).map(|(at, _)| at) {
            Some(at) => {
                seen.push(at);
                known[at].push(row);
            }
            None => {
                seen.push(known.len());
                known.push(vec![row]);
            }
        }
    }
}

/// Returns the row with the median; of an even number the lower one of two.
fn median(mut tries: Vec<Row>) -> Row {
    tries.sort_by(|a, b| a.figure.typical().total_cmp(&b.figure.typical()));
    let ends = [&tries[0], &tries[tries.len() - 1]].map(|row| row.figure.typical());
    let spread = (tries.len() > 1).then_some(ends);
    let mut row = tries.swap_remove((tries.len() - 1) / 2);
    row.spread = spread;
    row
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Role};
    use super::*;

    fn table(rows: &[(Role, f64)]) -> Table {
        let rows = rows.iter().map(|&(role, value)| Row::number(role, "x", value, "us").at("x", 1));
        Table {
            what: "latency".to_owned(),
            measurement: None,
            title: String::new(),
            setting: Vec::new(),
            axis: Axis::None,
            rows: rows.collect(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_row_has_the_median_of_its_runs_and_their_spread() {
        use Role::{Floor, Gpunet};
        let runs = [(2.0, 6.0), (4.0, 9.0), (3.0, 3.0)];
        let runs = runs.map(|(floor, ours)| vec![table(&[(Floor, floor), (Gpunet, ours)])]);
        let merged = merge(runs.into());
        let [table] = &merged[..] else { panic!("one table: {merged:?}") };
        let [floor, ours] = &table.rows[..] else { panic!("two rows: {table:?}") };
        assert_eq!((floor.figure.typical(), floor.spread), (3.0, Some([2.0, 4.0])));
        assert_eq!((ours.figure.typical(), ours.spread), (6.0, Some([3.0, 9.0])));
        assert!((ours.ratios[0].ratio - 2.0).abs() < 1e-9, "to the floor's median: {:?}", ours.ratios);
    }

    #[test]
    fn rows_of_one_name_and_tables_of_one_title_stay_apart_and_single_ones_have_no_spread() {
        let twice = || vec![table(&[(Role::Floor, 1.0), (Role::Floor, 2.0)]), table(&[])];
        let merged = merge(vec![twice(), Vec::new(), twice()]);
        assert_eq!(merged.iter().map(|table| table.rows.len()).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(merged[0].rows[1].spread, Some([2.0, 2.0]));
        let once = merge(vec![twice()]);
        assert_eq!(once[0].rows[0].spread, None);
    }
}
