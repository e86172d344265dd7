//! The rules every PTX file of this project must meet. Each stands for a bug that the compiler will
//! not report.

use crate::constants::Addresses;
use crate::source::{self, demangle};
use crate::text::{Function, Instruction, Module};

/// A rule.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Short name, as `--allow` takes it.
    pub name: &'static str,
    /// What goes wrong when it is broken, and what to do instead.
    pub why: &'static str,
    find: fn(&str, &Module) -> Vec<Location>,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    /// Where it is broken.
    pub location: Location,
}

/// A location in the PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Line in the PTX, from 1.
    pub line: usize,
    /// The function it is in, by its name in Rust.
    pub function: Option<String>,
    /// The line of Rust it comes from, if the PTX tells.
    pub source: Option<String>,
    /// An instruction's opcode, or the offending name.
    pub text: String,
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
        why: "this load may return a stale value when another agent writes the memory, and its address is no constant of the \
              program; an entry's parameter that is a reference (`&T`) is loaded so: pass a raw pointer or a `Buffer`",
        find: |_, module| non_coherent(module),
    },
    Rule {
        name: "atomic-rmw",
        why: "the compiler gives read-modify-write operations no scope and no ordering (PTX reads that as relaxed, GPU scope); \
              use loads, stores and compare_exchange, or inline assembly that names both",
        find: |_, module| find(module, is_read_modify_write),
    },
    Rule {
        name: "absolute-path",
        why: "a path of the build machine makes the output differ between machines and tells where it was built",
        find: absolute_paths,
    },
    Rule {
        name: "unresolved-extern",
        why: "nothing provides this function when the module is loaded; `memcmp` comes from `==` on slices, so compare them in a loop",
        find: |_, module| unresolved(module),
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

/// External functions that may stay unresolved: none. CUDA would provide `vprintf` and
/// `__assertfail`; no kernel here needs them.
pub const ALLOWED_EXTERNS: &[&str] = &[];

/// Applies every rule but those named in `allow`.
#[must_use]
pub fn run(ptx: &str, allow: &[String]) -> Vec<Finding> {
    let module = Module::parse(ptx);
    let rules = RULES.iter().filter(|rule| !allow.iter().any(|name| name == rule.name));
    rules
        .flat_map(|rule| {
            (rule.find)(ptx, &module).into_iter().map(|location| Finding { rule: rule.name, location })
        })
        .collect()
}

/// A location outside all functions.
fn in_module(line: usize, text: String) -> Location {
    Location { line, function: None, source: None, text }
}

/// Instruction number `index` of a function.
fn at_instruction(module: &Module, function: &Function, index: usize, text: &str) -> Location {
    let source = source::describe(module, function, index);
    let line = function.instructions[index].line;
    Location { line, function: Some(demangle(&function.name)), source, text: text.to_owned() }
}

fn find(module: &Module, broken: impl Fn(&Instruction) -> bool) -> Vec<Location> {
    module.functions.iter().flat_map(|function| find_in(module, function, &broken)).collect()
}

fn find_in(module: &Module, function: &Function, broken: impl Fn(&Instruction) -> bool) -> Vec<Location> {
    let instructions = function.instructions.iter().enumerate().filter(|(_, i)| broken(i));
    instructions
        .map(|(index, i)| at_instruction(module, function, index, &format!("`{}`", i.opcode)))
        .collect()
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

fn non_coherent(module: &Module) -> Vec<Location> {
    let in_function = |function| {
        let constants = Addresses::new(module, function);
        find_in(module, function, move |i| is_non_coherent(i) && !constants.contain(i))
    };
    module.functions.iter().flat_map(in_function).collect()
}

fn is_non_coherent(i: &Instruction) -> bool {
    let parts = parts(i);
    // `ldu` is the older form of the same load.
    parts[0] == "ldu" || (parts[0] == "ld" && parts.contains(&"nc"))
}

fn is_read_modify_write(i: &Instruction) -> bool {
    let parts = parts(i);
    let names = |any: &[&str]| any.iter().any(|part| parts.contains(part));
    // Only inline assembly names both.
    let is_spelt_out =
        names(&["relaxed", "acquire", "release", "acq_rel"]) && names(&["cta", "cluster", "gpu", "sys"]);
    parts[0] == "red" || (parts[0] == "atom" && !parts.contains(&"cas") && !is_spelt_out)
}

fn absolute_paths(ptx: &str, module: &Module) -> Vec<Location> {
    let lines = ptx.lines().enumerate().map(|(at, line)| (at + 1, line));
    let data = module.strings.iter().map(|(line, text)| (*line, text.as_str()));
    lines
        .chain(data)
        .filter_map(|(line, text)| Some(in_module(line, format!("`{}`", absolute_path(text)?))))
        .collect()
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

fn unresolved(module: &Module) -> Vec<Location> {
    let missing = module.externs.iter().filter(|(_, name)| !ALLOWED_EXTERNS.contains(&name.as_str()));
    missing
        .flat_map(|(line, name)| {
            let calls = calls(module, |called| called == name);
            if calls.is_empty() { vec![in_module(*line, format!("`{name}`"))] } else { calls }
        })
        .collect()
}

fn allocator(_: &str, module: &Module) -> Vec<Location> {
    let mut found = named(module, "__rust_alloc");
    let externs = module.externs.iter().filter(|(_, name)| name.contains("__rust_alloc"));
    found.extend(externs.map(|(line, name)| in_module(*line, format!("`{name}`"))));
    found
}

/// Functions with `part` in their name, and calls of such.
fn named(module: &Module, part: &str) -> Vec<Location> {
    let own = module.functions.iter().filter(|f| f.name.contains(part) && !f.instructions.is_empty());
    let mut found: Vec<_> = own.map(|f| at_instruction(module, f, 0, "the function itself")).collect();
    found.extend(calls(module, |name| name.contains(part)));
    found
}

/// The calls of functions whose names are `wanted`.
fn calls(module: &Module, wanted: impl Fn(&str) -> bool) -> Vec<Location> {
    let mut found = Vec::new();
    for function in &module.functions {
        for (index, i) in function.instructions.iter().enumerate() {
            let called = i.callee().filter(|name| wanted(name));
            found.extend(
                called.map(|name| {
                    at_instruction(module, function, index, &format!("calls `{}`", demangle(name)))
                }),
            );
        }
    }
    found
}
