//! What a sealed shard says of itself, wherever its other files are.
//!
//! Leaves out: whether the files hold it.

use std::path::Path;

use super::layout;
use super::read_error::ReadError;
use super::sums::{self, Sentinel};
use crate::storage::Storage;

/// The sentinel and the sums that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    sentinel: Sentinel,
    /// `_COMPLETE`, as it is.
    pub complete: Vec<u8>,
    /// `B3SUMS`, as it is.
    pub sums: Vec<u8>,
    /// The other files by name, each with its BLAKE3.
    pub files: Vec<(String, blake3::Hash)>,
}

impl Promise {
    /// Reads sentinel and sums of the shard in the folder `path`.
    ///
    /// # Errors
    /// It is not sealed, or they contradict each other.
    pub fn read(storage: &dyn Storage, path: &Path) -> Result<Self, ReadError> {
        let damaged = |name: &str, what: &str| ReadError::damaged(&path.join(name), what);
        let Some(complete) = storage.read(&path.join(layout::COMPLETE))? else {
            return Err(ReadError::NotSealed { path: path.to_path_buf() });
        };
        let sentinel =
            Sentinel::parse(&complete).map_err(|what| damaged(layout::COMPLETE, &what))?;
        let missing = || ReadError::Missing { path: path.join(layout::SUMS) };
        let sums = storage.read(&path.join(layout::SUMS))?.ok_or_else(missing)?;
        if blake3::hash(&sums).to_hex().as_str() != sentinel.sums_b3 {
            return Err(damaged(layout::SUMS, "is not the file that _COMPLETE names"));
        }
        let by_name = sums::parse(&sums).map_err(|what| damaged(layout::SUMS, &what))?;
        let mut files = Vec::with_capacity(by_name.len());
        for (name, digest) in by_name {
            if !is_file_name(&name) {
                return Err(damaged(layout::SUMS, &format!("names `{}`", name.escape_debug())));
            }
            let digest = blake3::Hash::from_hex(digest);
            files.push((name, digest.map_err(|_| damaged(layout::SUMS, "holds no digests"))?));
        }
        Ok(Self { sentinel, complete, sums, files })
    }

    pub(super) fn sentinel(&self) -> &Sentinel {
        &self.sentinel
    }

    /// The shard's id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.sentinel.id()
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> u64 {
        self.sentinel.n_rows
    }
}

/// Whether a file of a shard may have that name: it is put into a folder of ours.
fn is_file_name(name: &str) -> bool {
    let is_plain = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.');
    name.bytes().all(is_plain) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_none_of_ours() {
        for (name, is_one) in [
            ("data.bin", true),
            ("x_2.dict.offsets.bin", true),
            ("index.parquet", true),
            ("..", false),
            (".hidden", false),
            ("_COMPLETE", false),
            ("B3SUMS", false),
            ("a b", false),
            ("a\u{0}", false),
        ] {
            assert_eq!(is_file_name(name), is_one, "{name:?}");
        }
    }
}
