//! Puts one file where it belongs, or finds that it is there.
//!
//! Leaves out: the order of files, and sentinels (`send_shard`, `steps`).
//!
//! Invariants:
//! 1. An object appears only after all bytes of the file were read and hashed, and the hash is the one
//!    that was sealed. What is hashed is what is sent: each byte is read once, into memory.
//! 2. A part that the journal has is not sent again, if all bytes of the file up to its end are those
//!    that were hashed when it was sent.
//! 3. Whether an upload was completed is settled by looking at the object: an answer that was lost is
//!    no reason to send anything again, and neither is an upload of the journal that the store refuses
//!    to go on with, whatever it calls that. If the object is not there, the file is begun anew, once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::PutPayload;
use tokio::task::JoinSet;

use super::buffers::Buffers;
use super::decide::{self, Decision, Difference, decide};
use super::error::{PushError, Result};
use super::journal::{Begun, Known, Part};
use super::object::Object;
use super::session::{Session, on_thread};
use super::task::join;
use super::wire::Mode;
use crate::remote::RemoteErrorKind;
use crate::storage::{ReadFile, Storage};

/// Parts that a multipart upload can have.
const MAX_PARTS: u64 = 10_000;

/// How often an upload that the store has forgotten is begun anew.
const BEGINNINGS: usize = 3;

/// Puts `object` in its place, where `there` was found. Says whether it was sent.
pub(super) async fn send(
    session: &Arc<Session>,
    object: &Object,
    there: &decide::Remote,
) -> Result<bool> {
    session.go_on()?;
    let name = object.name.clone();
    let known = session.journal(move |journal| Ok(journal.facts().known(&name).cloned())).await?;
    let replace = session.options.replace;
    let mut seen = there.clone();
    let mut decision = decide(object, known.as_ref(), there, replace);
    if decision == Decision::Look {
        seen = session.wire.look(&object.name).await?;
        decision = decide(object, known.as_ref(), &seen, replace);
    }
    if decision == Decision::Compare {
        decision = match (hash(session, object).await?, replace) {
            (Some(b3), _) if b3 == object.b3 => Decision::Skip,
            // Somebody has removed it since it was listed.
            (None, _) | (Some(_), true) => Decision::Send,
            (Some(_), false) => Decision::Conflict(Difference::Content),
        };
    }
    if !matches!(decision, Decision::Skip | Decision::Conflict(_)) {
        session.announce().await?;
    }
    match (decision, known) {
        (Decision::Skip, known) => {
            if let Some(Known::Begun(begun)) = &known {
                // What is there needs no upload.
                forget(session, object, &begun.upload).await?;
            }
            if !matches!(known, Some(Known::Done(done)) if done.b3 == object.b3)
                || !matches!(seen, decide::Remote::Listed { .. })
            {
                done(session, object, etag_of(seen)).await?;
            }
            session.live.skipped_object(object.bytes);
            return Ok(false);
        }
        (Decision::Conflict(difference), _) => {
            let what = match difference {
                Difference::Bytes(bytes) => format!("{bytes} bytes, not {}", object.bytes),
                Difference::Content => "other bytes".to_owned(),
            };
            return Err(PushError::Conflict { url: session.wire.show(&object.name), what });
        }
        (Decision::Continue, Some(Known::Begun(begun))) => {
            upload(session, object, Some(begun)).await?;
        }
        (Decision::StartOver | Decision::Send, Some(Known::Begun(begun))) => {
            forget(session, object, &begun.upload).await?;
            whole(session, object).await?;
        }
        _ => whole(session, object).await?,
    }
    session.live.sent_object();
    Ok(true)
}

/// The digest of the bytes of the object in the place of `object`, if there is one.
async fn hash(session: &Session, object: &Object) -> Result<Option<blake3::Hash>> {
    let permit = session.permit().await?;
    let hash = tokio::select! {
        biased;
        () = session.stop.cancelled() => Err(PushError::Stopped),
        hash = session.wire.hash(&object.name) => hash,
    };
    drop(permit);
    hash
}

