//! The width of comments: a line of one has 100 columns at most.

use std::path::{Path, PathBuf};

const COLUMNS: usize = 100;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable")) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        let path = entry.path();
        if entry.file_type().expect("known").is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Returns the numbers of lines that are too wide: comments of a whole line whose text could go on
/// in the next. Tables, code and drawings, which are indented, keep their lines.
fn wide(text: &str) -> Vec<usize> {
    let (mut found, mut is_code) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_code = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']);
        let text = comment.trim_start();
        // What a test kernel expects of a tool.
        let is_directive = text.starts_with('@');
        if text.starts_with("```") {
            is_code = !is_code;
        }
        let is_drawn = comment.len() - text.len() > 4;
        let breaks = text.trim_start_matches(['-', '*']).trim().contains(' ');
        if line.chars().count() > COLUMNS
            && !is_code
            && !is_drawn
            && !text.starts_with('|')
            && !is_directive
            && breaks
        {
            found.push(number + 1);
        }
    }
    found
}

#[test]
fn lines_of_comments_are_short() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    files(&repository, &mut sources);
    assert!(sources.len() > 500, "the sources of all crates: {}", sources.len());
    let mut all = Vec::new();
    for file in sources {
        let text = std::fs::read_to_string(&file).expect("text");
        let path = file.strip_prefix(&repository).expect("below it").display().to_string();
        all.extend(wide(&text).into_iter().map(|number| format!("{path}:{number}")));
    }
    assert!(all.is_empty(), "comments of more than {COLUMNS} columns:\n{}", all.join("\n"));
}

#[test]
fn what_is_no_text_may_be_wide() {
    let long = "word ".repeat(30);
    let text =
        format!("/// {long}\n/// | {long}\n/// ```\n/// {long}\n/// ```\nlet x; // {long}\n    // {long}\n");
    assert_eq!(wide(&text), [1, 7]);
    let name = "x".repeat(120);
    assert_eq!(wide(&format!("//! {name}\n//      {long}\n")), [0; 0]);
}
