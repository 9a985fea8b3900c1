//! What holds for every source.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use rowmill::batch::{Position, Restart};
use rowmill::sources::{
    BatchLimits, BatchReader, InputDigest, InputRange, OnError, Part, Source, SourceError,
};

use super::{cases, part_of};

/// A source over inputs.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) source: Box<dyn Source>,
    pub(crate) root: PathBuf,
    /// The folder, where it was made here and goes at the end.
    pub(crate) made: Option<tempfile::TempDir>,
}

/// What reading a part gives.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) rows: RecordBatch,
    pub(crate) positions: Vec<Position>,
    /// Where each batch begins, and its restart.
    pub(crate) restarts: Vec<(usize, Restart)>,
    pub(crate) digests: Vec<InputDigest>,
}

pub(crate) const LIMITS: BatchLimits =
    BatchLimits { rows: 1000, bytes: 1 << 20, row_bytes: 16 << 20, on_error: OnError::Fail };

pub(crate) fn read(
    source: &dyn Source,
    part: &Arc<Part>,
    schema: &SchemaRef,
    limits: BatchLimits,
    restart: &Restart,
) -> Result<Reading, SourceError> {
    let mut reader = source.open(part, schema, limits, restart)?;
    let (mut batches, mut positions, mut restarts) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(batch) = reader.next()? {
        let n_rows = batch.rows.num_rows();
        assert!((1..=limits.rows).contains(&n_rows), "{n_rows} rows in a batch");
        assert_eq!(batch.provenance.n_rows(), n_rows as u64);
        let bytes: usize = batch.rows.columns().iter().map(|c| c.get_buffer_memory_size()).sum();
        // Builders double; the parts of a row that have a fixed width come on top, and what buffers are
        // rounded up to.
        let n_columns = batch.rows.num_columns();
        let about = 2 * (limits.bytes + n_rows * 64) + 8192 + 256 * n_columns;
        assert!(n_rows == 1 || bytes <= about, "{bytes} bytes in a batch of {n_rows} rows");
        restarts.push((positions.len(), batch.restart));
        let position = |row| batch.provenance.position(row).unwrap();
        positions.extend((0..n_rows as u64).map(position));
        batches.push(batch.rows);
    }
    let rows = concat_batches(schema, &batches).unwrap();
    assert!(positions.is_sorted(), "positions go back");
    Ok(Reading { rows, positions, restarts, digests: reader.digests()? })
}

fn all_cases() -> impl Iterator<Item = Case> {
    cases().into_values().flatten()
}

#[test]
fn any_batch_size_gives_the_same_rows() {
    for case in all_cases() {
        let inputs = case.source.list().unwrap();
        assert!(!inputs.is_empty(), "{}", case.name);
        assert!(inputs.is_sorted_by(|a, b| a.path < b.path), "{}", case.name);
        let schema = case.source.schema(inputs.first()).unwrap();
        let part = part_of(&*case.source, &inputs);
        let start = Restart::default();
        let want = read(&*case.source, &part, &schema, LIMITS, &start).unwrap();
        for (rows, bytes) in [(1, 1), (1, 1 << 20), (7, 4096), (100_000, 300), (100_000, 1 << 24)] {
            let limits = BatchLimits { rows, bytes, ..LIMITS };
            let got = read(&*case.source, &part, &schema, limits, &start).unwrap();
            assert_eq!(got.rows, want.rows, "{} {limits:?}", case.name);
            assert_eq!(got.positions, want.positions, "{} {limits:?}", case.name);
            assert_eq!(got.digests, want.digests, "{} {limits:?}", case.name);
        }
    }
}

