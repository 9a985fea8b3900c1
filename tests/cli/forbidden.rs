//! What the system refuses, and what stands where it does not belong: an error that names the place
//! and says what to do, never damage.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::command::{Place, Ran, skip};

/// A user to whom something can be forbidden.
const NOBODY: u32 = 65_534;

/// Runs `rowmill` as somebody who is not root; `None` where that is not possible.
fn as_nobody(place: &Place, args: &[&str]) -> Option<Ran> {
    let output = |mut command: Command| {
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output()
    };
    let ran = output(place.command(args)).or_else(|_| {
        // The program may lie where only root may look.
        let copy = place.path("rowmill");
        if !copy.exists() {
            fs::copy(env!("CARGO_BIN_EXE_rowmill"), &copy)?;
        }
        let mut command = Command::new(copy);
        command.args(args).current_dir(place.path(""));
        output(command)
    });
    match ran {
        Ok(output) => Some(Ran::of(output)),
        Err(error) => {
            skip(&format!("another user cannot run the program: {error}"));
            None
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A folder that others may enter.
fn place() -> Place {
    let place = Place::of_texts(2);
    set_mode(&place.path(""), 0o755);
    place
}

#[test]
fn a_file_that_may_not_be_read_is_not_damaged() {
    let place = place();
    place.done(&["run", "p.toml"]);
    let home = place.current("data", "texts");
    let shards = fs::read_dir(home.join("shards")).unwrap();
    let shard = shards.map(|entry| entry.unwrap().path()).min().unwrap();
    for file in [
        home.join("_COMPLETE"),
        shard.join("_COMPLETE"),
        shard.join("B3SUMS"),
        shard.join("blocks.bin"),
        shard.join("schema.json"),
        shard.join("text.bin"),
        shard.clone(),
        home.join("shards"),
    ] {
        let is_dir = file.is_dir();
        set_mode(&file, 0o000);
        let Some(ran) = as_nobody(&place, &["verify", "p.toml"]) else { return };
        let json = as_nobody(&place, &["verify", "p.toml", "--json"]).unwrap();
        set_mode(&file, if is_dir { 0o755 } else { 0o644 });
        ran.fails(1, &["error[disk-permission]: ", "could not be read, the first is `data/texts/"]);
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(ran.stderr.contains(name), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains("unreadable: `data/texts/"), "{}", ran.stderr);
        for word in ["damage", "missing", "changed", "--out"] {
            assert!(!ran.stderr.contains(word), "{word}: {}", ran.stderr);
        }
        assert_eq!(json.code, 1);
        let document: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(document["ok"], false);
        assert_eq!(document["findings"][0]["damage"], false, "{document:#}");
    }
    // What is damaged as well decides.
    set_mode(&shard.join("text.bin"), 0o000);
    fs::write(shard.join("size.bin"), [7; 8]).unwrap();
    let ran = as_nobody(&place, &["verify", "p.toml"]).unwrap();
    ran.fails(4, &["error[damage-found]: 1 damage found", "unreadable: `data", "damage: `data"]);
    set_mode(&shard.join("text.bin"), 0o644);
}

#[test]
fn a_folder_that_may_not_be_read_is_named_by_every_command() {
    let place = place();
    place.done(&["run", "p.toml"]);
    let home = place.current("data", "texts");
    set_mode(&home, 0o000);
    for command in ["verify", "inspect", "cat", "status", "plan"] {
        let Some(ran) = as_nobody(&place, &[command, "p.toml"]) else { return };
        ran.fails(
            1,
            &["error[disk-permission]: cannot look at `data/texts/", "hint: let the user"],
        );
        assert!(!ran.stderr.contains("out`"), "{}", ran.stderr);
    }
    set_mode(&home, 0o755);
}

#[test]
fn inputs_that_may_not_be_read_are_no_changed_inputs() {
    let place = place();
    place.done(&["run", "p.toml"]);
    set_mode(&place.path("in/1/1.txt"), 0o000);
    let verify = ["verify", "p.toml", "--sources"];
    let Some(ran) = as_nobody(&place, &verify) else { return };
    ran.fails(1, &["error[input-unreadable]: 1 input could not be read, the first is `1/1.txt`"]);
    place.write("in/0/0.txt", "other");
    as_nobody(&place, &verify).unwrap().fails(4, &["error[inputs-differ]: 2 inputs not as"]);
    set_mode(&place.path("in/1/1.txt"), 0o644);
}

#[test]
fn check_finds_out_that_the_folder_for_datasets_cannot_be_written() {
    let place = place();
    fs::create_dir(place.path("locked")).unwrap();
    set_mode(&place.path("locked"), 0o555);
    for out in ["locked", "locked/not/there"] {
        let Some(ran) = as_nobody(&place, &["check", "p.toml", "--out", out]) else { return };
        let hint = "hint: check who owns the folder, or let `out` be another one";
        ran.fails(1, &["error[disk-permission]: cannot create anything in `locked`", hint]);
    }
    place.write("file", "");
    place
        .rowmill(&["check", "p.toml", "--out", "file/x"])
        .fails(1, &["`file/x/", "hint: a file stands where a folder belongs"]);
    place.done(&["check", "p.toml", "--out", "not/there"]);
    assert!(!place.path("not").exists(), "nothing was written");
}

#[test]
fn what_stands_where_a_file_belongs_is_named_with_what_to_do() {
    let place = Place::of_texts(1);
    let move_it = "hint: something else stands where this file belongs; move it away";
    let dataset = place.json(&["path", "p.toml"])["dataset"].as_str().unwrap().to_owned();
    let lock = format!("{dataset}.lock");
    fs::create_dir_all(place.path(&lock)).unwrap();
    place.rowmill(&["run", "p.toml"]).fails(1, &[&format!("cannot lock `{lock}`"), move_it]);
    fs::remove_dir(place.path(&lock)).unwrap();
    place.done(&["run", "p.toml"]);
    let records = fs::read_dir(place.path(&dataset).join("partitions")).unwrap();
    let record = records.map(|entry| entry.unwrap().path()).next().unwrap();
    fs::remove_file(&record).unwrap();
    fs::create_dir(&record).unwrap();
    for command in ["run", "plan"] {
        let ran = place.rowmill(&[command, "p.toml"]);
        ran.fails(1, &["it is not a regular file", move_it, "/partitions/"]);
    }
    place.rowmill(&["verify", "p.toml"]).fails(4, &["damage: `data", "is not a regular file"]);
}

#[test]
fn inputs_that_are_no_files_are_refused_with_what_to_do() {
    let place = Place::of_texts(1);
    let pipe = place.path("in/pipe.txt");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let set = |path: &str| format!("sources.files.path=\"{path}\"");
    for path in [set("**/*.txt"), set("pipe.txt")] {
        let ran = place.rowmill(&["check", "p.toml", "--set", &path]);
        ran.fails(2, &["`pipe.txt` is not a regular file", "hint: move it away, or let `path`"]);
    }
    fs::remove_file(&pipe).unwrap();
    std::os::unix::fs::symlink("loop.txt", place.path("in/loop.txt")).unwrap();
    for path in [set("**/*.txt"), set("loop.txt")] {
        let ran = place.rowmill(&["check", "p.toml", "--set", &path]);
        ran.fails(1, &["cannot read `loop.txt`", "hint: a link leads to itself: remove it"]);
    }
}
