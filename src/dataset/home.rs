//! Where a dataset lives: the names in its folder, the one writer's lock, `current` and the trash.
//!
//! Leaves out: what the files hold.
//!
//! Invariants:
//! 1. Every directory a later step relies on is durable before [`Workplace::open`] returns.
//! 2. Whoever has a [`Workplace`] is the only writer of its folder.
//! 3. `current` points at complete datasets only: [`Workplace::set_current`] asks for the proof.
//! 4. What is removed is first renamed into the trash; a crash leaves it there for the next run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{DatasetError, Result};
use super::sentinel::Sentinel;
use crate::shard::layout::{self, COMPLETE};
use crate::shard::{discard, empty_trash};
use crate::storage::{EntryKind, Lock, LockGuard, Storage, parent};

/// The name of the symbolic link to the last complete run's cache key.
pub const CURRENT: &str = "current";

/// What stands for that link where there are no links: in stores, and so in a folder that was pushed to.
pub const CURRENT_DOCUMENT: &str = "current.json";

/// The folder of the partition records.
pub const PARTITIONS: &str = "partitions";

/// The folder, at a place that is pushed to, in which pushes say that they are at work.
pub const PUSHING: &str = "pushing";

/// The paths of one dataset: `<out>/<name>/<cache key>/…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    name_dir: PathBuf,
    dir: PathBuf,
    name: String,
    cache_key: String,
}

impl Home {
    /// The dataset `name` of `cache_key` below `out`.
    ///
    /// # Errors
    /// A name or key that cannot be that of one folder.
    pub fn new(out: &Path, name: &str, cache_key: &str) -> Result<Self> {
        let plain = |s: &str| !s.is_empty() && !s.starts_with('.') && !s.contains(['/', '\0']);
        if !plain(name) || name.len() > 200 {
            return Err(DatasetError::Name { name: name.to_owned() });
        }
        if !is_hex(cache_key, 16) {
            return Err(DatasetError::Name { name: cache_key.to_owned() });
        }
        let name_dir = out.join(name);
        let dir = name_dir.join(cache_key);
        Ok(Self { name_dir, dir, name: name.to_owned(), cache_key: cache_key.to_owned() })
    }

    /// The dataset's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cache key that names the folder.
    #[must_use]
    pub fn cache_key(&self) -> &str {
        &self.cache_key
    }

    /// The folder of the cache key.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The symbolic link to the last complete run.
    #[must_use]
    pub fn current(&self) -> PathBuf {
        self.name_dir.join(CURRENT)
    }

    /// The writer's lock.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.name_dir.join(format!("{}.lock", self.cache_key))
    }

    /// The dataset's sentinel.
    #[must_use]
    pub fn sentinel(&self) -> PathBuf {
        self.dir.join(COMPLETE)
    }

    /// A manifest or key index.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The partition records.
    #[must_use]
    pub fn partitions(&self) -> PathBuf {
        self.dir.join(PARTITIONS)
    }

    /// The sealed shards.
    #[must_use]
    pub fn shards(&self) -> PathBuf {
        layout::shards(&self.dir)
    }

    /// One sealed shard.
    #[must_use]
    pub fn shard(&self, id: &str) -> PathBuf {
        layout::sealed(&self.dir, id)
    }

    /// The writer's state.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        layout::work(&self.dir)
    }

    /// The open shards of a partition.
    #[must_use]
    pub fn open_shards(&self, slot: &str) -> PathBuf {
        layout::open_shards(&self.dir, slot)
    }

    /// The log of a partition's sealed shards.
    #[must_use]
    pub fn log(&self, slot: &str) -> PathBuf {
        layout::log(&self.dir, slot)
    }

    /// What a partition's inputs looked like when it was begun.
    #[must_use]
    pub fn begun(&self, slot: &str) -> PathBuf {
        layout::logs(&self.dir).join(format!("{slot}.inputs"))
    }

    /// Sizes, times and digests of inputs seen before.
    #[must_use]
    pub fn stamps(&self) -> PathBuf {
        self.work().join("stamps.jsonl")
    }

    /// The facts fixed when the build was planned.
    #[must_use]
    pub fn facts(&self) -> PathBuf {
        self.work().join("plan.json")
    }

    /// What sources in object stores listed when the build began.
    #[must_use]
    pub fn listing(&self) -> PathBuf {
        self.work().join("listing.jsonl")
    }

    /// What the last run set out to do.
    #[must_use]
    pub fn run_note(&self) -> PathBuf {
        self.work().join("run.json")
    }

    /// Runs of keys that are being merged.
    #[must_use]
    pub fn key_runs(&self) -> PathBuf {
        self.work().join("keys")
    }

    /// Why what is not part of a generation is in doubt.
    #[must_use]
    pub fn doubt(&self) -> PathBuf {
        self.work().join("doubt")
    }

    /// What pushes have begun and done.
    #[must_use]
    pub fn pushes(&self) -> PathBuf {
        self.work().join("push")
    }

    /// What was said of rows that were rejected, for people.
    #[must_use]
    pub fn notes(&self) -> PathBuf {
        self.work().join("rejects")
    }

    /// What is about to be deleted.
    #[must_use]
    pub fn trash(&self) -> PathBuf {
        layout::trash(&self.dir)
    }
}

