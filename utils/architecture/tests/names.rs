//! The names of calls, types and constants in documents, against headers and sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Sections with tables of other libraries' names. Only the last column has gpunet's.
const ELSEWHERE: [(&str, &str); 2] =
    [("docs/symmetric.md", "## Names elsewhere"), ("docs/queues.md", "## What to write instead of ...")];

/// Pages that use names of other libraries in running text, and shortened ones (`_timeout`) in
/// tables. Only what begins with `gpunet_` is looked up.
const SHORTENED: [&str; 2] = ["docs/c.md", "docs/c-host.md"];

/// Words of other programs and of the reader's own.
const FOREIGN: [&str; 10] = [
    "NonZero",
    "finalize",
    "sched_yield",
    "my_server_kernel",
    "my_kernel",
    "_syncthreads",
    "ib_send_lat",
    "rcvd_rnr_err",
    "sent_bytes",
    "nvshmem_uint64_sum_reduce",
];

/// Crates and modules of others.
const FOREIGN_CRATES: [&str; 6] = ["std", "core", "tokio", "cuda", "cudarc", "cust"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files below a folder that end in one of `ends`, by their paths from the repository
/// on. What is built is left out.
fn files(folder: &str, ends: &[&str], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(repository().join(folder)).expect("a folder") {
        let entry = entry.expect("readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if name == "target" || name == ".git" {
            continue;
        }
        if entry.file_type().expect("known").is_dir() {
            files(&path, ends, found);
        } else if ends.iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

fn read(path: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(repository().join(path)).expect("readable")).into_owned()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Returns what a line of Rust defines: items, and fields, variants and arguments of macros, which
/// stand first.
fn defined(line: &str) -> impl Iterator<Item = &str> {
    const KEYWORDS: [&str; 10] =
        ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union", "macro_rules"];
    let words: Vec<&str> = words(line).collect();
    let items: Vec<&str> =
        words.windows(2).filter(|pair| KEYWORDS.contains(&pair[0])).map(|pair| pair[1]).collect();
    let rest = line.trim_start();
    let rest = rest.strip_prefix("pub").map_or(rest, |rest| rest.trim_start_matches("(crate)").trim_start());
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    let first =
        (end > 0 && rest[end..].trim_start().starts_with([',', '(', '{', ':', '='])).then_some(&rest[..end]);
    let alone = (end > 0 && end == rest.len()).then_some(rest);
    items.into_iter().chain(first).chain(alone)
}

/// What the repository has.
struct Sources {
    /// Every word of a source.
    words: BTreeSet<String>,
    /// By name: the Rust files that define something so called.
    definitions: BTreeMap<String, BTreeSet<usize>>,
    /// The words of each Rust file, and the names of its folders and its own.
    rust: Vec<BTreeSet<String>>,
    /// The metrics that gpunetd registers.
    metrics: String,
}

impl Sources {
    fn read() -> Self {
        const ENDS: [&str; 13] = [
            ".rs", ".h", ".cuh", ".c", ".cu", ".cpp", ".py", ".pyi", ".toml", ".txt", ".service", ".socket",
            "/run",
        ];
        let mut paths = Vec::new();
        files("", &ENDS, &mut paths);
        // Scripts have no ending.
        let scripts =
            [".ci/run", "gpunet-proxy/capi/check", "utils/rdma-vm/rdma-vm", "utils/link-check/link-check"];
        paths.extend(scripts.map(str::to_owned));
        files("utils/rdma-vm/guest", &[""], &mut paths);
        files("utils/rdma-vm/lib", &[""], &mut paths);
        files("utils/rdma-vm/scenarios", &[""], &mut paths);
        let (mut all, mut definitions, mut rust) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        for path in &paths {
            // This file names what there is not.
            if path == "utils/architecture/tests/names.rs" {
                continue;
            }
            let text = read(path);
            let own: BTreeSet<String> =
                words(&text).chain(path.split(['/', '.', '-'])).map(str::to_owned).collect();
            // Names of test targets and modules are names of files.
            all.extend(words(path).map(str::to_owned));
            all.extend(own.iter().cloned());
            if path.ends_with(".rs") {
                for name in text.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(defined)
                {
                    definitions.entry(name.to_owned()).or_insert_with(BTreeSet::new).insert(rust.len());
                }
                rust.push(own);
            }
        }
        Self { words: all, definitions, rust, metrics: read("gpunet-proxy/src/bin/gpunetd/metrics.rs") }
    }

    /// Returns whether a word with parts is one of the sources, or the name of a metric.
    fn has_word(&self, word: &str) -> bool {
        let metric = word.strip_prefix("gpunet_").map(|name| {
            ["_total", "_bytes", "_seconds"]
                .iter()
                .fold(name, |name, end| name.strip_suffix(end).unwrap_or(name))
        });
        self.words.contains(word)
            || FOREIGN.contains(&word)
            || metric.is_some_and(|name| self.metrics.contains(&format!("\"{name}\"")))
    }

    /// Returns whether `of::name` is there: a file that names the one defines the other.
    fn has_path(&self, of: &str, name: &str) -> bool {
        let is_crate = of.starts_with("gpu") && of.contains('_');
        let Some(files) = self.definitions.get(name) else {
            return is_crate && self.definitions.contains_key(name);
        };
        is_crate || files.iter().any(|file| self.rust[*file].contains(of))
    }
}

/// Returns what stands between backticks on the lines of a page that are no fenced block, with the
/// line's number. Of tables of other libraries' names it is the last column.
fn quoted(page: &str, text: &str) -> Vec<(usize, String)> {
    let (mut found, mut is_fenced, mut is_elsewhere) = (Vec::new(), false, false);
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        if line.starts_with('#') && !is_fenced {
            is_elsewhere = ELSEWHERE.contains(&(page, line));
        }
        if is_fenced {
            continue;
        }
        let read = match line.trim_end_matches(['|', ' ']).rsplit_once(" | ") {
            Some((_, last)) if is_elsewhere => last,
            _ => line,
        };
        found.extend(read.split('`').skip(1).step_by(2).map(|name| (number + 1, name.to_owned())));
    }
    found
}

/// Returns the names in a quotation that are looked up: words with parts (`send_all`, `SendHalf`),
/// words that are called (`gsend(`), and paths (`Queue::send`), each as its parts.
fn names(quotation: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = quotation;
    while let Some(start) = rest.find(is_part) {
        let text = &rest[start..];
        let end = text.find(|c: char| !is_part(c) && c != ':').unwrap_or(text.len());
        let name = text[..end].trim_end_matches(':');
        let is_called = text[end..].starts_with('(');
        rest = &text[end..];
        let parts: Vec<&str> = name.split("::").filter(|part| !part.is_empty()).collect();
        let last = parts.last().copied().unwrap_or_default();
        if last.chars().next().is_none_or(|c| c.is_ascii_digit()) || name.contains(':') && parts.len() < 2 {
            continue;
        }
        let is_snake = last.trim_matches('_').contains('_') && !last.starts_with('_') && !last.ends_with('_');
        let is_snake =
            is_snake && last.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        let is_variable = ["GPUNET", "GPUNETD"].iter().any(|start| last.starts_with(start))
            && !last.ends_with('_')
            && last.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let humps = last.chars().filter(char::is_ascii_uppercase).count();
        let is_camel = humps > 1 && last.chars().any(|c| c.is_ascii_lowercase()) && !last.contains('_');
        if parts.len() > 1 || is_snake || is_variable || is_camel || is_called {
            found.push(parts);
        }
    }
    found
}

/// A document that names a call which there is not, or is called otherwise, sends its reader
/// astray.
#[test]
fn every_name_in_a_document_is_there() {
    let sources = Sources::read();
    let mut pages = vec!["README.md".to_owned(), "ARCHITECTURE.md".to_owned(), "SECURITY.md".to_owned()];
    files("docs", &[".md"], &mut pages);
    for folder in ["apps", "utils", "gpunet-proxy"] {
        files(folder, &[".md"], &mut pages);
    }
    let (mut looked_up, mut missing) = (0, Vec::new());
    for page in pages {
        let text = read(&page);
        for (number, quotation) in quoted(&page, &text) {
            for parts in names(&quotation) {
                let last = *parts.last().expect("a name has parts");
                if SHORTENED.contains(&page.as_str()) && !parts[0].starts_with("gpunet_") {
                    continue;
                }
                looked_up += 1;
                let is_there = match parts.as_slice() {
                    [name] => sources.has_word(name),
                    [first, ..] if FOREIGN_CRATES.contains(first) => true,
                    // C++: the namespace of gpunet.cuh.
                    ["gpunet", ..] | ["cooperative_groups", ..] => sources.words.contains(last),
                    [.., of, name] => sources.has_path(of, name),
                    [] => true,
                };
                if !is_there {
                    missing.push(format!("{page}:{number}: {} in `{quotation}`", parts.join("::")));
                }
            }
        }
    }
    assert!(looked_up > 700, "only {looked_up} names are found");
    assert!(missing.is_empty(), "no header and no source has these:\n{}\n", missing.join("\n"));
}

/// Calls of which a page promises all: sources, and the pages that have them.
const COVERED: [(&[&str], &[&str]); 4] = [
    (
        &[
            "gpunet-proxy/src/queue.rs",
            "gpunet-proxy/src/queue/team.rs",
            "gpunet-proxy/src/socket.rs",
            "gpunet-proxy/src/socket/direction.rs",
        ],
        &["docs/queues.md", "docs/symmetric.md"],
    ),
    (
        &[
            "gpunet-device/src/team/barrier.rs",
            "gpunet-device/src/team/collective.rs",
            "gpunet-device/src/team/reduce.rs",
            "gpunet-device/src/team/signal.rs",
            "gpunet-device/src/team/transfer.rs",
            "gpunet-device/src/team/wait.rs",
        ],
        &["docs/symmetric.md"],
    ),
    (&["gpunet-proxy/src/team.rs", "gpunet-proxy/src/team/split.rs"], &["docs/symmetric.md"]),
    (
        &[
            "gpunet-device/src/poll_group.rs",
            "gpunet-device/src/poll_group/change.rs",
            "gpunet-device/src/socket/listener.rs",
        ],
        &["docs/kernels.md"],
    ),
];

/// Returns the public functions of a source, but those that rustdoc hides, and conversions of plain
/// values.
fn calls(text: &str) -> Vec<&str> {
    let (mut found, mut is_hidden) = (Vec::new(), false);
    for line in text.lines().map(str::trim).take_while(|line| *line != "#[cfg(test)]") {
        is_hidden |= line == "#[doc(hidden)]";
        let Some(rest) = line.strip_prefix("pub ") else { continue };
        let rest = ["const ", "async ", "unsafe "]
            .iter()
            .fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
        if let Some(name) = rest.strip_prefix("fn ").and_then(|rest| words(rest).next()) {
            if !is_hidden && !["to_raw", "from_raw"].contains(&name) {
                found.push(name);
            }
            is_hidden = false;
        }
    }
    found
}

/// A page that leaves out a call denies it.
#[test]
fn pages_have_all_calls_that_they_are_about() {
    let (mut looked_up, mut missing) = (0, Vec::new());
    for (files, pages) in COVERED {
        let texts: Vec<String> = pages.iter().map(|page| read(page)).collect();
        let said: BTreeSet<&str> = texts.iter().flat_map(|text| words(text)).collect();
        for file in files {
            let text = read(file);
            let calls = calls(&text);
            looked_up += calls.len();
            let lacking = calls.iter().filter(|call| !said.contains(*call));
            missing
                .extend(lacking.map(|call| format!("{} does not name {call} of {file}", pages.join(" or "))));
        }
    }
    assert!(looked_up > 70, "only {looked_up} calls are found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn names_are_read_from_quotations() {
    assert_eq!(names("Queue::send"), [vec!["Queue", "send"]]);
    assert_eq!(names("gpunet_wait(net, gate)"), [["gpunet_wait"]]);
    assert_eq!(names("gsend(net)"), [["gsend"]]);
    assert_eq!(names("SendHalf, slot, 64 B"), [["SendHalf"]]);
    assert_eq!(names("_timeout, a - b: 3"), Vec::<Vec<&str>>::new());
    let table = "## Names elsewhere\n| `theirs` | `ours` |\n```\n`code`\n```\n";
    assert_eq!(quoted("docs/symmetric.md", table), [(2, "ours".to_owned())]);
    assert_eq!(defined("    pub const fn send_all(&self) {").collect::<Vec<_>>(), ["fn", "send_all"]);
    assert_eq!(defined("    WouldBlock = 11,").collect::<Vec<_>>(), ["WouldBlock"]);
}
