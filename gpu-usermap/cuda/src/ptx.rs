//! PTX text without the functions that nobody calls.
//!
//! The driver assembles all of a module before the first launch, also the kernels that a program
//! never launches; a kernel with sockets takes it half a second or more. So the loading calls of
//! [`Device`](crate::Device) hand over only what the kernels need. The reader here knows the
//! statements of a module, not its instructions: where functions begin and end, and which names
//! they mention. Of a text with a statement that it does not know it leaves nothing out.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Returns a module with these kernels only: without all other kernels, and without the functions
/// that neither these nor any variable needs. Variables stay.
///
/// A text that it cannot read completely (one with debug information, for example) is returned
/// whole.
///
/// # Examples
/// ```
/// let module = "
///     .version 7.0
///     .target sm_80
///     .address_size 64
///     .func helper() { ret; }
///     .visible .entry used() { call helper; ret; }
///     .visible .entry unused() { ret; }
/// ";
/// let only = gpunet_cuda::ptx::only_entries(module, &["used"]);
/// assert!(only.contains("helper") && !only.contains("unused"));
/// ```
#[must_use]
pub fn only_entries<'a>(ptx: &'a str, entries: &[&str]) -> Cow<'a, str> {
    let Some(statements) = read(ptx) else { return Cow::Borrowed(ptx) };
    let needed = needed(&statements, entries.iter().copied());
    keep(ptx, &statements, &needed)
}

/// Returns texts that are linked together, without the functions that no kernel or variable of any
/// of them needs.
///
/// A text that it cannot read completely is returned whole, and whatever it mentions stays in the
/// others.
///
/// # Examples
/// ```
/// let kernel = ".version 7.0 .target sm_80 .address_size 64
///     .extern .func send();
///     .visible .entry kernel() { call send; ret; }";
/// let library = ".version 7.0 .target sm_80 .address_size 64
///     .visible .func send() { ret; }
///     .visible .func receive() { ret; }";
/// let linked = gpunet_cuda::ptx::only_called(&[kernel, library]);
/// assert_eq!(linked[0], kernel);
/// assert!(linked[1].contains("send") && !linked[1].contains("receive"));
/// ```
#[must_use]
pub fn only_called<'a>(texts: &[&'a str]) -> Vec<Cow<'a, str>> {
    let each: Vec<_> = texts.iter().map(|text| read(text)).collect();
    let unread = texts.iter().zip(&each).filter(|(_, read)| read.is_none());
    let mentioned: Vec<&str> = unread.flat_map(|(text, _)| words(text)).collect();
    let all: Vec<_> = each.iter().flatten().flatten().copied().collect();
    let entries = all.iter().filter_map(|statement| statement.function.filter(|f| f.is_entry));
    let needed = needed(&all, entries.map(|entry| entry.name).chain(mentioned));
    let cut = |(text, read): (&&'a str, &Option<Vec<_>>)| match read {
        Some(statements) => keep(text, statements, &needed),
        None => Cow::Borrowed(*text),
    };
    texts.iter().zip(&each).map(cut).collect()
}

/// A statement of a module, with the comments and spaces before it.
#[derive(Clone, Copy)]
struct Statement<'a> {
    text: &'a str,
    /// `None`: a variable or a directive, which stays.
    function: Option<Function<'a>>,
}

/// What a statement declares or defines.
#[derive(Clone, Copy)]
struct Function<'a> {
    name: &'a str,
    is_entry: bool,
}

/// The functions that `roots` and all variables reach.
fn needed<'a>(statements: &[Statement<'a>], roots: impl Iterator<Item = &'a str>) -> HashSet<&'a str> {
    let mut functions: HashMap<&str, Vec<&'a str>> = HashMap::new();
    for statement in statements {
        if let Some(function) = statement.function {
            functions.entry(function.name).or_default().push(statement.text);
        }
    }
    let variables = statements.iter().filter(|statement| statement.function.is_none());
    let mut open: Vec<&str> = roots.chain(variables.flat_map(|variable| words(variable.text))).collect();
    let mut needed = HashSet::new();
    while let Some(name) = open.pop() {
        let Some((&name, texts)) = functions.get_key_value(name) else { continue };
        if needed.insert(name) {
            open.extend(texts.iter().flat_map(|text| words(text)));
        }
    }
    needed
}

