//! What the storages promise, and what the model of a disk may lose.
#![expect(clippy::unwrap_used, reason = "what helpers of tests meet is a failure of the test")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rowmill::storage::faulty::{Fault, Lasting};
use rowmill::storage::memory::{Lost, Survival, survivals};
use rowmill::storage::{
    AppendFile, Faulty, Local, Lock, Memory, Overlap, Storage, StorageError, conformance,
};

fn root() -> &'static Path {
    Path::new("/")
}

fn put(storage: &dyn Storage, path: &str, bytes: &[u8]) -> Box<dyn AppendFile> {
    let mut file = storage.create(Path::new(path)).unwrap();
    file.append(bytes).unwrap();
    file
}

fn cause(error: &StorageError) -> String {
    format!("{error}: {}", error.source)
}

/// Every state that a power cut may leave, as names and bytes of all files.
fn futures(memory: &Memory) -> BTreeSet<Vec<(PathBuf, Vec<u8>)>> {
    let pending = memory.pending();
    assert!(pending <= 10, "too many for every set: {:?}", memory.pending_operations());
    survivals(pending, 1, 0)
        .map(|set| memory.after_power_cut(&|n| set.survives(n)).snapshot("/"))
        .collect()
}

fn names(files: &[(PathBuf, Vec<u8>)]) -> Vec<&str> {
    files.iter().map(|(path, _)| path.to_str().unwrap()).collect()
}

// Conformance.

#[test]
fn the_local_disk_conforms() {
    let dir = tempfile::tempdir().unwrap();
    conformance::check(&Local, dir.path());
}

#[test]
fn what_is_no_file_is_refused_without_waiting_for_it() {
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Held open at both ends, so that nothing waits here whatever is asked of it.
    let _held = rustix::fs::open(&pipe, OFlags::RDWR, Mode::empty()).unwrap();
    for path in [pipe.as_path(), dir.path()] {
        let errors = [
            Local.open(path).map(drop).unwrap_err(),
            Local.map(path).map(drop).unwrap_err(),
            Local.read(path).map(drop).unwrap_err(),
        ];
        for error in errors {
            assert!(cause(&error).ends_with("it is not a regular file"), "{}", cause(&error));
        }
    }
    let error = Local.open_append(&pipe, 0).map(drop).unwrap_err();
    assert!(cause(&error).ends_with("it is not a regular file"), "{}", cause(&error));
}

#[test]
fn the_model_conforms() {
    for overlap in [Overlap::Now, Overlap::Late] {
        let memory = Memory::new(overlap);
        assert_eq!(memory.overlap(), overlap);
        conformance::check(&memory, root());
        conformance::check(&Memory::new(overlap).with_whole_renames(), root());
        // What is left must conform, too.
        let dir = Path::new("/again");
        let next = memory.after_power_cut(&|n| n % 3 == 0);
        next.create_dir(dir).unwrap();
        conformance::check(&next, dir);
    }
}

#[test]
fn the_wrapper_conforms_while_nothing_fails() {
    let faulty = Faulty::new(Memory::default());
    faulty.count_reads();
    conformance::check(&faulty, root());
    let dir = tempfile::tempdir().unwrap();
    conformance::check(&Faulty::new(Local), dir.path());
}

// The local disk.

#[test]
fn local_free_space_is_known_below_folders_that_are_not_there_yet() {
    let dir = tempfile::tempdir().unwrap();
    let free = Local.free_bytes(&dir.path().join("a/b/c")).unwrap();
    assert!(free.is_some_and(|bytes| bytes > 0));
    assert!(Local.free_bytes(Path::new("not/there")).unwrap().is_some());
}

#[test]
fn local_errors_say_what_and_where() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    put(&Local, path.to_str().unwrap(), b"1234");
    let error = Local.open_append(&path, 6).unwrap_err();
    let want = format!(
        "cannot open for appending `{}`: it holds 4 bytes where 6 were promised",
        path.display()
    );
    assert_eq!(cause(&error), want);
}

#[test]
fn local_directories_are_found_through_links() {
    let dir = tempfile::tempdir().unwrap();
    Local.create_dir(&dir.path().join("real")).unwrap();
    Local.symlink("real", &dir.path().join("link")).unwrap();
    Local.create_dir(&dir.path().join("link")).unwrap();
    Local.create_dir_all(&dir.path().join("link/a/b")).unwrap();
    assert!(Local.stat(&dir.path().join("real/a/b")).unwrap().is_some());
}

