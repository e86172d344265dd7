//! What a person reads about broken rules: each rule once, and under it each location in the Rust
//! program once.

use std::fmt::Write;

use crate::lint::{Finding, Location, RULES};

/// How many lines of the PTX are named for one group.
const LINES: usize = 4;

/// Describes `findings`.
#[must_use]
pub fn describe(findings: &[Finding]) -> String {
    let mut text = String::new();
    for rule in RULES {
        let broken = findings.iter().filter(|finding| finding.rule == rule.name);
        let groups = grouped(broken.map(|finding| &finding.location));
        if groups.is_empty() {
            continue;
        }
        let _ = writeln!(text, "rule {}: {}", rule.name, rule.why);
        for group in groups {
            let _ = writeln!(text, "    {}", describe_group(&group));
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// Groups locations that differ in nothing but their line of the PTX.
fn grouped<'a>(locations: impl Iterator<Item = &'a Location>) -> Vec<Vec<&'a Location>> {
    let mut groups: Vec<Vec<&Location>> = Vec::new();
    for location in locations {
        let same =
            |group: &&mut Vec<&Location>| Location { line: location.line, ..group[0].clone() } == *location;
        match groups.iter_mut().find(same) {
            Some(group) => group.push(location),
            None => groups.push(vec![location]),
        }
    }
    groups
}

fn describe_group(locations: &[&Location]) -> String {
    let Location { source, function, text, .. } = locations[0];
    let mut out = source.as_ref().map_or_else(String::new, |source| format!("{source}: "));
    out.push_str(text);
    if let Some(function) = function {
        let _ = write!(out, " in `{function}`");
    }
    let lines: Vec<_> = locations.iter().take(LINES).map(|location| location.line.to_string()).collect();
    let _ = match locations.len() {
        1 => write!(out, " (PTX line {})", lines[0]),
        2..=LINES => write!(out, ", {} times (PTX lines {})", locations.len(), lines.join(", ")),
        more => write!(out, ", {more} times (PTX lines {}, ..)", lines.join(", ")),
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint;

    const SYMBOL: &str = "_RNvCscIg4YaiCS0c_9my_kernel5parse";

    fn report(body: &str) -> String {
        describe(&lint::run(
            &format!(".func {SYMBOL}()\n{{\n{body}\nret;\n}}\n.file 1 \"./src/lib.rs\"\n"),
            &[],
        ))
    }

    #[test]
    fn no_findings_are_no_text() {
        assert_eq!(report(""), "");
    }

    #[test]
    fn a_place_has_source_text_function_and_line() {
        let text = report(".loc 1 26 3\nbar.sync 0;");
        assert!(text.starts_with("rule aligned-barrier: "), "{text}");
        assert!(
            text.ends_with("\n    src/lib.rs:26: `bar.sync` in `my_kernel::parse` (PTX line 4)"),
            "{text}"
        );
    }

    #[test]
    fn repeats_are_counted_and_the_rule_is_explained_once() {
        let text = report(&"red.global.add.u64 [%rd1], 5;\n".repeat(6));
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.ends_with("`red.global.add.u64` in `my_kernel::parse`, 6 times (PTX lines 3, 4, 5, 6, ..)"),
            "{text}"
        );
    }

    #[test]
    fn a_called_function_has_its_rust_name_too() {
        let text = report("call.uni (r), _RNvCs_7___rustc12___rust_alloc, (a, b);");
        assert!(text.contains("calls `__rustc::__rust_alloc` in `my_kernel::parse`"), "{text}");
    }
}
