//! Several sources in one dataset.

use std::collections::BTreeSet;
use std::fs;

use rowmill::dataset::Dataset;
use serde_json::Value;

use crate::changes::{is_as_fresh, run};
use crate::command::{Place, copy, files_of};

/// Two folders of tables that list the same paths; the second has its columns in another order.
fn two_folders(more: &str) -> Place {
    let place = Place::new();
    place.write(
        "p.toml",
        format!(
            "version = 1\nname = \"d\"\n\
             [sources.a]\ntype = \"csv\"\nroot = \"in/a\"\npath = \"*.csv\"\n\
             [sources.b]\ntype = \"csv\"\nroot = \"in/b\"\npath = \"*.csv\"\n\
             [transforms.t]\ntype = \"select\"\ninputs = [\"b\", \"a\"]\n\
             [dataset]\npartition_bytes = 30\nmax_row_bytes = \"64KiB\"\n{more}"
        ),
    );
    for i in 0..3 {
        place.write(&format!("in/a/{i}.csv"), format!("n,word\n{i},x{i}\n{i}0,x{i}\n"));
        place.write(&format!("in/b/{i}.csv"), format!("word,n\nx{i},{i}\nx{i},{i}0\n"));
    }
    place
}

fn numbers(dataset: &Dataset) -> Vec<i64> {
    let of_shard = |shard: &rowmill::shard::Shard| {
        let field = shard.field("n").unwrap();
        let row = |row| i64::from_le_bytes(field.row(row).unwrap().try_into().unwrap());
        (0..shard.n_rows()).map(row).collect::<Vec<_>>()
    };
    dataset.shards().flat_map(|shard| of_shard(shard.unwrap())).collect()
}

#[test]
fn rows_of_several_sources_stand_in_the_order_of_the_file() {
    let place = two_folders("");
    let report = place.json(&["run", "p.toml"]);
    assert_eq!(report["rows"], 12);
    let names: Vec<_> =
        report["stages"].as_array().unwrap().iter().map(|stage| stage["name"].clone()).collect();
    assert_eq!(names, ["a", "b", "t", "write"]);
    let dataset = Dataset::open(place.path("data/d")).unwrap();
    assert_eq!(numbers(&dataset), [0, 0, 1, 10, 2, 20, 0, 0, 1, 10, 2, 20]);

    let books = &dataset.about().books;
    let entered: Vec<_> = books.iter().map(|(name, it)| (name.as_str(), it.entered)).collect();
    assert_eq!(entered, [("a", 6), ("b", 6), ("t", 12)]);

    // The same paths in both: what tells them apart is the source's name.
    let home = place.current("data", "d");
    let mut slots = BTreeSet::new();
    for entry in dataset.entries() {
        let path = home.join("shards").join(&entry.id).join("fingerprint.json");
        let print: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        slots.insert((print["source"]["name"].to_string(), print["slot"].to_string()));
    }
    assert_eq!(slots.len() as u64, report["partitions"].as_u64().unwrap());
    assert_eq!(slots.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len(), 2);
    place.done(&["verify", "p.toml"]);

    let plan = place.json(&["plan", "p.toml"]);
    assert_eq!(plan["up_to_date"], true);
    let of = |n: usize| (plan["sources"][n]["name"].clone(), plan["sources"][n]["inputs"].clone());
    assert_eq!((of(0), of(1)), (("a".into(), 3.into()), ("b".into(), 3.into())));
    let text = place.done(&["check", "p.toml"]).stdout;
    assert!(text.contains("stages     a + b -> t -> write"), "{text}");
    assert!(text.contains("a: 3 files, ") && text.contains("b: 3 files, "), "{text}");
    assert!(text.contains("sample     "), "{text}");
}

#[test]
fn the_bytes_of_several_sources_depend_on_nothing_else_and_follow_their_inputs() {
    let place = two_folders("");
    let (n, _) = run(&place);
    let want = files_of(&place.path("data"));
    for args in [["--jobs", "1"], ["--jobs", "5"], ["--set", "run.batch_rows=1"]] {
        place.done(&[&["run", "p.toml", "--out", "other"][..], &args].concat());
        assert_eq!(files_of(&place.path("other")), want, "{args:?}");
        fs::remove_dir_all(place.path("other")).unwrap();
    }
    for (what, path, content, reused) in [
        ("in the second", "in/b/1.csv", Some("word,n\nx1,1\nx1,77\n"), n - 1),
        ("the same in the first", "in/a/1.csv", Some("n,word\n1,x1\n77,x1\n"), n - 1),
        ("added to the second", "in/b/9.csv", Some("word,n\nx,9\n"), n),
        ("removed from the first", "in/a/0.csv", None, n),
    ] {
        match content {
            Some(content) => place.write(path, content),
            None => fs::remove_file(place.path(path)).unwrap(),
        }
        let before = run(&place).1;
        assert!(before >= reused - 1 && before <= reused + 1, "{what}: {before} of {reused}");
        is_as_fresh(&place, what);
    }
}

