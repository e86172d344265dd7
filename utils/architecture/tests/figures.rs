//! Measured figures in documents: they stand between the marks of gpunet-bench, which makes them
//! from a report. What is written by hand has none, because nobody measures it again.

use std::path::{Path, PathBuf};

/// Pages about what the code waits for and how long: their times are constants of the code. Only
/// their tables are checked.
const OF_CONSTANTS: [&str; 11] = [
    "docs/design/failures.md",
    "docs/design/memory-model.md",
    "docs/design/protocol.md",
    "docs/design/threads.md",
    "docs/design/walks.md",
    "docs/host.md",
    "docs/operations.md",
    "docs/rdma.md",
    "docs/servers.md",
    "docs/telemetry.md",
    "docs/testing.md",
];

/// The pages beside those of docs/ that are checked.
const OTHERS: [&str; 2] = ["README.md", "ARCHITECTURE.md"];

/// A number before one of these is a figure.
const UNITS: [&str; 22] = [
    "ns",
    "us",
    "µs",
    "ms",
    "s",
    "second",
    "seconds",
    "minute",
    "minutes",
    "GB/s",
    "MB/s",
    "KB/s",
    "GiB/s",
    "MiB/s",
    "Gb/s",
    "Gbit/s",
    "Mbit/s",
    "cycles",
    "a second",
    "per second",
    "times a second",
    "% of a core",
];

/// A sentence with one of these words has a constant of the code, which is no measurement.
const CONSTANTS: [&str; 5] = ["default", "limit", "setting", "timeout", "constant"];

/// What a row of a table is called whose head or first cell says that its numbers are figures.
const ROW: &str = "a row of figures";

const BEGIN: &str = "<!-- gpunet-bench: begin";
const END: &str = "<!-- gpunet-bench: end";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the text without quoted code and the targets of links.
fn bare(text: &str) -> String {
    let mut out = String::new();
    for (nth, part) in text.split('`').enumerate() {
        if nth % 2 == 0 {
            let mut pieces = part.split("](");
            out += pieces.next().unwrap_or_default();
            for piece in pieces {
                out += piece.split_once(')').map_or("", |(_, rest)| rest);
            }
        } else {
            out.push('`');
        }
    }
    out
}

/// Returns the first number in the text that has a unit of time or rate behind it.
fn figure(text: &str) -> Option<String> {
    let text = bare(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_number = |word: &str| {
        let word = word.trim_start_matches(['(', '~', '"', '*', '[']);
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.trim_end_matches('*').chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
    };
    // "12 ms", "1.2 to 3 us" and "4 / 5 us" have their unit behind the last number.
    words.iter().enumerate().find_map(|(at, word)| {
        let behind = words[at + 1..].iter().take(3).copied().collect::<Vec<_>>().join(" ");
        let unit = UNITS.into_iter().find(|unit| {
            let rest = behind.strip_prefix(unit);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || "/-_".contains(c)))
        });
        unit.filter(|_| is_number(word)).map(|unit| format!("{word} {unit}"))
    })
}

/// Returns whether a table's head says that its numbers are times or rates.
fn is_of_figures(head: &str) -> bool {
    let head = bare(head);
    let mut words = head.split(|c: char| c.is_whitespace() || ",;:()|".contains(c));
    words.any(|word| ["ns", "us", "µs", "ms", "p50", "p99", "GB/s", "MB/s", "seconds"].contains(&word))
        || head.contains("a second")
}

