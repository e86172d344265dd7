//! This program in its second role: cargo's `RUSTC_WRAPPER` during a kernel build.
//!
//! Cargo derives each crate's `-C metadata` from paths (for `core`, from where the toolchain is
//! installed). It ends up in the mangled names of every symbol, so the same source would give other
//! PTX on another machine. The wrapper replaces it, for device crates only, by the crate's name and
//! version, and hands everything else to the compiler unchanged.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// Set (to anything) in the environment of the cargo call: run as the wrapper.
pub const ROLE: &str = "GPUNET_BUILD_PTX_WRAPPER";

/// Runs the compiler named by the first argument with the remaining ones.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.is_empty() {
        eprintln!("gpunet-build-ptx: the compiler wrapper was called without a compiler");
        return ExitCode::FAILURE;
    }
    let compiler = arguments.remove(0);
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let status = Command::new(&compiler).args(stable_metadata(arguments, &version)).status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)),
        Err(error) => {
            eprintln!("gpunet-build-ptx: cannot start {}: {error}", compiler.to_string_lossy());
            ExitCode::FAILURE
        }
    }
}

fn stable_metadata(mut arguments: Vec<OsString>, version: &str) -> Vec<OsString> {
    let after =
        |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)).cloned();
    let device = after("--target").is_some_and(|target| target == crate::toolchain::TARGET);
    let name = after("--crate-name").unwrap_or_default();
    if !device {
        return arguments;
    }
    for argument in &mut arguments {
        if argument.to_str().is_some_and(|a| a.starts_with("metadata=")) {
            *argument = format!("metadata={}-{version}", name.to_string_lossy()).into();
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn metadata_of_a_device_crate_depends_on_name_and_version_only() {
        let given = call("--crate-name core -C metadata=12ab --target nvptx64-nvidia-cuda");
        let wanted = call("--crate-name core -C metadata=core-1.0.0 --target nvptx64-nvidia-cuda");
        assert_eq!(stable_metadata(given, "1.0.0"), wanted);
    }

    #[test]
    fn host_crates_are_left_alone() {
        let given = call("--crate-name build_script_build -C metadata=12ab");
        assert_eq!(stable_metadata(given.clone(), "1.0.0"), given);
    }
}
