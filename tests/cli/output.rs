//! Where things are printed, in which form, and what happens when nobody reads them.

use std::process::Stdio;

use serde_json::Value;

use crate::command::{Place, Ran, python};

#[test]
fn progress_comes_in_each_form() {
    let place = Place::of_texts(3);
    for (form, out) in [("none", "a"), ("plain", "b"), ("bar", "c"), ("auto", "d")] {
        // Lines come every ten seconds, and bars only to a terminal.
        let ran = place.done(&["run", "p.toml", "--out", out, "--progress", form]);
        assert_eq!(ran.stderr, "", "{form}");
    }
    let commits = ["--set", "run.commit_bytes=1"];
    let args = ["run", "p.toml", "--out", "e", "--progress", "json"];
    let ran = place.done(&[&args[..], &commits].concat());
    let events: Vec<Value> =
        ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for partition in 0..3 {
        let mine = events.iter().filter(|event| event["partition"] == partition);
        let names: Vec<_> = mine.clone().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(names.last(), Some(&"partition"), "{names:?}");
        assert!(names.contains(&"sealed"), "{names:?}");
        assert!(mine.clone().all(|event| event["rows"] == 1), "{events:?}");
        let sealed = mine.clone().find(|event| event["event"] == "sealed").unwrap();
        assert_eq!(sealed["shard"].as_str().unwrap().len(), 32);
    }
    assert!(ran.stdout.starts_with("dataset "), "the report is no progress");
}

#[test]
fn the_log_is_silent_unless_asked_and_may_be_json() {
    let place = Place::of_texts(2);
    let level = ["--log-level", "info"];
    let ran = place.done(&[&["run", "p.toml", "--log", "json"][..], &level].concat());
    let lines: Vec<Value> =
        ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let messages: Vec<_> =
        lines.iter().map(|line| line["fields"]["message"].as_str().unwrap()).collect();
    assert_eq!((messages[0], messages[messages.len() - 1]), ("run started", "dataset complete"));
    assert_eq!(messages.iter().filter(|message| **message == "shard sealed").count(), 2);
    assert!(lines.iter().all(|line| line["level"] == "INFO"));
    let ran = place.done(&[&["run", "p.toml"][..], &level].concat());
    assert!(ran.stderr.starts_with(" INFO run started"), "{}", ran.stderr);
    assert!(!ran.stderr.contains('\u{1b}'), "no colors but for a terminal: {}", ran.stderr);
    assert_eq!(place.done(&["run", "p.toml"]).stderr, "");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::of_texts(2);
    place.done(&["run", "p.toml"]);
    for args in [
        &["run", "p.toml"][..],
        &["run", "p.toml", "--json"],
        &["check", "p.toml"],
        &["plan", "p.toml"],
        &["inspect", "p.toml"],
        &["cat", "p.toml"],
        &["cat", "p.toml", "--json"],
        &["status", "p.toml"],
        &["verify", "p.toml"],
        &["path", "p.toml"],
        &["schema"],
        &["completions", "zsh"],
    ] {
        let mut command = place.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = Ran::of(place.command(&["schema"]).stdout(full).output().unwrap());
    ran.fails(1, &["error[print-failed]: cannot print the result: "]);
}

#[test]
fn colors_are_for_terminals_that_want_them() {
    let Some(mut python) = python(&["pty"]) else { return };
    let place = Place::of_texts(1);
    // What a program under a terminal prints, on our stdout.
    let code = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    python.args(["-c", code, env!("CARGO_BIN_EXE_rowmill")]).current_dir(place.path(""));
    python.stdin(Stdio::null());
    let mut seen = |args: &[&str], no_color: Option<&str>| {
        python.args(args).env("TERM", "xterm");
        match no_color {
            Some(value) => python.env("NO_COLOR", value),
            None => python.env_remove("NO_COLOR"),
        };
        let output = python.output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("\u{1b}[")
    };
    let args = ["run", "none.toml"];
    assert!(seen(&args, None));
    assert!(seen(&[], Some("")), "an empty NO_COLOR is none");
    assert!(!seen(&[], Some("1")));
}

#[test]
fn the_summary_reads_well() {
    let place = Place::of_texts(1);
    let text = place.done(&["run", "p.toml"]).stdout;
    for line in [
        "dataset    data/texts/",
        "rows       1\n",
        "shards     1 in 1 partition\n",
        "interned   parent: 1 row share",
        "stage      files ",
        "stage      write ",
        "read it with NumPy:",
        "np.memmap(",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    let again = place.done(&["run", "p.toml"]).stdout;
    assert!(again.contains("rows       1  (up to date, nothing was built)\n"), "{again}");
    assert!(!again.contains("stage "), "{again}");
}

#[test]
fn completions_name_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.done(&["completions", shell]).stdout;
        for command in
            ["run", "check", "plan", "inspect", "verify", "path", "schema", "completions"]
        {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    let help = place.done(&["--help"]).stdout;
    assert!(help.contains("Exit codes: 0 done"), "{help}");
    assert_eq!(
        place.done(&["--version"]).stdout,
        concat!("rowmill ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

/// Names of files may hold what a terminal obeys.
#[test]
fn control_characters_of_names_are_spelled() {
    let place = Place::of_texts(1);
    place.write("in/0/\u{1b}[2J.txt", b"not \xff UTF-8");
    let ran = place.rowmill(&["run", "p.toml"]);
    ran.fails(3, &["`0/\\u{1b}[2J.txt`"]);
    let printed = ran.stderr.chars().filter(|c| c.is_control() && *c != '\n');
    assert_eq!(printed.count(), 0, "{}", ran.stderr);
    let document = place.rowmill(&["run", "p.toml", "--json"]).stdout;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert!(document["error"]["message"].as_str().unwrap().contains("\u{1b}[2J"), "{document}");
}
