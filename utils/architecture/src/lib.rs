//! Reads which module of a crate imports which, and finds the imports that run up and those that
//! form a circle.
//!
//! The floors of each crate stand in docs/design/floors.md, from below. Two rules hold:
//!
//! - A top-level module imports from those below its own only.
//! - Among the children of one module, each with all that it contains, imports form no circle.
//!
//! A module and what it contains may import from each other. What a module only re-exports counts
//! as an import of the module that defines it. Tests are not looked at.
//!
//! | file | holds |
//! |---|---|
//! | `map` | the floors that docs/design/floors.md lists |
//! | `source` | Rust source as tokens, without tests |
//! | `imports` | the paths that a file names |
//! | `tree` | the modules of a crate, and what each imports |

mod imports;
mod map;

mod source;
mod tree;

pub use map::{Crate, crates};
pub use tree::Tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A rule that an import breaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// A top-level module that is in no floor.
    Unplaced(String),
    /// A floor that is no module.
    Missing(String),
    /// An import of `to`, which lies higher.
    Up {
        /// The file with the import.
        file: String,
        /// Its floor.
        from: String,
        /// The floor above.
        to: String,
        /// The path as it stands there.
        path: String,
    },
    /// Siblings that import from each other, and an import from each to the next.
    Circle {
        /// The module whose children they are.
        within: String,
        /// The siblings.
        members: Vec<String>,
        /// The imports.
        imports: Vec<String>,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unplaced(module) => {
                write!(f, "{module} is in no floor: add it to the table in docs/design/floors.md")
            }
            Self::Missing(module) => {
                write!(f, "there is no module {module}, which the table in docs/design/floors.md lists")
            }
            Self::Up { file, from, to, path } => {
                write!(
                    f,
                    "{file} imports {path}: {to} lies above {from}. Move what both need down, or pass it in"
                )
            }
            Self::Circle { within, members, imports } => {
                write!(f, "in {within}, these import from each other: {}", members.join(", "))?;
                imports.iter().try_for_each(|import| write!(f, "\n    {import}"))
            }
        }
    }
}

/// Checks a crate's modules against its floors, which are listed from below.
#[must_use]
pub fn check(tree: &Tree, floors: &[String]) -> Vec<Violation> {
    let mut found = Vec::new();
    let place = |name: &str| floors.iter().position(|floor| floor == name);
    let top: BTreeSet<_> = tree.top_level().collect();
    found.extend(
        top.iter().filter(|name| place(name).is_none()).map(|name| Violation::Unplaced((*name).to_owned())),
    );
    found.extend(
        floors
            .iter()
            .filter(|name| !top.contains(name.as_str()))
            .map(|name| Violation::Missing(name.clone())),
    );
    let mut levels: BTreeMap<String, Level> = BTreeMap::new();
    for import in tree.imports() {
        let Some((within, from, to)) = siblings(&import.from, &import.to) else { continue };
        if within.is_empty()
            && let (Some(low), Some(high)) = (place(from), place(to))
        {
            if high > low {
                found.push(Violation::Up {
                    file: import.file.clone(),
                    from: from.to_owned(),
                    to: to.to_owned(),
                    path: import.path.clone(),
                });
            }
            continue;
        }
        let text = format!("{}: {}", import.file, import.path);
        levels.entry(within.join("::")).or_default().add(from, to, text);
    }
    for (within, level) in levels {
        let within = if within.is_empty() { "the crate".to_owned() } else { within };
        found.extend(level.circles().into_iter().map(|(members, imports)| Violation::Circle {
            within: within.clone(),
            members,
            imports,
        }));
    }
    found.sort();
    found
}

/// Returns the lowest module that contains both, and which of its children contains each; nothing
/// if one contains the other.
fn siblings<'a>(from: &'a [String], to: &'a [String]) -> Option<(&'a [String], &'a str, &'a str)> {
    let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    Some((&from[..shared], from.get(shared)?, to.get(shared)?))
}

/// The imports between the children of one module.
#[derive(Default)]
struct Level(BTreeMap<String, BTreeMap<String, String>>);

impl Level {
    fn add(&mut self, from: &str, to: &str, import: String) {
        self.0.entry(from.to_owned()).or_default().entry(to.to_owned()).or_insert(import);
    }