/// The text without the functions that are not needed.
fn keep<'a>(text: &'a str, statements: &[Statement<'_>], needed: &HashSet<&str>) -> Cow<'a, str> {
    let stays = |statement: &&Statement<'_>| statement.function.is_none_or(|f| needed.contains(f.name));
    if statements.iter().all(|statement| stays(&statement)) {
        return Cow::Borrowed(text);
    }
    statements.iter().filter(stays).map(|statement| statement.text).collect()
}

/// All statements of a module; `None` if there is one that it does not know.
fn read(text: &str) -> Option<Vec<Statement<'_>>> {
    let mut tokens = Tokens { text, at: 0 };
    let mut statements = Vec::new();
    loop {
        let start = tokens.at;
        let Some(token) = tokens.next() else {
            // What is left is comments and spaces.
            statements.push(Statement { text: &text[start..], function: None });
            return (tokens.at == text.len()).then_some(statements);
        };
        let mut word = token;
        while matches!(word, ".visible" | ".extern" | ".weak" | ".common") {
            word = tokens.next()?;
        }
        let function = match word {
            ".version" | ".address_size" => tokens.next().map(|_| None)?,
            ".target" => tokens.list()?,
            ".global" | ".const" | ".shared" | ".pragma" => tokens.until_semicolon()?,
            ".func" | ".entry" => Some(Function { name: tokens.function()?, is_entry: word == ".entry" }),
            _ => return None,
        };
        statements.push(Statement { text: &text[start..tokens.at], function });
    }
}

/// The names, directives, numbers and opcodes of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    Tokens { text, at: 0 }.filter(|token| token.bytes().all(is_of_word))
}

const fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// Words, strings and single other characters; no comments. It ends before what is not complete.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        let skipped = rest.len() - without_comments(rest)?.len();
        let rest = &rest[skipped..];
        let length = match rest.bytes().next() {
            None => 0,
            Some(b'"') => rest[1..].find('"')? + 2,
            Some(byte) if is_of_word(byte) => rest.bytes().take_while(|&b| is_of_word(b)).count(),
            Some(_) => rest.chars().next()?.len_utf8(),
        };
        self.at += skipped + length;
        (length > 0).then(|| &rest[..length])
    }
}

/// What follows the comments and spaces at the beginning; `None` if a comment does not end.
fn without_comments(text: &str) -> Option<&str> {
    let mut rest = text.trim_start();
    loop {
        let after = if rest.starts_with("//") {
            &rest[rest.find('\n').unwrap_or(rest.len())..]
        } else if rest.starts_with("/*") {
            &rest[rest.find("*/")? + 2..]
        } else {
            return Some(rest);
        };
        rest = after.trim_start();
    }
}

impl<'a> Tokens<'a> {
    /// Passes over words with commas between them.
    fn list(&mut self) -> Option<Option<Function<'a>>> {
        loop {
            self.next()?;
            let at = self.at;
            if self.next() != Some(",") {
                self.at = at;
                return Some(None);
            }
        }
    }

    /// Passes over a variable.
    fn until_semicolon(&mut self) -> Option<Option<Function<'a>>> {
        (self.pass(|token| token == ";")? == ";").then_some(None)
    }

    /// Passes over a function after `.func` or `.entry`; returns its name.
    fn function(&mut self) -> Option<&'a str> {
        // Before the name there may be a result, in parentheses, and attributes.
        let name = self.pass(|token| token.bytes().all(is_of_word) && !token.starts_with('.'))?;
        if self.pass(|token| token == ";" || token == "{")? == "{" {
            self.pass(|token| token == "}")?;
        }
        Some(name)
    }

    /// Passes over everything up to a token that is wanted, outside of the brackets that open on
    /// the way.
    fn pass(&mut self, wanted: impl Fn(&str) -> bool) -> Option<&'a str> {
        let mut open = Vec::new();
        loop {
            let token = self.next()?;
            if open.is_empty() && wanted(token) {
                return Some(token);
            }
            match token {
                "(" => open.push(")"),
                "[" => open.push("]"),
                "{" => open.push("}"),
                ")" | "]" | "}" if open.pop() != Some(token) => return None,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
