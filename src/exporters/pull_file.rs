//! One file on its way from a store to the disk.
//!
//! Leaves out: which files belong together, and when their sentinel may be written (`pull`).
//!
//! Invariants:
//! 1. What is in the local file is a prefix of the object: ranges are fetched side by side and
//!    appended in order. Its length is all that a resume needs to know.
//! 2. A range is compared with its blocks' CRC-32 before it is appended, where they are known, and the
//!    file with its BLAKE3 before it counts. What differs is fetched again, [`TRIES`] times in all,
//!    and then refused by name.
//! 3. Bytes are held in memory only by who has a permit.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, GetRange};
use tokio::sync::OwnedSemaphorePermit;

use super::pull_error::PullError;
use super::pull_session::{PullSession, on_thread};
use crate::remote::{RemoteError, RemoteErrorKind};
use crate::shard::layout::BLOCK_BYTES;
use crate::storage::{AppendFile, Storage};

type Result<T, E = PullError> = std::result::Result<T, E>;

/// How often something that came damaged is fetched.
const TRIES: usize = 4;

/// A file that is to be here.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// The object, relative to the URL.
    pub(super) name: String,
    /// Where it goes.
    pub(super) path: PathBuf,
    /// Its size.
    pub(super) len: u64,
    /// Its BLAKE3.
    pub(super) b3: blake3::Hash,
    /// The CRC-32 of its blocks, where they are known.
    pub(super) crcs: Option<Arc<[u32]>>,
}

impl Wanted {
    /// Whether the bytes from `start`, where a block begins, are those that were sealed, as far as
    /// that is known of blocks.
    fn agrees(&self, start: u64, pieces: &[Bytes]) -> bool {
        let Some(crcs) = &self.crcs else { return true };
        let mut index = usize::try_from(start / BLOCK_BYTES).unwrap_or(usize::MAX);
        let (mut crc, mut held) = (crc32fast::Hasher::new(), 0);
        for piece in pieces {
            let mut rest = piece.as_ref();
            while !rest.is_empty() {
                let room = usize::try_from(BLOCK_BYTES - held).unwrap_or(usize::MAX);
                let (now, later) = rest.split_at(room.min(rest.len()));
                crc.update(now);
                held += now.len() as u64;
                if held == BLOCK_BYTES {
                    if crcs.get(index) != Some(&std::mem::take(&mut crc).finalize()) {
                        return false;
                    }
                    (index, held) = (index + 1, 0);
                }
                rest = later;
            }
        }
        held == 0 || crcs.get(index) == Some(&crc.finalize())
    }

    fn damaged(&self, session: &PullSession, said: String) -> PullError {
        let url = session.remote.show(&self.name);
        RemoteError::of("read", url, RemoteErrorKind::Damaged, Some(said)).into()
    }
}

/// Fetches a file, or the rest of it; it is whole and durable on `Ok`, and has its name if the folder
/// was synced.
pub(super) async fn fetch(session: &Arc<PullSession>, wanted: &Wanted) -> Result<()> {
    for _ in 0..TRIES {
        if fetch_once(session, wanted).await? {
            return Ok(());
        }
        let (storage, path) = (Arc::clone(&session.storage), wanted.path.clone());
        on_thread(move || Ok(storage.remove_all(&path)?)).await?;
        session.live.lost(wanted.len);
    }
    Err(wanted.damaged(session, format!("its BLAKE3 is not {}", wanted.b3.to_hex())))
}

/// Fetches what is missing; whether the file is the right one.
async fn fetch_once(session: &Arc<PullSession>, wanted: &Wanted) -> Result<bool> {
    let (storage, opened) = (Arc::clone(&session.storage), wanted.clone());
    let mut draft = on_thread(move || Draft::open(&*storage, &opened)).await?;
    session.live.there(draft.len);
    let (from, part) = (draft.len, session.options.part_bytes.next_multiple_of(BLOCK_BYTES));
    let ranges = (0..).map_while(|n: u64| {
        let start = from.checked_add(n.checked_mul(part)?)?;
        (start < wanted.len).then(|| start..wanted.len.min(start.saturating_add(part)))
    });
    let fetched = stream::iter(ranges).map(|range| fetch_range(session, wanted, range));
    let mut fetched = Box::pin(fetched.buffered(session.options.concurrency.max(1)));
    let mut next = fetched.try_next().await?;
    while let Some((pieces, permit)) = next {
        let appended = on_thread(move || {
            draft.append(&pieces)?;
            drop(permit);
            Ok(draft)
        });
        // The next ranges come while this one goes to the disk.
        let (following, appended) = futures::join!(fetched.try_next(), appended);
        draft = appended?;
        next = following?;
    }
    let b3 = wanted.b3;
    on_thread(move || draft.finish(&b3)).await
}

