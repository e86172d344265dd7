//! Runs the real PTX assembler, `ptxas`, and reports what each kernel needs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use gpu_usermap::ptx::only_entries;

use crate::run::{self, RunError};

/// GPU generations that the shipped PTX is assembled for: A100, H100/H200, B200.
pub const ARCHITECTURES: &[&str] = &["sm_80", "sm_90", "sm_100"];

/// The one of them for which [`costs`] are measured.
pub const TIMED_ARCHITECTURE: &str = "sm_90";

/// The package on PyPI that carries `ptxas`, and the version used where no CUDA toolkit is
/// installed.
pub const PTXAS_PACKAGE: &str = "nvidia-cuda-nvcc";
/// See [`PTXAS_PACKAGE`]. CUDA 13.0 is the one the measurements of this project were made with.
pub const PTXAS_VERSION: &str = "13.0.88";

/// Why a PTX file was not assembled.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// `ptxas` is not installed and could not be fetched.
    #[error(
        "no ptxas on PATH or in /usr/local/cuda/bin, and {PTXAS_PACKAGE} {PTXAS_VERSION} could not be installed from PyPI:\n{0}\n\
         Install the CUDA toolkit, or python3 with pip and access to a package index."
    )]
    NoPtxas(RunError),
    /// The package does not contain `ptxas`.
    #[error("{PTXAS_PACKAGE} {PTXAS_VERSION} holds no bin/ptxas")]
    EmptyPackage,
    /// `ptxas` rejected the text.
    #[error("ptxas rejects the PTX for {arch}: {source}")]
    Rejected {
        /// GPU generation.
        arch: String,
        /// Its error.
        r#source: RunError,
    },
    /// A scratch file could not be written.
    #[error("cannot write {path}: {source}", path = .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        r#source: std::io::Error,
    },
}

/// What one kernel needs on one GPU generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Kernel name.
    pub kernel: String,
    /// GPU generation.
    pub arch: String,
    /// Registers per thread.
    pub registers: String,
    /// Bytes of stack per thread.
    pub stack: String,
    /// Bytes stored to and loaded from spill space.
    pub spills: (String, String),
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stores, loads) = &self.spills;
        let Self { kernel, arch, registers, stack, .. } = self;
        write!(
            f,
            "{kernel} on {arch}: {registers} registers, {stack} bytes stack, spills {stores} bytes stored, {loads} bytes loaded"
        )
    }
}

/// Finds `ptxas`: on PATH, in the CUDA toolkit's usual place, or fetched into `private` from PyPI.
///
/// # Errors
/// It is not installed and cannot be fetched.
pub fn find_ptxas(private: &Path) -> Result<PathBuf, AssembleError> {
    let home = private.join(format!("{PTXAS_PACKAGE}-{PTXAS_VERSION}"));
    for candidate in ["ptxas".into(), PathBuf::from("/usr/local/cuda/bin/ptxas")] {
        if run::output(Command::new(&candidate).arg("--version")).is_ok() {
            return Ok(candidate);
        }
    }
    if let Some(found) = in_package(&home) {
        return Ok(found);
    }
    eprintln!("No CUDA toolkit found; fetching {PTXAS_PACKAGE} {PTXAS_VERSION} from PyPI for its ptxas.");
    let partial = private.join(format!("ptxas-partial-{}", std::process::id()));
    let wanted = format!("{PTXAS_PACKAGE}=={PTXAS_VERSION}");
    let options = ["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--target"];
    let installed = run::output(Command::new("python3").args(options).arg(&partial).arg(&wanted));
    // Another process may have been faster; then its copy is used.
    let moved = installed.map(|_| fs::rename(&partial, &home));
    let _ = fs::remove_dir_all(&partial);
    moved.map_err(AssembleError::NoPtxas)?.ok();
    in_package(&home).ok_or(AssembleError::EmptyPackage)
}

/// The wheel's layout names the CUDA generation: nvidia/cu13/bin/ptxas.
fn in_package(home: &Path) -> Option<PathBuf> {
    let generations = fs::read_dir(home.join("nvidia")).ok()?;
    generations.filter_map(Result::ok).map(|dir| dir.path().join("bin/ptxas")).find(|path| path.is_file())
}

