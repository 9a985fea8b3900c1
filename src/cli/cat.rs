//! `rowmill cat`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use clap::Args;

use super::inspect::dataset_path;
use super::output::{CliError, Console};
use crate::config::Registry;
use crate::dataset::DatasetError;
use crate::pipeline::{PipelineError, REPORT_VERSION, Rows};

/// Bytes that gather before they are printed.
const BUFFER_BYTES: usize = 64 << 10;

/// Arguments of `rowmill cat`.
#[derive(Debug, Args)]
pub struct CatArgs {
    /// A dataset's folder (or the one that holds `current`), a shard's, a definition, or the URL of a
    /// dataset or shard.
    path: PathBuf,
    /// Rows to print, counted from 0: `7`, `10..20` (without 20), `10..`, or several with commas.
    #[arg(long, value_name = "ROWS", default_value = "..")]
    rows: String,
    /// Fields to print, in this order; all of them where none are named.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    columns: Vec<String>,
    /// Print at most this many rows.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print one JSON document that holds the rows, instead of a line each.
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints rows as JSON, one after another.
pub(super) fn execute(
    args: &CatArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    let mut seen = BTreeSet::new();
    if let Some(name) = args.columns.iter().find(|name| !seen.insert(*name)) {
        // A JSON object has each key once.
        return Err(CliError::Usage {
            message: format!("`--columns` names `{name}` twice"),
            hint: Some("name each column once".to_owned()),
        });
    }
    let path = dataset_path(&args.path, registry)?;
    let rows = Rows::open(&path, &args.columns).map_err(CliError::reading)?;
    let wanted = spans(&args.rows, rows.n_rows())?;
    let mut out = Vec::with_capacity(2 * BUFFER_BYTES);
    let (before, between, after): (_, &[u8], &[u8]) = if args.json {
        let path = serde_json::json!(path.display().to_string());
        (format!("{{\"path\":{path},\"rows\":["), b",\n", b"]")
    } else {
        (String::new(), b"\n", b"")
    };
    out.extend_from_slice(before.as_bytes());
    let mut wanted = limited(wanted, args.limit.unwrap_or(u64::MAX));
    let mut is_first = true;
    let mut next = 0;
    while let Some(spans) = wanted.get_mut(next..).filter(|spans| !spans.is_empty()) {
        let spans = spans.get_mut(..rows.together(spans)).unwrap_or_default();
        for (piece, span) in rows.pieces(spans).map_err(CliError::reading)?.iter().zip(spans) {
            for row in 0..piece.n_rows {
                if !std::mem::take(&mut is_first) {
                    out.extend_from_slice(between);
                }
                rows.write(piece, row, &mut out)?;
                if out.len() >= BUFFER_BYTES {
                    if !console.print_some(&out)? {
                        return Ok(());
                    }
                    out.clear();
                }
            }
            span.start = span.start.saturating_add(piece.n_rows as u64);
            // Only one that is read alone can have more to come.
            next += usize::from(span.is_empty());
        }
    }
    out.extend_from_slice(after);
    if args.json {
        out.extend_from_slice(format!(",\"version\":{REPORT_VERSION}}}\n").as_bytes());
    } else if !is_first {
        out.push(b'\n');
    }
    console.print_some(&out).map(drop)
}

/// What `--rows` asks for of `n_rows` rows.
fn spans(asked: &str, n_rows: u64) -> Result<Vec<Range<u64>>, CliError> {
    asked.split(',').map(|one| span(one.trim(), n_rows)).collect()
}

/// The first `left` rows of `spans`, without spans that hold none.
fn limited(spans: Vec<Range<u64>>, mut left: u64) -> Vec<Range<u64>> {
    let limited = spans.into_iter().map(|span| {
        let end = span.end.min(span.start.saturating_add(left));
        left -= end - span.start;
        span.start..end
    });
    limited.filter(|span| !span.is_empty()).collect()
}

fn span(asked: &str, n_rows: u64) -> Result<Range<u64>, CliError> {
    let number = |text: &str, default| match text.trim() {
        "" => Some(default),
        text => text.parse::<u64>().ok(),
    };
    let span = match asked.split_once("..") {
        Some((from, to)) => number(from, 0).zip(number(to, n_rows)).map(|(from, to)| from..to),
        None => asked.parse::<u64>().ok().map(|row| row..row.saturating_add(1)),
    };
    let Some(span) = span.filter(|span| span.start <= span.end) else {
        return Err(CliError::Usage {
            message: format!("`{asked}` names no rows"),
            hint: Some("write `7`, `10..20`, `10..`, or several of these with commas".to_owned()),
        });
    };
    if span.end > n_rows {
        let row = span.end - 1;
        return Err(PipelineError::from(DatasetError::NoRow { row, n_rows }).into());
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_ends_in_the_span_that_reaches_it() {
        let spans = [2..5, 9..9, 7..9, 0..4].to_vec();
        for (left, want) in [
            (u64::MAX, &[2..5, 7..9, 0..4][..]),
            (9, &[2..5, 7..9, 0..4]),
            (6, &[2..5, 7..9, 0..1]),
            (5, &[2..5, 7..9]),
            (4, &[2..5, 7..8]),
            (0, &[]),
        ] {
            assert_eq!(limited(spans.clone(), left), want, "{left}");
        }
    }

    #[test]
    fn rows_are_named_by_number_and_by_range() {
        for (asked, want) in [
            ("..", Some(&[(0, 10)][..])),
            ("3", Some(&[(3, 4)][..])),
            ("2..5, 9,..1", Some(&[(2, 5), (9, 10), (0, 1)][..])),
            ("10..", Some(&[(10, 10)][..])),
            ("5..5", Some(&[(5, 5)][..])),
            ("10", None),
            ("0..11", None),
            ("5..4", None),
            ("a..", None),
            ("1,,2", None),
            ("-1", None),
        ] {
            let found = spans(asked, 10).ok();
            let found: Option<Vec<_>> =
                found.map(|spans| spans.into_iter().map(|it| (it.start, it.end)).collect());
            assert_eq!(found.as_deref(), want, "{asked}");
        }
    }
}
