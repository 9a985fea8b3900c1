//! The bytes are a function of definition and inputs.

use rowmill::dataset::Dataset;

use crate::command::{Place, copy, files_of, joined, text};

/// Texts in folders with a licence, each a partition of its own, in shards of one or two rows.
const TEXTS: &str = r#"version = 1
name = "d"
[sources.s]
type = "files"
root = "in"
path = "**/*.txt"
content = "text"
pattern = '(?P<number>\d+)'
sibling = "LICENSE*"
[transforms.counts]
type = "text_stats"
input = "text"
[transforms.histogram]
type = "byte_histogram"
input = "text"
[dataset]
partition_bytes = 200
shard_rows = 2
max_row_bytes = "64KiB"
[dataset.fields]
path = { index = true }
parent = { intern = true }
sibling = { intern = true, sidecar = "licences.json" }
"#;

/// One large table, cut within the file into nine partitions or more.
const TABLE: &str = r#"version = 1
name = "d"
[sources.s]
type = "csv"
root = "in"
path = "*.csv"
types = { small = "int16" }
[transforms.kept]
type = "select"
columns = ["word", "n", "fraction", "small"]
rename = { number = "n" }
[transforms.cast]
type = "cast"
types = { fraction = "float32" }
[dataset]
partition_bytes = "2KiB"
shard_rows = 70
max_row_bytes = "64KiB"
[dataset.fields]
word = { intern = true, index = true }
"#;

fn texts() -> Place {
    let place = Place::new();
    place.write("p.toml", TEXTS);
    for i in 0..40 {
        place.write(&format!("in/{}/{i:02}.txt", i % 4), text(i));
    }
    place.write("in/2/LICENSE", "of two");
    place.write("in/LICENSE-MIT", "of all");
    place
}

fn table() -> Place {
    let place = Place::new();
    place.write("p.toml", TABLE);
    let row = |n: usize| match n % 7 {
        0 => format!("{n},,\"two\nlines, {n}\",\n"),
        _ => format!("{n},{}.5,word {},{}\n", n * n, n % 5, n % 100),
    };
    let rows = joined((0..1000).map(row));
    place.write("in/t.csv", format!("n,fraction,word,small\n{rows}"));
    place
}

#[test]
fn the_bytes_do_not_depend_on_how_or_where_they_were_made() {
    for (name, place) in [("texts", texts()), ("table", table())] {
        let report = place.json(&["run", "p.toml"]);
        let partitions = report["partitions"].as_u64().unwrap();
        assert!(partitions >= 8, "{name}: {partitions} partitions");
        let want = files_of(&place.path("data"));

        for args in [
            &["--jobs", "1"][..],
            &["--jobs", "2"],
            &["--jobs", "7", "--memory", "2GiB"],
            &["--set", "run.batch_rows=1"],
            &["--set", "run.batch_rows=13", "--jobs", "3"],
            &["--set", "run.batch_bytes=\"1KiB\"", "--memory", "64MiB", "--jobs", "1"],
            &["--set", "run.commit_bytes=1", "--set", "run.batch_rows=5"],
            &["--set", "run.commit_interval=\"1ms\"", "--progress", "json"],
        ] {
            place.done(&[&["run", "p.toml", "--out", "other"], args].concat());
            assert_eq!(files_of(&place.path("other")), want, "{name}: {args:?}");
            std::fs::remove_dir_all(place.path("other")).unwrap();
        }

        // Copies have other times, and lie elsewhere.
        let elsewhere = Place::new();
        copy(&place.path("in"), &elsewhere.path("deep/down/in"));
        copy(&place.path("in"), &elsewhere.path("deep/in"));
        elsewhere.write("deep/down/p.toml", std::fs::read(place.path("p.toml")).unwrap());
        elsewhere.done(&["run", "deep/down/p.toml"]);
        assert_eq!(files_of(&elsewhere.path("deep/down/data")), want, "{name}: copied");
        let root = ["--set", "sources.s.root=\"../in\"", "--out", "rooted"];
        elsewhere.done(&[&["run", "deep/down/p.toml"][..], &root].concat());
        assert_eq!(files_of(&elsewhere.path("rooted")), want, "{name}: another root");
        elsewhere.done(&["verify", "deep/down/p.toml"]);
    }
}

