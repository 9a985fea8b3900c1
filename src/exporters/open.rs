//! Opens a dataset where it lies: rows are read from a store, block by block.
//!
//! Leaves out: bringing it here as a whole (`pull`), which is better for who reads all of it more than
//! once.

use std::path::Path;
use std::sync::Arc;

use crate::dataset::{Dataset, DatasetError};
use crate::remote::{
    BlockCacheOptions, Remote, RemoteError, RemoteOptions, RemoteStorage, of_remote,
};

/// The place at `url`, for who reads rows there.
///
/// # Errors
/// The URL or the environment is wrong.
pub fn storage_at(
    url: &str,
    options: &RemoteOptions,
    cache: BlockCacheOptions,
) -> Result<RemoteStorage, RemoteError> {
    RemoteStorage::for_rows(Remote::open(url, options)?, cache)
}

/// Opens the dataset at `url`: that of a cache key, or the one above it, whose `current.json` is
/// followed. Rows are read by [`Dataset::select`], [`Dataset::scan`] and [`Dataset::find`], from any
/// number of threads, and only the blocks of 1 MiB that hold them travel; `cache` says how much of them is
/// kept.
///
/// ```no_run
/// use rowmill::exporters::open_dataset;
/// use rowmill::remote::{BlockCacheOptions, RemoteOptions};
///
/// let url = "s3://bucket/datasets/digits";
/// let dataset = open_dataset(url, &RemoteOptions::default(), BlockCacheOptions::default())?;
/// let mut images = vec![0; 3 * 784];
/// dataset.select(&[7, 70_000, 8])?.gather("image", &mut images)?;
/// # Ok::<_, rowmill::dataset::DatasetError>(())
/// ```
///
/// # Errors
/// The URL or the environment is wrong, the store refuses, or as [`Dataset::open_in`].
/// [`remote_cause`](crate::remote::remote_cause) finds what the store said.
pub fn open_dataset(
    url: &str,
    options: &RemoteOptions,
    cache: BlockCacheOptions,
) -> Result<Dataset, DatasetError> {
    let storage = storage_at(url, options, cache);
    let storage =
        storage.map_err(|e| of_remote("open", Path::new(&crate::remote::shown(url)), e))?;
    let root = storage.root().to_path_buf();
    Dataset::open_in(Arc::new(storage), root)
}