fn etag_of(seen: decide::Remote) -> Option<String> {
    match seen {
        decide::Remote::Absent => None,
        decide::Remote::Listed { etag, .. } | decide::Remote::Seen { etag, .. } => etag,
    }
}

async fn done(session: &Session, object: &Object, etag: Option<String>) -> Result<()> {
    let object = object.clone();
    session.journal(move |journal| journal.done(&object, etag)).await
}

/// Sends a file from its beginning.
async fn whole(session: &Arc<Session>, object: &Object) -> Result<()> {
    if object.bytes <= session.options.part_bytes {
        return single(session, object).await;
    }
    if session.wire.can_continue() {
        return upload(session, object, None).await;
    }
    stream(session, object).await
}

/// Sends a small file in one request.
async fn single(session: &Session, object: &Object) -> Result<()> {
    let permit = session.permit().await?;
    let bytes = Reading::all(session, object).await?;
    session.throttle.pass(object.bytes).await;
    let etag = session.wire.put(&object.name, bytes, &object.b3, &Mode::Replace).await?;
    drop(permit);
    session.live.sent(object.bytes);
    done(session, object, etag).await
}

/// Puts a small `object` in its place, where `there` was found, if nothing else comes to stand there
/// meanwhile. Says whether it was sent.
pub(super) async fn create(
    session: &Arc<Session>,
    object: &Object,
    there: &decide::Remote,
) -> Result<bool> {
    if *there != decide::Remote::Absent || session.options.replace {
        return send(session, object, there).await;
    }
    session.go_on()?;
    session.announce().await?;
    let permit = session.permit().await?;
    let bytes = Reading::all(session, object).await?;
    session.throttle.pass(object.bytes).await;
    let created = session.wire.put(&object.name, bytes, &object.b3, &Mode::Create).await;
    drop(permit);
    match created {
        Ok(etag) => {
            session.live.sent(object.bytes);
            session.live.sent_object();
            done(session, object, etag).await?;
            Ok(true)
        }
        Err(e) if e.kind() == RemoteErrorKind::Unsupported => send(session, object, there).await,
        Err(e) => match session.wire.look(&object.name).await? {
            decide::Remote::Absent => Err(e.into()),
            seen => send(session, object, &seen).await,
        },
    }
}

/// Sends a large file to a store whose uploads end with the process.
async fn stream(session: &Session, object: &Object) -> Result<()> {
    let mut upload = session.wire.stream(&object.name).await?;
    let sent = async {
        let mut reading = Reading::open(session, object).await?;
        while reading.offset < object.bytes {
            let permit = session.permit().await?;
            let len = session.options.part_bytes.min(object.bytes - reading.offset);
            let (bytes, _) = reading.next(len).await?;
            session.throttle.pass(len).await;
            let answer = upload.put_part(PutPayload::from(bytes)).await;
            session.wire.of_stream(&object.name, answer)?;
            session.live.sent(len);
            drop(permit);
        }
        reading.finish(object)
    };
    let sent = sent.await;
    if let Err(error) = sent {
        // Why it was given up is what counts.
        upload.abort().await.ok();
        return Err(error);
    }
    let put = session.wire.of_stream(&object.name, upload.complete().await)?;
    done(session, object, put.e_tag).await
}

