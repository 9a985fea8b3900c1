//! `rowmill clean`.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use indicatif::HumanBytes;
use serde_json::{Value, json};

use super::output::{CliError, Console, counted};
use super::target::Target;
use super::{clean_url, duration};
use crate::config::Registry;
use crate::dataset::clean::{Keep, Leftover, Removal, clean, leftovers, old_keys, remove_key};
use crate::dataset::home::PUSHING;
use crate::dataset::{DatasetError, Home, Workplace};
use crate::exporters::{CleaningHere, push_at};
use crate::pipeline::{PipelineError, REPORT_VERSION};
use crate::remote::is_url;
use crate::storage::{EntryKind, Local, Storage};

/// Arguments of `rowmill clean`.
#[derive(Debug, Args)]
pub struct CleanArgs {
    /// A dataset's folder (or the one that holds `current`), a definition, or the URL of a dataset that
    /// was pushed.
    path: PathBuf,
    /// Remove it; without this, only say what would go.
    #[arg(long)]
    pub(super) yes: bool,
    /// Remove old cache keys instead of old generations of one key.
    #[arg(long)]
    pub(super) keys: bool,
    /// Generations (or cache keys) to keep beside the current one.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) keep: usize,
    /// Remove nothing that is younger, such as `7d`, `12h` or `30m`; `7d` at a URL, and in a folder that is
    /// pushed to.
    #[arg(long, value_name = "AGE", value_parser = duration::parse)]
    pub(super) older_than: Option<Duration>,
    /// Print a JSON document.
    #[arg(long)]
    pub(super) json: bool,
}

/// Removes what no kept generation names, or says what that would be.
pub(super) fn execute(
    args: &CleanArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    if let Some(url) = args.path.to_str().filter(|path| is_url(path)) {
        return clean_url::execute(args, url, console);
    }
    let target = Target::of(&args.path, registry)?;
    let is_pushed_to = Local.stat(&target.home.dir().join(PUSHING)).map_err(DatasetError::from);
    let is_pushed_to = is_pushed_to.map_err(PipelineError::from)?.is_some() && !args.keys;
    let younger_than = args
        .older_than
        .or(is_pushed_to.then_some(clean_url::OLDER_THAN))
        .map(|age| SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH));
    let keep = Keep { previous: args.keep, younger_than };
    let removals = run(args, &target, keep).map_err(PipelineError::from)?;
    if args.json {
        return console.print_json(&document(args, &target, &removals));
    }
    console.print(&text(args, &target, &removals))
}

fn run(args: &CleanArgs, target: &Target, keep: Keep) -> Result<Vec<Removal>, DatasetError> {
    let home = if args.keys {
        // Old keys go by way of the trash of the one that stays.
        let Some(current) = target.located.current(&Local)? else {
            let message = "no cache key is current, so none is old".to_owned();
            let path = target.located.name_dir().to_owned();
            return Err(DatasetError::NoDataset { path, message });
        };
        target.located.home_of(&current)?
    } else {
        target.home.clone()
    };
    let is_there = Local.stat(home.dir())?.is_some_and(|it| it.kind == EntryKind::Dir);
    if !is_there {
        let message = "there is nothing to clean".to_owned();
        return Err(DatasetError::NoDataset { path: home.dir().to_owned(), message });
    }
    let own = target.home.cache_key();
    if !args.yes {
        return if args.keys {
            old_keys(&Local, &target.located, own, keep)
        } else {
            leftovers(&Local, &home, keep)
        };
    }
    if let Some(holder) = Local.lock_holder(&home.lock())? {
        return Err(DatasetError::Busy { path: home.dir().to_owned(), holder });
    }
    // Whoever pushes from now on waits; whoever does already is seen.
    let mut cleaning = CleaningHere::begin(&Local, home.dir())?;
    expect_no_push(&home)?;
    // Opening the place empties its trash; what was in it is told of all the same.
    let mut removed = if args.keys { Vec::new() } else { leftovers(&Local, &home, keep)? };
    removed.retain(|it| it.what == Leftover::Trash);
    let place = Workplace::open(Arc::new(Local), home.clone())?;
    if args.keys {
        for removal in old_keys(&Local, &target.located, own, keep)? {
            let key = removal.path.file_name().unwrap_or_default().to_string_lossy();
            let _cleaning = CleaningHere::begin(&Local, &removal.path)?;
            expect_no_push(&target.located.home_of(&key)?)?;
            remove_key(&place, &target.located, &removal)?;
            removed.push(removal);
        }
    } else {
        clean(&place, keep, |removal| {
            cleaning.as_mut().map_or(Ok(()), CleaningHere::say)?;
            expect_no_push(&home)?;
            removed.push(removal.clone());
            Ok(())
        })?;
    }
    Ok(removed)
}

/// Refuses to remove anything beside a push to this folder.
fn expect_no_push(home: &Home) -> Result<(), DatasetError> {
    match push_at(&Local, home.dir())? {
        Some(who) => {
            let (path, holder) = (home.dir().to_owned(), format!("a push to it, {who}"));
            Err(DatasetError::Busy { path, holder })
        }
        None => Ok(()),
    }
}

fn document(args: &CleanArgs, target: &Target, removals: &[Removal]) -> Value {
    let listed = removals.iter().map(|it| {
        json!({
            "what": it.what.name(),
            "path": it.path.display().to_string(),
            "bytes": it.n_bytes,
        })
    });
    json!({
        "version": REPORT_VERSION,
        "dataset": target.home.dir().display().to_string(),
        "removed": args.yes,
        "bytes": removals.iter().map(|it| it.n_bytes).sum::<u64>(),
        "leftovers": listed.collect::<Value>(),
    })
}

fn text(args: &CleanArgs, target: &Target, removals: &[Removal]) -> String {
    let mut text = format!("{:<11}{}\n", "dataset", target.home.dir().display());
    for it in removals {
        let path = it.path.strip_prefix(target.located.name_dir()).unwrap_or(&it.path);
        let bytes = HumanBytes(it.n_bytes).to_string();
        writeln!(text, "{:<11}{bytes:>11}  {}", it.what.name(), path.display()).ok();
    }
    let n_bytes = HumanBytes(removals.iter().map(|it| it.n_bytes).sum());
    let n = counted(removals.len() as u64, "thing");
    match (removals.is_empty(), args.yes) {
        (true, _) => writeln!(text, "nothing to remove"),
        (false, true) => writeln!(text, "{:<11}{n}, {n_bytes}", "removed"),
        (false, false) => writeln!(text, "{:<11}{n}, {n_bytes}: --yes does", "would go"),
    }
    .ok();
    text
}
