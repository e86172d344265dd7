//! The documents as pages: their length, their links, the versions that they state, and the form of
//! decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Lines of a page at most.
const PAGE: usize = 600;
/// Lines of the page by which a user decides, its tables included.
const PERFORMANCE: usize = 200;
/// Lines of the page that everybody reads first.
const ARCHITECTURE: usize = 250;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the pages in a folder and below, by their paths from the repository on. What is hidden
/// or built is left out.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(repository().join(folder)).expect("a folder") {
        let entry = entry.expect("readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = folder.join(&name);
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if entry.file_type().expect("known").is_dir() {
            pages(&path, found);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

fn all_pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    pages(Path::new(""), &mut found);
    assert!(found.len() > 30, "the pages are looked for in the wrong place: {found:?}");
    found
}

/// Returns a page's lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// Returns the name by which a link finds a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    let mut seen = BTreeMap::new();
    let mut found = Vec::new();
    for (_, line) in headings {
        let name = anchor(line.trim_start_matches('#').trim());
        let count = seen.entry(name.clone()).or_insert(0);
        found.push(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    found
}

/// Returns the targets of a line's links.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// A long page has two subjects.
#[test]
fn pages_are_short() {
    let mut long = Vec::new();
    for page in all_pages() {
        let limit = match page.to_str() {
            Some("ARCHITECTURE.md") => ARCHITECTURE,
            // It grows with each version.
            Some("CHANGELOG.md") => continue,
            // Made from reports, all tables of one on a page.
            Some(path) if path.starts_with("docs/measured/") => continue,
            Some("docs/performance.md") => PERFORMANCE,
            _ => PAGE,
        };
        let lines = read(&page).lines().count();
        if lines > limit {
            long.push(format!("{}: {lines} lines, and at most {limit} are allowed", page.display()));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn every_link_leads_somewhere() {
    let (mut followed, mut broken) = (0, Vec::new());
    for page in all_pages() {
        let text = read(&page);
        for (number, line) in prose(&text) {
            for link in links(line).filter(|link| !link.contains("://")) {
                followed += 1;
                let (path, name) =
                    link.split_once('#').map_or((link, None), |(path, name)| (path, Some(name)));
                let target = if path.is_empty() {
                    page.clone()
                } else {
                    page.parent().expect("a file is in a folder").join(path)
                };
                let is_there = repository().join(&target).exists();
                if !is_there
                    || name.is_some_and(|name| !anchors(&read(&target)).iter().any(|found| found == name))
                {
                    broken.push(format!("{}:{}: {link}", page.display(), number + 1));
                }
            }
        }
    }
    assert!(followed > 200, "only {followed} links are found");
    assert!(broken.is_empty(), "these links lead nowhere:\n{}\n", broken.join("\n"));
}

#[test]
fn every_decision_has_its_three_parts_and_is_listed() {
    let folder = Path::new("docs/design/decisions");
    let index = read(folder.join("README.md"));
    let mut found = Vec::new();
    pages(folder, &mut found);
    assert!(found.len() > 50, "{found:?}");
    for page in found {
        let name = page.file_name().and_then(|name| name.to_str()).expect("a name");
        if name == "README.md" {
            continue;
        }
        let text = read(&page);
        let title = text.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a page has a title");
        assert!(
            index.contains(&format!("[{title}]({name})")),
            "decisions/README.md lacks {title:?} ({name})"
        );
        let parts: Vec<&str> = text.split("\n\n").skip(1).collect();
        let begins = ["**Context.** ", "**Decision.** ", "**Consequence.** "];
        assert!(
            parts.len() == begins.len()
                && parts.iter().zip(begins).all(|(part, begin)| part.starts_with(begin)),
            "{name} has other parts than context, decision, consequence"
        );
    }
}

/// Returns a constant's value.
fn constant(file: &str, name: &str) -> String {
    let text = read(file);
    let line = text.lines().find(|line| line.contains(&format!("const {name}: u32 = ")));
    let value =
        line.and_then(|line| line.split("= ").nth(1)).unwrap_or_else(|| panic!("{file} has no {name}"));
    value.trim_end_matches(';').to_owned()
}

/// Where pages state a version, and where the code does.
#[test]
fn versions_are_those_of_the_code() {
    let contract = constant("gpunet-core/abi/src/lib.rs", "VERSION");
    let attach = constant("gpunet-proxy/src/wire.rs", "PROTOCOL");
    let teams = constant("gpunet-proxy/src/team/frames.rs", "PROTOCOL");
    for (page, said) in [
        ("docs/design/protocol.md", format!("\nVersion {contract}. ")),
        ("README.md", format!("at version {contract} ")),
        ("docs/design/attach-protocol.md", format!("(this is {attach})")),
        ("docs/design/protocol.md", format!("(this is {teams})")),
    ] {
        assert!(read(page).contains(&said), "{page} does not say {said:?}");
    }
    let manifest = read("Cargo.toml");
    let rust = manifest.split_once("rust-version = \"").expect("it has one").1;
    let rust = rust.split('"').next().expect("it ends");
    assert!(
        read("README.md").contains(&format!("Rust {rust} or newer")),
        "the README names another Rust than {rust}"
    );
}

/// Every crate that a manifest of the workspace takes from elsewhere has a row that says what for.
#[test]
fn every_dependency_is_explained() {
    let page = read("docs/design/dependencies.md");
    let rows = page.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.split('|').nth(1));
    let explained: BTreeSet<&str> = rows.flat_map(|cell| cell.split([',', ' '])).collect();
    let manifest = read("Cargo.toml");
    let members =
        manifest.split_once("members = [").expect("it lists them").1.split_once(']').expect("it ends").0;
    let mut missing = BTreeSet::new();
    for member in members.split('"').skip(1).step_by(2) {
        let text = read(Path::new(member).join("Cargo.toml"));
        for line in text.lines() {
            let name = line.split(['.', ' ']).next().unwrap_or_default();
            let is_foreign = line.contains("workspace = true") && !name.starts_with("gpu");
            let is_setting = [
                "version",
                "edition",
                "rust-version",
                "license",
                "repository",
                "keywords",
                "categories",
                "exclude",
                "publish",
                "workspace",
            ]
            .contains(&name);
            if is_foreign && !is_setting && !explained.contains(name) {
                missing.insert(name.to_owned());
            }
        }
    }
    assert!(missing.is_empty(), "docs/design/dependencies.md does not explain {missing:?}");
}

#[test]
fn anchors_are_made_as_on_github() {
    assert_eq!(anchor("What to write instead of ..."), "what-to-write-instead-of-");
    assert_eq!(anchor("A caller's own CUDA"), "a-callers-own-cuda");
    assert_eq!(anchor("A stream that the proxy drives (tcp)"), "a-stream-that-the-proxy-drives-tcp");
    let text = "# A\n```sh\n# not a heading\n```\n## B\n## B\n";
    assert_eq!(anchors(text), ["a", "b", "b-1"]);
    assert_eq!(links("[a](x.md#y) and [b](z.md)").collect::<Vec<_>>(), ["x.md#y", "z.md"]);
}