#[test]
fn a_limit_counts_the_rows_of_all_sources_in_order() {
    let place = two_folders("");
    for limit in [1_u64, 5, 6, 7, 11, 12, 99] {
        let args = ["run", "p.toml", "--limit-rows", &limit.to_string()];
        let report = place.json(&args);
        assert_eq!(report["rows"], limit.min(12), "{limit}");
        assert_eq!(place.json(&args)["up_to_date"], true, "{limit}");
        let dataset = Dataset::open(place.path("data/d").join(key(&report))).unwrap();
        let all = [0, 0, 1, 10, 2, 20, 0, 0, 1, 10, 2, 20];
        assert_eq!(numbers(&dataset), all[..usize::try_from(dataset.n_rows()).unwrap()], "{limit}");
    }
}

/// The first `limit` numbers of all inputs, in dataset order.
fn limited(place: &Place, limit: usize) -> Vec<i64> {
    let mut numbers = Vec::new();
    for (source, column) in [("a", 0), ("b", 1)] {
        let folder = fs::read_dir(place.path("in").join(source)).unwrap();
        let files: BTreeSet<_> = folder.map(|entry| entry.unwrap().path()).collect();
        for file in files {
            let text = fs::read_to_string(file).unwrap();
            let field = |line: &str| line.split(',').nth(column).unwrap().parse::<i64>().unwrap();
            numbers.extend(text.lines().skip(1).map(field));
        }
    }
    numbers.truncate(limit);
    numbers
}

#[test]
fn a_limit_over_several_sources_follows_inputs_that_change_on_both_sides_of_it() {
    let changes = [
        ("a value in the first", "in/a/1.csv", Some("n,word\n7,x1\n70,x1\n")),
        ("a row more in the first", "in/a/1.csv", Some("n,word\n7,x1\n70,x1\n71,x1\n")),
        ("a value in the second", "in/b/0.csv", Some("word,n\nx0,8\nx0,80\n")),
        ("behind the limit", "in/b/2.csv", Some("word,n\nx2,9\n")),
        ("a row less in the first", "in/a/0.csv", Some("n,word\n6,x0\n")),
        ("a file before all", "in/a/+.csv", Some("n,word\n1,x\n2,x\n3,x\n")),
        ("the limit is reached in the first", "in/a/9.csv", Some("n,word\n4,x\n5,x\n6,x\n")),
        ("the second is read again", "in/a/9.csv", None),
        ("most of the first is gone", "in/a/1.csv", None),
        ("a file of the second is gone", "in/b/0.csv", None),
    ];
    for limit in [3_usize, 7, 9] {
        let place = two_folders(&format!("limit_rows = {limit}\n"));
        run(&place);
        for (what, path, content) in &changes {
            let what = format!("{what}, limit {limit}");
            match content {
                Some(content) => place.write(path, content),
                None => fs::remove_file(place.path(path)).unwrap(),
            }
            let report = place.json(&["run", "p.toml"]);
            let dataset = Dataset::open(place.path("data/d").join(key(&report))).unwrap();
            assert_eq!(numbers(&dataset), limited(&place, limit), "{what}");
            is_as_fresh(&place, &what);
            assert_eq!(place.json(&["plan", "p.toml"])["up_to_date"], true, "{what}");
        }
    }
}

/// Texts and lists come with 32-bit offsets from one kind of source, with 64-bit ones from another.
#[test]
fn sources_of_different_kinds_give_the_same_columns() {
    let place = Place::new();
    place.write(
        "p.toml",
        "version = 1\nname = \"d\"\n\
         [sources.texts]\ntype = \"files\"\nroot = \"in\"\npath = \"*.txt\"\n\
         content = \"text\"\n\
         [sources.table]\ntype = \"csv\"\nroot = \"in\"\npath = \"*.csv\"\n\
         types = { size = \"int64\", text = \"utf8\" }\n\
         [dataset]\ninputs = [\"texts\", \"table\"]\nmax_row_bytes = \"64KiB\"\n",
    );
    place.write("in/a.txt", "from a file");
    place.write("in/b.csv", "size,stem,text,parent,path\n3,c,from a table,here,here/c.txt\n");
    assert_eq!(place.json(&["run", "p.toml"])["rows"], 2);
    let rows = place.done(&["cat", "p.toml", "--columns", "text,path,size"]).stdout;
    let want = "{\"text\":\"from a file\",\"path\":\"a.txt\",\"size\":11}\n\
                {\"text\":\"from a table\",\"path\":\"here/c.txt\",\"size\":3}\n";
    assert_eq!(rows, want);
    place.done(&["verify", "p.toml"]);
}