    /// Returns the children that can be reached from `start` by imports.
    fn reach<'a>(&'a self, start: &'a str) -> BTreeSet<&'a str> {
        let (mut seen, mut left) = (BTreeSet::new(), vec![start]);
        while let Some(name) = left.pop() {
            for to in self.0.get(name).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(to.as_str()) {
                    left.push(to);
                }
            }
        }
        seen
    }

    /// Returns the groups of children that reach each other, and the imports within each group.
    fn circles(&self) -> Vec<(Vec<String>, Vec<String>)> {
        let reach: BTreeMap<&str, _> = self.0.keys().map(|name| (name.as_str(), self.reach(name))).collect();
        let reaches = |from: &str, to: &str| reach.get(from).is_some_and(|seen| seen.contains(to));
        let groups: BTreeSet<Vec<&str>> = reach
            .keys()
            .filter(|name| reaches(name, name))
            .map(|name| {
                reach.keys().copied().filter(|other| reaches(name, other) && reaches(other, name)).collect()
            })
            .collect();
        let within = |group: &[&str]| {
            let imports = |from: &&str| self.0[*from].iter().filter(|(to, _)| group.contains(&to.as_str()));
            group.iter().flat_map(imports).map(|(_, import)| import.clone()).collect()
        };
        groups
            .iter()
            .map(|group| (group.iter().map(|name| (*name).to_owned()).collect(), within(group)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A crate's sources in a folder of their own.
    struct Sources(PathBuf);

    impl Sources {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let folder =
                std::env::temp_dir().join(format!("gpunet-architecture-{name}-{}", std::process::id()));
            for (file, text) in files {
                let path = folder.join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Self(folder)
        }

        fn check(&self, floors: &[&str]) -> Vec<Violation> {
            let floors: Vec<_> = floors.iter().map(|&floor| floor.to_owned()).collect();
            check(&Tree::read(&self.0).unwrap(), &floors)
        }
    }

    impl Drop for Sources {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn up(violation: &Violation) -> Option<(&str, &str)> {
        match violation {
            Violation::Up { from, to, .. } => Some((from, to)),
            _ => None,
        }
    }

    fn ups(found: &[Violation]) -> BTreeSet<(&str, &str)> {
        found.iter().filter_map(up).collect()
    }

    #[test]
    fn imports_that_run_up_are_found_however_they_are_written() {
        let lib = "mod high; mod low; mod test_only; pub use high::Thing;";
        let tests = "fn f() {} #[cfg(test)] mod tests { use crate::high::Thing; }";
        for import in [
            "use crate::high::Thing;",
            "use super::high::{self, Thing};",
            "fn f() { crate::high::f(); }",
            "use crate::Thing;",
            "use crate::*; fn f(_: Thing) {}",
        ] {
            let files = [
                ("lib.rs", lib),
                ("high.rs", "pub struct Thing; pub fn f() {}"),
                ("low.rs", import),
                ("test_only.rs", tests),
            ];
            let sources = Sources::new("up", &files);
            assert_eq!(
                ups(&sources.check(&["test_only", "low", "high"])),
                [("low", "high")].into(),
                "{import}"
            );
            assert_eq!(sources.check(&["test_only", "high", "low"]), [], "{import}");
        }
    }

    #[test]
    fn siblings_that_import_from_each_other_are_found_and_a_parent_and_its_child_are_not() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a.rs", "mod b; mod c; mod d; use b::B; pub struct A;"),
            ("a/b.rs", "use super::{A, c::deep::C}; pub struct B;"),
            ("a/c.rs", "mod deep; pub use deep::C;"),
            ("a/c/deep.rs", "use crate::a::d::D; pub struct C;"),
            ("a/d.rs", "use super::b::B; pub struct D;"),
        ];
        let sources = Sources::new("circle", &files);
        let found = sources.check(&["a"]);
        assert!(
            matches!(&found[..], [Violation::Circle { within, members, imports }]
                if within == "a" && members == &["b", "c", "d"] && imports.len() == 3),
            "{found:?}"
        );
    }

    #[test]
    fn modules_that_the_map_lacks_and_those_that_are_gone_are_told() {
        let sources = Sources::new("map", &[("lib.rs", "mod here;"), ("here.rs", "")]);
        assert_eq!(
            sources.check(&["gone"]),
            [Violation::Unplaced("here".into()), Violation::Missing("gone".into())]
        );
    }
}
