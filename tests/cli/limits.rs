//! `--limit-rows`: a dataset of its own of the first source rows.

use crate::command::{Place, files_of, joined};

#[test]
fn a_limited_run_leaves_current_alone_and_says_so() {
    let place = Place::of_texts(6);
    let limited = ["run", "p.toml", "--limit-rows", "4"];
    let ran = place.done(&limited);
    assert!(ran.stdout.contains("`current` was left alone"), "{}", ran.stdout);
    assert!(!place.path("data/texts/current").exists());
    assert_eq!(place.json(&limited)["current"], false);

    let whole = place.json(&["run", "p.toml"]);
    assert_eq!((&whole["rows"], &whole["current"]), (&6.into(), &true.into()));
    let current = place.current("data", "texts");
    let report = place.json(&limited);
    assert_eq!((&report["rows"], &report["up_to_date"]), (&4.into(), &true.into()));
    assert_ne!(report["cache_key"], whole["cache_key"]);
    assert_eq!(place.current("data", "texts"), current);
}

#[test]
fn settings_that_decide_no_byte_may_be_overridden_and_the_dataset_is_current() {
    let place = Place::of_texts(2);
    let key = place.json(&["path", "p.toml"])["cache_key"].clone();
    let harmless = ["run.batch_rows=1", "sources.files.root=\"in\"", "description=\"other words\""];
    let harmful =
        ["dataset.shard_rows=1", "transforms.counts.prefix=\"n_\"", "dataset.limit_rows=9"];
    for (sets, is_harmless) in [(harmless, true), (harmful, false)] {
        for set in sets {
            let report = place.json(&["run", "p.toml", "--set", set]);
            assert_eq!(report["current"], is_harmless, "{set}");
            assert_eq!(report["cache_key"] == key, is_harmless, "{set}");
        }
    }
}

#[test]
fn a_limit_counts_the_same_rows_whatever_batches_and_jobs() {
    let place = Place::new();
    place.write(
        "p.toml",
        "version = 1\nname = \"t\"\n[sources.t]\ntype = \"csv\"\npath = \"*.csv\"\n\
         [dataset]\npartition_bytes = 40\nmax_row_bytes = \"64KiB\"\n",
    );
    for file in ["a.csv", "b.csv", "c.csv"] {
        let rows = joined((0..20).map(|n| format!("{n},{file}\n")));
        place.write(file, format!("n,file\n{rows}"));
    }
    for limit in ["1", "7", "20", "33", "60", "99"] {
        let mut seen = Vec::new();
        for (out, more) in [
            ("x", ["--jobs", "1", "--set", "run.batch_rows=3"]),
            ("y", ["--jobs", "7", "--set", "run.batch_rows=1"]),
            ("z", ["--memory", "2GiB", "--set", "run.commit_bytes=1"]),
        ] {
            let args = ["run", "p.toml", "--limit-rows", limit, "--out", out];
            let report = place.json(&[&args[..], &more].concat());
            assert_eq!(report["rows"], limit.parse::<u64>().unwrap().min(60), "{limit}");
            seen.push(files_of(&place.path(out)));
        }
        assert!(seen.windows(2).all(|two| two[0] == two[1]), "limit {limit}");
    }
}

#[test]
fn the_plan_of_a_limited_run_leaves_out_what_is_behind_the_limit() {
    let place = Place::of_texts(6);
    let limited = ["p.toml", "--limit-rows", "4"];
    let states = || {
        let plan = place.json(&[&["plan"][..], &limited].concat());
        assert_eq!(plan["rows"], 4, "{plan}");
        let states = plan["partitions"].as_array().unwrap().iter().map(|p| p["state"].clone());
        (states.collect::<Vec<_>>(), plan["up_to_date"].clone())
    };
    assert_eq!(states(), (vec!["new".into(); 4], false.into()));
    place.done(&[&["run"][..], &limited].concat());
    assert_eq!(states(), (vec!["done".into(); 4], true.into()));
}

#[test]
fn a_limited_dataset_follows_its_inputs_as_a_fresh_one_would() {
    let place = Place::new();
    place.write(
        "p.toml",
        "version = 1\nname = \"t\"\n[sources.t]\ntype = \"csv\"\npath = \"*.csv\"\n\
         [dataset]\npartition_bytes = 1\nmax_row_bytes = \"64KiB\"\n",
    );
    place.write("a.csv", "n\n1\n2\n");
    place.write("b.csv", "n\n3\n4\n5\n6\n");
    let run = |out| place.json(&["run", "p.toml", "--limit-rows", "4", "--out", out]);
    for a in ["n\n1\n2\n", "n\n1\n2\n7\n", "n\n1\n", "n\n1\n2\n"] {
        place.write("a.csv", a);
        assert_eq!(run("grown")["rows"], 4, "{a:?}");
        let fresh = Place::new();
        crate::command::copy(&place.path(""), &fresh.path(""));
        std::fs::remove_dir_all(fresh.path("grown")).unwrap();
        fresh.json(&["run", "p.toml", "--limit-rows", "4", "--out", "grown"]);
        let current = |place: &Place| {
            let dir = place.json(&["path", "p.toml", "--limit-rows", "4", "--out", "grown"]);
            std::fs::read(place.path(dir["dataset"].as_str().unwrap()).join("_COMPLETE")).unwrap()
        };
        assert_eq!(current(&place), current(&fresh), "{a:?}");
    }
}
