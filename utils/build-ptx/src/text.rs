//! Reads PTX text: its functions, their instructions and source lines, its variables, and the text
//! in them.
//!
//! This is no full parser. It knows what the compiler and hand-written inline assembly produce: one
//! statement per `;`, `{}` blocks, and both kinds of comment.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A line of Rust, from a `.loc` directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// Number of the file: a key of [`Module::files`].
    pub file: u32,
    /// Line in it, from 1.
    pub line: u32,
}

/// One instruction, with the line it stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Line in the file, from 1.
    pub line: usize,
    /// The line of Rust it comes from, if the PTX tells.
    pub source: Option<SourceLine>,
    /// Opcode with all qualifiers, such as `ld.acquire.sys.global.b64`; without guard predicate.
    pub opcode: String,
    /// The rest of the statement.
    pub operands: String,
}

impl Instruction {
    /// The function that a direct call calls: `f` in `call (results), f, (parameters)`.
    #[must_use]
    pub fn callee(&self) -> Option<&str> {
        if !self.opcode.starts_with("call") {
            return None;
        }
        let after_results = match self.operands.strip_prefix('(') {
            Some(results) => results.split_once("),")?.1,
            None => &self.operands,
        };
        let name = after_results.split(',').next()?.trim();
        (!name.starts_with('%')).then_some(name)
    }
}

/// One function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Symbol name.
    pub name: String,
    /// Whether it is a kernel (`.entry`).
    pub entry: bool,
    /// Whether other modules and the driver see it.
    pub visible: bool,
    /// Its instructions in order.
    pub instructions: Vec<Instruction>,
}

/// A PTX module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Functions with a body.
    pub functions: Vec<Function>,
    /// Declared `.extern .func` names, with their line.
    pub externs: Vec<(usize, String)>,
    /// Variables in device memory that only this module sees, constants among them.
    pub private_variables: BTreeSet<String>,
    /// Rust source files by number.
    pub files: BTreeMap<u32, String>,
    /// Initialised byte arrays that hold text: line, and the text.
    pub strings: Vec<(usize, String)>,
}

