use super::*;

const MODULE: &str = r#"//
// .entry in_a_comment() {
.version 7.0
.target sm_80, texmode_independent
.address_size 64

.shared .align 16 .b8 scratch[288];
.func  (.param .align 16 .b8 retval0[8]) helper
(
	.param .b64 helper_param_0
)
;
.extern .func vprintf(.param .b64 a);
.func by_pointer();
.visible .global .align 8 .u64 pointer = by_pointer;
.global .align 8 .u64 table[2] = {generic(scratch), 36};
.visible .entry first( // the first {
	.param .align 8 .b8 first_param_0[16]
)
.maxntid 256, 1, 1
{
	/* } opaque { */
	{ .reg .pred %gp; setp.ne.u32 %gp, %r12, 0; }
	call.uni (retval0), helper, (param0);
	ret;
}
.visible .entry second() { call vprintf, (a); .pragma "}"; ret; }
.func  (.param .align 16 .b8 retval0[8]) helper(.param .b64 helper_param_0)
{
	call deeper;
	ret;
}
.weak .func .attribute(.unified(1, 2)) deeper() .noreturn { trap; }
.func by_pointer() { ret; }
// the end"#;

/// The names of the functions that a text has, defined or declared.
fn functions(text: &str) -> Vec<&str> {
    let statements = read(text).expect("readable");
    statements.iter().filter_map(|statement| statement.function).map(|function| function.name).collect()
}

#[test]
fn what_a_kernel_needs_stays() {
    let first = only_entries(MODULE, &["first"]);
    assert_eq!(functions(&first), ["helper", "by_pointer", "first", "helper", "deeper", "by_pointer"]);
    let second = only_entries(MODULE, &["second"]);
    assert_eq!(functions(&second), ["vprintf", "by_pointer", "second", "by_pointer"]);
    for text in [first, second] {
        for kept in
            [".version 7.0", "sm_80, texmode", "scratch[288]", "table[2]", ".visible .global", "// the end"]
        {
            assert!(text.contains(kept), "{kept}");
        }
    }
}

#[test]
fn a_text_of_which_all_is_needed_is_not_copied() {
    assert!(matches!(only_entries(MODULE, &["first", "second"]), Cow::Borrowed(MODULE)));
}

#[test]
fn a_kernel_that_is_not_there_is_not_there_afterwards() {
    assert_eq!(functions(&only_entries(MODULE, &["third"])), ["by_pointer", "by_pointer"]);
}

#[test]
fn a_text_that_is_not_understood_stays_whole() {
    let endings = [
        ".section .debug_str { }",
        ".file 1 \"lib.rs\"",
        ".alias a, helper;",
        "/* no end",
        "\"no end",
        ".global .b8 x[1]",
        ".func unbalanced() { ( } }",
        ".func open() {",
        ".entry",
        "helper;",
        "}",
        "é",
    ];
    for ending in endings {
        let text = format!("{MODULE}\n{ending}");
        assert!(matches!(only_entries(&text, &["first"]), Cow::Borrowed(_)), "{ending}");
    }
    // Whatever is cut off, it neither panics nor leaves out what the kernel needs.
    for (at, _) in MODULE.char_indices() {
        let cut = &MODULE[..at];
        let only = only_entries(cut, &["first"]);
        assert_eq!(only.contains(".entry first("), cut.contains(".entry first("), "{cut}");
    }
}

#[test]
fn linked_texts_keep_what_any_of_them_calls() {
    const HEAD: &str = ".version 7.0\n.target sm_80\n.address_size 64\n";
    let kernel = format!("{HEAD}.extern .func a(); .extern .func c(); .entry kernel() {{ call a; ret; }}");
    let library = format!("{HEAD}.visible .func a() {{ call b; }} .func b() {{ }} .visible .func c() {{ }}");
    let linked = only_called(&[&kernel, &library]);
    assert_eq!(functions(&linked[0]), ["a", "kernel"]);
    assert_eq!(functions(&linked[1]), ["a", "b"]);

    let unread = format!("{kernel} .alias x, c;");
    let linked = only_called(&[&unread, &library]);
    assert_eq!((&*linked[0], &*linked[1]), (&*unread, &*library));
}
