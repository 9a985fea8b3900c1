//! Rows of shards that are only in a store, read where they are.
//!
//! Leaves out: what of such a shard is here (`shard::reader`), which is asked first.
//!
//! Invariant: what is read there is of the very shard that was dropped here: it has the same id.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::PipelineError;
use crate::dataset::DatasetError;
use crate::exporters::storage_at;
use crate::remote::{BlockCacheOptions, RemoteOptions};
use crate::shard::{ReadError, Shard};
use crate::storage::Storage;

/// Shards that a command has opened in stores, because their rows are not here.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    opened: Mutex<Opened>,
}

#[derive(Debug, Default)]
struct Opened {
    /// By the URL of their dataset, whose shards share a cache of blocks.
    places: BTreeMap<String, Arc<dyn Storage>>,
    /// By their own URL.
    shards: BTreeMap<String, Arc<Shard>>,
}

impl Elsewhere {
    /// What `read` makes of the shard, or, where it needs rows that are not here, of the same shard in its
    /// store.
    ///
    /// # Errors
    /// Those of `read`, of the store, and of the shard that is there.
    pub(super) fn read<T>(
        &self,
        shard: &Shard,
        read: impl Fn(&Shard) -> Result<T, ReadError>,
    ) -> Result<T, PipelineError> {
        let read = match read(shard) {
            Err(ReadError::Remote { url, .. }) => read(&*self.open(shard, &url)?),
            read => read,
        };
        Ok(read.map_err(DatasetError::from)?)
    }

    fn open(&self, shard: &Shard, url: &str) -> Result<Arc<Shard>, PipelineError> {
        let storage = {
            let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(open) = opened.shards.get(url) {
                return Ok(Arc::clone(open));
            }
            // `<dataset>/shards/<id>`
            let dataset = url.rsplitn(3, '/').nth(2).unwrap_or(url).to_owned();
            match opened.places.entry(dataset) {
                Entry::Occupied(place) => Arc::clone(place.get()),
                Entry::Vacant(place) => {
                    let (options, cache) = (RemoteOptions::default(), BlockCacheOptions::default());
                    let there = storage_at(place.key(), &options, cache)?;
                    Arc::clone(place.insert(Arc::new(there)))
                }
            }
        };
        let path = PathBuf::from(url);
        let there = Shard::open(storage, &path).map_err(DatasetError::from)?;
        if there.id() != shard.id() {
            let message = format!("it is not the shard {} whose rows are there", shard.id());
            return Err(DatasetError::Damaged { path, message }.into());
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let open = opened.shards.entry(url.to_owned()).or_insert_with(|| Arc::new(there));
        Ok(Arc::clone(open))
    }
}
