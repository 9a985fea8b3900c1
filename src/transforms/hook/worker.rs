//! One process of a hook: what it is sent, what it answers, and how it ends.
//!
//! A thread writes to it, one reads its answers and one its stderr, so nobody waits for a full pipe
//! while the process waits for another. The threads end with the pipes, which end with the processes.
//! The child is the process's keeper (`exec`), which ends as it does when all that it started is gone,
//! and ends all of it when the lifeline is dropped.
//!
//! Invariants:
//! 1. A batch is answered, or it is known why not: within `timeout`, and at once where the process
//!    died.
//! 2. Dropping a worker kills its process and all that it started.
//! 3. What a process writes until it ends is looked at, also behind its last answer.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, BufWriter, PipeWriter, Read};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tracing::{info, warn};

use super::cgroup::Group;
use super::frames::{Broken, Frame, Frames, Garbled, HEAD_BYTES, Output};
use super::notice::{Notice, NoticeKind, printable};
use super::numbered::Numbered;
use super::resident::bytes_below;
use super::spares::Spares;

/// How often a process that has not answered yet is looked at.
const GLANCE: Duration = Duration::from_millis(50);
/// How long a process that closed a pipe may take to answer or to end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long it may take to end when its input has.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long killing it and all that it started may take.
const LAST_BREATHS: Duration = Duration::from_secs(30);
/// Wanted capacity of the pipes: what the system grants without privileges.
const PIPE_BYTES: usize = 1 << 20;
/// Lines of stderr that are kept, and most bytes of each.
const KEPT_LINES: usize = 12;
const LINE_BYTES: u64 = 4096;
/// Bytes of its end that are kept.
const TAIL_BYTES: usize = 64 << 10;

/// What a process has said last on stderr.
#[derive(Debug, Default)]
struct Said {
    lines: VecDeque<String>,
    tail: VecDeque<u8>,
}

impl Said {
    fn add(&mut self, bytes: &[u8], line: String) {
        self.tail.extend(bytes);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES));
        if self.lines.len() == KEPT_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

/// Why a batch has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nobody wants it any more.
    Stopped,
    /// The process ended or closed its pipes; says how.
    Died(String),
    /// It took longer than this.
    Timeout(Duration),
    /// It took more memory than this.
    Memory(u64),
    /// What it wrote is no answer.
    Garbled(Garbled),
    /// It says itself why there is none.
    Told(Notice),
}

impl Failure {
    /// Whether asking again makes sense.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Died(_) | Self::Timeout(_) | Self::Memory(_)) || self.is_exception()
    }

    /// Whether the hook raised an exception, and can be asked again.
    pub(super) fn is_exception(&self) -> bool {
        matches!(self, Self::Told(notice) if notice.kind == NoticeKind::Raised)
    }
}

/// What a process may take for a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) timeout: Duration,
    pub(super) memory: Option<u64>,
    pub(super) answer_bytes: u64,
}

#[derive(Debug)]
enum Event {
    Answer(RecordBatch),
    Notice(Notice),
    Broken(Broken),
    Ended,
    Unread,
}

/// A process that was started for a hook.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    /// Its control group, which limits its memory.
    pub(super) group: Option<Group>,
    /// Our end of it.
    pub(super) lifeline: PipeWriter,
    /// The hook's.
    pub(super) name: String,
    /// Which of its processes this is.
    pub(super) number: usize,
}

/// A running process.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    name: String,
    number: usize,
    /// `None` when the process has to end.
    lifeline: Option<PipeWriter>,
    /// `None` when nothing more will be sent.
    batches: Option<SyncSender<RecordBatch>>,
    events: Receiver<Event>,
    n_asked: Arc<AtomicU64>,
    stderr: Arc<Mutex<Said>>,
    limits: Limits,
    started: Instant,
    is_new: bool,
    has_raised: bool,
    /// Goes after the process.
    group: Option<Group>,
}

