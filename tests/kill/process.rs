//! Runs of the binary, watched line by line.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

/// A run that says nothing for as long hangs.
const WATCHDOG: Duration = Duration::from_mins(2);

/// A run of the binary that has not begun.
#[derive(Debug)]
pub(crate) struct Run {
    wrapper: Vec<String>,
    args: Vec<String>,
}

impl Run {
    pub(crate) fn new(definition: &Path, out: &Path) -> Self {
        let mut args: Vec<String> =
            ["run", "--json", "--progress", "json"].map(str::to_owned).to_vec();
        args.extend(["--out".to_owned(), text(out), text(definition)]);
        Self { wrapper: Vec::new(), args }
    }

    pub(crate) fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Overrides a setting.
    pub(crate) fn set(self, setting: impl Into<String>) -> Self {
        self.arg("--set").arg(setting)
    }

    /// Runs below another program.
    pub(crate) fn below(mut self, wrapper: Vec<String>) -> Self {
        self.wrapper = wrapper;
        self
    }

    pub(crate) fn start(self) -> Running {
        let binary = env!("CARGO_BIN_EXE_rowmill").to_owned();
        let mut words = self.wrapper.into_iter().chain([binary]).chain(self.args);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (send, lines) = sync_channel(1);
        let (said, out) = sync_channel(1);
        let readers = vec![
            std::thread::spawn(move || forward(stderr, &send)),
            std::thread::spawn(move || {
                let mut text = String::new();
                BufReader::new(stdout).read_to_string(&mut text).unwrap();
                said.send(text).ok();
            }),
        ];
        Running { child, lines, out, readers, seen: Vec::new() }
    }

    pub(crate) fn wait(self) -> Ended {
        self.start().wait()
    }

    /// Runs to its end, which must be a complete dataset.
    pub(crate) fn complete(self) -> Ended {
        let ended = self.wait();
        assert_eq!(ended.code(), Some(0), "{ended:#?}");
        ended
    }
}

fn text(path: impl AsRef<OsStr>) -> String {
    path.as_ref().to_str().unwrap().to_owned()
}

/// Hands lines on one by one: while nobody takes them, a run that says much has to wait.
fn forward(from: impl Read, to: &SyncSender<String>) {
    for line in BufReader::with_capacity(1024, from).lines() {
        let Ok(line) = line else { return };
        if to.send(line).is_err() {
            return;
        }
    }
}

/// A run that goes on.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    out: Receiver<String>,
    readers: Vec<JoinHandle<()>>,
    seen: Vec<String>,
}

impl Running {
    /// The next line on stderr, `None` after the last.
    pub(crate) fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(WATCHDOG) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("hangs after {:#?}", self.seen),
        }
    }

    /// Waits for a line that holds `what`.
    pub(crate) fn line_with(&mut self, what: &str) -> String {
        while let Some(line) = self.line() {
            if line.contains(what) {
                return line;
            }
        }
        panic!("ended without {what:?}: {:#?}", self.seen)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let told = Command::new("sh")
            .args(["-c", "kill -TERM \"$0\"", &self.pid().to_string()])
            .status()
            .unwrap();
        assert!(told.success());
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(mut self) -> Ended {
        self.child.kill().unwrap();
        self.wait()
    }

    pub(crate) fn wait(mut self) -> Ended {
        while self.line().is_some() {}
        let stdout = self.out.recv_timeout(WATCHDOG).unwrap();
        let status = self.child.wait().unwrap();
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        Ended { status, stderr: std::mem::take(&mut self.seen), stdout }
    }
}

impl Drop for Running {
    /// Leaves no process behind where a test fails.
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// How a run ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    status: ExitStatus,
    pub(crate) stderr: Vec<String>,
    stdout: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Whether it was killed, whoever tells.
    pub(crate) fn was_killed(&self) -> bool {
        self.status.signal() == Some(9) || self.status.code() == Some(128 + 9)
    }

    /// The report on stdout.
    pub(crate) fn report(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }

    /// A number of the report.
    pub(crate) fn number(&self, key: &str) -> u64 {
        self.report()[key].as_u64().unwrap_or_else(|| panic!("no `{key}`: {self:#?}"))
    }

    /// Rows that left the source in this run.
    pub(crate) fn rows_read(&self) -> u64 {
        self.report()["stages"][0]["rows"].as_u64().unwrap()
    }

    /// Everything on stderr but events.
    pub(crate) fn messages(&self) -> String {
        let lines = self.stderr.iter().filter(|line| !line.starts_with('{'));
        lines.map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Events on stderr.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self.stderr.iter().filter(|line| line.starts_with('{'));
        lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Rows that were durable when the last event was told.
    pub(crate) fn durable_rows(&self) -> u64 {
        let mut partitions: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for event in self.events() {
            let number = |key: &str| event[key].as_u64().unwrap();
            let (committed, sealed) = partitions.entry(number("partition")).or_default();
            if event["event"] == "sealed" {
                *sealed += number("rows");
            } else {
                *committed = number("rows").max(*committed);
            }
        }
        partitions.values().map(|(committed, sealed)| committed.max(sealed)).sum()
    }
}
