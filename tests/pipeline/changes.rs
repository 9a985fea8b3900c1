//! Changed inputs: only their partitions are built again, the old generation stays readable, and
//! the result is that of a fresh build.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rowmill::dataset::Dataset;

use crate::command::{Place, TEXTS, copy, files_of};

pub(crate) fn run(place: &Place) -> (u64, u64) {
    let report = place.json(&["run", "p.toml"]);
    let count = |name: &str| report[name].as_u64().unwrap();
    (count("partitions"), count("reused_partitions"))
}

fn shards(dataset: &Dataset) -> BTreeSet<String> {
    dataset.entries().iter().map(|shard| shard.id.clone()).collect()
}

/// The texts of all rows, in order.
fn texts(dataset: &Dataset) -> Vec<String> {
    let of_shard = |shard: &rowmill::shard::Shard| {
        let field = shard.field("text").unwrap();
        let row = |row| String::from_utf8(field.row(row).unwrap().to_vec()).unwrap();
        (0..shard.n_rows()).map(row).collect::<Vec<_>>()
    };
    dataset.shards().flat_map(|shard| of_shard(shard.unwrap())).collect()
}

/// Checks that the current generation is, file by file, what a fresh build of the inputs makes.
#[track_caller]
pub(crate) fn is_as_fresh(place: &Place, what: &str) {
    let fresh = Place::new();
    copy(&place.path("in"), &fresh.path("in"));
    fresh.write("p.toml", fs::read(place.path("p.toml")).unwrap());
    fresh.done(&["run", "p.toml"]);
    let grown = files_of(&place.path("data"));
    for (path, bytes) in files_of(&fresh.path("data")) {
        assert!(grown.get(&path) == Some(&bytes), "{what}: {} differs", path.display());
    }
    place.done(&["verify", "p.toml"]);
}

type Change = fn(&Place);

#[test]
fn only_the_partitions_of_changed_inputs_are_built_again() {
    let changes: [(&str, Change, u64, u64); 9] = [
        ("nothing", |_| {}, 6, 6),
        (
            "touched",
            |place| {
                let bytes = fs::read(place.path("in/0/0.txt")).unwrap();
                fs::remove_file(place.path("in/0/0.txt")).unwrap();
                place.write("in/0/0.txt", bytes);
            },
            6,
            6,
        ),
        ("changed in place", |place| place.write("in/1/1.txt", "x".repeat(10)), 6, 5),
        ("changed, same size", |place| place.write("in/1/1.txt", "y".repeat(10)), 6, 5),
        ("added at the end", |place| place.write("in/9/9.txt", "new"), 7, 6),
        ("added before all", |place| place.write("in/+.txt", "new"), 8, 7),
        ("removed", |place| fs::remove_file(place.path("in/2/2.txt")).unwrap(), 7, 7),
        (
            "renamed",
            |place| fs::rename(place.path("in/0/3.txt"), place.path("in/0/4.txt")).unwrap(),
            7,
            6,
        ),
        ("a file that is no input", |place| place.write("in/0/notes.md", "x"), 7, 7),
    ];
    let place = Place::of_texts(6);
    assert_eq!(run(&place), (6, 0));
    for (what, change, n_partitions, reused) in changes {
        let before = Dataset::open(place.path("data/texts")).unwrap();
        let old_texts = texts(&before);
        let old_shards = shards(&before);
        change(&place);
        let again = Dataset::open(place.path("data/texts")).unwrap();
        assert_eq!(texts(&again), old_texts, "{what}: until the run, all is as it was");
        assert_eq!(run(&place), (n_partitions, reused), "{what}");
        let after = Dataset::open(place.path("data/texts")).unwrap();
        let kept = shards(&after).intersection(&old_shards).count() as u64;
        assert_eq!(kept, reused, "{what}: shards that keep their names");
        assert_eq!(texts(&before), old_texts, "{what}: who has the old generation open keeps it");
        is_as_fresh(&place, what);
    }
}

