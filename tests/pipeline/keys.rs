//! Rows with a key, from definition to lookup.

use rowmill::dataset::Dataset;

use crate::command::Place;

/// Each three rows are a shard.
const NUMBERED: &str = r#"version = 1
name = "numbered"
[sources.rows]
type = "csv"
path = "*.csv"
root = "in"
[dataset]
key = "id"
shard_rows = 3
max_row_bytes = "64KiB"
"#;

fn place(files: &[(&str, &str)]) -> Place {
    let place = Place::new();
    place.write("p.toml", NUMBERED);
    for (name, rows) in files {
        place.write(&format!("in/{name}.csv"), format!("id,word\n{rows}"));
    }
    place
}

#[test]
fn rows_are_found_and_shown_by_number_or_text() {
    for (key, keys, none) in
        [("id", ["7", "-2", "30", "4", "11"], "8"), ("word", ["a", "b", "c", "x y", "9"], "z")]
    {
        let place = place(&[("a", "7,a\n-2,b\n30,c\n4,x y\n"), ("b", "11,9\n")]);
        place.write("p.toml", NUMBERED.replace("\"id\"", &format!("\"{key}\"")));
        place.done(&["run", "p.toml"]);
        for (row, wanted) in keys.iter().enumerate() {
            let found = place.json(&["inspect", "p.toml", "--key", wanted]);
            assert_eq!(found["row"], row, "{key} {wanted}");
            assert_eq!(found, place.json(&["inspect", "p.toml", "--row", &row.to_string()]));
        }
        let shard = place.json(&["inspect", "p.toml", "--row", "3"])["shard"].clone();
        let path = place.current("data", "numbered").join("shards").join(shard.as_str().unwrap());
        let alone = place.json(&["inspect", path.to_str().unwrap(), "--key", keys[3]]);
        assert_eq!(alone["row"], 0, "the shard's own number");
        place
            .rowmill(&["inspect", "p.toml", "--key", none])
            .fails(2, &[&format!("no row has the key `{none}`")]);
        place.done(&["verify", "p.toml"]);
    }
    let place = place(&[("a", "7,a\n")]);
    place.done(&["run", "p.toml"]);
    place.rowmill(&["inspect", "p.toml", "--key", "seven"]).fails(2, &["keys are integers"]);
}

#[test]
fn one_key_twice_is_refused_with_both_rows_and_a_mended_input_is_all_that_is_built_again() {
    let (a, b) = ("1,a\n2,b\n3,c\n4,d\n", "5,e\n6,f\n");
    for (what, files, key, first, second, mended, counts) in [
        (
            "one shard",
            ["1,a\n2,b\n1,c\n4,d\n", b],
            "1",
            "row 0 of the dataset (row 0 of shard",
            "from `a.csv`, row 2\n",
            "a",
            [1, 0],
        ),
        (
            "two shards",
            ["1,a\n2,b\n3,c\n1,d\n", b],
            "1",
            "from `a.csv`, row 0, and row 3 of the dataset (row 0 of shard ",
            "from `a.csv`, row 3\n",
            "a",
            [1, 0],
        ),
        (
            "two partitions",
            [a, "5,e\n2,f\n"],
            "2",
            "from `a.csv`, row 0 of bytes 12..16, and row 5 of the dataset",
            "from `b.csv`, row 0 of bytes 12..16\n",
            "b",
            [8, 7],
        ),
    ] {
        let place = place(&[("a", files[0]), ("b", files[1])]);
        if counts[0] > 1 {
            // Large enough to be cut after each row.
            place.write("p.toml", NUMBERED.replace("[dataset]", "[dataset]\npartition_bytes = 1"));
        }
        let says = format!("two rows have the key {key}: row ");
        let texts = [&says[..], first, second, "hint: choose a key that is unique"];
        place.rowmill(&["run", "p.toml"]).fails(3, &texts);
        place.rowmill(&["run", "p.toml"]).fails(3, &texts);
        Dataset::open(place.path("data/numbered")).expect_err(what);
        let rows = if mended == "a" { a } else { b };
        place.write(&format!("in/{mended}.csv"), format!("id,word\n{rows}"));
        let report = place.json(&["run", "p.toml"]);
        assert_eq!(["partitions", "reused_partitions"].map(|name| &report[name]), counts, "{what}");
        let dataset = Dataset::open(place.path("data/numbered")).unwrap();
        assert_eq!(dataset.find_many(&[6, 1, 7]).unwrap(), [Some(5), Some(0), None], "{what}");
    }
}

#[test]
fn a_row_without_a_key_is_refused_by_input_and_row() {
    let place = place(&[("a", "1,a\n,b\n")]);
    place.rowmill(&["run", "p.toml"]).fails(
        3,
        &[
            "`a.csv`, row 1, field `id`: there is no value, and it is the key",
            "hint: leave such rows out before, or choose another `key`",
        ],
    );
}