/// A dataset's folder in the hands of its one writer.
#[derive(Debug)]
pub struct Workplace {
    storage: Arc<dyn Storage>,
    home: Home,
    _lock: Box<dyn LockGuard>,
}

impl Workplace {
    /// Makes the folder, takes its lock and empties its trash.
    ///
    /// # Errors
    /// [`DatasetError::Busy`] if another process holds the lock.
    ///
    /// # Durability
    /// On `Ok` every directory of the home survives a power cut.
    pub fn open(storage: Arc<dyn Storage>, home: Home) -> Result<Self> {
        storage.create_dir_all(&home.name_dir)?;
        let lock = match storage.lock(&home.lock(), &owner())? {
            Lock::Held(lock) => lock,
            Lock::Busy(holder) => {
                return Err(DatasetError::Busy { path: home.dir.clone(), holder });
            }
        };
        let work = home.work();
        for dir in [home.dir.clone(), home.partitions(), home.shards(), work.clone()] {
            make_durable(&*storage, &dir)?;
        }
        for below in ["open", "log", "trash"] {
            make_durable(&*storage, &work.join(below))?;
        }
        let it = Self { storage, home, _lock: lock };
        empty_trash(&*it.storage, &it.home.dir)?;
        let sentinel = it.home.dir.join(format!("{COMPLETE}.tmp"));
        for left_over in [it.current_tmp(), sentinel, it.home.key_runs()] {
            it.storage.remove_all(&left_over)?;
        }
        Ok(it)
    }

