//! `rowmill test`: rows in, expectations out.

use serde_json::json;

use crate::command::{Place, TEXTS, snapshot};

/// The definition of texts, with a cast and these tests; `in` holds no file.
fn place(tests: &str) -> Place {
    let place = Place::new();
    let cast = "[transforms.narrow]\ntype = \"cast\"\ntypes = { words = \"int8\" }\n[dataset]";
    place.write("p.toml", format!("{}\n{tests}", TEXTS.replace("[dataset]", cast)));
    place.write("in/a.txt", "");
    place
}

/// A test with these lines.
fn test(name: &str, lines: &str) -> String {
    format!("[[test]]\nname = \"{name}\"\n{lines}\n\n")
}

#[test]
fn expectations_are_compared_with_what_comes_out() {
    let types = "types = { text = { dtype = \"utf8\", nullable = true } }";
    for (lines, stages, failures) in [
        ("given = { text = \"a b\\n\" }\nexpect = { words = 2, lines = 1 }", 2, vec![]),
        (
            "given = { text = \"a b\\n\" }\nexpect = { words = 3, lines = 2 }",
            2,
            vec![
                "row 0, column `lines`: expected 2, got 1",
                "row 0, column `words`: expected 3, got 2",
            ],
        ),
        (
            "stage = \"counts\"\ngiven = [{ text = \"a\" }, { text = \"b c\" }]\n\
             expect = [{ words = 1 }, { words = 2 }]",
            1,
            vec![],
        ),
        (
            "given = [{ text = \"a\" }, { text = \"b\" }]\nexpect = { words = 1 }",
            2,
            vec!["1 row was expected, 2 rows came out"],
        ),
        ("given = { text = \"a\" }\nexpect = []", 2, vec!["0 rows were expected, 1 row came out"]),
        (
            "given = { text = \"a\" }\nexpect = { words = \"1\" }",
            2,
            vec!["row 0, column `words`: what is expected does not fit: \"1\" is no int8"],
        ),
        (
            "given = { text = \"a\" }\nexpect_reject = \"value_misfit\"",
            2,
            vec!["no row was rejected with `value_misfit`"],
        ),
        (&format!("{types}\ngiven = {{}}\nexpect_null = [\"text\", \"words\"]"), 2, vec![]),
        (
            "given = { text = \"a\" }\nexpect_null = \"words\"",
            2,
            vec!["row 0, column `words`: expected no value, got 1"],
        ),
        (
            "stage = \"narrow\"\ntypes.words = { dtype = \"int64\" }\n\
             given = [{ words = 1 }, { words = 128 }, { words = -5 }]\n\
             expect = [{ words = 1 }, { words = -5 }]\nexpect_reject = [\"value_misfit\"]",
            1,
            vec![],
        ),
        (
            "stage = \"narrow\"\ntypes.words = { dtype = \"int64\" }\n\
             given = [{ words = 200 }, { words = 1 }]\nexpect = [{}, { words = 1 }]",
            1,
            vec![
                "row 0 that went in was rejected by `narrow` with `value_misfit`: \
                 field `words`: 200 does not fit into int8",
                "2 rows were expected, 1 row came out",
            ],
        ),
    ] {
        let place = place(&test("it", lines));
        let ran = place.rowmill(&["test", "p.toml", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(report["tests"][0]["stages"].as_array().unwrap().len(), stages, "{lines}");
        let found = report["tests"][0]["failures"].as_array().unwrap();
        let found: Vec<_> = found.iter().map(|it| it["message"].as_str().unwrap()).collect();
        assert_eq!(found, failures, "{lines}");
        let (code, passed) = if failures.is_empty() { (0, 1) } else { (4, 0) };
        assert_eq!((ran.code, &report["passed"]), (code, &json!(passed)), "{lines}");
    }
}

#[test]
fn one_line_tells_of_each_test_and_nothing_is_written() {
    let tests = [
        test("empty", "given = { text = \"\" }\nexpect = { words = 0, characters = 0 }"),
        test("two", "stage = \"counts\"\ngiven = { text = \"a b\" }\nexpect = { words = 3 }"),
    ];
    let place = place(&tests.concat());
    let before = snapshot(&place.path("."));
    let ran = place.rowmill(&["test", "p.toml"]);
    assert_eq!(ran.code, 4);
    let want = "pass  empty  counts -> narrow\nFAIL  two    counts\n      \
                row 0, column `words`: expected 3, got 2\n1 passed, 1 failed\n";
    assert_eq!(ran.stdout, want);
    assert_eq!(ran.stderr, "error[test-failed]: 1 of 2 tests of `p.toml` failed\n");
    assert_eq!(snapshot(&place.path(".")), before);
}

#[test]
fn tests_decide_nothing() {
    let place = place("");
    let path = place.done(&["path", "p.toml"]).stdout;
    let plain = std::fs::read_to_string(place.path("p.toml")).unwrap();
    place.rowmill(&["test", "p.toml"]).fails(2, &["`p.toml` has no test", "[[test]]"]);
    place.done(&["run", "p.toml"]);
    let case = test("it", "given = { text = \"a\" }\nexpect = { words = 7 }");
    place.write("p.toml", format!("{plain}\n{case}"));
    assert_eq!(place.done(&["path", "p.toml"]).stdout, path);
    assert_eq!(place.json(&["run", "p.toml"])["up_to_date"], true);
    // Nor is an override of them a dataset of its own.
    assert_eq!(place.json(&["run", "p.toml", "--set", "test=[]"])["current"], true);
}

#[test]
fn a_test_that_makes_no_sense_is_explained_with_its_line() {
    let types = "types.words = { dtype = \"int64\" }";
    for (lines, want) in [
        ("given = { txt = \"a\" }\nexpect = {}", "there is no column `txt`"),
        ("given = { text = 5 }\nexpect = {}", "column `text`: 5 is no"),
        ("given = [{ text = \"a\" }, {}]\nexpect = {}", "row 1 has no `text`"),
        ("given = { path = \"a\" }\nexpect = {}", "there is no column `text`"),
        ("given = { text = \"a\" }\nexpect = { word = 1 }", "no column `word` comes out"),
        ("given = { text = \"a\" }\nexpect_null = \"word\"", "no column `word` comes out"),
        ("stage = \"count\"\ngiven = {}\nexpect = {}", "did you mean `counts`?"),
        ("given = {}", "[[test]] expects nothing"),
        ("expect = {}", "[[test]] needs `given`"),
        ("given = []\nexpect = {}", "`given` holds no row"),
        ("given = 3\nexpect = {}", "`given` takes a row"),
        ("given = {}\nexpect = {}\natol = -1", "`atol` takes a number that is not negative"),
        ("given = {}\nexpect = {}\nexpct = {}", "did you mean `expect`?"),
        ("given = {}\nexpect_reject = \"value_msfit\"", "did you mean `value_misfit`?"),
        ("given = {}\nexpect_reject = \"hook-nan\"", "no row is rejected with `hook-nan`"),
        ("given = {}\nexpect_reject = [\"null\", \"usage\"]", "no row is rejected with `usage`"),
        ("given = {}\nexpect_reject = \"unheard_of\"", "the codes of rejects are `axis`, "),
        (&types.replace("int64", "int65"), "int65"),
        (&types.replace("dtype", "dtpe"), "did you mean `dtype`?"),
    ] {
        let place = place(&test("it", lines));
        let ran = place.rowmill(&["test", "p.toml"]);
        ran.fails(2, &[want, "--> p.toml:"]);
    }
    let twice = test("it", "given = { text = \"a\" }\nexpect = {}").repeat(2);
    place(&twice).rowmill(&["check", "p.toml"]).fails(2, &["there are two tests \"it\""]);
    let place = place("[test]\nname = \"it\"\n");
    place.rowmill(&["check", "p.toml"]).fails(2, &["write [[test]] above each of them"]);
}