/// Sends a large file in parts that another process can continue.
async fn upload(session: &Arc<Session>, object: &Object, mut begun: Option<Begun>) -> Result<()> {
    let (mut n_beginnings, mut is_journaled) = (0, begun.is_some());
    loop {
        let current = match begun.take() {
            Some(begun) => begun,
            None => begin(session, object).await?,
        };
        let sent = match parts(session, object, &current).await {
            Ok(answers) => complete(session, object, &current.upload, answers).await,
            Err(e) => Err(e),
        };
        match sent {
            Ok(()) => return Ok(()),
            Err(PushError::Remote(e))
                if matches!(e.kind(), RemoteErrorKind::NoUpload | RemoteErrorKind::NotFound)
                    && n_beginnings < BEGINNINGS =>
            {
                n_beginnings += 1;
                let name = object.name.clone();
                session.journal(move |journal| journal.forgotten(&name)).await?;
            }
            Err(PushError::Remote(e)) if is_journaled && e.is_refusal() => {
                is_journaled = false;
                // Where it refuses everything, the upload is not what it is about.
                let Ok(seen) = session.wire.look(&object.name).await else { return Err(e.into()) };
                if let decide::Remote::Seen { bytes, b3: Some(b3), .. } = &seen
                    && (*bytes, *b3) == (object.bytes, object.b3)
                {
                    return done(session, object, etag_of(seen)).await;
                }
                let name = object.name.clone();
                session.journal(move |journal| journal.forgotten(&name)).await?;
            }
            Err(PushError::Changed { path }) => {
                forget(session, object, &current.upload).await?;
                return Err(PushError::Changed { path });
            }
            Err(e) => return Err(e),
        }
    }
}

async fn begin(session: &Session, object: &Object) -> Result<Begun> {
    let part_bytes = session.options.part_bytes.max(object.bytes.div_ceil(MAX_PARTS));
    let upload = session.wire.begin(&object.name, &object.b3).await?;
    let object = object.clone();
    session.journal(move |journal| journal.begun(&object, &upload, part_bytes)).await
}

/// Aborts an upload.
async fn forget(session: &Session, object: &Object, upload: &str) -> Result<()> {
    session.wire.abort(&object.name, upload).await?;
    let name = object.name.clone();
    session.journal(move |journal| journal.forgotten(&name)).await
}

/// Sends the parts that are missing, and gives the answers to all of them.
async fn parts(session: &Arc<Session>, object: &Object, begun: &Begun) -> Result<Vec<String>> {
    let mut answers = vec![None; index(object.bytes.div_ceil(begun.part_bytes))];
    let mut tasks: JoinSet<Result<(u64, String)>> = JoinSet::new();
    let mut keep = |(number, answer): (u64, String)| {
        if let Some(slot) = answers.get_mut(index(number)) {
            *slot = Some(answer);
        }
    };
    let sent = async {
        let mut reading = Reading::open(session, object).await?;
        for number in 0..object.bytes.div_ceil(begun.part_bytes) {
            while let Some(ended) = tasks.try_join_next() {
                keep(ended.map_err(|e| PushError::Runtime(std::io::Error::other(e)))??);
            }
            let permit = session.permit().await?;
            let len = begun.part_bytes.min(object.bytes - reading.offset);
            let (bytes, b3) = reading.next(len).await?;
            if let Some(part) = begun.parts.get(&number).filter(|part| part.b3 == b3) {
                session.live.skipped(len);
                keep((number, part.answer.clone()));
                continue;
            }
            let (session, name) = (Arc::clone(session), object.name.clone());
            let (upload, begun) = (begun.upload.clone(), begun.seq);
            tasks.spawn(async move {
                session.throttle.pass(len).await;
                let answer = session.wire.part(&name, &upload, index(number), bytes).await?;
                drop(permit);
                session.live.sent(len);
                let part = Part { answer: answer.clone(), b3 };
                session.journal(move |journal| journal.part(&name, begun, number, part)).await?;
                Ok((number, answer))
            });
        }
        reading.finish(object)
    };
    let sent = match sent.await {
        Err(error) if !matches!(error, PushError::Stopped) => return Err(error),
        sent => sent,
    };
    // What is on its way arrives, and is noted, also where the push is to stop.
    while let Some(ended) = join(&mut tasks).await {
        keep(ended?);
    }
    sent?;
    let n_parts = answers.len();
    let answers: Vec<String> = answers.into_iter().flatten().collect();
    if answers.len() == n_parts { Ok(answers) } else { Err(PushError::Stopped) }
}

