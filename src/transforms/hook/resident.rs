//! How much memory a process group holds.
//!
//! Invariant: what cannot be found out is not guessed: without an answer there is no limit.
#![expect(
    clippy::disallowed_methods,
    reason = "the kernel's answers are files that no storage holds"
)]

use std::path::Path;

use rustix::process::Pid;

/// Bytes of physical memory that the processes of a group hold. What several of them share counts for
/// each.
pub(super) fn group_bytes(group: Pid) -> Option<u64> {
    let group = group.as_raw_nonzero().get().to_string();
    let page_bytes = u64::try_from(rustix::param::page_size()).ok()?;
    let mut pages = 0;
    for entry in std::fs::read_dir(Path::new("/proc")).ok()? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        if !name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            continue;
        }
        // A process that ends meanwhile holds nothing.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        pages += pages_of(&stat, &group).unwrap_or(0);
    }
    Some(pages * page_bytes)
}

/// Pages of the process that `stat` describes (`man 5 proc`), if it is of this group. Its name, in
/// brackets, may hold anything.
fn pages_of(stat: &str, group: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind.split_ascii_whitespace().collect();
    // The state, the parent and the group are the first three behind the name; the resident pages are
    // field 24 of all.
    let is_of_group = fields.get(2).is_some_and(|found| *found == group);
    fields.get(21).filter(|_| is_of_group)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_stand_behind_a_name_that_may_hold_anything() {
        let rest =
            " S 1 77 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 99999 321 18446744073709551615";
        for (name, stat, group, want) in [
            ("plain", format!("5 (cat){rest}"), "77", Some(321)),
            ("another group", format!("5 (cat){rest}"), "78", None),
            ("brackets", format!("5 (a) S 1 78 (b){rest}"), "77", Some(321)),
            ("nothing", String::new(), "77", None),
        ] {
            assert_eq!(pages_of(&stat, group), want, "{name}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_holds_memory() {
        let group = rustix::process::getpgrp();
        assert!(group_bytes(group).is_some_and(|bytes| bytes > 1 << 20));
    }
}
