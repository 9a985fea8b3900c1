//! The merge on a disk in memory: the same index however it is made, and after any power cut.

use super::*;
use crate::dataset::home::Home;
use crate::dataset::keys::KeyIndex;
use crate::storage::Overlap;
use crate::storage::memory::{Memory, survivals};

fn home() -> Home {
    Home::new(Path::new("/out"), "d", "0123456789abcdef").unwrap()
}

fn place(memory: &Memory) -> Workplace {
    Workplace::open(Arc::new(memory.clone()), home()).unwrap()
}

/// The hash of row `row` of shard `shard`: all different, spread over all bits.
fn hash(shard: u64, row: u64) -> u64 {
    (shard << 32 | row).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Shards of so many rows that hold nothing but keys.
fn shards(place: &Workplace, rows: &[u32]) -> Vec<ShardEntry> {
    let mut shards = Vec::new();
    for (n, rows) in (0_u32..).zip(rows) {
        let id = format!("{n:032x}");
        let mut keys: Vec<_> = (0..*rows).map(|row| (hash(n.into(), row.into()), row)).collect();
        keys.sort_unstable();
        let bytes: Vec<u8> = keys
            .iter()
            .flat_map(|(hash, row)| [&hash.to_le_bytes()[..], &row.to_le_bytes()].concat())
            .collect();
        place.storage().create_dir(&place.home().shard(&id)).unwrap();
        let path = place.home().shard(&id).join(layout::KEYS);
        place.storage().write_atomic(&path, &bytes).unwrap();
        shards.push(ShardEntry { bytes: 0, id, rows: (*rows).into() });
    }
    shards
}

#[test]
fn the_index_is_the_same_however_many_files_are_merged_at_once() {
    let memory = Memory::new(Overlap::Now);
    let place = place(&memory);
    for rows in [&[][..], &[0], &[5], &[3, 0, 7, 1, 0, 0, 2, 9, 4, 1, 1, 30, 2]] {
        let shards = shards(&place, rows);
        let at_once = write_by(&place, &shards, 100).unwrap();
        for fan_in in [2, 3, 4, 7, 12, 13] {
            let merged = write_by(&place, &shards, fan_in).unwrap();
            assert_eq!(merged, at_once, "{rows:?} by {fan_in}");
            assert_eq!(place.storage().stat(&place.home().key_runs()).unwrap(), None);
        }
        let path = place.home().file(&at_once.file);
        let n_rows = rows.iter().sum::<u32>().into();
        let index = KeyIndex::open(&**place.storage(), &path, n_rows).unwrap();
        for (n, rows) in (0..).zip(rows) {
            for row in 0..*rows {
                let found: Vec<_> = index.rows(hash(u64::from(n), row.into())).unwrap().collect();
                assert_eq!(found, [(n, row)]);
            }
        }
        assert_eq!(index.rows(1).unwrap().count(), 0);
        for shard in shards {
            place.storage().remove_all(&place.home().shard(&shard.id)).unwrap();
        }
    }
}

#[test]
fn keys_that_are_not_those_of_the_shard_are_refused() {
    let memory = Memory::new(Overlap::Now);
    let place = place(&memory);
    let sound = shards(&place, &[3, 4]);
    let path = place.home().shard(&sound[1].id).join(layout::KEYS);
    let bytes = memory.read(&path).unwrap().unwrap();
    let swapped = [&bytes[12..24], &bytes[..12], &bytes[24..]].concat();
    let twice = [&bytes[..12], &bytes[..12], &bytes[24..]].concat();
    for (bytes, message) in [
        (&bytes[1..], "it does not hold the keys of 4 rows"),
        (&swapped, "its keys are not sorted"),
        (&twice, "its keys are not sorted"),
    ] {
        place.storage().write_atomic(&path, bytes).unwrap();
        for fan_in in [1, 100] {
            let error = write_by(&place, &sound, fan_in).unwrap_err().to_string();
            assert_eq!(error, format!("`{}`: {message}", path.display()));
        }
    }
}

#[test]
fn runs_that_a_crash_left_behind_go_at_the_next_start() {
    let memory = Memory::new(Overlap::Now);
    let first = place(&memory);
    let runs = first.home().key_runs();
    first.storage().create_dir(&runs).unwrap();
    first.storage().write_atomic(&runs.join("0"), b"run").unwrap();
    drop(first);
    assert_eq!(place(&memory).storage().stat(&runs).unwrap(), None);
}

/// Runs are merged into runs, and these into the index; the power is cut at each step.
#[test]
fn a_merge_that_is_cut_anywhere_is_made_again_with_the_same_bytes() {
    const ROWS: [u32; 7] = [3, 0, 40, 1, 9, 2, 5];
    for overlap in [Overlap::Now, Overlap::Late] {
        let memory = Memory::new(overlap).with_whole_renames();
        let entries = {
            let place = place(&memory);
            shards(&place, &ROWS)
        };
        let start = memory.after_power_cut(&|_| true);
        let whole = start.after_kill();
        let want = write_by(&place(&whole), &entries, 2).unwrap();
        let path = place(&whole).home().file(&want.file);
        let bytes = whole.read(&path).unwrap().unwrap();
        let (first, last) = (start.operations(), whole.operations());
        let (mut n_cuts, mut n_disks) = (0, 0);
        for n in first.. {
            let run = start.after_kill();
            run.cut_at(n);
            let merged = Workplace::open(Arc::new(run.clone()), home())
                .and_then(|place| write_by(&place, &entries, 2));
            if merged.is_ok() {
                break;
            }
            n_cuts += 1;
            let sets: Vec<_> = survivals(run.pending(), n, 4).collect();
            for survival in sets.iter().step_by((sets.len() / 4).max(1)) {
                let boot = run.after_power_cut(&|i| survival.survives(i));
                let way = format!("cut at {n}, {survival:?}");
                // Under its name it is whole or not there at all.
                let found = boot.read(&path).unwrap();
                assert!(found.is_none_or(|found| found == bytes), "{way}");
                let place = place(&boot);
                for fan_in in [2, 3] {
                    assert_eq!(write_by(&place, &entries, fan_in).unwrap(), want, "{way}");
                }
                let durable = boot.after_power_cut(&|_| false);
                assert!(durable.read(&path).unwrap().unwrap() == bytes, "{way}");
                assert_eq!(boot.stat(&place.home().key_runs()).unwrap(), None, "{way}");
                n_disks += 1;
            }
        }
        assert!(n_cuts >= 30 && n_cuts <= last - first, "{n_cuts} cuts");
        assert!(n_disks >= 2 * n_cuts, "{n_disks} disks after {n_cuts} cuts");
    }
}