#[test]
fn every_restart_gives_the_rows_from_there_on() {
    for case in all_cases() {
        let inputs = case.source.list().unwrap();
        let schema = case.source.schema(inputs.first()).unwrap();
        let part = part_of(&*case.source, &inputs);
        for rows in [1, 5] {
            let limits = BatchLimits { rows, ..LIMITS };
            let all = read(&*case.source, &part, &schema, limits, &Restart::default()).unwrap();
            // All of them where there are few, the more widely apart the more there are.
            let step = all.restarts.len().div_ceil(60).max(1);
            for (row, restart) in all.restarts.iter().step_by(step) {
                let name = format!("{} from {restart:?}", case.name);
                assert_eq!(restart.source_row, all.positions[*row].source_row, "{name}");
                let rest = read(&*case.source, &part, &schema, LIMITS, restart).unwrap();
                let n_rows = all.rows.num_rows() - row;
                assert_eq!(rest.rows, all.rows.slice(*row, n_rows), "{name}");
                assert_eq!(rest.positions, all.positions[*row..], "{name}");
                assert_eq!(rest.digests, all.digests, "{name}");
            }
        }
    }
}

#[test]
fn digests_are_those_of_the_files() {
    for case in all_cases() {
        let inputs = case.source.list().unwrap();
        let schema = case.source.schema(inputs.first()).unwrap();
        let part = part_of(&*case.source, &inputs);
        let got = read(&*case.source, &part, &schema, LIMITS, &Restart::default()).unwrap();
        assert_eq!(case.source.digests(&part).unwrap(), got.digests, "{}", case.name);
        let listed: Vec<_> = inputs.iter().chain(&part.side).collect();
        assert_eq!(got.digests.len(), listed.len(), "{}", case.name);
        for (digest, input) in got.digests.iter().zip(listed) {
            let bytes = std::fs::read(case.root.join(&input.path)).unwrap();
            let want = InputDigest {
                path: input.path.clone(),
                size: bytes.len() as u64,
                blake3: blake3::hash(&bytes),
            };
            assert_eq!(*digest, want, "{}", case.name);
        }
    }
}

#[test]
fn cuts_are_record_ends_and_ranges_make_up_the_whole() {
    let all = cases().into_iter();
    for (kind, case) in all.flat_map(|(kind, cases)| cases.into_iter().map(move |c| (kind, c))) {
        let inputs = case.source.list().unwrap();
        let schema = case.source.schema(inputs.first()).unwrap();
        if let Some(input) = inputs.first() {
            for partition_bytes in [1, 16, 100, 4096] {
                let name = format!("{}, {} in {partition_bytes}", case.name, input.path);
                if input.size / partition_bytes > 400 {
                    continue;
                }
                let cuts = case.source.cuts(input, partition_bytes).unwrap();
                assert!(cuts.iter().all(|c| (1..input.size).contains(c)), "{name}: {cuts:?}");
                let whole = part_of(&*case.source, std::slice::from_ref(input));
                let start = Restart::default();
                let want = read(&*case.source, &whole, &schema, LIMITS, &start).unwrap();
                let bytes = std::fs::read(case.root.join(&input.path)).unwrap();
                let mut rows = Vec::new();
                if cuts.is_empty() {
                    continue;
                }
                let starts = [0].into_iter().chain(cuts.iter().copied());
                for (start, end) in starts.zip(cuts.iter().copied().chain([input.size])) {
                    let range = Some(start..end);
                    let inputs = vec![InputRange { input: input.clone(), range }];
                    let side = case.source.side_inputs(std::slice::from_ref(input)).unwrap();
                    let part = Arc::new(Part { inputs, side });
                    let from = Restart::default();
                    let got = read(&*case.source, &part, &schema, LIMITS, &from).unwrap();
                    let first = got.positions.first().copied().unwrap_or_default();
                    assert_eq!(first, Position::default(), "{name}");
                    let cut =
                        &bytes[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()];
                    let end = usize::try_from(end).unwrap();
                    let tail = &bytes[footer_start(kind, &bytes).max(end)..];
                    let want = blake3::hash(&[cut, tail].concat());
                    assert_eq!(got.digests[0].blake3, want, "{name}");
                    for (row, restart) in &got.restarts {
                        let rest = read(&*case.source, &part, &schema, LIMITS, restart).unwrap();
                        let want = got.rows.slice(*row, got.rows.num_rows() - row);
                        assert_eq!(rest.rows, want, "{name} from {restart:?}");
                    }
                    rows.push(got.rows);
                }
                assert_eq!(concat_batches(&schema, &rows).unwrap(), want.rows, "{name}");
            }
        }
    }
}

