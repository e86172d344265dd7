//! The floors as docs/design/floors.md lists them.

/// A crate, and its floors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crate {
    /// Its folder, relative to the repository.
    pub folder: String,
    /// Its top-level modules, from below.
    pub floors: Vec<String>,
}

/// Returns the crates of the table whose first column is called "crate" and whose second is
/// "floors, from below".
#[must_use]
pub fn crates(text: &str) -> Vec<Crate> {
    let rows = text
        .lines()
        .skip_while(|line| !(line.starts_with("| crate |") && line.contains("floors, from below")));
    rows.skip(2).take_while(|line| line.starts_with('|')).filter_map(row).collect()
}

fn row(line: &str) -> Option<Crate> {
    let mut cells = line.trim_matches('|').split('|');
    let folder = quoted(cells.next()?).next()?;
    Some(Crate { folder, floors: quoted(cells.next()?).collect() })
}

/// Returns what stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let text = "| a |\n\n| crate | floors, from below |\n|---|---|\n| `x/y` | `a`, `b` (what b is) |\n| `z` | |\n\n| `no` | `c` |\n";
        let floors = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            crates(text),
            [
                Crate { folder: "x/y".into(), floors: floors(&["a", "b"]) },
                Crate { folder: "z".into(), floors: Vec::new() }
            ]
        );
    }
}
