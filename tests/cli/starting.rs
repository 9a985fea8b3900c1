//! `init`: definitions to begin with run as they are, and lists of categories are those of the data.

use serde_json::json;

use crate::command::Place;

#[test]
fn every_printed_definition_checks_and_runs() {
    let place = Place::new();
    place.write("in/cat/a.jpg", [0xff, 0xd8, 0]);
    place.write("in/dog/b.png", "png");
    place.write("in/cat/c.txt", "a text\n");
    place.write("in/d.csv", "n,kind\n1,cat\n2,dog\n");
    for (kind, n_rows) in [("images", 2), ("text", 1), ("tables", 2)] {
        let file = format!("{kind}.toml");
        let text = place.done(&["init", kind, "--root", "in"]).stdout;
        // Whatever lies beside it is the user's.
        place.write(&format!("{file}.tmp"), "mine");
        place.done(&["init", kind, &file, "--root", "in"]);
        assert_eq!(std::fs::read_to_string(place.path(&format!("{file}.tmp"))).unwrap(), "mine");
        let written = std::fs::read_to_string(place.path(&file)).unwrap();
        assert_eq!(written, text.replace("FILE", &file));
        assert!(place.json(&["init", kind])["definition"].as_str().map(str::len).is_some());
        place.done(&["check", &file]);
        assert_eq!(place.json(&["run", &file])["rows"], n_rows, "{kind}");
        place.rowmill(&["init", kind, &file]).fails(2, &["is there already", "hint: "]);
    }
    let list = place.done(&["init", "categories", "images.toml", "--column", "parent"]).stdout;
    assert_eq!(list, "\"parent\" = { categorical = [\"cat\", \"dog\"] }\n");
    let definition = std::fs::read_to_string(place.path("images.toml")).unwrap();
    let (before, after) = definition.split_once("parent = { intern = true }").unwrap();
    place.write("images.toml", format!("{before}{}{after}", list.trim()));
    place.done(&["run", "images.toml"]);
    assert_eq!(place.json(&["inspect", "images.toml", "--row", "1"])["values"]["parent"], "dog");

    let list = place.json(&["init", "categories", "data/tables", "--column", "kind"]);
    assert_eq!(list["categorical"], json!(["cat", "dog"]));
    let list = ["init", "categories", "data/tables", "--column"];
    for (args, texts) in [
        (&["kind", "--limit", "1"][..], &["field `kind` has more than 1 values", "hint: "][..]),
        (&["n"], &["field `n` holds no text"]),
        (&["knd"], &["there is no field `knd`", "hint: the fields are n, kind"]),
    ] {
        place.rowmill(&[&list[..], args].concat()).fails(2, texts);
    }
}