/// Assembles `ptx` for every architecture and returns one line's worth of figures per kernel and
/// architecture.
///
/// Functions stay callable (`-c`), as they do in the loading calls of `gpu-usermap`; what a kernel
/// calls may need more registers than the kernel itself.
///
/// # Errors
/// `ptxas` rejects the text.
pub fn assemble(ptxas: &Path, ptx: &str, scratch: &Path) -> Result<Vec<Usage>, AssembleError> {
    let input = Input::new(scratch, ptx)?;
    let usage_on = |arch: &&str| Ok(usage(arch, &input.report(ptxas, arch)?));
    let each = ARCHITECTURES.iter().map(usage_on).collect::<Result<Vec<_>, AssembleError>>()?;
    Ok(each.into_iter().flatten().collect())
}

/// What one kernel costs a program's first start: bytes of PTX that the kernel needs, and how long
/// they take `ptxas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Kernel name.
    pub kernel: String,
    /// Bytes of PTX.
    pub bytes: usize,
    /// Time of `ptxas`; the driver takes about as long.
    pub time: Duration,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, bytes, time } = self;
        write!(f, "{kernel} alone: {} KiB of PTX, {:.2} s", bytes.div_ceil(1024), time.as_secs_f64())
    }
}

/// Assembles each of the kernels without the others, for [`TIMED_ARCHITECTURE`].
///
/// # Errors
/// `ptxas` rejects what is left of the text.
pub fn costs(ptxas: &Path, ptx: &str, kernels: &[&str], scratch: &Path) -> Result<Vec<Cost>, AssembleError> {
    let cost = |&kernel: &&str| {
        let only = only_entries(ptx, &[kernel]);
        let (input, start) = (Input::new(scratch, &only)?, Instant::now());
        input.report(ptxas, TIMED_ARCHITECTURE)?;
        Ok(Cost { kernel: kernel.to_owned(), bytes: only.len(), time: start.elapsed() })
    };
    kernels.iter().map(cost).collect()
}

/// A file with PTX, which is removed when the value is dropped.
struct Input(PathBuf);

impl Input {
    fn new(scratch: &Path, ptx: &str) -> Result<Self, AssembleError> {
        let path = scratch.join(format!("assemble-{}.ptx", std::process::id()));
        let written = fs::create_dir_all(scratch).and_then(|()| fs::write(&path, ptx));
        written.map_err(|source| AssembleError::File { path: path.clone(), source })?;
        Ok(Self(path))
    }

    /// Assembles it; returns what `ptxas` writes about the kernels.
    fn report(&self, ptxas: &Path, arch: &str) -> Result<String, AssembleError> {
        let mut command = Command::new(ptxas);
        command.arg("-c").arg("-v").arg(format!("-arch={arch}")).arg(&self.0).args(["-o", "/dev/null"]);
        let output = run::output(&mut command)
            .map_err(|source| AssembleError::Rejected { arch: arch.to_owned(), source })?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Reads what `ptxas -v` prints: the entry's name, then its properties, then its registers.
fn usage(arch: &str, report: &str) -> Vec<Usage> {
    let mut found = Vec::new();
    let mut current = Usage::default();
    let mut own_properties = false;
    for line in report.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            current = Usage { kernel, arch: arch.to_owned(), ..Usage::default() };
        } else if let Some(name) = line.split("Function properties for ").nth(1) {
            own_properties = name.trim() == current.kernel;
        } else if line.contains("bytes stack frame") && own_properties {
            let mut numbers =
                line.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty()).map(str::to_owned);
            let mut next = || numbers.next().unwrap_or_default();
            current.stack = next();
            current.spills = (next(), next());
        } else if let Some(rest) = line.split("Used ").nth(1).filter(|_| !current.kernel.is_empty()) {
            current.registers = rest.split(' ').next().unwrap_or_default().to_owned();
            found.push(std::mem::take(&mut current));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_read() {
        let report = "ptxas info    : 119 bytes gmem\n\
            ptxas info    : Compiling entry function 'k' for 'sm_90'\n\
            ptxas info    : Function properties for k\n    8 bytes stack frame, 4 bytes spill stores, 2 bytes spill loads\n\
            ptxas info    : Used 16 registers, used 1 barriers\n\
            ptxas info    : Function properties for f\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";
        let lines: Vec<_> = usage("sm_90", report).iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["k on sm_90: 16 registers, 8 bytes stack, spills 4 bytes stored, 2 bytes loaded"]);
    }
}
