//! What a release depends on: one version in all files, which crates are published and with what,
//! and the licences of dependencies.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::vec::IntoIter;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns what cargo knows of the packages on the platform of releases.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--offline", "--locked"])
        .arg("--filter-platform=x86_64-unknown-linux-gnu")
        .current_dir(repository())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    serde_json::from_value(metadata["packages"].take()).expect("a list of packages")
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or_default()
}

fn list<'a>(package: &'a Value, key: &str) -> &'a [Value] {
    package[key].as_array().map_or(&[], Vec::as_slice)
}

/// Returns what stands between two texts, behind the first of them.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let rest = text.split_once(begin).unwrap_or_else(|| panic!("no {begin:?}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("no {end:?}")).0
}

#[test]
fn every_file_names_the_same_version() {
    let version = between(&read("Cargo.toml"), "\nversion = \"", "\"").to_owned();
    let series = version.rsplit_once('.').expect("three numbers").0;
    for other in ["utils/fuzz/Cargo.toml", "utils/tokens-beside-axum/Cargo.toml", "python/Cargo.toml"] {
        assert_eq!(between(&read(other), "\nversion = \"", "\""), version, "{other}");
    }
    let changes = read("CHANGELOG.md");
    assert_eq!(between(&changes, "\n## ", "\n").split(',').next(), Some(&*version), "CHANGELOG.md");
    let mut named = 0;
    for manifest in [
        "Cargo.toml",
        "gpunet-device/records/host/Cargo.toml",
        "gpunet-device/serve/host/Cargo.toml",
        "gpunet-proxy/channel/Cargo.toml",
    ] {
        let lines = read(manifest);
        for line in lines.lines().filter(|line| line.contains("path = \"") && line.contains("version = \"")) {
            assert_eq!(between(line, "version = \"", "\""), version, "{manifest}: {line}");
            named += 1;
        }
    }
    assert!(named > 12, "only {named} dependencies have a version");
    let mut pages: Vec<_> =
        ["docs/c.md", "docs/installing.md", "docs/python.md"].map(|page| repository().join(page)).into();
    let examples = std::fs::read_dir(repository().join("gpunet-proxy/capi/examples")).expect("examples");
    pages.extend(examples.map(|entry| entry.expect("readable").path().join("CMakeLists.txt")));
    let mut found = 0;
    for page in pages.into_iter().filter(|page| page.exists()) {
        let text = read(&page);
        let asked =
            text.split("find_package(gpunet ").skip(1).filter_map(|rest| rest.split([' ', ')']).next());
        let archives = text.split("gpunet-").skip(1).filter_map(|rest| rest.split_once("-x86_64-linux"));
        let wheels = text.split("gpunet-").skip(1).filter_map(|rest| rest.split_once("-cp311-abi3-"));
        let debian = text.split("gpunetd_").skip(1).filter_map(|rest| rest.split_once("_amd64.deb"));
        let whole = archives
            .chain(wheels)
            .chain(debian)
            .map(|(name, _)| name)
            .filter(|name| !name.contains(char::is_whitespace));
        for (said, wanted) in asked.map(|said| (said, series)).chain(whole.map(|said| (said, &*version))) {
            assert_eq!(said, wanted, "{}", page.display());
            found += 1;
        }
    }
    assert!(found > 6, "only {found} versions are named");
}

