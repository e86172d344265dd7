//! Where in the Rust program an instruction comes from: names and lines.

use crate::text::{Function, Module, SourceLine};

/// Describes the line of Rust that instruction number `index` of `function` comes from, if the PTX
/// tells.
///
/// The compiler names the innermost function that it has inlined. If that is not one of the
/// kernel's own, the last line of the kernel before the instruction is added, which is at the call
/// or just before it.
#[must_use]
pub fn describe(module: &Module, function: &Function, index: usize) -> Option<String> {
    let line = function.instructions.get(index)?.source?;
    let location = format!("{}:{}", file(module, line), line.line);
    if is_own(module, line) {
        return Some(location);
    }
    let before = function.instructions[..index].iter().rev().filter_map(|i| i.source);
    let own = before.into_iter().find(|&line| is_own(module, line));
    Some(own.map_or(location.clone(), |own| format!("{location}, near {}:{}", file(module, own), own.line)))
}

/// The name that the Rust program has for a symbol.
#[must_use]
pub fn demangle(symbol: &str) -> String {
    // `#` leaves out the hash.
    format!("{:#}", rustc_demangle::demangle(symbol))
}

/// The build names files of the kernel's workspace relative to its root.
fn is_own(module: &Module, line: SourceLine) -> bool {
    module.files.get(&line.file).is_some_and(|name| name.starts_with("./"))
}

fn file(module: &Module, line: SourceLine) -> &str {
    let name = module.files.get(&line.file).map_or("?", String::as_str);
    let in_library = name.strip_prefix("/rustc/").and_then(|rest| rest.split_once("/library/"));
    in_library.map_or(name.strip_prefix("./").unwrap_or(name), |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INLINED: &str = ".visible .entry k()\n{\n.loc 1 8 5\nmov.b32 %r1, 0;\n.loc 2 99 1\natom.add.u32 %r1, [%rd1], 1;\nret;\n}\n\
        .file 1 \"./src/lib.rs\"\n.file 2 \"/rustc/abc/library/core/src/sync/atomic.rs\"\n";

    #[test]
    fn a_line_of_the_kernel_stands_alone() {
        let module = Module::parse(INLINED);
        assert_eq!(describe(&module, &module.functions[0], 0).as_deref(), Some("src/lib.rs:8"));
    }

    #[test]
    fn a_line_of_a_library_is_followed_by_the_kernels_last_one() {
        let module = Module::parse(INLINED);
        assert_eq!(
            describe(&module, &module.functions[0], 1).as_deref(),
            Some("core/src/sync/atomic.rs:99, near src/lib.rs:8")
        );
    }

    #[test]
    fn without_debug_lines_there_is_none() {
        let module = Module::parse(".visible .entry k()\n{\nret;\n}\n");
        assert_eq!(describe(&module, &module.functions[0], 0), None);
    }
}
