//! Limits the memory of a process and of all that it starts, where the system has given this program a
//! control group to divide (cgroup v2: the kernel's `Documentation/admin-guide/cgroup-v2.rst`).
//!
//! A group that holds processes has no limits for groups below it. So this program moves into a group
//! below its own, and each process of a hook gets another one beside that.
//!
//! Invariants:
//! 1. A limit is the kernel's, or there is none: where a step fails, all is as it was before.
//! 2. A group is changed only where it was delegated and nobody else is in it: systemd says so by an
//!    attribute of the folder, a container by making it the root that is seen.
#![expect(
    clippy::disallowed_methods,
    reason = "control groups are files of the kernel that no storage holds"
)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Processes of a group. What is written here moves there.
const PROCESSES: &str = "cgroup.procs";
/// What groups below have limits for.
const DIVIDED: &str = "cgroup.subtree_control";
/// How long the last process may take to go.
const LAST_BREATHS: Duration = Duration::from_secs(1);

/// The group that this program divides, where there is one.
static DELEGATED: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let found = delegated();
    tracing::debug!(group = ?found, "where the memory of hooks is limited");
    found
});

/// A group for one process and all that it starts.
#[derive(Debug)]
pub(super) struct Group {
    dir: PathBuf,
}

impl Group {
    /// A group that may take `most_bytes` of memory, its page cache included; `None` where the system
    /// does not let this program make one.
    pub(super) fn new(most_bytes: u64) -> Option<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = DELEGATED.as_ref()?.join(format!("rowmill-{}-{number}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        let group = Self { dir };
        let limited = group.set("memory.max", &most_bytes.to_string());
        // A kernel may come without swap.
        group.set("memory.swap.max", "0").ok();
        limited.and_then(|()| group.set("memory.oom.group", "1")).ok().map(|()| group)
    }

    /// The folder, for [`enter`].
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the kernel has ended processes of the group because they took too much.
    pub(super) fn has_overrun(&self) -> bool {
        let events = fs::read_to_string(self.dir.join("memory.events")).unwrap_or_default();
        let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        killed.is_some_and(|n| n.trim() != "0")
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.dir.join(name), value)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let until = Instant::now() + LAST_BREATHS;
        while fs::remove_dir(&self.dir).is_err() && Instant::now() < until {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

/// Moves this process into a group. What it starts from now on is in it as well.
pub(super) fn enter(dir: &Path) -> io::Result<()> {
    fs::write(dir.join(PROCESSES), "0")
}

/// The folder of this program's group, ready to be divided.
fn delegated() -> Option<PathBuf> {
    let seen = own_group(&fs::read_to_string("/proc/self/cgroup").ok()?)?;
    let dir = folder(&fs::read_to_string("/proc/self/mountinfo").ok()?, &seen)?;
    // The root of all groups has no type. It belongs to the system.
    let is_root_of_namespace = seen == Path::new("/") && dir.join("cgroup.type").exists();
    if !is_root_of_namespace && !is_marked(&dir) {
        return None;
    }
    if !names(&dir.join("cgroup.controllers"), "memory") {
        return None;
    }
    let own = std::process::id().to_string();
    if fs::read_to_string(dir.join(PROCESSES)).ok()?.trim() != own {
        return None;
    }
    let inner = dir.join(format!("rowmill-{own}"));
    fs::create_dir(&inner).ok()?;
    let divided = fs::write(inner.join(PROCESSES), &own)
        .and_then(|()| fs::write(dir.join(DIVIDED), "+memory"));
    if divided.is_err() {
        fs::write(dir.join(PROCESSES), &own).ok();
        fs::remove_dir(&inner).ok();
    }
    divided.is_ok().then_some(dir)
}

/// Whether systemd has delegated the group.
fn is_marked(dir: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0_u8; 1];
        rustix::fs::getxattr(dir, *name, &mut value).is_ok_and(|n| n == 1) && value == *b"1"
    })
}

/// Whether a word stands in a file.
fn names(path: &Path, word: &str) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace().any(|it| it == word)
}

/// This process's group of version 2, as `/proc/self/cgroup` has it (`man 7 cgroups`).
fn own_group(text: &str) -> Option<PathBuf> {
    text.lines().find_map(|line| line.strip_prefix("0::")).map(PathBuf::from)
}

/// Where that group is mounted, by `/proc/self/mountinfo` (`man 5 proc`). A mount whose path is written with
/// escapes is passed over.
fn folder(mounts: &str, group: &Path) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut fields = place.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        if kind.split(' ').next() != Some("cgroup2") || point.contains('\\') {
            return None;
        }
        let below = group.strip_prefix(root).ok()?;
        Some(if below.as_os_str().is_empty() { point.into() } else { Path::new(point).join(below) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_where_it_is_mounted() {
        let mounts = "22 1 0:20 / /proc rw - proc proc rw\n\
                      30 25 0:26 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro\n\
                      31 30 0:27 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n\
                      32 30 0:28 / /sys/fs/a\\040b rw - cgroup2 cgroup2 rw\n\
                      33 30 0:28 /jobs /sys/fs/jobs rw shared:11 - cgroup2 cgroup2 rw\n\
                      34 30 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:11 - cgroup2 cgroup2 rw\n";
        for (text, want) in [
            ("4:memory:/x\n0::/jobs/a\n", Some("/sys/fs/jobs/a")),
            ("0::/jobs\n", Some("/sys/fs/jobs")),
            ("0::/user.slice/b\n", Some("/sys/fs/cgroup/unified/user.slice/b")),
            ("0::/\n", Some("/sys/fs/cgroup/unified")),
            ("4:memory:/x\n", None),
            ("", None),
        ] {
            let found = own_group(text).and_then(|group| folder(mounts, &group));
            assert_eq!(found.as_deref(), want.map(Path::new), "{text}");
        }
    }
}