/// docs/installing.md lists the crates that are published.
#[test]
fn published_crates_are_listed_and_complete() {
    let packages = packages();
    let own = || packages.iter().filter(|package| package["source"].is_null());
    let published: BTreeSet<&str> =
        own().filter(|package| package["publish"].is_null()).map(|package| text(package, "name")).collect();
    let page = read("docs/installing.md");
    let rows = between(&page, "\n## Crates\n", "\n## ").lines().filter(|line| line.starts_with("| `"));
    let listed: BTreeSet<&str> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2))
        .collect();
    assert_eq!(listed, published, "the crates of docs/installing.md, and those without `publish = false`");
    let mut wrong = Vec::new();
    for package in own().filter(|package| published.contains(text(package, "name"))) {
        let name = text(package, "name");
        let folder = Path::new(text(package, "manifest_path")).parent().expect("a folder");
        for key in ["description", "license", "repository", "rust_version"] {
            if text(package, key).is_empty() {
                wrong.push(format!("{name} has no {key}"));
            }
        }
        if list(package, "keywords").is_empty() || list(package, "categories").is_empty() {
            wrong.push(format!("{name} has no keywords or no categories"));
        }
        if !folder.join(text(package, "readme")).is_file() {
            wrong.push(format!("{name} has no README.md"));
        }
        if package["metadata"]["docs"]["rs"].is_null() {
            wrong.push(format!("{name} has no settings for docs.rs"));
        }
        for needed in list(package, "dependencies").iter().filter(|needed| needed["kind"] != "dev") {
            let other = text(needed, "name");
            if needed["path"].is_string() && (!published.contains(other) || text(needed, "req") == "*") {
                wrong.push(format!("{name} needs {other}, which is not published or has no version there"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

type Words = Peekable<IntoIter<String>>;
type Allowed<'a> = &'a dyn Fn(&str) -> bool;

/// Returns whether an SPDX expression can be met by licences that are allowed. `/` is an old OR,
/// and WITH names an exception that grants more.
fn is_allowed(expression: &str, allowed: Allowed) -> bool {
    fn one(words: &mut Words, allowed: Allowed) -> bool {
        let word = words.next().unwrap_or_default();
        if word == "(" {
            let inside = any(words, allowed);
            return words.next().as_deref() == Some(")") && inside;
        }
        if words.next_if(|next| next == "WITH").is_some() {
            words.next();
        }
        allowed(&word)
    }
    fn all(words: &mut Words, allowed: Allowed) -> bool {
        let mut met = one(words, allowed);
        while words.next_if(|next| next == "AND").is_some() {
            met &= one(words, allowed);
        }
        met
    }
    fn any(words: &mut Words, allowed: Allowed) -> bool {
        let mut met = all(words, allowed);
        while words.next_if(|next| next == "OR").is_some() {
            met |= all(words, allowed);
        }
        met
    }
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<String> = spaced.split_whitespace().map(str::to_owned).collect();
    let mut words = words.into_iter().peekable();
    any(&mut words, allowed) && words.next().is_none()
}

/// As `cargo deny` does, by the same file.
#[test]
fn licences_of_dependencies_are_allowed() {
    let rules = read("deny.toml");
    let quoted =
        |list: &str| -> BTreeSet<String> { list.split('"').skip(1).step_by(2).map(str::to_owned).collect() };
    let everywhere = quoted(between(&rules, "\nallow = [", "]"));
    let exceptions: BTreeMap<String, BTreeSet<String>> = between(&rules, "\nexceptions = [", "\n")
        .split("{ name = \"")
        .skip(1)
        .map(|rest| {
            (rest.split('"').next().unwrap_or_default().to_owned(), quoted(between(rest, "allow = [", "]")))
        })
        .collect();
    let packages = packages();
    let foreign: Vec<&Value> = packages.iter().filter(|package| package["source"].is_string()).collect();
    assert!(foreign.len() > 100, "only {} dependencies", foreign.len());
    let refused: Vec<String> = foreign
        .iter()
        .filter(|package| {
            let exception = exceptions.get(text(package, "name"));
            let allowed =
                |name: &str| everywhere.contains(name) || exception.is_some_and(|names| names.contains(name));
            !is_allowed(text(package, "license"), &allowed)
        })
        .map(|package| format!("{}: {:?}", text(package, "name"), package["license"]))
        .collect();
    assert!(refused.is_empty(), "deny.toml does not allow the licences of\n{}\n", refused.join("\n"));
}

#[test]
fn licences_are_read_as_expressions() {
    let is_allowed = |text: &str| is_allowed(text, &|name: &str| ["MIT", "ISC"].contains(&name));
    assert!(is_allowed("MIT") && is_allowed("GPL-3.0 OR MIT") && is_allowed("MIT/Apache-2.0"));
    assert!(is_allowed("(GPL-3.0 OR MIT) AND ISC") && is_allowed("MIT WITH LLVM-exception OR GPL-3.0"));
    assert!(!is_allowed("GPL-3.0") && !is_allowed("MIT AND GPL-3.0") && !is_allowed(""));
    assert!(
        !is_allowed("(MIT") && !is_allowed("MIT MIT") && !is_allowed("MIT AND (GPL-3.0 OR BSD-3-Clause)")
    );
}