impl Worker {
    /// Takes charge of a process, which is sent rows with the columns `input`. `unsure` becomes true when
    /// an answer does not say which batch it belongs to.
    pub(super) fn new(
        started: Started,
        input: &SchemaRef,
        limits: Limits,
        spares: Spares,
        unsure: Arc<AtomicBool>,
    ) -> std::io::Result<Self> {
        let Started { mut child, group, lifeline, name, number } = started;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (batches, to_write) = sync_channel(1);
        let (tell, events) = sync_channel(2);
        let stderr = Arc::new(Mutex::new(Said::default()));
        let (started, is_new, has_raised) = (Instant::now(), true, false);
        let lines = Arc::clone(&stderr);
        let batches = Some(batches);
        // From here on the process is killed if anything fails.
        let lifeline = Some(lifeline);
        let n_asked = Arc::new(AtomicU64::new(0));
        let asked = Arc::clone(&n_asked);
        let this = Self {
            child,
            name: name.clone(),
            number,
            lifeline,
            batches,
            events,
            n_asked,
            stderr,
            limits,
            started,
            is_new,
            has_raised,
            group,
        };
        let (Some(stdin), Some(stdout), Some(errors)) = pipes else {
            return Err(std::io::Error::other("it has no pipes"));
        };
        enlarge(&stdin);
        enlarge(&stdout);
        let thread = |what: &str| thread::Builder::new().name(format!("{name} {number} {what}"));
        let (schema, told) = (SchemaRef::clone(input), tell.clone());
        thread("in").spawn(move || write(stdin, &schema, &to_write, &told))?;
        let stdout = BufReader::new(stdout);
        let frames = Frames::new(stdout, limits.answer_bytes, asked, spares, unsure);
        thread("out").spawn(move || read(frames, &tell))?;
        let name = name.clone();
        thread("err").spawn(move || log(errors, &name, number, &lines))?;
        Ok(this)
    }

    /// Whether it has raised an exception: what it answers may be another's fault from then on.
    pub(super) fn has_raised(&self) -> bool {
        self.has_raised
    }

    /// Sends a batch and waits for its answer. After a failure that is no exception the worker is of no
    /// use.
    pub(super) fn ask(
        &mut self,
        batch: &RecordBatch,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<RecordBatch, Failure> {
        let answer = self.answer(batch, is_stopped);
        self.has_raised |= answer.as_ref().is_err_and(Failure::is_exception);
        answer
    }

    fn answer(
        &mut self,
        batch: &RecordBatch,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<RecordBatch, Failure> {
        match self.events.try_recv() {
            Err(TryRecvError::Empty) => {}
            Ok(Event::Broken(Broken::Garbled(how))) => return Err(Failure::Garbled(how)),
            Ok(Event::Notice(notice)) => return Err(Failure::Told(notice)),
            Ok(_) | Err(TryRecvError::Disconnected) => return Err(self.died()),
        }
        let since = if self.is_new { self.started } else { Instant::now() };
        self.is_new = false;
        self.n_asked.fetch_add(1, Ordering::SeqCst);
        let sent = self.batches.as_ref().map(|batches| batches.send(batch.clone()));
        let mut unread = match sent {
            Some(Ok(())) => None,
            _ => Some(Instant::now()),
        };
        loop {
            match self.events.recv_timeout(GLANCE) {
                Ok(Event::Answer(answer)) => return Ok(answer),
                Ok(Event::Notice(notice)) => return Err(Failure::Told(notice)),
                Ok(Event::Broken(Broken::Garbled(how))) => return Err(Failure::Garbled(how)),
                Ok(Event::Unread) => unread = Some(Instant::now()),
                Ok(Event::Ended | Event::Broken(Broken::Cut))
                | Err(RecvTimeoutError::Disconnected) => return Err(self.died()),
                Err(RecvTimeoutError::Timeout) => {
                    if is_stopped() {
                        return Err(Failure::Stopped);
                    }
                    if self.has_ended() || unread.is_some_and(|at| at.elapsed() > LAST_WORDS) {
                        // An answer may have come before the end.
                        return match self.events.try_recv() {
                            Ok(Event::Answer(answer)) => Ok(answer),
                            Ok(Event::Notice(notice)) => Err(Failure::Told(notice)),
                            _ => Err(self.died()),
                        };
                    }
                    let is_over = |most: u64| {
                        bytes_below(Pid::from_child(&self.child)).is_some_and(|n| n > most)
                    };
                    let polled = self.limits.memory.filter(|_| self.group.is_none());
                    if let Some(most) = polled.filter(|most| is_over(*most)) {
                        return Err(Failure::Memory(most));
                    }
                    if since.elapsed() > self.limits.timeout {
                        return Err(Failure::Timeout(self.limits.timeout));
                    }
                }
            }
        }
    }

    /// Nothing more will be sent: the process is to end.
    pub(super) fn close(&mut self) {
        self.batches = None;
    }

    /// Waits until the process ends by itself, and kills it where it does not.
    ///
    /// # Errors
    /// It wrote something behind its last answer.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        self.close();
        let until = Instant::now() + FAREWELL;
        let rest = self.rest(until);
        if let Some(Err(failure)) = rest {
            return Err(failure);
        }
        while !self.has_ended() && Instant::now() < until {
            thread::park_timeout(Duration::from_millis(5));
        }
        let (hook, worker) = (&self.name, self.number);
        if self.has_ended() {
            let status = self.child.wait().ok().filter(|status| !status.success());
            if let Some(how) = status.map(how) {
                warn!(hook, worker, how, "a hook failed when all was answered");
            }
            return Ok(());
        }
        warn!(hook, worker, "a hook did not end when its input did, and is killed");
        self.kill();
        // What it wrote before.
        self.rest(Instant::now() + LAST_BREATHS).unwrap_or(Ok(()))
    }

    /// What comes until its output ends, or is no stream; `None` where neither happens in time.
    fn rest(&mut self, until: Instant) -> Option<Result<(), Failure>> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(Event::Broken(Broken::Garbled(how))) => return Some(Err(Failure::Garbled(how))),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Some(Ok(())),
                Err(RecvTimeoutError::Timeout) => return None,
            }
        }
    }

    /// The last lines of its stderr, and its end byte for byte.
    pub(super) fn last_words(&mut self) -> (Vec<String>, Vec<u8>) {
        // What it wrote before it ended may still be on its way.
        self.kill();
        let until = Instant::now() + GLANCE * 4;
        while Arc::strong_count(&self.stderr) > 1 && Instant::now() < until {
            thread::park_timeout(Duration::from_millis(5));
        }
        let said = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        (said.lines.iter().cloned().collect(), said.tail.iter().copied().collect())
    }

    /// How the process ended, which has closed its output or is no more.
    fn died(&mut self) -> Failure {
        let until = Instant::now() + LAST_WORDS;
        while !self.has_ended() && Instant::now() < until {
            thread::park_timeout(Duration::from_millis(5));
        }
        let has_ended = self.has_ended();
        self.kill();
        let overrun = self.group.as_ref().is_some_and(Group::has_overrun);
        if let Some(most) = self.limits.memory.filter(|_| overrun) {
            return Failure::Memory(most);
        }
        Failure::Died(match self.child.wait() {
            Ok(status) if has_ended => how(status),
            _ => "it closed its input or output and lived on".to_owned(),
        })
    }

    /// Whether the process is no more, nor what it started. It is not waited for: its number stays.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(Pid::from_child(&self.child)), options), Ok(None))
    }

    /// Ends the process and all that it started.
    fn kill(&mut self) {
        if self.lifeline.take().is_none() {
            return;
        }
        let until = Instant::now() + LAST_BREATHS;
        while !self.has_ended() {
            if Instant::now() > until {
                // Something has stopped the keeper.
                self.child.kill().ok();
                return;
            }
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
        self.child.wait().ok();
    }
}