fn key(report: &Value) -> String {
    report["cache_key"].as_str().unwrap().to_owned()
}

#[test]
fn sources_whose_columns_differ_are_refused_before_anything_is_written() {
    for (content, difference) in [
        ("word\nx\n", "`b` has no column `n`"),
        ("word,n,m\nx,1,2\n", "`a` has no column `m`"),
        ("word,n\nx,y\n", "`n` is int64 in `a` and utf8 in `b`"),
    ] {
        let place = two_folders("");
        place.write("in/b/0.csv", content);
        let message = format!("sources `a` and `b` have different columns: {difference}");
        place.rowmill(&["run", "p.toml"]).fails(2, &[&message, "p.toml:7", "hint: give both"]);
        assert!(!place.path("data").exists(), "{difference}");
    }
}

#[test]
fn a_source_without_inputs_has_no_say_where_it_may_be_empty() {
    let place = two_folders("");
    fs::remove_dir_all(place.path("in/b")).unwrap();
    fs::create_dir_all(place.path("in/b")).unwrap();
    place.rowmill(&["run", "p.toml"]).fails(2, &["source `b` matches no input"]);
    let may = ["--set", "sources.b.allow_empty=true"];
    let report = place.json(&[&["run", "p.toml"][..], &may].concat());
    assert_eq!(report["rows"], 6);
    copy(&place.path("in/a"), &place.path("in/b"));
    assert_eq!(place.json(&["run", "p.toml"])["rows"], 12);
}

#[test]
fn what_was_learned_is_the_same_however_a_dataset_grew() {
    let values = |place: &Place| {
        let path = place.current("data", "d").join("work/plan.json");
        let facts: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let mut values = Vec::new();
        for (source, schema) in facts["schemas"].as_object().unwrap() {
            values.push((source.clone(), schema["value"].to_string()));
        }
        for (source, files) in facts["cuts"].as_object().unwrap() {
            for (path, cuts) in files.as_object().unwrap() {
                values.push((format!("{source}/{path}"), cuts["value"].to_string()));
            }
        }
        values
    };
    let place = two_folders("");
    run(&place);
    let long = |n: i32| {
        let rows: Vec<String> = (0..n).map(|i| format!("{i},word {i}\n")).collect();
        format!("n,word\n{}", rows.concat())
    };
    for (what, path, content) in [
        ("first of the first source", "in/a/+.csv", long(4)),
        ("grown", "in/a/+.csv", long(40)),
        ("cut elsewhere", "in/b/1.csv", format!("word,n\n{}", "a much longer word,5\n".repeat(9))),
        ("smaller again", "in/a/+.csv", long(1)),
    ] {
        place.write(path, content);
        run(&place);
        let fresh = Place::new();
        copy(&place.path("in"), &fresh.path("in"));
        fresh.write("p.toml", fs::read(place.path("p.toml")).unwrap());
        run(&fresh);
        assert_eq!(values(&place), values(&fresh), "{what}");
        assert!(values(&place).len() > 2, "{what}");
        is_as_fresh(&place, what);
    }
}

#[test]
fn partitions_that_are_planned_no_longer_leave_nothing_behind() {
    let place = two_folders("");
    // A value behind the records that types are inferred from does not fit: the run fails.
    let rows = "1,x\n".repeat(20);
    place.write("in/a/0.csv", format!("n,word\n{rows}oops,x\n"));
    let set = ["--set", "sources.a.infer_rows=5", "--set", "run.commit_bytes=1"];
    let more = ["--set", "run.batch_rows=1", "--set", "dataset.partition_bytes=1000000"];
    let args = [&["run", "p.toml"][..], &set, &more].concat();
    assert_eq!(place.rowmill(&args).code, 3);
    let folder = |what: &str| {
        let homes = fs::read_dir(place.path("data/d")).unwrap().map(|entry| entry.unwrap().path());
        let homes = homes.filter(|path| path.is_dir());
        let names = homes.flat_map(|home| fs::read_dir(home.join("work").join(what)).unwrap());
        names.count()
    };
    assert!(folder("log") > 0);
    place.write("in/a/0.csv", "n,word\n1,x\n");
    place.done(&args);
    assert_eq!((folder("log"), folder("open"), folder("trash")), (0, 0, 0));
}
