//! Files, folders and started programs that this program removes when it ends, also when a signal
//! ends it.

use gpunet_app::interrupt;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The things to remove.
static THINGS: Mutex<Vec<Thing>> = Mutex::new(Vec::new());

#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    File(PathBuf),
    Folder(PathBuf),
    Group(Pid),
}

impl Thing {
    fn remove(&self) {
        // It may be gone already.
        match self {
            Self::File(path) => drop(std::fs::remove_file(path)),
            Self::Folder(path) => drop(std::fs::remove_dir_all(path)),
            Self::Group(leader) => drop(kill_process_group(*leader, Signal::KILL)),
        }
    }
}

/// A file, a folder or a group of processes that is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch(Thing);

impl Scratch {
    /// A file, which need not exist yet.
    pub fn file(path: PathBuf) -> Self {
        Self::new(Thing::File(path))
    }

    /// Makes a folder.
    pub fn folder(path: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&path)?;
        Ok(Self::new(Thing::Folder(path)))
    }

    /// The process group that `leader` leads.
    pub fn group(leader: Pid) -> Self {
        Self::new(Thing::Group(leader))
    }

    /// The path; empty for processes.
    pub fn path(&self) -> &Path {
        match &self.0 {
            Thing::File(path) | Thing::Folder(path) => path,
            Thing::Group(_) => Path::new(""),
        }
    }

    fn new(thing: Thing) -> Self {
        things().push(thing.clone());
        Self(thing)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut things = things();
        if let Some(at) = things.iter().rposition(|thing| *thing == self.0) {
            things.swap_remove(at).remove();
        }
    }
}

fn things() -> MutexGuard<'static, Vec<Thing>> {
    THINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on SIGINT and SIGTERM remove everything and end the program immediately.
pub fn clean_up_on_signals() -> io::Result<()> {
    interrupt::end_after(|| {
        let things = things();
        things.iter().rev().for_each(Thing::remove);
        // The list stays locked, so that no thread adds anything from now on.
        std::mem::forget(things);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_go_with_their_owner() {
        let name = format!("gpunet-bench-scratch-{}", std::process::id());
        let folder = Scratch::folder(std::env::temp_dir().join(name)).unwrap();
        let file = Scratch::file(folder.path().join("file"));
        std::fs::write(file.path(), "").unwrap();
        let paths = [folder.path().to_owned(), file.path().to_owned()];
        drop(file);
        assert_eq!(paths.clone().map(|path| path.exists()), [true, false]);
        drop(folder);
        assert!(!paths[0].exists());
    }
}