// What the model may lose.

#[test]
fn a_name_is_durable_after_its_directory_was_synced_and_bytes_after_the_file_was() {
    for (sync_file, sync_dir, want) in [
        (true, true, vec![Some("1234")]),
        (true, false, vec![None, Some("1234")]),
        (false, true, vec![Some(""), Some("\0\0\0\0"), Some("1234")]),
        (false, false, vec![None, Some(""), Some("\0\0\0\0"), Some("1234")]),
    ] {
        let memory = Memory::default();
        let mut file = put(&memory, "/a", b"1234");
        if sync_file {
            file.sync().unwrap();
        }
        if sync_dir {
            memory.sync_dir(root()).unwrap();
        }
        let found: BTreeSet<_> = futures(&memory)
            .into_iter()
            .map(|files| files.first().map(|(_, bytes)| String::from_utf8(bytes.clone()).unwrap()))
            .collect();
        let want: BTreeSet<_> = want.into_iter().map(|w| w.map(str::to_owned)).collect();
        assert_eq!(found, want, "file synced: {sync_file}, directory synced: {sync_dir}");
    }
}

#[test]
fn pages_survive_on_their_own() {
    let memory = Memory::default();
    let mut file = put(&memory, "/a", b"");
    memory.sync_dir(root()).unwrap();
    file.append(&[1; 3 * 4096]).unwrap();
    // Three sizes, then three pages.
    assert_eq!(memory.pending(), 6, "{:?}", memory.pending_operations());
    let shown: Vec<_> = memory.pending_operations().iter().map(ToString::to_string).collect();
    assert_eq!((&*shown[1], &*shown[5]), ("size 8192 of /a", "page 2 of /a"));
    let after = memory.after_power_cut(&|n| n == 2 || n == 4);
    let bytes = after.read(Path::new("/a")).unwrap().unwrap();
    let want = [[0; 4096], [1; 4096], [0; 4096]].concat();
    assert_eq!(bytes, want);
    let stale = memory.after_power_cut_with(Lost::Stale, &|n| n == 2 || n == 4);
    let bytes = stale.read(Path::new("/a")).unwrap().unwrap();
    assert!(bytes.iter().all(|&b| b != 0));
    assert_eq!(bytes[4096..8192], [1; 4096]);
    assert_eq!(after.pending(), 0, "the next boot has it all on the medium");
}

#[test]
fn a_sync_promises_what_was_appended_before_its_handle_was_made() {
    let memory = Memory::default();
    let mut file = put(&memory, "/a", b"one");
    memory.sync_dir(root()).unwrap();
    let mut syncer = file.syncer();
    file.append(b"two").unwrap();
    syncer.sync().unwrap();
    let found: BTreeSet<_> = futures(&memory).into_iter().map(|files| files[0].1.clone()).collect();
    assert_eq!(found, BTreeSet::from([b"one".to_vec(), b"onetwo".to_vec(), b"one\0\0\0".to_vec()]));
}

#[test]
fn a_rename_within_a_directory_is_whole() {
    let memory = Memory::default();
    put(&memory, "/a", b"old").sync().unwrap();
    put(&memory, "/b", b"new").sync().unwrap();
    memory.sync_dir(root()).unwrap();
    memory.rename(Path::new("/b"), Path::new("/a")).unwrap();
    let found = futures(&memory);
    let old = vec![("a".into(), b"old".to_vec()), ("b".into(), b"new".to_vec())];
    assert_eq!(found, BTreeSet::from([old, vec![("a".into(), b"new".to_vec())]]));
    memory.sync_dir(root()).unwrap();
    assert_eq!(futures(&memory).len(), 1);
}

