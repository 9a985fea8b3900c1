//! Storages whose files are too far away to be mapped: they are read in pieces.
//!
//! Leaves out: reaching them, and what of them is kept (`remote`).
//!
//! Invariant: what is read of a file is of the state in which it was looked at, and of a block that has
//! a sum only what agrees with it.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use super::{ReadFile, Result};

/// How many things are waited for at once.
const AT_ONCE: usize = 16;

/// What is known of a file that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistantFile {
    /// Size in bytes.
    pub len: u64,
    /// What the storage calls its state.
    pub etag: Option<String>,
    /// When it was written.
    pub modified: SystemTime,
}

/// How a file is divided into blocks, which are read and kept as wholes.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// Bytes of each but the last.
    pub bytes: u64,
    /// The CRC-32 of each; `None` where there are no sums.
    pub crcs: Option<Arc<[u32]>>,
}

/// The half of such a storage that rows are read through.
pub trait Distant {
    /// Whether folders can be listed. Web servers only give what is asked for by name.
    fn can_list(&self) -> bool;

    /// Looks at the files `names` of a folder, in that order; `None` for one that is not there.
    fn look(&self, folder: &Path, names: &[&str]) -> Result<Vec<Option<DistantFile>>>;

    /// A file to be read block by block, in the state in which it was looked at. Nothing is read yet.
    fn open_blocks(
        &self,
        path: &Path,
        file: &DistantFile,
        blocks: Blocks,
    ) -> Result<Box<dyn ReadFile>>;
}

/// Does something for each of `items`, several at once, for what is mostly waiting. Results stand in the
/// order of the items; of several errors it is the first one's.
pub(crate) fn side_by_side<T: Sync, R: Send, E: Send>(
    items: &[T],
    each: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    if items.len() < 2 {
        return items.iter().map(each).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            let result = each(item);
            if result.is_err() {
                // Nobody begins with what comes behind it.
                next.store(items.len(), Ordering::Relaxed);
            }
            done.push((index, result));
        }
    };
    let mut done = std::thread::scope(|threads| {
        let others: Vec<_> = (1..AT_ONCE.min(items.len())).map(|_| threads.spawn(work)).collect();
        let mut done = work();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_what_they_are_of() {
        let items: Vec<usize> = (0..100).collect();
        let twice = side_by_side(&items, |n| Ok::<_, usize>(n * 2));
        assert_eq!(twice.unwrap(), (0..100).map(|n| n * 2).collect::<Vec<_>>());
        let refused = side_by_side(&items, |n| if *n < 7 { Ok(()) } else { Err(*n) });
        assert_eq!(refused, Err(7), "those before it were begun before it");
        assert_eq!(side_by_side(&[] as &[usize], |n| Ok::<_, ()>(*n)), Ok(Vec::new()));
    }
}
