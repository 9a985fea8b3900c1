//! What asking a process about rows costs, against moving the same bytes through pipes and back.
//!
//!     cargo bench --bench hooks [-- --quick] [--shape 64KiB] [--only rust] [--json]
//!
//! An identity hook answers with the column that it is sent. The raw pipe is a child that copies stdin to
//! stdout, written to by one thread and read by another; both have pipes of 1 MiB. The hooks are this
//! program itself (Arrow's reader and writer in Rust: what is left is Rowmill's own cost), a Python program
//! on `command` and a Python function on `python`; the last two need Python with pyarrow, and are reported
//! as skipped without. Processes are started before anything is measured.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench says what it found, and writes its own inputs"
)]
#![expect(clippy::cast_precision_loss, reason = "rates for people")]

#[allow(dead_code, reason = "the other benches compare with a plain writer")]
#[path = "../machine/mod.rs"]
mod machine;

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::{Array, FixedSizeListArray, RecordBatch, UInt8Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use machine::table::{Figure, Target};
use machine::{Args, Numbers, Result, Scratch, compare};
use rowmill::batch::{Batch, OnError};
use rowmill::config::Registry;
use rowmill::transforms::{
    Emit, Stage, Stopped, Transform, TransformSpec, TransformType, transform_type,
};
use serde_json::{Value, json};

/// Capacity of the pipes, as hooks have it.
const PIPE_BYTES: usize = 1 << 20;
/// Bytes of rows that are moved in a round, and with `--quick`.
const ROUND_BYTES: usize = 256 << 20;
const QUICK_BYTES: usize = 64 << 20;
/// Bytes of a batch, which is what hooks get where nothing else is said.
const BATCH_BYTES: usize = 4 << 20;

const PROGRAM: &str = r#"import sys
import pyarrow as pa
rows = pa.ipc.open_stream(sys.stdin.buffer)
answers = None
for batch in rows:
    answer = pa.record_batch([batch["x"]], names=["y"])
    answers = answers or pa.ipc.new_stream(sys.stdout.buffer, answer.schema)
    answers.write_batch(answer)
    sys.stdout.buffer.flush()
"#;
const FUNCTION: &str = r#"import pyarrow as pa

def identity(batch):
    return pa.record_batch([batch["x"]], names=["y"])
"#;

fn main() -> Result<ExitCode> {
    match std::env::args().nth(1).as_deref() {
        // Hooks are processes of the program that asks them.
        Some("hook-exec") => return Ok(rowmill::cli::main(Registry::BUILT_IN)),
        Some("--copy") => return copy().map(|()| ExitCode::SUCCESS),
        Some("--identity") => return identity().map(|()| ExitCode::SUCCESS),
        _ => {}
    }
    let Some(args) = Args::read()? else { return Ok(ExitCode::SUCCESS) };
    let mut scratch = Scratch::new("hooks")?;
    let folder = scratch.fresh();
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("program.py"), PROGRAM)?;
    std::fs::write(folder.join("functions.py"), FUNCTION)?;
    let has_python =
        Command::new("python3").args(["-c", "import pyarrow, numpy"]).output()?.status.success();
    let mut figures = Vec::new();
    for (name, row_bytes) in [("2KiB", 2 << 10), ("64KiB", 64 << 10), ("1MiB", 1 << 20)] {
        if !args.wants(name) {
            continue;
        }
        for kind in ["rust", "command", "python"].into_iter().filter(|kind| args.measures(kind)) {
            if kind != "rust" && !has_python {
                eprintln!("SKIPPED: {kind}: there is no Python with pyarrow");
                continue;
            }
            eprintln!("{name}, {kind}");
            figures.push(measure(&args, &folder, name, row_bytes, kind)?);
        }
    }
    println!("{}", machine::table::print(&figures, args.json).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// The child of the raw pipe.
fn copy() -> Result<()> {
    let (mut from, mut to) = pipes()?;
    let mut bytes = vec![0; PIPE_BYTES];
    loop {
        match from.read(&mut bytes)? {
            0 => return Ok(()),
            n => to.write_all(&bytes[..n])?,
        }
    }
}

/// Stdin and stdout without the buffers that this process has for them.
fn pipes() -> Result<(File, File)> {
    let from = std::io::stdin().as_fd().try_clone_to_owned()?;
    Ok((from.into(), std::io::stdout().as_fd().try_clone_to_owned()?.into()))
}

/// A hook that answers with the column that it is sent.
fn identity() -> Result<()> {
    let (from, to) = pipes()?;
    let rows = StreamReader::try_new(BufReader::new(from), None)?;
    let kind = rows.schema().field(0).data_type().clone();
    let schema = Arc::new(Schema::new(vec![Field::new("y", kind, false)]));
    let mut answers = StreamWriter::try_new(BufWriter::new(to), &schema)?;
    for batch in rows {
        let columns = batch?.columns().to_vec();
        answers.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
        answers.flush()?;
    }
    Ok(answers.finish()?)
}

fn measure(args: &Args, folder: &Path, name: &str, row_bytes: usize, kind: &str) -> Result<Figure> {
    let bytes = if args.quick { QUICK_BYTES } else { ROUND_BYTES };
    let batch_rows = BATCH_BYTES / row_bytes;
    let batch = rows(row_bytes, batch_rows)?;
    let n_batches = bytes / BATCH_BYTES;
    let hook = hook(folder, kind, row_bytes, batch_rows)?;
    let mut pipe = Pipe::new(batch.rows.column(0).as_fixed_size_list().values())?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let pair = compare(
        args.rounds(),
        || counted(&mut ours, || ask(&*hook, &batch, n_batches)),
        || counted(&mut theirs, || pipe.round_trip(n_batches)),
    )?;
    hook.end()?;
    let gigabytes = (n_batches * BATCH_BYTES) as f64 / 1e9;
    for (what, mut times) in [("the hook", ours), ("the raw pipe", theirs)] {
        times.sort_by(f64::total_cmp);
        let per_gigabyte = times[times.len() / 2] / gigabytes;
        eprintln!("  {what}: {per_gigabyte:.2} s of processor time per GB, both processes");
    }
    Ok(Figure::rate((name, kind), (gigabytes, "GB/s"), "raw pipe", pair, Target::Ratio(0.5)))
}

/// Notes the processor time of what is measured.
fn counted(times: &mut Vec<f64>, work: impl FnOnce() -> Result<Duration>) -> Result<Duration> {
    let before = cpu_seconds();
    let took = work()?;
    times.push(cpu_seconds() - before);
    Ok(took)
}

/// Rows of random bytes, a column `x`.
fn rows(row_bytes: usize, n_rows: usize) -> Result<Batch> {
    let mut numbers = Numbers(row_bytes as u64);
    let words = (0..row_bytes * n_rows / 8).flat_map(|_| numbers.next().to_le_bytes());
    let values = Arc::new(UInt8Array::from_iter_values(words));
    let item = Arc::new(Field::new_list_field(DataType::UInt8, false));
    let column = FixedSizeListArray::try_new(item, i32::try_from(row_bytes)?, values, None)?;
    let rows = RecordBatch::try_from_iter([("x", Arc::new(column) as _)])?;
    Ok(Batch::of_rows(rows, 0))
}

fn hook(
    folder: &Path,
    kind: &str,
    row_bytes: usize,
    batch_rows: usize,
) -> Result<Box<dyn Transform>> {
    let mut settings = json!({
        "id": "identity",
        "params": {},
        "files": [],
        "output": { "y": { "dtype": "uint8", "shape": [row_bytes] } },
        "batch_rows": batch_rows,
        "batch_bytes": BATCH_BYTES,
    });
    let own = std::env::current_exe()?;
    let (name, key, value) = match kind {
        "python" => ("python", "entry", json!("functions:identity")),
        "command" => ("command", "command", json!(["python3", "program.py"])),
        _ => ("command", "command", json!([own, "--identity"])),
    };
    if let Value::Object(settings) = &mut settings {
        settings.insert(key.to_owned(), value);
    }
    let spec = TransformSpec { name: kind.to_owned(), folder: folder.to_owned(), settings };
    let of_kind: &TransformType = transform_type(name).ok_or("there is no such transform")?;
    (of_kind.make)(&spec).map_err(|error| error.to_string().into())
}

/// Sends a batch `n` times, as many at once as the hook is asked about in a run.
fn ask(hook: &dyn Transform, batch: &Batch, n: usize) -> Result<Duration> {
    let at_once = hook.batching().map_or(1, |rule| rule.workers);
    let sent = AtomicUsize::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let asks = (0..at_once).map(|_| {
            scope.spawn(|| -> Result<()> {
                while sent.fetch_add(1, Ordering::Relaxed) < n {
                    let stage = Stage { index: 1, on_error: OnError::Fail };
                    let mut answer = Answer(None);
                    hook.apply(stage, batch.clone(), &mut answer)?;
                    let rows = answer.0.ok_or("there is no answer")?.rows;
                    if rows.num_rows() != batch.rows.num_rows() || rows.num_columns() != 2 {
                        return Err("the answer is another".into());
                    }
                }
                Ok(())
            })
        });
        let asks: Vec<_> = asks.collect();
        asks.into_iter().try_for_each(|ask| ask.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(began.elapsed())
}

struct Answer(Option<Batch>);

impl Emit for Answer {
    fn emit(&mut self, batch: Batch) -> std::result::Result<(), Stopped> {
        self.0 = Some(batch);
        Ok(())
    }

    fn batch_bytes(&self) -> usize {
        BATCH_BYTES
    }

    fn number(&mut self, _: rowmill::batch::Position, _: u64) -> Result<u64, Stopped> {
        Err(Stopped)
    }
}

/// A child that copies what it is written.
struct Pipe {
    child: Child,
    bytes: Vec<u8>,
    read: Vec<u8>,
}

impl Pipe {
    fn new(values: &dyn Array) -> Result<Self> {
        let bytes = values.as_primitive::<arrow_array::types::UInt8Type>().values().to_vec();
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--copy")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        #[cfg(target_os = "linux")]
        {
            rustix::pipe::fcntl_setpipe_size(child.stdin.as_mut().ok_or("no stdin")?, PIPE_BYTES)?;
            rustix::pipe::fcntl_setpipe_size(
                child.stdout.as_mut().ok_or("no stdout")?,
                PIPE_BYTES,
            )?;
        }
        Ok(Self { child, bytes, read: vec![0; PIPE_BYTES] })
    }

    /// Writes the bytes `n` times on one thread and reads them back on another.
    fn round_trip(&mut self, n: usize) -> Result<Duration> {
        let stdin = self.child.stdin.as_mut().ok_or("no stdin")?;
        let stdout = self.child.stdout.as_mut().ok_or("no stdout")?;
        let (bytes, read) = (&self.bytes, &mut self.read);
        let began = Instant::now();
        std::thread::scope(|scope| -> Result<()> {
            let written = scope.spawn(|| (0..n).try_for_each(|_| stdin.write_all(bytes)));
            let mut left = n * bytes.len();
            while left > 0 {
                match stdout.read(read)? {
                    0 => return Err("the child is gone".into()),
                    n => left -= n,
                }
            }
            written.join().map_err(|_| "a thread panicked")?.map_err(Into::into)
        })?;
        Ok(began.elapsed())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Processor time that this process and its children have taken, to a hundredth of a second; 0 where the
/// system does not tell.
fn cpu_seconds() -> f64 {
    let own = std::process::id().to_string();
    let mut ticks = 0.0;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((_, behind)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = behind.split_ascii_whitespace().collect();
        if entry.file_name() == *own || fields.get(1) == Some(&own.as_str()) {
            let times = fields.iter().skip(11).take(2);
            ticks += times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>();
        }
    }
    ticks / 100.0
}
