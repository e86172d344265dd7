//! The commands of README.md and docs/: where `.ci/commands` finds them, and that what they name is
//! there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Pages whose programs are extracted and run by the checks of the C library.
const OTHERS: [&str; 2] = ["docs/c.md", "docs/c-host.md"];

/// What a fenced block may be. Commands are `sh`, which says before what it needs or is run as
/// printed, and `console`, a command with what it prints; `text` is what `gpunet-bench render`
/// shows of a report. Tests of the wheel run the programs in Python.
const LANGUAGES: [&str; 11] =
    ["sh", "console", "text", "rust", "rust,no_run", "rust,ignore", "toml", "c", "cpp", "cmake", "python"];

/// First words of commands.
const COMMANDS: [&str; 18] = [
    "cargo",
    "gpunetd",
    "gpunetctl",
    "printf",
    "nc",
    "socat",
    "redis-cli",
    "redis-benchmark",
    "utils",
    "apps",
    "cmake",
    "mpirun",
    "torchrun",
    "srun",
    "systemctl",
    "docker",
    "podman",
    "unshare",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(repository().join(path.as_ref()))
        .unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

/// Returns the files in a folder and below that are chosen, by their paths from the repository on.
fn files(folder: &str, is_chosen: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(repository().join(folder)).expect("a folder") {
        let entry = entry.expect("readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if entry.file_type().expect("known").is_dir() {
            files(&path, is_chosen, found);
        } else if is_chosen(&path) {
            found.push(path);
        }
    }
}

fn documents() -> Vec<String> {
    let mut found = vec!["README.md".to_owned()];
    files("docs", &|path| path.ends_with(".md") && !OTHERS.contains(&path), &mut found);
    found
}

/// Returns whether a line is a command: it begins with the name of a program, perhaps behind
/// variables.
fn is_command(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| {
        let name = word.split('=').next().unwrap_or_default();
        word.contains('=') && !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    });
    let Some(first) = words.next() else { return false };
    let first = first.split('/').next().unwrap_or_default();
    // A name alone is a row of a list, as in the map of crates.
    COMMANDS.contains(&first)
        || first.starts_with("gpunet-") && words.next().is_some_and(|word| word.starts_with('-'))
}

/// A command that is not in a block of commands is run by nobody.
#[test]
fn every_command_is_run_or_says_what_it_needs() {
    let ci = read(".ci/run");
    assert!(ci.contains("\nlimit 900 .ci/commands "), ".ci/run does not run the commands of the documents");
    let is_run =
        |line: &str| ci.lines().any(|run| run.starts_with("limit ") && run.ends_with(&format!(" {line}")));
    let (mut wrong, mut blocks) = (Vec::new(), 0);
    for page in documents() {
        let text = read(&page);
        let mut fence: Option<&str> = None;
        let mut is_first = false;
        for (number, line) in text.lines().enumerate() {
            let place = || format!("{page}:{}: {line}", number + 1);
            if let Some(language) = line.trim_start().strip_prefix("```") {
                if fence.is_none() {
                    if !LANGUAGES.contains(&language) {
                        wrong.push(format!("{} is none of {LANGUAGES:?}", place()));
                    }
                    blocks += usize::from(["sh", "console"].contains(&language));
                }
                fence = if fence.is_none() { Some(language) } else { None };
                is_first = true;
                continue;
            }
            if fence == Some("console") && is_first && !line.starts_with("$ ") {
                wrong.push(format!("{}: a console begins with a command", place()));
            }
            is_first = false;
            if fence.is_none()
                && line.strip_prefix("    ").is_some_and(|line| is_command(line) && !is_run(line))
            {
                wrong.push(format!("{}: put it into a fenced block of sh or console", place()));
            }
        }
    }
    assert!(blocks > 15, "only {blocks} blocks have commands");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the words that follow `flag` in the commands of a page.
fn operands<'a>(text: &'a str, flag: &str) -> Vec<&'a str> {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || "`)(".contains(c)).collect();
    let named = words.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1]);
    named.map(|word| word.trim_end_matches(['.', ',', ';', ':'])).collect()
}

/// A command that names a target which there is not fails at its reader's.
#[test]
fn targets_that_commands_name_are_there() {
    let mut manifests = Vec::new();
    files("", &|path| path.ends_with("Cargo.toml") && !path.contains("/tests/"), &mut manifests);
    let (mut tests, mut binaries, mut benches, mut packages) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for manifest in manifests {
        let folder = repository().join(&manifest).parent().expect("a file is in a folder").to_owned();
        let text = read(&manifest);
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            } else if let Some(name) = line.strip_prefix("name = \"").and_then(|rest| rest.split('"').next())
            {
                let name = name.to_owned();
                match section {
                    "[package]" => {
                        binaries.insert(name.clone());
                        packages.insert(name)
                    }
                    "[[bin]]" => binaries.insert(name),
                    "[[test]]" => tests.insert(name),
                    "[[bench]]" => benches.insert(name),
                    _ => false,
                };
            }
        }
        for (kind, found) in [("tests", &mut tests), ("benches", &mut benches), ("src/bin", &mut binaries)] {
            for entry in std::fs::read_dir(folder.join(kind)).into_iter().flatten() {
                let path = entry.expect("readable").path();
                let is_target =
                    path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").exists();
                if is_target {
                    found.insert(path.file_stem().expect("a name").to_string_lossy().into_owned());
                }
            }
        }
    }
    let mut pages = documents();
    pages.extend(["ARCHITECTURE.md".to_owned(), "SECURITY.md".to_owned()]);
    pages.extend(OTHERS.map(str::to_owned));
    files("apps", &|path| path.ends_with(".md"), &mut pages);
    files("utils", &|path| path.ends_with(".md"), &mut pages);
    let (mut named, mut missing) = (0, Vec::new());
    for page in pages {
        let text = read(&page);
        for (flag, there) in
            [("--test", &tests), ("--bin", &binaries), ("--bench", &benches), ("-p", &packages)]
        {
            for target in operands(&text, flag) {
                // `-p` is an option of other programs, too. `many` is the reader's program.
                if flag == "-p" && !target.starts_with("gpu") || page == "docs/kernels.md" && target == "many"
                {
                    continue;
                }
                named += 1;
                if !there.contains(target) {
                    missing.push(format!("{page}: {flag} {target}"));
                }
            }
        }
    }
    assert!(named > 40, "only {named} targets are found");
    assert!(missing.is_empty(), "these are no targets:\n{}\n", missing.join("\n"));
}

#[test]
fn commands_are_told_from_other_lines() {
    assert!(is_command("cargo run --release --bin gpunet-echo"));
    assert!(is_command("RUSTFLAGS=\"--cfg\" cargo test"));
    assert!(is_command("gpunet-bench --device cpu"));
    assert!(!is_command("gpunet-core/abi/     gpunet-abi      words"));
    assert!(!is_command("63  62  61  60"));
    assert_eq!(operands("(`cargo test --test floors`): --test a, --bin b", "--test"), ["floors", "a"]);
}
