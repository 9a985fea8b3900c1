//! A process that writes a feature cache through the library: killed at any moment, and read meanwhile by
//! another.
//!
//! The process is this test program, told by a variable to write.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use rowmill::cache::{CacheReader, FeatureCache, RowKey, SectionOptions};
use rowmill::fingerprint::CompatSignature;
use rowmill::shard::CommitPolicy;
use rowmill::storage::Local;

/// Where the process is to write.
const DIR: &str = "ROWMILL_TEST_CACHE";
/// Rows that it puts between commits.
const EACH: i64 = 7;
/// Commits until it ends by itself.
const COMMITS: i64 = 60;

fn signature() -> CompatSignature {
    CompatSignature::new(&serde_json::json!({"id": "written-v1"}))
}

fn keys(numbers: std::ops::Range<i64>) -> Vec<RowKey> {
    numbers.map(|n| blake3::hash(&n.to_le_bytes()).into()).collect()
}

/// Writes, where this process was told to, and says after each commit how many rows there are.
#[test]
fn writer() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let cache = FeatureCache::open(Arc::new(Local), dir).unwrap();
    // Some groups are committed on the way, in the background.
    let commits = CommitPolicy { bytes: 400, interval: None };
    let options = SectionOptions { commits, ..SectionOptions::default() };
    let section = cache.section(&signature(), options).unwrap();
    let missing = section.misses(&keys(0..COMMITS * EACH)).unwrap();
    let first = missing.first().map_or(COMMITS, |row| i64::try_from(*row).unwrap() / EACH);
    for commit in first..COMMITS {
        let numbers = commit * EACH..(commit + 1) * EACH;
        let column: Int64Array = numbers.clone().map(|n| n * n).collect();
        let column = Arc::new(column) as ArrayRef;
        let rows = RecordBatch::try_from_iter([("square", column)]).unwrap();
        section.put(&keys(numbers.clone()), &rows).unwrap();
        section.commit().unwrap();
        if commit % 23 == 22 {
            section.compact().unwrap();
        }
        eprintln!("committed {}", numbers.end);
    }
}

#[test]
fn rows_are_there_once_a_process_has_said_so_whenever_it_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let reader = CacheReader::local(dir.path()).section(&signature()).unwrap();
    let check = |n: i64, when: &str| {
        reader.refresh().unwrap();
        let found = reader.get(&keys(0..COMMITS * EACH)).unwrap();
        let squares: Vec<i64> = match found.rows.column_by_name("square") {
            Some(column) => column.as_primitive::<Int64Type>().values().to_vec(),
            None => Vec::new(),
        };
        let want = found.hits.iter().map(|n| i64::try_from(n * n).unwrap());
        assert!(want.eq(squares), "{when}");
        let lost = found.misses.first().filter(|row| i64::try_from(**row).unwrap() < n);
        assert_eq!(lost, None, "{when}: row of {n} that were committed");
    };
    let (mut committed, mut n_kills) = (0, 0);
    // How many commits each process lives for; then it is killed at once, whatever it does.
    for lives in [0, 1, 2, 5, 3, 1, 9, 4, 7, 30, 100] {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writers::writer", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(writer.stderr.take().unwrap()).lines();
        for n in 0..=lives {
            if n == lives {
                writer.kill().unwrap();
            }
            let Some(Ok(line)) = lines.next() else { break };
            if let Some(rows) = line.strip_prefix("committed ") {
                committed = rows.parse().unwrap();
            }
            check(committed, "while it is written to");
        }
        // What it said before it died counts too.
        for line in lines.map_while(Result::ok) {
            if let Some(rows) = line.strip_prefix("committed ") {
                committed = rows.parse().unwrap();
            }
        }
        let ended = writer.wait().unwrap();
        n_kills += u32::from(!ended.success());
        check(committed, "after it was killed");
        if committed == COMMITS * EACH {
            break;
        }
    }
    assert_eq!(committed, COMMITS * EACH);
    assert!(n_kills >= 5, "{n_kills}");
    check(committed, "at the end");
    assert!(CacheReader::local(dir.path()).verify().unwrap().is_empty());
}
