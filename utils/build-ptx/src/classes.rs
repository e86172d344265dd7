//! Instruction classes of a PTX module: what is compared when the compiler is not the one that made
//! the checked-in file.
//!
//! Another compiler allocates registers and unrolls loops differently, so the text differs
//! everywhere. What must not differ is how memory is ordered and how threads meet: loads and stores
//! with their semantics and scope, fences, barriers, atomics, warp operations.

use std::collections::BTreeMap;

use crate::text::{Instruction, Module};

/// How often each class occurs in one function and in those it calls.
pub type Histogram = BTreeMap<String, usize>;

/// The class of an instruction that orders memory or joins threads, or reads or writes memory;
/// `None` for all others.
#[must_use]
pub fn class(instruction: &Instruction) -> Option<String> {
    let mut parts = instruction.opcode.split('.');
    let name = parts.next()?;
    let counted = [
        "ld",
        "st",
        "fence",
        "membar",
        "bar",
        "barrier",
        "atom",
        "red",
        "redux",
        "shfl",
        "vote",
        "match",
        "activemask",
        "nanosleep",
        "trap",
    ];
    if !counted.contains(&name) {
        return None;
    }
    let kept =
        parts.filter(|part| !matches!(*part, "param" | "v2" | "v4" | "global" | "generic") && !is_type(part));
    let class = std::iter::once(name).chain(kept).collect::<Vec<_>>().join(".");
    // Parameter passing is the calling convention's, not the program's.
    (!instruction.opcode.contains(".param")).then_some(class)
}

fn is_type(part: &str) -> bool {
    part.len() > 1 && part.starts_with(['b', 'u', 's', 'f']) && part[1..].bytes().all(|b| b.is_ascii_digit())
}

/// One histogram per visible function; what it calls inside the module counts with it, because
/// inlining differs between compilers.
#[must_use]
pub fn histograms(module: &Module) -> BTreeMap<String, Histogram> {
    let visible = module.functions.iter().filter(|f| f.visible);
    let count = |name: &str| {
        let mut histogram = Histogram::new();
        let instructions = module.reachable(name).into_iter().flat_map(|f| &f.instructions);
        for class in instructions.filter_map(class) {
            *histogram.entry(class).or_default() += 1;
        }
        histogram
    };
    visible.map(|f| (f.name.clone(), count(&f.name))).collect()
}

/// Every difference between two modules, in words. Of plain `ld` and `st`, and of `trap`, only
/// presence counts.
#[must_use]
pub fn differences(checked_in: &str, fresh: &str) -> Vec<String> {
    let (old, new) = (histograms(&Module::parse(checked_in)), histograms(&Module::parse(fresh)));
    let mut found = Vec::new();
    for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
        match (old.get(name), new.get(name)) {
            (Some(old), Some(new)) => compare(name, old, new, &mut found),
            (Some(_), None) => found.push(format!("{name}: only in the checked-in file")),
            _ => found.push(format!("{name}: only in the fresh build")),
        }
    }
    found
}

fn compare(name: &str, old: &Histogram, new: &Histogram, found: &mut Vec<String>) {
    for class in old.keys().chain(new.keys().filter(|class| !old.contains_key(*class))) {
        let (a, b) = (old.get(class).copied().unwrap_or(0), new.get(class).copied().unwrap_or(0));
        let uncounted = matches!(class.as_str(), "ld" | "st" | "trap");
        if a != b && !(uncounted && a > 0 && b > 0) {
            found.push(format!(
                "{name}: {class} {a} times in the checked-in file, {b} times in the fresh build"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(body: &str) -> String {
        format!(".visible .entry k()\n{{\n{body}\nret;\n}}\n")
    }

    #[test]
    fn types_vectors_and_the_global_space_do_not_matter() {
        let a = kernel("ld.acquire.sys.global.b64 %rd1, [%rd2]; st.v2.u64 [%rd1], {%rd2, %rd3};");
        let b =
            kernel("ld.acquire.sys.u64 %rd7, [%rd8]; st.global.b32 [%rd1], %r1; st.global.b32 [%rd1], %r1;");
        assert_eq!(differences(&a, &b), Vec::<String>::new());
    }

    #[test]
    fn scope_and_semantics_matter() {
        let a = kernel("ld.acquire.sys.b64 %rd1, [%rd2];");
        let b = kernel("ld.acquire.gpu.b64 %rd1, [%rd2];");
        assert_eq!(differences(&a, &b).len(), 2);
    }

    #[test]
    fn the_number_of_barriers_matters() {
        let a = kernel("barrier.sync 0;");
        let b = kernel("barrier.sync 0; barrier.sync 0;");
        assert_eq!(
            differences(&a, &b),
            ["k: barrier.sync 1 times in the checked-in file, 2 times in the fresh build"]
        );
    }

    #[test]
    fn a_missing_function_is_reported() {
        assert_eq!(differences(&kernel(""), ""), ["k: only in the checked-in file"]);
    }
}
