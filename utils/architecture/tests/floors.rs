//! The imports of every crate, against the floors in docs/design/floors.md.

use gpunet_architecture::{Tree, check, crates};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn no_import_runs_up() {
    let text = std::fs::read_to_string(repository().join("docs/design/floors.md")).expect("it is there");
    let crates = crates(&text);
    let mut found = Vec::new();
    for listed in &crates {
        let tree = Tree::read(&repository().join(&listed.folder).join("src"))
            .unwrap_or_else(|error| panic!("{}: {error}", listed.folder));
        let violations = check(&tree, &listed.floors);
        found.extend(violations.iter().map(|violation| format!("{}: {violation}", listed.folder)));
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Every member of the workspace has floors, but those of a single file.
#[test]
fn the_map_has_every_crate() {
    let text = std::fs::read_to_string(repository().join("docs/design/floors.md")).expect("it is there");
    let listed: BTreeSet<String> = crates(&text).into_iter().map(|listed| listed.folder).collect();
    let manifest = std::fs::read_to_string(repository().join("Cargo.toml")).expect("it is there");
    let members =
        manifest.split_once("members = [").expect("it lists them").1.split_once(']').expect("it ends").0;
    let missing: Vec<&str> = members
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|member| {
            Tree::read(&repository().join(member).join("src")).expect("readable").top_level().next().is_some()
        })
        .filter(|member| !listed.contains(*member))
        .collect();
    assert!(missing.is_empty(), "the table in docs/design/floors.md lacks {missing:?}");
}