/// Returns the lines of a page that have figures by hand.
fn found(page: &str) -> Vec<(usize, String)> {
    let (mut wrong, mut fenced, mut made) = (Vec::new(), false, false);
    let mut block = (1, String::new());
    let mut of_figures = None;
    let mut check = |(line, text): (usize, String)| {
        for sentence in text.split_inclusive([';', '|']).flat_map(|part| part.split(". ")) {
            let is_constant = CONSTANTS.iter().any(|word| text_of(&text, sentence).contains(word));
            if let Some(figure) = figure(sentence).filter(|_| !is_constant) {
                wrong.push((line, figure));
            }
        }
    };
    let mut rows = Vec::new();
    for (nth, line) in page.lines().enumerate().map(|(nth, line)| (nth + 1, line)) {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        made = (made || line.starts_with(BEGIN)) && !line.starts_with(END);
        let skipped = fenced || is_fence || made || line.starts_with("    ") || line.trim().is_empty();
        let is_row = line.trim_start().starts_with('|');
        let begins = is_row || line.trim_start().starts_with("- ") || line.starts_with('#');
        if skipped || begins {
            check(std::mem::take(&mut block));
        }
        if skipped {
            of_figures = None;
            continue;
        }
        if is_row {
            let is_dense = *of_figures.get_or_insert_with(|| is_of_figures(line));
            let is_number =
                |cell: &str| cell.trim().trim_start_matches('*').starts_with(|c: char| c.is_ascii_digit());
            let mut cells = line.trim().trim_matches('|').split('|');
            let is_dense = cells.next().is_some_and(is_of_figures) || is_dense;
            if is_dense && cells.any(is_number) {
                rows.push((nth, ROW.to_owned()));
                continue;
            }
        } else {
            of_figures = None;
        }
        if block.1.is_empty() {
            block.0 = nth;
        }
        block.1 += line;
        block.1.push(' ');
    }
    check(block);
    wrong.extend(rows);
    wrong
}

/// Returns the whole sentence that a part of the text belongs to.
fn text_of<'a>(text: &'a str, part: &str) -> &'a str {
    text.split(". ").find(|sentence| sentence.contains(part)).unwrap_or(text)
}

fn pages(folder: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(repository().join(folder)).expect("a folder") {
        let entry = entry.expect("readable");
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().expect("known").is_dir() {
            pages(&path, found);
        } else if path.ends_with(".md") {
            found.push(path);
        }
    }
}

#[test]
fn measured_figures_stand_between_marks() {
    let mut all: Vec<String> = OTHERS.map(str::to_owned).to_vec();
    pages("docs", &mut all);
    assert!(all.len() > 20, "{all:?}");
    let (mut wrong, mut idle) = (Vec::new(), OF_CONSTANTS.to_vec());
    for page in &all {
        let text = std::fs::read_to_string(repository().join(page)).expect("it is there");
        let is_of_constants = OF_CONSTANTS.contains(&page.as_str());
        for (line, figure) in found(&text) {
            if is_of_constants && figure != ROW {
                idle.retain(|other| other != page);
            } else {
                wrong.push(format!("{page}:{line}: {figure}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "figures by hand: put them into a view of gpunet-bench render, leave them out, or say in the \
         sentence that it is a {}:\n{}",
        CONSTANTS.join(", a "),
        wrong.join("\n")
    );
    assert!(idle.is_empty(), "these pages need no place in OF_CONSTANTS: {idle:?}");
}

#[test]
fn figures_are_told_from_constants_and_code() {
    let lines = |page: &str| {
        found(page).into_iter().map(|(line, figure)| format!("{line}: {figure}")).collect::<Vec<_>>()
    };
    assert_eq!(lines("It takes 12 us.\n"), ["1: 12 us"]);
    assert_eq!(lines("It takes\n1.2 to 3.5 ms,\nnot 4."), ["1: 3.5 ms"]);
    assert_eq!(lines("one\n\nIt makes 54,400 a second.\n"), ["3: 54,400 a second"]);
    assert_eq!(lines("- a\n- 41.9 GB/s (one pair)\n"), ["2: 41.9 GB/s"]);
    assert_eq!(lines("| what | time |\n|---|---|\n| a | 3 us |\n| b | 4 us |\n"), ["3: 3 us", "4: 4 us"]);
    assert_eq!(lines("| p50, us | a |\n|---|---|\n| b | 3.4 |\n| 4 | c |\n"), ["3: a row of figures"]);
    assert_eq!(lines("A wait has a limit of 5 s. It took 6 s.\n"), ["1: 6 s"]);
    for text in [
        "A timeout of 5 s. Rings have 4 MiB.\n",
        "`--time 30 s` and [a page](a-12 s)\n",
        "```sh\nsleep 5 s\n```\n",
        "<!-- gpunet-bench: begin a all -->\n| us |\n|---|\n| 3 us |\n<!-- gpunet-bench: end -->\n",
        "CUDA 13.0 as is, 3 sockets, 16 blocks\n",
    ] {
        assert!(lines(text).is_empty(), "{text}: {:?}", lines(text));
    }
}
