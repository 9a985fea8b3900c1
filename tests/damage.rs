//! Bytes of a sealed shard that were changed: `verify` names file and block, readers never panic.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "tests count small things"
)]

mod model;
mod shards;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arrow_array::builder::{FixedSizeListBuilder, Int16Builder};
use arrow_array::{RecordBatch, StringArray};
use model::{every_kind_batch, every_kind_schema};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rowmill::schema::RowSchema;
use rowmill::shard::{Finding, FindingKind, Key, ReadError, Shard, layout, verify_shard};
use rowmill::storage::{Memory, Overlap, Storage};
use shards::Rows;

const BLOCK: usize = layout::BLOCK_BYTES as usize;

/// A sealed shard, and all it holds.
struct Whole {
    memory: Memory,
    folder: PathBuf,
    files: Vec<(String, Vec<u8>)>,
    /// The bytes of each field's rows, absent ones as `None`.
    rows: Vec<Vec<Option<Vec<u8>>>>,
    schema: RowSchema,
    key: String,
}

impl Whole {
    fn of(rows: &Rows, key: &str) -> Self {
        let memory = Memory::new(Overlap::Now);
        let sealed = rows.write(Arc::new(memory.clone()), Path::new("/data"));
        let folder = sealed[0].path().to_path_buf();
        let files = memory.snapshot(&folder).into_iter();
        let files = files.map(|(name, bytes)| (name.to_str().unwrap().to_owned(), bytes)).collect();
        let shard = Shard::open(Arc::new(memory.clone()), &folder).unwrap();
        let rows = (0..shard.schema().fields().len()).map(|i| values(&shard, i).unwrap()).collect();
        let (schema, key) = (shard.schema().as_ref().clone(), key.to_owned());
        Self { memory, folder, files, rows, schema, key }
    }

    /// Checks what becomes of the shard when one file has other bytes. `changed` are the places of
    /// bytes that were changed, unless the file has another length.
    fn check(&self, name: &str, bytes: &[u8], changed: &[usize]) {
        let sealed = &self.files.iter().find(|(other, _)| other == name).unwrap().1;
        if bytes == sealed {
            return;
        }
        let memory = self.memory.after_kill();
        memory.remove_file(&self.folder.join(name)).unwrap();
        memory.write_atomic(&self.folder.join(name), bytes).unwrap();
        let storage: Arc<dyn Storage> = Arc::new(memory);
        let findings = verify_shard(&storage, &self.folder).unwrap_err();
        self.check_findings(name, &findings, sealed.len(), bytes.len(), changed);
        self.check_reader(storage, name);
    }

    fn check_findings(
        &self,
        name: &str,
        findings: &[Finding],
        sealed_len: usize,
        len: usize,
        changed: &[usize],
    ) {
        let path = self.folder.join(name);
        assert!(findings.iter().all(|finding| finding.path == path), "{name}: {findings:?}");
        if len != sealed_len {
            // Sizes of field files are known; of others, that they are not what they were.
            let other = |f: &Finding| matches!(f.kind, FindingKind::Size { .. });
            assert!(findings.iter().any(|f| other(f) || f.kind == FindingKind::Changed));
            return;
        }
        let mut blocks: Vec<u64> = changed.iter().map(|at| (at / BLOCK) as u64).collect();
        blocks.dedup();
        let found: Vec<u64> =
            findings.iter().map(|finding| finding.block.as_ref().unwrap().index).collect();
        assert_eq!(found, blocks, "{name}: {findings:?}");
        for finding in findings {
            let block = finding.block.as_ref().unwrap();
            let start = block.index as usize * BLOCK;
            let want = start as u64..(start + BLOCK).min(sealed_len) as u64;
            assert_eq!((&finding.kind, &block.bytes), (&FindingKind::Changed, &want));
            assert_eq!(block.n_blocks, sealed_len.div_ceil(BLOCK) as u64);
        }
    }

    /// Reads everything in every way. Fields that do not use the file have their values; nothing
    /// panics.
    fn check_reader(&self, storage: Arc<dyn Storage>, name: &str) {
        let shard = match Shard::open(storage, &self.folder) {
            Ok(shard) => shard,
            Err(error) => {
                let guarded = [layout::COMPLETE, layout::SUMS, layout::SCHEMA];
                assert!(guarded.contains(&name), "{name}: {error}");
                return;
            }
        };
        if shard.n_rows() != self.rows[0].len() as u64 {
            assert_eq!(name, layout::COMPLETE);
            return;
        }
        for (i, field) in self.schema.fields().iter().enumerate() {
            let read = values(&shard, i);
            let uses = |file: &str| field.files().iter().any(|other| other.name == file);
            if !uses(name) {
                assert!(read.unwrap() == self.rows[i], "{name}: {}", field.name);
            }
            let Ok(reader) = shard.field_at(i) else { continue };
            for row in 0..shard.n_rows() {
                // What comes of these is an error that names the file, or whatever the bytes say.
                let asked = [
                    reader.dims(row).map(drop),
                    reader.entries(row).map(drop),
                    reader.code(row).map(drop),
                    reader.category(row).map(drop),
                    reader.column(row..row + 1).map(drop),
                ];
                asked.into_iter().filter_map(Result::err).for_each(|error| check_error(&error));
            }
            reader.column(0..shard.n_rows()).err().iter().for_each(check_error);
        }
        shard.record_batch(0..shard.n_rows()).err().iter().for_each(check_error);
        shard.provenance().err().iter().for_each(check_error);
        shard.find(Key::Text(&self.key)).err().iter().for_each(check_error);
    }
}

