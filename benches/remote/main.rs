//! What pushing, pulling and building while pushing cost, against plain requests for the same bytes.
//!
//!     cargo bench --bench remote [-- --quick] [--only push|pull|build|memory] [--json]
//!
//! The server is s3s-fs (`cargo install s3s-fs --version 0.14.1 --locked --features binary`, into
//! `target/tools` or anywhere in `PATH`), which checks signatures and keeps objects in memory; it takes a
//! good part of the machine, from both sides alike. The plain loop is the same client: as many requests at
//! once, the same parts, no digest, no journal, no look at what is there; what it gets it writes to files
//! without a sync.
//!
//! A build that pushes is compared with the slower of building and pushing alone, twice: where a hook waits
//! for as long as something else would compute, and the store takes as long as that, so that there is
//! processor time for both; and as fast as the machine can, where server and client take all of it. There,
//! the least time is that in which all cores together do what building and pushing do alone.
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
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use machine::table::{Figure, Target};
use machine::{Args, Numbers, Result, Scratch, compare, remove, timed};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use serde_json::Value;

/// Bytes of the dataset, and with `--quick`.
const BYTES: usize = 1 << 30;
const QUICK_BYTES: usize = 128 << 20;
const ROW_BYTES: usize = 64 << 10;
/// As `rowmill push` and `rowmill pull` have them where nothing else is said.
const PUSHED_AT_ONCE: usize = 8;
const PUSHED_BYTES: usize = 16 << 20;
const PULLED_AT_ONCE: usize = 16;
const PULLED_BYTES: u64 = 8 << 20;

const DEFINITION: &str = r#"version = 1
name = "rows"
description = "Rows of random bytes"

[sources.rows]
type = "npy"
root = "in"
path = "*.npy"

[dataset]
max_row_bytes = "128KiB"
shard_bytes = SHARD_BYTES

[run]
out = "data"
memory = "1GiB"
"#;

/// Between source and dataset of a build that computes elsewhere.
const WAITING: &str = r#"
[transforms.wait]
type = "python"
entry = "waiting:waits"
params = { seconds = SECONDS }
output.waited = { dtype = "uint8" }
"#;

const WAITS: &str = r#"import time
import numpy as np


def waits(batch, seconds):
    time.sleep(seconds * len(batch))
    return {"waited": np.zeros(len(batch), "u1")}
"#;

/// For how long it waits, over all rows.
const WAITED_SECONDS: f64 = 15.0;