impl Module {
    /// Reads a module.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let clean = without_comments(text);
        let mut module = Self::default();
        let mut current: Option<(Function, usize)> = None;
        let mut header = String::new();
        let mut line = 1;
        let mut header_line = 1;
        let mut depth = 0usize;
        let mut source = None;
        for c in clean.chars() {
            if c == '\n' {
                line += 1;
            }
            if header.trim().is_empty() && !c.is_whitespace() {
                header.clear();
                header_line = line;
            }
            // A `{` opens a block if it follows nothing (a scope), or a function header; else it is
            // a vector or an initialiser.
            let opens = c == '{' && (header.trim().is_empty() || (current.is_none() && is_function(&header)));
            let closes = c == '}' && header.trim().is_empty();
            if opens {
                depth += 1;
                if current.is_none() {
                    current = Some((function(&header), depth));
                    source = None;
                }
                header.clear();
            } else if closes {
                if let Some((function, _)) = current.take_if(|(_, opened)| *opened == depth) {
                    module.functions.push(function);
                }
                depth = depth.saturating_sub(1);
            } else if c == ';' {
                match &mut current {
                    Some((function, _)) => {
                        function.instructions.extend(instruction(header_line, source, &header));
                    }
                    None => module.declaration(header_line, &header),
                }
                header.clear();
            } else if c == ':' && is_label(&header) {
                header.clear();
            } else if c == '\n' && is_directive_line(&header) {
                if let Some(place) = header.trim().strip_prefix(".loc") {
                    source = source_line(place);
                } else if let Some((number, name)) = header.trim().strip_prefix(".file").and_then(file) {
                    module.files.insert(number, name);
                }
                header.clear();
            } else {
                header.push(c);
            }
        }
        module
    }

    /// The function of that name.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }

    /// The functions that a call of `name` can reach inside the module, itself first.
    #[must_use]
    pub fn reachable(&self, name: &str) -> Vec<&Function> {
        let by_name: HashMap<&str, &Function> = self.functions.iter().map(|f| (f.name.as_str(), f)).collect();
        let mut seen = BTreeSet::new();
        let mut open: Vec<&Function> = by_name.get(name).copied().into_iter().collect();
        let mut found = Vec::new();
        while let Some(function) = open.pop() {
            if !seen.insert(&function.name) {
                continue;
            }
            found.push(function);
            let called = function.instructions.iter().filter_map(Instruction::callee);
            open.extend(called.filter_map(|name| by_name.get(name).copied()));
        }
        found
    }

    fn declaration(&mut self, line: usize, text: &str) {
        if text.contains(".extern") && text.contains(".func") {
            self.externs.push((line, function(text).name));
            return;
        }
        self.private_variables.extend(private_variable(text));
        if let Some(bytes) = initialiser(text) {
            self.strings.push((line, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}

fn is_symbol(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || c == '%'
}

fn is_function(header: &str) -> bool {
    header.split_whitespace().any(|word| word == ".entry" || word == ".func")
}

fn is_label(header: &str) -> bool {
    let name = header.trim();
    !name.is_empty() && name.chars().all(is_symbol)
}

fn is_directive_line(header: &str) -> bool {
    const DIRECTIVES: &[&str] = &[".version", ".target", ".address_size", ".file", ".loc", ".section"];
    let first = header.split_whitespace().next();
    first.is_some_and(|word| DIRECTIVES.contains(&word))
}

/// Reads `FILE LINE COLUMN`; line 0 is the compiler's word for "none".
fn source_line(place: &str) -> Option<SourceLine> {
    let mut numbers = place.split_whitespace().map_while(|word| word.parse().ok());
    let (file, line) = (numbers.next()?, numbers.next()?);
    (line > 0).then_some(SourceLine { file, line })
}

/// Reads `NUMBER "NAME"`.
fn file(text: &str) -> Option<(u32, String)> {
    let (number, name) = text.trim().split_once(char::is_whitespace)?;
    Some((number.parse().ok()?, name.trim().trim_matches('"').to_owned()))
}

/// The name in `.global .align 8 .b8 NAME[16] = {..}`, unless other modules or the host reach the
/// variable.
fn private_variable(text: &str) -> Option<String> {
    let declaration = text.split_once('=').map_or(text, |(declaration, _)| declaration);
    let words: Vec<_> = declaration.split_whitespace().collect();
    let private = !words.iter().any(|word| matches!(*word, ".visible" | ".extern" | ".weak" | ".common"));
    let in_memory = words.iter().any(|word| matches!(*word, ".global" | ".const"));
    let name: String = words.last()?.chars().take_while(|&c| is_symbol(c)).collect();
    (private && in_memory && !name.is_empty()).then_some(name)
}

/// Reads the name from `.visible .func (results) name(parameters)`.
fn function(header: &str) -> Function {
    let entry = header.split_whitespace().any(|word| word == ".entry");
    let keyword = if entry { ".entry" } else { ".func" };
    let mut rest = header.split_once(keyword).map_or("", |(_, rest)| rest).trim_start();
    if let Some(results) = rest.strip_prefix('(') {
        rest = results.split_once(')').map_or("", |(_, rest)| rest).trim_start();
    }
    let name: String = rest.chars().take_while(|&c| is_symbol(c)).collect();
    Function { name, entry, visible: header.contains(".visible"), instructions: Vec::new() }
}

fn instruction(line: usize, source: Option<SourceLine>, statement: &str) -> Option<Instruction> {
    let mut text = statement.trim();
    if text.starts_with('@') {
        text = text.split_once(char::is_whitespace)?.1.trim_start();
    }
    let (opcode, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    // Directives (.reg, .param) declare, they do not execute.
    let executes = opcode.starts_with(|c: char| c.is_ascii_lowercase());
    executes.then(|| Instruction {
        line,
        source,
        opcode: opcode.to_owned(),
        operands: operands.trim().to_owned(),
    })
}

/// The bytes of `.global .b8 name[N] = {1, 2, 3}`.
fn initialiser(text: &str) -> Option<Vec<u8>> {
    let (declaration, values) = text.split_once('=')?;
    if !declaration.contains(".b8") && !declaration.contains(".u8") {
        return None;
    }
    let values = values.trim().trim_start_matches('{').trim_end_matches('}');
    Some(values.split(',').filter_map(|value| value.trim().parse().ok()).collect())
}

/// Blanks out comments, keeping every line break.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, comment) = rest.split_at(at);
        out.push_str(before);
        let length = if comment.starts_with("//") {
            comment.find('\n').unwrap_or(comment.len())
        } else if comment.starts_with("/*") {
            comment.find("*/").map_or(comment.len(), |end| end + 2)
        } else {
            out.push('/');
            1
        };
        out.extend(comment[..length].chars().filter(|&c| c == '\n'));
        rest = &comment[length..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
//
.version 7.0
.target sm_80
.address_size 64
.shared .align 16 .b8 scratch[256];
.extern .func (.param .b32 r) vprintf(.param .b64 a);
.func _helper
()
.noreturn;
.global .align 1 .b8 path[5] = {97, 98, 47, 99};
.visible .global .align 8 .u64 gpunet_attachment;
.visible .entry kernel(
	.param .align 8 .b8 kernel_param_0[16]
)
{
	.reg .pred 	%p<3>;
	// begin inline asm
	{ .reg .pred %gp; setp.ne.u32 %gp, %r12, 0; vote.sync.ballot.b32 %r11, %gp, %r9; }
	// end inline asm
	@%p2 bra 	$L__BB1_2;
$L__BB1_2:
	ld.v2.u64 {%rd1, %rd2}, [%rd3];
	/* opaque %r2 */
	{ // callseq 0, 0
	.param .b64 param0;
	call.uni (retval0), _helper, (param0);
	} // callseq 0
	ret;

}
.func _helper()
{
$L__func_begin0:
	.loc	2 10 5
	trap; exit;
	.loc	2 0 5
	ret;
}
	.section	.debug_macinfo	{	}
	.file	2 "./src/lib.rs"
"#;

    #[test]
    fn functions_instructions_externs_and_strings_are_found() {
        let module = Module::parse(SAMPLE);
        let kernel = module.function("kernel").expect("kernel");
        assert!(kernel.entry && kernel.visible);
        let opcodes: Vec<_> = kernel.instructions.iter().map(|i| i.opcode.as_str()).collect();
        assert_eq!(opcodes, ["setp.ne.u32", "vote.sync.ballot.b32", "bra", "ld.v2.u64", "call.uni", "ret"]);
        let helper = module.function("_helper").expect("helper");
        assert_eq!(helper.instructions.len(), 3);
        assert_eq!(module.externs, [(7, "vprintf".to_owned())]);
        assert_eq!(module.strings, [(11, "ab/c".to_owned())]);
    }

    #[test]
    fn lines_count_from_one() {
        let module = Module::parse(SAMPLE);
        let load = &module.functions[0].instructions[3];
        assert_eq!(SAMPLE.lines().nth(load.line - 1).map(str::trim), Some("ld.v2.u64 {%rd1, %rd2}, [%rd3];"));
    }

    #[test]
    fn source_lines_are_kept() {
        let module = Module::parse(SAMPLE);
        let helper = module.function("_helper").expect("helper");
        let line = SourceLine { file: 2, line: 10 };
        let sources: Vec<_> = helper.instructions.iter().map(|i| i.source).collect();
        assert_eq!(sources, [Some(line), Some(line), None]);
        assert_eq!(module.files[&2], "./src/lib.rs");
        assert_eq!(module.functions[0].instructions[0].source, None);
    }

    #[test]
    fn variables_of_the_module_are_private_unless_they_are_visible() {
        let module = Module::parse(SAMPLE);
        assert_eq!(module.private_variables.iter().collect::<Vec<_>>(), ["path"]);
    }

    #[test]
    fn calls_are_followed() {
        let module = Module::parse(SAMPLE);
        let names: Vec<_> = module.reachable("kernel").iter().map(|f| f.name.clone()).collect();
        assert_eq!(names, ["kernel", "_helper"]);
    }
}
