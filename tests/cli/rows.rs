//! `cat`: rows as JSON lines.

use serde_json::{Value, json};

use crate::command::{Place, joined};

/// 5,000 rows in shards of 1,500, of several types.
fn table() -> Place {
    let place = Place::new();
    place.write(
        "p.toml",
        "version = 1\nname = \"t\"\n[sources.t]\ntype = \"csv\"\npath = \"a.csv\"\n\
         [dataset]\nmax_row_bytes = \"64KiB\"\nshard_rows = 1500\n\
         [dataset.fields]\nkind = { intern = true }\n",
    );
    let rows = joined((0..5000).map(|n| format!("{n},{}.5,k{}\n", n * 7, n % 3)));
    place.write("a.csv", format!("n,x,kind\n{rows}"));
    place.done(&["run", "p.toml"]);
    place
}

fn lines(place: &Place, args: &[&str]) -> Vec<Value> {
    let ran = place.done(&[&["cat"], args].concat());
    assert_eq!(ran.stderr, "");
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn rows_are_lines_in_order_across_shards() {
    let place = table();
    for path in ["p.toml", "data/t"] {
        let all = lines(&place, &[path]);
        assert_eq!(all.len(), 5000);
        for (n, row) in all.iter().enumerate() {
            let x: f64 = format!("{}.5", n * 7).parse().unwrap();
            assert_eq!(*row, json!({"n": n, "x": x, "kind": format!("k{}", n % 3)}));
        }
    }
    let text = place.done(&["cat", "p.toml", "--rows", "1499..1501", "--columns", "kind,n"]).stdout;
    assert_eq!(text, "{\"kind\":\"k2\",\"n\":1499}\n{\"kind\":\"k0\",\"n\":1500}\n");
    let numbers = |args: &[&str]| -> Vec<u64> {
        let args = [&["p.toml", "--columns", "n"], args].concat();
        lines(&place, &args).iter().map(|row| row["n"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&["--rows", "4999,0,2..4"]), [4999, 0, 2, 3]);
    assert_eq!(numbers(&["--rows", "4998.."]), [4998, 4999]);
    assert_eq!(numbers(&["--limit", "2"]), [0, 1]);
    assert_eq!(numbers(&["--rows", "7,1490..", "--limit", "3"]), [7, 1490, 1491]);
    assert_eq!(numbers(&["--limit", "0"]), [0; 0]);
    let row = place.done(&["inspect", "p.toml", "--row", "1"]).stdout;
    assert!(row.ends_with("\nn     1\nx     7.5\nkind  \"k1\"\n"), "{row}");
    let document = place.done(&["inspect", "p.toml", "--row", "1", "--json"]).stdout;
    let at = |name: &str| document.find(&format!("\"{name}\":")).unwrap();
    assert!(at("n") < at("x") && at("x") < at("kind"), "{document}");
    let document = place.json(&["cat", "p.toml", "--rows", "0..2", "--columns", "n"]);
    assert_eq!(document["rows"], json!([{"n": 0}, {"n": 1}]));

    let shards = place.json(&["inspect", "p.toml"])["shards"].clone();
    let last = format!("data/t/current/shards/{}", shards[3]["id"].as_str().unwrap());
    let of_shard = lines(&place, &[&last]);
    assert_eq!((of_shard.len(), &of_shard[0]["n"]), (500, &4500.into()));
}

#[test]
fn what_is_not_there_is_refused_before_a_row_is_printed() {
    let place = Place::of_texts(2);
    place.rowmill(&["cat", "p.toml"]).fails(2, &["holds no complete dataset", "hint: "]);
    place.done(&["run", "p.toml"]);
    for (args, texts) in [
        (&["--rows", "0,2"][..], &["there is no row 2: there are 2, counted from 0"][..]),
        (&["--rows", "1..3"], &["there is no row 2"]),
        (&["--rows", "x"], &["`x` names no rows", "hint: write `7`"]),
        (&["--columns", "txt"], &["there is no field `txt`", "hint: the fields are text, "]),
    ] {
        place.rowmill(&[&["cat", "p.toml"], args].concat()).fails(2, texts);
    }
}

#[test]
fn categories_are_texts_whatever_they_look_like() {
    let place = Place::new();
    place.write(
        "p.toml",
        "version = 1\nname = \"t\"\n[sources.t]\ntype = \"csv\"\npath = \"a.csv\"\n\
         types = { k = \"utf8\" }\n[dataset]\nmax_row_bytes = \"64KiB\"\n\
         [dataset.fields]\nk = { categorical = [\"1\", \"null\"] }\n",
    );
    place.write("a.csv", "k,n\n1,1\nnull,2\n,3\n");
    place.done(&["run", "p.toml"]);
    for (row, want) in [("0", json!("1")), ("1", json!("null")), ("2", Value::Null)] {
        assert_eq!(place.json(&["inspect", "p.toml", "--row", row])["values"]["k"], want);
        let printed = lines(&place, &["p.toml", "--rows", row, "--columns", "k"]);
        assert_eq!(printed, [json!({"k": want})]);
    }
}