    /// The paths.
    #[must_use]
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The disk it lies on.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Bytes that may still be written here, `None` where that cannot be known.
    ///
    /// # Errors
    /// The disk's.
    pub fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(self.storage.free_bytes(&self.home.dir)?)
    }

    /// Lets `current` point at this cache key, whose dataset is complete.
    ///
    /// # Errors
    /// [`DatasetError::NotALink`] if something else stands under that name.
    ///
    /// # Durability
    /// At any moment `current` is the old link or the new one; on `Ok` the new one survives a power
    /// cut.
    pub fn set_current(&self, _proof: &Sentinel) -> Result<()> {
        let current = self.home.current();
        if self.storage.read_link(&current)?.as_deref() == Some(self.home.cache_key()) {
            // It may have been put there by a run that was cut off before this sync.
            return Ok(self.storage.sync_dir(&self.home.name_dir)?);
        }
        let there = self.storage.stat(&current)?.map(|entry| entry.kind);
        if matches!(there, Some(EntryKind::File | EntryKind::Dir)) {
            return Err(DatasetError::NotALink { path: current });
        }
        let tmp = self.current_tmp();
        self.storage.remove_all(&tmp)?;
        self.storage.symlink(self.home.cache_key(), &tmp)?;
        self.storage.rename(&tmp, &current)?;
        Ok(self.storage.sync_dir(&self.home.name_dir)?)
    }

    /// Removes a file or directory of this home, if it is there.
    ///
    /// # Durability
    /// On `Ok` its name stays away after a power cut. After an error or a crash it is where it was,
    /// whole, or in the trash.
    ///
    /// # Errors
    /// The disk's.
    pub fn discard(&self, path: &Path) -> Result<()> {
        if self.storage.stat(path)?.is_none() {
            return Ok(());
        }
        // The whole path below the home names it, so that threads do not meet in the trash. Another
        // cache key lies beside it.
        let inside = path.strip_prefix(&self.home.dir);
        let inside = inside.or_else(|_| path.strip_prefix(&self.home.name_dir)).unwrap_or(path);
        let label = inside.to_string_lossy().replace('/', "-");
        Ok(discard(&*self.storage, &self.home.dir, path, &label)?)
    }

    /// Where a file is written before it is renamed into place.
    pub(super) fn temporary(&self, what: &str) -> PathBuf {
        self.home.work().join(format!("{what}.tmp"))
    }

    fn current_tmp(&self) -> PathBuf {
        self.home.name_dir.join(format!("{}.current.tmp", self.home.cache_key))
    }
}

/// Where `current` in the folder `name_dir` leads: the link, or the document where there is no link.
/// What names no cache key leads nowhere.
///
/// # Errors
/// The disk's.
pub(crate) fn current_of(storage: &dyn Storage, name_dir: &Path) -> Result<Option<String>> {
    if let Some(target) = storage.read_link(&name_dir.join(CURRENT))? {
        return Ok(Some(target));
    }
    let Some(bytes) = storage.read(&name_dir.join(CURRENT_DOCUMENT))? else { return Ok(None) };
    let document: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
    let key = document.as_ref().and_then(|it| it.get("cache_key")?.as_str());
    Ok(Some(key.unwrap_or_default().to_owned()))
}

/// Makes a directory below a durable one. Syncs the parent even if the directory is there: an
/// earlier run may have been cut off before it could.
fn make_durable(storage: &dyn Storage, dir: &Path) -> Result<()> {
    storage.create_dir(dir)?;
    Ok(storage.sync_dir(parent(dir))?)
}

/// Who we are, for whoever finds the lock taken.
pub(crate) fn owner() -> String {
    let uname = rustix::system::uname();
    format!("pid {} on {}", std::process::id(), uname.nodename().to_string_lossy())
}

