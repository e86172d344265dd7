//! The paths that a file names, and the names that it binds by `use`.

use crate::source::Token;
use std::collections::BTreeMap;

/// What one file says of other modules.
#[derive(Debug, Default, Clone)]
pub struct Names {
    /// Paths that begin with `crate`, `super` or `self`, and those of `use`.
    pub paths: Vec<Vec<String>>,
    /// What `use` binds: the path behind each name.
    pub uses: BTreeMap<String, Vec<String>>,
    /// Modules of which everything is imported.
    pub globs: Vec<Vec<String>>,
    /// All names that occur.
    pub words: Vec<String>,
    /// What the file defines.
    pub defines: Vec<String>,
    /// Modules that are declared here, each in a file of its own.
    pub modules: Vec<String>,
}

/// Reads a file's tokens.
pub fn read(tokens: &[Token]) -> Names {
    let mut names = Names::default();
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at].as_str();
        let next = tokens.get(at + 1).map_or("", String::as_str);
        match token {
            "use" if next != "<" => {
                let end = (at..tokens.len()).find(|&i| tokens[i] == ";").unwrap_or(tokens.len());
                tree(&tokens[at + 1..end], &[], &mut names);
                at = end;
                continue;
            }
            "mod" if tokens.get(at + 2).is_some_and(|end| end == ";") => names.modules.push(next.to_owned()),
            "fn" | "struct" | "enum" | "union" | "trait" | "const" | "static" | "type" | "macro_rules" => {
                let name = if next == "!" { tokens.get(at + 2).map_or("", String::as_str) } else { next };
                names.defines.push(name.to_owned());
            }
            "crate" | "super" | "self"
                if next == "::" && at.checked_sub(1).is_none_or(|before| tokens[before] != "::") =>
            {
                let (path, end) = path(tokens, at);
                names.paths.push(path);
                at = end;
                continue;
            }
            _ => {}
        }
        if token.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            names.words.push(token.to_owned());
        }
        at += 1;
    }
    names
}

/// Reads a path of names and `::`.
fn path(tokens: &[Token], mut at: usize) -> (Vec<String>, usize) {
    let mut found = vec![tokens[at].clone()];
    while tokens.get(at + 1).is_some_and(|token| token == "::") {
        match tokens.get(at + 2) {
            Some(name) if name.starts_with(|c: char| c.is_alphanumeric() || c == '_') => {
                found.push(name.clone())
            }
            _ => break,
        }
        at += 2;
    }
    (found, at + 1)
}

/// Reads what stands between `use` and its semicolon.
fn tree(tokens: &[Token], before: &[String], names: &mut Names) {
    let (mut found, mut at) = (before.to_vec(), 0);
    while at < tokens.len() {
        match tokens[at].as_str() {
            "::" => at += 1,
            "{" => {
                for branch in branches(&tokens[at + 1..tokens.len() - 1]) {
                    tree(branch, &found, names);
                }
                return;
            }
            "*" => {
                names.globs.push(found.clone());
                names.paths.push(found);
                return;
            }
            "as" => {
                bind(tokens[at + 1].clone(), found, names);
                return;
            }
            name => {
                if name != "self" || found.is_empty() {
                    found.push(name.to_owned());
                }
                at += 1;
            }
        }
    }
    if let Some(name) = found.last().cloned() {
        bind(name, found, names);
    }
}

fn bind(name: String, path: Vec<String>, names: &mut Names) {
    names.paths.push(path.clone());
    names.uses.insert(name, path);
}

/// Splits at the commas that are in no further brace.
fn branches(tokens: &[Token]) -> Vec<&[Token]> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0, 0);
    for (i, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                found.push(&tokens[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    found.push(&tokens[start..]);
    found.retain(|branch| !branch.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tokens;

    fn paths(text: &str) -> Vec<String> {
        read(&tokens(text)).paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn trees_of_use_are_read() {
        assert_eq!(
            paths("use crate::a::{self, b::{C, D as E}, f::*}; pub(crate) use super::g;"),
            ["crate::a", "crate::a::b::C", "crate::a::b::D", "crate::a::f", "super::g"]
        );
        assert_eq!(read(&tokens("use crate::a::B as C;")).uses["C"], ["crate", "a", "B"]);
    }

    #[test]
    fn paths_without_use_are_read() {
        assert_eq!(paths("fn f() { crate::a::b(super::C::<D>::E); x::crate_ }"), ["crate::a::b", "super::C"]);
    }

    #[test]
    fn names_that_are_defined_are_read() {
        assert_eq!(
            read(&tokens("pub const fn f() {} struct S; macro_rules! m {} mod n;")).defines,
            ["fn", "f", "S", "m"]
        );
        assert_eq!(read(&tokens("mod a; mod b { }")).modules, ["a"]);
    }
}
