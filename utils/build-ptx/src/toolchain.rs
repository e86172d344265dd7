//! The compiler that makes the shipped PTX, and the sources of `core` that belong to it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler's name for the GPU target.
pub const TARGET: &str = "nvptx64-nvidia-cuda";

use crate::debian::{self, DebianError};
use crate::run::{self, RunError};

/// The compiler version whose output is checked in, and its commit. Change both here, rebuild, and
/// check in the new PTX.
pub const PINNED_RUSTC: &str = "1.95.0";
/// See [`PINNED_RUSTC`]. A distribution's build of the same version may carry another LLVM, so the
/// version alone is not enough.
pub const PINNED_COMMIT: &str = "59807616e1fa2540724bfbac14d7976d7e4a3860";

/// The pinned compiler, for messages.
#[must_use]
pub fn pinned() -> String {
    format!("{PINNED_RUSTC} (commit {PINNED_COMMIT:.9})")
}

/// Why there is no usable toolchain.
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// The compiler could not be asked for its version.
    #[error("no usable Rust compiler: {0}\nInstall it with `rustup toolchain install {PINNED_RUSTC}`.")]
    Rustc(RunError),
    /// `rustc -vV` lacked a line.
    #[error("`rustc -vV` does not name its {0}")]
    Unknown(&'static str),
    /// None of the ways to the sources of `core` worked.
    #[error(
        "the sources of `core` for rustc {release} (rust-src) were not found and could not be fetched:\n\
         - not in the compiler's sysroot, and not in /usr/src/rustc-{release} (Debian's package)\n\
         - rustup: {rustup}\n\
         - Debian: {debian}\n\
         Where the network allows it, run `rustup component add rust-src`; else install Debian's package rust-src of version {release},\n\
         or unpack `library` of the Rust {release} source archive so that {cache}/library/core exists."
    )]
    NoSources {
        /// Compiler version.
        release: String,
        /// Why rustup did not help.
        rustup: Box<RunError>,
        /// Why Debian's package did not help.
        debian: Box<DebianError>,
        /// Where a copy made by hand may be put.
        cache: String,
    },
}

/// The compiler on this machine.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// Version, such as `1.95.0`.
    pub release: String,
    /// Git commit it was built from; `unknown` in some distributions.
    pub commit: String,
    /// Root of its installation.
    pub sysroot: PathBuf,
}

impl Compiler {
    /// Asks the compiler that cargo would use.
    ///
    /// # Errors
    /// There is none, or it gives no version.
    pub fn detect() -> Result<Self, ToolchainError> {
        let version = run::stdout(rustc().arg("-vV")).map_err(ToolchainError::Rustc)?;
        let field = |name: &'static str| {
            let value = version.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.map(str::to_owned).ok_or(ToolchainError::Unknown(name))
        };
        let sysroot = run::stdout(rustc().args(["--print", "sysroot"])).map_err(ToolchainError::Rustc)?;
        Ok(Self { release: field("release")?, commit: field("commit-hash")?, sysroot: sysroot.trim().into() })
    }

    /// Version and commit, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{} (commit {:.9})", self.release, self.commit)
    }

    /// Whether this is the compiler whose output is checked in.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.release == PINNED_RUSTC && self.commit == PINNED_COMMIT
    }
}

/// Sources of the standard library that match a compiler.
#[derive(Clone, Debug)]
pub enum Sources {
    /// Where cargo looks by itself.
    Sysroot(PathBuf),
    /// Elsewhere: cargo must be told.
    Elsewhere(PathBuf),
}

impl Sources {
    /// The directory that holds `core/Cargo.toml`.
    #[must_use]
    pub fn library(&self) -> &Path {
        match self {
            Self::Sysroot(path) | Self::Elsewhere(path) => path,
        }
    }

    /// Finds the sources that match `compiler`, fetching them if need be. The compiler's own
    /// installation is changed by rustup only.
    ///
    /// # Errors
    /// They are not installed, and neither rustup nor apt can fetch them.
    pub fn find(compiler: &Compiler) -> Result<Self, ToolchainError> {
        let release = &compiler.release;
        let in_sysroot = compiler.sysroot.join("lib/rustlib/src/rust/library");
        let cache = cache_dir().join(format!("rust-src-{release}"));
        if holds_core(&in_sysroot) {
            return Ok(Self::Sysroot(in_sysroot));
        }
        for library in [cache.join("library"), format!("/usr/src/rustc-{release}/library").into()] {
            if holds_core(&library) {
                return Ok(Self::Elsewhere(library));
            }
        }
        eprintln!("The sources of `core` for rustc {release} are not installed; asking rustup for rust-src.");
        let rustup = match run::output(Command::new("rustup").args(["component", "add", "rust-src"])) {
            Ok(_) if holds_core(&in_sysroot) => return Ok(Self::Sysroot(in_sysroot)),
            Ok(out) => RunError::Failed {
                program: "rustup".into(),
                status: out.status.to_string(),
                stderr: "it added rust-src to another toolchain than the one that `rustc` runs".into(),
            },
            Err(error) => error,
        };
        eprintln!("rustup could not add it; fetching Debian's package rust-src by apt.");
        match debian::fetch_rust_src(release, &cache) {
            Ok(()) => Ok(Self::Elsewhere(cache.join("library"))),
            Err(debian) => Err(ToolchainError::NoSources {
                release: release.clone(),
                rustup: Box::new(rustup),
                debian: Box::new(debian),
                cache: cache.display().to_string(),
            }),
        }
    }
}

/// Cargo, as the caller runs it.
#[must_use]
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn rustc() -> Command {
    Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

fn holds_core(library: &Path) -> bool {
    library.join("core/Cargo.toml").is_file() && library.join("Cargo.lock").is_file()
}

/// Where fetched sources are kept between builds, for this user.
fn cache_dir() -> PathBuf {
    let xdg = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    xdg.or(home).unwrap_or_else(std::env::temp_dir).join("gpunet")
}
