//! The feature cache: rows of features under 32-byte keys, kept so that none is computed twice.
//!
//! A folder holds a **section** per
//! [`CompatSignature`](crate::fingerprint::CompatSignature): features of other signatures are never mixed.
//! Rows of a section have one structure, inferred when the first are put: any batch that a shard can
//! hold, with every dtype and shape exactly as given. One process writes ([`FeatureCache`]), any
//! number read ([`CacheReader`]).
//!
//! ```
//! use std::sync::Arc;
//!
//! use arrow_array::{Float32Array, RecordBatch, cast::AsArray, types::Float32Type};
//! use rowmill::cache::{CacheReader, FeatureCache, RowKey, SectionOptions};
//! use rowmill::fingerprint::CompatSignature;
//! use rowmill::storage::Local;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let signature = CompatSignature::new(&serde_json::json!({"id": "energy-v1", "cutoff": 5.0}));
//! let key = |text: &str| -> RowKey { blake3::hash(text.as_bytes()).into() };
//!
//! let cache = FeatureCache::open(Arc::new(Local), dir.path())?;
//! let section = cache.section(&signature, SectionOptions::default())?;
//! let energies = Float32Array::from(vec![-1.5, -2.5]);
//! let rows = RecordBatch::try_from_iter([("energy", Arc::new(energies) as _)])?;
//! section.put(&[key("water"), key("methane")], &rows)?;
//! section.commit()?;
//!
//! let reader = CacheReader::local(dir.path()).section(&signature)?;
//! let found = reader.get(&[key("methane"), key("ammonia"), key("water")])?;
//! assert_eq!((found.hits, found.misses), (vec![0, 2], vec![1]));
//! assert_eq!(found.rows["energy"].as_primitive::<Float32Type>().values(), &[-2.5, -1.5]);
//! # Ok(())
//! # }
//! ```
//!
//! In reading order: `layout` (names), `manifest` (which segments count), `segment`, `run` and `index`
//! (where the row of a key is), `hot` (the same of rows that were asked for last), `view` (a section at one
//! moment), `gather` and `lookup` (rows as they are handed out), `structure` (what rows are), `store` (what changes a section on disk), `lane` and
//! `section` (writing in the background), `writer` and `reader`; `caches` (all that a run writes to) and
//! `row_keys` (a key for a row that has none of its own).
//!
//! Leaves out: which keys mean what, and how features are computed.
//!
//! Invariants:
//! 1. A committed row is found, whatever happens afterwards, until a later one with its key is
//!    committed; or there is an error that names what is damaged. No row is half there.
//! 2. Memory does not grow with rows: keys, index and rows are mapped.
//! 3. What is kept of hot rows is where they are, within bytes that are told; the rows themselves stay
//!    mapped, in the system's memory, which is bounded by what nobody else needs.

mod caches;
mod error;
mod gather;
mod hot;
mod index;
mod lane;
mod layout;
mod lookup;
mod manifest;
mod reader;
mod row_keys;
mod run;
mod section;
mod segment;
mod store;
mod structure;
#[cfg(test)]
mod tests;
mod view;
mod writer;

pub use caches::{Caches, memory_bytes};
pub use error::{CacheError, Result};
pub use hot::HotStat;
pub use lookup::Lookup;
pub use reader::{CacheReader, SectionReader, SectionStat};
pub use row_keys::{batch_keys, column_types, row_keys};
pub use section::{Others, Section, SectionOptions};
pub use store::Compacted;
pub use writer::FeatureCache;

/// The key of a row: 32 bytes that are spread evenly, as a hash is. Keys of any other kind work too,
/// and are found more slowly.
pub type RowKey = [u8; 32];
