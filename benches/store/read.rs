//! Warm reading: random rows against the same rows copied out of plain mappings, and in NumPy.

use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use memmap2::Mmap;
use rowmill::dataset::Dataset;
use rowmill::schema::{Field, Kind};

use crate::machine::table::{Figure, Target};
use crate::machine::{Numbers, Pair, Result, compare};
use crate::shapes::Shape;

/// Rows of a batch, as training loops ask for them.
const BATCH_ROWS: usize = 256;
/// Bytes that are read in a round, if that is not more than 1,000 batches.
const ROUND_BYTES: u64 = 4 << 30;

/// Reads random rows of a dataset of this shape: field by field, row by row, and field by field
/// beside NumPy. Interned fields are left out: who reads them wants their codes.
pub(crate) fn measure(
    shape: &Shape,
    dataset: &Dataset,
    (quick, rounds): (bool, usize),
) -> Result<Vec<Figure>> {
    let fields = shape.schema.fields().iter().filter(|field| field.kind != Kind::Interned);
    let fields: Vec<_> = fields.cloned().collect();
    let index = |field: &Field| shape.schema.index_of(&field.name).ok_or("no such field");
    let indices: Vec<_> = fields.iter().map(index).collect::<Result<_, _>>()?;
    let plain = Plain::open(dataset, &fields)?;
    let n_batches =
        usize::try_from(ROUND_BYTES / shape.schema.fixed_row_bytes().max(1))? / BATCH_ROWS;
    let n_rows = n_batches.min(if quick { 200 } else { 1000 }) * BATCH_ROWS;
    let rows = random_rows(n_rows, dataset.n_rows());
    // Without a library: shard and row are known, what is left is the copy.
    let places: Vec<_> = rows.iter().map(|row| dataset.locate(*row)).collect::<Result<_, _>>()?;

    let (mut bytes, mut plain_bytes) = (Buffers::default(), Vec::new());
    let gather = compare(
        rounds,
        || each(&rows, |rows| bytes.gather(dataset, &fields, rows)),
        || {
            each(&places, |rows| {
                plain.by_field(rows, &mut plain_bytes);
                Ok(())
            })
        },
    )?;
    let by_row = compare(
        rounds,
        || each(&rows, |rows| bytes.by_row(dataset, &indices, rows)),
        || {
            each(&places, |rows| {
                plain.by_row(rows, &mut plain_bytes);
                Ok(())
            })
        },
    )?;
    // Asking for each value of a row by itself costs more than copying a few bytes.
    let target = Target::Ratio(0.9);
    let large = if shape.schema.fixed_row_bytes() >= 2048 { target } else { Target::Open };
    let figure = |what, against, pair: Pair, target| {
        let amount = (n_rows as f64 / 1e3, "k rows/s");
        Figure::rate((shape.name, what), amount, against, pair, target)
    };
    let mut figures = vec![
        figure("read 256 random rows, gathered", "plain mmap", gather, target),
        figure("read 256 random rows, one by one", "plain mmap", by_row, large),
    ];
    if fields.iter().any(|field| field.kind == Kind::Fixed) {
        let fixed: Vec<_> = fields.into_iter().filter(|f| f.kind == Kind::Fixed).collect();
        let rows = random_rows(n_rows, dataset.rows_of(0).end);
        let beside = compare(
            rounds,
            || each(&rows, |rows| bytes.gather(dataset, &fixed, rows)),
            || numpy(dataset.shard(0)?.path(), &fixed, n_rows),
        )?;
        figures.push(figure("gather of fixed fields, one shard", "NumPy", beside, target));
    }
    Ok(figures)
}

fn random_rows(n: usize, below: u64) -> Vec<u64> {
    let mut numbers = Numbers(21);
    (0..n).map(|_| numbers.below(below)).collect()
}

/// The time that it takes to do this for each batch of rows.
fn each<T>(rows: &[T], mut act: impl FnMut(&[T]) -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    rows.chunks(BATCH_ROWS).try_for_each(&mut act)?;
    Ok(began.elapsed())
}

/// Memory that rows are read into, used again for each batch.
#[derive(Debug, Default)]
struct Buffers {
    bytes: Vec<u8>,
    offsets: Vec<i64>,
}

