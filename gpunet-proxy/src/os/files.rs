//! Files that a user names.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reads a text of at most `most` bytes.
///
/// Only from a regular file: a FIFO waits for a writer, and a device may never end.
///
/// # Errors
/// The system's, or what is wrong with the file.
///
/// # Examples
/// ```
/// use gpunet_proxy::files::read_text;
/// use std::path::Path;
///
/// assert!(read_text(Path::new("/dev/zero"), 1024).is_err());
/// ```
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    // Without O_NONBLOCK, the open itself waits at a FIFO; and a terminal would become that of this
    // process.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut text = String::new();
    // Not by its length, which is 0 for files of /proc, and may change.
    if file.take(most + 1).read_to_string(&mut text)? as u64 > most {
        let why = format!("it is longer than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_end_are_read() {
        let path = std::env::temp_dir().join(format!("gpunet-text-{}", std::process::id()));
        std::fs::write(&path, "1234567").unwrap();
        assert_eq!(read_text(&path, 7).unwrap(), "1234567");
        assert!(read_text(&path, 6).unwrap_err().to_string().contains("longer than 6 bytes"));
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        for path in [&path, Path::new("/dev/zero"), Path::new("/")] {
            let error = read_text(path, 7).unwrap_err().to_string();
            assert!(error.contains("no regular file"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read_text(&path, 7).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
