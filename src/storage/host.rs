//! How much memory this process may use.
//!
//! Invariant: what cannot be found out is not guessed: without an answer there is no limit.
#![expect(
    clippy::disallowed_methods,
    reason = "the kernel's answers are files that no storage holds"
)]

use std::path::{Path, PathBuf};

/// Bytes of physical memory, or the limit of the control group that this process runs in, where
/// that is less.
#[must_use]
pub fn usable_memory() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let found = rustix::system::sysinfo();
    let physical = found.totalram.checked_mul(u64::from(found.mem_unit))?;
    Some(limit(read).map_or(physical, |limit| limit.min(physical)))
}

/// The least limit of the control groups that this process is in, of either version of them
/// (`man 7 cgroups`).
fn limit(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let (root, file) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            return None;
        };
        let group = PathBuf::from(format!("{root}{group}"));
        // A group may be limited by each one around it. What a container sees as the root may be
        // called otherwise in its list of groups.
        let around = group.ancestors().take_while(|group| group.starts_with(root));
        around
            .chain([Path::new(root)])
            .filter_map(|group| read(&group.join(file))?.trim().parse().ok())
            .min()
    };
    groups.lines().filter_map(of_line).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_the_groups_around_counts() {
        let v1 = "/sys/fs/cgroup/memory";
        for (name, files, want) in [
            ("none", vec![], None),
            (
                "version 2",
                vec![
                    ("/proc/self/cgroup", "0::/a/b\n"),
                    ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
                    ("/sys/fs/cgroup/a/memory.max", "4096\n"),
                ],
                Some(4096),
            ),
            (
                "version 1",
                vec![
                    ("/proc/self/cgroup", "5:cpu,memory:/x\n0::/\n"),
                    (&*format!("{v1}/x/memory.limit_in_bytes"), "99\n"),
                    (&*format!("{v1}/memory.limit_in_bytes"), "9223372036854771712\n"),
                ],
                Some(99),
            ),
            (
                "a container",
                vec![
                    ("/proc/self/cgroup", "5:memory:/docker/1\n"),
                    (&*format!("{v1}/memory.limit_in_bytes"), "7\n"),
                ],
                Some(7),
            ),
            (
                "another controller",
                vec![("/proc/self/cgroup", "5:cpu:/x\n"), ("/sys/fs/cgroup/x/memory.max", "1")],
                None,
            ),
        ] {
            let read = |path: &Path| {
                let found = files.iter().find(|(name, _)| Path::new(name) == path);
                found.map(|(_, text)| (*text).to_owned())
            };
            assert_eq!(limit(read), want, "{name}");
        }
        assert!(usable_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
