//! Tables of documents that repeat what the code knows: errors, settings of the daemon, metrics,
//! and the kernel of the README.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn read(path: &str) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(repository.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the text under a heading, up to the next one of any level.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading:?}"));
    rest.split("\n#").next().expect("there is a first part")
}

/// Returns the cells of each row of a section's tables.
fn rows(section: &str) -> impl Iterator<Item = Vec<&str>> {
    section
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
}

fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns what stands between two markers of a source.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    text.split_once(begin).expect("it begins").1.split_once(end).expect("it ends").0
}

#[test]
fn errors_have_their_rows_and_numbers() {
    let text = read("gpunet-core/abi/src/types/errno.rs");
    let list = between(&text, "\nerrors! {\n", "\n}\n");
    let there: BTreeMap<&str, &str> = list
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("///"))
        .filter_map(|line| {
            let (name, rest) = line.split_once(" = ")?;
            Some((name, rest.split(',').next()?))
        })
        .collect();
    assert!(there.len() > 25, "{there:?}");
    let page = read("docs/operations.md");
    let mut said = BTreeMap::new();
    for row in rows(section(&page, "## Errors")) {
        let numbers = row[1].split(", ").filter_map(|errno| errno.rsplit_once(' ')).map(|(_, number)| number);
        let names = quoted(row[0]).filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric()));
        for (name, number) in names.zip(numbers) {
            said.insert(name, number);
        }
    }
    assert_eq!(said, there, "the table of errors in docs/operations.md, and errno.rs");
}

#[test]
fn settings_of_the_daemon_have_their_rows_and_defaults() {
    let text = read("gpunet-proxy/src/bin/gpunetd/settings.rs");
    let list = between(&text, "\nsettings! {\n", "\n}\n");
    let page = read("docs/operations.md");
    let said: BTreeMap<&str, &str> = rows(section(&page, "### Its settings"))
        .filter_map(|row| Some((quoted(row[0]).next()?, row[1])))
        .collect();
    let (mut comment, mut there, mut wrong) = (String::new(), BTreeSet::new(), Vec::new());
    for line in list.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment += text;
            continue;
        }
        let (name, _) = line.split_once(':').expect("a setting has a type");
        there.insert(name);
        let default = comment.split_once("Default ").map(|(_, rest)| rest);
        let number =
            default.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()).unwrap_or_default();
        let cell = said.get(name).copied().unwrap_or_default();
        if !cell.contains(number) {
            wrong.push(format!("{name}: {cell}, but its comment says {number}"));
        }
        comment.clear();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        said.keys().copied().collect::<BTreeSet<_>>(),
        there,
        "the table in docs/operations.md, and settings.rs"
    );
}

#[test]
fn metrics_have_their_rows() {
    let text = read("gpunet-proxy/src/bin/gpunetd/metrics.rs");
    let code = text.split("#[cfg(test)]").next().expect("there is a first part");
    let words = code.split("registry.register").skip(1);
    let there: BTreeSet<&str> = words.filter_map(|call| call.split('"').nth(1)).collect();
    assert!(there.len() > 8, "{there:?}");
    let page = read("docs/operations.md");
    let said: BTreeSet<&str> = rows(section(&page, "### Metrics"))
        .flat_map(|row| quoted(row[0]).collect::<Vec<_>>())
        .filter_map(|name| name.strip_prefix("gpunet_"))
        .map(|name| {
            ["_total", "_bytes", "_seconds"]
                .iter()
                .fold(name, |name, end| name.strip_suffix(end).unwrap_or(name))
        })
        .collect();
    assert_eq!(said, there, "the table of metrics in docs/operations.md, and metrics.rs");
}

/// `.ci/first-program` builds and runs the kernel of docs/kernels.md.
#[test]
fn the_kernel_of_the_readme_is_one_that_is_built() {
    let (readme, kernels) = (read("README.md"), read("docs/kernels.md"));
    let kernel = between(&readme, "```rust\n", "```");
    assert!(kernels.contains(kernel), "docs/kernels.md does not have the kernel of README.md:\n{kernel}");
}
