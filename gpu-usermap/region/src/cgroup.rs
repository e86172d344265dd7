//! How much memory the control groups (cgroups) of a process leave it.
//!
//! A process belongs to a group of each hierarchy, and the limits of all its ancestors count as
//! well. The kernel does not refuse shared memory beyond a limit: it ends processes of the group.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// A control group that limits the memory of a process.
///
/// # Examples
/// ```
/// use gpunet_region::MemoryGroup;
///
/// for group in MemoryGroup::of_process() {
///     println!("{} of {} bytes are left ({})", group.available(), group.limit, group.file.display());
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryGroup {
    /// The file that holds its limit.
    pub file: PathBuf,
    /// Bytes that its processes may have together.
    pub limit: u64,
    /// Bytes that they have and that the kernel cannot take back: without cached files.
    pub used: u64,
}

/// The files of a kind of hierarchy.
struct Hierarchy {
    /// Where it is mounted.
    mount: &'static str,
    limits: &'static [&'static str],
    used: &'static str,
    /// The lines of `memory.stat` with the bytes of cached files, of this group and those below it.
    cached: [&'static str; 2],
}

const V1: Hierarchy = Hierarchy {
    mount: "sys/fs/cgroup/memory",
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    cached: ["total_inactive_file", "total_active_file"],
};
const V2: Hierarchy = Hierarchy {
    mount: "sys/fs/cgroup",
    // A group beyond its `memory.high` is not ended, but made so slow that nothing works in it.
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    cached: ["inactive_file", "active_file"],
};
/// Version 2 beside version 1.
const HYBRID: Hierarchy = Hierarchy { mount: "sys/fs/cgroup/unified", ..V2 };

/// What version 1 shows for "no limit" is the largest multiple of a page below 2^63; nobody has so
/// much.
const NO_LIMIT: u64 = 1 << 60;

impl MemoryGroup {
    /// Returns the groups of this process that have a limit; none where the system has no groups.
    #[must_use]
    pub fn of_process() -> Vec<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::read(Path::new("/"), &own)
    }

    /// Returns the groups with a limit among those that `own`, the text of a `/proc/PID/cgroup`,
    /// names, and their ancestors, as the file tree below `root` shows them.
    #[must_use]
    pub fn read(root: &Path, own: &str) -> Vec<Self> {
        let mut groups = Vec::new();
        for line in own.lines() {
            // "4:memory:/path" of version 1, "0::/path" of version 2.
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let hierarchies: &[Hierarchy] = match controllers {
                "" => &[V2, HYBRID],
                names if names.split(',').any(|name| name == "memory") => &[V1],
                _ => &[],
            };
            for hierarchy in hierarchies {
                hierarchy.collect(root, Path::new(path), &mut groups);
            }
        }
        groups
    }

    /// Returns the bytes that its processes may still take.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

impl Hierarchy {
    /// Reads the group at `path` and its ancestors. In a container the path may be the host's, of
    /// which only the end is mounted here, as the root: the ancestors that are not here are passed
    /// over.
    fn collect(&self, root: &Path, path: &Path, groups: &mut Vec<MemoryGroup>) {
        let mount = root.join(self.mount);
        // A group outside of the container's own root is shown as "/../name".
        let is_inside =
            path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let path = if is_inside { path } else { Path::new("/") };
        for group in path.ancestors() {
            let directory = mount.join(group.strip_prefix("/").unwrap_or(group));
            let limits = self.limits.iter().filter_map(|name| {
                let file = directory.join(name);
                let limit = number(&file).filter(|&limit| limit < NO_LIMIT)?;
                Some((limit, file))
            });
            if let Some((limit, file)) = limits.min() {
                groups.push(MemoryGroup { file, limit, used: self.used(&directory) });
            }
        }
    }

    fn used(&self, directory: &Path) -> u64 {
        let used = number(&directory.join(self.used)).unwrap_or(0);
        let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().filter_map(|line| {
            let (name, bytes) = line.split_once(' ')?;
            self.cached.contains(&name).then(|| bytes.trim().parse::<u64>().ok())?
        });
        used.saturating_sub(cached.sum())
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file tree of a test.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("gpu-usermap-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }

        fn read(&self, own: &str) -> Vec<(String, u64, u64)> {
            let shown = |group: MemoryGroup| {
                let file = group.file.strip_prefix(&self.0).unwrap().to_string_lossy().into_owned();
                (file, group.limit, group.used)
            };
            MemoryGroup::read(&self.0, own).into_iter().map(shown).collect()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn found(file: &str, limit: u64, used: u64) -> (String, u64, u64) {
        (file.to_owned(), limit, used)
    }

    #[test]
    fn version_2_counts_every_ancestor_and_no_cached_files() {
        let tree = Tree::new(
            "v2",
            &[
                ("sys/fs/cgroup/cgroup.controllers", "memory\n"),
                ("sys/fs/cgroup/a/memory.max", "1000000\n"),
                ("sys/fs/cgroup/a/memory.high", "max\n"),
                ("sys/fs/cgroup/a/memory.current", "300000\n"),
                ("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 100000\nactive_file 50000\nshmem 9\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/b/memory.high", "max\n"),
                ("sys/fs/cgroup/a/b/c/memory.max", "900\n"),
                ("sys/fs/cgroup/a/b/c/memory.high", "800\n"),
                ("sys/fs/cgroup/a/b/c/memory.current", "850\n"),
            ],
        );
        let groups = [
            found("sys/fs/cgroup/a/b/c/memory.high", 800, 850),
            found("sys/fs/cgroup/a/memory.max", 1_000_000, 150_000),
        ];
        assert_eq!(tree.read("0::/a/b/c\n"), groups);
        assert_eq!(tree.read("0::/a\n"), groups[1..]);
        assert_eq!(tree.read("0::/\n"), []);
        let available =
            MemoryGroup::read(&tree.0, "0::/a/b/c").iter().map(MemoryGroup::available).collect::<Vec<_>>();
        assert_eq!(available, [0, 850_000]);
    }

    #[test]
    fn version_1_has_its_own_names_and_a_number_for_no_limit() {
        let tree = Tree::new(
            "v1",
            &[
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n"),
                ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "3000\n"),
                ("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 7\ntotal_inactive_file 1000\n"),
                ("sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "1\n"),
            ],
        );
        let a = found("sys/fs/cgroup/memory/a/memory.limit_in_bytes", 4096, 2000);
        assert_eq!(tree.read("5:cpu:/a\n4:memory:/a\n0::/\n"), std::slice::from_ref(&a));
        assert_eq!(tree.read("4:hugetlb,memory:/a/there-is-no-such-group\n"), [a]);
    }

    #[test]
    fn in_a_container_the_root_is_its_own_group() {
        let tree = Tree::new(
            "container",
            &[
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n"),
                ("sys/fs/cgroup/unified/memory.max", "8192\n"),
            ],
        );
        let v1 = found("sys/fs/cgroup/memory/memory.limit_in_bytes", 4096, 0);
        let v2 = found("sys/fs/cgroup/unified/memory.max", 8192, 0);
        assert_eq!(tree.read("4:memory:/docker/0123abcd\n"), std::slice::from_ref(&v1));
        assert_eq!(tree.read("4:memory:/\n0::/../sibling\n"), [v1, v2]);
    }

    #[test]
    fn what_is_not_there_limits_nothing() {
        let tree = Tree::new("nothing", &[("sys/fs/cgroup/memory.max", "many\n")]);
        for own in ["", "0::/\n", "rubbish\n", "4:memory\n"] {
            assert_eq!(tree.read(own), [], "{own}");
        }
    }
}