/// Where what every range of a file depends on begins.
fn footer_start(kind: &str, bytes: &[u8]) -> usize {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let n = bytes.len();
    match kind {
        "parquet" => n - 8 - number(n - 8),
        "arrow" => n - 10 - number(n - 10),
        _ => n,
    }
}

#[test]
fn an_input_that_changed_after_it_was_listed_is_noticed() {
    for case in all_cases() {
        if case.made.is_none() {
            continue;
        }
        let inputs = case.source.list().unwrap();
        let schema = case.source.schema(inputs.first()).unwrap();
        let part = part_of(&*case.source, &inputs);
        for input in inputs.iter().chain(&part.side) {
            let path = case.root.join(&input.path);
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
            let read = read(&*case.source, &part, &schema, LIMITS, &Restart::default());
            let error = read.unwrap_err();
            let name = format!("{}: {error}", case.name);
            assert!(
                matches!(&error, SourceError::Changed { path } if *path == input.path),
                "{name}"
            );
            assert!(error.hint().is_some(), "{name}");
            let error = case.source.digests(&part).unwrap_err();
            assert!(matches!(error, SourceError::Changed { .. }), "{name}");
            file.set_modified(input.modified).unwrap();
        }
        let last = inputs.last().unwrap();
        std::fs::remove_file(case.root.join(&last.path)).unwrap();
        let read = read(&*case.source, &part, &schema, LIMITS, &Restart::default());
        assert!(matches!(read.unwrap_err(), SourceError::Changed { .. }), "{}", case.name);
    }
}

#[test]
fn an_input_that_changes_while_it_is_read_is_noticed() {
    for case in all_cases() {
        if case.made.is_none() {
            continue;
        }
        let inputs = case.source.list().unwrap();
        let schema = case.source.schema(inputs.first()).unwrap();
        let part = part_of(&*case.source, &inputs);
        let limits = BatchLimits { rows: 1, ..LIMITS };
        let mut reader = case.source.open(&part, &schema, limits, &Restart::default()).unwrap();
        reader.next().unwrap().unwrap();
        let last = inputs.last().unwrap();
        let path = case.root.join(&last.path);
        let grown = [std::fs::read(&path).unwrap(), b"\n".to_vec()].concat();
        std::fs::write(&path, grown).unwrap();
        let error = loop {
            match reader.next() {
                Ok(Some(_)) => {}
                Ok(None) => break reader.digests().unwrap_err(),
                Err(e) => break e,
            }
        };
        assert!(matches!(error, SourceError::Changed { .. }), "{}: {error}", case.name);
    }
}