impl Buffers {
    fn gather(&mut self, dataset: &Dataset, fields: &[Field], rows: &[u64]) -> Result<()> {
        let selection = dataset.select(rows)?;
        for field in fields {
            if field.kind == Kind::Fixed {
                let n = rows.len() * field.unit_bytes();
                if self.bytes.len() < n {
                    self.bytes.resize(n, 0);
                }
                selection.gather(&field.name, &mut self.bytes[..n])?;
            } else {
                selection.gather_ragged(&field.name, &mut self.bytes, &mut self.offsets)?;
            }
            black_box(&self.bytes);
        }
        Ok(())
    }

    fn by_row(&mut self, dataset: &Dataset, fields: &[usize], rows: &[u64]) -> Result<()> {
        self.bytes.clear();
        for row in rows {
            let (shard, row) = dataset.row(*row)?;
            for field in fields {
                self.bytes.extend_from_slice(shard.field_at(*field)?.row(row)?);
            }
        }
        black_box(&self.bytes);
        Ok(())
    }
}

/// The fields of each shard, as somebody without a library would map them.
struct Plain {
    shards: Vec<Vec<Mapped>>,
}

struct Mapped {
    values: Mmap,
    /// Bytes of a row (fixed) or of an entry.
    unit: usize,
    offsets: Option<Mmap>,
}

impl Plain {
    fn open(dataset: &Dataset, fields: &[Field]) -> Result<Self> {
        let shards = dataset.shards().map(|shard| {
            let dir = shard?.path();
            fields.iter().map(|field| Mapped::open(dir, field)).collect()
        });
        Ok(Self { shards: shards.collect::<Result<_>>()? })
    }

    fn by_field(&self, rows: &[(usize, u64)], out: &mut Vec<u8>) {
        for field in 0..self.shards[0].len() {
            out.clear();
            for (shard, row) in rows {
                out.extend_from_slice(self.shards[*shard][field].row(*row));
            }
            black_box(&*out);
        }
    }

    fn by_row(&self, rows: &[(usize, u64)], out: &mut Vec<u8>) {
        out.clear();
        for (shard, row) in rows {
            for field in &self.shards[*shard] {
                out.extend_from_slice(field.row(*row));
            }
        }
        black_box(&*out);
    }
}

impl Mapped {
    fn open(dir: &Path, field: &Field) -> Result<Self> {
        let open = |name: String| -> Result<Mmap> {
            let file = File::open(dir.join(name))?;
            #[expect(unsafe_code, reason = "a mapping cannot be had without it")]
            // SAFETY: the shard is sealed: nobody writes its files while the bench runs.
            let mapped = unsafe { Mmap::map(&file)? };
            Ok(mapped)
        };
        let offsets = field.axis.as_ref().map(|axis| open(format!("{axis}.offsets.bin")));
        let values = open(format!("{}.bin", field.stem))?;
        Ok(Self { values, unit: field.unit_bytes(), offsets: offsets.transpose()? })
    }

    fn row(&self, row: u64) -> &[u8] {
        let row = row as usize;
        let Some(offsets) = &self.offsets else {
            return &self.values[row * self.unit..(row + 1) * self.unit];
        };
        let (offsets, _) = offsets.as_chunks::<8>();
        let at = |row: usize| i64::from_le_bytes(offsets[row]) as usize * self.unit;
        &self.values[at(row)..at(row + 1)]
    }
}

/// The time that NumPy takes to read random rows of these fields.
fn numpy(shard: &Path, fields: &[Field], n_rows: usize) -> Result<Duration> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/store/gather.py");
    let mut python = Command::new("python3");
    // Nothing here multiplies matrices: its threads would only stand in the way.
    python.env("OPENBLAS_NUM_THREADS", "1");
    python.arg("-B").arg(script).args([n_rows.to_string(), BATCH_ROWS.to_string()]);
    for field in fields {
        python.arg(shard.join(format!("{}.bin", field.stem))).arg(field.unit_bytes().to_string());
    }
    let output = python.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(Duration::from_secs_f64(String::from_utf8(output.stdout)?.trim().parse()?))
}