/// Completes an upload. Whatever is answered, the object itself says whether it was.
async fn complete(
    session: &Session,
    object: &Object,
    upload: &str,
    answers: Vec<String>,
) -> Result<()> {
    let answer = session.wire.complete(&object.name, upload, answers).await;
    let seen = match (session.wire.look(&object.name).await, answer.is_err()) {
        (Ok(seen), _) => seen,
        (Err(e), false) => return Err(e),
        // The first refusal is the cause.
        (Err(_), true) => decide::Remote::Absent,
    };
    let is_there = match &seen {
        decide::Remote::Seen { bytes, b3: Some(b3), .. } => {
            *bytes == object.bytes && *b3 == object.b3
        }
        // A store without metadata: its answer is believed, or else the bytes are.
        decide::Remote::Seen { bytes, b3: None, .. } if *bytes == object.bytes => {
            answer.is_ok() || session.wire.hash(&object.name).await? == Some(object.b3)
        }
        _ => false,
    };
    match (is_there, answer) {
        (true, _) => done(session, object, etag_of(seen)).await,
        (false, Err(e)) => Err(e.into()),
        (false, Ok(())) => Err(not_kept(session, object, &seen)),
    }
}

/// The error for an object that is not as it was sent.
pub(super) fn not_kept(session: &Session, object: &Object, seen: &decide::Remote) -> PushError {
    let what = match seen {
        decide::Remote::Absent => "nothing is there".to_owned(),
        decide::Remote::Listed { bytes, .. } | decide::Remote::Seen { bytes, .. }
            if *bytes != object.bytes =>
        {
            format!("{bytes} bytes, not {}", object.bytes)
        }
        _ => "other bytes".to_owned(),
    };
    PushError::NotKept { url: session.wire.show(&object.name), what }
}

/// A file that is read once, from front to back, and hashed.
struct Reading {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    buffers: Arc<Buffers>,
    offset: u64,
    hasher: blake3::Hasher,
}

impl Reading {
    async fn open(session: &Session, object: &Object) -> Result<Self> {
        let (storage, path) = (Arc::clone(&session.storage), object.path.clone());
        let file = on_thread(move || open(&*storage, &path)).await?;
        let it = Self {
            path: object.path.clone(),
            file: Arc::from(file),
            buffers: Arc::clone(&session.buffers),
            offset: 0,
            hasher: blake3::Hasher::new(),
        };
        if it.file.len() == object.bytes { Ok(it) } else { Err(it.changed()) }
    }

    /// The whole of a small file.
    async fn all(session: &Session, object: &Object) -> Result<Bytes> {
        let mut reading = Self::open(session, object).await?;
        let (bytes, _) = reading.next(object.bytes).await?;
        reading.finish(object)?;
        Ok(bytes)
    }

    /// The next `len` bytes, and the digest of the file up to their end.
    async fn next(&mut self, len: u64) -> Result<(Bytes, blake3::Hash)> {
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        let buffers = Arc::clone(&self.buffers);
        let mut hasher = std::mem::take(&mut self.hasher);
        let (bytes, b3, hasher) = on_thread(move || {
            let bytes = buffers.fill(index(len), |bytes| file.read_at(bytes, offset))?;
            hasher.update(&bytes);
            let b3 = hasher.finalize();
            Ok((bytes, b3, hasher))
        })
        .await?;
        self.hasher = hasher;
        self.offset += len;
        Ok((bytes, b3))
    }

    /// Checks that what was read is the whole file, as it was sealed.
    fn finish(&self, object: &Object) -> Result<()> {
        let is_whole = self.offset == object.bytes && self.hasher.finalize() == object.b3;
        if is_whole { Ok(()) } else { Err(self.changed()) }
    }

    fn changed(&self) -> PushError {
        PushError::Changed { path: self.path.clone() }
    }
}

fn open(storage: &dyn Storage, path: &Path) -> Result<Box<dyn ReadFile>> {
    Ok(storage.open(path)?)
}

/// A count as a place in memory.
fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
