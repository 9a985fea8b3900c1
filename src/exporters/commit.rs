//! The dataset's sentinel in the store, and `current.json`.
//!
//! Leaves out: everything that the sentinel covers, which is there when this begins (`steps`).
//!
//! Invariants:
//! 1. The sentinel replaces what was noted before the first object went out, or nothing where nothing
//!    was noted. Of two generations that race, the later is refused.
//! 2. An answer that was lost is settled by reading what is there.

use std::path::Path;

use bytes::Bytes;
use serde_json::json;

use super::decide::is_same;
use super::error::{PushError, Result};
use super::journal::{Abilities, Before, Note};
use super::object::Object;
use super::session::Session;
use super::wire::{Mode, Wire};
use crate::dataset::home::CURRENT_DOCUMENT;
use crate::dataset::sentinel::Sentinel;
use crate::remote::{RemoteError, RemoteErrorKind};
use crate::shard::layout::{self, COMPLETE};

/// How often a sentinel is tried that the store refuses while nothing has changed.
const TRIES: usize = 5;

/// An ETag that no object has.
const NO_ETAG: &str = "\"00000000000000000000000000000000\"";

/// The dataset's sentinel that is in the store; of no generation if it is none that we write.
pub(super) async fn found(wire: &Wire) -> Result<Option<Before>> {
    let Some((bytes, etag)) = wire.read(COMPLETE).await? else { return Ok(None) };
    let sentinel = Sentinel::parse(Path::new(COMPLETE), &bytes).ok();
    let generation = sentinel.map_or_else(String::new, |it| it.manifest_b3().to_owned());
    Ok(Some(Before { etag, generation }))
}

/// Whether the sentinel that is in the store says the same, byte for byte.
async fn is_as(wire: &Wire, bytes: &Bytes) -> Result<bool> {
    Ok(wire.read(COMPLETE).await?.is_some_and(|(there, _)| there == bytes))
}

/// Finds out whether conditions are obeyed, by trying them on an object that is there: whatever the
/// store does, its bytes stay what they are.
pub(super) async fn probe(wire: &Wire, object: &Object, bytes: Bytes) -> Result<Abilities> {
    let mut is_obeyed = [false; 2];
    let modes = [Mode::Create, Mode::Update(NO_ETAG.to_owned())];
    for (mode, is_obeyed) in modes.iter().zip(&mut is_obeyed) {
        *is_obeyed = match wire.put(&object.name, bytes.clone(), &object.b3, mode).await {
            Ok(_) => false,
            Err(e) => match e.kind() {
                _ if is_refusal(&e) => true,
                RemoteErrorKind::Unsupported => false,
                _ => return Err(e.into()),
            },
        };
    }
    let [conditional_create, conditional_replace] = is_obeyed;
    Ok(Abilities { conditional_create, conditional_replace })
}

/// Puts the sentinel in its place; `bytes` are what it says, of `generation`.
pub(super) async fn commit(
    session: &Session,
    object: &Object,
    bytes: &Bytes,
    note: &Note,
    abilities: Abilities,
) -> Result<()> {
    let overtaken = |theirs: &str| overtaken(session.wire.show(""), &note.generation, theirs);
    let is_noted = |it: &Before| it.generation == note.generation;
    let mode = match &note.before {
        Some(before) if is_noted(before) => Mode::Replace,
        None if abilities.conditional_create => Mode::Create,
        Some(Before { etag: Some(etag), .. }) if abilities.conditional_replace => {
            Mode::Update(etag.clone())
        }
        _ => Mode::Replace,
    };
    let mut refusal: Option<RemoteError> = None;
    for attempt in 0..TRIES {
        if attempt > 0 || mode == Mode::Replace {
            match (found(&session.wire).await?, &note.before) {
                // Where things are replaced, more of it may be another than what it names.
                (Some(there), _)
                    if is_noted(&there)
                        && (!session.options.replace || is_as(&session.wire, bytes).await?) =>
                {
                    session.live.skipped_object(object.bytes);
                    return noted(session, object, there.etag).await;
                }
                (Some(there), Some(before))
                    if is_same(there.etag.as_deref(), before.etag.as_deref()) => {}
                (None, None) => {}
                (Some(there), _) => return Err(overtaken(&there.generation)),
                (None, Some(_)) => return Err(overtaken("none")),
            }
        }
        match session.wire.put(&object.name, bytes.clone(), &object.b3, &mode).await {
            Ok(etag) => {
                session.live.sent(object.bytes);
                session.live.sent_object();
                return noted(session, object, etag).await;
            }
            Err(e) if attempt > 0 && !is_refusal(&e) => return Err(e.into()),
            Err(e) => refusal = Some(e),
        }
    }
    Err(refusal.map_or_else(|| overtaken("none"), Into::into))
}

/// The error for a place where somebody else's generation stands.
pub(super) fn overtaken(url: String, ours: &str, theirs: &str) -> PushError {
    let (ours, theirs) = (short(ours).to_owned(), short(theirs).to_owned());
    PushError::Overtaken { url, ours, theirs }
}

/// Whether a condition was not met, or could not be judged.
fn is_refusal(error: &RemoteError) -> bool {
    use RemoteErrorKind::{Changed, Conflict, Exists, NotFound};
    matches!(error.kind(), Exists | Changed | Conflict | NotFound)
}

async fn noted(session: &Session, object: &Object, etag: Option<String>) -> Result<()> {
    let object = object.clone();
    session.journal(move |journal| journal.done(&object, etag)).await
}

/// Lets `current.json` name the cache key. Says whether it was sent.
pub(super) async fn make_current(above: &Wire, cache_key: &str) -> Result<bool> {
    let bytes = Bytes::from(layout::document(&json!({"cache_key": cache_key})));
    if above.read(CURRENT_DOCUMENT).await?.is_some_and(|(there, _)| there == bytes) {
        return Ok(false);
    }
    let b3 = blake3::hash(&bytes);
    above.put(CURRENT_DOCUMENT, bytes, &b3, &Mode::Replace).await?;
    Ok(true)
}

/// The digits of a generation that people read.
pub(super) fn short(generation: &str) -> &str {
    generation.get(..16).unwrap_or(generation)
}