/// Fetches a range of the object, which holds what was sealed as far as its blocks tell.
async fn fetch_range(
    session: &PullSession,
    wanted: &Wanted,
    range: Range<u64>,
) -> Result<(Vec<Bytes>, OwnedSemaphorePermit)> {
    let permit = session.permit().await?;
    let mut said = String::new();
    for _ in 0..TRIES {
        session.go_on()?;
        let pieces = get(session, &wanted.name, range.clone()).await?;
        let n: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        session.live.received(n);
        if n != range.end - range.start {
            said = format!("{n} bytes came of {} from {}", range.end - range.start, range.start);
        } else if wanted.agrees(range.start, &pieces) {
            session.live.there(n);
            return Ok((pieces, permit));
        } else {
            said = format!("bytes {} to {} are not what was sealed", range.start, range.end);
        }
    }
    Err(wanted.damaged(session, said))
}

async fn get(session: &PullSession, name: &str, range: Range<u64>) -> Result<Vec<Bytes>> {
    let remote = &session.remote;
    let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
    let got = async {
        let answer = remote.store().get_opts(&remote.path(name), options).await?;
        answer.into_stream().try_collect().await
    };
    tokio::select! {
        biased;
        () = session.stop.cancelled() => Err(PullError::Stopped),
        pieces = got => pieces.map_err(|e| remote.error("read", name, &e).into()),
    }
}

/// The local file, as far as it is here.
struct Draft {
    file: Box<dyn AppendFile>,
    hasher: blake3::Hasher,
    len: u64,
}

impl Draft {
    /// Opens what an earlier pull left, or begins. Of what is there, the blocks count that are whole
    /// and right, as far as that is known.
    fn open(storage: &dyn Storage, wanted: &Wanted) -> Result<Self> {
        let (mut hasher, mut len) = (blake3::Hasher::new(), 0);
        let Some(found) = storage.stat(&wanted.path)?.map(|entry| entry.len) else {
            let file = storage.create(&wanted.path)?;
            return Ok(Self { file, hasher, len });
        };
        let reader = storage.open(&wanted.path)?;
        let usable = found.min(wanted.len);
        while len < usable {
            let n = BLOCK_BYTES.min(usable - len);
            if n < BLOCK_BYTES && len + n < wanted.len {
                break;
            }
            let mut block = vec![0; usize::try_from(n).unwrap_or_default()];
            reader.read_at(&mut block, len)?;
            let block = [Bytes::from(block)];
            if !wanted.agrees(len, &block) {
                break;
            }
            for bytes in &block {
                hasher.update(bytes);
            }
            len += n;
        }
        drop(reader);
        Ok(Self { file: storage.open_append(&wanted.path, len)?, hasher, len })
    }

    fn append(&mut self, pieces: &[Bytes]) -> Result<()> {
        for piece in pieces {
            self.hasher.update(piece);
            self.file.append(piece)?;
            self.len += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes the bytes durable, if they are the right ones.
    fn finish(mut self, b3: &blake3::Hash) -> Result<bool> {
        if self.hasher.finalize() != *b3 {
            return Ok(false);
        }
        self.file.sync()?;
        Ok(true)
    }
}

/// Puts a small file in place at `path` by way of the folder `staging`.
///
/// # Durability
/// As `write_atomic`.
pub(super) fn put(storage: &dyn Storage, staging: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let draft = staging.join(path.file_name().unwrap_or_default());
    storage.write_atomic(&draft, bytes)?;
    publish(storage, &draft, path)
}

/// Moves a durable file to its place.
pub(super) fn publish(storage: &dyn Storage, draft: &Path, path: &Path) -> Result<()> {
    storage.rename(draft, path)?;
    storage.sync_dir(crate::storage::parent(path))?;
    Ok(storage.sync_dir(crate::storage::parent(draft))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_compared_however_they_were_cut() {
        let bytes: Vec<u8> = (0..2_500_000_u32).map(|i| i.to_le_bytes()[i as usize % 3]).collect();
        let crcs: Vec<u32> = bytes.chunks(1 << 20).map(crc32fast::hash).collect();
        let (path, b3) = (PathBuf::new(), blake3::hash(&bytes));
        let name = String::new();
        let wanted = Wanted { name, path, len: bytes.len() as u64, b3, crcs: Some(crcs.into()) };
        let cut = |from: usize, n: usize| -> Vec<Bytes> {
            bytes[from..].chunks(n).map(Bytes::copy_from_slice).collect()
        };
        for n in [1000, 1 << 20, 3 << 20] {
            assert!(wanted.agrees(0, &cut(0, n)), "{n}");
            assert!(wanted.agrees(1 << 20, &cut(1 << 20, n)), "{n}");
            assert!(!wanted.agrees(0, &cut(1 << 20, n)), "{n}");
            assert!(!wanted.agrees(1 << 20, &cut(0, n)), "{n}");
        }
    }
}
