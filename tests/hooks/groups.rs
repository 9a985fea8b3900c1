//! Limits of memory that the kernel keeps. They need a control group (cgroup v2) that can be divided, which few
//! machines give to a test: `tests/hooks/uml.sh` runs these in a kernel of their own.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;

use crate::command::{Ran, files_of};
use crate::hook::{N_ROWS, can_run, place, rejects, rows, wait_for_none_in};

/// A group as systemd delegates one; removed when it is dropped.
struct Delegated(PathBuf);

impl Delegated {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let root = Path::new(mount.split(' ').nth(4)?);
        let divided = fs::read_to_string(root.join("cgroup.subtree_control")).ok()?;
        let dir = root.join(format!("rowmill-tests-{}", std::process::id()));
        if !divided.split_whitespace().any(|it| it == "memory") || fs::create_dir(&dir).is_err() {
            return None;
        }
        let group = Self(dir);
        rustix::fs::setxattr(&group.0, "user.delegate", b"1", XattrFlags::empty()).ok()?;
        Some(group)
    }

    /// The groups below it.
    fn below(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap().map(Result::unwrap);
        let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
        folders.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for name in self.below() {
            fs::remove_dir(self.0.join(name)).ok();
        }
        fs::remove_dir(&self.0).ok();
    }
}

#[test]
fn the_kernel_limits_memory_where_a_control_group_is_delegated() {
    if !can_run() {
        return;
    }
    let Some(group) = Delegated::new() else {
        eprintln!("SKIPPED: there is no control group here that can be divided");
        return;
    };
    let quarantine = "on_error = \"quarantine\"\nworkers = 2\nmemory = \"256MiB\"";
    let place = place("what = \"leak\", bad = 5, groups = true", quarantine);
    let mut entering = std::process::Command::new("sh");
    entering.current_dir(place.path("."));
    entering.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&group.0);
    entering.args([env!("CARGO_BIN_EXE_rowmill"), "run", "p.toml", "--out", "limited"]);
    let ran = Ran::of(entering.output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    wait_for_none_in(&place.path("."));
    // Each process had its own, and only the one of the run itself is left.
    let name = group.0.file_name().unwrap().to_str().unwrap();
    let seen = fs::read_to_string(place.path("groups.txt")).unwrap();
    let seen: Vec<&str> = seen.lines().collect();
    let [inner] = &group.below()[..] else { panic!("{:?}", group.below()) };
    assert!(seen.len() > 2, "{seen:?}");
    for (n, line) in seen.iter().enumerate() {
        assert!(line.starts_with(&format!("0::/{name}/{inner}-")), "{line}");
        assert!(line.ends_with(" 268435456"), "{line}");
        assert!(!seen[..n].contains(line), "{line}");
    }
    // The same bytes as where size is looked at from time to time.
    place.done(&["run", "p.toml"]);
    assert_eq!(rejects(&place), [("hook_memory".to_owned(), 5)]);
    assert_eq!(rows(&place).len() as u64, N_ROWS - 1);
    let of = |out: &str| files_of(&place.current(out, "hooked"));
    assert!(of("limited") == of("data"));
}
