//! Kernel crates with and without mistakes, built for the CPU by `cargo check` and for the GPU by
//! this program.
//!
//! Each file of `tests/kernels` is the library of a kernel crate. A line `//@ TOOL: TEXT` says that
//! the tool rejects the crate, with that text among its messages. A tool that no line names accepts
//! the crate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel crate that stands for each of the files in turn, so that its dependencies are built
/// once.
struct KernelCrate {
    directory: PathBuf,
}

impl KernelCrate {
    fn new(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let manifest = format!(
            "[package]\nname = \"my-kernel\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
             [dependencies]\ngpunet-device = {{ path = {:?} }}\n\n[workspace]\n",
            root.join("gpunet-device")
        );
        fs::create_dir_all(directory.join("src")).expect("a directory");
        fs::write(directory.join("Cargo.toml"), manifest).expect("a manifest");
        // The versions that the workspace is tested with.
        fs::copy(root.join("Cargo.lock"), directory.join("Cargo.lock")).expect("a lock file");
        Self { directory }
    }

    fn becomes(&self, library: &str) {
        fs::write(self.directory.join("src/lib.rs"), library).expect("a library");
    }
}

/// Runs `command` on every kernel and compares its verdict with the one that the kernel's file
/// expects of `tool`.
fn judge(tool: &str, kernel: &KernelCrate, command: &mut Command) {
    let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels")).expect("kernels");
    let mut paths: Vec<_> = files.map(|file| file.expect("a kernel").path()).collect();
    paths.sort();
    let mut wrong = Vec::new();
    for path in paths {
        let library = fs::read_to_string(&path).expect("a kernel");
        let prefix = format!("//@ {tool}: ");
        let expected: Vec<_> = library.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
        kernel.becomes(&library);
        let output = command.output().expect("the tool runs");
        let messages = String::from_utf8_lossy(&output.stderr);
        let missing: Vec<_> = expected.iter().filter(|text| !messages.contains(**text)).collect();
        if output.status.success() != expected.is_empty() || !missing.is_empty() {
            wrong.push(format!("{}: {}, without {missing:?}\n{messages}", path.display(), output.status));
        }
    }
    assert!(wrong.is_empty(), "{tool} on {} kernels:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn cargo_check_says_what_each_kernel_expects() {
    let kernel = KernelCrate::new("checked-kernel");
    let mut command = Command::new(env!("CARGO"));
    command.args(["check", "--quiet", "--offline", "--lib"]).current_dir(&kernel.directory);
    command.env("CARGO_TARGET_DIR", kernel.directory.join("target"));
    judge("cargo check", &kernel, &mut command);
}

#[test]
#[ignore = "compiles `core`, whose sources (rust-src) may have to be fetched; run it by -- --ignored"]
fn build_ptx_says_what_each_kernel_expects() {
    let kernel = KernelCrate::new("built-kernel");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpunet-build-ptx"));
    command.args(["--crate", "."]).current_dir(&kernel.directory);
    command.env("CARGO_TARGET_DIR", kernel.directory.join("target"));
    judge("gpunet-build-ptx", &kernel, &mut command);
}
