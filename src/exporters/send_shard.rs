//! Sends a shard, or the record of a partition.
//!
//! Leaves out: how one file is sent (`send`), and the order of shards and records (`steps`).
//!
//! Invariant: the files of a shard are there, by the store's own listing, before its sentinel goes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::decide::{self, is_same};
use super::drop::{believe_there, drop_sent, remote_of};
use super::error::{PushError, Result};
use super::journal::Known;
use super::object::{self, Object, ShardObjects};
use super::send::{create, not_kept, send};
use super::session::{Session, on_thread};
use super::task::join;
use crate::dataset::Home;
use crate::dataset::record::RecordName;

/// Sends the files of a shard, then its sentinel. A shard whose rows are not here has to be there; where
/// it says so itself, its sentinel is looked at before the dataset's goes out.
pub(super) async fn send_shard(session: &Arc<Session>, home: &Home, id: &str) -> Result<()> {
    if let Some(remote) = remote_of(session, home, id).await? {
        return believe_there(session, home, &remote).await;
    }
    let (storage, place, asked) = (Arc::clone(&session.storage), home.clone(), id.to_owned());
    let shard = on_thread(move || ShardObjects::read(&*storage, &place, &asked)).await?;
    let folder = shard.folder();
    let there = session.wire.list(&folder, |_| true).await?;
    expect_no_others(session, &shard, &there)?;
    let seen = |name: &str| there.get(name).cloned().unwrap_or(decide::Remote::Absent);
    let mut tasks: JoinSet<Result<bool>> = JoinSet::new();
    let mut files = shard.files.iter();
    let (mut is_sent, mut stopped) = (false, false);
    loop {
        while tasks.len() < session.options.concurrency.max(1)
            && !stopped
            && let Some(object) = files.next()
        {
            let (session, object, there) =
                (Arc::clone(session), object.clone(), seen(&object.name));
            tasks.spawn(async move { send(&session, &object, &there).await });
        }
        match join(&mut tasks).await {
            None if stopped => return Err(PushError::Stopped),
            None => break,
            Some(Err(PushError::Stopped)) => stopped = true,
            Some(sent) => is_sent |= sent?,
        }
    }
    if is_sent || !there.contains_key(&shard.sentinel.name) {
        // A machine that has slept meanwhile may find less than it has sent.
        session.announce().await?;
        check_kept(session, &shard).await?;
    }
    send(session, &shard.sentinel, &seen(&shard.sentinel.name)).await?;
    drop_sent(session, home, id).await?;
    session.remember(id);
    Ok(())
}

/// Refuses a folder with objects that the sentinel would not cover.
fn expect_no_others(
    session: &Session,
    shard: &ShardObjects,
    there: &BTreeMap<String, decide::Remote>,
) -> Result<()> {
    let is_ours = |name: &String| {
        *name == shard.sentinel.name || shard.files.iter().any(|object| object.name == *name)
    };
    match there.keys().find(|name| !is_ours(name)) {
        Some(name) => Err(PushError::Foreign { url: session.wire.show(name) }),
        None => Ok(()),
    }
}

/// Checks that the store lists what was sent, as it was sent.
async fn check_kept(session: &Session, shard: &ShardObjects) -> Result<()> {
    let there = session.wire.list(&shard.folder(), |_| true).await?;
    let names: Vec<String> = shard.files.iter().map(|object| object.name.clone()).collect();
    let known = session.journal(move |journal| {
        let known = |name: &String| journal.facts().known(name).cloned();
        Ok(names.iter().map(known).collect::<Vec<_>>())
    });
    for (object, known) in shard.files.iter().zip(known.await?) {
        let absent = decide::Remote::Absent;
        let seen = there.get(&object.name).unwrap_or(&absent);
        match (seen, known) {
            (decide::Remote::Listed { bytes, etag }, Some(Known::Done(done)))
                if *bytes == object.bytes
                    && (done.etag.is_none() || is_same(etag.as_deref(), done.etag.as_deref())) => {}
            // Another machine may have put the same bytes there meanwhile.
            (decide::Remote::Listed { bytes, .. }, _)
                if *bytes == object.bytes && is_equal(session, object).await? => {}
            _ => return Err(not_kept(session, object, seen)),
        }
    }
    Ok(())
}

/// Whether the object in the place of `object` holds the same bytes.
async fn is_equal(session: &Session, object: &Object) -> Result<bool> {
    Ok(match session.wire.look(&object.name).await? {
        decide::Remote::Seen { b3: Some(b3), .. } => b3 == object.b3,
        decide::Remote::Absent => false,
        _ => session.wire.hash(&object.name).await? == Some(object.b3),
    })
}

/// Sends the record of a partition.
pub(super) async fn send_record(
    session: &Arc<Session>,
    home: &Home,
    name: &str,
    there: &BTreeMap<String, decide::Remote>,
) -> Result<()> {
    let (record, _) = read_record(session, home, name).await?;
    session.live.expect(record.bytes);
    let seen = there.get(&record.name).cloned().unwrap_or(decide::Remote::Absent);
    create(session, &record, &seen).await?;
    session.remember(name);
    Ok(())
}

/// The record of a partition as an object, and its bytes.
pub(super) async fn read_record(
    session: &Session,
    home: &Home,
    name: &str,
) -> Result<(Object, Bytes)> {
    let (storage, home, name) = (Arc::clone(&session.storage), home.clone(), name.to_owned());
    on_thread(move || {
        let path = home.partitions().join(&name);
        let name = RecordName::parse(&name).ok_or(PushError::Changed { path })?;
        object::record(&*storage, &home, &name)
    })
    .await
}
