//! What the machine tells about itself: `/proc`, `/sys`, `/dev`, `/etc`, the environment.

pub mod pci;

use rustix::fs::{Access, access};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A file tree to read facts from: this machine's, or one made for a test.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
    environment: HashMap<String, String>,
}

/// Whether a file can be opened for reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opens {
    /// It can.
    Yes,
    /// It is not there.
    Absent,
    /// This user may not.
    Denied,
}

impl System {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        // Lossy: no name or value of interest is other than UTF-8.
        let text = |s: std::ffi::OsString| s.to_string_lossy().into_owned();
        let environment = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
        Self { root: PathBuf::from("/"), environment }
    }

    /// The tree below `root`, with an empty environment.
    #[must_use]
    pub fn under(root: &Path) -> Self {
        Self { root: root.to_owned(), environment: HashMap::new() }
    }

    /// Returns whether it is this machine, the one that libraries and system calls describe.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The real path of `path`, which is absolute.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without white space around it; `None` if it cannot be read.
    #[must_use]
    pub fn read(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file's bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(path))
    }

    /// A file that holds one number.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// The names in a directory, sorted; none if it cannot be read.
    #[must_use]
    pub fn list(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    /// Returns whether there is such a file or directory.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Where a symbolic link leads, as it is written.
    #[must_use]
    pub fn target(&self, path: &str) -> Option<String> {
        Some(fs::read_link(self.path(path)).ok()?.to_string_lossy().into_owned())
    }

    /// Returns whether this process may open a file for reading and writing.
    #[must_use]
    pub fn opens(&self, path: &str) -> Opens {
        let path = self.path(path);
        if !path.exists() {
            return Opens::Absent;
        }
        match access(&path, Access::READ_OK | Access::WRITE_OK) {
            Ok(()) => Opens::Yes,
            Err(_) => Opens::Denied,
        }
    }

    /// A variable of the environment.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }

    /// Returns whether a kernel module is loaded, or built in and shown.
    #[must_use]
    pub fn has_module(&self, name: &str) -> bool {
        self.exists(&format!("/sys/module/{name}"))
    }

    /// A loaded kernel module's version, if it has one.
    #[must_use]
    pub fn module_version(&self, name: &str) -> Option<String> {
        self.read(&format!("/sys/module/{name}/version"))
    }
}