/// Whether `s` is `n` lower-case hex digits.
pub(crate) fn is_hex(s: &str, n: usize) -> bool {
    s.len() == n && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Overlap;
    use crate::storage::memory::{Memory, survivals};

    const KEY: &str = "0123456789abcdef";
    const OTHER: &str = "fedcba9876543210";

    fn home(key: &str) -> Home {
        Home::new(Path::new("/out"), "digits", key).unwrap()
    }

    fn open(memory: &Memory, key: &str) -> Result<Workplace> {
        Workplace::open(Arc::new(memory.clone()), home(key))
    }

    fn sentinel() -> Sentinel {
        Sentinel::of_manifest("manifest-00.jsonl".to_owned(), &blake3::hash(b""), 0, 0)
    }

    #[test]
    fn names_that_are_not_one_folder_are_refused() {
        let long = "x".repeat(201);
        for (name, key) in [
            ("", KEY),
            ("..", KEY),
            (".hidden", KEY),
            ("a/b", KEY),
            (long.as_str(), KEY),
            ("a", "0123456789ABCDEF"),
            ("a", "../456789abcdef0"),
            ("a", "0123"),
        ] {
            assert!(Home::new(Path::new("/out"), name, key).is_err(), "{name} {key}");
        }
    }

    #[test]
    fn a_second_writer_is_told_who_holds_the_lock() {
        let memory = Memory::new(Overlap::Now);
        let first = open(&memory, KEY).unwrap();
        let error = open(&memory, KEY).unwrap_err();
        let want = format!(
            "`/out/digits/{KEY}` is being written by another run (pid {} on ",
            std::process::id()
        );
        assert!(error.to_string().starts_with(&want), "{error}");
        assert!(error.hint().unwrap().contains("wait"));
        open(&memory, OTHER).expect("another cache key is another dataset");
        drop(first);
        open(&memory, KEY).expect("the lock is given back");
    }

    #[test]
    fn every_directory_is_durable_once_the_place_is_open() {
        let memory = Memory::new(Overlap::Now);
        drop(open(&memory, KEY).unwrap());
        let rebooted = memory.after_power_cut(&|_| false);
        let home = home(KEY);
        for dir in [home.partitions(), home.shards(), home.trash(), home.work().join("open")] {
            let kind = rebooted.stat(&dir).unwrap().map(|entry| entry.kind);
            assert_eq!(kind, Some(EntryKind::Dir), "{}", dir.display());
        }
    }

    #[test]
    fn current_is_the_old_link_or_the_new_one_wherever_the_power_is_cut() {
        let memory = Memory::new(Overlap::Now);
        open(&memory, OTHER).unwrap().set_current(&sentinel()).unwrap();
        let place = open(&memory, KEY).unwrap();
        let (start, clean) = (memory.operations(), memory.after_power_cut(&|_| true));
        place.set_current(&sentinel()).unwrap();
        let n_operations = memory.operations() - start;
        assert!(n_operations >= 3);
        for n in 0..n_operations {
            let run = clean.after_power_cut(&|_| true);
            let place = open(&run, KEY).unwrap();
            run.cut_at(run.operations() + n);
            place.set_current(&sentinel()).unwrap_err();
            for survival in survivals(run.pending(), 1, 8) {
                let boot = run.after_power_cut(&|i| survival.survives(i));
                let link = boot.read_link(&home(KEY).current()).unwrap().unwrap();
                assert!(link == KEY || link == OTHER, "{link} after cut {n}, {survival:?}");
                open(&boot, KEY).unwrap().set_current(&sentinel()).unwrap();
                let names = boot.list(Path::new("/out/digits")).unwrap().unwrap();
                assert!(names.iter().all(|e| !e.name.contains("tmp")), "{names:?}");
            }
        }
        assert_eq!(memory.read_link(&home(KEY).current()).unwrap().as_deref(), Some(KEY));
    }

    #[test]
    fn a_folder_in_the_place_of_current_is_left_alone() {
        let memory = Memory::new(Overlap::Now);
        let place = open(&memory, KEY).unwrap();
        memory.create_dir(&place.home().current()).unwrap();
        let error = place.set_current(&sentinel()).unwrap_err();
        assert_eq!(error.to_string(), "`/out/digits/current` is not a symbolic link");
    }

    #[test]
    fn what_a_crash_leaves_in_the_trash_goes_at_the_next_start() {
        let memory = Memory::new(Overlap::Now);
        let trash = home(KEY).trash();
        drop(open(&memory, KEY).unwrap());
        memory.create_dir_all(&trash.join("x/y")).unwrap();
        memory.write_atomic(&trash.join("x/y/z"), b"z").unwrap();
        drop(open(&memory, KEY).unwrap());
        assert_eq!(memory.list(&trash).unwrap().unwrap(), []);
    }

    #[test]
    fn what_is_discarded_stays_away() {
        let memory = Memory::new(Overlap::Now);
        let place = open(&memory, KEY).unwrap();
        let open_shards = place.home().open_shards("slot");
        memory.create_dir_all(&open_shards.join("0")).unwrap();
        place.discard(&open_shards).unwrap();
        place.discard(&open_shards).expect("gone is fine");
        let boot = memory.after_power_cut(&|_| false);
        assert_eq!(boot.stat(&open_shards).unwrap(), None);
        assert_eq!(memory.list(&place.home().trash()).unwrap().unwrap(), []);
    }
}
