//! What transforms say for people to read later: files in `work/rejects/`, numbered as they come.
//!
//! Invariant: nothing that is built depends on them. There are never more than [`MOST`]: the oldest go.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::Pipeline;
use crate::storage::{Result, Storage};
use crate::transforms::Notes;

/// Files that are kept.
const MOST: u64 = 256;

/// The folder that holds them.
#[derive(Debug)]
pub(super) struct WorkNotes {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    /// Numbers and names of those that are there, in order; looked up before the first is added.
    numbers: Mutex<Option<Vec<(u64, String)>>>,
}

impl Pipeline {
    /// Tells the transforms where to leave their notes.
    pub(super) fn begin_transforms(&self) {
        let notes: Arc<dyn Notes> = Arc::new(WorkNotes {
            storage: Arc::clone(&self.storage),
            dir: self.home.notes(),
            numbers: Mutex::default(),
        });
        for (_, transform) in self.named_transforms() {
            transform.begin(Arc::clone(&notes));
        }
    }
}

impl WorkNotes {
    fn write(&self, name: &str, text: &[u8]) -> Result<PathBuf> {
        let mut known = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match &mut *known {
            Some(known) => known,
            none => none.insert(self.list()?),
        };
        let number = known.last().map_or(0, |(number, _)| number + 1);
        let file = format!("{number}-{name}.txt");
        let path = self.dir.join(&file);
        self.storage.write_atomic(&path, text)?;
        known.push((number, file));
        while known.len() as u64 > MOST {
            let (_, oldest) = known.remove(0);
            self.storage.remove_all(&self.dir.join(oldest))?;
        }
        Ok(path)
    }

    /// Those that are there, the oldest first.
    fn list(&self) -> Result<Vec<(u64, String)>> {
        self.storage.create_dir(&self.dir)?;
        let entries = self.storage.list(&self.dir)?.unwrap_or_default();
        let numbered = entries.into_iter().filter_map(|entry| {
            let number = entry.name.split('-').next()?.parse().ok()?;
            Some((number, entry.name))
        });
        let mut numbered: Vec<_> = numbered.collect();
        numbered.sort();
        Ok(numbered)
    }
}

impl Notes for WorkNotes {
    fn keep(&self, name: &str, text: &[u8]) -> Option<String> {
        match self.write(name, text) {
            Ok(path) => Some(path.display().to_string()),
            Err(error) => {
                tracing::warn!(%error, "what a hook said last is not kept");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Overlap;
    use crate::storage::memory::Memory;

    #[test]
    fn the_oldest_notes_go_and_numbers_go_on_from_run_to_run() {
        let memory = Memory::new(Overlap::Now);
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        let dir = PathBuf::from("/rejects");
        let run = || WorkNotes {
            storage: Arc::clone(&storage),
            dir: dir.clone(),
            numbers: Mutex::default(),
        };
        let first = run();
        for n in 0..MOST {
            assert_eq!(first.keep("hog", b"x"), Some(format!("/rejects/{n}-hog.txt")));
        }
        assert_eq!(run().keep("hog", b"y"), Some(format!("/rejects/{MOST}-hog.txt")));
        let left = storage.list(&dir).unwrap().unwrap();
        assert_eq!(left.len() as u64, MOST);
        assert!(left.iter().all(|entry| entry.name != "0-hog.txt"));
    }
}
