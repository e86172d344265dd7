//! `include/gpunet_host.h` is what cbindgen makes of the crate, and the list of this version in
//! `abi/` has what it declares.
//!
//! After a change of the interface: `GPUNET_WRITE_HEADER=1 cargo test -p gpunet-capi --test
//! header`. A line of the list that changes or goes breaks programs: then GPUNET_HOST_ABI_VERSION
//! rises, and the list gets a new name.

use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings =
        cbindgen::Builder::new().with_config(config).with_crate(root()).with_parse_deps(false).generate();
    let mut text = Vec::new();
    bindings.expect("the crate is parsed").write(&mut text);
    String::from_utf8(text).expect("text")
}

/// The declarations without comments, one a line, in order of the alphabet.
fn interface(header: &str) -> String {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    code.push_str(rest);
    let (defines, code): (Vec<_>, Vec<_>) = code.lines().partition(|line| line.starts_with('#'));
    let mut lines: Vec<String> = defines
        .iter()
        .filter(|line| line.starts_with("#define GPUNET_") && line.split_whitespace().count() > 2)
        .map(|line| line.trim_end().to_owned())
        .collect();
    // Declarations end with a semicolon outside of braces.
    let (mut depth, mut declaration) = (0, String::new());
    for char in code.join(" ").replace("extern \"C\" {", "").chars() {
        declaration.push(char);
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => {
                lines.push(declaration.split_whitespace().collect::<Vec<_>>().join(" "));
                declaration.clear();
            }
            _ => {}
        }
    }
    lines.sort();
    lines.join("\n") + "\n"
}

/// Compares, or writes where that is asked for.
fn expect(file: PathBuf, wanted: &str) {
    if std::env::var_os("GPUNET_WRITE_HEADER").is_some() {
        std::fs::write(&file, wanted).expect("written");
    }
    let have = std::fs::read_to_string(&file).unwrap_or_default();
    let place = have.lines().zip(wanted.lines()).position(|(have, wanted)| have != wanted);
    assert!(
        have == wanted,
        "{} is out of date from line {:?} on: GPUNET_WRITE_HEADER=1 cargo test -p gpunet-capi --test header",
        file.display(),
        place.unwrap_or_else(|| have.lines().count().min(wanted.lines().count())) + 1
    );
}

#[test]
fn the_header_is_current() {
    expect(root().join("include/gpunet_host.h"), &generated());
}

#[test]
fn the_interface_is_that_of_its_version() {
    let list = format!("abi/{}.txt", gpunet::GPUNET_HOST_ABI_VERSION);
    expect(root().join(list), &interface(&generated()));
}

#[test]
fn every_call_has_a_name_of_ours_and_a_comment() {
    let header = generated();
    let lines: Vec<_> = header.lines().collect();
    // The first lines of declarations and of the type of a function.
    let begins = |line: &str| line.contains('(') && !line.starts_with([' ', '#', '/']);
    let mut count = 0;
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| begins(line)) {
        assert!(line.contains("gpunet_host_"), "{line:?}");
        assert_eq!(lines[at - 1].trim(), "*/", "no comment above {line:?}");
        count += 1;
    }
    let all = interface(&header).lines().filter(|line| !line.starts_with('#') && line.contains('(')).count();
    assert_eq!(count, all);
}

#[test]
fn the_cmake_package_has_this_version() {
    let text = std::fs::read_to_string(root().join("cmake/gpunetConfigVersion.cmake")).expect("the file");
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.contains(&format!("set(PACKAGE_VERSION \"{version}\")")), "{version}");
}