/// What is recorded of an input is what was read of it, also where its size and time are put back.
#[test]
fn an_input_that_is_rewritten_under_its_old_times_is_noticed_or_was_not_read() {
    for case in all_cases() {
        // Rows that hold nothing of an input's bytes are the same whatever these are.
        if case.made.is_none() || case.name == "no content" {
            continue;
        }
        let inputs = case.source.list().unwrap();
        let schema = case.source.schema(inputs.first()).unwrap();
        let part = part_of(&*case.source, &inputs);
        let limits = BatchLimits { rows: 1, ..LIMITS };
        let mut reader = case.source.open(&part, &schema, limits, &Restart::default()).unwrap();
        let Some(first) = reader.next().unwrap() else { continue };
        // A part of the first input: all of it was read where it is hashed as it is read.
        let second = reader.next().unwrap().unwrap_or_else(|| first.clone());
        let input = &part.inputs[first.restart.input as usize].input;
        let rewritten = |reader: &mut dyn BatchReader| {
            rewrite(&case.root.join(&input.path), input.modified);
            let digests = loop {
                match reader.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => break reader.digests(),
                    Err(e) => break Err(e),
                }
            };
            let (now, at) = (case.source.digests(&part).unwrap(), first.restart.input as usize);
            assert!(digests.is_err() || digests.unwrap()[at] != now[at], "{}", case.name);
        };
        rewritten(&mut *reader);
        // Gone on from a later row of that input, the digest is of bytes that are read again.
        let mut reader = case.source.open(&part, &schema, limits, &second.restart).unwrap();
        let next = reader.next().ok().flatten().and_then(|batch| batch.provenance.position(0));
        let is_within = next.is_some_and(|next| next.input == first.restart.input);
        if is_within && second.restart.source_row > 0 {
            rewritten(&mut *reader);
        }
    }
}

/// Changes a byte of a file, and puts its time of modification back.
fn rewrite(path: &Path, modified: SystemTime) {
    use std::os::unix::fs::MetadataExt;
    let changed = || {
        let found = std::fs::metadata(path).unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    let before = changed();
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.len().min(6) - 1;
    bytes[at] ^= 1;
    // The clock of file times goes in steps.
    while changed() == before {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        file.set_modified(modified).unwrap();
    }
}

#[test]
fn corrupted_inputs_give_rows_or_errors_but_no_panic() {
    let mut state = 0x5EED_u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below.max(1)
    };
    for case in all_cases() {
        if case.made.is_none() {
            continue;
        }
        for input in case.source.list().unwrap() {
            let path = case.root.join(&input.path);
            let whole = std::fs::read(&path).unwrap();
            for round in 0..60 {
                let mut bytes = whole.clone();
                for _ in 0..=round % 4 {
                    let at = random(bytes.len());
                    match random(4) {
                        0 => bytes.truncate(at),
                        1 => bytes.insert(at, b"\"\n\r,\0\xff"[random(6)]),
                        _ if bytes.is_empty() => {}
                        2 => bytes[at] = b"\"\n\r,\0\xff"[random(6)],
                        _ => drop(bytes.remove(at)),
                    }
                }
                std::fs::write(&path, &bytes).unwrap();
                let inputs = case.source.list().unwrap();
                let Ok(schema) = case.source.schema(inputs.first()) else { continue };
                let part = part_of(&*case.source, &inputs);
                let read = read(&*case.source, &part, &schema, LIMITS, &Restart::default());
                if let Err(error) = read {
                    let is_said = match &error {
                        SourceError::Invalid { message, .. } => !message.is_empty(),
                        SourceError::Row { bad, .. } => !bad.message.is_empty(),
                        _ => false,
                    };
                    assert!(is_said, "{}, round {round}: {error}", case.name);
                }
            }
            std::fs::write(&path, whole).unwrap();
        }
    }
}

#[test]
fn restarts_that_do_not_fit_are_refused() {
    for case in all_cases() {
        let inputs = case.source.list().unwrap();
        let schema = case.source.schema(inputs.first()).unwrap();
        let part = part_of(&*case.source, &inputs);
        for restart in [
            Restart { input: u32::MAX, ..Restart::default() },
            Restart { cursor: serde_json::json!({"byte": -1}), ..Restart::default() },
            Restart { cursor: serde_json::json!({"byte": u64::MAX}), ..Restart::default() },
            Restart { cursor: serde_json::json!("x"), ..Restart::default() },
            Restart { source_row: 7, ..Restart::default() },
        ] {
            let opened = read(&*case.source, &part, &schema, LIMITS, &restart);
            let error = opened.unwrap_err();
            assert!(error.hint().is_some(), "{} {restart:?}: {error}", case.name);
        }
    }
}
