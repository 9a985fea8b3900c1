//! `rowmill clean` of a dataset in a store.

use std::fmt::Write;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use indicatif::HumanBytes;
use serde_json::{Value, json};

use super::clean::CleanArgs;
use super::output::{CliError, Console, counted};
use crate::exporters::{CleanElsewhere, KeepElsewhere, LeftElsewhere, PushError};
use crate::pipeline::{PipelineError, REPORT_VERSION};
use crate::remote::{Remote, RemoteOptions, RemoteStorage, Upload};

/// What is younger stays, where nothing is said: a push that rests is gone on with.
pub(super) const OLDER_THAN: Duration = Duration::from_hours(7 * 24);

/// Removes what no kept generation at `url` names, or says what that would be.
pub(super) fn execute(args: &CleanArgs, url: &str, console: &Console) -> Result<(), CliError> {
    if args.keys {
        return Err(CliError::Usage {
            message: "--keys is for datasets on a disk".to_owned(),
            hint: Some("name the URL of one cache key: `rowmill clean URL/NAME/KEY`".to_owned()),
        });
    }
    let failed = |error: PushError| CliError::reading(error.of_store().into());
    let remote = Remote::open(url, &RemoteOptions::default());
    let remote = remote.map_err(|e| failed(e.into()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(PipelineError::Runtime)?;
    let storage = RemoteStorage::new(remote.clone(), runtime.handle().clone());
    let place = CleanElsewhere::open(remote, storage).map_err(failed)?;
    let older_than = args.older_than.unwrap_or(OLDER_THAN);
    let keep = KeepElsewhere { previous: args.keep, older_than };
    let left = if args.yes {
        let mut left = LeftElsewhere::default();
        let cleaned = place.clean(keep, |removal| left.removals.push(removal.clone()));
        left.unlisted = cleaned.map_err(failed)?;
        left
    } else {
        place.look(keep).map_err(failed)?
    };
    if args.json {
        return console.print_json(&document(args, &place, &left));
    }
    console.print(&text(args, &place, &left))
}

fn document(args: &CleanArgs, place: &CleanElsewhere, left: &LeftElsewhere) -> Value {
    let url = place.url();
    let listed = left.removals.iter().map(|it| {
        let path = format!("{url}/{}", it.name);
        match &it.upload {
            None => json!({"what": it.what.name(), "path": path, "bytes": it.n_bytes}),
            Some(upload) => json!({
                "what": it.what.name(),
                "path": path,
                "bytes": Value::Null,
                "upload": upload.id,
                "begun": begun(upload),
            }),
        }
    });
    json!({
        "version": REPORT_VERSION,
        "dataset": url,
        "removed": args.yes,
        "bytes": left.removals.iter().map(|it| it.n_bytes).sum::<u64>(),
        "leftovers": listed.collect::<Value>(),
        "pushes": left.pushes,
        "uploads_unlisted": left.unlisted,
    })
}

fn text(args: &CleanArgs, place: &CleanElsewhere, left: &LeftElsewhere) -> String {
    let mut text = format!("{:<11}{}\n", "dataset", place.url());
    for it in &left.removals {
        let bytes = match &it.upload {
            None => HumanBytes(it.n_bytes).to_string(),
            // Its bytes are not known; its day is.
            Some(upload) => begun(upload).chars().take(10).collect(),
        };
        writeln!(text, "{:<11}{bytes:>11}  {}", it.what.name(), it.name).ok();
    }
    let n_bytes = HumanBytes(left.removals.iter().map(|it| it.n_bytes).sum());
    let n = counted(left.removals.len() as u64, "thing");
    match (left.removals.is_empty(), args.yes) {
        (true, _) => writeln!(text, "nothing to remove"),
        (false, true) => writeln!(text, "{:<11}{n}, {n_bytes}", "removed"),
        (false, false) => writeln!(text, "{:<11}{n}, {n_bytes}: --yes does", "would go"),
    }
    .ok();
    if let Some(why) = &left.unlisted {
        writeln!(
            text,
            "{:<11}uploads that were begun and not completed are not seen: {why}",
            "note"
        )
        .ok();
    }
    for push in &left.pushes {
        writeln!(text, "{:<11}a push is at work ({push}): nothing goes beside it", "note").ok();
    }
    text
}

/// When an upload was begun.
fn begun(upload: &Upload) -> String {
    DateTime::<Utc>::from(upload.begun).to_rfc3339_opts(SecondsFormat::Secs, true)
}
