//! A memory cgroup of a test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A group that goes with the value.
pub struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// Makes a group whose processes may have `limit` bytes; or says why this process cannot.
    pub fn new(limit: u64) -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("gpunet-test-{}-{number}", std::process::id());
        let tried = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let mut reasons = Vec::new();
        for (mount, file) in tried {
            let group = Self(Path::new(mount).join(&name));
            let made = std::fs::create_dir(&group.0);
            // Without swap, or what is beyond the limit lies there; where there is none, there is
            // no such file.
            let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
            // Anywhere else than in a group the file is not there, and cannot be made.
            match made.and_then(|()| std::fs::write(group.0.join(file), limit.to_string())) {
                Ok(()) => return Ok(group),
                Err(error) => reasons.push(format!("{mount}: {error}")),
            }
        }
        Err(format!("no memory cgroup can be made here ({})", reasons.join(", ")))
    }

    /// A command that runs in the group what `command` runs.
    pub fn command(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // The last process may not be gone yet.
        for _ in 0..1000 {
            match std::fs::remove_dir(&self.0) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                _ => return,
            }
        }
    }
}
