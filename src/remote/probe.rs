//! Finds out what a place can do, by doing it with small objects of its own.
//!
//! Leaves out: what follows from it for a push, which `exporters` decide.
//!
//! Invariants:
//! 1. It writes and removes nothing but objects whose names begin with [`PREFIX`] and hold a random
//!    number.
//! 2. What it has written is removed again, also where a later step fails; only a store that refuses
//!    to delete keeps it, and that is said.
//! 3. A store that takes a condition and does not keep it counts as one that lacks it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectStoreExt, PutMode, PutPayload, PutResult, UpdateVersion,
};

use super::shared_disk::lock_of;
use super::{Pending, Remote, RemoteError, RemoteErrorKind};

/// How the names of objects begin that a probe writes.
pub const PREFIX: &str = ".rowmill-probe-";

/// What is written.
const TEXT: &[u8] = b"written by `rowmill`; it can be deleted\n";

/// A name that no other object has.
fn name() -> String {
    format!("{PREFIX}{}", random())
}

/// 16 hex digits that nobody else draws.
pub(crate) fn random() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// What a place can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The place.
    pub url: String,
    /// What was tried, in order. Where the first fails for a reason that all would, it is the only one.
    pub steps: Vec<Step>,
    /// Whether an object is created only where none is.
    pub conditional_create: bool,
    /// Whether an object is replaced only if it is the one that was meant.
    pub conditional_replace: bool,
    /// Whether large objects can be written in parts.
    pub multipart: bool,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// "list", "write", "create only", "replace only", "write in parts", "read a range", "delete".
    pub name: &'static str,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Works,
    /// The store does not offer it; a push goes on without. The text says what that means.
    Lacking(&'static str),
    /// A push would fail.
    Fails(RemoteError),
}

impl Probe {
    /// The first step that would make a push fail.
    #[must_use]
    pub fn failure(&self) -> Option<&RemoteError> {
        self.steps.iter().find_map(|step| match &step.outcome {
            Outcome::Fails(error) => Some(error),
            Outcome::Works | Outcome::Lacking(_) => None,
        })
    }
}

const NO_CREATE: &str = "two who push the same dataset at once are not told of each other: the last one's `_COMPLETE` \
                         stays";
const NO_REPLACE: &str = "two who push another generation at once are not told of each other: the last one's \
                          `_COMPLETE` stays";
const NO_PARTS: &str = "each file is written by one request";

/// Tries everything that a push does at `remote`. Runs on a tokio runtime.
///
/// # Cancel safety
/// What was written stays if it is dropped.
pub async fn probe(remote: &Remote) -> Probe {
    let name = name();
    let mut probe = Probe {
        url: remote.url().to_owned(),
        steps: Vec::new(),
        conditional_create: false,
        conditional_replace: false,
        multipart: false,
    };
    let run = Run {
        remote,
        whole: remote.path(&name),
        parts: remote.path(&format!("{name}-parts")),
        name,
    };
    if let Err(error) = remote.expect_writable() {
        probe.steps.push(Step { name: "write", outcome: Outcome::Fails(error) });
        return probe;
    }
    let mut note = |name, outcome: Outcome| {
        let works = outcome == Outcome::Works;
        probe.steps.push(Step { name, outcome });
        works
    };
    if !note("list", run.list().await) || !note("write", run.write().await) {
        return probe;
    }
    let conditional_create = note("create only", run.create().await);
    let conditional_replace = note("replace only", run.replace().await);
    let multipart = note("write in parts", run.write_parts().await);
    note("read a range", run.read().await);
    note("delete", run.delete().await);
    Probe { conditional_create, conditional_replace, multipart, ..probe }
}

impl Remote {
    /// As [`probe`], from a thread that may block.
    ///
    /// # Errors
    /// The system refuses threads. What the store refuses stands in the answer.
    pub fn probe(&self) -> Result<Probe, RemoteError> {
        let remote = self.clone();
        let asked = async move { Ok(probe(&remote).await) };
        Pending::new(self.url().to_owned(), asked)?.wait()
    }
}

struct Run<'a> {
    remote: &'a Remote,
    name: String,
    whole: Path,
    parts: Path,
}

