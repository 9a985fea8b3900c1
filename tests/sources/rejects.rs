//! Bad inputs of every source, as errors and as rejects.

use std::sync::Arc;

use rowmill::batch::{Outcome, Restart};
use rowmill::sources::{BatchLimits, OnError, Part, Source, SourceError};
use serde_json::{Value, json};

use super::{LIMITS, folder, part_of, source};

/// What becomes of each source row, `"0:3"` for row 3 of input 0 or `"0:3 code message"`, and where
/// each batch begins in that list.
type Trace = (Vec<String>, Vec<(usize, Restart)>);

fn trace(
    source: &dyn Source,
    part: &Arc<Part>,
    limits: BatchLimits,
    restart: &Restart,
) -> Result<Trace, SourceError> {
    let schema = source.schema(part.inputs.first().map(|read| &read.input))?;
    let mut reader = source.open(part, &schema, limits, restart)?;
    let (mut trace, mut restarts) = (Vec::new(), Vec::new());
    while let Some(batch) = reader.next()? {
        restarts.push((trace.len(), batch.restart.clone()));
        let mut events = batch.events.iter().peekable();
        for row in 0..=batch.provenance.n_rows() {
            while let Some(event) = events.next_if(|event| event.before_row == row) {
                assert!(event.stage == 0 && event.path.is_empty());
                let Outcome::Rejected { code, message } = &event.outcome else {
                    panic!("{event:?}")
                };
                trace.push(format!("{}:{} {code} {message}", event.input, event.source_row));
            }
            if let Some(at) = batch.provenance.position(row) {
                trace.push(format!("{}:{}", at.input, at.source_row));
            }
        }
        assert_eq!(events.next(), None, "events are in their places");
        let n = trace.len() - restarts.last().unwrap().0;
        assert!((1..=limits.rows).contains(&n), "a reject counts as a row: {n}");
        assert_eq!(batch.rows.num_rows() as u64, batch.provenance.n_rows());
    }
    reader.digests()?;
    Ok((trace, restarts))
}

struct BadInput {
    name: &'static str,
    kind: &'static str,
    settings: Value,
    files: &'static [(&'static str, &'static [u8])],
    error: &'static str,
    trace: &'static [&'static str],
}

fn bad_inputs() -> Vec<BadInput> {
    vec![
        BadInput {
            name: "text that is none",
            kind: "files",
            settings: json!({"content": "text"}),
            files: &[("a", b"a"), ("b", b"b\xff"), ("c", b""), ("d", b"\xfe")],
            error: "`b`, row 0: not UTF-8 from byte 1 on",
            trace: &[
                "0:0",
                "1:0 not_utf8 not UTF-8 from byte 1 on",
                "2:0",
                "3:0 not_utf8 not UTF-8 from byte 0 on",
            ],
        },
        BadInput {
            name: "files that are too large",
            kind: "files",
            settings: json!({}),
            files: &[("a", &[0; 99]), ("b", b"1"), ("c", &[0; 99]), ("d", &[0; 99])],
            error: "`a`, row 0: the row has 109 bytes, more than `max_row_bytes` (100) allows",
            trace: &[
                "0:0 row_too_large the row has 109 bytes, more than `max_row_bytes` (100) allows",
                "1:0",
                "2:0 row_too_large the row has 109 bytes, more than `max_row_bytes` (100) allows",
                "3:0 row_too_large the row has 109 bytes, more than `max_row_bytes` (100) allows",
            ],
        },
        BadInput {
            name: "a sibling that is no text",
            kind: "files",
            settings: json!({"content": "none", "sibling": "LIC"}),
            files: &[
                ("a", b"1"),
                ("x/LIC", b"\xff"),
                ("x/a", b"1"),
                ("y/LIC", b"free"),
                ("y/a", b""),
            ],
            error: "`x/LIC`, row 0, field `sibling`: not UTF-8 from byte 0 on",
            trace: &["0:0", "1:0 not_utf8 field `sibling`: not UTF-8 from byte 0 on", "2:0"],
        },
        BadInput {
            name: "a record among those that types are inferred from",
            kind: "csv",
            settings: json!({}),
            files: &[("a", b"x,y\n1,2\n3\n4,5,6\n7,8\n"), ("b", b"x,y\n9,10\n")],
            error: "`a`, line 3, row 1: 1 fields for 2 columns",
            trace: &[
                "0:0",
                "0:1 field_count 1 fields for 2 columns",
                "0:2 field_count 3 fields for 2 columns",
                "0:3",
                "1:0",
            ],
        },
        BadInput {
            name: "a quote that is not closed, where types are inferred",
            kind: "csv",
            settings: json!({}),
            files: &[("a", b"x,y\n1,2\n3,\"4\n5,6\n"), ("b", b"x,y\n9,10\n")],
            error: "`a`, line 3, row 1: a quote is not closed before the end",
            trace: &["0:0", "0:1 unclosed_quote a quote is not closed before the end", "1:0"],
        },
        BadInput {
            name: "a line among those that types are inferred from",
            kind: "jsonl",
            settings: json!({}),
            files: &[("a", b"{\"x\": 1}\n{\"x\": 2\n[3]\n{\"x\": 4}\n"), ("b", b"{\"x\": 5}")],
            error: "`a`, line 2, row 1: the JSON ends too early, at column 7",
            trace: &[
                "0:0",
                "0:1 not_json the JSON ends too early, at column 7",
                "0:2 not_json the line is no object",
                "0:3",
                "1:0",
            ],
        },
    ]
}

#[test]
fn a_bad_row_is_an_error_or_a_reject_in_its_place() {
    for bad in bad_inputs() {
        let name = bad.name;
        let root = folder(bad.files);
        let source = source(bad.kind, root.path(), &["**/[a-k]*"], bad.settings);
        let part = part_of(&*source, &source.list().unwrap());
        let start = Restart::default();
        let limits = BatchLimits { row_bytes: 100, ..LIMITS };
        let error = trace(&*source, &part, limits, &start).unwrap_err();
        assert_eq!(error.to_string(), bad.error, "{name}");
        assert!(error.hint().is_some(), "{name}");
        let limits = BatchLimits { on_error: OnError::Quarantine, ..limits };
        let (whole, _) = trace(&*source, &part, limits, &start).unwrap();
        assert_eq!(whole, bad.trace, "{name}");
        for rows in [1, 2, 3] {
            let limits = BatchLimits { rows, ..limits };
            let (again, restarts) = trace(&*source, &part, limits, &start).unwrap();
            assert_eq!(again, whole, "{name}, {rows} rows in a batch");
            for (at, restart) in restarts {
                let (rest, _) = trace(&*source, &part, limits, &restart).unwrap();
                assert_eq!(rest, whole[at..], "{name}, from {restart:?}");
            }
        }
    }
}
