//! Measured figures in documents: they stand between the marks of gpunet-bench, which makes them
//! from a report. What is written by hand has none, because nobody measures it again.

use std::path::{Path, PathBuf};

/// Pages about what the code waits for and how long: their times are constants of the code. Only
/// their tables of figures and their ratios are checked.
const OF_CONSTANTS: [&str; 12] = [
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
    "utils/foreign-client/README.md",
];

/// The pages that are left out, and what begins their paths: the history, which cites the figures
/// of its time, and lists that programs make.
const LEFT_OUT: [&str; 2] = ["CHANGELOG.md", "docs/api/"];

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

/// A number before one of these is a ratio of two figures, on every page.
const RATIOS: [&str; 10] = [
    "% slower",
    "% faster",
    "% longer",
    "% shorter",
    "% more than",
    "% less than",
    "times slower",
    "times faster",
    "times as fast",
    "times as long",
];

/// A number before one of these, in what a program has printed, is a rate.
const RATES: [&str; 9] =
    ["GB/s", "MB/s", "KB/s", "GiB/s", "MiB/s", "Gbit/s", "a second", "per second", "% of a core"];

/// A sentence with one of these words has a constant of the code, which is no measurement.
const CONSTANTS: [&str; 5] = ["default", "limit", "setting", "timeout", "constant"];

/// What a row of a table is called whose head or first cell says that its numbers are figures.
const ROW: &str = "a row of figures";
/// What a line is called that a program has printed, with percentiles or rates.
const PRINTED: &str = "a printed figure";

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

/// Returns the first number in the text that has one of the units behind it.
fn figure(text: &str, units: &[&str]) -> Option<String> {
    let text = bare(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_number = |word: &str| {
        let word = word.trim_start_matches(['(', '~', '"', '*', '[']);
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.trim_end_matches('*').chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
    };
    // "12 ms", "1.2 to 3 us" and "4 / 5 us" have their unit behind the last number.
    words.iter().enumerate().find_map(|(at, word)| {
        let behind = words[at + 1..].iter().take(4).copied().collect::<Vec<_>>().join(" ");
        let unit = units.iter().find(|unit| {
            let rest = behind.strip_prefix(**unit);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || "/-_".contains(c)))
        });
        unit.filter(|_| is_number(word)).map(|unit| format!("{word} {unit}"))
    })
}

