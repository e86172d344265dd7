//! Each lint rule has one text that passes and one that fails.

use gpunet_build_ptx::lint::{self, RULES};

fn kernel(body: &str) -> String {
    format!(".version 7.0\n.target sm_80\n.visible .entry k()\n{{\n{body}\nret;\n}}\n")
}

fn rules_broken(ptx: &str) -> Vec<&'static str> {
    let mut rules: Vec<_> = lint::run(ptx, &[]).iter().map(|finding| finding.rule).collect();
    rules.dedup();
    rules
}

fn assert_passes(ptx: &str) {
    assert_eq!(rules_broken(ptx), Vec::<&str>::new());
}

#[test]
fn aligned_barrier() {
    assert_passes(&kernel(
        "barrier.sync 0; barrier.cta.sync 0; bar.warp.sync %r1; // bar.sync 0;\n/* bar.sync 0; */",
    ));
    for broken in [
        "bar.sync 0;",
        "barrier.sync.aligned 0;",
        "barrier.cta.sync.aligned 0;",
        "@%p1 bar.arrive 0, 64;",
        "barrier.red.popc.u32 %r1, 0, %p1;",
    ] {
        assert_eq!(rules_broken(&kernel(broken)), ["aligned-barrier"], "{broken}");
    }
}

#[test]
fn non_coherent_load() {
    assert_passes(&kernel("ld.global.b64 %rd1, [%rd2]; ld.acquire.sys.global.b64 %rd1, [%rd2];"));
    assert_eq!(rules_broken(&kernel("ld.global.nc.b64 %rd1, [%rd2];")), ["non-coherent-load"]);
    assert_eq!(rules_broken(&kernel("ld.global.nc.v2.b64 {%rd1, %rd3}, [%rd2];")), ["non-coherent-load"]);
    let constant = ".global .align 1 .b8 anon_$_0[3] = {71, 69, 84};\n";
    assert_passes(&format!(
        "{constant}{}",
        kernel("mov.b64 %rd1, anon_$_0; ld.global.nc.b8 %rs1, [%rd1+2];")
    ));
}

#[test]
fn atomic_read_modify_write() {
    assert_passes(&kernel(
        "atom.acq_rel.sys.global.cas.b64 %rd8, [%rd2], 5, 6; atom.cas.b32 %r1, [%rd2], 5, 6;",
    ));
    assert_eq!(rules_broken(&kernel("atom.global.add.u64 %rd8, [%rd2], 5;")), ["atomic-rmw"]);
    assert_eq!(rules_broken(&kernel("atom.relaxed.add.u64 %rd8, [%rd2], 5;")), ["atomic-rmw"]);
    assert_eq!(rules_broken(&kernel("red.global.add.u64 [%rd2], 5;")), ["atomic-rmw"]);
    assert!(rules_broken(&kernel("atom.relaxed.gpu.add.u64 %rd8, [%rd2], 5;")).is_empty());
}

#[test]
fn absolute_path() {
    let text = |path: &str| {
        let bytes: Vec<_> = path.bytes().map(|b| b.to_string()).collect();
        format!(".global .align 1 .b8 anon[{}] = {{{}}};\n", bytes.len() + 1, bytes.join(", "))
    };
    assert_passes(&text("gpunet-device/src/work/copy.rs"));
    assert_passes(&text("/rustc/59807616/library/core/src/option.rs"));
    assert_eq!(rules_broken(&text("/home/someone/kernel/src/lib.rs")), ["absolute-path"]);
    assert_eq!(rules_broken("\t.file 1 \"/root/kernel/src/lib.rs\"\n"), ["absolute-path"]);
}

#[test]
fn unresolved_extern() {
    assert_passes(".visible .func gsend()\n{\nret;\n}\n");
    assert_eq!(
        rules_broken(".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"),
        ["unresolved-extern"]
    );
    let called = kernel("call.uni (r), memcmp, (a);");
    let findings = lint::run(&format!(".extern .func (.param .b32 r) memcmp(.param .b64 a);\n{called}"), &[]);
    assert_eq!(findings[0].location.function.as_deref(), Some("k"));
}

#[test]
fn allocator() {
    assert_passes(&kernel("call.uni helper, ();"));
    assert_eq!(
        rules_broken(&kernel("call.uni (r), _RNvCs_7___rustc12___rust_alloc, (a, b);")),
        ["allocator"]
    );
}

#[test]
fn formatting() {
    assert_passes(".func _RNvNtCs_4core9panicking9panic_fmt()\n.noreturn\n{\ntrap;\n}\n");
    assert_eq!(rules_broken(".func _RNvNtCs_4core3fmt5write()\n{\nret;\n}\n"), ["formatting"]);
}

#[test]
fn an_allowed_rule_is_not_applied() {
    let ptx = kernel("bar.sync 0;");
    assert!(lint::run(&ptx, &["aligned-barrier".to_owned()]).is_empty());
}

#[test]
fn rule_names_are_unique() {
    let mut names: Vec<_> = RULES.iter().map(|rule| rule.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), RULES.len());
}