fn main() -> Result<ExitCode> {
    let Some(args) = Args::read()? else { return Ok(ExitCode::SUCCESS) };
    let Some(binary) = s3s_fs() else {
        eprintln!("SKIPPED: s3s-fs is not installed");
        return Ok(ExitCode::SUCCESS);
    };
    let mut scratch = Scratch::new("remote")?;
    let mut bench = Bench::new(&args, scratch.fresh(), Server::start(&binary)?)?;
    let mut figures = Vec::new();
    if args.measures("push") {
        figures.push(bench.push()?);
    }
    if args.measures("pull") {
        figures.extend(bench.pull()?);
    }
    if args.measures("build") {
        figures.extend(bench.build()?);
    }
    if args.measures("memory") {
        figures.extend(bench.memory()?);
    }
    println!("{}", machine::table::print(&figures, args.json).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// The binary, in `target/tools` or where the shell finds it.
fn s3s_fs() -> Option<PathBuf> {
    let found = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .map(|it| it.join("tools/bin"))
        .into_iter()
        .collect();
    places.extend(std::env::split_paths(&found));
    places.into_iter().map(|dir| dir.join("s3s-fs")).find(|path| path.is_file())
}

/// A server that ends when it is dropped.
struct Server {
    child: Child,
    /// Until it is to end.
    talk: Option<(ChildStdin, BufReader<ChildStdout>)>,
    endpoint: String,
    key: String,
    secret: String,
    n_buckets: u32,
}

impl Server {
    fn start(binary: &Path) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/remote/servers.py");
        let mut child = Command::new("python3")
            .arg(script)
            .arg("s3s-fs")
            .arg(binary)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().ok_or("no stdin")?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line)?;
        let text = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            endpoint: format!("http://127.0.0.1:{}", said["port"]),
            key: text("key"),
            secret: text("secret"),
            talk: Some((stdin, stdout)),
            child,
            n_buckets: 0,
        })
    }

    /// The name of a new bucket.
    fn bucket(&mut self) -> Result<String> {
        self.n_buckets += 1;
        let name = format!("bucket-{}", self.n_buckets);
        let (stdin, stdout) = self.talk.as_mut().ok_or("the server has ended")?;
        writeln!(stdin, "{name}")?;
        stdout.read_line(&mut String::new())?;
        Ok(name)
    }

    fn store(&self, bucket: &str) -> Result<Arc<AmazonS3>> {
        let store = AmazonS3Builder::new()
            .with_endpoint(&self.endpoint)
            .with_bucket_name(bucket)
            .with_region("us-east-1")
            .with_access_key_id(&self.key)
            .with_secret_access_key(&self.secret)
            .with_allow_http(true);
        Ok(Arc::new(store.build()?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It removes what it keeps, and ends, when its input does.
        self.talk = None;
        self.child.wait().ok();
    }
}

/// What every measurement needs.
struct Bench {
    rounds: usize,
    dir: PathBuf,
    server: Server,
    runtime: tokio::runtime::Runtime,
    /// The dataset's folder.
    dataset: PathBuf,
    /// Its files that are pushed, by name, with their bytes.
    files: Vec<(String, u64)>,
    bytes: u64,
}

impl Bench {
    fn new(args: &Args, dir: PathBuf, server: Server) -> Result<Self> {
        let bytes = if args.quick { QUICK_BYTES } else { BYTES };
        std::fs::create_dir_all(dir.join("in"))?;
        let n_files = 8;
        for file in 0..n_files {
            array(&dir.join(format!("in/{file}.npy")), file, bytes / ROW_BYTES / 8)?;
        }
        // A shard goes out when it is sealed: with few of them, building and pushing would hardly overlap.
        let definition = DEFINITION.replace("SHARD_BYTES", &(bytes / 32).to_string());
        std::fs::write(dir.join("rows.toml"), definition)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (dataset, files) = (PathBuf::new(), Vec::new());
        let mut it = Self { rounds: args.rounds(), dir, server, runtime, dataset, files, bytes: 0 };
        let (_, report) = it.rowmill(&["run", "rows.toml", "--json"])?;
        let dataset = report["dataset"].as_str().ok_or("the report names no dataset")?;
        it.dataset = it.dir.join(dataset);
        it.files = files_of(&it.dataset)?;
        it.bytes = it.files.iter().map(|(_, bytes)| bytes).sum();
        eprintln!("{} files, {} MiB", it.files.len(), it.bytes >> 20);
        Ok(it)
    }

    /// Runs the program, and gives its time and its report.
    fn rowmill(&self, args: &[&str]) -> Result<(Duration, Value)> {
        let mut command = self.command(args);
        let (took, ran) = timed(|| Ok(command.output()?))?;
        Ok((took, reported(args, &ran)?))
    }

    fn command(&self, args: &[&str]) -> Command {
        let server = &self.server;
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowmill"));
        command.current_dir(&self.dir).args(args);
        command.env("AWS_ACCESS_KEY_ID", &server.key).env("AWS_SECRET_ACCESS_KEY", &server.secret);
        command.env("AWS_REGION", "us-east-1").env("AWS_ENDPOINT", &server.endpoint);
        command.env("AWS_ALLOW_HTTP", "true");
        command
    }

    /// A figure of so many bytes.
    fn rate(
        &self,
        name: &str,
        against: &'static str,
        pair: machine::Pair,
        target: Target,
    ) -> Figure {
        let gigabytes = self.bytes as f64 / 1e9;
        Figure::rate((name, "s3s-fs"), (gigabytes, "GB/s"), against, pair, target)
    }

    fn push(&mut self) -> Result<Figure> {
        eprintln!("push");
        let bucket = self.server.bucket()?;
        let (store, url) = (self.server.store(&bucket)?, format!("s3://{bucket}/"));
        let dataset = self.dataset.display().to_string();
        let pair = compare(
            self.rounds,
            || {
                remove(&self.dataset.join("work/push"))?;
                let (took, report) = self.rowmill(&["push", &dataset, &url, "--json"])?;
                if report["sent_bytes"].as_u64() < Some(self.bytes) {
                    return Err("something was there".into());
                }
                self.empty(&store)?;
                Ok(took)
            },
            || {
                let (took, ()) =
                    timed(|| self.runtime.block_on(put_all(&store, &self.dataset, &self.files)))?;
                self.empty(&store)?;
                Ok(took)
            },
        )?;
        Ok(self.rate("push", "plain puts", pair, Target::Ratio(0.9)))
    }

    fn pull(&mut self) -> Result<Vec<Figure>> {
        eprintln!("pull");
        let bucket = self.server.bucket()?;
        let (store, url) = (self.server.store(&bucket)?, format!("s3://{bucket}/"));
        remove(&self.dataset.join("work/push"))?;
        let (_, report) =
            self.rowmill(&["push", &self.dataset.display().to_string(), &url, "--json"])?;
        let url = report["url"].as_str().ok_or("the report names no URL")?;
        let prefix = url.strip_prefix(&format!("s3://{bucket}/")).ok_or("another bucket")?;
        let keys: Vec<(Key, u64)> = self
            .files
            .iter()
            .map(|(name, bytes)| {
                (Key::from(format!("{}/{name}", prefix.trim_end_matches('/'))), *bytes)
            })
            .collect();
        let to = self.dir.join("pulled");
        let mut ours = || {
            remove(&to)?;
            Ok(self.rowmill(&["pull", url, "pulled", "--json"])?.0)
        };
        let written = compare(self.rounds, &mut ours, || {
            remove(&to)?;
            Ok(timed(|| self.runtime.block_on(get_all(&store, &keys, Some(&to))))?.0)
        })?;
        let read = compare(self.rounds, &mut ours, || {
            Ok(timed(|| self.runtime.block_on(get_all(&store, &keys, None)))?.0)
        })?;
        remove(&to)?;
        let verified = compare(
            self.rounds,
            || Ok(self.rowmill(&["verify", url, "--json"])?.0),
            || Ok(timed(|| self.runtime.block_on(get_all(&store, &keys, None)))?.0),
        )?;
        self.empty(&store)?;
        Ok(vec![
            self.rate("pull", "plain gets into files", written, Target::Ratio(0.8)),
            self.rate("pull", "plain gets into nothing", read, Target::Open),
            self.rate("verify URL", "plain gets into nothing", verified, Target::Ratio(0.8)),
        ])
    }

    fn build(&mut self) -> Result<Vec<Figure>> {
        eprintln!("build and push");
        let n_rows = self.bytes / ROW_BYTES as u64;
        let waiting = WAITING.replace("SECONDS", &(WAITED_SECONDS / n_rows as f64).to_string());
        let definition = std::fs::read_to_string(self.dir.join("rows.toml"))?;
        let definition = definition.replace("\n[dataset]", &format!("{waiting}\n[dataset]"));
        std::fs::write(self.dir.join("waited.toml"), definition)?;
        std::fs::write(self.dir.join("waiting.py"), WAITS)?;
        let bucket = self.server.bucket()?;
        let mut figures = Vec::new();

        let built = self.built(&bucket, "waited.toml", None)?;
        let per_second = self.bytes as f64 / built.took.as_secs_f64() / f64::from(1 << 20);
        let limit = format!("{:.0}MiB", per_second.max(1.0));
        let mut ratios = Vec::new();
        for _ in 0..self.rounds {
            let slower = self.built(&bucket, "waited.toml", None)?.took;
            let slower = slower.max(self.pushed(&bucket, Some(&limit))?.took);
            let both = self.built(&bucket, "waited.toml", Some(&["push.bandwidth", &limit]))?;
            ratios.push(both.took.as_secs_f64() / slower.as_secs_f64());
        }
        let name = "build + push, of equal time";
        figures.push(middle(name, "of the slower alone", ratios, Target::AtMost(1.1)));

        let (mut ratios, mut of_least) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            let alone = self.built(&bucket, "rows.toml", None)?;
            let push = self.pushed(&bucket, None)?;
            let both = self.built(&bucket, "rows.toml", Some(&[]))?.took.as_secs_f64();
            let slower = alone.took.max(push.took).as_secs_f64();
            let least = (alone.busy + push.busy) / machine::lanes() as f64;
            ratios.push(both / slower);
            of_least.push(both / slower.max(least));
        }
        let name = "build + push, without limit";
        figures.push(middle(name, "of the slower alone", ratios, Target::Open));
        figures.push(middle(name, "of the machine's least", of_least, Target::AtMost(1.1)));
        Ok(figures)
    }

    /// What a build takes, and how much processor time; one that pushes where settings of that are given.
    fn built(&self, bucket: &str, definition: &str, pushing: Option<&[&str]>) -> Result<Cost> {
        let out = self.dir.join("built");
        remove(&out)?;
        let set = pushing.map(|more| {
            let url = format!("push.url=s3://{bucket}/");
            let more = more.chunks(2).map(|pair| pair.join("="));
            let all = std::iter::once(url).chain(more);
            all.flat_map(|it| ["--set".to_owned(), it]).collect::<Vec<_>>()
        });
        let mut args = vec!["run", definition, "--out", "built", "--json"];
        args.extend(set.iter().flatten().map(String::as_str));
        let cost = Cost::of(|| self.rowmill(&args))?;
        remove(&out)?;
        self.empty(&self.server.store(bucket)?)?;
        Ok(cost)
    }

    /// What a push of the dataset takes.
    fn pushed(&self, bucket: &str, bandwidth: Option<&str>) -> Result<Cost> {
        remove(&self.dataset.join("work/push"))?;
        let (dataset, url) = (self.dataset.display().to_string(), format!("s3://{bucket}/"));
        let mut args = vec!["push", &*dataset, &*url, "--json"];
        args.extend(bandwidth.iter().flat_map(|limit| ["--bandwidth", *limit]));
        let cost = Cost::of(|| self.rowmill(&args))?;
        self.empty(&self.server.store(bucket)?)?;
        Ok(cost)
    }

    /// The most memory that 64 parts of 16 MiB take, in a run whose bound has room for them.
    fn memory(&mut self) -> Result<Vec<Figure>> {
        eprintln!("memory");
        let bucket = self.server.bucket()?;
        let (store, url) = (self.server.store(&bucket)?, format!("s3://{bucket}/"));
        let set = [
            format!("push.url={url}"),
            "push.concurrency=64".to_owned(),
            "push.part_size=16MiB".to_owned(),
        ];
        let out = self.dir.join("built");
        remove(&out)?;
        let mut args = vec!["run", "rows.toml", "--out", "built", "--json", "--memory", "2GiB"];
        args.extend(set.iter().flat_map(|set| ["--set", set.as_str()]));
        let run = self.peak(&args)?;
        self.empty(&store)?;
        remove(&self.dataset.join("work/push"))?;
        let dataset = self.dataset.display().to_string();
        let push = self.peak(&["push", &dataset, &url, "--concurrency", "64", "--json"])?;
        self.empty(&store)?;
        remove(&out)?;
        let figure = |name: &str, peak: u64, most: f64| {
            Figure::alone(
                (name, "64 parts of 16 MiB"),
                ((peak >> 20) as f64, "MiB"),
                Target::AtMost(most),
            )
        };
        Ok(vec![
            figure("run with push, memory = 2 GiB", run, 2048.0),
            figure("push", push, 64.0 * 16.0 + 128.0),
        ])
    }

    /// The most memory that the program has, as the system counts it.
    fn peak(&self, args: &[&str]) -> Result<u64> {
        let mut child = self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut peak = 0;
        while child.try_wait()?.is_none() {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
            let line = status
                .as_ref()
                .ok()
                .and_then(|it| it.lines().find(|line| line.starts_with("VmHWM:")));
            let kib =
                line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
            peak = peak.max(kib.unwrap_or(0) << 10);
            std::thread::park_timeout(Duration::from_millis(10));
        }
        reported(args, &child.wait_with_output()?)?;
        Ok(peak)
    }

    /// Removes everything from a bucket.
    fn empty(&self, store: &Arc<AmazonS3>) -> Result<()> {
        self.runtime.block_on(async {
            let found: Vec<_> = store.list(None).map_ok(|it| it.location).try_collect().await?;
            let found = stream::iter(found.into_iter().map(Ok)).boxed();
            store.delete_stream(found).try_for_each(|_| async { Ok(()) }).await?;
            Ok(())
        })
    }
}

