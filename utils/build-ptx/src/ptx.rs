//! One cargo call that turns a kernel crate into PTX.
//!
//! The stable compiler has no prebuilt `core` for the GPU, so cargo builds it (`-Zbuild-std=core`,
//! which stable cargo accepts with `RUSTC_BOOTSTRAP=1`). With fat LTO and one codegen unit the
//! final crate's assembly output is the whole program. Nothing is linked: the linker is a program
//! that does nothing. Every setting is given on the command line, so the kernel crate's manifest
//! needs none.

use std::fs;
use std::path::{Path, PathBuf};

use crate::graph::KernelCrate;
use crate::run::{self, RunError};
use crate::toolchain::{Compiler, Sources};

pub use crate::toolchain::TARGET;

/// Oldest GPU generation that the shipped PTX runs on: compute capability 8.0.
pub const DEFAULT_ARCH: &str = "sm_80";

const PROFILE: &[&str] = &[
    "profile.release.opt-level=3",
    "profile.release.lto=\"fat\"",
    "profile.release.codegen-units=1",
    "profile.release.panic=\"abort\"",
    "profile.release.debug-assertions=false",
    "profile.release.overflow-checks=false",
    "profile.release.incremental=false",
    // A profile override of one package would break the above for that package.
    "profile.release.build-override.opt-level=0",
];

/// Copies of values of 64 to 127 bytes are made by words. LLVM makes loops of them otherwise, which
/// move one byte at a time, as it does from 128 bytes on whatever it is told.
const COPIES: &str = "-Cllvm-args=-mem-intrinsic-expand-size=128";

/// Why a kernel crate gave no PTX.
#[derive(Debug, thiserror::Error)]
pub enum PtxError {
    /// The compiler or cargo rejected the crate.
    #[error("the kernel crate {package} does not build for {TARGET}: {source}")]
    Build {
        /// Package name.
        package: String,
        /// Cargo's error.
        r#source: RunError,
    },
    /// This program does not know its own path, so cargo cannot call it as wrapper.
    #[error("cannot find this program's own path: {0}")]
    Myself(std::io::Error),
    /// The build succeeded but left no PTX.
    #[error("cargo left no PTX at {path}: {source}", path = .path.display())]
    NoPtx {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        r#source: std::io::Error,
    },
}

/// What to build, and with what.
#[derive(Clone, Debug)]
pub struct Build<'a> {
    /// The kernel crate.
    pub kernel: &'a KernelCrate,
    /// The compiler.
    pub compiler: &'a Compiler,
    /// Sources of `core` for it.
    pub sources: &'a Sources,
    /// GPU architecture, such as `sm_80`.
    pub arch: &'a str,
    /// Cargo features to turn on.
    pub features: &'a [String],
    /// Cargo's target directory for this build.
    pub target_dir: &'a Path,
}

impl Build<'_> {
    /// Builds and returns the PTX text.
    ///
    /// # Errors
    /// The crate does not compile, or the build left no PTX.
    pub fn run(&self) -> Result<String, PtxError> {
        self.run_with("profile.release.debug=false")
    }

    /// As [`Build::run`], with the lines of Rust that instructions come from. The instructions are
    /// the same.
    ///
    /// # Errors
    /// As [`Build::run`].
    pub fn run_with_lines(&self) -> Result<String, PtxError> {
        self.run_with("profile.release.debug=\"line-directives-only\"")
    }

    fn run_with(&self, debug: &str) -> Result<String, PtxError> {
        let release = self.target_dir.join(TARGET).join("release");
        let path = release.join("deps").join(format!("{}.s", self.kernel.library));
        self.forget_last_build(&release, &path);
        let myself = std::env::current_exe().map_err(PtxError::Myself)?;
        let mut cargo = crate::toolchain::cargo();
        cargo.args([
            "rustc",
            "--release",
            "--lib",
            "--crate-type",
            "cdylib",
            "-Zbuild-std=core",
            "--target",
            TARGET,
        ]);
        cargo.arg("--manifest-path").arg(&self.kernel.manifest).arg("--target-dir").arg(self.target_dir);
        for setting in PROFILE.iter().chain([&debug]) {
            cargo.args(["--config", setting]);
        }
        if !self.features.is_empty() {
            cargo.args(["--features", &self.features.join(",")]);
        }
        cargo.args(["--", "--emit", "asm", "-C", "linker=true"]);
        // Constants are checked as strictly as the compiler can: `kernel_entry!` then finds padding
        // inside a parameter, too.
        cargo.arg("-Zextra-const-ub-checks");
        cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTC_WRAPPER", &myself).env(crate::wrapper::ROLE, "1");
        cargo.env("CARGO_ENCODED_RUSTFLAGS", self.rustflags().join("\x1f")).env_remove("RUSTFLAGS");
        if let Sources::Elsewhere(library) = self.sources {
            // Cargo's own switch for sources outside the sysroot; it saves writing into the
            // compiler's installation.
            cargo.env("__CARGO_TESTS_ONLY_SRC_ROOT", library);
        }
        run::visible(&mut cargo)
            .map_err(|source| PtxError::Build { package: self.kernel.package.clone(), source })?;
        fs::read_to_string(&path).map_err(|source| PtxError::NoPtx { path, source })
    }

    /// Flags for every device crate, `core` included: the architecture, and names in place of this
    /// machine's paths.
    fn rustflags(&self) -> Vec<String> {
        let mut flags = vec![format!("-Ctarget-cpu={}", self.arch), COPIES.to_owned()];
        let mut remap =
            |from: &Path, to: &str| flags.push(format!("--remap-path-prefix={}={to}", from.display()));
        // The compiler takes the last prefix that matches, so the most general one comes first.
        remap(&self.kernel.workspace, ".");
        for (name, directory) in &self.kernel.packages {
            // Members of the workspace are already named relative to its root.
            if !directory.starts_with(&self.kernel.workspace) {
                remap(directory, name);
            }
        }
        let virtual_library = format!("/rustc/{}/library", self.compiler.commit);
        remap(&self.compiler.sysroot, "sysroot");
        remap(self.sources.library(), &virtual_library);
        flags
    }

    /// Makes cargo compile the last crate anew. Cargo does not know the assembly file, so a crate
    /// it holds for fresh could otherwise leave the text of another crate of the same name, or
    /// none.
    fn forget_last_build(&self, release: &Path, ptx: &Path) {
        // It is fine if the files are absent.
        let _ = fs::remove_file(ptx);
        let Ok(entries) = fs::read_dir(release.join(".fingerprint")) else { return };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let hash = name.to_str().and_then(|n| n.strip_prefix(&self.kernel.package)?.strip_prefix('-'));
            if hash.is_some_and(|h| h.bytes().all(|b| b.is_ascii_hexdigit())) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}
