//! What transforms say beside the dataset: files in `work/rejects/` for people, numbered as they come,
//! and that what they have made is in doubt.
//!
//! Invariant: nothing that is built depends on them. There are never more than [`MOST`]: the oldest go.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::Pipeline;
use crate::dataset::{Home, doubt};
use crate::storage::{Result, Storage};
use crate::transforms::Notes;

/// Files that are kept.
const MOST: u64 = 256;

/// The folder that holds them.
#[derive(Debug)]
pub(super) struct WorkNotes {
    storage: Arc<dyn Storage>,
    home: Home,
    /// Numbers and names of those that are there, in order; looked up before the first is added.
    numbers: Mutex<Option<Vec<(u64, String)>>>,
}

impl Pipeline {
    /// Tells the transforms where to leave their notes.
    pub(super) fn begin_transforms(&self) {
        let notes: Arc<dyn Notes> = Arc::new(WorkNotes {
            storage: Arc::clone(&self.storage),
            home: self.home.clone(),
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
        let path = self.home.notes().join(&file);
        self.storage.write_atomic(&path, text)?;
        known.push((number, file));
        while known.len() as u64 > MOST {
            let (_, oldest) = known.remove(0);
            self.storage.remove_all(&self.home.notes().join(oldest))?;
        }
        Ok(path)
    }

    /// Those that are there, the oldest first.
    fn list(&self) -> Result<Vec<(u64, String)>> {
        self.storage.create_dir(&self.home.notes())?;
        let entries = self.storage.list(&self.home.notes())?.unwrap_or_default();
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

    fn distrust(&self, what: &str) {
        if let Err(error) = doubt::note(&*self.storage, &self.home, what) {
            tracing::error!(%error, "that answers are in doubt is not noted: remove what is not complete");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::storage::Overlap;
    use crate::storage::memory::Memory;

    #[test]
    fn the_oldest_notes_go_and_numbers_go_on_from_run_to_run() {
        let memory = Memory::new(Overlap::Now);
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        let home = Home::new(Path::new("/"), "d", &"0".repeat(16)).unwrap();
        storage.create_dir_all(&home.work()).unwrap();
        let dir = home.notes();
        let shown = |n: u64| Some(dir.join(format!("{n}-hog.txt")).display().to_string());
        let run = || WorkNotes {
            storage: Arc::clone(&storage),
            home: home.clone(),
            numbers: Mutex::default(),
        };
        let first = run();
        for n in 0..MOST {
            assert_eq!(first.keep("hog", b"x"), shown(n));
        }
        assert_eq!(run().keep("hog", b"y"), shown(MOST));
        let left = storage.list(&dir).unwrap().unwrap();
        assert_eq!(left.len() as u64, MOST);
        assert!(left.iter().all(|entry| entry.name != "0-hog.txt"));
    }
}