/// Time, and processor time of the whole machine in seconds.
struct Cost {
    took: Duration,
    busy: f64,
}

impl Cost {
    fn of<T>(work: impl FnOnce() -> Result<T>) -> Result<Self> {
        let before = busy_seconds()?;
        let (took, _) = timed(work)?;
        Ok(Self { took, busy: busy_seconds()? - before })
    }
}

/// Processor time since the machine began, of all that ran, in seconds.
fn busy_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().unwrap_or_default();
    // user, nice, system, idle, iowait, irq and softirq, in hundredths of a second.
    let ticks: Vec<u64> = line.split_ascii_whitespace().skip(1).flat_map(str::parse).collect();
    let idle = [3, 4].iter().filter_map(|i| ticks.get(*i)).sum::<u64>();
    let all = ticks.iter().take(7).sum::<u64>();
    Ok((all - idle) as f64 / 100.0)
}

/// The median of ratios.
fn middle(name: &str, unit: &'static str, mut ratios: Vec<f64>, target: Target) -> Figure {
    ratios.sort_by(f64::total_cmp);
    eprintln!("  {name}, {unit}: {ratios:.2?}");
    Figure::alone((name, "s3s-fs"), (ratios[ratios.len() / 2], unit), target)
}

/// The report of a program that has ended well.
fn reported(args: &[&str], ran: &std::process::Output) -> Result<Value> {
    if !ran.status.success() {
        return Err(format!("{args:?}: {}", String::from_utf8_lossy(&ran.stderr)).into());
    }
    Ok(serde_json::from_slice(&ran.stdout)?)
}

