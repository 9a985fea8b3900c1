//! The names of a feature cache's files and folders.

use std::path::{Path, PathBuf};

/// The one writer's lock, in the cache's folder.
pub(super) const LOCK: &str = "lock";
/// Canonical JSON of a section's signature, which names the section's folder.
pub(super) const SIGNATURE: &str = "signature.json";
/// The log of a section.
pub(super) const MANIFEST: &str = "manifest.jsonl";
/// Why the rows of a section are not to be believed, where they are not.
pub(super) const DOUBT: &str = "doubt";
/// Digits of a section's name.
const NAME_DIGITS: usize = 64;

/// Folder of a section's segments.
pub(super) fn segments(section: &Path) -> PathBuf {
    section.join("segments")
}

/// Folder of a segment.
pub(super) fn segment(section: &Path, id: u32) -> PathBuf {
    segments(section).join(id.to_string())
}

/// Folder of a section's index.
pub(super) fn index(section: &Path) -> PathBuf {
    section.join("index")
}

/// Whether a folder of that name can be a section.
pub(super) fn is_section(name: &str) -> bool {
    name.len() == NAME_DIGITS && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
