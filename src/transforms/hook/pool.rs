//! The processes of a hook: started when they are needed, used by whoever has a batch.
//!
//! One thread starts all of them and lives as long as the pool: the signal that kills a process when
//! its parent dies follows the thread that started it.
//!
//! Leaves out: what is done about a process that dies (`call`).
//!
//! Invariants:
//! 1. There are never more than `workers` processes.
//! 2. Nobody holds a process while it waits for something else.

use std::ffi::OsString;
use std::fmt::{self, Write};
use std::io::{self, PipeReader};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::SchemaRef;
use rustix::io::FdFlags;

use super::cgroup::Group;
use super::exec::{SUBCOMMAND, own_program};
use super::notice::printable;
use super::spares::Spares;
use super::words::rows_text;
use super::worker::{Failure, Limits, Started, Worker};
use crate::transforms::Notes;

/// First wait before a process is started again; it doubles with each that dies without an answer.
const BACK_OFF: Duration = Duration::from_millis(10);
/// Bytes that are shown of a value.
const VALUE_BYTES: usize = 200;
/// Doublings at most.
const MOST_DOUBLINGS: u32 = 8;
/// How often somebody who waits looks whether the answer is still wanted.
const GLANCE: Duration = Duration::from_millis(50);
/// Variables that every hook gets, where they are set.
const USUAL: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "CUDA_VISIBLE_DEVICES",
];
/// Variables that tell numeric libraries how many threads they may start.
const THREADS: &[&str] = &[
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
];

/// How processes are started, and how many.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    /// The hook's name.
    pub(super) name: String,
    /// Program and arguments.
    pub(super) command: Vec<OsString>,
    /// The folder they run in.
    pub(super) folder: PathBuf,
    /// Variables that are taken over beside the usual ones.
    pub(super) env: Vec<String>,
    /// Variables that are set.
    pub(super) set: Vec<(String, String)>,
    pub(super) threads: u32,
    pub(super) workers: usize,
    pub(super) limits: Limits,
    /// Where what they say last is kept.
    pub(super) notes: Option<Arc<dyn Notes>>,
}

impl Launch {
    /// The keeper of a process, with its end of the lifeline.
    fn command(&self, lifeline: &PipeReader, group: Option<&Group>) -> Command {
        let (parent, lifeline) = (std::process::id().to_string(), lifeline.as_raw_fd().to_string());
        let mut command = Command::new(own_program());
        command.arg(SUBCOMMAND).args(["--lifeline", &lifeline]);
        if let Some(group) = group {
            command.arg("--group").arg(group.dir());
        }
        command.args([&parent, "--"]).args(&self.command);
        command.current_dir(&self.folder).env_clear();
        let taken = USUAL.iter().copied().chain(self.env.iter().map(String::as_str));
        for name in taken {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(THREADS.iter().map(|name| (name, self.threads.to_string())));
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    }
}

/// All processes of a hook.
#[derive(Debug)]
pub(super) struct Pool {
    launch: Launch,
    starter: Starter,
    state: Mutex<State>,
    freed: Condvar,
    spares: Spares,
    /// Whether an answer did not say which batch it belongs to.
    unsure: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Worker>,
    n_workers: usize,
    /// Of the next process.
    number: usize,
    /// Processes that died one after another without an answer between.
    deaths: u32,
    has_answered: bool,
}

/// Why a batch was not answered, and what the process said last.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) failure: Failure,
    pub(super) stderr: Vec<String>,
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Self {
        Self { failure, stderr: Vec::new() }
    }
}

impl Pool {
    /// A pool without processes yet.
    pub(super) fn new(launch: Launch) -> io::Result<Self> {
        let (starter, spares) = (Starter::new()?, Spares::new(launch.limits.answer_bytes));
        let (state, freed, unsure) = (Mutex::default(), Condvar::new(), Arc::default());
        Ok(Self { launch, starter, state, freed, spares, unsure })
    }

