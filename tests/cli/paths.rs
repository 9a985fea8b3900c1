//! Paths in a definition are relative to it, those on the command line to the working folder; both
//! are shown as people would write them.

use crate::command::{Place, Ran, TEXTS};

#[test]
fn a_definition_may_be_run_from_any_folder() {
    let place = Place::of_texts(2);
    place.write("pipelines/p.toml", TEXTS.replace("\"in\"", "\"../in\"") + "out = \"../data\"\n");
    place.write("elsewhere/x", "");
    let absolute = place.path("pipelines/p.toml").display().to_string();
    let from = |folder: &str, args: &[&str]| {
        let output = place.command(args).current_dir(place.path(folder)).output().unwrap();
        let ran = Ran::of(output);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?} in {folder}");
        ran.stdout
    };
    let key = from("", &["path", "pipelines/p.toml"]).rsplit('/').next().unwrap().to_owned();
    for (folder, definition, out) in [
        ("", "pipelines/p.toml", "data"),
        ("", "./pipelines/../pipelines/p.toml", "data"),
        ("pipelines", "p.toml", "../data"),
        ("elsewhere", "../pipelines/p.toml", "../data"),
        ("", &absolute, &place.path("data").display().to_string()),
    ] {
        assert_eq!(
            from(folder, &["path", definition]),
            format!("{out}/texts/{key}"),
            "{definition}"
        );
    }
    from("elsewhere", &["run", "../pipelines/p.toml"]);
    let again = from("", &["run", "pipelines/p.toml"]);
    assert!(again.contains("up to date"), "{again}");
    assert!(!again.contains(".."), "{again}");
    assert_eq!(
        from("elsewhere", &["path", "../pipelines/p.toml", "--out", "x/y"]).find("x/y"),
        Some(0)
    );
}

#[test]
fn a_path_is_printed_byte_for_byte() {
    use std::os::unix::ffi::OsStrExt;

    let place = Place::of_texts(1);
    let out = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let printed = place.command(&["path", "p.toml", "--out"]).arg(out).output().unwrap().stdout;
    assert!(printed.starts_with(b"caf\xe9/texts/") && printed.ends_with(b"\n"), "{printed:?}");
}

#[test]
fn a_link_on_the_way_is_followed_and_not_cut_away() {
    let place = Place::of_texts(1);
    place.write("far/away/p.toml", TEXTS.replace("\"in\"", "\"../in\"") + "out = \"../data\"\n");
    place.write("far/in/a.txt", "a");
    std::os::unix::fs::symlink(place.path("far/away"), place.path("near")).unwrap();
    place.done(&["run", "near/p.toml"]);
    assert!(place.path("far/data/texts/current").exists());
    assert!(!place.path("data").exists());
    let path = place.done(&["path", "near/p.toml"]).stdout;
    assert!(path.starts_with("near/../data/texts/"), "{path}");
}

#[test]
fn inspect_and_verify_take_definitions_datasets_keys_and_shards() {
    let place = Place::of_texts(1);
    place.done(&["run", "p.toml"]);
    let key = place.done(&["path", "p.toml"]).stdout.trim().to_owned();
    let id = place.json(&["inspect", "p.toml"])["shards"][0]["id"].as_str().unwrap().to_owned();
    for path in ["p.toml", "data/texts", "data/texts/", "data/texts/current", &key] {
        for command in ["inspect", "verify"] {
            assert_eq!(place.json(&[command, path])["rows"], 1, "{command} {path}");
        }
    }
    for path in [format!("{key}/shards/{id}"), format!("data/texts/current/shards/{id}")] {
        for command in ["inspect", "verify"] {
            assert_eq!(place.json(&[command, &path])["rows"], 1, "{command} {path}");
        }
    }
}