/// An error of the reader says where, and what to do unless the question was wrong.
fn check_error(error: &ReadError) {
    let text = error.to_string();
    let asked = matches!(error, ReadError::OtherKind { .. } | ReadError::NoKey(_));
    assert!(asked || (text.contains("/data/") && error.hint().is_some()), "{error:?}");
}

fn values(shard: &Shard, field: usize) -> Result<Vec<Option<Vec<u8>>>, ReadError> {
    let reader = shard.field_at(field)?;
    let row = |row| Ok(reader.value(row)?.map(<[u8]>::to_vec));
    (0..shard.n_rows()).map(row).collect()
}

/// Rows of every kind, in small files.
static EVERY_KIND: LazyLock<Whole> = LazyLock::new(|| {
    let rows = Rows::new(every_kind_schema(), vec![every_kind_batch(40, 9)]);
    Whole::of(&rows, "row 3 of 9")
});

/// Fixed rows and text, in files of several blocks.
static LARGE: LazyLock<Whole> = LazyLock::new(|| {
    let mut signal = FixedSizeListBuilder::new(Int16Builder::new(), 70_000);
    for row in 0..20_i32 {
        (0..70_000).for_each(|i| signal.values().append_value((i * 31 + row) as i16));
        signal.append(true);
    }
    let text = StringArray::from_iter_values((0..20).map(|i| format!("{i} ").repeat(60_000)));
    let batch = RecordBatch::try_from_iter([
        ("signal", Arc::new(signal.finish()) as _),
        ("text", Arc::new(text) as _),
    ]);
    let batch = batch.unwrap();
    let schema = RowSchema::infer(batch.schema_ref(), &[].into(), None).unwrap();
    Whole::of(&Rows::new(schema, vec![batch]), "")
});

/// What is done to a file: places are fractions of its length.
#[derive(Debug, Clone)]
enum Harm {
    Flip(f64, u8),
    Cut(f64),
    Grow(u8),
    Swap(f64, f64, usize),
    Overwrite(f64, Vec<u8>),
}

fn harm() -> impl Strategy<Value = Harm> {
    let at = || 0.0..1.0_f64;
    let bytes = prop::sample::select(vec![vec![0xff; 8], vec![0; 8], vec![0x7f; 4], vec![2]]);
    prop_oneof![
        4 => (at(), 0..8_u8).prop_map(|(at, bit)| Harm::Flip(at, 1 << bit)),
        1 => at().prop_map(Harm::Cut),
        1 => (1..20_u8).prop_map(Harm::Grow),
        2 => (at(), at(), 1..9_usize).prop_map(|(a, b, n)| Harm::Swap(a, b, n)),
        3 => (at(), bytes).prop_map(|(at, bytes)| Harm::Overwrite(at, bytes)),
    ]
}

impl Harm {
    fn apply(&self, sealed: &[u8]) -> Vec<u8> {
        let mut bytes = sealed.to_vec();
        let place = |at: f64| (at * sealed.len() as f64) as usize;
        match self {
            Self::Flip(at, bit) => {
                bytes.iter_mut().skip(place(*at)).take(1).for_each(|b| *b ^= bit);
            }
            Self::Cut(at) => bytes.truncate(place(*at)),
            Self::Grow(n) => bytes.extend(std::iter::repeat_n(*n, usize::from(*n))),
            Self::Swap(a, b, n) => {
                let (a, b) = (place(*a), place(*b));
                for i in 0..*n {
                    if a.max(b) + i < bytes.len() {
                        bytes.swap(a + i, b + i);
                    }
                }
            }
            Self::Overwrite(at, with) => {
                // At a multiple of its length, where numbers are.
                let at = place(*at) / with.len() * with.len();
                bytes.iter_mut().skip(at).zip(with).for_each(|(byte, with)| *byte = *with);
            }
        }
        bytes
    }
}

fn check(whole: &Whole, file: f64, harm: &Harm) {
    let (name, sealed) = &whole.files[(file * whole.files.len() as f64) as usize];
    let bytes = harm.apply(sealed);
    let changed: Vec<usize> = sealed
        .iter()
        .zip(&bytes)
        .enumerate()
        .filter_map(|(at, (old, new))| (old != new).then_some(at))
        .collect();
    whole.check(name, &bytes, &changed);
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(2),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(160))]

    #[test]
    fn harm_to_any_file_is_found_and_survived(file in 0.0..1.0_f64, harm in harm()) {
        check(&EVERY_KIND, file, &harm);
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn harm_to_large_files_is_found_in_its_block(file in 0.0..1.0_f64, harm in harm()) {
        check(&LARGE, file, &harm);
    }
}

#[test]
fn every_file_of_a_shard_can_lose_its_ends() {
    for (name, sealed) in &EVERY_KIND.files {
        for bytes in [&sealed[..0], &sealed[..sealed.len().saturating_sub(1)]] {
            EVERY_KIND.check(name, bytes, &[]);
        }
    }
}

#[test]
fn every_file_of_a_shard_can_vanish() {
    for (name, _) in &EVERY_KIND.files {
        let memory = EVERY_KIND.memory.after_kill();
        memory.remove_file(&EVERY_KIND.folder.join(name)).unwrap();
        let storage: Arc<dyn Storage> = Arc::new(memory);
        let findings = verify_shard(&storage, &EVERY_KIND.folder).unwrap_err();
        let (path, kind) = match name.as_str() {
            layout::COMPLETE => (EVERY_KIND.folder.clone(), FindingKind::NotSealed),
            name => (EVERY_KIND.folder.join(name), FindingKind::Missing),
        };
        assert_eq!(findings, [Finding { path, block: None, kind }]);
        if name != layout::COMPLETE {
            EVERY_KIND.check_reader(storage, name);
        }
    }
}