    /// Whether answers were believed that later ones may cast doubt on.
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure.load(Ordering::Relaxed)
    }

    /// Whether any batch was ever answered.
    pub(super) fn has_answered(&self) -> bool {
        self.state().has_answered
    }

    /// Sends a batch to a process that has none; where it is to be `fresh`, to one that has not raised
    /// an exception.
    ///
    /// # Errors
    /// Why there is no answer; or what the system says where no process can be started.
    pub(super) fn ask(
        &self,
        batch: &RecordBatch,
        fresh: bool,
        is_stopped: &dyn Fn() -> bool,
    ) -> io::Result<Result<RecordBatch, Unanswered>> {
        let Some(worker) = self.take(&batch.schema(), fresh, is_stopped)? else {
            return Ok(Err(Failure::Stopped.into()));
        };
        let mut held = Held { pool: self, worker: Some(worker) };
        let Some(worker) = &mut held.worker else { return Ok(Err(Failure::Stopped.into())) };
        match worker.ask(batch, is_stopped) {
            Ok(answer) => {
                held.give_back(true);
                Ok(Ok(answer))
            }
            Err(Failure::Told(notice)) => {
                let stderr = notice.more.lines().map(printable).collect();
                let failure = Failure::Told(notice);
                if failure.is_exception() {
                    held.give_back(false);
                }
                Ok(Err(Unanswered { failure, stderr }))
            }
            Err(failure) => {
                let (mut stderr, tail) = worker.last_words();
                // Of larger batches parts are asked about next.
                let is_last = batch.num_rows() == 1 || !failure.may_pass();
                let is_kept = is_last && !tail.is_empty() && !matches!(failure, Failure::Stopped);
                let notes = self.launch.notes.as_ref().filter(|_| is_kept);
                if let Some(path) =
                    notes.and_then(|it| it.keep(&self.launch.name, &asked(batch, &tail)))
                {
                    stderr.push(format!("more is in `{path}`"));
                }
                if failure.may_pass() {
                    self.state().deaths += 1;
                }
                Ok(Err(Unanswered { failure, stderr }))
            }
        }
    }

    /// Ends all processes.
    pub(super) fn end(&self) -> Result<(), Failure> {
        let mut idle = std::mem::take(&mut self.state().idle);
        self.state().n_workers -= idle.len();
        idle.iter_mut().for_each(Worker::close);
        idle.into_iter().map(Worker::end).fold(Ok(()), Result::and)
    }

    /// A process without a batch, as soon as there is one; none where nobody wants it any more.
    fn take(
        &self,
        input: &SchemaRef,
        fresh: bool,
        is_stopped: &dyn Fn() -> bool,
    ) -> io::Result<Option<Worker>> {
        let (number, deaths) = {
            let mut state = self.state();
            loop {
                if is_stopped() {
                    return Ok(None);
                }
                if let Some(worker) = state.idle.pop() {
                    if fresh && worker.has_raised() {
                        state.n_workers -= 1;
                        continue;
                    }
                    return Ok(Some(worker));
                }
                if state.n_workers < self.launch.workers.max(1) {
                    break;
                }
                let waited = self.freed.wait_timeout(state, GLANCE);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            state.n_workers += 1;
            state.number += 1;
            (state.number - 1, state.deaths)
        };
        // Gives the place back unless a worker takes it.
        let mut held = Held { pool: self, worker: None };
        if deaths > 1 {
            let until = Instant::now() + BACK_OFF * 2_u32.pow((deaths - 1).min(MOST_DOUBLINGS));
            while Instant::now() < until {
                if is_stopped() {
                    return Ok(None);
                }
                thread::park_timeout(GLANCE.min(until.saturating_duration_since(Instant::now())));
            }
        }
        // The one end is the process's own, the other is held here alone: it closes whatever happens.
        let (its_end, our_end) = io::pipe()?;
        rustix::io::fcntl_setfd(&its_end, FdFlags::empty())?;
        let group = self.launch.limits.memory.and_then(Group::new);
        let child = self.starter.start(self.launch.command(&its_end, group.as_ref()))?;
        let (name, limits) = (self.launch.name.clone(), self.launch.limits);
        let started = Started { child, group, lifeline: our_end, name, number };
        let (spares, unsure) = (self.spares.clone(), Arc::clone(&self.unsure));
        held.worker = Some(Worker::new(started, input, limits, spares, unsure)?);
        let worker = held.worker.take();
        std::mem::forget(held);
        Ok(worker)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Before the thread that started them ends.
        self.state().idle.clear();
    }
}

/// The beginning of a text.
struct Short(String);

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.0.len() >= VALUE_BYTES {
                return Err(fmt::Error);
            }
            self.0.push(c);
        }
        Ok(())
    }
}

/// What a process said last, below the first row that it was asked about, so that it can be told which
/// row that was.
fn asked(batch: &RecordBatch, tail: &[u8]) -> Vec<u8> {
    let rows = rows_text(batch.num_rows());
    let mut text = format!("asked about {rows}, the first of which is\n");
    let schema = batch.schema();
    let options = FormatOptions::default();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let mut value = Short(String::new());
        if let Ok(shown) = ArrayFormatter::try_new(column, &options) {
            // What is longer is cut off.
            write!(value, "{}", shown.value(0)).ok();
        }
        writeln!(text, "{} = {}", printable(field.name()), printable(&value.0)).ok();
    }
    text.push_str("and said last\n");
    [text.as_bytes(), tail].concat()
}

/// A place in the pool, given back when it is dropped; the process then goes.
struct Held<'a> {
    pool: &'a Pool,
    worker: Option<Worker>,
}

impl Held<'_> {
    /// The process is free for the next batch; the last one it may have answered.
    fn give_back(mut self, has_answered: bool) {
        let worker = self.worker.take();
        let mut state = self.pool.state();
        state.deaths = 0;
        state.has_answered |= has_answered;
        state.idle.extend(worker);
        drop(state);
        self.pool.freed.notify_one();
        std::mem::forget(self);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        drop(self.worker.take());
        self.pool.state().n_workers -= 1;
        self.pool.freed.notify_one();
    }
}

/// What a thread is asked to start, and where it says what came of it.
type Order = (Command, SyncSender<io::Result<Child>>);

/// The thread that starts processes.
#[derive(Debug)]
struct Starter {
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Starter {
    fn new() -> io::Result<Self> {
        let (orders, received) = sync_channel::<Order>(0);
        let thread = thread::Builder::new().name("hooks".to_owned()).spawn(move || {
            while let Ok((mut command, answer)) = received.recv() {
                if let Err(unheard) = answer.send(command.spawn())
                    && let Ok(mut child) = unheard.0
                {
                    child.kill().ok();
                    child.wait().ok();
                }
            }
        })?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    fn start(&self, command: Command) -> io::Result<Child> {
        let (answer, started) = sync_channel(1);
        let gone = || io::Error::other("the thread that starts processes is gone");
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send((command, answer)).map_err(|_| gone())?;
        started.recv().map_err(|_| gone())?
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
