//! The rules every PTX file of this project must meet. Each stands for a bug that the compiler will not report.

use std::fmt;

use crate::text::{Instruction, Module};

/// A rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Short name, as `--allow` takes it.
    pub name: &'static str,
    /// What goes wrong when it is broken, and what to do instead.
    pub why: &'static str,
    find: fn(&str, &Module) -> Vec<(usize, String)>,
}

/// Every rule.
pub const RULES: &[Rule] = &[
    Rule {
        name: "aligned-barrier",
        why: "the compiler copies barriers into both arms of a branch, and an aligned barrier in divergent code is undefined; \
              use the unaligned `barrier.sync` by inline assembly",
        find: |_, module| find(module, is_aligned_barrier),
    },
    Rule {
        name: "non-coherent-load",
        why: "`ld.global.nc` may return stale data when another agent writes the memory; it comes from a reference (`&T`) to device \
              memory, so use raw pointers and the word types",
        find: |_, module| find(module, is_non_coherent),
    },
    Rule {
        name: "atomic-rmw",
        why: "the compiler gives read-modify-write operations no scope and no ordering (PTX reads that as relaxed, GPU scope); \
              use loads, stores and compare_exchange",
        find: |_, module| find(module, is_read_modify_write),
    },
    Rule {
        name: "absolute-path",
        why: "a path of the build machine makes the output differ between machines and tells where it was built",
        find: absolute_paths,
    },
    Rule {
        name: "unresolved-extern",
        why: "nothing provides this function when the module is loaded",
        find: |_, module| {
            module
                .externs
                .iter()
                .filter(|(_, name)| !ALLOWED_EXTERNS.contains(&name.as_str()))
                .cloned()
                .collect()
        },
    },
    Rule {
        name: "allocator",
        why: "there is no heap on the device; something uses `alloc`",
        find: allocator,
    },
    Rule {
        name: "formatting",
        why: "text formatting (core::fmt) costs registers and stack in every kernel; something prints or panics with a formatted \
              message and the panic handler keeps it",
        find: |_, module| named(module, "4core3fmt"),
    },
];

/// External functions that may stay unresolved: none. CUDA would provide `vprintf` and `__assertfail`; no kernel here needs them.
pub const ALLOWED_EXTERNS: &[&str] = &[];

/// A broken rule, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: &'static str,
    /// Why there is such a rule.
    pub why: &'static str,
    /// Line in the PTX, from 1.
    pub line: usize,
    /// The offending text.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}\n    rule {}: {}", self.line, self.text, self.rule, self.why)
    }
}

/// Applies every rule but those named in `allow`.
#[must_use]
pub fn run(ptx: &str, allow: &[String]) -> Vec<Finding> {
    let module = Module::parse(ptx);
    let rules = RULES.iter().filter(|rule| !allow.iter().any(|name| name == rule.name));
    rules
        .flat_map(|rule| {
            let found = (rule.find)(ptx, &module);
            found.into_iter().map(|(line, text)| Finding { rule: rule.name, why: rule.why, line, text })
        })
        .collect()
}

fn find(module: &Module, broken: fn(&Instruction) -> bool) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for function in &module.functions {
        for i in function.instructions.iter().filter(|i| broken(i)) {
            found.push((i.line, format!("`{} {}` in {}", i.opcode, i.operands, function.name)));
        }
    }
    found
}

fn parts(i: &Instruction) -> Vec<&str> {
    i.opcode.split('.').collect()
}

fn is_aligned_barrier(i: &Instruction) -> bool {
    let parts = parts(i);
    match parts.as_slice() {
        ["bar", "warp", "sync", ..] => false,
        ["bar", ..] => true,
        ["barrier", "cta", "sync", rest @ ..] | ["barrier", "sync", rest @ ..] => rest.contains(&"aligned"),
        ["barrier", ..] => true,
        _ => false,
    }
}

fn is_non_coherent(i: &Instruction) -> bool {
    let parts = parts(i);
    // A constant of the program (rustc names them `anon_$_...`), addressed by its name, is no one's to
    // write; every shared address is in a register.
    let constant = i.operands.contains("[anon_$_");
    // `ldu` is the older form of the same load.
    !constant && (parts[0] == "ldu" || (parts[0] == "ld" && parts.contains(&"nc")))
}

fn is_read_modify_write(i: &Instruction) -> bool {
    let parts = parts(i);
    parts[0] == "red" || (parts[0] == "atom" && !parts.contains(&"cas"))
}

fn absolute_paths(ptx: &str, module: &Module) -> Vec<(usize, String)> {
    let lines = ptx.lines().enumerate().map(|(at, line)| (at + 1, line));
    let data = module.strings.iter().map(|(line, text)| (*line, text.as_str()));
    lines.chain(data).filter_map(|(line, text)| Some((line, format!("`{}`", absolute_path(text)?)))).collect()
}

/// Finds a path below a directory where people and build services keep sources.
fn absolute_path(text: &str) -> Option<&str> {
    const ROOTS: &[&str] = &[
        "/root/",
        "/home/",
        "/work/",
        "/tmp/",
        "/usr/",
        "/opt/",
        "/var/",
        "/mnt/",
        "/srv/",
        "/build/",
        "/Users/",
        "/private/",
    ];
    let starts = |at: usize| {
        !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    let at =
        ROOTS.iter().flat_map(|root| text.match_indices(root)).map(|(at, _)| at).find(|&at| starts(at))?;
    text[at..].split(|c: char| c.is_whitespace() || matches!(c, '"' | ';' | '\0')).next()
}

fn allocator(_: &str, module: &Module) -> Vec<(usize, String)> {
    let mut found = named(module, "__rust_alloc");
    found.extend(module.externs.iter().filter(|(_, name)| name.contains("__rust_alloc")).cloned());
    found
}

/// Functions with `part` in their name, and calls of such.
fn named(module: &Module, part: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for function in &module.functions {
        if function.name.contains(part) {
            found.push((
                function.instructions.first().map_or(0, |i| i.line),
                format!("function {}", function.name),
            ));
        }
        let calls = function
            .instructions
            .iter()
            .filter(|i| i.opcode.starts_with("call") && i.operands.contains(part));
        found.extend(calls.map(|i| (i.line, format!("`{} {}` in {}", i.opcode, i.operands, function.name))));
    }
    found
}