#[test]
fn a_rename_across_directories_needs_both_to_be_synced() {
    let both = ["from/a", "to/a"];
    for (whole, synced, want) in [
        (false, &[][..], vec![&both[..], &both[..1], &both[1..], &[]]),
        (false, &["/to"], vec![&both[..], &both[1..]]),
        (false, &["/from"], vec![&both[1..], &[]]),
        (false, &["/to", "/from"], vec![&both[1..]]),
        (true, &[], vec![&both[..1], &both[1..]]),
        (true, &["/to"], vec![&both[1..]]),
        (true, &["/from"], vec![&both[1..]]),
    ] {
        let memory = Memory::default();
        let memory = if whole { memory.with_whole_renames() } else { memory };
        for dir in ["/from", "/to"] {
            memory.create_dir_all(Path::new(dir)).unwrap();
        }
        put(&memory, "/from/a", b"1").sync().unwrap();
        memory.sync_dir(Path::new("/from")).unwrap();
        memory.rename(Path::new("/from/a"), Path::new("/to/a")).unwrap();
        for dir in synced {
            memory.sync_dir(Path::new(dir)).unwrap();
        }
        let found = futures(&memory);
        let found: BTreeSet<Vec<&str>> = found.iter().map(|files| names(files)).collect();
        let want = want.into_iter().map(<[&str]>::to_vec).collect();
        assert_eq!(found, want, "whole: {whole}, synced: {synced:?}");
    }
}

#[test]
fn a_directory_whose_name_is_lost_takes_what_it_holds_with_it() {
    let memory = Memory::default();
    memory.create_dir(Path::new("/d")).unwrap();
    put(&memory, "/d/a", b"1").sync().unwrap();
    memory.sync_dir(Path::new("/d")).unwrap();
    let found = futures(&memory);
    assert_eq!(found.iter().map(|f| names(f)).collect::<Vec<_>>(), [vec![], vec!["d/a"]]);
}

#[test]
fn a_removal_that_is_lost_brings_the_file_back() {
    let memory = Memory::default();
    put(&memory, "/a", b"1").sync().unwrap();
    memory.sync_dir(root()).unwrap();
    memory.remove_file(Path::new("/a")).unwrap();
    let found = futures(&memory);
    assert_eq!(found.iter().map(|f| names(f)).collect::<Vec<_>>(), [vec![], vec!["a"]]);
    memory.sync_dir(root()).unwrap();
    assert_eq!(memory.snapshot("/"), futures(&memory).pop_first().unwrap());
    assert_eq!(memory.pending(), 0);
}

#[test]
fn what_nobody_can_reach_is_not_pending() {
    let memory = Memory::default();
    let mut file = put(&memory, "/a", &vec![1; 100_000]);
    memory.remove_file(Path::new("/a")).unwrap();
    memory.sync_dir(root()).unwrap();
    file.append(b"1").unwrap();
    assert_eq!(memory.pending_operations(), []);
}

#[test]
fn an_atomic_write_leaves_the_old_or_the_new_bytes_wherever_the_power_is_cut() {
    let path = Path::new("/d/a");
    let before = || {
        let memory = Memory::default();
        memory.create_dir_all(Path::new("/d")).unwrap();
        memory.write_atomic(path, b"old").unwrap();
        memory.after_power_cut(&|_| false)
    };
    let memory = before();
    memory.write_atomic(path, b"new").unwrap();
    let operations = memory.operations();
    assert_eq!(operations, 5, "create, append, sync, rename, sync of the directory");
    for n in 0..=operations {
        let memory = before();
        memory.cut_at(n);
        let done = memory.write_atomic(path, b"new").is_ok();
        assert_eq!(done, n == operations);
        for set in survivals(memory.pending(), 1, 64) {
            let next = memory.after_power_cut(&|n| set.survives(n));
            let bytes = next.read(path).unwrap().unwrap();
            assert!(bytes == b"new" || bytes == b"old" && !done, "cut at {n}, {set:?}: {bytes:?}");
            next.write_atomic(path, b"next").unwrap();
            assert_eq!(next.read(path).unwrap().unwrap(), b"next", "cut at {n}, {set:?}");
        }
    }
}

#[test]
fn directories_that_a_killed_process_made_are_durable_once_they_were_asked_for() {
    let memory = Memory::default();
    let path = Path::new("/a/b");
    memory.create_dir_all(path).unwrap();
    let operations = memory.operations();
    for n in 0..operations {
        let memory = Memory::default();
        memory.cut_at(n);
        memory.create_dir_all(path).unwrap_err();
        let next = memory.after_kill();
        next.create_dir_all(path).unwrap();
        let lost = next.after_power_cut(&|_| false);
        assert!(lost.stat(path).unwrap().is_some(), "killed at {n}");
    }
}

