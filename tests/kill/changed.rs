//! Inputs that change while they are read.
//!
//! The change is made within the first commit, on the thread that writes: it has happened before
//! the run goes on. What is changed lies further behind than readers can be ahead.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rowmill::config::Registry;
use rowmill::pipeline::{Event, Live, Observer, Pipeline, PipelineError, RunOverrides};
use tokio_util::sync::CancellationToken;

use crate::builds::rows;
use crate::place::Place;
use crate::tree::Tree;

const N_ROWS: usize = 30_000;

/// What happens to an input.
#[derive(Debug, Clone, Copy)]
enum Change {
    Grown,
    Cut,
    SameSize,
    Replaced,
    Removed,
}

impl Change {
    const ALL: [Self; 5] = [Self::Grown, Self::Cut, Self::SameSize, Self::Replaced, Self::Removed];

    fn make(self, path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        match self {
            Self::Grown => {
                let more = rows(3, 100, 60);
                bytes.extend_from_slice(more.split_once('\n').unwrap().1.as_bytes());
            }
            // Behind a record: a line end before a digit.
            Self::Cut => {
                let kept = bytes.len() * 3 / 4;
                let ends = bytes[..kept].windows(2);
                let end = ends.rev().position(|w| w[0] == b'\n' && w[1].is_ascii_digit()).unwrap();
                bytes.truncate(kept - 1 - end);
            }
            // A letter of the last value: it stays what it is, only another.
            Self::SameSize | Self::Replaced => {
                let last = bytes.iter().rposition(|b| *b == b'n').unwrap();
                bytes[last] = b'm';
            }
            Self::Removed => return fs::remove_file(path).unwrap(),
        }
        let there = match self {
            Self::Replaced => path.with_extension("new"),
            _ => path.to_owned(),
        };
        fs::write(&there, bytes).unwrap();
        // Clocks of file systems stand still for milliseconds; a test may be faster.
        let later = SystemTime::now() + Duration::from_secs(10);
        File::options().write(true).open(&there).unwrap().set_modified(later).unwrap();
        if there != path {
            fs::rename(there, path).unwrap();
        }
    }
}

/// Makes the change at the first commit.
struct AtFirstCommit<F> {
    change: F,
    is_done: AtomicBool,
}

impl<F: Fn() + Send + Sync> Observer for AtFirstCommit<F> {
    fn event(&self, event: &Event) {
        let is_commit = matches!(event, Event::Committed { .. });
        if is_commit && !self.is_done.swap(true, Ordering::SeqCst) {
            (self.change)();
        }
    }
}

/// The definition, overridden so that readers are little ahead of the writer.
fn pipeline(place: &Place) -> Arc<Pipeline> {
    let set = ["run.batch_rows=50", "run.batch_bytes=16KiB", "run.commit_bytes=1B"];
    let load = |memory: Option<String>| {
        let set = set.map(str::to_owned).to_vec();
        let overrides = RunOverrides {
            set,
            out: Some(place.path("out")),
            jobs: Some(1),
            memory,
            ..RunOverrides::default()
        };
        Pipeline::load(&place.path("p.toml"), &overrides, Registry::BUILT_IN).unwrap()
    };
    // The least memory there can be makes the shortest edges.
    let refused = load(Some("1MiB".to_owned())).plan().unwrap_err().to_string();
    let least = refused.rsplit("may take ").next().unwrap().split(' ').next().unwrap();
    Arc::new(load(Some(least.to_owned() + "B")))
}

/// Runs with `change` made at the first commit, and gives why the run failed.
fn run_and_change(place: &Place, change: impl Fn() + Send + Sync + 'static) -> PipelineError {
    let pipeline = pipeline(place);
    let memory = pipeline.plan().unwrap().memory;
    let ahead = memory.reader_bytes + memory.edges_bytes + memory.transforms_bytes;
    let input = fs::metadata(place.path("in/a.csv")).unwrap().len();
    assert!(ahead < input / 2, "a reader may be {ahead} bytes ahead of {input}");
    let observer = Arc::new(AtFirstCommit { change, is_done: AtomicBool::new(false) });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let run = pipeline.run(
        Arc::clone(&observer) as _,
        Arc::new(Live::default()),
        CancellationToken::new(),
    );
    let error = runtime.block_on(run).unwrap_err();
    assert!(observer.is_done.load(Ordering::SeqCst));
    error
}

/// Changes `changed` while `in/a.csv` is read, then looks at what the next run makes of it.
fn changed_while_read(definition: &str, changed: &str, change: Change) {
    let case = format!("{changed} {change:?}");
    let place = Place::new(definition);
    place.write("in/a.csv", rows(1, N_ROWS, 60));
    place.write("in/b.csv", rows(2, 50, 60));
    let path = place.path(changed);
    let error = run_and_change(&place, move || change.make(&path));
    let name = changed.strip_prefix("in/").unwrap();
    let (mut text, mut source) = (error.to_string(), std::error::Error::source(&error));
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    assert!(text.contains(&format!("`{name}` changed while it was read")), "{case}: {text}");
    assert!(error.hint().unwrap().contains("wait until nothing writes"), "{case}");
    assert_eq!(error.exit_code(), 1, "{case}");
    let after = Tree::read(&place.path("out"));
    assert!(!after.is_complete(), "{case}");
    assert_eq!(after.count("/partitions/"), 1, "{case}: a partition was recorded");

    let fresh = place.fork(definition);
    fresh.run("out").complete();
    let want = Tree::read(&fresh.path("out"));
    for again in [false, true] {
        let ended = place.run("out").complete();
        assert_eq!(ended.report()["up_to_date"], again, "{case}");
        Tree::read(&place.path("out")).assert_holds(&want, &case);
    }
}

const DEFINITION: &str = r#"
version = 1
name = "rows"

[sources.rows]
type = "csv"
root = "in"
path = "*.csv"

[dataset]
shard_rows = 7_000
max_row_bytes = "4KiB"
intern_values = 10

[dataset.fields]
word = { intern = true }

[run]
commit_interval = "1h"
"#;

#[test]
fn an_input_that_changes_while_it_is_read_is_noticed_and_read_again() {
    for change in [Change::Grown, Change::Cut, Change::SameSize, Change::Replaced] {
        changed_while_read(DEFINITION, "in/a.csv", change);
    }
}

#[test]
fn an_input_that_changes_before_its_turn_is_noticed_and_read_again() {
    for change in Change::ALL {
        changed_while_read(DEFINITION, "in/b.csv", change);
    }
}