/// How a process ended, in words of ours.
fn how(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit status {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it ended".to_owned(),
    }
}

#[cfg(target_os = "linux")]
fn enlarge(pipe: &impl std::os::fd::AsFd) {
    // A smaller pipe is only slower.
    rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES).ok();
}

#[cfg(not(target_os = "linux"))]
fn enlarge(_: &impl std::os::fd::AsFd) {}

fn write(
    stdin: ChildStdin,
    schema: &SchemaRef,
    batches: &Receiver<RecordBatch>,
    tell: &SyncSender<Event>,
) {
    let written = || -> Result<(), arrow_schema::ArrowError> {
        let numbered = Numbered::new(BufWriter::new(stdin));
        let mut writer = StreamWriter::try_new(numbered, schema)?;
        writer.flush()?;
        while let Ok(batch) = batches.recv() {
            writer.write(&batch)?;
            writer.flush()?;
        }
        writer.finish()
    };
    if written().is_err() {
        tell.send(Event::Unread).ok();
        // Who sends a batch is not to wait for one that is gone.
        while batches.recv().is_ok() {}
    }
}

impl Output for BufReader<ChildStdout> {
    fn has_head(&self) -> bool {
        let n_buffered = self.buffer().len();
        n_buffered >= HEAD_BYTES
            || rustix::io::ioctl_fionread(self.get_ref())
                .is_ok_and(|n| n_buffered as u64 + n >= HEAD_BYTES as u64)
    }
}

fn read(mut frames: Frames<BufReader<ChildStdout>>, tell: &SyncSender<Event>) {
    loop {
        let event = match frames.next() {
            Ok(Some(Frame::Batch(batch))) => Event::Answer(batch),
            Ok(Some(Frame::Notice(notice))) => Event::Notice(notice),
            Ok(None) => break,
            Err(broken) => {
                tell.send(Event::Broken(broken)).ok();
                return;
            }
        };
        if tell.send(event).is_err() {
            return;
        }
    }
    if tell.send(Event::Ended).is_ok()
        && let Err(broken) = frames.rest()
    {
        tell.send(Event::Broken(broken)).ok();
    }
}

/// Logs what a process says, line by line; a longer line is cut into several.
fn log(stderr: ChildStderr, name: &str, worker: usize, kept: &Mutex<Said>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match stderr.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                warn!(hook = name, worker, %error, "stderr cannot be read");
                return;
            }
        }
        let text = printable(String::from_utf8_lossy(&line).trim_end());
        info!(hook = name, worker, "{text}");
        kept.lock().unwrap_or_else(PoisonError::into_inner).add(&line, text);
    }
}