// The power and the process.

#[test]
fn nothing_works_after_the_power_is_cut() {
    let memory = Memory::default();
    let mut file = put(&memory, "/a", b"1");
    memory.cut_at(3);
    file.sync().unwrap();
    let error = file.append(b"2").unwrap_err();
    assert_eq!(cause(&error), "cannot append to `/a`: power is cut");
    assert_eq!(error.source.kind(), ErrorKind::Other);
    assert!(memory.stat(Path::new("/a")).is_err());
    assert!(memory.sync_dir(root()).is_err());
    assert_eq!(memory.operations(), 3);
}

#[test]
fn a_kill_loses_nothing_and_gives_locks_back_and_makes_nothing_durable() {
    let memory = Memory::default();
    let path = Path::new("/lock");
    let held = memory.lock(path, "first").unwrap();
    put(&memory, "/a", b"1234");
    let next = memory.after_kill();
    assert_eq!(next.read(Path::new("/a")).unwrap().unwrap(), b"1234");
    assert_eq!(next.pending(), memory.pending());
    assert!(matches!(next.lock(path, "second").unwrap(), Lock::Held(_)));
    drop(held);
    let gone = next.after_power_cut(&|_| false);
    assert_eq!(gone.list(root()).unwrap().unwrap(), []);
}

#[test]
fn operations_are_numbered_and_reads_are_not() {
    let memory = Memory::default();
    put(&memory, "/a", b"1").sync().unwrap();
    assert_eq!(memory.operations(), 3);
    memory.read(Path::new("/a")).unwrap();
    memory.list(root()).unwrap();
    assert_eq!(memory.operations(), 3);
}

// Damage and looking at it.

#[test]
fn damage_is_on_the_medium() {
    let memory = Memory::default();
    put(&memory, "/a", b"1234").sync().unwrap();
    memory.sync_dir(root()).unwrap();
    memory.overwrite("/a", 1, b"xx").unwrap();
    memory.truncate("/a", 5).unwrap();
    let next = memory.after_power_cut(&|_| false);
    assert_eq!(next.read(Path::new("/a")).unwrap().unwrap(), b"1xx4\0");
    assert!(memory.overwrite("/b", 0, b"x").is_err());
}

#[test]
fn the_digest_tells_apart_what_differs() {
    let memory = Memory::default();
    let mut seen = BTreeSet::from([memory.digest()]);
    memory.create_dir(Path::new("/d")).unwrap();
    seen.insert(memory.digest());
    let mut file = put(&memory, "/d/a", b"");
    seen.insert(memory.digest());
    file.append(b"1").unwrap();
    seen.insert(memory.digest());
    memory.symlink("a", Path::new("/d/b")).unwrap();
    seen.insert(memory.digest());
    assert_eq!(seen.len(), 5);
    assert_eq!(memory.after_power_cut(&|_| true).digest(), memory.digest());
}

