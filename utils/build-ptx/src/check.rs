//! Compares a fresh build with the checked-in file.

use crate::classes;

/// How a fresh build compares with the checked-in file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Equal, byte for byte.
    Same,
    /// Another compiler than the pinned one; the instruction classes are equal. The bytes were not
    /// compared.
    SameClasses,
    /// They differ, as the text describes.
    Differs(String),
}

/// Compares; byte for byte if the pinned compiler built `fresh`, else by instruction classes.
#[must_use]
pub fn compare(checked_in: &str, fresh: &str, pinned: bool) -> Verdict {
    if pinned {
        return if checked_in == fresh {
            Verdict::Same
        } else {
            Verdict::Differs(diff_head(checked_in, fresh))
        };
    }
    let differences = classes::differences(checked_in, fresh);
    if differences.is_empty() { Verdict::SameClasses } else { Verdict::Differs(differences.join("\n")) }
}

/// The first difference of two texts, as the head of a unified diff.
#[must_use]
pub fn diff_head(old: &str, new: &str) -> String {
    const CONTEXT: usize = 3;
    const LINES: usize = 12;
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    let equal = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let from = equal.saturating_sub(CONTEXT);
    let tail = old[equal..].iter().rev().zip(new[equal..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (removed, added) = (&old[equal..old.len() - tail], &new[equal..new.len() - tail]);
    let mut out = vec![
        "--- checked in".to_owned(),
        "+++ fresh build".to_owned(),
        format!(
            "@@ -{},{} +{},{} @@",
            from + 1,
            equal - from + removed.len(),
            from + 1,
            equal - from + added.len()
        ),
    ];
    out.extend(old[from..equal].iter().map(|line| format!(" {line}")));
    for (sign, lines) in [('-', removed), ('+', added)] {
        out.extend(lines.iter().take(LINES).map(|line| format!("{sign}{line}")));
        if lines.len() > LINES {
            out.push(format!("{sign}[{} more lines up to the last difference]", lines.len() - LINES));
        }
    }
    out.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_text_is_the_same() {
        assert_eq!(compare("a\n", "a\n", true), Verdict::Same);
    }

    #[test]
    fn a_changed_line_is_shown_with_its_context() {
        let head = diff_head("a\nb\nc\nd\n", "a\nb\nx\nd\n");
        assert_eq!(head, "--- checked in\n+++ fresh build\n@@ -1,3 +1,3 @@\n a\n b\n-c\n+x");
    }

    #[test]
    fn another_compiler_is_judged_by_classes_only() {
        let a = ".visible .entry k()\n{\nbarrier.sync 0;\n}\n";
        let b = ".visible .entry k()\n{\nmov.u32 %r1, 0;\nbarrier.sync 0;\n}\n";
        assert_eq!(compare(a, b, false), Verdict::SameClasses);
        assert!(matches!(compare(a, b, true), Verdict::Differs(_)));
    }
}
