//! Running the program under test, and the file trees it is given.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The program, without the settings in this test's environment.
pub fn diagnose(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpunet-diagnose"));
    command.args(args).stdin(Stdio::null());
    command.env_remove("GPUNETD_LISTEN_PATH").env_remove("GPUNET_DAEMON");
    command
}

/// Runs it to its end, which its own limits guarantee.
pub fn run(args: &[&str]) -> Output {
    diagnose(args).output().expect("the program starts")
}

/// What it wrote to standard output.
pub fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// The object that it printed.
pub fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|why| panic!("{why}\n{}\n{}", text(output), String::from_utf8_lossy(&output.stderr)))
}

/// The status of a check, of the first if there are several.
pub fn status<'a>(report: &'a Value, id: &str) -> &'a str {
    find(report, id)["status"].as_str().expect("a status")
}

/// A check, the first if there are several.
pub fn find<'a>(report: &'a Value, id: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id} in {report:#}"))
}

/// A directory that is removed when the value is dropped.
pub struct Tree(PathBuf);

impl Tree {
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // Ordering: Relaxed; the number only has to differ.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gpunet-diagnose-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    fn place(&self, path: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        path
    }

    pub fn file(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        fs::write(self.place(path), text).expect("a file");
        self
    }

    pub fn files(&self, directory: &str, files: &[(&str, &str)]) -> &Self {
        for (name, text) in files {
            self.file(&format!("{directory}/{name}"), text);
        }
        self
    }

    pub fn link(&self, path: &str, target: &str) -> &Self {
        std::os::unix::fs::symlink(target, self.place(path)).expect("a link");
        self
    }

    /// A PCI device, where its path from the root complex leads.
    pub fn pci(&self, path: &str, files: &[(&str, &str)]) -> &Self {
        let address = path.rsplit('/').next().expect("an address");
        self.files(&format!("sys/devices/{path}"), files);
        self.link(&format!("sys/bus/pci/devices/{address}"), &format!("../../../devices/{path}"))
    }

    /// The program's report on this machine, and its exit code.
    pub fn diagnose(&self) -> (Value, i32) {
        let output = run(&["--json", "--root", self.0.to_str().expect("a plain path")]);
        (object(&output), output.status.code().expect("an end by itself"))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
