//! The hand-written C structs and numbers agree with the headers, where those are installed
//! (packages libibverbs-dev and librdmacm-dev).

use gpunet_core::verbs::rdma::layout;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const HEADERS: [&str; 2] = ["infiniband/verbs.h", "rdma/rdma_cma.h"];

#[test]
fn structs_and_numbers_are_those_of_the_headers() {
    if let Some(missing) = HEADERS.iter().find(|header| !Path::new("/usr/include").join(header).exists()) {
        println!("NOT RUN: /usr/include/{missing} is missing (packages libibverbs-dev and librdmacm-dev)");
        return;
    }
    let facts = layout();
    let answers = ask_the_compiler(&facts);
    assert_eq!(answers.len(), facts.len());
    let wrong: Vec<_> = facts.iter().zip(&answers).filter(|((_, ours), theirs)| ours != *theirs).collect();
    assert!(wrong.is_empty(), "((expression, our value), the headers' value): {wrong:?}");
}

/// Has a C program print the value of each expression.
fn ask_the_compiler(facts: &[(&'static str, i64)]) -> Vec<i64> {
    let folder = std::env::temp_dir().join(format!("gpunet-verbs-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    let mut text = String::from("#include <stddef.h>\n#include <stdio.h>\n#include <sys/socket.h>\n");
    for header in HEADERS {
        writeln!(text, "#include <{header}>").unwrap();
    }
    text.push_str("int main(void) {\n");
    for (expression, _) in facts {
        writeln!(text, "printf(\"%lld\\n\", (long long)({expression}));").unwrap();
    }
    text.push_str("return 0; }\n");
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("cc").arg(&source).arg("-o").arg(&program).status().expect("cc runs");
    assert!(compiled.success(), "the headers do not know all of the expressions");
    let output = Command::new(&program).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}
