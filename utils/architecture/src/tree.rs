//! The modules of a crate, and what each imports.

use crate::imports::{Names, read};
use crate::source::{tokens, without_tests};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// A module's path below its crate; that of the root is empty.
pub type ModulePath = Vec<String>;

/// An import of one module by another.
#[derive(Debug, Clone)]
pub struct Import {
    /// The file with the import, relative to the sources.
    pub file: String,
    /// The module with the import.
    pub from: ModulePath,
    /// The module that defines what is imported.
    pub to: ModulePath,
    /// The path as it stands there.
    pub path: String,
}

/// The modules of a crate.
#[derive(Debug, Default)]
pub struct Tree {
    modules: BTreeMap<ModulePath, Module>,
}

#[derive(Debug)]
struct Module {
    file: String,
    names: Names,
}

impl Tree {
    /// Reads a crate: `lib.rs` and `main.rs`, and all modules below them that are not for tests.
    ///
    /// # Errors
    /// When a file cannot be read, or a module has none.
    pub fn read(sources: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        for root in ["main.rs", "lib.rs"].into_iter().filter(|root| sources.join(root).exists()) {
            tree.add(sources, root, Vec::new())?;
        }
        Ok(tree)
    }

    fn add(&mut self, sources: &Path, file: &str, path: ModulePath) -> io::Result<()> {
        let text = std::fs::read_to_string(sources.join(file))
            .map_err(|error| io::Error::other(format!("{file}: {error}")))?;
        let names = read(&without_tests(&tokens(&text)).0);
        let children = names.modules.clone();
        self.modules.insert(path.clone(), Module { file: file.to_owned(), names });
        for child in children {
            let mut path = path.clone();
            path.push(child);
            let file = format!("{}.rs", path.join("/"));
            let file = if sources.join(&file).exists() { file } else { format!("{}/mod.rs", path.join("/")) };
            self.add(sources, &file, path)?;
        }
        Ok(())
    }

    /// Returns the names of the modules directly below the root.
    pub fn top_level(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().filter(|path| path.len() == 1).map(|path| path[0].as_str())
    }

    /// Returns the imports of modules by modules of this crate.
    #[must_use]
    pub fn imports(&self) -> Vec<Import> {
        let mut found = Vec::new();
        for (from, module) in &self.modules {
            let add = |path: &[String]| {
                let to = self.defines(from, path, 0)?;
                (to != *from).then(|| Import {
                    file: module.file.clone(),
                    from: from.clone(),
                    to,
                    path: path.join("::"),
                })
            };
            found.extend(module.names.paths.iter().filter_map(|path| add(path)));
            // What comes by an asterisk, of what the other module has by `use` itself.
            for glob in &module.names.globs {
                let Some(other) = self.defines(from, glob, 0).filter(|other| other != from) else { continue };
                for name in
                    self.modules[&other].names.uses.keys().filter(|name| module.names.words.contains(name))
                {
                    let mut path = glob.clone();
                    path.push(name.clone());
                    found.extend(add(&path));
                }
            }
        }
        found
    }

    /// Returns the module of this crate that defines what `path` names in `from`.
    fn defines(&self, from: &ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
        let (mut at, mut left) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (from.clone(), &path[1..]),
            "super" => (from[..from.len().checked_sub(1)?].to_vec(), &path[1..]),
            name => {
                // Of this edition: a module below this one, or something that it has by `use`; or
                // else a crate.
                let module = &self.modules[from];
                let is_here = module.names.modules.iter().any(|child| child == name)
                    || module.names.uses.get(name).is_some_and(|used| used.as_slice() != path);
                if !is_here {
                    return None;
                }
                (from.clone(), path)
            }
        };
        while let Some(name) = left.first() {
            let mut child = at.clone();
            if name == "super" {
                at.pop()?;
            } else {
                child.push(name.clone());
                if self.modules.contains_key(&child) {
                    at = child;
                } else {
                    return Some(self.binds(&at, left, depth).unwrap_or(at));
                }
            }
            left = &left[1..];
        }
        Some(at)
    }

    /// Returns the module from which `at` has the first name of `left` by `use`.
    fn binds(&self, at: &ModulePath, left: &[String], depth: usize) -> Option<ModulePath> {
        let names = &self.modules.get(at)?.names;
        if depth > 16 || names.defines.contains(&left[0]) {
            return None;
        }
        if let Some(used) = names.uses.get(&left[0]) {
            let path: Vec<String> = used.iter().chain(&left[1..]).cloned().collect();
            return self.defines(at, &path, depth + 1);
        }
        names.globs.iter().find_map(|glob| {
            let other = self.defines(at, glob, depth + 1)?;
            let module = &self.modules.get(&other)?.names;
            if module.defines.contains(&left[0]) || module.modules.contains(&left[0]) {
                let mut child = other.clone();
                child.push(left[0].clone());
                return Some(if self.modules.contains_key(&child) { child } else { other });
            }
            self.binds(&other, left, depth + 1)
        })
    }
}