/// Writes an array of random bytes, with so many rows.
fn array(path: &Path, seed: usize, n_rows: usize) -> Result<()> {
    let shape =
        format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({n_rows}, {ROW_BYTES}), }}");
    // The head is a multiple of 64 bytes.
    let width = (10 + shape.len() + 1).next_multiple_of(64) - 11;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(b"\x93NUMPY\x01\x00")?;
    file.write_all(&u16::try_from(width + 1)?.to_le_bytes())?;
    file.write_all(format!("{shape:width$}\n").as_bytes())?;
    let mut numbers = Numbers(seed as u64);
    for _ in 0..n_rows * ROW_BYTES / 8 {
        file.write_all(&numbers.next().to_le_bytes())?;
    }
    Ok(file.flush()?)
}

/// What a push sends of a dataset's folder, large files first.
fn files_of(dataset: &Path) -> Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    let mut folders = vec![dataset.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let (path, kind) = {
                let entry = entry?;
                (entry.path(), entry.file_type()?)
            };
            let name = path.strip_prefix(dataset)?.to_string_lossy().into_owned();
            if kind.is_dir() && name != "work" {
                folders.push(path);
            } else if kind.is_file() {
                files.push((name, path.metadata()?.len()));
            }
        }
    }
    files.sort_by_key(|(name, bytes)| (std::cmp::Reverse(*bytes), name.clone()));
    Ok(files)
}

