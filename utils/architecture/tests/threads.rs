//! The names of threads and of memory, against the tables in docs/design/threads.md.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The crates that programs link.
const LIBRARIES: [&str; 12] = [
    "gpunet-core",
    "gpunet-device",
    "gpunet-device/calls/host",
    "gpunet-device/records/host",
    "gpunet-device/serve/host",
    "gpunet-proxy",
    "gpunet-proxy/capi",
    "gpunet-proxy/channel",
    "gpu-usermap",
    "gpu-usermap/cuda",
    "gpu-usermap/region",
    "python",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path()) {
        if entry.is_dir() {
            files(&entry, found);
        } else if entry.extension().is_some_and(|end| end == "rs") && !entry.ends_with("tests.rs") {
            found.push(entry);
        }
    }
}

/// Returns the literals in which a name of gpunet's begins, each up to what is filled in.
fn names(text: &str) -> impl Iterator<Item = String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default().lines();
    code.filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .filter_map(|literal| {
            let end = literal.find('{').unwrap_or(literal.len());
            let name = literal[..end].trim_end_matches(['-', '.']);
            let is_name = ["gpunet-", "gpunetd-"].iter().any(|start| name.starts_with(start));
            (is_name && name.chars().all(|c| c.is_ascii_lowercase() || c == '-')).then(|| name.to_owned())
        })
}

/// A thread that is started elsewhere takes the program's signals.
#[test]
fn threads_are_started_where_their_signals_are_blocked() {
    // The blocks of the CPU device; who launches them blocks the signals for them
    // (`launch/running.rs`).
    const INHERIT: &str = "gpunet-device/src/cpu.rs";
    let repository = repository();
    for library in LIBRARIES {
        let mut sources = Vec::new();
        files(&repository.join(library).join("src"), &mut sources);
        for file in sources {
            let path = file.strip_prefix(&repository).expect("below it").to_owned();
            let is_for_tests =
                path.components().any(|part| ["fake", "tests"].iter().any(|name| part.as_os_str() == *name));
            if is_for_tests
                || path == Path::new(INHERIT)
                || path == Path::new("gpu-usermap/region/src/threads.rs")
            {
                continue;
            }
            let text = std::fs::read_to_string(&file).expect("readable");
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().lines();
            let starts: Vec<_> = code
                .filter(|line| !line.trim_start().starts_with("//"))
                .filter(|line| {
                    ["thread::Builder", "thread::spawn", "thread::scope"]
                        .iter()
                        .any(|call| line.contains(call))
                })
                .collect();
            assert!(
                starts.is_empty(),
                "{}: gpu_usermap::threads::spawn starts threads, not {starts:?}",
                path.display()
            );
        }
    }
}

/// A name that shows in /proc and is not explained helps nobody.
#[test]
fn every_name_in_proc_is_explained() {
    let mut sources = Vec::new();
    for library in LIBRARIES {
        files(&repository().join(library).join("src"), &mut sources);
    }
    let used: BTreeSet<String> = sources
        .iter()
        .flat_map(|file| names(&std::fs::read_to_string(file).expect("readable")).collect::<Vec<_>>())
        .collect();
    assert!(used.len() > 20, "the names are looked for in the wrong place: {used:?}");
    let text = std::fs::read_to_string(repository().join("docs/design/threads.md")).expect("it is there");
    let (threads, _) = text.split_once("\n## ").expect("another section follows");
    let rows = threads.lines().filter(|line| line.starts_with("| `gpunet"));
    let explained: BTreeSet<String> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2))
        .map(plain)
        .filter(|name| name.contains('-'))
        .collect();
    let missing: Vec<_> = used.difference(&explained).collect();
    assert!(missing.is_empty(), "docs/design/threads.md does not explain {missing:?}");
    let gone: Vec<_> = explained.difference(&used).collect();
    assert!(gone.is_empty(), "docs/design/threads.md explains {gone:?}, which nothing is called");
}

/// Returns a name without the numbers of its instances: `gpunet-data-N`, `gpunet-block-B[.L]`.
fn plain(name: &str) -> String {
    name.split(|c: char| c.is_ascii_uppercase() || c == '[')
        .next()
        .unwrap_or_default()
        .trim_end_matches(['-', '.'])
        .to_owned()
}
