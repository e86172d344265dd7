//! Fetches Debian's `rust-src` package without changing the system's apt sources or installing
//! anything.
//!
//! The mirror is the one that the system's apt is configured with; only the suite differs. apt
//! works in a private directory and checks signatures as always. If the system's keyring is too old
//! to know the suite's key, a newer `debian-archive-keyring` is fetched from the system's own
//! suite, whose signature the system can check.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{self, RunError};

/// The suite that carries several recent compiler versions side by side.
const SUITE: &str = "trixie-backports";
const KEYRING: &str = "usr/share/keyrings/debian-archive-keyring.gpg";

/// Why Debian's package could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum DebianError {
    /// apt or dpkg is missing or failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A file could not be written.
    #[error("{what} {path}: {source}", path = .path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
        r#source: std::io::Error,
    },
    /// No configured mirror has the suite.
    #[error(
        "none of the mirrors in the system's apt configuration offers the suite {SUITE}; the first one said: {0}"
    )]
    NoMirror(String),
    /// The suite has no such version.
    #[error("{SUITE} has no rust-src of version {wanted}; it has: {offered}")]
    NoVersion {
        /// Compiler version.
        wanted: String,
        /// Package versions there.
        offered: String,
    },
    /// apt succeeded but left no package behind.
    #[error("apt reported success but the package {0} is not there")]
    NoPackage(&'static str),
}

/// Puts the library sources of compiler version `release` at `destination/library`.
///
/// # Errors
/// This is not a Debian system, no mirror has the version, or the disk is full.
pub fn fetch_rust_src(release: &str, destination: &Path) -> Result<(), DebianError> {
    let work = destination.with_extension(format!("partial-{}", std::process::id()));
    let result = fetch_into(release, &work, destination);
    // The download is useless once unpacked or failed; an error here must not hide the result.
    let _ = fs::remove_dir_all(&work);
    result
}

fn fetch_into(release: &str, work: &Path, destination: &Path) -> Result<(), DebianError> {
    let mut first = None;
    for mirror in mirrors()? {
        let apt = match Apt::with_suite(work, &mirror) {
            Ok(apt) => apt,
            Err(error) => {
                // The main archive comes first in practice, so its error is the helpful one.
                first = first.or(Some(error));
                continue;
            }
        };
        let version = apt.version_of(release)?;
        let tree = apt.unpack("rust-src", Some(&version))?;
        let library = tree.join(format!("usr/src/rustc-{release}/library"));
        make_dir(destination)?;
        let target = destination.join("library");
        return fs::rename(&library, &target).map_err(|source| DebianError::File {
            what: "cannot create",
            path: target,
            source,
        });
    }
    Err(DebianError::NoMirror(
        first.map_or_else(|| "nothing; there is none".into(), |error| error.to_string()),
    ))
}

/// A repository that the system's apt uses: its address, and a suite the system trusts there.
struct Mirror {
    address: String,
    suite: String,
}

/// Asks apt which indexes an update would fetch. Nothing is fetched, and it works before the
/// machine's first `apt-get update`.
fn mirrors() -> Result<Vec<Mirror>, DebianError> {
    let text = run::stdout(Command::new("apt-get").args(["--print-uris", "update"]))?;
    let mut found: Vec<Mirror> = Vec::new();
    for mirror in text.lines().filter_map(mirror) {
        if found.iter().all(|known| known.address != mirror.address) {
            found.push(mirror);
        }
    }
    Ok(found)
}

/// Reads `'<address>/dists/<suite>/InRelease' <file name> 0`.
fn mirror(line: &str) -> Option<Mirror> {
    let index = line.strip_prefix('\'')?.split('\'').next()?;
    let (address, rest) = index.split_once("/dists/")?;
    Some(Mirror { address: address.to_owned(), suite: rest.strip_suffix("/InRelease")?.to_owned() })
}

/// apt with its own sources, lists and caches under one directory.
struct Apt {
    root: PathBuf,
}