/// Puts files as they are, in as many parts at once as a push sends.
async fn put_all(store: &Arc<AmazonS3>, dataset: &Path, files: &[(String, u64)]) -> Result<()> {
    let permits = Arc::new(tokio::sync::Semaphore::new(PUSHED_AT_ONCE));
    let puts = files.iter().map(|(name, bytes)| {
        let (store, permits) = (Arc::clone(store), Arc::clone(&permits));
        let (key, path, bytes) = (Key::from(format!("plain/{name}")), dataset.join(name), *bytes);
        async move {
            let file = Arc::new(File::open(path)?);
            let part = |at: u64| {
                let (file, permits) = (Arc::clone(&file), Arc::clone(&permits));
                async move {
                    let permit = permits.acquire_owned().await?;
                    let len = usize::try_from((bytes - at).min(PUSHED_BYTES as u64))?;
                    let read = move || -> Result<Vec<u8>> {
                        let mut read = vec![0; len];
                        file.read_exact_at(&mut read, at)?;
                        Ok(read)
                    };
                    let read = tokio::task::spawn_blocking(read).await??;
                    Ok::<_, Box<dyn std::error::Error + Send + Sync>>((
                        permit,
                        PutPayload::from(read),
                    ))
                }
            };
            if bytes <= PUSHED_BYTES as u64 {
                let (_permit, payload) = part(0).await?;
                store.put(&key, payload).await?;
                return Ok(());
            }
            let mut upload = store.put_multipart(&key).await?;
            let mut sent = tokio::task::JoinSet::new();
            for at in (0..bytes).step_by(PUSHED_BYTES) {
                let (permit, payload) = part(at).await?;
                let put = upload.put_part(payload);
                sent.spawn(async move {
                    let put = put.await;
                    drop(permit);
                    put
                });
            }
            while let Some(put) = sent.join_next().await {
                put??;
            }
            upload.complete().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        }
    });
    stream::iter(puts).buffer_unordered(PUSHED_AT_ONCE).try_collect().await
}

/// Gets objects as they are, in as many requests at once as a pull makes, into files below `to`.
async fn get_all(store: &Arc<AmazonS3>, keys: &[(Key, u64)], to: Option<&Path>) -> Result<()> {
    let mut gets = Vec::new();
    for (key, bytes) in keys {
        let file = match to {
            Some(to) => {
                let path = to.join(key.as_ref());
                std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
                Some(Arc::new(File::create(path)?))
            }
            None => None,
        };
        for at in (0..*bytes).step_by(usize::try_from(PULLED_BYTES)?) {
            let range = at..(at + PULLED_BYTES).min(*bytes);
            let (store, file) = (Arc::clone(store), file.clone());
            gets.push(async move {
                let read = store.get_range(key, range).await?;
                if let Some(file) = file {
                    tokio::task::spawn_blocking(move || file.write_all_at(&read, at)).await??;
                }
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
            });
        }
    }
    stream::iter(gets).buffer_unordered(PULLED_AT_ONCE).try_collect().await
}
