//! Replacing a file on a shared disk only while it is the one that was seen.
//!
//! A file can be created where none is, by a link, and put in the place of whatever is there, by a
//! rename; nothing does the latter under a condition. Whoever does takes a lock for it.
//!
//! Invariants:
//! 1. Of all who replace a file conditionally, one at a time looks at it and replaces it. The lock is
//!    the file `<name>.lock` beside it, which stays; the system gives it back when its owner dies.
//! 2. Where the condition is not met, nothing is written and no lock is made.

use std::path::PathBuf;
use std::time::Duration;

use object_store::path::Path;
use object_store::{
    Error, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult, Result, UpdateVersion,
};
use tokio::task::JoinSet;

use super::{Remote, Scheme};
use crate::storage::{Local, Lock, LockGuard, Storage};

/// How long after somebody else was met.
const AGAIN: Duration = Duration::from_millis(20);

/// How often.
const TRIES: usize = 3_000;

impl Remote {
    /// Puts an object in its place, under the condition that `options` have: as the store does it, or
    /// on a shared disk, which has no such thing, under a lock.
    ///
    /// # Errors
    /// The store's: [`Error::Precondition`] where another object is to be replaced.
    pub async fn put(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        match &options.mode {
            PutMode::Update(version) if self.scheme() == Scheme::File => {
                let version = version.clone();
                self.replace(path, payload, options, &version).await
            }
            _ => self.store().put_opts(path, payload, options).await,
        }
    }

    async fn replace(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
        version: &UpdateVersion,
    ) -> Result<PutResult> {
        self.expect(path, version).await?;
        let guard = lock(lock_of(path)).await?;
        self.expect(path, version).await?;
        let options = PutOptions { mode: PutMode::Overwrite, ..options };
        let put = self.store().put_opts(path, payload, options).await;
        drop(guard);
        put
    }

    async fn expect(&self, path: &Path, version: &UpdateVersion) -> Result<()> {
        let there = self.store().head(path).await?.e_tag;
        if there.is_some() && there == version.e_tag {
            return Ok(());
        }
        let source = "another file is there".into();
        Err(Error::Precondition { path: path.to_string(), source })
    }
}

/// The lock of a file.
pub(super) fn lock_of(path: &Path) -> Path {
    Path::parse(format!("{path}.lock")).unwrap_or_else(|_| path.clone())
}

/// Waits for the lock.
async fn lock(path: Path) -> Result<Box<dyn LockGuard>> {
    let failed = |said: String| Error::Generic { store: "shared disk", source: said.into() };
    let mut holder = String::new();
    for _ in 0..TRIES {
        let file = PathBuf::from("/").join(path.as_ref());
        let mut trying = JoinSet::new();
        trying.spawn_blocking(move || Local.lock(&file, &owner()));
        match trying.join_next().await {
            Some(Ok(Ok(Lock::Held(guard)))) => return Ok(guard),
            Some(Ok(Ok(Lock::Busy(other)))) => holder = other,
            Some(Ok(Err(error))) => return Err(failed(error.to_string())),
            Some(Err(error)) => return Err(failed(error.to_string())),
            None => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
    Err(failed(format!("`/{path}` is locked by {holder}")))
}

/// Who we are, for whoever finds the lock taken.
fn owner() -> String {
    let uname = rustix::system::uname();
    format!("pid {} on {}", std::process::id(), uname.nodename().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;
    use crate::remote::RemoteOptions;

    #[test]
    fn of_all_who_replace_what_they_saw_one_wins() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        let remote = Remote::open(&url, &RemoteOptions::default()).unwrap();
        let path = remote.path("a b/_COMPLETE");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
        runtime.unwrap().block_on(async {
            let first = remote.put(&path, "first".into(), PutMode::Create.into()).await.unwrap();
            let update = || PutOptions::from(PutMode::Update(first.clone().into()));
            let racing = (0..8).map(|n| remote.put(&path, format!("{n}").into(), update()));
            let ended = join_all(racing).await;
            let winner = ended.iter().position(Result::is_ok).unwrap();
            for (n, ended) in ended.iter().enumerate().filter(|(n, _)| *n != winner) {
                assert!(matches!(ended, Err(Error::Precondition { .. })), "{n}: {ended:?}");
            }
            let there = remote.store().get(&path).await.unwrap().bytes().await.unwrap();
            assert_eq!(there, winner.to_string());
            let other = remote.path("a b/other");
            let absent = remote.put(&other, "x".into(), update()).await;
            assert!(matches!(absent, Err(Error::NotFound { .. })), "{absent:?}");
        });
        let mut names: Vec<_> = dir
            .path()
            .join("a b")
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["_COMPLETE", "_COMPLETE.lock"]);
    }
}