#[test]
fn a_dump_holds_what_the_model_holds() {
    let memory = Memory::default();
    memory.create_dir_all(Path::new("/d/e")).unwrap();
    put(&memory, "/d/e/a", b"1234");
    memory.symlink("e", Path::new("/d/link")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    memory.dump_to(&Local, &dir.path().join("dump")).unwrap();
    let bytes = Local.read(&dir.path().join("dump/d/link/a")).unwrap();
    assert_eq!(bytes.as_deref(), Some(&b"1234"[..]));
}

// Faults.

/// A small piece of work that uses most operations.
fn work(storage: &dyn Storage) -> Result<(), StorageError> {
    storage.create_dir_all(Path::new("/d"))?;
    let mut file = storage.create(Path::new("/d/a"))?;
    file.append(b"12345678")?;
    file.syncer().sync()?;
    drop(file);
    storage.rename(Path::new("/d/a"), Path::new("/d/b"))?;
    storage.open(Path::new("/d/b"))?.read_at(&mut [0; 8], 0)?;
    storage.remove_all(Path::new("/d"))
}

#[test]
fn each_operation_can_be_failed_and_says_which_it_was() {
    for reads in [false, true] {
        let dry = Faulty::new(Memory::default());
        if reads {
            dry.count_reads();
        }
        work(&dry).unwrap();
        let operations = dry.operations();
        let changes =
            operations.iter().filter(|o| !["look at", "list", "open", "read"].contains(&o.name));
        assert_eq!(changes.count(), 8, "{operations:?}");
        assert_eq!(operations.len() > 8, reads);
        for (fault, text) in [(Fault::Io, "os error 5"), (Fault::Full, "os error 28")] {
            for (n, operation) in operations.iter().enumerate() {
                let faulty = Faulty::new(Memory::default());
                if reads {
                    faulty.count_reads();
                }
                faulty.fail_at(n, fault, Lasting::Once);
                let error = work(&faulty).unwrap_err();
                assert_eq!((error.op, &error.path), (operation.name, &operation.path));
                assert!(error.source.to_string().contains(text), "{}", error.source);
                assert_eq!(faulty.operations().len(), n + 1);
            }
        }
    }
}

#[test]
fn a_failed_sync_poisons_all_handles_of_the_opening() {
    for through_syncer in [false, true] {
        let faulty = Faulty::new(Memory::default());
        let mut file = put(&faulty, "/a", b"1234");
        let mut syncer = file.syncer();
        let mut other = file.syncer();
        faulty.fail_at(2, Fault::Full, Lasting::Once);
        let failed = if through_syncer { syncer.sync() } else { file.sync() };
        failed.unwrap_err();
        let error = file.append(b"5").unwrap_err();
        let want = "cannot append to `/a`: an earlier attempt to sync it failed: \
                    No space left on device (os error 28)";
        assert_eq!(cause(&error), want, "what failed first is named");
        assert!(error.hint().unwrap().contains("free some space"));
        file.sync().unwrap_err();
        syncer.sync().unwrap_err();
        other.sync().unwrap_err();
        file.syncer().sync().unwrap_err();
        let mut again = faulty.open_append(Path::new("/a"), 4).unwrap();
        again.append(b"5").unwrap();
        again.sync().unwrap();
    }
}

#[test]
fn a_short_append_leaves_half_of_its_bytes() {
    let faulty = Faulty::new(Memory::default());
    let path = Path::new("/a");
    let mut file = put(&faulty, "/a", b"1234");
    faulty.fail_at(2, Fault::Short, Lasting::Once);
    let error = file.append(b"567890").unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::StorageFull);
    assert!(error.hint().is_some_and(|h| h.contains("free some space")));
    assert_eq!(faulty.read(path).unwrap().unwrap(), b"1234567");
    file.sync().unwrap_err();
}

#[test]
fn a_full_disk_still_removes_and_syncs_and_works_again_once_it_is_healed() {
    let faulty = Faulty::new(Memory::default());
    let mut file = put(&faulty, "/a", b"1234");
    faulty.fail_at(2, Fault::Full, Lasting::FromThenOn);
    file.append(b"5").unwrap_err();
    assert!(faulty.create(Path::new("/b")).is_err());
    faulty.sync_dir(root()).unwrap();
    faulty.remove_file(Path::new("/a")).unwrap();
    faulty.heal();
    put(&faulty, "/b", b"1234").sync().unwrap();

    faulty.fail_at(0, Fault::Io, Lasting::FromThenOn);
    assert!(faulty.sync_dir(root()).is_err());
    assert!(faulty.remove_file(Path::new("/b")).is_err());
}

#[test]
fn space_ends_where_it_is_said_to() {
    let faulty = Faulty::new(Memory::default());
    faulty.set_space(6);
    let mut file = put(&faulty, "/a", b"1234");
    assert_eq!(faulty.free_bytes(root()).unwrap(), Some(2));
    let error = file.append(b"5678").unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::StorageFull);
    assert_eq!(faulty.read(Path::new("/a")).unwrap().unwrap(), b"123456");
    assert_eq!(faulty.free_bytes(root()).unwrap(), Some(0));
    faulty.set_space(100);
    let mut again = faulty.open_append(Path::new("/a"), 4).unwrap();
    again.append(b"5678").unwrap();
    assert_eq!(faulty.inner().read(Path::new("/a")).unwrap().unwrap(), b"12345678");
}

#[test]
fn a_survival_of_nothing_known_survives_nowhere() {
    let sets: Vec<Survival> = survivals(0, 1, 64).collect();
    assert_eq!(sets.len(), 1);
    assert!(!sets[0].survives(0));
}
