//! The files and folders that documents name, against those that there are.

use std::path::{Path, PathBuf};

/// Documents that name files of a reader's own program.
const OTHERS: [&str; 2] = ["docs/kernels.md", "docs/servers.md"];

/// Folders of the repository. What begins with one of them is a path.
const FOLDERS: [&str; 8] =
    ["apps", "docs", "gpu-usermap", "gpunet-core", "gpunet-device", "gpunet-proxy", "python", "utils"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Adds what is in a folder, each with its path from the repository on, which begins with `/`. What
/// is hidden or built is left out.
fn list(folder: &Path, path: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        let path = format!("{path}/{name}");
        if entry.file_type().expect("known").is_dir() {
            list(&entry.path(), &path, found);
        }
        found.push(path);
    }
}

/// Returns the paths that a line names: Rust files, with as many of their folders as the reader
/// needs, and whatever begins with a folder of the repository.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c)))
        .map(|word| word.trim_start_matches("../").trim_end_matches(['.', '/']))
        .filter(|word| {
            let is_source = Path::new(word).extension().is_some_and(|end| end == "rs");
            is_source || word.split_once('/').is_some_and(|(first, _)| FOLDERS.contains(&first))
        })
}

/// A document that names a file which has moved sends its reader astray.
#[test]
fn every_path_that_a_document_names_is_there() {
    let mut found = Vec::new();
    list(&repository(), "", &mut found);
    let is_there = |path: &str| {
        let end = format!("/{path}");
        found.iter().any(|file| file.ends_with(end.as_str()))
    };
    let (mut named, mut missing) = (0, Vec::new());
    let is_document =
        |path: &str| ["ARCHITECTURE.md", "README.md"].contains(&path) || path.starts_with("docs/");
    let paths_of_documents = found.iter().map(|path| path.trim_start_matches('/'));
    for document in paths_of_documents.filter(|path| path.ends_with(".md") && is_document(path)) {
        if OTHERS.contains(&document) {
            continue;
        }
        let text = std::fs::read_to_string(repository().join(document)).expect("it is there");
        for (number, line) in text.lines().enumerate() {
            for path in paths(line) {
                named += 1;
                if !is_there(path) {
                    missing.push(format!("{document}:{}: {path}", number + 1));
                }
            }
        }
    }
    assert!(named > 200, "only {named} paths are found");
    assert!(missing.is_empty(), "these are no files or folders:\n{}\n", missing.join("\n"));
}

/// So does a comment of a source that names a page which has moved.
#[test]
fn every_page_that_a_source_names_is_there() {
    let mut found = Vec::new();
    list(&repository(), "", &mut found);
    let is_source = |path: &&String| [".rs", ".h", ".cuh", ".toml"].iter().any(|end| path.ends_with(end));
    let (mut named, mut missing) = (0, Vec::new());
    for file in found.iter().filter(is_source) {
        let path = file.trim_start_matches('/');
        // Its samples name what there is not.
        if path == "utils/architecture/tests/paths.rs" {
            continue;
        }
        let text = std::fs::read_to_string(repository().join(path)).expect("readable");
        let pages = text
            .split(|c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c)))
            .filter_map(|word| word.find("docs/").map(|start| &word[start..]))
            .map(|word| word.trim_end_matches('.'))
            .filter(|word| word.ends_with(".md"));
        for page in pages {
            named += 1;
            if !repository().join(page).exists() {
                missing.push(format!("{path}: {page}"));
            }
        }
    }
    assert!(named > 20, "only {named} pages are named");
    assert!(missing.is_empty(), "these are no pages:\n{}\n", missing.join("\n"));
}

#[test]
fn paths_are_read_with_and_without_their_folders() {
    let line = "1. `apps/echo/src/run.rs`, `Run::go` (`half.rs`); [this](../docs/c.md#x), src/a/b.rs: on. utils/fuzz/.";
    let named: Vec<_> = paths(line).collect();
    assert_eq!(named, ["apps/echo/src/run.rs", "half.rs", "docs/c.md", "src/a/b.rs", "utils/fuzz"]);
    assert_eq!(paths("a trait, `Self::rs`, and/or e.g. 3.5 GB/s").count(), 0);
}