impl Run<'_> {
    fn fails(&self, op: &'static str, error: &Error) -> Outcome {
        Outcome::Fails(self.remote.error(op, &self.name, error))
    }

    /// An error of a step that a push can do without.
    fn lacks(&self, op: &'static str, error: &Error, means: &'static str) -> Outcome {
        let error = self.remote.error(op, &self.name, error);
        match error.kind() {
            RemoteErrorKind::Unsupported => Outcome::Lacking(means),
            _ => Outcome::Fails(error),
        }
    }

    async fn list(&self) -> Outcome {
        // One page of what stands below the place, which may be much.
        let found = self.remote.store().list(Some(&self.whole)).try_next().await;
        match found {
            Ok(_) => Outcome::Works,
            Err(e) => Outcome::Fails(self.remote.error("list", "", &e)),
        }
    }

    async fn put(&self, mode: PutMode) -> Result<PutResult, Error> {
        self.remote.put(&self.whole, TEXT.into(), mode.into()).await
    }

    async fn write(&self) -> Outcome {
        match self.put(PutMode::Overwrite).await {
            Ok(_) => Outcome::Works,
            Err(e) => self.fails("write", &e),
        }
    }

    /// It is there: creating it must be refused.
    async fn create(&self) -> Outcome {
        match self.put(PutMode::Create).await {
            Ok(_) => Outcome::Lacking(NO_CREATE),
            Err(Error::AlreadyExists { .. }) => Outcome::Works,
            Err(e) => self.lacks("create", &e, NO_CREATE),
        }
    }

    /// It is replaced by who knows its `ETag`, and then not by who knows that one still.
    async fn replace(&self) -> Outcome {
        let first = match self.remote.store().head(&self.whole).await {
            Ok(meta) => UpdateVersion { e_tag: meta.e_tag, version: meta.version },
            Err(e) => return self.fails("look at", &e),
        };
        // Another text, so that its `ETag` is another where that is made of the content.
        let other = PutPayload::from_static(b"replaced by `rowmill check`; it can be deleted\n");
        let mode = PutMode::Update(first.clone());
        let put = self.remote.put(&self.whole, other, mode.into()).await;
        if let Err(e) = put {
            return self.lacks("replace", &e, NO_REPLACE);
        }
        match self.put(PutMode::Update(first)).await {
            Ok(_) => Outcome::Lacking(NO_REPLACE),
            Err(Error::Precondition { .. }) => Outcome::Works,
            Err(e) => self.lacks("replace", &e, NO_REPLACE),
        }
    }

    async fn write_parts(&self) -> Outcome {
        let Some(store) = self.remote.multipart() else { return Outcome::Lacking(NO_PARTS) };
        let id = match store.create_multipart(&self.parts).await {
            Ok(id) => id,
            Err(e) => return self.lacks("begin an upload of", &e, NO_PARTS),
        };
        let written = async {
            let part = store.put_part(&self.parts, &id, 0, TEXT.into()).await?;
            store.complete_multipart(&self.parts, &id, vec![part]).await
        };
        let Err(error) = written.await else { return Outcome::Works };
        // The answer to what failed is told; that the rest of it cannot be removed adds nothing.
        store.abort_multipart(&self.parts, &id).await.ok();
        self.lacks("write in parts", &error, NO_PARTS)
    }

    async fn read(&self) -> Outcome {
        let options = GetOptions { range: Some(GetRange::Bounded(2..9)), ..GetOptions::default() };
        let got = async { self.remote.store().get_opts(&self.whole, options).await?.bytes().await };
        match got.await {
            Ok(bytes) if bytes.len() == 7 => Outcome::Works,
            Ok(_) => {
                let said = Some("a range of another length came".to_owned());
                let (url, kind) = (self.remote.show(&self.name), RemoteErrorKind::Damaged);
                Outcome::Fails(RemoteError::of("read", url, kind, said))
            }
            Err(e) => self.fails("read", &e),
        }
    }

    async fn delete(&self) -> Outcome {
        let mut outcome = Outcome::Works;
        for path in [&self.whole, &self.parts, &lock_of(&self.whole)] {
            match self.remote.store().delete(path).await {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(e) => outcome = self.fails("delete", &e),
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::RemoteOptions;

    #[test]
    fn a_disk_can_create_and_replace_and_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        let remote = Remote::open(&url, &RemoteOptions::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let probe = runtime.block_on(probe(&remote));
        let got: Vec<_> = probe.steps.iter().map(|step| (step.name, &step.outcome)).collect();
        let works = &Outcome::Works;
        assert_eq!(
            got,
            [
                ("list", works),
                ("write", works),
                ("create only", works),
                ("replace only", works),
                ("write in parts", &Outcome::Lacking(NO_PARTS)),
                ("read a range", works),
                ("delete", works),
            ]
        );
        assert!(probe.conditional_create && probe.conditional_replace && !probe.multipart);
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_place_that_can_only_be_read_fails_at_once() {
        let remote = Remote::open("https://example.org/x", &RemoteOptions::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let probe = runtime.block_on(probe(&remote));
        assert_eq!(probe.failure().unwrap().kind(), RemoteErrorKind::Unsupported);
    }
}