#[expect(clippy::disallowed_types, reason = "a test sets the time of a file")]
fn set_modified(path: &Path, time: std::time::SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Writes other bytes of the same number, and sets the time of modification back.
fn change_unseen(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let bytes = fs::read(path).unwrap().iter().map(|byte| byte ^ 1).collect::<Vec<_>>();
    fs::write(path, bytes).unwrap();
    set_modified(path, modified);
}

#[test]
fn a_change_that_keeps_size_and_time_is_seen_unless_these_are_to_be_believed() {
    let stat = ["--set", "run.fingerprint=\"stat\""];
    let note = "inputs count as unchanged while size and time of modification are";
    for is_stat in [false, true] {
        let place = Place::of_texts(4);
        let args = |command| [&[command, "p.toml"][..], if is_stat { &stat } else { &[] }].concat();
        place.write("in/0/0.txt", "abc");
        place.done(&args("run"));
        change_unseen(&place.path("in/0/0.txt"));
        let plan = place.json(&args("plan"));
        assert_eq!(plan["up_to_date"], is_stat, "{plan}");
        assert_eq!(plan["fingerprint"], if is_stat { "stat" } else { "content" });
        assert_eq!(place.done(&args("plan")).stdout.contains(note), is_stat);
        let ran = place.done(&args("run"));
        assert_eq!(ran.stdout.contains(note), is_stat, "{}", ran.stdout);
        let dataset = Dataset::open(place.path("data/texts")).unwrap();
        assert_eq!(texts(&dataset)[0], if is_stat { "abc" } else { "`cb" });
        // A look at the content puts it right.
        place.done(&["run", "p.toml"]);
        is_as_fresh(&place, "believed no longer");
    }
}

#[test]
fn an_input_that_changes_back_finds_its_old_shards() {
    let place = Place::of_texts(3);
    run(&place);
    let first = Dataset::open(place.path("data/texts")).unwrap();
    let text = fs::read(place.path("in/0/0.txt")).unwrap();
    place.write("in/0/0.txt", "something else");
    assert_eq!(run(&place), (3, 2));
    let second = Dataset::open(place.path("data/texts")).unwrap();
    place.write("in/0/0.txt", text);
    assert_eq!(run(&place), (3, 3));
    let third = Dataset::open(place.path("data/texts")).unwrap();
    assert_eq!(third.generation(), first.generation());
    assert_ne!(third.generation(), second.generation());
}

#[test]
fn a_dataset_grown_file_by_file_is_that_of_all_at_once() {
    let place = Place::new();
    place.write("p.toml", TEXTS.replace("partition_bytes = 1\n", "partition_bytes = 120\n"));
    let mut reused = 0;
    for i in [7, 3, 11, 0, 5, 2, 9, 1] {
        place.write(&format!("in/{i}.txt"), crate::command::text(i));
        reused += run(&place).1;
        is_as_fresh(&place, &format!("with file {i}"));
    }
    assert!(reused > 8, "partitions before and behind are reused: {reused}");
}

#[test]
fn a_changed_side_input_rebuilds_the_partitions_that_read_it() {
    let place = Place::of_texts(6);
    let definition = TEXTS.replace("content = \"text\"", "content = \"text\"\nsibling = \"NOTE\"");
    place.write("p.toml", definition);
    place.write("in/0/NOTE", "zero");
    place.write("in/NOTE", "all");
    assert_eq!(run(&place), (6, 0));
    for (what, path, note, reused) in [
        ("one folder's", "in/0/NOTE", "null", 4),
        ("the others'", "in/NOTE", "rest", 2),
        ("a nearer one", "in/1/NOTE", "one", 4),
        ("the same again", "in/1/NOTE", "one", 6),
    ] {
        place.write(path, note);
        assert_eq!(run(&place), (6, reused), "{what}");
        is_as_fresh(&place, what);
    }
}

#[test]
fn a_changed_table_is_read_again_from_where_it_was_cut() {
    let place = Place::new();
    let definition = "version = 1\nname = \"t\"\n[sources.t]\ntype = \"csv\"\nroot = \"in\"\n\
                      path = \"*.csv\"\n[dataset]\npartition_bytes = 200\nmax_row_bytes = \"64KiB\"\n";
    place.write("p.toml", definition);
    let table = |last: &str| {
        let rows = (0..100).map(|n| format!("{n},{}\n", n * n));
        format!("n,square\n{}{last}", crate::command::joined(rows))
    };
    place.write("in/t.csv", table(""));
    let (n, _) = run(&place);
    assert!(n >= 4, "{n}");
    place.write("in/t.csv", table("100,7\n"));
    let (_, reused) = run(&place);
    assert!(reused >= n - 2, "a longer table has the same beginning: {reused} of {n}");
    is_as_fresh(&place, "appended");
    place.write("in/t.csv", table("100,8\n"));
    run(&place);
    is_as_fresh(&place, "changed within a line of the same length");
}

#[test]
fn changed_labels_and_another_order_of_bytes_are_read_again() {
    let place = Place::new();
    let definition = |source: &str| {
        format!(
            "version = 1\nname = \"t\"\n[sources.t]\nroot = \"in\"\n{source}\n\
             [dataset]\npartition_bytes = 64\nmax_row_bytes = \"64KiB\"\n"
        )
    };
    place.write("p.toml", definition("type = \"idx\"\npath = \"images\"\nlabels = \"labels\""));
    let idx = |n: u8, inner: u8| {
        let head = [0, 0, 8, 2, 0, 0, 0, n, 0, 0, 0, inner];
        [&head[..], &vec![7; usize::from(n) * usize::from(inner)]].concat()
    };
    place.write("in/images", idx(40, 9));
    place.write("in/labels", idx(40, 1));
    let (n, _) = run(&place);
    assert!(n >= 5, "{n} partitions");
    let mut labels = idx(40, 1);
    labels[50] = 8;
    place.write("in/labels", labels);
    assert_eq!(run(&place), (n, 0), "each has rows of the label file");
    is_as_fresh(&place, "changed labels");

    place.write("p.toml", definition("type = \"npy\"\npath = \"a.npy\""));
    let npy = |descr: &str| {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (60, 2), }}");
        [b"\x93NUMPY\x01\x00\x76\x00".to_vec(), format!("{text:117}\n").into(), (0..240).collect()]
            .concat()
    };
    for descr in ["<i2", ">i2", "<u2", "<i2"] {
        place.write("in/a.npy", npy(descr));
        let (n, _) = run(&place);
        assert_eq!(n == 1, descr.starts_with('>'), "{n} partitions of {descr}");
        is_as_fresh(&place, descr);
    }
}
