//! Compresses the kernels' PTX, which the program embeds, and names the commit of a release build.

use std::path::Path;
use std::process::Command;

fn main() -> std::io::Result<()> {
    commit();
    gpunet_embed_ptx::compress("ptx/gpunet_bench_kernel.ptx")
}

/// Names the commit to the program. `GPUNET_COMMIT` names it where sources are copied without their
/// repository. Without both the program has no commit; nor has a debug build, which would be built
/// again after each commit, and whose figures say little.
fn commit() {
    println!("cargo::rerun-if-env-changed=GPUNET_COMMIT");
    if std::env::var("PROFILE").is_ok_and(|profile| profile != "release") {
        return;
    }
    let named = std::env::var("GPUNET_COMMIT").ok().filter(|name| !name.trim().is_empty());
    let commit = named.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    if let Some(commit) = commit {
        println!("cargo::rustc-env=GPUNET_BENCH_COMMIT={}", commit.trim());
    }
    // It grows by a line with each commit and each checkout.
    for log in git(&["rev-parse", "--git-path", "logs/HEAD"]).iter().filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// Returns the first line that git prints, if it succeeds.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()?.lines().next().map(str::to_owned)
}