#[test]
fn comments_order_and_defaults_written_down_change_nothing() {
    let place = texts();
    place.done(&["run", "p.toml"]);
    let reordered = r#"
description = "the same, said otherwise"
name = "d"
version = 1   # of the language

[sources.s]
sibling_as = "sibling"
sibling = "LICENSE*"
pattern = '(?P<number>\d+)'
content = "text"
path = ["**/*.txt"]
root = "./in/../in"
type = "files"

[transforms]
counts = { input = "text", type = "text_stats", prefix = "" }
histogram = { type = "byte_histogram", input = "text", output = "histogram" }

[dataset]
input = "histogram"
shard_rows = 2
shard_bytes = 268_435_456
partition_bytes = "200B"
max_row_bytes = "0.0625MiB"
fields.sibling = { sidecar = "licences.json", kind = "interned" }
fields.parent.intern = true
fields.path.index = true

[run]
out = "other"
"#;
    place.write("q.toml", reordered);
    let keys = ["p.toml", "q.toml"].map(|file| place.json(&["path", file])["cache_key"].clone());
    assert_eq!(keys[0], keys[1]);
    place.done(&["run", "q.toml"]);
    assert_eq!(files_of(&place.path("other")), files_of(&place.path("data")));
}

#[test]
fn whatever_decides_a_value_makes_another_dataset() {
    let place = table();
    let key =
        |args: &[&str]| place.json(&[&["path", "p.toml"], args].concat())["cache_key"].clone();
    let plain = key(&[]);
    for set in [
        "dataset.partition_bytes=2047",
        "dataset.shard_rows=71",
        "dataset.shard_bytes=\"1MiB\"",
        "dataset.max_row_bytes=\"65KiB\"",
        "dataset.intern_values=99",
        "dataset.limit_rows=5",
        "dataset.fields.word.sidecar=\"words.json\"",
        "dataset.fields.number.index=true",
        "sources.s.path=\"t.csv\"",
        "sources.s.types.small=\"int32\"",
        "sources.s.delimiter=\";\"",
        "sources.s.newlines_in_values=false",
        "transforms.kept.rename.number=\"small\"",
        "transforms.cast.types.fraction=\"float64\"",
        "dataset.input=\"kept\"",
    ] {
        assert_ne!(key(&["--set", set]), plain, "{set}");
    }
    for set in [
        "run.jobs=3",
        "run.memory=\"3GiB\"",
        "sources.s.root=\"x\"",
        "description=\"x\"",
        "run.out=\"y\"",
        "sources.s.allow_empty=true",
        "dataset.allow_empty=true",
    ] {
        assert_eq!(key(&["--set", set]), plain, "{set}");
    }
}

#[test]
fn the_books_close_at_every_stage() {
    for (place, stages, rows) in
        [(texts(), &["counts", "histogram", "s"], 40), (table(), &["cast", "kept", "s"], 1000)]
    {
        place.done(&["run", "p.toml"]);
        let dataset = Dataset::open(place.path("data/d")).unwrap();
        let books = &dataset.about().books;
        assert!(books.keys().eq(stages.iter()), "{books:?}");
        for (stage, books) in books {
            assert_eq!(
                books.entered + books.created,
                books.out + books.dropped + books.rejected,
                "{stage}: {books:?}"
            );
            assert_eq!(books.out, rows, "{stage}");
        }
        assert_eq!(dataset.n_rows(), rows);
        let of_shards: u64 = dataset.shards().map(|shard| shard.unwrap().n_rows()).sum();
        assert_eq!(of_shards, rows);
    }
}
