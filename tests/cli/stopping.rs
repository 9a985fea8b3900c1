//! A run that is asked to stop leaves a commit behind it, from which the same command goes on.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::command::{Place, files_of, joined};

#[test]
fn a_signal_stops_at_a_commit_and_the_same_command_goes_on() {
    let place = Place::new();
    place.write(
        "p.toml",
        "version = 1\nname = \"t\"\n[sources.t]\ntype = \"csv\"\npath = \"a.csv\"\n\
         [dataset]\nmax_row_bytes = \"64KiB\"\nshard_rows = 7000\n",
    );
    let rows = joined((0..100_000).map(|n| format!("{n},{}\n", n * 7 % 1000)));
    place.write("a.csv", format!("n,m\n{rows}"));
    place.done(&["run", "p.toml", "--out", "whole"]);
    // Many small commits: the run is far from its end when the first one is seen.
    let args =
        ["run", "p.toml", "--out", "cut", "--progress", "json", "--set", "run.batch_rows=10"];
    let commits = ["--set", "run.commit_bytes=1", "--memory", "200MiB"];
    for signal in ["-TERM", "-INT"] {
        let mut command = place.command(&[&args[..], &commits].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.contains("\"event\":\"commit\""), "{line}");
        let kill = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        let (mut rest, mut stdout) = (String::new(), String::new());
        stderr.read_to_string(&mut rest).unwrap();
        child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(75), "{rest}");
        assert_eq!(stdout, "");
        for text in [
            "stopping at the next commit; once more to stop at once (both are safe)",
            "error[stopped]: stopped before the dataset was complete",
            "hint: run the same command again; it goes on from there",
        ] {
            assert!(rest.contains(text), "no {text:?} in {rest}");
        }
        let plan = place.json(&["plan", "p.toml", "--out", "cut"]);
        assert_eq!(plan["partitions"][0]["state"], "begun");
        let status = place.json(&["status", "cut/t"]);
        let build = &status["build"];
        assert_eq!((&status["state"], &build["partitions_open"]), (&"stopped".into(), &1.into()));
        assert!(build["rows"].as_u64().unwrap() >= 10, "{build}");
        assert!(build["open"][0]["open_shards"][0]["commits"].as_u64() >= Some(1), "{build}");
        assert!(build["rows_per_second"].as_f64().unwrap() > 0.0, "{build}");
    }
    let ran = place.rowmill(&[&args[..], &commits, &["--until", "0s"]].concat());
    ran.fails(75, &["the time is up: stopping at the next commit", "error[stopped]", "hint: run"]);
    let report = place.json(&["run", "p.toml", "--out", "cut", "--jobs", "1"]);
    assert!(report["resumed_rows"].as_u64().unwrap() >= 10, "{report}");
    assert_eq!(report["rows"], 100_000);
    assert_eq!(files_of(&place.path("cut")), files_of(&place.path("whole")));
}
