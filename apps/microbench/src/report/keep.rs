//! The files of a report, which are checked before anything is measured.

use super::{Report, lines};
use crate::outcome::Outcome;
use crate::scratch::Scratch;
use rustix::fs::{Access, access};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// `--json`, or `report --out`: a file that always holds the report so far.
pub struct Json {
    option: &'static str,
    /// As the command line names it.
    named: PathBuf,
    destination: Destination,
}

enum Destination {
    /// A regular file, which need not exist yet. It is replaced as a whole, so that it never holds
    /// half a report.
    File(PathBuf),
    /// Anything else, such as /dev/stdout. It is written once, when the report is complete.
    Stream,
}

impl Json {
    /// Checks that the report can be written there.
    pub fn new(option: &'static str, named: &Path) -> Outcome<Self> {
        let destination = if is_stream(named) {
            Destination::Stream
        } else {
            // A link stays a link.
            let path = std::fs::canonicalize(named).unwrap_or_else(|_| named.to_owned());
            check(&path).map_err(|error| failed(option, named, &error))?;
            Destination::File(path)
        };
        Ok(Self { option, named: named.to_owned(), destination })
    }

    /// Writes the report so far; to a stream only if it is complete.
    pub fn save(&self, report: &Report, all: bool) -> Outcome<()> {
        let text = lines::to_text(report)?;
        let saved = match &self.destination {
            Destination::File(path) => replace(path, &text),
            Destination::Stream if all => append(&self.named, &text),
            Destination::Stream => Ok(()),
        };
        saved.map_err(|error| failed(self.option, &self.named, &error))
    }
}

/// Checks that the file that `option` names can be written.
pub fn check_target(option: &str, path: &Path) -> Outcome<()> {
    if is_stream(path) { Ok(()) } else { check(path).map_err(|error| failed(option, path, &error)) }
}

fn failed(option: &str, path: &Path, error: &io::Error) -> Box<dyn std::error::Error> {
    format!("{option} {}: {error}", path.display()).into()
}

/// Returns whether the path is neither a file nor a folder, or names a descriptor.
fn is_stream(path: &Path) -> bool {
    let other = path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
    other || ["/dev/", "/proc/"].iter().any(|folder| path.starts_with(folder))
}

/// Checks that a file can be written there: an existing one may be changed, a new one may be
/// created in its folder.
fn check(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if path.exists() {
        return Ok(access(path, Access::WRITE_OK)?);
    }
    std::fs::File::create(beside(path)?.path()).map(drop)
}

/// Replaces a file as a whole.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = beside(path)?;
    let replaced = std::fs::write(new.path(), text).and_then(|()| std::fs::rename(new.path(), path));
    // The folder may be read-only while the file is writable.
    replaced.or_else(|_| std::fs::write(path, text))
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes())
}

/// A file in the same folder, removed when it is dropped.
fn beside(path: &Path) -> io::Result<Scratch> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let new = format!(".{}.{}", name.to_string_lossy(), std::process::id());
    Ok(Scratch::file(path.with_file_name(new)))
}

#[cfg(test)]
mod tests {
    use super::super::{FORMAT, Machine};
    use super::*;

    fn report(command: &str) -> Report {
        let (gpunet, command, machine) = (String::new(), command.to_owned(), Machine::look());
        let (measurements, tables) = (Vec::new(), Vec::new());
        Report { format: FORMAT, gpunet, build: None, command, started: 0, machine, measurements, tables }
    }

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gpunet-bench-keep-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_a_link_stays_one() {
        let folder = folder("replace");
        let (file, link) = (folder.join("report.json"), folder.join("link.json"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let json = Json::new("--json", &link).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "old", "only looked at");
        for command in ["one", "two"] {
            json.save(&report(command), false).unwrap();
            assert_eq!(super::super::read(&file).unwrap().command, command);
        }
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "nothing beside them");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn places_where_nothing_can_be_written_are_known_at_once() {
        let folder = folder("places");
        let said = |path: &Path| check_target("--plot", path).unwrap_err().to_string();
        assert!(said(&folder).contains("directory"), "{}", said(&folder));
        let nowhere = folder.join("nowhere/chart.svg");
        assert!(said(&nowhere).contains("No such file"), "{}", said(&nowhere));
        assert!(Json::new("--json", &nowhere).is_err());
        check_target("--plot", &folder.join("chart.svg")).unwrap();
        check_target("--plot", Path::new("/dev/null")).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_stream_gets_the_report_at_the_end() {
        let json = Json::new("--json", Path::new("/dev/null")).unwrap();
        assert!(matches!(json.destination, Destination::Stream));
        json.save(&report(""), false).unwrap();
        json.save(&report(""), true).unwrap();
    }
}
