//! Which processes stand below another, and how much memory they hold.
//!
//! Invariant: what cannot be found out is not guessed: without an answer there is no limit.
#![expect(
    clippy::disallowed_methods,
    reason = "the kernel's answers are files that no storage holds"
)]

use std::collections::BTreeSet;
use std::path::Path;

use rustix::process::Pid;

/// One line of the kernel's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    id: i32,
    parent: i32,
    /// Resident ones.
    pages: u64,
}

/// Bytes of physical memory that the processes below `root` hold, without its own. What several of them
/// share counts for each.
pub(super) fn bytes_below(root: Pid) -> Option<u64> {
    let page_bytes = u64::try_from(rustix::param::page_size()).ok()?;
    let pages = below(root.as_raw_nonzero().get(), &processes()?);
    Some(pages.iter().map(|it| it.pages).sum::<u64>() * page_bytes)
}

/// The processes that `parent` is the parent of.
#[cfg(target_os = "linux")]
pub(super) fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().get();
    let all = processes().unwrap_or_default();
    all.iter().filter(|it| it.parent == parent).filter_map(|it| Pid::from_raw(it.id)).collect()
}

/// All processes below one of them.
fn below(root: i32, all: &[Process]) -> Vec<Process> {
    let (mut found, mut known) = (Vec::new(), BTreeSet::from([root]));
    loop {
        let is_new = |it: &&Process| known.contains(&it.parent) && !known.contains(&it.id);
        let new: Vec<Process> = all.iter().filter(is_new).copied().collect();
        if new.is_empty() {
            return found;
        }
        known.extend(new.iter().map(|it| it.id));
        found.extend(new);
    }
}

/// All processes; `None` where the system does not tell.
fn processes() -> Option<Vec<Process>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(Path::new("/proc")).ok()? {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ends meanwhile holds nothing.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        found.extend(described(id, &stat));
    }
    Some(found)
}

/// The process that `stat` describes (`man 5 proc`). Its name, in brackets, may hold anything.
fn described(id: i32, stat: &str) -> Option<Process> {
    let (_, behind) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind.split_ascii_whitespace().collect();
    // The state and the parent are the first two behind the name; the resident pages are field 24 of
    // all.
    let parent = fields.get(1)?.parse().ok()?;
    Some(Process { id, parent, pages: fields.get(21)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_and_pages_stand_behind_a_name_that_may_hold_anything() {
        let rest =
            " S 77 1 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 99999 321 18446744073709551615";
        let want = Some(Process { id: 5, parent: 77, pages: 321 });
        for (name, stat, want) in [
            ("plain", format!("5 (cat){rest}"), want),
            ("brackets", format!("5 (a) S 1 78 (b){rest}"), want),
            ("nothing", String::new(), None),
            ("cut off", "5 (cat) S 77".to_owned(), None),
        ] {
            assert_eq!(described(5, &stat), want, "{name}");
        }
    }

    #[test]
    fn only_what_stands_below_a_process_counts() {
        let process = |(id, parent)| Process { id, parent, pages: 1 };
        let all = [(4, 3), (2, 1), (3, 2), (5, 1), (6, 6), (1, 0)].map(process);
        for (root, want) in [(1, vec![2, 5, 3, 4]), (2, vec![3, 4]), (4, vec![]), (6, vec![])] {
            let found: Vec<i32> = below(root, &all).iter().map(|it| it.id).collect();
            assert_eq!(found, want, "{root}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_holds_memory() {
        let own = rustix::process::getpid();
        assert!(
            processes()
                .unwrap()
                .iter()
                .any(|it| Pid::from_raw(it.id) == Some(own) && it.pages > 256)
        );
    }
}
