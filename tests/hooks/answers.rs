//! What hooks answer: the same rows and bytes however a run is cut up.

use crate::command::files_of;
use crate::hook::{N_ROWS, can_run, place, rows, wait_for_none_in};

#[test]
fn answers_stand_beside_the_columns_that_were_sent() {
    if !can_run() {
        return;
    }
    let place = place("", "");
    place.done(&["run", "p.toml"]);
    let rows = rows(&place);
    assert_eq!(rows.len() as u64, N_ROWS);
    let batches = ["0-1-2-3", "4-5-6-7", "8-9-10-11", "12", "13-14-15-16", "17-18", "19"];
    for (n, row) in rows.iter().enumerate() {
        assert_eq!(row["n"], n);
        assert_eq!(row["double"], 2 * n);
        assert_eq!(
            row["pair"],
            serde_json::json!([n, n].map(|n| f64::from(u32::try_from(n).unwrap())))
        );
        assert_eq!(row["words"].as_array().unwrap().len(), n % 3);
        let seen = row["seen"].as_str().unwrap();
        assert!(batches.contains(&seen), "{seen}");
        assert!(seen.split('-').any(|it| it == n.to_string()), "{seen}");
    }
    wait_for_none_in(&place.path("."));
}

#[test]
fn jobs_workers_and_edges_never_show_in_a_byte() {
    if !can_run() {
        return;
    }
    let settings: [&[&str]; 4] = [
        &["--jobs", "1"],
        &["--jobs", "2", "--set", "run.batch_rows=1"],
        &["--jobs", "7", "--set", "run.batch_rows=3", "--set", "transforms.features.workers=3"],
        &[
            "--jobs",
            "1",
            "--set",
            "run.batch_bytes=\"1B\"",
            "--set",
            "transforms.features.timeout=\"1h\"",
        ],
    ];
    let mut first = None;
    for args in settings {
        let place = place("", "");
        place.done(&[&["run", "p.toml"], args].concat());
        let files = files_of(&place.current("data", "hooked"));
        let first = first.get_or_insert_with(|| files.clone());
        assert!(files == *first, "{args:?}");
    }
}

#[test]
fn a_batch_ends_before_the_row_that_is_too_much_for_it() {
    if !can_run() {
        return;
    }
    // A row takes 32 bytes, `n` 8, and `text` 8 and up to 4.
    let place = place("", "batch_bytes = 100");
    place.done(&["run", "p.toml"]);
    let seen: Vec<String> =
        rows(&place).iter().map(|row| row["seen"].as_str().unwrap().to_owned()).collect();
    assert_eq!(&seen[..5], ["0-1", "0-1", "2", "3", "4-5"]);
}

#[test]
fn hooks_and_transforms_stand_behind_one_another() {
    if !can_run() {
        return;
    }
    let place = place("", "");
    let chained = crate::hook::definition("", "").replace(
        "[dataset]",
        r#"[transforms.cut]
type = "select"
columns = ["double"]
rename = { n = "double" }

[transforms.more]
type = "command"
command = ["python3", "hook.py"]
id = "test-v1"
input = ["n"]
batch_rows = 3
output.double = { dtype = "int64" }
output.pair = { dtype = "float32", shape = [2] }
output.words = { dtype = "int64", kind = "ragged" }
output.seen = { dtype = "utf8" }

[dataset]"#,
    );
    place.write("p.toml", chained);
    place.done(&["run", "p.toml", "--jobs", "2", "--set", "run.batch_rows=5"]);
    let rows = rows(&place);
    assert_eq!(rows.len() as u64, N_ROWS);
    for (n, row) in rows.iter().enumerate() {
        assert_eq!((&row["n"], &row["double"]), (&(2 * n).into(), &(4 * n).into()));
    }
    assert_eq!(rows[3]["seen"], "6-8-10");
}