impl Apt {
    fn with_suite(work: &Path, mirror: &Mirror) -> Result<Self, DebianError> {
        let system = Path::new("/").join(KEYRING);
        let system = system.is_file().then_some(system);
        let address = &mirror.address;
        let first = Self::new(&work.join("suite"), address, SUITE, system.as_deref());
        let Err(error) = first else { return first };
        // Only a missing key is worth a second attempt.
        if !error.to_string().contains("NO_PUBKEY") {
            return Err(error);
        }
        let own = Self::new(&work.join("keyring"), address, &mirror.suite, system.as_deref())?;
        let keyring = own.unpack("debian-archive-keyring", None)?.join(KEYRING);
        Self::new(&work.join("suite"), address, SUITE, Some(&keyring))
    }

    fn new(root: &Path, address: &str, suite: &str, keyring: Option<&Path>) -> Result<Self, DebianError> {
        // An earlier attempt with the same directory must leave nothing behind.
        let _ = fs::remove_dir_all(root);
        for part in ["lists/partial", "archives/partial"] {
            make_dir(&root.join(part))?;
        }
        let signed = keyring.map(|path| format!("[signed-by={}] ", path.display())).unwrap_or_default();
        let sources = root.join("sources.list");
        fs::write(&sources, format!("deb {signed}{address} {suite} main\n"))
            .map_err(|source| DebianError::File { what: "cannot write", path: sources, source })?;
        let apt = Self { root: root.to_path_buf() };
        // Without this option apt counts a repository it could not reach as a warning.
        run::output(apt.command("apt-get").args(["-o", "APT::Update::Error-Mode=any", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = |name: &str| self.root.join(name).display().to_string();
        for setting in [
            format!("Dir::Etc::sourcelist={}", path("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".into(),
            format!("Dir::State::lists={}", path("lists")),
            format!("Dir::Cache::archives={}", path("archives")),
            "Dir::Cache::pkgcache=".into(),
            "Dir::Cache::srcpkgcache=".into(),
            // The private directory may lie where apt's unprivileged download user cannot write.
            "APT::Sandbox::User=root".into(),
        ] {
            command.arg("-o").arg(setting);
        }
        command.env("LC_ALL", "C").current_dir(&self.root);
        command
    }

    fn version_of(&self, release: &str) -> Result<String, DebianError> {
        let text = run::stdout(self.command("apt-cache").args(["madison", "rust-src"]))?;
        let versions: Vec<&str> =
            text.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).collect();
        let matches = |v: &&&str| v.strip_prefix(release).is_some_and(|rest| rest.starts_with(['+', '-']));
        let found = versions.iter().find(matches);
        found
            .map(ToString::to_string)
            .ok_or_else(|| DebianError::NoVersion { wanted: release.into(), offered: versions.join(", ") })
    }

    fn unpack(&self, package: &'static str, version: Option<&str>) -> Result<PathBuf, DebianError> {
        let wanted = version.map_or_else(|| package.to_owned(), |v| format!("{package}={v}"));
        run::output(self.command("apt-get").args(["download", &wanted]))?;
        let files = fs::read_dir(&self.root).map_err(|source| DebianError::File {
            what: "cannot read",
            path: self.root.clone(),
            source,
        })?;
        let deb = files
            .filter_map(Result::ok)
            .map(|f| f.path())
            .find(|p| p.extension().is_some_and(|e| e == "deb"));
        let deb = deb.ok_or(DebianError::NoPackage(package))?;
        let tree = self.root.join("tree");
        run::output(Command::new("dpkg").arg("-x").arg(deb).arg(&tree))?;
        Ok(tree)
    }
}

fn make_dir(path: &Path) -> Result<(), DebianError> {
    fs::create_dir_all(path).map_err(|source| DebianError::File {
        what: "cannot create",
        path: path.to_path_buf(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_read_from_the_indexes_that_apt_would_fetch() {
        let line =
            "'http://mirror.example/debian/dists/bookworm-updates/InRelease' mirror.example_InRelease 0 ";
        let found = mirror(line).expect("an index of a suite");
        assert_eq!(
            (found.address.as_str(), found.suite.as_str()),
            ("http://mirror.example/debian", "bookworm-updates")
        );
        assert!(mirror("Reading package lists...").is_none());
    }
}