/// Returns whether a line of a block of code has figures that a program has printed.
fn is_printed(line: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    let is_percentile = |pair: &[&str]| {
        ["p50", "p90", "p99"].contains(&pair[0]) && pair[1].starts_with(|c: char| c.is_ascii_digit())
    };
    words.windows(2).any(is_percentile) || figure(line, &RATES).is_some()
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
            if let Some(figure) = figure(sentence, &UNITS).filter(|_| !is_constant) {
                wrong.push((line, figure));
            }
            wrong.extend(figure(sentence, &RATIOS).map(|ratio| (line, ratio)));
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
            let is_code = !is_fence && !made;
            rows.extend((is_code && is_printed(line)).then(|| (nth, PRINTED.to_owned())));
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

/// Finds the pages in a folder and below. What is hidden or built is left out.
fn pages(folder: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(repository().join(folder)).expect("a folder") {
        let entry = entry.expect("readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if name.starts_with('.') || name == "target" || LEFT_OUT.iter().any(|page| path.starts_with(page)) {
            continue;
        }
        if entry.file_type().expect("known").is_dir() {
            pages(&path, found);
        } else if path.ends_with(".md") {
            found.push(path);
        }
    }
}

#[test]
fn measured_figures_stand_between_marks() {
    let mut all = Vec::new();
    pages("", &mut all);
    for known in ["README.md", "docs/design/walks.md", "apps/kv/README.md", "utils/rdma-vm/README.md"] {
        assert!(all.iter().any(|page| page == known), "{known} is not found: {all:?}");
    }
    let (mut wrong, mut idle) = (Vec::new(), OF_CONSTANTS.to_vec());
    for page in &all {
        let text = std::fs::read_to_string(repository().join(page)).expect("it is there");
        let is_of_constants = OF_CONSTANTS.contains(&page.as_str());
        for (line, figure) in found(&text) {
            let is_time =
                figure != ROW && figure != PRINTED && !RATIOS.iter().any(|unit| figure.ends_with(unit));
            if is_of_constants && is_time {
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
    assert_eq!(lines("By default it is 3 to 15 % slower.\n"), ["1: 15 % slower"]);
    assert_eq!(lines("a\n\n    gpunet 64 B  p50   3.23  p90 4 us\n"), ["3: a printed figure"]);
    assert_eq!(lines("```text\nfloor 16 blocks   353.028 GB/s\n```\n"), ["2: a printed figure"]);
    for text in [
        "A timeout of 5 s. Rings have 4 MiB.\n",
        "`--time 30 s` and [a page](a-12 s)\n",
        "```sh\nsleep 5 s\n```\n",
        "```text\nsize  p50 us  p99 us  GB/s\n```\n",
        "<!-- gpunet-bench: begin a b -->\n```text\nfloor p50 1 us\n```\n<!-- gpunet-bench: end -->\n",
        "<!-- gpunet-bench: begin a all -->\n| us |\n|---|\n| 3 us |\n<!-- gpunet-bench: end -->\n",
        "CUDA 13.0 as is, 3 sockets, 16 blocks\n",
    ] {
        assert!(lines(text).is_empty(), "{text}: {:?}", lines(text));
    }
}

/// Returns the commit whose rows became slower by the table of changes of a page, if some did.
fn slower(page: &str) -> Option<&str> {
    let changes = page
        .split(BEGIN)
        .skip(1)
        .find(|block| block.split_whitespace().nth(1).is_some_and(|view| view == "changes"))?;
    let changes = changes.split(END).next()?;
    let now = changes.split_once(" to gpunet ")?.1.split_once("commit ")?.1.split(',').next();
    now.filter(|_| ["slower**", "more**"].iter().any(|loss| changes.contains(loss)))
}

/// Returns whether a page has a text below this heading.
fn has_text(page: &str, heading: &str) -> bool {
    let below = page.split_once(&format!("\n{heading}\n")).map(|(_, below)| below);
    let mut lines = below.unwrap_or_default().lines().filter(|line| !line.trim().is_empty());
    lines.next().is_some_and(|line| !line.starts_with('#') && !line.starts_with("<!--"))
}

/// The heading names the commit, so an explanation does not outlive its report.
#[test]
fn what_became_slower_is_explained() {
    let mut all = Vec::new();
    pages("docs/measured", &mut all);
    let mut with_changes = 0;
    for page in all {
        let text = std::fs::read_to_string(repository().join(&page)).expect("it is there");
        with_changes += usize::from(text.contains(" changes -->"));
        let Some(commit) = slower(&text) else { continue };
        let heading = format!("### What became slower in {commit}, and why");
        assert!(has_text(&text, &heading), "{page}: rows became slower: say why below a line\n{heading}");
    }
    assert!(with_changes >= 2, "the reports of two machines have a table of changes");
}

#[test]
fn only_a_text_below_its_heading_explains() {
    let of = |row: &str| {
        format!(
            "<!-- gpunet-bench: begin a all -->\n{END}\n<!-- gpunet-bench: begin a changes -->\n\
                 From gpunet 0.2.0, commit 1, 2026-11-01 to gpunet 0.2.0, commit 2, 2026-11-02.\n{row}\n{END} -->\n"
        )
    };
    assert_eq!(slower(&of("| a | 1 | 2 us | **2.00 times slower** |")), Some("2"));
    assert_eq!(slower(&of("| a | 2 | 1 us | 2.00 times faster |")), None);
    for (text, has) in
        [("a\n### b\n\nwhy\n", true), ("a\n### b\n\n### c\nwhy\n", false), ("a\n### b\n", false)]
    {
        assert_eq!(has_text(text, "### b"), has, "{text}");
    }
}
